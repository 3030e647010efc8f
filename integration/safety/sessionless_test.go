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

// TestRequestsWithoutASessionObeyPolicies has legacy clients without a session show their keys: each
// gets what the policies of its key allow, and nothing is approved for it.
func TestRequestsWithoutASessionObeyPolicies(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraLegacy, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		guard, keys := harness.Keyring(t, "slow", "free")
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard,
			Policy: harness.MustPolicy(t, `
- name: all
  rules:
    - deny: { tools: up__gate }
    - ask: { tools: up__ask }
    - allow: { upstreams: "*" }
- { name: slow, match: { key: slow }, limits: { rate: 1/h, burst: 2 } }
`)})
		j.Offers(t, "up")
		call := func(key, tool string) harness.Answered {
			c := harness.NewClient(t, &harness.Endpoint{URL: j.URL}, client.EraLegacy)
			c.Key = key
			return c.Tool(t, tool, `{}`)
		}
		if a := call("", "up__echo"); a.Status != 401 {
			t.Errorf("without a key: %s", a)
		}
		if a := call(keys["free"], "up__gate"); a.Message.Error == nil || a.Message.Error.Message != "Unknown tool: up__gate" {
			t.Errorf("a denied tool: %s", a)
		}
		if a := call(keys["free"], "up__ask"); !strings.Contains(string(a.Body), "needs the approval of a person") ||
			!strings.Contains(string(a.Body), "its request has no session. Use a client that sends Mcp-Session-Id") {
			t.Errorf("a tool that needs an approval: %s", a)
		}
		harness.WantEcho(t, call(keys["slow"], "up__echo"))
		harness.WantEcho(t, call(keys["slow"], "up__echo"))
		a := call(keys["slow"], "up__echo")
		if kind, _ := raw.Get(a.Body, "error", "data", "junction", "kind"); string(kind) != `"limited"` {
			t.Errorf("the third call: %s", a)
		}
		harness.WantEcho(t, call(keys["free"], "up__echo"))
		harness.CallsOf(t, s.Journal, 3)
	})
}
