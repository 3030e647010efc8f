package upstream

import (
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// legacyClient makes the call that of a legacy client that can be asked.
func legacyClient(c *Call) { c.Era = client.EraLegacy }

// inLegacyEra reports whether the call of a legacy client uses a legacy connection.
func inLegacyEra(t *testing.T, u *Upstream, change ...func(*Call)) bool {
	t.Helper()
	return sessionOf(t, u, append(change, legacyClient)...) != ""
}

// TestLegacySideIsTriedAgain: a server of both eras that cannot be initialized gets the calls on its
// modern connection. After an outage Junction tries again after a minute; a server without a legacy
// era is asked once an hour.
func TestLegacySideIsTriedAgain(t *testing.T) {
	for _, tt := range []struct {
		name   string
		rule   upstreamtest.Rule
		after  time.Duration // no attempt before
		hangs  bool
		script upstreamtest.Script
	}{
		{name: "outage", rule: status("initialize", 503, 1), after: modernAtFirst},
		{name: "rejected", rule: status("initialize", 400, 1), after: modernFor},
		{name: "hangs", rule: upstreamtest.Rule{Method: "initialize", Hang: true, Times: 1}, after: modernAtFirst, hangs: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.script.Rules = []upstreamtest.Rule{tt.rule}
				r := newRig(t, tt.script, Config{ConnectTimeout: 5 * time.Second})
				synctest.Wait()
				start := time.Now()
				if inLegacyEra(t, r.Upstream) {
					t.Error("the call uses a legacy connection that cannot be made")
				}
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("the call waits for %v, want connect_timeout at most", took)
				}
				settle(tt.after - time.Minute/2)
				if inLegacyEra(t, r.Upstream) || r.count("initialize") != 1 {
					t.Errorf("initialize was sent %d times before %v were over", r.count("initialize"), tt.after)
				}
				settle(time.Minute)
				if !inLegacyEra(t, r.Upstream) {
					t.Error("later a call does not use a legacy connection")
				}
			})
		})
	}
}

// TestLegacySideThatWorkedIsNotReplaced: after an outage of a server whose legacy connection has
// worked, the calls of legacy clients do not move to the modern connection, where their state is not.
func TestLegacySideThatWorkedIsNotReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{}, Config{})
		synctest.Wait()
		if !inLegacyEra(t, r.Upstream) {
			t.Fatal("no legacy connection")
		}
		r.server.AddRules(status("initialize", 503, 1))
		r.server.EndSessions()
		settle(time.Second)
		if _, err := r.Call(t.Context(), toolCall("whoami", `{}`, legacyClient)); err == nil {
			t.Error("a call succeeds while the legacy connection cannot be made")
		}
		settle(time.Second)
		if !inLegacyEra(t, r.Upstream) {
			t.Error("after the outage a call does not use a legacy connection")
		}
	})
}

// TestAnswerToAModernQuestionStaysModern: a call with the state of the modern connection uses that
// connection, also if there is a legacy one by now.
func TestAnswerToAModernQuestionStaysModern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{}, Config{})
		synctest.Wait()
		if inLegacyEra(t, r.Upstream, func(c *Call) { c.Continues = true }) {
			t.Error("a call with a requestState uses the legacy connection")
		}
	})
}
