package integration

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// Steps that a person takes in a browser: the error -32042 of 2025-11-25, and elicitation by URL in
// both eras (protocol.md §3.A row 10, §3.B row 8).

const signIn = `{"gate":"signed in"}`

func TestProtocolT73UpstreamWantsABrowser(t *testing.T) {
	eachWire(t, pair{upstream.EraModern, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
		s, j := over(t, p, upstreamtest.Script{}, nil)
		c := j.talk(t)
		q := called("up__url", signIn)
		base := q.params
		m := c.begin(t, q).answer(t)
		for range 2 { // it comes back too early once
			open := requested(t, m)
			if len(open) != 1 || open[0].method != "elicitation/create" {
				t.Fatalf("asked %+v, want one elicitation", open)
			}
			wantJSON(t, "params", open[0].params, `{"mode":"url","message":"[up] Sign in","url":"https://example.com/e-1"}`)
			q.params = retried(base, m, string(raw.Quote(open[0].key))+`:{"action":"accept"}`)
			m = c.begin(t, q).answer(t)
		}
		s.openGate(t, "signed in")
		for deadline := time.Now().Add(patience); member(m.Result, "resultType") == `"input_required"` && time.Now().Before(deadline); {
			open := requested(t, m) // a process of its own may see the gate a moment late, and ask once more
			q.params = retried(base, m, string(raw.Quote(open[0].key))+`:{"action":"accept"}`)
			m = c.begin(t, q).answer(t)
		}
		if got := member(m.Result, "structuredContent"); got != `{"executions":1}` {
			t.Errorf("got %s, want the tool's result", m.Append(nil))
		}
		for _, r := range callsOf(t, s.Journal, 4) {
			if strings.Contains(string(r.Body), "inputResponses") || strings.Contains(string(r.Body), "requestState") {
				t.Errorf("a legacy upstream received %s", r.Body)
			}
		}
	})
}

// TestProtocolT73PromptsAndResources has what is no tool want a browser, too.
func TestProtocolT73PromptsAndResources(t *testing.T) {
	instead := json.RawMessage(`{"do":"url","gate":"signed in"}`)
	script := upstreamtest.Script{Prompts: []json.RawMessage{[]byte(`{"name":"p"}`)}, Resources: []json.RawMessage{}, Instead: map[string]json.RawMessage{"p": instead, "note:1": instead}}
	eachPair(t, func(t *testing.T, p pair) {
		s, j := over(t, p, script, nil)
		c, simple := j.talk(t), talkAs(t, j.url, p.client, "2025-11-25", `{}`)
		for _, q := range []query{{method: "prompts/get", params: `"name":"up__p"`}, {method: "resources/read", params: `"uri":"mcp://up/note:1"`}} {
			if m := simple.begin(t, q).answer(t); m.Error != nil && m.Error.Code == -32042 {
				t.Errorf("%s of a client that cannot open a page is answered %s", q.method, m.Append(nil))
			}
			done := func(m jsonrpc.Message) bool {
				return m.Error == nil && strings.Contains(string(m.Result), `\"executions\":`)
			}
			var m jsonrpc.Message
			if p.client == upstream.EraLegacy && p.upstream == upstream.EraLegacy {
				wantCode(t, c.begin(t, q).answer(t), -32042)
				s.openGate(t, "signed in")
				// the process may see the gate a moment late
				for m = c.begin(t, q).answer(t); !done(m) && m.Error != nil && m.Error.Code == -32042; {
					m = c.begin(t, q).answer(t)
				}
			} else {
				opened := false
				m, _ = c.converse(t, q, func(put) string {
					if !opened {
						s.openGate(t, "signed in")
						opened = true
					}
					return `"result":{"action":"accept"}`
				})
			}
			if !done(m) {
				t.Errorf("%s = %s, want its result", q.method, m.Append(nil))
			}
		}
	})
}

func TestProtocolT73PersonDeclines(t *testing.T) {
	eachWire(t, pair{upstream.EraModern, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
		s, j := over(t, p, upstreamtest.Script{}, nil)
		c := j.talk(t)
		q := called("up__url", signIn)
		m := c.begin(t, q).answer(t)
		open := requested(t, m)
		q.params = retried(q.params, m, string(raw.Quote(open[0].key))+`:{"action":"decline"}`)
		if m = c.begin(t, q).answer(t); m.Error != nil && m.Error.Code == -32042 {
			t.Errorf("a modern client got %s", m.Append(nil))
		}
		if n := len(callsOf(t, s.Journal, 1)); n > 2 {
			t.Errorf("the upstream was called %d times", n)
		}
	})
}

func TestProtocolT73WithoutTheCapability(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		_, j := over(t, p, upstreamtest.Script{}, nil)
		c := talkAs(t, j.url, p.client, "2025-11-25", `{"elicitation":{}}`)
		for _, arguments := range []string{signIn, `{"gate":"signed in","always":true}`} {
			always := strings.Contains(arguments, "always")
			a := c.begin(t, called("up__url", arguments))
			m := a.answer(t)
			switch {
			case m.Error != nil && m.Error.Code == -32042:
				t.Errorf("a client that cannot open a page got %s", m.Append(nil))
			case p.client == upstream.EraModern && (always && p.upstream == upstream.EraLegacy || !always && p.upstream == upstream.EraModern):
				if wantCode(t, m, -32021); a.status != 400 {
					t.Errorf("status %d, want 400", a.status)
				}
				if m.Error != nil {
					wantJSON(t, "data", m.Error.Data, `{"requiredCapabilities":{"elicitation":{"url":{}}}}`)
				}
			case p.client == upstream.EraLegacy && always && p.upstream == upstream.EraLegacy:
				if got := string(m.Result); member(m.Result, "isError") != "true" || !strings.Contains(got, "https://example.com/e-1") {
					t.Errorf("got %s, want an error of the tool's that says what to do", m.Append(nil))
				}
			}
		}
	})
}

func TestProtocolT73PassesBetweenLegacyPeers(t *testing.T) {
	eachWire(t, pair{upstream.EraLegacy, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
		s, j := over(t, p, upstreamtest.Script{}, nil)
		c := j.talk(t)
		m := c.call(t, "up__url", signIn)
		wantCode(t, m, -32042)
		if m.Error == nil {
			t.FailNow()
		}
		list, err := raw.Get(m.Error.Data, "elicitations")
		if err != nil {
			t.Fatalf("data = %s", m.Error.Data)
		}
		items, _ := raw.Elements(list)
		if len(items) != 1 || text(t, items[0], "elicitationId") == "" || text(t, items[0], "url") != "https://example.com/e-1" || text(t, items[0], "mode") != "url" {
			t.Errorf("elicitations = %s", list)
		}
		s.openGate(t, "signed in")
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
			if m = c.call(t, "up__url", signIn); m.Error == nil || m.Error.Code != -32042 {
				break // until then it is a process that sees the gate a moment late
			}
		}
		if got := member(m.Result, "structuredContent"); got != `{"executions":1}` {
			t.Errorf("got %s, want the tool's result", m.Append(nil))
		}
	})
}

// TestProtocolT73ModernUpstreamWantsABrowser is the other way: a modern server's question by URL
// becomes one of 2025-11-25, with an id of ours, and the client hears when the server asks no more.
func TestProtocolT73ModernUpstreamWantsABrowser(t *testing.T) {
	eachWire(t, pair{upstream.EraLegacy, upstream.EraModern, ""}, func(t *testing.T, p pair) {
		s, j := over(t, p, upstreamtest.Script{}, nil)
		c := j.talk(t)
		a := c.begin(t, called("up__url", signIn))
		m, ok := a.next(t)
		if !ok || m.Method != "elicitation/create" {
			t.Fatalf("got %s, want an elicitation", m.Append(nil))
		}
		id := text(t, m.Params, "elicitationId")
		wantJSON(t, "params", m.Params, `{"mode":"url","message":"[up] Sign in","url":"https://example.com/e-1","elicitationId":`+string(raw.Quote(id))+`}`)
		s.openGate(t, "signed in")
		c.respond(t, m.ID, `"result":{"action":"accept"}`)
		complete := false
		var answer jsonrpc.Message
		for answer.ID == "" {
			m, ok := a.next(t)
			switch {
			case !ok:
				t.Fatal("no answer")
			case m.IsResponse():
				answer = m
			case m.IsRequest(): // the process may see the gate a moment late
				c.respond(t, m.ID, `"result":{"action":"accept"}`)
			case m.Method == "notifications/elicitation/complete":
				complete = complete || text(t, m.Params, "elicitationId") == id
			}
		}
		if got := member(answer.Result, "structuredContent"); got != `{"executions":1}` || !complete {
			t.Errorf("got %s, and told that the step is done: %t; want the tool's result and true", answer.Append(nil), complete)
		}
	})
}

// TestProtocolT73CompletionReachesTheOneWhoWasAsked is 2025-11-25, client/elicitation: the
// notification goes to the client that was asked, and to no other.
func TestProtocolT73CompletionReachesTheOneWhoWasAsked(t *testing.T) {
	eachWire(t, pair{upstream.EraLegacy, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
		s, j := over(t, p, upstreamtest.Script{}, nil)
		one, two := j.talk(t), j.talk(t)
		heard, silent := one.get(t), two.get(t)
		m := one.call(t, "up__url", signIn)
		wantCode(t, m, -32042)
		if m.Error == nil {
			t.FailNow()
		}
		list, _ := raw.Get(m.Error.Data, "elicitations")
		items, _ := raw.Elements(list)
		id := text(t, items[0], "elicitationId")
		s.listened(t, p)
		s.notify(t, "notifications/elicitation/complete", `{"elicitationId":"nobody's"}`)
		s.notify(t, "notifications/elicitation/complete", `{"elicitationId":"e-1"}`)
		heard.wantNote(t, "notifications/elicitation/complete", `{"elicitationId":`+string(raw.Quote(id))+`}`)
		two.succeed(t, "up__echo", `{}`)
		silent.wantSilence(t)
	})
}
