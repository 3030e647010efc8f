package policy_test

import (
	"strings"
	"testing"

	"junction/policy"
)

// TestOutside: the endpoints of all matching policies bind a subject, and a policy that cannot bind
// because it matches a surface is reported.
func TestOutside(t *testing.T) {
	const text = `
- { name: all, rules: [{ allow: { upstreams: "*" } }] }
- { name: keys, match: { kind: key }, endpoints: [web, mcp, mcp/a] }
- { name: ci, match: { key: ci }, endpoints: [web, mcp/a, ops] }
`
	p := mustCompile(t, text)
	for _, test := range []struct{ who, at, want string }{
		{"", "mcp", ""}, {"", "ops", ""},
		{"kind=key key=me", "mcp", ""}, {"kind=key key=me", "ops", "keys"}, {"kind=key key=me", "mcp/b", "keys"},
		{"kind=key key=ci", "web", ""}, {"kind=key key=ci", "mcp/a", ""}, {"kind=key key=ci", "mcp", "ci"},
		{"kind=key key=ci", "ops", "keys"}, {"kind=key key=ci", "", "keys"},
	} {
		if got := p.For(mustSubject(t, test.who)).Outside(test.at); got != test.want {
			t.Errorf("%q is outside of %q by the policy %q, want %q", test.who, test.at, got, test.want)
		}
	}
	a, b := mustCompile(t, text), mustCompile(t, strings.Replace(text, "[web, mcp/a, ops]", "[web]", 1))
	if a.For(mustSubject(t, "kind=key key=ci")).Equal(b.For(mustSubject(t, "kind=key key=ci"))) {
		t.Error("with other endpoints the rights are equal")
	}
	if got := (*policy.Policy)(nil).For(policy.Subject{}).Outside("mcp"); got != "" {
		t.Errorf("without policies a subject is outside by %q", got)
	}
	c := mustConfig(t, `[{ name: a, match: { surface: web }, endpoints: [web], rules: [{ allow: { upstreams: "*" } }] }]`)
	if ps := c.Warnings(upstreams); len(ps) != 1 || ps[0].Path != "[0].endpoints" {
		t.Errorf("endpoints with a surface: %v", ps)
	}
}
