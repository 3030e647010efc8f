package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	hashA = "sha256:007cf61cae18f5287e0dcf043a48f865f8bc0b81200a228778e91880bba4ad1b"
	hashB = "sha256:007cf61cae18f5287e0dcf043a48f865f8bc0b81200a228778e91880bba4ad1c"
	keyA  = `{ name: a, hash: "` + hashA + `" }`
	keyB  = `{ name: b, hash: "` + hashB + `" }`
)

// TestFollowKeepsWhatNeedsARestart changes one key after the other.
func TestFollowKeepsWhatNeedsARestart(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"allowed_hosts: [h]\n":     "",
		"names: { max_length: 20}": "",
		"catalog: { grace: 1s }":   "",
		"defaults: { timeout: 1s}": "",
		"listen: 127.0.0.1:8420":   "", // the default
		"listen: 127.0.0.1:1":      "listen has changed, which needs a restart",
		"tls: { listen: 127.0.0.1:2, cert_file: /c, key_file: /k }\npublic_url: https://a.example\nauth: { api_keys: [" + keyA + "] }": "tls has changed, which needs a restart",
		"admin: \"\"":            "admin has changed, which needs a restart",
		"limits: { page: 1 }":    "limits has changed, which needs a restart",
		"sessions: { idle: 1m }": "sessions has changed, which needs a restart",
		"log: { level: debug }":  "log has changed, which needs a restart",
		"shutdown_grace: 1s":     "shutdown_grace has changed, which needs a restart",
		"listen: 127.0.0.1:1\nlog: { format: json }\nshutdown_grace: 1s": "listen, log and shutdown_grace have changed, which needs a restart",
	} {
		old := mustParse(t, "upstreams: { a: { command: [x] } }\n", nil)
		change := old.Follow(mustParse(t, text+"\nupstreams: { b: { command: [y] } }\n", nil))
		if got := change.Waiting(); got != want || change.Rejected() != "" {
			t.Errorf("%q waits: %q, want %q; rejected: %q", text, got, want, change.Rejected())
		}
		if c := change.Config; c.Listen != old.Listen || c.Log != old.Log || !slices.Equal(change.Added, []string{"b"}) {
			t.Errorf("%q: listen %s, log %v, added %v", text, c.Listen, c.Log, change.Added)
		}
	}
}

// TestFollowAlwaysTakesAway: whatever else the new file changes, a key that it does not have is not
// accepted any more, and a removed upstream and a denied tool are gone.
func TestFollowAlwaysTakesAway(t *testing.T) {
	const old = `auth: { api_keys: [` + keyA + `, ` + keyB + `] }
upstreams: { kept: { command: [x] }, gone: { command: [x] } }
endpoints: { both: { upstreams: [kept, gone] } }
`
	const oauth = `oauth: { identity_providers: [{ id: sso, issuer: https://login.example.com, client_id: c, client_secret: canary-provider }] }`
	for name, test := range map[string]struct{ text, restart, rejected string }{
		"beside a key that needs a restart": {"listen: 127.0.0.1:1\nauth: { api_keys: [" + keyA + "] }\n",
			"listen", ""},
		"although the rest contradicts what stays": {
			"public_url: https://mcp.example.com\nauth: { " + oauth + " }\n", "auth.oauth", "no request would be authenticated"},
		"where one key is left beside the sign-in": {
			"public_url: https://mcp.example.com\nauth: { api_keys: [" + keyA + "], " + oauth + " }\n", "auth.oauth", ""},
	} {
		t.Run(name, func(t *testing.T) {
			next := mustParse(t, test.text+`
upstreams: { kept: { command: [x], tools: { delete: { enabled: false } } }, new: { command: [x] } }
endpoints: { both: { upstreams: [kept] } }
`, nil)
			change := mustParse(t, old, nil).Follow(next)
			c := change.Config
			if !slices.Contains(change.Restart, test.restart) || !strings.Contains(change.Rejected(), test.rejected) ||
				(test.rejected == "") != (change.Rejected() == "") {
				t.Errorf("waiting for a restart: %v; rejected: %q", change.Restart, change.Rejected())
			}
			if !c.Auth.Needed() {
				t.Error("no request is authenticated any more")
			}
			for _, k := range c.Auth.APIKeys {
				if k.Hash.String() == hashB {
					t.Error("the removed key is still accepted")
				}
			}
			if !slices.Contains(change.Revoked, "b") || !slices.Equal(change.Removed, []string{"gone"}) {
				t.Errorf("revoked %v, removed %v", change.Revoked, change.Removed)
			}
			if names := slices.Sorted(maps.Keys(c.Upstreams)); slices.Contains(names, "gone") ||
				slices.Contains(names, "new") != (test.rejected == "") {
				t.Errorf("upstreams: %v", names)
			}
			if _, offered := c.Upstreams["kept"].Offers("delete"); offered {
				t.Error("the denied tool is still there")
			}
			if got := c.Endpoints["both"].Upstreams; !slices.Equal(got, []string{"kept"}) {
				t.Errorf("the endpoint has %v", got)
			}
		})
	}
}

// TestFollowNeverOpensAListener: the old address outside loopback and the new lack of
// authentication, which needs an address on loopback, must not be in force together.
func TestFollowNeverOpensAListener(t *testing.T) {
	old := mustParse(t, "listen: 0.0.0.0:8420\npublic_url: https://mcp.example.com\nauth: { api_keys: ["+keyA+
		"] }\nupstreams: { a: { command: [x] } }\n", nil)
	change := old.Follow(mustParse(t, "listen: 127.0.0.1:8420\nupstreams: { a: { command: [x] } }\n", nil))
	if !change.Config.Auth.Needed() || change.Rejected() == "" || change.Config.Auth.APIKeys[0].Hash.String() == hashA {
		t.Errorf("needed: %v; rejected: %q", change.Config.Auth.Needed(), change.Rejected())
	}
}

// TestTheEndOfAuthenticationIsLoud: a file that loses the section auth says so first.
func TestTheEndOfAuthenticationIsLoud(t *testing.T) {
	const server = "upstreams: { a: { command: [x] } }\n"
	keys := "auth: { api_keys: [" + keyA + "] }\n"
	for _, test := range []struct {
		old, next string
		want      bool
	}{{keys, "", true}, {"", keys, false}, {keys, keys, false}, {"", "", false}, {keys, "auth: { none: true }\n", false}} {
		change := mustParse(t, test.old+server, nil).Follow(mustParse(t, test.next+server, nil))
		if got := strings.HasPrefix(change.Report(), "WARNING: authentication ends: "); got != test.want || change.Opens != test.want {
			t.Errorf("%q after %q: %s", test.next, test.old, change.Report())
		}
	}
}

// TestChangeTellsKeysOfOneNameApart: the report of a rotated key names the key that goes, and the one
// that comes.
func TestChangeTellsKeysOfOneNameApart(t *testing.T) {
	file := func(digits ...string) *Config {
		text := "upstreams: { a: { command: [x] } }\nauth:\n  api_keys:\n"
		for _, d := range digits {
			text += `  - { name: ann, hash: "sha256:` + strings.Repeat(d, 64) + "\" }\n"
		}
		return mustParse(t, text, nil)
	}
	for _, test := range []struct {
		next *Config
		want string
	}{
		{file("a", "b"), "a reload leaves all upstreams, keys and policies as they are"},
		{file("b"), "a reload revokes the keys ann (aaaaaaaa)"},
		{file("b", "c", "d"), "a reload adds the keys ann (cccccccc), ann (dddddddd); revokes the keys ann (aaaaaaaa)"},
	} {
		change := file("a", "b").Follow(test.next)
		if got := change.Report(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// TestChangeReportsPolicies: the report names the policies that change, and the keys that join and leave some. A
// key that is new or revoked has its own line.
func TestChangeReportsPolicies(t *testing.T) {
	file := func(policies string) *Config {
		return mustParse(t, "upstreams: { a: { command: [x] } }\nauth: { api_keys: ["+keyA+"] }\n"+policies, nil)
	}
	two := func(managers, developers, allow string) string {
		return "policies:\n  - { name: managers, match: { key: " + managers + " }, rules: [{ allow: { upstreams: " + allow + " } }] }\n" +
			"  - { name: developers, match: { key: " + developers + " }, rules: [{ allow: { upstreams: a } }] }\n"
	}
	rules := func(list ...string) string {
		return "  - { name: many, rules: [" + strings.Join(list, ", ") + "] }\n"
	}
	old := two("[a, x]", "[x]", "a")
	for _, test := range []struct{ old, next, want string }{
		{old, old, "a reload leaves all upstreams, keys and policies as they are"},
		{old, two("[x]", "[x, a]", "a"), "a reload changes the policies developers, managers\n" +
			`the policy developers changes match from { key: "x" } to { key: ["x", "a"] }` + "\n" +
			`the policy managers changes match from { key: ["a", "x"] } to { key: "x" }` + "\n" +
			"the key a joins the policies developers\nthe key a leaves the policies managers"},
		{old, two("[a, x]", "[x]", `"*"`), "a reload changes the policies managers\n" +
			`the policy managers loses the rule allow: { upstreams: "a" }; gets the rule allow: { upstreams: "*" }`},
		{old, old + rules(`{ deny: { tools: a__x, where: { p: "/etc*" } } }`), "a reload adds the policies many\n" +
			`the new policy many applies to everybody; gets the rule deny: { tools: "a__x", where: { p: "/etc*" } }`},
		{old + rules(`{ allow: { upstreams: a, annotations: { readOnlyHint: true, trusted: a } } }`, `{ ask: { tools: a__y } }`) +
			"  - { name: slow, limits: { rate: 10/m } }\n",
			old + rules(`{ allow: { upstreams: a, annotations: { readOnlyHint: true } } }`, `{ ask: { tools: a__y }, remember: once }`) +
				"  - { name: slow, enforced: false, limits: { rate: 20/m } }\n",
			"a reload changes the policies many, slow\n" +
				`the policy many loses the rule allow: { upstreams: "a", annotations: { readOnlyHint: true, trusted: "a" } }; ` +
				`loses the rule ask: { tools: "a__y" }; gets the rule allow: { upstreams: "a", annotations: { readOnlyHint: true } }; ` +
				`gets the rule ask: { tools: "a__y" }, remember: once` + "\n" +
				`the policy slow gets enforced: false; changes limits from { rate: 10/m } to { rate: 20/m }`},
		{old + rules(`{ deny: { tools: [a__x, a__y] } }`, `{ ask: { prompts: "*" } }`),
			old + rules(`{ ask: { prompts: "*" } }`, `{ deny: { tools: [a__x, a__y] } }`),
			"a reload changes the policies many\nthe policy many changes the order of its rules"},
		{old + rules(`{ deny: { tools: a__x, where: { p: "/etc*" } } }`, `{ ask: { prompts: "*" } }`), old + rules(`{ ask: { prompts: "*" } }`),
			"a reload changes the policies many\n" + `the policy many loses the rule deny: { tools: "a__x", where: { p: "/etc*" } }`},
		{old, strings.Replace(old, "managers", "heads", 1), "a reload adds the policies heads; removes the policies managers\n" +
			`the new policy heads gets the rule allow: { upstreams: "a" }; gets match: { key: ["a", "x"] }` + "\n" +
			`the removed policy managers loses the rule allow: { upstreams: "a" }; loses match: { key: ["a", "x"] }` + "\n" +
			"the key a joins the policies heads\nthe key a leaves the policies managers"},
		{old, two("[x]", "[x]", "a") + rules("{ ask: { tools: a__b } }"), "a reload adds the policies many; changes the policies managers\n" +
			`the new policy many applies to everybody; gets the rule ask: { tools: "a__b" }` + "\n" +
			`the policy managers changes match from { key: ["a", "x"] } to { key: "x" }` + "\n" +
			"the key a leaves the policies managers\n" +
			`the policy many gives { tools: "a__b" } to the key a, too: no other rule does, and they approve their own calls; to ask ` +
			`only those who may use it already, add enforced: true to this policy, and the policy { name: many-others, enforced: false, ` +
			`rules: [{ deny: { tools: "a__b" } }] }`},
		{two("[x]", "[x]", "a") + rules("{ ask: { tools: a__b } }"), two("[x]", "[x]", "a"), "a reload removes the policies many\n" +
			`the removed policy many loses the rule ask: { tools: "a__b" }` + "\n" +
			`without this ask of the policy many, the key a may lose { tools: "a__b" }: no other rule gave it to them`},
		{two("[x]", "[x]", "a") + "  - { name: limits, match: { key: x }, rules: [{ deny: { tools: a__c } }] }\n",
			two("[x]", "[x]", "a") + "  - { name: limits, match: { key: [x, a] }, rules: [{ deny: { tools: a__c } }] }\n",
			"a reload changes the policies limits\n" + `the policy limits changes match from { key: "x" } to { key: ["x", "a"] }` + "\n" +
				`the key a joins the policies limits; these deny it { tools: "a__c" }`},
		{"", old, "a reload adds the policies developers, managers\n" +
			`the new policy developers gets the rule allow: { upstreams: "a" }; gets match: { key: "x" }` + "\n" +
			`the new policy managers gets the rule allow: { upstreams: "a" }; gets match: { key: ["a", "x"] }` + "\n" +
			"the section policies is new: what no rule allows is denied\n" +
			"the key a joins the policies managers"},
		{old, "", "a reload removes the policies developers, managers\n" +
			`the removed policy developers loses the rule allow: { upstreams: "a" }; loses match: { key: "x" }` + "\n" +
			`the removed policy managers loses the rule allow: { upstreams: "a" }; loses match: { key: ["a", "x"] }` + "\n" +
			"the section policies is gone: every caller may use everything " +
			"that requires no capability\nthe key a leaves the policies managers"},
	} {
		change := file(test.old).Follow(file(test.next))
		if got := change.Report(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// TestChangeIsLogged: the log line of a reload names the policies that it adds, changes and removes, as many as a line
// shows.
func TestChangeIsLogged(t *testing.T) {
	file := func(policies ...string) *Config {
		return mustParse(t, "upstreams: { a: { command: [x] } }\npolicies: ["+strings.Join(policies, ", ")+"]\n", nil)
	}
	entry := func(name, verdict string) string {
		return "{ name: " + name + ", rules: [{ " + verdict + ": { upstreams: a } }] }"
	}
	old := file(entry("one", "allow"), entry("two", "allow"))
	change := old.Follow(file(entry("one", "ask"), entry("new", "allow")))
	got := fmt.Sprint(change.Attrs()...)
	if want := fmt.Sprint("policies_added", []string{"new"}, "policies_changed", []string{"one"}, "policies_removed", []string{"two"}); got != want {
		t.Errorf("the attributes are %s, want %s", got, want)
	}
	var many []string
	for i := range maxPartial + 7 {
		many = append(many, entry(fmt.Sprintf("p%02d", i), "allow"))
	}
	change = old.Follow(file(many...))
	if got := fmt.Sprint(change.Attrs()...); !strings.Contains(got, "and 7 more") {
		t.Errorf("the attributes are %s, want a bounded list", got)
	}
}

// TestCompareNamesEachKey: a comparison names each key of the file with another value, and the keys of a changed
// upstream. A name beside the file is the same in another folder: the new content gets the name of the old file.
func TestCompareNamesEachKey(t *testing.T) {
	const text = "audit: { file: audit.jsonl }\nupstreams: { a: { command: [cat] }, b: { command: [cat] } }\n"
	write := func(text string) string {
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	old := write(text)
	for _, test := range []struct{ next, keys, a string }{
		{text, "", ""},
		{strings.Replace(text, "audit.jsonl", "other.jsonl", 1), "audit.file", ""},
		{text + "allowed_hosts: [x]\nlimits: { page: 7 }\nendpoints: { e: { upstreams: [a] } }\n",
			"allowed_hosts endpoints.e limits.page", ""},
		{strings.Replace(text, "a: { command: [cat] }", "a: { command: [cat, x], timeout: 9s }", 1), "", "command timeout"},
	} {
		change, err := Compare(old, write(test.next), func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(change.Keys, " "); got != test.keys {
			t.Errorf("the keys are %q, want %q", got, test.keys)
		}
		if got := strings.Join(change.UpstreamKeys["a"], " "); got != test.a || len(change.UpstreamKeys["b"]) > 0 {
			t.Errorf("the keys of a are %q, want %q", got, test.a)
		}
	}
}
