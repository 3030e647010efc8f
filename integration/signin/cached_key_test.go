package signin

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/upstream/client"
)

// TestCachedAnswersEndWithTheKey: a caller has another key for a server, or none. Answers that the server gave to the
// former key are not given again.
func TestCachedAnswersEndWithTheKey(t *testing.T) {
	harness.Waits(t)
	v := mustVendor(t, "canary-key-one", "canary-key-two")
	v.SetTools([]json.RawMessage{json.RawMessage(`{"name":"echo","inputSchema":{"type":"object"},` +
		`"annotations":{"readOnlyHint":true,"idempotentHint":true}}`)})
	c := mustCompanyOver(t, process.FreePort(t),
		fmt.Sprintf(`{ vendor: { url: %q, cache: 5m, auth: { mode: user_key, header: X-API-Key } } }`, v.url), "",
		"outbound: { allow_private: [127.0.0.0/8] }\n")
	ann := mustWorker(t, c, "ann")
	ann.give(c.origin+"/connect/vendor", "canary-key-one")
	hers := ann.talk(t, client.EraLegacy, `{}`)
	ask := func() string {
		m := hers.Call(t, "vendor__echo", `{"say":"same"}`)
		return string(m.Append(nil))
	}
	ask()
	ask()
	if n := len(v.said("tools/call")); n != 1 {
		t.Fatalf("the server got %d calls, and the second is not answered from the cache", n)
	}
	if out, err := c.setKey(t, "canary-key-two", "ann@acme.example", "vendor"); err != nil {
		t.Fatal(out, err)
	}
	if ask(); len(v.said("tools/call")) != 2 {
		t.Error("with another key, she gets the answer for the former one")
	}
	if out, err := c.setKey(t, "", "--delete", "ann@acme.example", "vendor"); err != nil {
		t.Fatal(out, err)
	}
	if text := ask(); !strings.Contains(text, "upstream_not_connected") {
		t.Errorf("without a key, she gets %s", text)
	}
}
