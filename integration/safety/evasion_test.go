package safety

import (
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// What a client may try to get around an approval with.

// TestApprovalShowsWhatIsCalled has arguments that two readers may read in two ways: the person
// would be shown one of them, and the upstream may take the other.
func TestApprovalShowsWhatIsCalled(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Policy: harness.MustPolicy(t, approving)})
		j.Offers(t, "up")
		c := j.Talk(t)
		for _, params := range []string{
			`"name":"up__echo","arguments":{"n":1},"Arguments":{"n":2}`, `"name":"up__echo","ARGUMENTS":{"n":2}`,
			`"name":"up__echo","arguments":{"n":1},"arguments":{"n":2}`,
		} {
			m, asked := c.Converse(t, harness.Query{Method: "tools/call", Params: params}, approval("Allow once"))
			if m.Error == nil || len(asked) > 0 {
				t.Errorf("%s: after %d questions %s, want an error", params, len(asked), m.Append(nil))
				for _, q := range asked {
					t.Logf("the person reads %q", harness.Text(t, q.Params, "message"))
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

// TestApprovalIsForTheseBytes tries to approve a request for good that has a member in another letter
// case which is left out of its digest. No form shows such a request, so it cannot be approved.
func TestApprovalIsForTheseBytes(t *testing.T) {
	harness.Waits(t)
	harness.RunPair(t, client.EraLegacy, client.EraLegacy, "http", func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Policy: harness.MustPolicy(t, approving)})
		j.Offers(t, "up")
		c := j.Talk(t)
		odd := func(n string) harness.Query {
			q := harness.Called("up__echo", `{"n":`+n+`}`)
			q.Params += `,"RequestState":1`
			return q
		}
		for _, n := range []string{"1", "2"} {
			m, asked := c.Converse(t, odd(n), approval("Allow and remember for this exact call"))
			if got := string(m.Append(nil)); len(asked) > 0 || !strings.Contains(got, "in another letter case") {
				t.Errorf("after %d questions %s, want a refusal", len(asked), got)
			}
		}
		for _, r := range harness.CallsOf(t, s.Journal, 0) {
			t.Errorf("the upstream got %s", r.Message.Params)
		}
	})
}

// TestApprovalIsForThisTool has a name mean the tool of another upstream when the client comes back
// with the person's answer, and again after that.
func TestApprovalIsForThisTool(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		a, b := p.Serve(t, upstreamtest.Script{Tools: harness.Definitions("echo")}), p.Serve(t,
			upstreamtest.Script{Tools: harness.Definitions("echo")})
		rules := harness.MustPolicy(t, "- { name: careful, rules: [ { ask: { tools: \"*\" } } ] }\n")
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"a": a.Config}, Policy: rules})
		j.Offers(t, "a")
		c := j.Talk(t)
		c.Converse(t, harness.Called("echo", `{"n":1}`), approval("Allow and remember for this exact call"))
		q := harness.Called("echo", `{"n":2}`)
		if p.Client == client.EraModern {
			m := c.Begin(t, q).Answer(t)
			q.Params = harness.Retried(q.Params, m,
				string(raw.Quote(harness.Requested(t, m)[0].Key))+`:{"action":"accept","content":{"answer":"Allow once"}}`)
		}
		j.Apply(harness.Setup{Upstreams: map[string]upstream.Config{"b": b.Config}, Policy: rules})
		j.Offers(t, "b")
		if p.Client == client.EraModern {
			harness.WantCode(t, c.Begin(t, q).Answer(t), -32602)
		}
		if m, asked := c.Converse(t, harness.Called("echo", `{"n":1}`), approval("Do not allow")); len(asked) != 1 {
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
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		first := harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
			Policy: harness.MustPolicy(t, approving)}
		for name, rules := range map[string]string{
			"denied": "- { name: careful, rules: [ { deny: { tools: up__echo } }, { allow: { upstreams: \"*\" } } ] }\n",
			"arguments": "- { name: careful, rules: [ { deny: { tools: up__echo, where: { a: b } } }, { allow: { upstreams: " +
				"\"*\" } } ] }\n",
		} {
			t.Run(name, func(t *testing.T) {
				j := harness.Start(t, p, first)
				j.Offers(t, "up")
				c := j.Talk(t)
				m, asked := c.Converse(t, harness.Called("up__echo", `{"a":"b"}`), func(q harness.ServerRequest) string {
					second := first
					second.Policy = harness.MustPolicy(t, rules)
					j.Apply(second)
					return approval("Allow once")(q)
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
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.RunPair(t, client.EraModern, up, "http", func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, upstreamtest.Script{})
			j := harness.Start(t, p,
				harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Policy: harness.MustPolicy(t, approving)})
			j.Offers(t, "up")
			c := j.Talk(t)
			q := harness.Asking(harness.AskForm)
			base := q.Params
			for _, answer := range []string{`{"action":"accept","content":{"answer":"Allow once"}}`,
				strings.TrimPrefix(harness.Accepted, `"result":`)} {
				m := c.Begin(t, q).Answer(t)
				q.Params = harness.Retried(base, m, string(raw.Quote(harness.Requested(t, m)[0].Key))+":"+answer)
			}
			if m := c.Begin(t, q).Answer(t); m.Error != nil || harness.Member(m.Result, "resultType") != `"complete"` {
				t.Fatalf("the approved call is answered %s", m.Append(nil))
			}
			calls := len(harness.CallsOf(t, s.Journal, 1))
			harness.WantLateAnswer(t, p.Upstream, c.Begin(t, q).Answer(t))
			if n := len(harness.CallsOf(t, s.Journal, calls)); n != calls {
				t.Errorf("the upstream was called %d times more", n-calls)
			}
		})
	}
}

// TestRoundsDoNotOutliveAReload has a modern upstream ask a legacy client's person, and the file
// deny the call, or want it approved, before the answer is there: the call is not made again.
func TestRoundsDoNotOutliveAReload(t *testing.T) {
	harness.Waits(t)
	harness.RunPair(t, client.EraLegacy, client.EraModern, "http", func(t *testing.T, p harness.Pair) {
		for name, rules := range map[string]string{
			"denied": "- { name: careful, rules: [ { deny: { tools: up__ask } }, { allow: { upstreams: \"*\" } } ] }\n",
			"asked":  "- { name: careful, rules: [ { ask: { tools: up__ask } }, { allow: { upstreams: \"*\" } } ] }\n",
		} {
			t.Run(name, func(t *testing.T) {
				s := p.Serve(t, upstreamtest.Script{})
				w := harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}}
				j := harness.Start(t, p, w)
				j.Offers(t, "up")
				m, asked := j.Talk(t).Converse(t, harness.Asking(harness.AskForm), func(q harness.ServerRequest) string {
					w.Policy = harness.MustPolicy(t, rules)
					j.Apply(w)
					return approval("Do not allow")(q)
				})
				if want := map[string]int{"denied": 1, "asked": 2}[name]; len(asked) != want ||
					m.Error == nil && harness.Member(m.Result, "isError") != "true" {
					t.Errorf("after %d questions and a reload the call is answered %s", len(asked), m.Append(nil))
				}
				if n := len(harness.CallsOf(t, s.Journal, 1)); n != 1 {
					t.Errorf("the upstream was called %d times, want once", n)
				}
			})
		}
	})
}
