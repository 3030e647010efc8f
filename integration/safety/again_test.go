package safety

import (
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// TestCallThatRanIsNotSentAgain: a server, or a gateway before it, answers a call with 400 after it has
// carried out the call. The call is not sent a second time, and the session with its state stays. If the
// server answers each request of the session so, it has lost the session: then the call is sent again,
// once.
func TestCallThatRanIsNotSentAgain(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "each process has its own session, and calls of a modern client reach all of them")
	guard, keys := harness.Keyring(t, "one", "two")
	for _, clientEra := range harness.Eras {
		harness.RunPair(t, clientEra, client.EraLegacy, "http", func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, upstreamtest.Script{})
			s.Config.Separate = true
			j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard})
			j.Offers(t, "up")
			one := j.As(t, keys["one"])
			session := whoIs(t, one)
			for _, body := range []string{`"boom"`, `"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32000,\"message\":\"boom\"}}"`} {
				before := len(harness.CallsOf(t, s.Journal, 0))
				arguments := `{"code":400,"header":{"Content-Type":"application/json"},"body":` + body + `}`
				if m := one.Call(t, "up__status", arguments); m.Error == nil {
					t.Errorf("the call is answered %s, want an error", m.Append(nil))
				}
				if n := len(harness.CallsOf(t, s.Journal, before+1)) - before; n != 1 {
					t.Errorf("the server got the call %d times, want once", n)
				}
			}
			if now := whoIs(t, one); now != session {
				t.Errorf("the session is %s, want that of before: %s", now, session)
			}
			two := j.As(t, keys["two"])
			whoIs(t, two)
			mustHaveListed(t, s.Journal)
			before := len(harness.CallsOf(t, s.Journal, 0))
			for _, method := range []string{"tools/call", "tools/list"} {
				s.Inside.AddRules(upstreamtest.Rule{Method: method, Times: 1, Status: 400, Body: "no session"})
			}
			two.Succeed(t, "up__echo", `{}`)
			if n := len(harness.CallsOf(t, s.Journal, before+2)) - before; n != 2 {
				t.Errorf("the server got the call %d times, want twice", n)
			}
		})
	}
}

// mustHaveListed waits until the third session, that of the second key, has listed its tools twice: as
// it began, and for its caller.
func mustHaveListed(t *testing.T, j *upstreamtest.Journal) {
	t.Helper()
	sessions, lists := 0, 0
	harness.Await(t, j, "two lists in the third session", func(r upstreamtest.Record) bool {
		if upstreamtest.Method("initialize")(r) {
			sessions, lists = sessions+1, 0
		}
		if upstreamtest.Method("tools/list")(r) {
			lists++
		}
		return sessions == 3 && lists == 2
	})
}
