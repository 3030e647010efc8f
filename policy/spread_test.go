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
		{"a part of it by name", granted + `- { name: careful, enforced: true, rules: [{ ask: { tools: "sh__*" } }] }
- { name: look, match: { key: bob }, rules: [{ allow: { tools: sh__ls } }] }
- { name: more, match: { key: cid }, rules: [{ allow: { tools: "sh*" } }] }`, "bob"},
		{"a part of it by hints", granted + `- { name: careful, enforced: true, rules: [{ ask: { tools: sh__run } }] }
- name: readers
  match: { key: [bob, cid] }
  rules: [{ allow: { annotations: { readOnlyHint: true, trusted: "*" } } }]`, "bob cid"},
		{"a part of it by arguments", granted + `- { name: careful, enforced: true, rules: [{ ask: { tools: sh__run } }] }
- { name: git, match: { key: [bob, cid] }, rules: [{ allow: { tools: sh__run, where: { command: "git *" } } }] }`, "bob cid"},
		{"hints that the others cover", granted + `
- { name: careful, enforced: true, rules: [{ ask: { upstreams: sh, annotations: { readOnlyHint: true } } }] }
- name: readers
  match: { key: [bob, cid] }
  rules: [{ allow: { annotations: { readOnlyHint: true, trusted: "*" } } }]`, ""},
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

// TestTextOfASpread: the warning names each key, and says which of them other rules give a part. Where a policy for
// everyone gives that part, a deny for everyone would take it away, so that the advice is another one.
func TestTextOfASpread(t *testing.T) {
	keys := []string{"ann", "b1", "b2", "b3", "b4", "b5", "b6"}
	const agents = `
- { name: agents, match: { key: ann }, rules: [{ allow: { tools: "sh__*" } }] }
- { name: careful, enforced: true, rules: [{ ask: { tools: "sh__*" } }] }
- name: readers
`
	const reads = "  rules: [{ allow: { annotations: { readOnlyHint: true, trusted: \"*\" } } }]\n"
	for _, test := range []struct{ readers, want string }{
		{"  match: { key: b6 }\n" + reads, `gives { tools: "sh__*" } to the keys b1, b2, b3, b4, b5 and b6, too: no other ` +
			`rule gives them all of it (the key b6 has a part), and they approve their own calls; to ask only those who ` +
			`may use it already, add the policy { name: careful-others, enforced: false, rules: [{ deny: { tools: "sh__*" } }] }`},
		{reads, `gives { tools: "sh__*" } to the keys b1, b2, b3, b4, b5 and b6, too: no other rule gives them all of it ` +
			`(the keys b1, b2, b3, b4, b5 and b6 have a part), and they approve their own calls; to ask only those who ` +
			`may use it already, add match: { key: [NAMES OF THEIR KEYS] } to this policy`},
	} {
		all := mustConfig(t, agents+test.readers).Spreads(keys, upstreams)
		if len(all) != 1 || all[0].Text() != test.want {
			t.Errorf("the warnings are %v, want %s", all, test.want)
		}
	}
}

// TestLeftOut: a key is left out if each rule that gives something is for others, or if a deny takes all of it.
func TestLeftOut(t *testing.T) {
	const agents = "- { name: agents, match: { key: ann }, rules: [{ allow: { upstreams: \"*\" } }] }\n"
	const asks = "- { name: careful, enforced: true, rules: [{ ask: { tools: sh__run } }] }\n"
	const others = "- { name: others, enforced: false, rules: [{ deny: { tools: \"sh__*\" } }] }\n"
	for _, test := range []struct{ name, text, out string }{
		{"no section", "", ""},
		{"an allow for another key", agents, "bob"},
		{"an ask for everyone", agents + asks, ""},
		{"an ask and its deny", agents + asks + others, "bob"},
		{"a deny of a part", agents + `- { name: all, rules: [{ ask: { tools: ["sh__*", "files__*"] } }] }
` + others, ""},
		{"an own allow before a global deny", `- { name: bobs, match: { key: [ann, bob] }, rules: [{ allow: { tools: sh__run } }] }
` + others, ""},
		{"an own allow and an enforced deny", `- { name: bobs, match: { key: [ann, bob] }, rules: [{ allow: { tools: sh__run } }] }
- { name: never, enforced: true, rules: [{ deny: { upstreams: "*" } }] }`, "ann bob"},
		{"a deny for some addresses", agents + asks + `
- { name: far, match: { key: bob, cidr: 10.0.0.0/8 }, rules: [{ deny: { upstreams: "*" } }] }`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c policy.Config
			if test.text != "" {
				c = mustConfig(t, test.text)
			}
			if got := strings.Join(c.LeftOut([]string{"ann", "bob", "bob"}, upstreams), " "); got != test.out {
				t.Errorf("left out are %q, want %q", got, test.out)
			}
		})
	}
}
