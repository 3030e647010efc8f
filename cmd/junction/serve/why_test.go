package serve

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"junction/cmd/junction/ops/diagnose"
	"junction/upstream/prose"
	"junction/upstream/upstreamtest"
)

// TestWhy asks a running proxy about one item after another, and reads the answer as an operator
// would.
func TestWhy(t *testing.T) {
	offers := fine("run", "plain", "kill", "held_back", "locked", "quiet")
	_, shell := upstreamtest.Start(t, upstreamtest.Script{Tools: append(offers, []byte(`{"name":"broken","inputSchema":1}`)),
		Resources: []json.RawMessage{[]byte(`{"name":"r","uri":"note:1"}`)}})
	_, away := upstreamtest.Start(t, upstreamtest.Script{Rules: []upstreamtest.Rule{{Method: "*", Status: 401}}})
	hash := strings.Repeat("0", 63)
	r := mustServe(t, fmt.Sprintf(`
auth:
  api_keys:
    - { name: ci, hash: "sha256:%[1]s1", cidrs: [10.0.0.0/8] }
    - { name: old, hash: "sha256:%[1]s2", expires: 2020-01-01 }
    - { name: twice, hash: "sha256:%[1]s3", expires: 2020-01-01 }
    - { name: twice, hash: "sha256:%[1]s4" }
endpoints:
  web: { upstreams: [shell] }
  shell: { upstreams: [shell], surface: web }
policies:
  - name: builders
    match: { key: ci }
    rules:
      - allow: { tools: shell__run, where: { command: "git *" } }
      - deny: { tools: shell__run, where: { command: "rm *" } }
      - ask: { tools: shell__plain }
      - deny: { tools: shell__kill }
  - name: team
    match: { group: eng }
    capabilities: [danger]
    rules: [allow: { tools: "*" }]
  - name: on_web
    match: { surface: web }
    rules: [allow: { tools: shell__quiet }]
  - name: near
    match: { cidr: 10.1.0.0/16 }
    rules: [allow: { tools: shell__quiet }]
  - name: everybody
    rules: [allow: { resources: "*" }, allow: { tools: shell__held_back }]
upstreams:
  shell: { url: %[2]s, tools: { held_back: { capabilities: [danger] }, locked: { capabilities: [danger] }, quiet: {}, off: { enabled: false }, plain: {}, kill: {}, run: {} } }
  listed: { url: %[2]s, expose: listed, tools: { run: { enabled: false } } }
  away: { url: %[3]s }
  gone: { url: %[3]s, enabled: false }
`, hash, shell, away))
	r.own(t)
	r.stderr.mustSay(t, "state=ready", 2)
	r.stderr.mustSay(t, "state=blocked", 1)
	admin := r.listening.admin.Addr().String()
	for _, tt := range []struct {
		args string
		exit int
		want []string
		not  string
	}{
		{"--as ci shell__run", 0, []string{"key:ci sees the tool shell__run at /mcp.", "is        run of shell", "calls     depend on the arguments; without arguments: denied", "shell is ready for",
			`because   builders rules[0]: allow where command: "git *"`, `builders rules[1]: deny where command: "rm *"`, "→ if a client does not show it, the client has an old list"}, "everybody"},
		{"--as key:ci shell__plain", 0, []string{"calls     allowed after approval by the user", "builders rules[2]: ask"}, ""},
		{"--as ci shell__kill", 1, []string{"key:ci does not see the tool shell__kill at /mcp.", "→ rules[3] of the policy builders denies it"}, "no rule allows it"},
		{"--as ci shell__held_back", 1, []string{"does not see", "because   the capability danger is missing", "→ give the capability danger to a policy that matches key:ci"}, "no rule allows"},
		{"--as twice shell__locked", 1, []string{"the capability danger is missing", "→ give the capability danger", "→ no rule allows it: add one to a policy that matches key:twice"}, ""},
		{"--as user:jane --group eng shell__held_back", 0, []string{"user:jane sees the tool", "team rules[0]: allow", "everybody rules[1]: allow (of the global policies); but an earlier"}, ""},
		{"--as ci shell__quiet", 1, []string{"does not see", "because the policy builders has no rule for this tool the endpoint has no policy of its own the policy everybody has no rule for this tool", `no rule allows it: add one to a policy that matches key:ci → such a rule is: allow: { tools: "shell__quiet" }`, "Policies with a cidr were not checked; give the caller's address with --from"}, ""},
		{"--as ci --from 10.1.2.3 shell__quiet", 0, []string{"near rules[0]: allow"}, "is rejected"},
		{"--as ci --endpoint web shell__quiet", 0, []string{"at /web/mcp.", "on_web rules[0]: allow (of the endpoint's surface)"}, ""},
		{"--as ci --endpoint http://h:1/shell/mcp shell__quiet", 0, []string{"at /shell/mcp."}, ""},
		{"--as ci --endpoint /mcp/shell run", 0, []string{"sees the tool run at /mcp/shell."}, ""},
		{"--as ci --endpoint shell run", 1, []string{`"shell" is ambiguous; write /shell/mcp or /mcp/shell`}, ""},
		{"--as ci --endpoint nowhere run", 1, []string{`there is no endpoint "nowhere"`}, ""},
		{"--as ci note:1", 0, []string{"the resource mcp://shell/note:1"}, "calls"},
		{"--as ci --from 1.2.3.4 shell__plain", 1, []string{"key:ci is rejected: 1.2.3.4 is in none of the networks", "With a valid credential:\n\nkey:ci sees"}, ""},
		{"--as old shell__plain", 1, []string{"key:old is rejected: the key has expired"}, ""},
		{"--as twice shell__held_back", 1, []string{"key:twice does not see"}, "is rejected"},
		{"--as c1 shell__plain", 1, []string{"there is no key of that name (auth.api_keys); did you mean ci?"}, "sees"},
		{"--as nobody shell__plain", 1, []string{"there is no key of that name (auth.api_keys); list the keys: junction keys list"}, "valid credential"},
		{"--as local shell__plain", 1, []string{"local access is disabled because API keys are configured"}, ""},
		{"--as ci listed__run", 1, []string{"No item named listed__run on /mcp.", "→ listed has it, and the file turns it off: the first glob in upstreams.listed.tools"}, ""},
		{"--as ci listed__plain", 1, []string{"listed has it, and the file names other tools only (expose: listed)"}, ""},
		{"--as ci --endpoint web away__x", 1, []string{"→ away is not connected, so its tools are unknown (blocked for", "401 Unauthorized) → the server requires authentication"}, "shell"},
		{"--as ci gone__x", 1, []string{"No item named gone__x on /mcp.", "→ gone is disabled; run: junction enable gone"}, "away"},
		{"--as ci --endpoint gone x", 1, []string{"the upstream gone is disabled; run: junction enable gone"}, "there is no endpoint"},
		{"--as ci shell__kil", 1, []string{"shell has no item of that name; did you mean shell__kill?"}, "away"},
		{"--as ci no_such_item", 1, []string{"away is not connected, so its tools are unknown"}, ""},
		{"--as jane@example.com shell__plain", 1, []string{"users cannot sign in here (auth.oauth is not set)"}, ""},
		{"--as ci shell__broken", 1, []string{"shell lists a tool of that name, and it is left out: inputSchema is no object"}, ""},
		{"--as jct_key_abc x", 2, []string{"not the key itself"}, "jct_key_abc"},
		{"--as ftp:x x", 2, []string{`--as "ftp:x" is not a caller`}, ""},
		{"x", 1, []string{"the caller is missing"}, ""},
		{"--as ci", 2, []string{"why takes one name"}, ""},
		{"--as ci --from here x", 2, []string{`--from "here" is no address`}, ""},
	} {
		t.Run(tt.args, func(t *testing.T) {
			out, said := mustRun(t, tt.exit, append([]string{"why", "--admin", admin}, strings.Fields(tt.args)...)...)
			words := func(s string) string { return strings.Join(strings.Fields(s), " ") } // whatever the lines are
			for _, want := range tt.want {
				if !strings.Contains(words(out+said), words(want)) {
					t.Errorf("no %q in:\n%s%s", want, out, said)
				}
			}
			if tt.not != "" && strings.Contains(out+said, tt.not) {
				t.Errorf("%q in:\n%s%s", tt.not, out, said)
			}
			for line := range strings.Lines(out) {
				if n := utf8.RuneCountInString(line); n > prose.Width+1 {
					t.Errorf("%d wide: %s", n, line)
				}
			}
		})
	}
	out, _ := mustRun(t, 1, "why", "--admin", admin, "--as", "ci", "shell__kill", "-o", "json")
	var a diagnose.WhyReport
	if err := json.Unmarshal([]byte(out), &a); err != nil || len(a.Items) != 1 || a.Items[0].Visible || a.Items[0].Verdict != "deny" || a.Items[0].Upstream != "shell" {
		t.Errorf("%v, %+v", err, a)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	_, said := mustRun(t, 1, "why", "--admin", admin, "--as", "ci", "x")
	mustContain(t, said, "no junction is running at "+admin+"; start one, or name its admin address")
}

// TestWhyNeverDeniesMore: the first policy would deny everything that it does not allow, so that no
// advice asks for it where everything is allowed.
func TestWhyNeverDeniesMore(t *testing.T) {
	_, shell := upstreamtest.Start(t, upstreamtest.Script{Tools: fine("run")})
	r := mustServe(t, "upstreams: { shell: { url: "+shell+", tools: { run: { capabilities: [danger] } } } }\n")
	r.stderr.mustSay(t, "state=ready", 1)
	out, _ := mustRun(t, 1, "why", "--admin", r.listening.admin.Addr().String(), "--as", "local", "shell__run")
	mustContain(t, out, "the capability danger is missing", "→ remove the capability danger from what the item requires",
		"everything that no rule allows is", "denied")
	if strings.Contains(out, "no rule allows it") {
		t.Errorf("it asks for a rule:\n%s", out)
	}
	out, _ = mustRun(t, 1, "why", "--admin", r.listening.admin.Addr().String(), "--as", "jane", "shell__run")
	mustContain(t, strings.Join(strings.Fields(out), " "),
		"because there are no API keys (auth.api_keys); without authentication, the only caller is --as local")
}

// TestWhyNamesTheHintThatIsMissing: a rule that selects by hints and does not match is the reason. The advice
// names one tool, and widens no rule for all that its hints exclude. A key that no policy names joins one.
func TestWhyNamesTheHintThatIsMissing(t *testing.T) {
	_, files := upstreamtest.Start(t, upstreamtest.Script{Tools: []json.RawMessage{
		[]byte(`{"name":"read","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`),
		[]byte(`{"name":"write","inputSchema":{"type":"object"}}`)}})
	hash := strings.Repeat("0", 63)
	r := mustServe(t, fmt.Sprintf(`
auth:
  api_keys:
    - { name: cora, hash: "sha256:%[1]s1" }
    - { name: ann, hash: "sha256:%[1]s2" }
    - { name: dora, hash: "sha256:%[1]s3" }
    - { name: eve, hash: "sha256:%[1]s4" }
upstreams: { files: { url: %[2]s }, other: { url: %[2]s } }
policies:
  - { name: readers, match: { key: cora }, rules: [{ allow: { upstreams: "*", annotations: { readOnlyHint: true, trusted: [files, memory*] } } }] }
  - { name: developers, match: { key: ann }, rules: [{ allow: { upstreams: files } }] }
  - { name: careful, match: { key: eve }, rules: [{ deny: { annotations: { destructiveHint: true } } }, { allow: { upstreams: "*" } }] }
`, hash, files))
	r.own(t)
	r.stderr.mustSay(t, "state=ready", 2)
	admin := r.listening.admin.Addr().String()
	for _, tt := range []struct{ args, want, advice string }{
		{"--as cora other__read", "readers rules[0] does not match: the hints of other are not trusted (trusted: files, memory*); it would allow by its annotations: { readOnlyHint: true }",
			"if you trust the hints of other, add other to trusted in rules[0] of the policy readers"},
		{"--as cora other__write", "readers rules[0] does not match: readOnlyHint of the tool is false; it would allow",
			`the policy readers leaves it out by its hints; to allow this tool alone, add a rule to that policy: allow: { tools: "other__write" }`},
		{"--as cora files__write", "readers rules[0] does not match: readOnlyHint of the tool is false; it would allow",
			`the policy readers leaves it out by its hints; to allow this tool alone, add a rule to that policy: allow: { tools: "files__write" }`},
		{"--as eve files__write", "careful rules[0]: deny by its annotations: { destructiveHint: true }",
			"rules[0] of the policy careful denies it by its hints; to allow this tool alone, give that rule tools or upstreams that leave out files__write"},
		{"--as dora files__write", "the caller has no policy of its own", "no policy names dora: name it in match.key of a policy, such as developers"},
		{"--as dora other__write", "the caller has no policy of its own", `no rule allows it: add one to a policy that matches key:dora → such a rule is: allow: { tools: "other__write" }`},
	} {
		out, _ := mustRun(t, 1, append([]string{"why", "--admin", admin}, strings.Fields(tt.args)...)...)
		text := strings.Join(strings.Fields(out), " ")
		_, advice, _ := strings.Cut(text, " → ")
		mustContain(t, text, tt.want)
		if advice != tt.advice || strings.Contains(text, " time ") {
			t.Errorf("%s advises %q, want %q:\n%s", tt.args, advice, tt.advice, out)
		}
	}
	out, _ := mustRun(t, 0, "why", "--admin", admin, "--as", "cora", "files__read")
	mustContain(t, out, "  time ")
}

// TestWhyInTheExampleOfTheTeam: why answers for a tool that no rule allows, with the policies of the
// example in the README, of which one has no match.
func TestWhyInTheExampleOfTheTeam(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, team, _ := strings.Cut(string(readme), "A team with API keys")
	_, policies, _ := strings.Cut(team, "\npolicies:\n")
	policies, _, _ = strings.Cut(policies, "```")
	_, github := upstreamtest.Start(t, upstreamtest.Script{Tools: fine("get_issue", "delete_repository")})
	hash := strings.Repeat("0", 63)
	r := mustServe(t, fmt.Sprintf(`
auth:
  api_keys:
    - { name: ann, hash: "sha256:%[1]s1" }
    - { name: ci, hash: "sha256:%[1]s2" }
upstreams:
  github: { url: %[2]s }
policies:
%[3]s`, hash, github, policies))
	r.own(t)
	r.stderr.mustSay(t, "state=ready", 1)
	admin := r.listening.admin.Addr().String()
	out, _ := mustRun(t, 1, "why", "--admin", admin, "--as", "ci", "github__delete_repository")
	mustContain(t, out, "key:ci does not see the tool github__delete_repository at /mcp.", "→ no rule allows it")
	if strings.Contains(out, "cidr") {
		t.Errorf("no policy has a cidr:\n%s", out)
	}
	mustRun(t, 0, "why", "--admin", admin, "--as", "ci", "github__get_issue")
	out, _ = mustRun(t, 0, "why", "--admin", admin, "--as", "ann", "github__delete_repository")
	mustContain(t, out, "allowed after approval by the user")
	if said := r.stderr.String(); strings.Contains(said, "level=ERROR") {
		t.Errorf("the log has an error:\n%s", said)
	}
}
