package policy_test

import (
	"testing"

	"junction/policy"
)

// TestSkillsAreDeniedInEachSpelling asks for a file of a denied skill by URIs that a server may read as
// the same one.
func TestSkillsAreDeniedInEachSpelling(t *testing.T) {
	p := mustCompile(t, `
- name: all
  rules: [{ deny: { skills: a/lib/abc } }, { allow: { upstreams: "*" } }]
`)
	for uri, visible := range map[string]bool{
		"skill://lib/abc/SKILL.md": false, "skill://lib/abc/f": false, "SKILL://lib/abc/f": false,
		"skill://LIB/abc/f": false, " skill://lib/abc/f": false, `skill:\\lib\abc\f`: false, "skill://lib/%61bc/f": false,
		"%73kill://lib/abc/f": false, "skill://lib/abcd/f": true, "skill://other/abc/f": true, "file:///lib/abc/f": true,
	} {
		it := policy.Item{Kind: policy.Resource, Upstream: "a", Names: []string{"mcp://a/" + uri, uri}}
		if got := p.For(policy.Subject{}).Bind(it).Visible(); got != visible {
			t.Errorf("%q is visible: %t, want %t", uri, got, visible)
		}
	}
}
