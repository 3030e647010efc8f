package bridge

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// Steps that a person takes in a browser: the error -32042 of 2025-11-25, and elicitation by URL in
// both eras.

const signIn = `{"gate":"signed in"}`

func TestLegacyURLElicitationForAModernClient(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraModern, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		c := j.Talk(t)
		q := harness.Called("up__url", signIn)
		base := q.Params
		m := c.Begin(t, q).Answer(t)
		for range 2 { // it comes back too early once
			open := harness.Requested(t, m)
			if len(open) != 1 || open[0].Method != "elicitation/create" {
				t.Fatalf("asked %+v, want one elicitation", open)
			}
			harness.WantJSON(t, "params", open[0].Params,
				`{"mode":"url","message":"[up] Sign in","url":"https://example.com/e-1"}`)
			q.Params = harness.Retried(base, m, string(raw.Quote(open[0].Key))+`:{"action":"accept"}`)
			m = c.Begin(t, q).Answer(t)
		}
		s.OpenGate(t, "signed in")
		for deadline := time.Now().Add(harness.Patience); harness.Member(m.Result, "resultType") == `"input_required"` &&
			time.Now().Before(deadline); {
			open := harness.Requested(t, m) // a process of its own may see the gate a moment late, and ask once more
			q.Params = harness.Retried(base, m, string(raw.Quote(open[0].Key))+`:{"action":"accept"}`)
			m = c.Begin(t, q).Answer(t)
		}
		if got := harness.Member(m.Result, "structuredContent"); got != `{"executions":1}` {
			t.Errorf("got %s, want the tool's result", m.Append(nil))
		}
		for _, r := range harness.CallsOf(t, s.Journal, 4) {
			if strings.Contains(string(r.Body), "inputResponses") || strings.Contains(string(r.Body), "requestState") {
				t.Errorf("a legacy upstream received %s", r.Body)
			}
		}
	})
}

// TestURLElicitationOfPromptsAndResources has what is no tool want a browser, too.
func TestURLElicitationOfPromptsAndResources(t *testing.T) {
	harness.Waits(t)
	instead := json.RawMessage(`{"do":"url","gate":"signed in"}`)
	script := upstreamtest.Script{Prompts: []json.RawMessage{[]byte(`{"name":"p"}`)}, Resources: []json.RawMessage{},
		Instead: map[string]json.RawMessage{"p": instead, "note:1": instead}}
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, script, nil)
		c, simple := j.Talk(t), harness.TalkAs(t, j.URL, p.Client, "2025-11-25", `{}`)
		for _, q := range []harness.Query{{Method: "prompts/get", Params: `"name":"up__p"`},
			{Method: "resources/read", Params: `"uri":"mcp://up/note:1"`}} {
			if m := simple.Begin(t, q).Answer(t); m.Error != nil && m.Error.Code == -32042 {
				t.Errorf("%s of a client that cannot open a page is answered %s", q.Method, m.Append(nil))
			}
			done := func(m jsonrpc.Message) bool {
				return m.Error == nil && strings.Contains(string(m.Result), `\"executions\":`)
			}
			var m jsonrpc.Message
			if p.Client == client.EraLegacy && p.Upstream == client.EraLegacy {
				harness.WantCode(t, c.Begin(t, q).Answer(t), -32042)
				s.OpenGate(t, "signed in")
				// the process may see the gate a moment late
				for m = c.Begin(t, q).Answer(t); !done(m) && m.Error != nil && m.Error.Code == -32042; {
					m = c.Begin(t, q).Answer(t)
				}
			} else {
				opened := false
				m, _ = c.Converse(t, q, func(harness.ServerRequest) string {
					if !opened {
						s.OpenGate(t, "signed in")
						opened = true
					}
					return `"result":{"action":"accept"}`
				})
			}
			if !done(m) {
				t.Errorf("%s = %s, want its result", q.Method, m.Append(nil))
			}
		}
	})
}

func TestURLElicitationIsDeclined(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraModern, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		c := j.Talk(t)
		q := harness.Called("up__url", signIn)
		m := c.Begin(t, q).Answer(t)
		open := harness.Requested(t, m)
		q.Params = harness.Retried(q.Params, m, string(raw.Quote(open[0].Key))+`:{"action":"decline"}`)
		if m = c.Begin(t, q).Answer(t); m.Error != nil && m.Error.Code == -32042 {
			t.Errorf("a modern client got %s", m.Append(nil))
		}
		if n := len(harness.CallsOf(t, s.Journal, 1)); n > 2 {
			t.Errorf("the upstream was called %d times", n)
		}
	})
}

func TestURLElicitationNeedsTheCapability(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		c := harness.TalkAs(t, j.URL, p.Client, "2025-11-25", `{"elicitation":{}}`)
		for _, arguments := range []string{signIn, `{"gate":"signed in","always":true}`} {
			always := strings.Contains(arguments, "always")
			a := c.Begin(t, harness.Called("up__url", arguments))
			m := a.Answer(t)
			switch {
			case m.Error != nil && m.Error.Code == -32042:
				t.Errorf("a client that cannot open a page got %s", m.Append(nil))
			case p.Client == client.EraModern &&
				(always && p.Upstream == client.EraLegacy || !always && p.Upstream == client.EraModern):
				if harness.WantCode(t, m, -32021); a.Status != 400 {
					t.Errorf("status %d, want 400", a.Status)
				}
				if m.Error != nil {
					harness.WantJSON(t, "data", m.Error.Data, `{"requiredCapabilities":{"elicitation":{"url":{}}}}`)
				}
			case p.Client == client.EraLegacy && always && p.Upstream == client.EraLegacy:
				if got := string(m.Result); harness.Member(m.Result, "isError") != "true" ||
					!strings.Contains(got, "https://example.com/e-1") {
					t.Errorf("got %s, want an error of the tool's that says what to do", m.Append(nil))
				}
			}
		}
	})
}

func TestURLElicitationBetweenLegacyPeers(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraLegacy, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		c := j.Talk(t)
		m := c.Call(t, "up__url", signIn)
		harness.WantCode(t, m, -32042)
		if m.Error == nil {
			t.FailNow()
		}
		list, err := raw.Get(m.Error.Data, "elicitations")
		if err != nil {
			t.Fatalf("data = %s", m.Error.Data)
		}
		items, _ := raw.Elements(list)
		if len(items) != 1 || harness.Text(t, items[0], "elicitationId") == "" ||
			harness.Text(t, items[0], "url") != "https://example.com/e-1" || harness.Text(t, items[0], "mode") != "url" {
			t.Errorf("elicitations = %s", list)
		}
		s.OpenGate(t, "signed in")
		for deadline := time.Now().Add(harness.Patience); time.Now().Before(deadline); {
			if m = c.Call(t, "up__url", signIn); m.Error == nil || m.Error.Code != -32042 {
				break // until then it is a process that sees the gate a moment late
			}
		}
		if got := harness.Member(m.Result, "structuredContent"); got != `{"executions":1}` {
			t.Errorf("got %s, want the tool's result", m.Append(nil))
		}
	})
}

// TestModernURLElicitationForALegacyClient is the other way: a modern server's question by URL
// becomes one of 2025-11-25, with an id of ours, and the client hears when the server asks no more.
func TestModernURLElicitationForALegacyClient(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraLegacy, client.EraModern, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		c := j.Talk(t)
		a := c.Begin(t, harness.Called("up__url", signIn))
		m, ok := a.Next(t)
		if !ok || m.Method != "elicitation/create" {
			t.Fatalf("got %s, want an elicitation", m.Append(nil))
		}
		id := harness.Text(t, m.Params, "elicitationId")
		harness.WantJSON(t, "params", m.Params,
			`{"mode":"url","message":"[up] Sign in","url":"https://example.com/e-1","elicitationId":`+string(raw.Quote(id))+`}`)
		s.OpenGate(t, "signed in")
		c.Respond(t, m.ID, `"result":{"action":"accept"}`)
		complete := false
		var answer jsonrpc.Message
		for answer.ID == "" {
			m, ok := a.Next(t)
			switch {
			case !ok:
				t.Fatal("no answer")
			case m.IsResponse():
				answer = m
			case m.IsRequest(): // the process may see the gate a moment late
				c.Respond(t, m.ID, `"result":{"action":"accept"}`)
			case m.Method == "notifications/elicitation/complete":
				complete = complete || harness.Text(t, m.Params, "elicitationId") == id
			}
		}
		if got := harness.Member(answer.Result, "structuredContent"); got != `{"executions":1}` || !complete {
			t.Errorf("got %s, and told that the step is done: %t; want the tool's result and true", answer.Append(nil), complete)
		}
	})
}

// TestElicitationCompleteReachesTheAskedClient is 2025-11-25, client/elicitation: the
// notification goes to the client that was asked, and to no other.
func TestElicitationCompleteReachesTheAskedClient(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraLegacy, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		one, two := j.Talk(t), j.Talk(t)
		heard, silent := one.Get(t), two.Get(t)
		m := one.Call(t, "up__url", signIn)
		harness.WantCode(t, m, -32042)
		if m.Error == nil {
			t.FailNow()
		}
		list, _ := raw.Get(m.Error.Data, "elicitations")
		items, _ := raw.Elements(list)
		id := harness.Text(t, items[0], "elicitationId")
		s.Listened(t, p)
		s.Notify(t, "notifications/elicitation/complete", `{"elicitationId":"nobody's"}`)
		s.Notify(t, "notifications/elicitation/complete", `{"elicitationId":"e-1"}`)
		heard.WantNote(t, "notifications/elicitation/complete", `{"elicitationId":`+string(raw.Quote(id))+`}`)
		two.Succeed(t, "up__echo", `{}`)
		silent.WantSilence(t)
	})
}

// TestURLElicitationForAnOlderClient has a modern server want a page to be opened for a client
// whose version has no such thing.
func TestURLElicitationForAnOlderClient(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraLegacy, client.EraModern, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		c := harness.TalkAs(t, j.URL, p.Client, "2025-06-18", `{"elicitation":{"url":{}}}`)
		m, asked := c.Converse(t, harness.Called("up__url", signIn), harness.AnswersTo)
		if len(asked) > 0 || m.Error == nil && harness.Member(m.Result, "isError") != "true" ||
			m.Error != nil && m.Error.Code != -32021 {
			t.Errorf("%d questions and %s, want that it cannot be done", len(asked), m.Append(nil))
		}
	})
}
