package policy_test

import (
	"strings"
	"testing"

	"junction/policy"
)

// TestSpreads: an ask of a policy for everyone gives items to API keys that have them by no other rule. It is told
// only if another rule gives them to somebody.
func TestSpreads(t *testing.T) {
	const granted = `
- { name: agents, match: { key: ann }, rules: [{ allow: { tools: "sh__*" } }] }
`
	for _, test := range []struct {
		name, text string
		keys       string // that the ask gives items
	}{
		{"an ask that gives", granted + `- { name: careful, enforced: true, rules: [{ ask: { tools: sh__run } }] }`, "bob cid"},
		{"a deny for the others", granted + `- { name: careful, enforced: true, rules: [{ ask: { tools: sh__run } }] }
- { name: careful-others, enforced: false, rules: [{ deny: { tools: sh__run } }] }`, ""},
		{"a deny for one of them", granted + `- { name: careful, enforced: true, rules: [{ ask: { tools: sh__run } }] }
- { name: no, match: { key: bob }, rules: [{ deny: { tools: sh__run } }] }`, "cid"},
		{"an allow behind it", granted + `- { name: careful, rules: [{ ask: { tools: sh__run } }, { allow: { upstreams: "*" } }] }`, ""},
		{"another tool", granted + `- { name: careful, enforced: true, rules: [{ ask: { tools: files__read } }] }`, ""},
		{"the only grant", `- { name: all, rules: [{ ask: { tools: sh__run } }] }`, ""},
		{"an ask for one key", granted + `- { name: careful, match: { key: bob }, rules: [{ ask: { tools: sh__run } }] }`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var keys []string
			for _, s := range mustConfig(t, test.text).Spreads([]string{"ann", "bob", "bob", "cid"}, upstreams) {
				keys = append(keys, s.Keys...)
			}
			if got := strings.Join(keys, " "); got != test.keys {
				t.Errorf("the ask gives items to %q, want %q", got, test.keys)
			}
		})
	}
}

// TestRemedyOfASpread: with the policies of the advice, those who may use a tool are asked, and the others do not get it.
func TestRemedyOfASpread(t *testing.T) {
	p := mustCompile(t, `
- { name: agents, match: { key: ann }, rules: [{ allow: { tools: "sh__*" } }] }
- { name: careful, enforced: true, rules: [{ ask: { tools: sh__run } }] }
- { name: careful-others, enforced: false, rules: [{ deny: { tools: sh__run } }] }
`)
	item := policy.Item{Kind: policy.Tool, Upstream: "shell", Names: []string{"sh__run"}}
	for key, want := range map[string]policy.Verdict{"ann": policy.Ask, "bob": policy.Deny} {
		g := p.For(policy.Subject{Kind: "key", Key: key}).Bind(item)
		if d, _ := g.Unconditional(); d.Verdict != want {
			t.Errorf("the verdict for %s is %v, want %v", key, d.Verdict, want)
		}
	}
}
