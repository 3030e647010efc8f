package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"junction/upstream/upstreamtest"
)

// TestSafety6CheckWarnsOfLiftedDenies has check look at files in which a policy of a caller's own
// lifts a deny for everybody, or does not.
func TestSafety6CheckWarnsOfLiftedDenies(t *testing.T) {
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

// TestSafety6WhyNamesTheEnforcedPolicy changes the file of a running proxy so that a policy is
// enforced, and asks why a tool is gone.
func TestSafety6WhyNamesTheEnforcedPolicy(t *testing.T) {
	_, shell := upstreamtest.Start(t, upstreamtest.Script{Tools: fine("run", "kill")})
	text := fmt.Sprintf(`
auth: { api_keys: [ { name: ann, hash: "sha256:%s1" } ] }
upstreams:
  shell: { url: %s }
policies:
  - name: ann
    match: { key: ann }
    rules: [ allow: { upstreams: "*" } ]
  - name: locked
    enforced: false
    rules: [ { deny: { tools: shell__kill } }, { ask: { tools: "shell__*" } } ]
`, strings.Repeat("0", 63), shell)
	r := mustServe(t, text)
	r.mustWatch(t, addresses+text)
	r.stderr.mustSay(t, "state=ready", 1)
	ask := func(exit int, tool string, wanted ...string) {
		t.Helper()
		out, said := mustRun(t, exit, "why", "--admin", r.admin.Addr().String(), "--as", "ann", tool)
		words := func(s string) string { return strings.Join(strings.Fields(s), " ") } // whatever the lines are
		for _, want := range wanted {
			if !strings.Contains(words(out+said), words(want)) {
				t.Errorf("no %q in:\n%s%s", want, out, said)
			}
		}
	}
	ask(0, "shell__kill", "key:ann sees the tool",
		"locked rules[0]: deny (of those for everybody); but a layer before it decides")
	mustWrite(t, r.file, addresses+strings.Replace(text, "enforced: false", "enforced: true", 1))
	r.stderr.mustSay(t, reloaded, 2)
	ask(1, "shell__kill", "key:ann does not see the tool", "locked rules[0]: deny (of those for everybody, enforced)",
		"ann rules[0]: allow (of the caller's own policies); but rules[0] of locked, which is enforced, denies in any case",
		"→ rules[0] of the policy locked denies it. The policy is enforced: no other policy can allow it")
	ask(0, "shell__run", "calls allowed once a person has said so",
		"locked rules[1]: ask (of those for everybody, enforced)",
		"ann rules[0]: allow (of the caller's own policies); but rules[1] of locked, which is enforced, asks in any case")
	out, _ := mustRun(t, 1, "why", "--admin", r.admin.Addr().String(), "--as", "ann", "-o", "json", "shell__kill")
	if !strings.Contains(out, `"enforced": true`) {
		t.Errorf("the JSON does not say that the policy is enforced:\n%s", out)
	}
}
