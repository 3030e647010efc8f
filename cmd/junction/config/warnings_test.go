package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"junction/upstream/command"
)

// TestReferencedVariablesAreReserved: what another entry refers to needs its exact name.
func TestReferencedVariablesAreReserved(t *testing.T) {
	c := mustParse(t, `
upstreams:
  a: { command: [x], inherit_env: all, env: { MINE: "${A_TOKEN}" } }
  b: { command: [x], inherit_env: ["A_*"] }
  c: { url: "https://x.example.com", headers: { X: "${B_TOKEN:-none}" } }
`, map[string]string{"A_TOKEN": "s", "B_TOKEN": "t"})
	for name, want := range map[string][]string{"a": {"B_TOKEN"}, "b": {"A_TOKEN"}, "c": nil} {
		if got := c.Upstreams[name].Reserved; !slices.Equal(got, want) {
			t.Errorf("%s has %q reserved, want %q", name, got, want)
		}
	}
	if got := c.Upstreams["a"].InheritEnv; !slices.Equal(got, command.Inherit{"all"}) {
		t.Errorf("all is read as %q", got)
	}
}

// TestCheckWarnsAboutLiftedDenies has check look at files in which a policy of a caller's own
// lifts a deny for everybody, or does not.
func TestCheckWarnsAboutLiftedDenies(t *testing.T) {
	const upstreams = "upstreams:\n" +
		"  a: { url: https://a.example.com }\n" +
		"  b: { url: https://b.example.com, prefix: bee }\n" +
		"  c.d: { url: https://c.example.com }\n" + // whose names are changed for clients
		"policies:\n"
	const all = "  - name: all\n    rules:\n      - %s\n  - { name: ann, match: { key: ann }, rules: [ %s ] }\n"
	const why = ", and own policies decide before global ones; add enforced: true to policy all, or enforced: false if that is intended"
	for _, tt := range []struct {
		text string
		want []string
	}{
		{fmt.Sprintf(all, `deny: { tools: "*__rm" }`, `allow: { upstreams: "*" }`),
			[]string{`8: policies[0].rules[0].deny: policy ann lifts this deny of tools: "*__rm": rules[0] of ann is allow: { upstreams: "*" }` + why}},
		{fmt.Sprintf(all, `ask: { upstreams: b }`, `{ deny: { tools: bee__x } }, { allow: { tools: "bee__*" } }`),
			[]string{`8: policies[0].rules[0].ask: policy ann lifts this ask of upstreams: "b": rules[1] of ann is allow: { tools: "bee__*" }` + why}},
		{fmt.Sprintf(all, `deny: { upstreams: b }`, `{ allow: { tools: ["a__*", "b__*"] } }`), nil}, // the prefix is another
		{fmt.Sprintf(all, `deny: { upstreams: c.d }`, `{ allow: { tools: c_d__x_abcdefg } }`),
			[]string{`8: policies[0].rules[0].deny: policy ann lifts this deny of upstreams: "c.d": rules[0] of ann is allow: { tools: "c_d__x_abcdefg" }` + why}},
		{strings.Replace(fmt.Sprintf(all, `deny: { tools: "*__rm" }`, `allow: { upstreams: "*" }`), "name: all",
			"name: all\n    enforced: true", 1), nil},
		{strings.Replace(fmt.Sprintf(all, `deny: { tools: "*__rm" }`, `allow: { upstreams: "*" }`), "name: all",
			"name: all\n    enforced: false", 1), nil},
		{"  - name: all\n    enforced: true\n    rules: [ allow: { upstreams: a } ]\n",
			[]string{"7: policies[0].enforced: has no effect: only denies and asks are enforced, and this policy has none; add one, or remove the key"}},
		{"  - name: all\n    rules:\n      - deny: { tools: a__run, where: { cwd: \"/etc*\", command: \"${SECRET}*\" } }\n",
			[]string{"8: policies[0].rules[0].deny.where: denies only calls that match all 2 keys; to deny calls that match any of them, write a rule for each: " +
				`deny: { tools: "a__run", where: { command: "${SECRET}*" } } and deny: { tools: "a__run", where: { cwd: "/etc*" } }`}},
	} {
		file := filepath.Join(t.TempDir(), "junction.yaml")
		mustWrite(t, file, upstreams+tt.text)
		_, warnings, _ := Load(file, environment(map[string]string{"SECRET": "canary-in-a-policy"}))
		var got []string
		for _, w := range warnings {
			got = append(got, strings.TrimPrefix(Problem(w).String(), file+":"))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("warnings of\n%s\ngot:\n  %s\nwant:\n  %s", tt.text, strings.Join(got, "\n  "),
				strings.Join(tt.want, "\n  "))
		}
	}
}

func TestStateDir(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for given, want := range map[string]string{
		"":         filepath.Join(home, ".local", "state"),
		"relative": filepath.Join(home, ".local", "state"), // which the specification says to ignore
		home:       home,
	} {
		got, err := StateDir(environment(map[string]string{"XDG_STATE_HOME": given}))
		if err != nil || got != want {
			t.Errorf("stateDir with XDG_STATE_HOME=%s = %s, %v, want %s", given, got, err, want)
		}
	}
}
