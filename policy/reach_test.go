package policy_test

import (
	"testing"

	"junction/policy"
)

// TestReach: answers before there is an item.
func TestReach(t *testing.T) {
	p := mustCompile(t, `
- { name: ci, match: { key: ci }, capabilities: [web], rules: [{ allow: { upstreams: "f*", resources: "x:*" } }, { ask: { tools: "s__*" } }, { deny: { upstreams: d } }] }
- { name: all, match: { key: all }, rules: [{ allow: { upstreams: a } }] }
- { name: none, match: { key: none }, capabilities: [web], rules: [{ deny: { upstreams: "*" } }] }
`)
	for _, test := range []struct {
		who      string
		kind     policy.Kind
		upstream string
		requires []string
		want     bool
	}{
		{"key=ci", policy.Resource, "files", nil, true},
		{"key=ci", policy.Resource, "files", []string{"web"}, true},
		{"key=ci", policy.Resource, "files", []string{"web", "other"}, false},
		{"key=ci", policy.Resource, "other", nil, false},
		{"key=ci", policy.Prompt, "files", nil, false},
		{"key=ci", policy.Tool, "other", nil, false},
		{"key=ci", policy.Tool, "s", nil, true},
		{"key=ci", policy.Resource, "d", nil, false},
		{"key=all", policy.Prompt, "a", nil, true},
		{"key=all", policy.Resource, "a", nil, true},
		{"key=all", policy.Resource, "b", nil, false},
		{"key=none", policy.Tool, "a", nil, false},
		{"", policy.Tool, "a", nil, false},
	} {
		r := p.For(mustSubject(t, test.who))
		if got := r.Reaches(test.kind, test.upstream, test.requires, test.upstream+"__"); got != test.want {
			t.Errorf("%q reaches a %v of %s that requires %q: %v, want %v", test.who, test.kind, test.upstream,
				test.requires, got, test.want)
		}
	}
	for _, test := range []struct {
		glob, begin string
		want        bool
	}{
		{"files__*", "files__", true}, {"files__*", "secret__", false}, {"f*", "files__", true}, {"*", "files__", true},
		{"?iles__x", "files__", true}, {"files__r?ad", "files__", true},
		{"files__read", "files__", true}, {"files__", "files__", true}, {"files", "files__", false},
		{"files__read", "secret__", false}, {"files?", "files__", true}, {"read", "", true},
		{"files\\*", "files__", false}, {"files__\\**", "files__", true},
	} {
		r := mustCompile(t, `[{ name: all, rules: [{ ask: { tools: '`+test.glob+`' } }] }]`).For(policy.Subject{})
		if got := r.Reaches(policy.Tool, "files", nil, test.begin); got != test.want {
			t.Errorf("%s reaches a tool that begins with %q: %v, want %v", test.glob, test.begin, got, test.want)
		}
	}
	for who, want := range map[string]bool{"key=ci": false, "key=all": false, "key=none": true, "": true} {
		if got := p.For(mustSubject(t, who)).None(); got != want {
			t.Errorf("%q may do nothing: %v, want %v", who, got, want)
		}
	}
	if (*policy.Policy)(nil).For(policy.Subject{}).None() != true || policy.Open().For(policy.Subject{}).None() {
		t.Error("who may do nothing without a Policy, or something without policies, is wrong")
	}
}

// TestMatchesAddress: whether rights depend on the address.
func TestMatchesAddress(t *testing.T) {
	for text, want := range map[string]bool{
		"- { name: a, match: { cidr: 10.0.0.0/8 }, capabilities: [x] }":                               true,
		"- { name: a, match: { key: k } , capabilities: [x]}":                                         false,
		"[{ name: a, capabilities: [x] }, { name: b, match: { cidr: ['::/0'] }, capabilities: [x] }]": true,
	} {
		if got := mustCompile(t, text).MatchesAddress(); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	if policy.Open().MatchesAddress() || (*policy.Policy)(nil).MatchesAddress() {
		t.Error("without policies an address matters")
	}
}

// TestReads: whether a decision needs the arguments; conditions of rules for other items do not
// count.
func TestReads(t *testing.T) {
	r := mustCompile(t, `
- { name: all, rules: [{ deny: { tools: t__a, where: { x: y } } }, { allow: { upstreams: t } }] }
`).For(policy.Subject{})
	for what, want := range map[string]bool{"tool t__a": true, "tool t__b": false, "resource x:y @t": false,
		"tool u__a": false, "tool t__a needs=web": false} {
		if got := r.Bind(mustItem(t, what)).Reads(); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
}
