package config

import (
	"fmt"
	"os"
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
	upstreams := fmt.Sprintf("auth: { api_keys: [{ name: ann, hash: \"sha256:%064d\" }] }\n", 1) + "upstreams:\n" +
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
			[]string{`9: policies[0].rules[0].deny: policy ann lifts this deny of tools: "*__rm": rules[0] of ann is allow: { upstreams: "*" }` + why}},
		{fmt.Sprintf(all, `ask: { upstreams: b }`, `{ deny: { tools: bee__x } }, { allow: { tools: "bee__*" } }`),
			[]string{`9: policies[0].rules[0].ask: gives { upstreams: "b" } to the key ann, too: no other rule gives them all of it (the key ann has a part), ` +
				`and they approve their own calls; to ask only those who may use it already, add enforced: true to this policy, ` +
				`and the policy { name: all-others, enforced: false, rules: [{ deny: { upstreams: "b" } }] }`,
				`9: policies[0].rules[0].ask: policy ann lifts this ask of upstreams: "b": rules[1] of ann is allow: { tools: "bee__*" }` + why}},
		{fmt.Sprintf(all, `deny: { upstreams: b }`, `{ allow: { tools: ["a__*", "b__*"] } }`), nil}, // the prefix is another
		{fmt.Sprintf(all, `deny: { upstreams: c.d }`, `{ allow: { tools: c_d__x_abcdefg } }`),
			[]string{`9: policies[0].rules[0].deny: policy ann lifts this deny of upstreams: "c.d": rules[0] of ann is allow: { tools: "c_d__x_abcdefg" }` + why}},
		{strings.Replace(fmt.Sprintf(all, `deny: { tools: "*__rm" }`, `allow: { upstreams: "*" }`), "name: all",
			"name: all\n    enforced: true", 1), nil},
		{strings.Replace(fmt.Sprintf(all, `deny: { tools: "*__rm" }`, `allow: { upstreams: "*" }`), "name: all",
			"name: all\n    enforced: false", 1), nil},
		{"  - name: all\n    enforced: true\n    rules: [ allow: { upstreams: a } ]\n",
			[]string{"8: policies[0].enforced: has no effect: only denies and asks are enforced, and this policy has none; add one, or remove the key"}},
		{"  - name: all\n    rules:\n      - allow: { upstreams: a }\n      - deny: { tools: a__run, where: { cwd: \"/etc*\", command: \"${SECRET}*\" } }\n",
			[]string{"10: policies[0].rules[1].deny.where: denies only calls that match all 2 keys; to deny calls that match any of them, write a rule for each: " +
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

// TestCheckWarnsAboutPoliciesThatAllowNothing: they hide all tools from all clients, most likely by a typo.
func TestCheckWarnsAboutPoliciesThatAllowNothing(t *testing.T) {
	for rules, want := range map[string]bool{
		"policies: [{ name: p, rules: [{ deny: { tools: a__x } }] }]":                                                    true,
		"policies: [{ name: p, rules: [{ allow: { upstreams: aa } }] }]":                                                 true,
		"policies: [{ name: p, rules: [{ allow: { upstreams: aa, skills: \"*/x\" } }, { ask: { tools: \"aa__*\" } }] }]": true,
		"policies: [{ name: p, rules: [{ allow: { upstreams: a, tools: \"b__*\" } }] }]":                                 true,
		"policies: [{ name: p, rules: [{ allow: { upstreams: aa } }, { ask: { tools: \"a__*\" } }] }]":                   false,
		"policies: [{ name: p, match: { key: k }, rules: [{ allow: { upstreams: a } }] }]":                               false,
		"policies: [{ name: p, rules: [{ allow: { resources: \"file:*\" } }] }]":                                         false,
		"": false,
	} {
		file := filepath.Join(t.TempDir(), "junction.yaml")
		mustWrite(t, file, "upstreams: { a: { url: https://a.example.com } }\n"+rules+"\n")
		_, warnings, err := Load(file, environment(nil))
		if err != nil {
			t.Fatal(err)
		}
		if warned := slices.ContainsFunc(warnings, func(p Problem) bool { return p.Path == Policies }); warned != want {
			t.Errorf("%q: warned is %t; %v", rules, warned, warnings)
		}
	}
}

// TestLastingWarnings are bounded, and leave out those that the state of an upstream reports.
func TestLastingWarnings(t *testing.T) {
	warnings := Problems{{Path: "upstreams.a.command", Text: "there is no program x"}, {Path: "upstreams.a.dir"},
		{Path: "upstreams.b.pack", Text: "cannot read b; that upstream cannot start"},
		{Path: "upstreams.b.pack", Text: "no policy gives the capability c"}}
	if list, more := Lasting(warnings); len(list) != 1 || list[0] != warnings[3] || more != 0 {
		t.Errorf("%v, %d more", list, more)
	}
	for range MostWarnings + 1 {
		warnings = append(warnings, Problem{Path: "policies[0].match"})
	}
	if list, more := Lasting(warnings); len(list) != MostWarnings || more != 2 {
		t.Errorf("%d warnings, %d more", len(list), more)
	}
}

// TestCheckWarnsAboutPublicProviders: without policies, everyone with an account at a public provider may use
// everything.
func TestCheckWarnsAboutPublicProviders(t *testing.T) {
	for provider, want := range map[string]bool{
		"issuer: https://accounts.google.com":                                      true,
		"issuer: https://accounts.google.com, email_domains: [acme.example]":       false,
		"issuer: https://accounts.google.com, required_claims: { hd: a.example }":  false,
		"issuer: https://accounts.google.com.example":                              false,
		"issuer: https://login.microsoftonline.com/common/v2.0":                    true,
		"issuer: https://login.microsoftonline.com/6f1c0d5e-0000-0000-0000-1/v2.0": false,
		"issuer: https://sso.acme.example":                                         false,
	} {
		for policies, open := range map[string]bool{"": true, "policies: [{ name: a, rules: [{ allow: { upstreams: a } }] }]\n": false} {
			file := filepath.Join(t.TempDir(), "junction.yaml")
			mustWrite(t, file, "public_url: https://mcp.acme.example\nupstreams: { a: { url: https://a.example.com } }\n"+policies+
				"auth: { trusted_proxies: [10.0.0.1/32], oauth: { identity_providers: [{ id: p, client_id: c, "+provider+" }] } }\n")
			_, warnings, err := Load(file, environment(nil))
			if err != nil {
				t.Fatal(err)
			}
			warned := slices.ContainsFunc(warnings, func(p Problem) bool { return strings.Contains(p.Text, "may sign in") })
			if warned != (want && open) {
				t.Errorf("%s, %q: warned is %t; %v", provider, policies, warned, warnings)
			}
		}
	}
}

// TestCheckWarnsAboutNamesThatMatchNothing: a policy with a typo binds nobody, and a deny or an ask with
// a typo is a hole.
func TestCheckWarnsAboutNamesThatMatchNothing(t *testing.T) {
	const rest = "upstreams:\n  a: { url: https://a.example.com }\n  bare: { url: https://b.example.com, enabled: false }\n" +
		"endpoints: { web: {}, phone: { surface: mobile } }\n" +
		"auth: { api_keys: [{ name: ann, hash: \"sha256:%064d\" }] }\n" +
		"policies: [{ name: all, %s }]\n"
	const allow = `, rules: [{ allow: { upstreams: "*" } }]`
	for policy, want := range map[string]string{
		"match: { key: [ann, anne] }" + allow:                              "match.key[1]: there is no API key \"anne\"; did you mean ann?",
		"match: { key: ann, surface: [web, mobile] }" + allow:              "",
		"match: { surface: wob }" + allow:                                  "match.surface: no endpoint has the surface \"wob\"; did you mean web?",
		"match: { surface: phone }" + allow:                                "match.surface: no endpoint has the surface \"phone\"",
		"match: { group: x }" + allow:                                      "match.group: matches no caller, because no sign-in is configured (auth)",
		`rules: [{ ask: { tools: "nosuch__*" } }]`:                         "rules[0].ask.tools: matches no name: names begin with the prefix of an upstream, such as a__",
		`rules: [{ allow: { tools: [a__echo, a_echo] } }]`:                 "rules[0].allow.tools[1]: matches no name: names begin with the prefix of an upstream, such as a__",
		`rules: [{ deny: { prompts: "b__*" } }]`:                           "rules[0].deny.prompts: matches no name: names begin with the prefix of an upstream, such as a__",
		`rules: [{ deny: { tools: "bara__drop_*" } }]`:                     "rules[0].deny.tools: matches no name: names begin with the prefix of an upstream; did you mean bare__drop_*?",
		`rules: [{ deny: { tools: "bara*" } }]`:                            "rules[0].deny.tools: matches no name: names begin with the prefix of an upstream; did you mean bare*?",
		`rules: [{ deny: { upstreams: "bara*" } }]`:                        "rules[0].deny.upstreams: \"bara*\" matches no upstream of this file; did you mean bare?",
		`rules: [{ deny: { tools: ["*rm*", "?__x", "a*", bare__x] } }]`:    "",
		`rules: [{ deny: { resources: "file:///*", skills: "skill:*" } }]`: "",
		`rules: [{ deny: { upstreams: bara } }]`:                           "rules[0].deny.upstreams: \"bara\" matches no upstream of this file; did you mean bare?",
	} {
		file := filepath.Join(t.TempDir(), "junction.yaml")
		mustWrite(t, file, fmt.Sprintf(rest, 1, policy))
		_, warnings, err := Load(file, environment(nil))
		if err != nil {
			t.Fatal(err)
		}
		var got string
		for _, w := range warnings {
			if at, ok := strings.CutPrefix(w.Path, "policies[0]."); ok {
				got += at + ": " + w.Text
			}
		}
		if got != want {
			t.Errorf("%s:\n got %q\nwant %q", policy, got, want)
		}
	}
}

// TestCheckWarnsAboutMatchesOfNobody: two keys of a match that exclude each other bind nobody, in a
// policy and at an endpoint. A match that some caller has gets no warning.
func TestCheckWarnsAboutMatchesOfNobody(t *testing.T) {
	auths := map[string]string{
		"none":  "{ none: true }",
		"keys":  fmt.Sprintf("{ api_keys: [{ name: ann, hash: \"sha256:%064d\" }] }", 1),
		"users": "{ jwt: [{ issuer: https://login.example.com, audiences: [https://mcp.example.com/mcp] }] }",
	}
	auths["both"] = strings.TrimSuffix(auths["keys"], " }") + ", " + strings.TrimPrefix(auths["users"], "{ ")
	for _, tt := range []struct{ auth, match, want string }{
		{"both", "{ key: ann, kind: user }", "a caller with an API key has kind: key; remove kind"},
		{"both", "{ key: ann, kind: [user, key], cidr: 10.0.0.0/8 }", ""},
		{"both", "{ key: ann, group: x }",
			"key is for callers with an API key, and group for users who sign in; write a policy for each"},
		{"both", "{ email: ann@example.com, kind: key }", "a caller with email has kind: user or service; correct kind"},
		{"both", "{ scope: x, kind: [service, local] }", ""},
		{"both", "{ email: [ann@example.com], email_domain: [example.org] }",
			"no address of email is in email_domain; remove one of the two"},
		{"both", "{ email: [bob@example.net, ann@Example.com], email_domain: example.COM }", ""},
		{"both", "{ kind: [local] }", "kind: local is without sign-in, and auth has API keys or a sign-in; correct kind"},
		{"both", "{ kind: [local, service] }", ""},
		{"users", "{ kind: key }", "auth has no API keys; correct kind, or add a key"},
		{"keys", "{ kind: [user, service] }", "no sign-in is configured (auth); correct kind"},
		{"none", "{ kind: local }", ""},
		{"none", "{ kind: [user, local] }", ""},
		{"keys", "{ cidr: 10.0.0.0/8 }", ""},
	} {
		file := filepath.Join(t.TempDir(), "junction.yaml")
		mustWrite(t, file, "upstreams: { a: { url: https://a.example.com } }\nauth: "+auths[tt.auth]+"\n"+
			"policies: [{ name: all, match: "+tt.match+", rules: [{ allow: { upstreams: \"*\" } }] }]\n"+
			"endpoints: { web: { match: "+tt.match+" } }\n")
		_, warnings, err := Load(file, environment(nil))
		if err != nil {
			t.Fatalf("%s: %v", tt.match, err)
		}
		var got []string
		for _, w := range warnings {
			if strings.HasSuffix(w.Path, ".match") {
				got = append(got, w.Path+": "+w.Text)
			}
		}
		var want []string
		if tt.want != "" {
			want = []string{"policies[0].match: matches no caller: " + tt.want, "endpoints.web.match: matches no caller: " + tt.want}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s with %s:\n got %q\nwant %q", tt.match, tt.auth, got, want)
		}
	}
}

// TestCheckWarnsAboutUnknownIssuers: a policy for an issuer at which nobody signs in binds nobody. The issuers
// are those of signed tokens, of introspection, and of the identity providers.
func TestCheckWarnsAboutUnknownIssuers(t *testing.T) {
	const sections = `public_url: http://localhost:8420
upstreams: { a: { url: https://a.example.com } }
auth:
  jwt: [{ issuer: https://login.example.com, audiences: [x] }]
  oauth: { identity_providers: [{ id: sso, issuer: 'https://sso.example.com/', client_id: c }] }
`
	for match, want := range map[string]string{
		"{ issuer: [https://login.example.com, https://sso.example.com/] }": "",
		"{ issuer: https://sso.example.com }": `policies[0].match.issuer: auth has no issuer "https://sso.example.com"; ` +
			"did you mean https://sso.example.com/?",
		"{ issuer: [https://login.example.com, https://other.example.org] }": `policies[0].match.issuer[1]: auth has no ` +
			`issuer "https://other.example.org"`,
	} {
		file := filepath.Join(t.TempDir(), "junction.yaml")
		mustWrite(t, file, sections+"policies: [{ name: all, match: "+match+", rules: [{ allow: { upstreams: \"*\" } }] }]\n")
		_, warnings, err := Load(file, environment(map[string]string{"HOME": t.TempDir()}))
		if err != nil {
			t.Fatalf("%s: %v", match, err)
		}
		got := ""
		for _, w := range warnings {
			if strings.Contains(w.Path, "match") {
				got += w.Path + ": " + w.Text
			}
		}
		if got != want {
			t.Errorf("%s:\n got %q\nwant %q", match, got, want)
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

// TestCheckWarnsAboutFilesOnANetwork: SQLite on a network file system is reported if it is used, and so is
// the audit.
func TestCheckWarnsAboutFilesOnANetwork(t *testing.T) {
	const provider = "public_url: http://localhost:8420\n" +
		"auth: { oauth: { identity_providers: [{ id: sso, issuer: 'http://localhost:1', client_id: c }] } }\n"
	const postgres = "storage: { driver: postgres, dsn: 'postgres://x/y', key_file: /k }\n"
	for name, row := range map[string]struct{ text, network, want string }{
		"a home on NFS":   {provider, "nfs4", "/home/ann/.local/state/junction/junction.db is on a network file system (nfs4): "},
		"a local home":    {provider, "", ""},
		"another file":    {provider + "storage: { dsn: /mnt/j.db }\n", "cifs", "/mnt/j.db is on a network file system (cifs): "},
		"postgres":        {provider + postgres, "nfs4", ""},
		"no sign-ins":     {"", "nfs4", ""},
		"an audit":        {"audit: { file: /mnt/audit.jsonl }\n", "nfs4", "audit.file: /mnt/audit.jsonl is on a network file system (nfs4): "},
		"a local audit":   {"audit: { file: /mnt/audit.jsonl }\n", "", ""},
		"audit to stderr": {"audit: { file: stderr }\n", "nfs4", ""},
		"the operator's sign-in": {"upstreams: { linear: { url: 'https://mcp.linear.app/mcp', auth: { mode: oauth } } }\n", "nfs4",
			"is on a network file system (nfs4): "},
	} {
		getenv := environment(map[string]string{"HOME": "/home/ann", "XDG_STATE_HOME": "/home/ann/.local/state"})
		text := row.text
		if !strings.Contains(text, "upstreams:") {
			text += "upstreams: { a: { url: 'http://127.0.0.1:1/mcp' } }\n"
		}
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, _, err := Load(file, getenv)
		if err != nil {
			t.Fatal(name, err)
		}
		var got string
		c.warnNetwork(getenv, func(string) string { return row.network }, func(path, format string, args ...any) {
			got += path + ": " + fmt.Sprintf(format, args...)
		})
		if (got == "") != (row.want == "") || !strings.Contains(got, row.want) {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}

// TestCheckWarnsAboutKeysWithoutAPolicy: a person who joins gets a key, and no policy names it. The owner
// would get 403, and the operator would not know why.
func TestCheckWarnsAboutKeysWithoutAPolicy(t *testing.T) {
	const allow = `rules: [{ allow: { upstreams: "*" } }]`
	for policies, want := range map[string]string{
		"": "",
		"policies: [{ name: all, " + allow + " }]\n":                                             "",
		"policies: [{ name: web, match: { cidr: 10.0.0.0/8 }, " + allow + " }]\n":                "",
		"policies: [{ name: keys, match: { kind: key }, rules: [{ ask: { upstreams: a } }] }]\n": "",
		"policies: [{ name: devs, match: { key: ann }, " + allow + " }]\n":                       "auth.api_keys[1] ben",
		"policies: [{ name: devs, match: { key: [ann, ben] }, " + allow + " }]\n":                "",
		"policies: [{ name: none, rules: [{ deny: { upstreams: a } }] }, { name: devs, match: { key: ben }, " +
			allow + " }]\n": "auth.api_keys[0] ann",
		"policies: [{ name: users, match: { kind: user }, " + allow + " }, { name: devs, match: { key: ann }, " +
			allow + " }]\n": "auth.api_keys[1] ben",
	} {
		file := filepath.Join(t.TempDir(), "junction.yaml")
		mustWrite(t, file, "upstreams: { a: { url: https://a.example.com } }\n"+policies+
			fmt.Sprintf("auth: { api_keys: [{ name: ann, hash: \"sha256:%064d\" }, { name: ben, hash: \"sha256:%064d\" }, "+
				"{ name: ben, hash: \"sha256:%064d\" }] }\n", 1, 2, 3))
		_, warnings, err := Load(file, environment(nil))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range warnings {
			if name, ok := strings.CutPrefix(w.Text, "no policy gives the key "); ok {
				name, _, _ = strings.Cut(name, " ")
				got = append(got, w.Path+" "+name)
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: warned of %q, want %q", policies, got, want)
		}
	}
}
