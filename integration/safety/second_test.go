package safety

import (
	"fmt"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// TestAForgedFailureStartsNothingForOthers: a user lets a tool fail with the sentence with which an
// SDK says that it cannot ask. No call of another user goes to another process for that; and if
// both share one process, no call does.
func TestAForgedFailureStartsNothingForOthers(t *testing.T) {
	harness.Waits(t)
	const sentence = "elicitation via server-initiated requests is unavailable on 2026-07-28 connections."
	for _, isolation := range []upstream.Isolation{upstream.IsolationUnset, upstream.IsolationShared, upstream.IsolationSession} {
		t.Run(fmt.Sprintf("isolation %q", isolation), func(t *testing.T) {
			harness.RunPair(t, client.EraLegacy, client.EraBoth, "stdio", func(t *testing.T, p harness.Pair) {
				s := p.Serve(t, upstreamtest.Script{})
				s.Config.Separate, s.Config.Isolation = true, isolation
				guard, keys := harness.Keyring(t, "ann", "mallory")
				j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard})
				j.Offers(t, "up")
				ann, mallory := j.As(t, keys["ann"]), j.As(t, keys["mallory"])
				version := func(c *harness.Talker) string {
					return strings.Trim(harness.Member(c.Succeed(t, "up__capabilities", `{}`), "structuredContent", "protocolVersion"), `"`)
				}
				for range 3 {
					mallory.Call(t, "up__fail", fmt.Sprintf(`{"error":{"code":-32600,"message":%q}}`, sentence))
				}
				if got := version(ann); got != harness.ModernVersion {
					t.Errorf("a call of another user reaches the server in %s", got)
				}
				version(mallory)
				most := harness.Processes()
				if isolation == upstream.IsolationShared {
					most = 0
				}
				if n := len(s.RequestsOf(t, "initialize", 0)); n > most {
					t.Errorf("%d processes of the legacy era, want at most %d", n, most)
				}
			})
		})
	}
}
