package integration

import (
	"strings"
	"testing"

	"junction/upstream"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// What a client may try to get around an approval with.

// TestApprovalShowsWhatIsCalled has arguments that two readers may read in two ways: the person
// would be shown one of them, and the upstream may take the other.
func TestApprovalShowsWhatIsCalled(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{})
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, policy: mustPolicy(t, approving)})
		j.offers(t, "up")
		c := j.talk(t)
		for _, params := range []string{
			`"name":"up__echo","arguments":{"n":1},"Arguments":{"n":2}`, `"name":"up__echo","ARGUMENTS":{"n":2}`, `"name":"up__echo","arguments":{"n":1},"arguments":{"n":2}`,
		} {
			m, asked := c.converse(t, query{method: "tools/call", params: params}, approval("yes, once"))
			if m.Error == nil || len(asked) > 0 {
				t.Errorf("%s: after %d questions %s, want an error", params, len(asked), m.Append(nil))
				for _, q := range asked {
					t.Logf("the person reads %q", text(t, q.params, "message"))
				}
			}
		}
		for _, r := range s.Received() {
			if r.Message.Method == "tools/call" {
				t.Errorf("the upstream got %s", r.Message.Params)
			}
		}
	})
}

// TestApprovalIsForTheseBytes approves a request for good that has a member in another letter case
// which is left out of its digest; another request with such a member is another request all the
// same.
func TestApprovalIsForTheseBytes(t *testing.T) {
	runPair(t, pair{upstream.EraLegacy, upstream.EraLegacy, "http"}, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{})
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, policy: mustPolicy(t, approving)})
		j.offers(t, "up")
		c := j.talk(t)
		odd := func(n string) query {
			q := called("up__echo", `{"n":`+n+`}`)
			q.params += `,"RequestState":1`
			return q
		}
		c.converse(t, odd("1"), approval("yes, and do not ask again for exactly this call"))
		if m, asked := c.converse(t, odd("2"), approval("no")); len(asked) == 0 && m.Error == nil {
			t.Errorf("another call is answered %s without a question", m.Append(nil))
		}
		for _, r := range callsOf(t, s.Journal, 0) {
			if strings.Contains(string(r.Message.Params), `"n":2`) {
				t.Errorf("the upstream got %s", r.Message.Params)
			}
		}
	})
}

// TestApprovalIsForThisTool has a name mean the tool of another upstream when the client comes back
// with the person's answer, and again after that.
func TestApprovalIsForThisTool(t *testing.T) {
	eachEra(t, func(t *testing.T, p pair) {
		a, b := p.serve(t, upstreamtest.Script{Tools: definitions("echo")}), p.serve(t, upstreamtest.Script{Tools: definitions("echo")})
		rules := mustPolicy(t, "- { name: careful, rules: [ { ask: { tools: \"*\" } } ] }\n")
		j := start(t, p, world{upstreams: map[string]upstream.Config{"a": a.config}, policy: rules})
		j.offers(t, "a")
		c := j.talk(t)
		c.converse(t, called("echo", `{"n":1}`), approval("yes, and do not ask again for exactly this call"))
		q := called("echo", `{"n":2}`)
		if p.client == upstream.EraModern {
			m := c.begin(t, q).answer(t)
			q.params = retried(q.params, m, string(raw.Quote(requested(t, m)[0].key))+`:{"action":"accept","content":{"answer":"yes, once"}}`)
		}
		j.apply(world{upstreams: map[string]upstream.Config{"b": b.config}, policy: rules})
		j.offers(t, "b")
		if p.client == upstream.EraModern {
			wantCode(t, c.begin(t, q).answer(t), -32602)
		}
		if m, asked := c.converse(t, called("echo", `{"n":1}`), approval("no")); len(asked) != 1 {
			t.Errorf("of another upstream's tool %d questions are asked, want one; %s", len(asked), m.Append(nil))
		}
		for _, r := range b.Received() {
			if r.Message.Method == "tools/call" {
				t.Errorf("the other upstream got %s", r.Message.Params)
			}
		}
	})
}

// TestApprovalDoesNotOutliveAReload has the file deny a call while its person thinks about it: the
// answer comes too late.
func TestApprovalDoesNotOutliveAReload(t *testing.T) {
	eachEra(t, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{})
		first := world{upstreams: map[string]upstream.Config{"up": s.config}, policy: mustPolicy(t, approving)}
		for name, rules := range map[string]string{
			"denied":    "- { name: careful, rules: [ { deny: { tools: up__echo } }, { allow: { upstreams: \"*\" } } ] }\n",
			"arguments": "- { name: careful, rules: [ { deny: { tools: up__echo, where: { a: b } } }, { allow: { upstreams: \"*\" } } ] }\n",
		} {
			t.Run(name, func(t *testing.T) {
				first.crowded = true
				j := start(t, p, first)
				j.offers(t, "up")
				c := j.talk(t)
				m, asked := c.converse(t, called("up__echo", `{"a":"b"}`), func(q put) string {
					second := first
					second.policy = mustPolicy(t, rules)
					j.apply(second)
					return approval("yes, once")(q)
				})
				if len(asked) != 1 || m.Error == nil {
					t.Errorf("after %d questions and a reload the call is answered %s", len(asked), m.Append(nil))
				}
			})
		}
		for _, r := range s.Received() {
			if r.Message.Method == "tools/call" {
				t.Errorf("the upstream got %s", r.Message.Params)
			}
		}
	})
}

// TestApprovalOnceIsOneCall has an upstream ask a question of its own in an approved call, and the
// client answer that twice: the second time is another call.
func TestApprovalOnceIsOneCall(t *testing.T) {
	for _, up := range eras {
		runPair(t, pair{upstream.EraModern, up, "http"}, func(t *testing.T, p pair) {
			s := p.serve(t, upstreamtest.Script{})
			j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, policy: mustPolicy(t, approving)})
			j.offers(t, "up")
			c := j.talk(t)
			q := asking(askForm)
			base := q.params
			for _, answer := range []string{`{"action":"accept","content":{"answer":"yes, once"}}`, strings.TrimPrefix(accepted, `"result":`)} {
				m := c.begin(t, q).answer(t)
				q.params = retried(base, m, string(raw.Quote(requested(t, m)[0].key))+":"+answer)
			}
			if m := c.begin(t, q).answer(t); m.Error != nil || member(m.Result, "resultType") != `"complete"` {
				t.Fatalf("the approved call is answered %s", m.Append(nil))
			}
			calls := len(callsOf(t, s.Journal, 1))
			wantCode(t, c.begin(t, q).answer(t), -32602)
			if n := len(callsOf(t, s.Journal, calls)); n != calls {
				t.Errorf("the upstream was called %d times more", n-calls)
			}
		})
	}
}

// TestRoundsDoNotOutliveAReload has a modern upstream ask a legacy client's person, and the file
// deny the call, or want it approved, before the answer is there: the call is not made again.
func TestRoundsDoNotOutliveAReload(t *testing.T) {
	runPair(t, pair{upstream.EraLegacy, upstream.EraModern, "http"}, func(t *testing.T, p pair) {
		for name, rules := range map[string]string{
			"denied": "- { name: careful, rules: [ { deny: { tools: up__ask } }, { allow: { upstreams: \"*\" } } ] }\n",
			"asked":  "- { name: careful, rules: [ { ask: { tools: up__ask } }, { allow: { upstreams: \"*\" } } ] }\n",
		} {
			t.Run(name, func(t *testing.T) {
				s := p.serve(t, upstreamtest.Script{})
				w := world{upstreams: map[string]upstream.Config{"up": s.config}, crowded: true}
				j := start(t, p, w)
				j.offers(t, "up")
				m, asked := j.talk(t).converse(t, asking(askForm), func(q put) string {
					w.policy = mustPolicy(t, rules)
					j.apply(w)
					return approval("no")(q)
				})
				if want := map[string]int{"denied": 1, "asked": 2}[name]; len(asked) != want || m.Error == nil && member(m.Result, "isError") != "true" {
					t.Errorf("after %d questions and a reload the call is answered %s", len(asked), m.Append(nil))
				}
				if n := len(callsOf(t, s.Journal, 1)); n != 1 {
					t.Errorf("the upstream was called %d times, want once", n)
				}
			})
		}
	})
}
