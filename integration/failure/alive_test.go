package failure

import (
	"fmt"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// TestForeignSilentToolsOfServersThatAnswerPings calls a tool that takes longer than timeout and
// sends no progress. A legacy server answers pings during the call, so the call succeeds. The
// modern era has no ping, so the call ends there.
func TestForeignSilentToolsOfServersThatAnswerPings(t *testing.T) {
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		harness.EachTimeout(t, 200*time.Millisecond, func(t *testing.T, timeout time.Duration) (late bool) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, func(c *upstream.Config) {
				c.Tools = upstream.Rules{{Glob: "slow", Rule: upstream.Rule{Timeout: timeout}}}
			})
			c := j.Talk(t)
			c.Succeed(t, "up__echo", `{}`) // the connection of its calls is there
			m := c.Call(t, "up__slow", fmt.Sprintf(`{"ms":%d}`, 3*timeout.Milliseconds()))
			if p.Upstream == client.EraModern {
				harness.WantOwnError(t, m, "up", client.KindTimeout)
				return false
			}
			if m.Error != nil {
				harness.WantOwnError(t, m, "up", client.KindTimeout)
				return true
			}
			if n := len(s.RequestsOf(t, "ping", 0)); n < 2 {
				t.Errorf("the upstream received %d pings", n)
			}
			return false
		})
	})
}
