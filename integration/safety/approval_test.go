package safety

import (
	"encoding/json"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// TestApprovalCoversMeta has a user approve a call for good. It holds for a call with the same _meta,
// and for no other, except for the members that the protocol puts there for each request.
func TestApprovalCoversMeta(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "a remembered approval of a modern client holds in one process")
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Policy: harness.MustPolicy(t, approving)})
		j.Offers(t, "up")
		c := j.Talk(t)
		with := func(meta string) harness.Query {
			q := harness.Called("up__echo", `{"a":1}`)
			q.Meta = meta
			return q
		}
		const hop = `"progressToken":"t","traceparent":"00-1","tracestate":"a=1","baggage":"b=1","io.modelcontextprotocol/x":1`
		m, asked := c.Converse(t, with(`"account":"one",`+hop), approval("Allow and remember for this exact call"))
		if m.Error != nil || len(asked) != 1 {
			t.Fatalf("after %d questions %s", len(asked), m.Append(nil))
		}
		if message := harness.Text(t, asked[0].Params, "message"); !strings.HasSuffix(message, "\n_meta:\n  account: \"one\"") {
			t.Errorf("the person reads %q, without the _meta that is approved", message)
		}
		for meta, remembered := range map[string]bool{
			`"account":"one"`:                    true,
			`"account":"\u006fne","baggage":"c"`: true,
			`"account":"one","progressToken":"u","traceparent":"00-2","tracestate":"a=2","io.modelcontextprotocol/x":2`: true,
			`"account":"two"`:                    false,
			``:                                   false,
			`"account":"one","more":1`:           false,
			`"account":"one","Traceparent2":"x"`: false,
			`"account":"one","modelcontextprotocol":""`: false,
		} {
			_, asked := c.Converse(t, with(meta), approval("Do not allow"))
			if remembered && len(asked) > forgotten(p) || !remembered && len(asked) != 1 {
				t.Errorf("with the _meta %s the person is asked %d times; it is remembered: %v", meta, len(asked), remembered)
			}
		}
	})
}

// TestAnswerIsForTheMetaThatWasShown has a modern client return from a form with another _meta than
// the form has shown: the user is asked again, and nothing is executed.
func TestAnswerIsForTheMetaThatWasShown(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, upstreamtest.Script{})
			j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": harness.Exact(s.Config)},
				Policy: harness.MustPolicy(t, approving)})
			j.Offers(t, "up")
			c := j.Talk(t)
			yes := func(m string) string { return m + `:{"action":"accept","content":{"answer":"Allow once"}}` }
			q := harness.Called("up__echo", `{"a":1}`)
			base := q.Params
			q.Meta = `"account":"one"`
			m := c.Begin(t, q).Answer(t)
			q.Params = harness.Retried(base, m, yes(string(raw.Quote(harness.Requested(t, m)[0].Key))))
			q.Meta = `"account":"two"`
			again := harness.Requested(t, c.Begin(t, q).Answer(t))
			if len(again) != 1 || !strings.Contains(string(again[0].Params), "two") || strings.Contains(string(again[0].Params), "one\\\"") {
				t.Errorf("the person is asked %v", again)
			}
			q.Meta = `"account":"one","progressToken":"other"`
			if m := c.Begin(t, q).Answer(t); m.Error != nil || harness.Member(m.Result, "resultType") != `"complete"` {
				t.Errorf("the approved call is answered %s", m.Append(nil))
			}
			if n := len(harness.CallsOf(t, s.Journal, 1)); n != 1 {
				t.Errorf("the upstream was called %d times, want once", n)
			}
			if up == client.EraLegacy {
				return // its call is parked: it was made once, and gets the answers
			}
			// the approval of a call that the server interrupts is for that call only
			q = harness.Asking(harness.AskForm)
			base = q.Params
			q.Meta = `"account":"one"`
			m = c.Begin(t, q).Answer(t)
			q.Params = harness.Retried(base, m, yes(string(raw.Quote(harness.Requested(t, m)[0].Key))))
			m = c.Begin(t, q).Answer(t)
			q.Params = harness.Retried(base, m, string(raw.Quote(harness.Requested(t, m)[0].Key))+":"+
				strings.TrimPrefix(harness.Accepted, `"result":`))
			q.Meta = `"account":"two"`
			harness.WantCode(t, c.Begin(t, q).Answer(t), -32602)
		})
	}
}

// TestNothingIsApprovedBlind: a call of which the form cannot show a part is refused with the reason.
// No user is asked about it, and no server gets it.
func TestNothingIsApprovedBlind(t *testing.T) {
	harness.Waits(t)
	long := strings.Repeat("x", 33_000)
	many, _ := json.Marshal(make([]int, 40))
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, harness.Library("up"))
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Policy: harness.MustPolicy(t, approving)})
		j.Offers(t, "up")
		c := j.Talk(t)
		call := func(arguments, meta string) harness.Query {
			q := harness.Called("up__echo", arguments)
			q.Meta = meta
			return q
		}
		for _, row := range []struct {
			q   harness.Query
			why string
		}{
			{call(`{"note":"`+long+`","command":"rm -rf /"}`, ""), "more than the 32768 bytes"},
			{call(`{"note":"`+strings.Repeat(`\u202e`, 8000)+`"}`, ""), "more than the 32768 bytes"},
			{call(`{"a":`+strings.Repeat("[", 20)+strings.Repeat("]", 20)+`}`, ""), "deeper than the 16 levels"},
			{call(`{`+strings.Repeat(`"a":1,`, 2)+`"b":1}`, ""), "a name occurs twice"},
			{call(`{"a":{"b":1,"b":2}}`, ""), "a name occurs twice"},
			{call(`{"a":"\ud800"}`, ""), "not valid Unicode"},
			{call(`{}`, `"note":"`+long+`"`), "more than the 32768 bytes"},
			{call(`{}`, `"a":1,"a":2`), "a name occurs twice"},
			{harness.Query{Method: "tools/call", Params: `"name":"up__echo","arguments":{},"other":"` + long + `"`}, "more than the 32768 bytes"},
			{harness.Query{Method: "prompts/get", Params: `"name":"up__p","arguments":{"a":"` + long + `"}`}, "more than the 32768 bytes"},
		} {
			m, asked := c.Converse(t, row.q, approval("Allow and remember for this exact call"))
			got := string(m.Append(nil))
			if len(asked) > 0 || !strings.Contains(got, "the form cannot show all of it") || !strings.Contains(got, row.why) ||
				!strings.Contains(got, "ask the operator of Junction") {
				t.Errorf("%.100s %.100s: after %d questions %.300s, want a refusal: %s", row.q.Params, row.q.Meta, len(asked), got, row.why)
			}
		}
		shown := call(`{"text":"`+strings.Repeat("x", 30_000)+`","n":`+string(many)+`}`, "")
		m, asked := c.Converse(t, shown, approval("Allow once"))
		if m.Error != nil || len(asked) != 1 || !strings.Contains(string(asked[0].Params), strings.Repeat("x", 30_000)) {
			t.Errorf("after %d questions %.300s", len(asked), m.Append(nil))
		}
		if n := len(harness.CallsOf(t, s.Journal, 1)); n != 1 {
			t.Errorf("the upstream was called %d times, want once", n)
		}
	})
}

// TestApprovalCoversAnswersToTheServer: a server without a state asks the user something during an
// approved call. The call goes on with the answer, and the approval holds for no answer that the server
// has not asked for.
func TestApprovalCoversAnswersToTheServer(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "a remembered approval of a modern client holds in one process")
	harness.RunPair(t, client.EraModern, client.EraModern, "http", func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Policy: harness.MustPolicy(t, approving)})
		j.Offers(t, "up")
		c := j.Talk(t)
		q := harness.Called("up__ask", `{"state":"none","questions":[`+harness.AskForm+`]}`)
		for _, choice := range []string{"Allow once", "Allow and remember for this exact call"} {
			m, asked := c.Converse(t, q, approval(choice))
			if m.Error != nil || harness.Member(m.Result, "resultType") != `"complete"` || len(asked) != 2 {
				t.Errorf("%s: after %d questions %s", choice, len(asked), m.Append(nil))
			}
		}
		q.Params += `,"inputResponses":{"q1":` + strings.TrimPrefix(harness.Accepted, `"result":`) + `}`
		harness.Requested(t, c.Begin(t, q).Answer(t))
		for _, r := range harness.CallsOf(t, s.Journal, 5)[4:] {
			if got := harness.Member(r.Message.Params, "inputResponses"); got != "" {
				t.Errorf("the server got the answer %s, which it has not asked for", got)
			}
		}
	})
}
