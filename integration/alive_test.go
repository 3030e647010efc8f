package integration

import (
	"fmt"
	"testing"
	"time"

	"junction/upstream"
	"junction/upstream/upstreamtest"
)

// TestForeignSilentToolsOfServersThatAnswerPings calls a tool that works for longer than a call may
// be silent, and tells of no progress. A legacy server answers pings meanwhile. There is none in
// the modern era, so that the call ends there.
func TestForeignSilentToolsOfServersThatAnswerPings(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		eachTimeout(t, 200*time.Millisecond, func(t *testing.T, timeout time.Duration) (late bool) {
			s, j := over(t, p, upstreamtest.Script{}, func(c *upstream.Config) {
				c.Tools = upstream.Rules{{Glob: "slow", Rule: upstream.Rule{Timeout: timeout}}}
			})
			c := j.talk(t)
			c.succeed(t, "up__echo", `{}`) // the connection of its calls is there
			m := c.call(t, "up__slow", fmt.Sprintf(`{"ms":%d}`, 3*timeout.Milliseconds()))
			if p.upstream == upstream.EraModern {
				ours(t, m, "up", upstream.KindTimeout)
				return false
			}
			if m.Error != nil {
				ours(t, m, "up", upstream.KindTimeout)
				return true
			}
			if n := len(s.requestsOf(t, "ping", 0)); n < 2 {
				t.Errorf("the upstream received %d pings", n)
			}
			return false
		})
	})
}
