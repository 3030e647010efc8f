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

// TestForeignSilentToolsEndAtTheirTimeout calls a tool that takes longer than the timeout that the
// file gives, and sends no progress. A legacy server answers pings during the call; the call ends all
// the same. With progress, which the client has not asked for, the call succeeds.
func TestForeignSilentToolsEndAtTheirTimeout(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		harness.EachTimeout(t, 200*time.Millisecond, func(t *testing.T, timeout time.Duration) (late bool) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, func(c *upstream.Config) {
				c.Tools = upstream.Rules{{Glob: "slow", Rule: upstream.Rule{Timeout: timeout}},
					{Glob: "progress", Rule: upstream.Rule{Timeout: timeout}}}
			})
			c := j.Talk(t)
			c.Succeed(t, "up__echo", `{}`) // the connection of its calls is there
			m := c.Call(t, "up__slow", fmt.Sprintf(`{"ms":%d}`, 3*timeout.Milliseconds()))
			harness.WantOwnError(t, m, "up", client.KindTimeout)
			// No ping keeps the call alive. After the call, one asks whether the server still answers.
			if n := len(s.RequestsOf(t, "ping", 0)); n > 1 {
				t.Errorf("the upstream received %d pings", n)
			}
			m = c.Call(t, "up__progress", fmt.Sprintf(`{"n":6,"ms":%d}`, timeout.Milliseconds()/3))
			if m.Error != nil {
				harness.WantOwnError(t, m, "up", client.KindTimeout)
				return true
			}
			return false
		})
	})
}
