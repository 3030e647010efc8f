package policy_test

import (
	"strings"
	"testing"

	"junction/policy"
)

// TestPermitsFolder: the folders of all policies that match bind a subject, [] is none, and no rights permit
// no folder.
func TestPermitsFolder(t *testing.T) {
	const text = `
- { name: all, rules: [{ allow: { upstreams: "*" } }] }
- { name: keys, match: { kind: key }, folders: [/u/src, /v/] }
- { name: ci, match: { key: ci }, folders: [/u/src/shop, /w] }
- { name: none, match: { key: none }, folders: [] }
`
	p := mustCompile(t, text)
	for _, test := range []struct {
		who, path string
		want      bool
	}{
		{"", "/u", true}, {"", "/anything", true},
		{"kind=key key=me", "/u/src", true}, {"kind=key key=me", "/u/src/a/b", true}, {"kind=key key=me", "/v", true},
		{"kind=key key=me", "/u", false}, {"kind=key key=me", "/u/src2", false}, {"kind=key key=me", "/w", false},
		{"kind=key key=ci", "/u/src/shop/a", true}, {"kind=key key=ci", "/u/src", false}, {"kind=key key=ci", "/w", false},
		{"kind=key key=none", "/u/src", false},
	} {
		if got := p.For(mustSubject(t, test.who)).PermitsFolder(test.path); got != test.want {
			t.Errorf("%q may name %s: %v, want %v", test.who, test.path, got, test.want)
		}
	}
	for what, rights := range map[string]*policy.Rights{"no policy": (*policy.Policy)(nil).For(policy.Subject{}),
		"no rights": {}} {
		if rights.PermitsFolder("/u/src") {
			t.Errorf("%s permits a folder", what)
		}
	}
	other := mustCompile(t, strings.Replace(text, "/w]", "/x]", 1))
	ci := mustSubject(t, "kind=key key=ci")
	if p.For(ci).Equal(other.For(ci)) {
		t.Error("with other folders the rights are equal")
	}
	both := policy.Both(p, mustCompile(t, strings.Replace(text, "/u/src/shop", "/u/src/blog", 1)))
	if both.For(ci).PermitsFolder("/u/src/shop") || both.For(ci).PermitsFolder("/u/src/blog") {
		t.Error("a folder that one of two policies permits is permitted")
	}
	for folders, want := range map[string]string{"[src]": "[0].folders[0]: must be an absolute path, such as /home/ann/src",
		`[/u, "~/src"]`: `[0].folders[1]: must be an absolute path; write "${HOME}/src"`, "[/]": "[0].folders[0]: would be nearly"} {
		problems := mustConfig(t, "[{ name: a, folders: "+folders+" }]").Validate()
		if len(problems) != 1 || !strings.HasPrefix(problems[0].Path+": "+problems[0].Text, want) {
			t.Errorf("folders: %s has the mistakes %v, want %s", folders, problems, want)
		}
	}
}
