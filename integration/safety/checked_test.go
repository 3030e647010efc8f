package safety

import (
	"encoding/json"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/upstreamtest"
)

// TestUncheckedCallsAreNotMade has four calls whose arguments cannot be checked: the schema is none,
// the schema refers to another document, the schema is too large, and the arguments have too many values. For a caller with validate the
// tool is not called, and the answer has the reason; a caller without validate is not affected.
func TestUncheckedCallsAreNotMade(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{Tools: []json.RawMessage{
			[]byte(`{"name":"echo","inputSchema":{"type":"object"}}`),
			[]byte(`{"name":"get_none","inputSchema":{"type":"object","properties":{"a":{"type":"nonsense"}}}}`),
			[]byte(`{"name":"get_far","inputSchema":{"type":"object","properties":{"a":{"$ref":"https://x.org/s"}}}}`),
			[]byte(`{"name":"get_large","inputSchema":{"type":"object","allOf":[` + strings.Repeat("true,", 5_000) + `true]}}`)}})
		guard, keys := harness.Keyring(t, "guarded", "free")
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard, Policy: harness.MustPolicy(t, `
- { name: all, rules: [ { allow: { upstreams: "*" } } ] }
- { name: guarded, match: { key: guarded }, validate: true }
`)})
		j.Offers(t, "up")
		guarded, free := j.As(t, keys["guarded"]), j.As(t, keys["free"])
		many := `{"a":[` + strings.Repeat("0,", 100_000) + `0]}`
		for _, tt := range []struct{ tool, arguments, reason string }{
			{"up__get_none", `{"a":1}`, "its schema is broken: inputSchema.properties.a.type is no type"},
			{"up__get_none", `{"a":1}`, "its schema is broken"}, // also the second time
			{"up__get_far", `{"a":1}`, "its inputSchema cannot be compiled"},
			{"up__get_large", `{}`, "its inputSchema is too large: more than 5000 subschemas"},
			{"up__echo", many, "more than 100000 values"},
		} {
			m := guarded.Call(t, tt.tool, tt.arguments)
			if m.Error != nil || harness.Member(m.Result, "isError") != "true" || !strings.Contains(string(m.Result), tt.reason) ||
				!strings.Contains(string(m.Result), "was not called") {
				t.Errorf("%s: the answer is %.300s, want a tool error with %q", tt.tool, m.Append(nil), tt.reason)
			}
		}
		guarded.Succeed(t, "up__echo", `{"n":1}`)
		free.Succeed(t, "up__echo", many)
		if n := len(harness.CallsOf(t, s.Journal, 2)); n != 2 {
			t.Errorf("the upstream was called %d times, want twice", n)
		}
	})
}
