package policy_test

import "testing"

// TestLeavesOutOfAnUpstream: a key gets a tool of an upstream if a rule of a policy that it can match may allow
// one. The address of a caller is not known, so that a policy with a cidr counts.
func TestLeavesOutOfAnUpstream(t *testing.T) {
	for name, test := range map[string]struct {
		policies string
		requires []string
		left     bool
	}{
		"no rule of the key":        {`[{ name: p, match: { key: ann }, rules: [{ allow: { upstreams: "*" } }] }]`, nil, true},
		"its own rule":              {`[{ name: p, match: { key: cora }, rules: [{ allow: { upstreams: "*" } }] }]`, nil, false},
		"for all":                   {`[{ name: p, rules: [{ ask: { upstreams: web } }] }]`, nil, false},
		"another upstream":          {`[{ name: p, rules: [{ allow: { upstreams: files } }] }]`, nil, true},
		"another name":              {`[{ name: p, rules: [{ allow: { tools: "files__*" } }] }]`, nil, true},
		"a name of it":              {`[{ name: p, rules: [{ allow: { tools: "*__get_*" } }] }]`, nil, false},
		"hints that nobody trusts":  {`[{ name: p, rules: [{ allow: { upstreams: "*", annotations: { readOnlyHint: true, trusted: files } } }] }]`, nil, true},
		"a capability":              {`[{ name: p, rules: [{ allow: { upstreams: web } }] }]`, []string{"ops"}, true},
		"a capability that it has":  {`[{ name: p, capabilities: [ops], rules: [{ allow: { upstreams: web } }] }]`, []string{"ops"}, false},
		"from some addresses":       {`[{ name: p, match: { key: cora, cidr: 10.0.0.0/8 }, rules: [{ allow: { upstreams: web } }] }]`, nil, false},
		"of people":                 {`[{ name: p, match: { group: eng }, rules: [{ allow: { upstreams: web } }] }]`, nil, true},
		"an enforced deny":          {`[{ name: p, rules: [{ allow: { upstreams: web } }] }, { name: q, enforced: true, rules: [{ deny: { upstreams: web } }] }]`, nil, true},
		"a section without a value": {`[]`, nil, true},
	} {
		if got := mustConfig(t, test.policies).LeavesOutOf("cora", "web", test.requires, "web__"); got != test.left {
			t.Errorf("%s: %t, want %t", name, got, test.left)
		}
	}
}
