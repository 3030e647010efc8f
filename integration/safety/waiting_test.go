package safety

import (
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/upstreamtest"
)

// TestCallThatWaitedIsPermittedAgain: a call waits for another one of the same server. Meanwhile a new file denies
// it, or revokes the key of its caller. It does not reach the server.
func TestCallThatWaitedIsPermittedAgain(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "looks at the calls that wait")
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		for _, test := range []struct {
			name   string
			change func(*testing.T, *harness.Setup)
		}{
			{"denied", func(t *testing.T, w *harness.Setup) {
				w.Policy = harness.MustPolicy(t, "- { name: all, rules: [ { deny: { tools: up__echo } }, { allow: { upstreams: \"*\" } } ] }\n")
			}},
			{"revoked", func(t *testing.T, w *harness.Setup) { w.Guard, _ = harness.Keyring(t, "somebody") }},
		} {
			t.Run(test.name, func(t *testing.T) {
				s := p.Serve(t, upstreamtest.Script{})
				one := s.Config
				one.Concurrency = 1
				guard, keys := harness.Keyring(t, "ann")
				setup := harness.Setup{Upstreams: map[string]upstream.Config{"up": one}, Guard: guard,
					Policy: harness.MustPolicy(t, "- { name: all, rules: [ { allow: { upstreams: \"*\" } } ] }\n")}
				j := harness.Start(t, p, setup)
				j.Offers(t, "up")
				ann := j.As(t, keys["ann"])
				first := ann.Begin(t, harness.Called("up__gate", `{"gate":"g"}`))
				harness.Await(t, s.Journal, "the call",
					func(r upstreamtest.Record) bool { return harness.Member(r.Message.Params, "name") == `"gate"` })
				second := ann.Begin(t, harness.Called("up__echo", `{}`))
				harness.Reached(t, "the second call to wait", func() bool {
					_, waiting := j.Set.All()[0].Load()
					return waiting == 1
				})
				test.change(t, &setup)
				j.Apply(setup)
				s.OpenGate(t, "g")
				first.Answer(t)
				if m := second.Answer(t); m.Error == nil {
					t.Errorf("the second call is answered %s", m.Append(nil))
				}
				if n := len(harness.CallsOf(t, s.Journal, 1)); n != 1 {
					t.Errorf("%d calls have reached the server, want the first one", n)
				}
			})
		}
	})
}
