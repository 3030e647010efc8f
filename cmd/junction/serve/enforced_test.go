package serve

import (
	"fmt"
	"strings"
	"testing"

	"junction/upstream/upstreamtest"
)

// TestWhyNamesTheEnforcedPolicy changes the file of a running proxy so that a policy is
// enforced, and asks why a tool is gone.
func TestWhyNamesTheEnforcedPolicy(t *testing.T) {
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
	r.own(t)
	r.mustWatch(t, addresses+text)
	r.stderr.mustSay(t, "state=ready", 1)
	ask := func(exit int, tool string, wanted ...string) {
		t.Helper()
		out, said := mustRun(t, exit, "why", "--admin", r.listening.admin.Addr().String(), "--as", "ann", tool)
		words := func(s string) string { return strings.Join(strings.Fields(s), " ") } // whatever the lines are
		for _, want := range wanted {
			if !strings.Contains(words(out+said), words(want)) {
				t.Errorf("no %q in:\n%s%s", want, out, said)
			}
		}
	}
	ask(0, "shell__kill", "key:ann sees the tool",
		"locked rules[0]: deny (of the global policies); but an earlier layer decides")
	mustWrite(t, r.file, addresses+strings.Replace(text, "enforced: false", "enforced: true", 1))
	r.stderr.mustSay(t, reloaded, 2)
	ask(1, "shell__kill", "key:ann does not see the tool", "locked rules[0]: deny (of the global policies, enforced)",
		"ann rules[0]: allow (of the caller's own policies); but rules[0] of locked, which is enforced, always denies",
		"→ rules[0] of the policy locked denies it. The policy is enforced: no other policy can allow it")
	ask(0, "shell__run", "calls allowed after approval by the user",
		"locked rules[1]: ask (of the global policies, enforced)",
		"ann rules[0]: allow (of the caller's own policies); but rules[1] of locked, which is enforced, always asks")
	out, _ := mustRun(t, 1, "why", "--admin", r.listening.admin.Addr().String(), "--as", "ann", "-o", "json", "shell__kill")
	if !strings.Contains(out, `"enforced": true`) {
		t.Errorf("the JSON does not say that the policy is enforced:\n%s", out)
	}
}
