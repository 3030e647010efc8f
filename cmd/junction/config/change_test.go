package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/auth"
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
		"admin: \"\"":              "admin has changed, which needs a restart",
		"limits: { page: 1 }":      "limits has changed, which needs a restart",
		"sessions: { idle: 1m }":   "sessions has changed, which needs a restart",
		"log: { level: debug }":    "log has changed, which needs a restart",
		"shutdown_grace: 1s":       "shutdown_grace has changed, which needs a restart",
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
			if tools := c.Upstreams["kept"].Tools; len(tools) != 1 || !tools[0].Off() {
				t.Errorf("the denied tool is still there: %v", tools)
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

// TestRefusedReloadAllowsNoMoreThanEitherFile replaces a file by one that is wider in some places and
// narrower in others. Of the mixture, only the narrower half of each is in force.
func TestRefusedReloadAllowsNoMoreThanEitherFile(t *testing.T) {
	const keys = "auth: { api_keys: [" + keyA + "] }\n"
	old := mustParse(t, keys+`
upstreams: { fs: { command: [prod], tools: { "delete*": { enabled: false } } } }
policies: [ { name: all, rules: [ { allow: { tools: "fs__read*" } }, { deny: { tools: fs__read_secret } } ] } ]
endpoints: { narrow: {} }
`, nil)
	next := mustParse(t, keys+`
upstreams: { fs: { command: [sandboxed], capabilities: [admin], tools: { "move*": { enabled: false } } }, o: { command: [x] } }
policies: [ { name: all, rules: [ { allow: { tools: "*" } }, { deny: { tools: fs__read_key } } ] } ]
endpoints: { narrow: { upstreams: [o] } }
`, nil)
	change := old.Follow(next)
	change.Refuse(old, next, errors.New("cannot open the audit"))
	c := change.Config
	u := c.Upstreams["fs"]
	off := map[string]bool{}
	for _, r := range u.Tools {
		off[r.Glob] = r.Off()
	}
	if !off["delete*"] || !off["move*"] || !slices.Contains(u.Capabilities, "admin") {
		t.Errorf("tools %+v, capabilities %v", u.Tools, u.Capabilities)
	}
	var denied []string
	for _, e := range c.Policies {
		for _, r := range e.Rules {
			if r.Allow != nil {
				t.Errorf("%s allows %v, which only one of the files does", e.Name, r.Allow.Tools)
			} else if r.Deny != nil {
				denied = append(denied, r.Deny.Tools...)
			}
		}
	}
	if slices.Sort(denied); !slices.Equal(denied, []string{"fs__read_key", "fs__read_secret"}) {
		t.Errorf("denied are %v", denied)
	}
	if c.Policies == nil || len(c.Endpoints["narrow"].Upstreams) != 0 || c.Endpoints["narrow"].Upstreams == nil {
		t.Errorf("policies %v; the endpoint has %v", c.Policies, c.Endpoints["narrow"].Upstreams)
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
		{file("a", "b"), "a reload leaves all upstreams and keys as they are"},
		{file("b"), "a reload revokes the keys ann (aaaaaaaa)"},
		{file("b", "c", "d"), "a reload adds the keys ann (cccccccc), ann (dddddddd); revokes the keys ann (aaaaaaaa)"},
	} {
		change := file("a", "b").Follow(test.next)
		if got := change.Report(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// TestRefusedReloadNarrowsWhoComesIn: a key and an issuer that both files have are accepted only where both
// accept them. Where that is nowhere, or cannot be said, they are left out.
func TestRefusedReloadNarrowsWhoComesIn(t *testing.T) {
	const rest = "upstreams: { a: { command: [x] } }\n"
	refused := func(old, next string) *Config {
		t.Helper()
		before, after := mustParse(t, old+rest, nil), mustParse(t, next+rest, nil)
		change := before.Follow(after)
		change.Refuse(before, after, errors.New("cannot open the audit"))
		for _, k := range slices.Concat(change.AddedKeys, change.RevokedKeys) {
			if k.Hash == (auth.Hash{}) {
				t.Errorf("the report has a key that nobody can have: %q", k.Name)
			}
		}
		return change.Config
	}
	key := func(more string) string {
		return "auth: { api_keys: [{ name: a, hash: \"" + hashA + "\"" + more + " }] }\n"
	}
	for name, test := range map[string]struct{ old, next, want string }{
		"wider networks":    {", cidrs: [10.0.0.0/16, 192.0.2.0/24]", ", cidrs: [10.0.0.0/8]", "10.0.0.0/16 - never"},
		"narrower networks": {", cidrs: [10.0.0.0/8]", ", cidrs: [10.1.0.0/16]", "10.1.0.0/16 - never"},
		"all networks":      {", cidrs: [10.0.0.0/8]", "", "10.0.0.0/8 - never"},
		"other networks":    {", cidrs: [10.0.0.0/8]", ", cidrs: [192.0.2.0/24]", ""},
		"all endpoints":     {", endpoints: [mcp]", "", "- mcp never"},
		"more endpoints":    {", endpoints: [mcp]", ", endpoints: [mcp, mcp/a]", "- mcp never"},
		"other endpoints":   {", endpoints: [mcp]", ", endpoints: [mcp/a]", ""},
		"a later end":       {", expires: 2027-01-01", ", expires: 2028-01-01", "- - 2027-01-02"},
		"an earlier end":    {", expires: 2028-01-01", ", expires: 2027-01-01", "- - 2027-01-02"},
		"no end":            {", expires: 2027-01-01", "", "- - 2027-01-02"},
		"a first end":       {"", ", expires: 2027-01-01", "- - 2027-01-02"},
	} {
		c := refused(key(test.old), key(test.next))
		got := ""
		if k := c.Auth.APIKeys[0]; k.Name == "a" {
			list := func(s string) string { return cmp.Or(strings.Trim(s, "[]"), "-") }
			got = list(fmt.Sprint(k.CIDRs)) + " " + list(fmt.Sprint(k.Endpoints)) + " never"
			if !k.Expires.IsZero() {
				got = strings.Replace(got, "never", k.Expires.Format(time.DateOnly), 1)
			}
		}
		if got != test.want || !c.Auth.Needed() {
			t.Errorf("%s: %q, want %q; authentication is needed: %v", name, got, test.want, c.Auth.Needed())
		}
	}
	issuer := func(more string) string { return "auth: { jwt: [{ issuer: https://i.example, " + more + " }] }\n" }
	for name, test := range map[string]struct{ old, next, want string }{
		"another audience":   {"audiences: [x, y]", "audiences: [y, z]", "[y] [] map[]"},
		"no common audience": {"audiences: [x]", "audiences: [y]", ""},
		"scopes":             {"audiences: [x], required_scopes: [a]", "audiences: [x], required_scopes: [b]", "[x] [a b] map[]"},
		"claims": {"audiences: [x], required_claims: { tid: one }", "audiences: [x], required_claims: { hd: two }",
			"[x] [] map[hd:two tid:one]"},
		"another claim": {"audiences: [x], required_claims: { tid: one }", "audiences: [x], required_claims: { tid: two }", ""},
		"other keys":    {"audiences: [x]", "audiences: [x], jwks_url: https://i.example/keys", ""},
	} {
		c := refused(issuer(test.old), issuer(test.next))
		got := ""
		for _, i := range c.Auth.JWT {
			got = fmt.Sprint(i.Audiences, " ", i.RequiredScopes, " ", i.RequiredClaims)
		}
		if got != test.want || !c.Auth.Needed() {
			t.Errorf("%s: %q, want %q; authentication is needed: %v", name, got, test.want, c.Auth.Needed())
		}
	}
	proxy := func(key, proxies string) string {
		return strings.Replace(key, " }] }", " }], trusted_proxies: ["+proxies+"] }", 1)
	}
	inside := key(", cidrs: [10.0.0.0/8, 192.0.2.0/24]")
	if c := refused(proxy(inside, "10.1.2.3/32"), proxy(inside, "192.0.2.7/32, 10.1.2.3/32")); fmt.Sprint(c.Auth.APIKeys[0].CIDRs) != "[10.0.0.0/8]" {
		t.Errorf("beside another proxy the key is accepted from %v", c.Auth.APIKeys[0].CIDRs)
	}
	if c := refused(proxy(inside, "10.0.0.0/7"), inside); fmt.Sprint(c.Auth.APIKeys[0].CIDRs) != "[192.0.2.0/24]" {
		t.Errorf("without a proxy the key is accepted from %v", c.Auth.APIKeys[0].CIDRs)
	}
	only := key(", cidrs: [10.0.0.0/8]")
	if c := refused(proxy(only, "10.0.0.0/7"), only); c.Auth.APIKeys[0].Name == "a" {
		t.Errorf("a key with no network left is accepted from %v", c.Auth.APIKeys[0].CIDRs)
	}
	if c := refused("", key("")); !c.Auth.Needed() || c.Auth.APIKeys[0].Name == "a" {
		t.Error("the first key of a refused file does not close the listener")
	}
	if c := refused("auth: { jwt: [{ issuer: https://i.example, audiences: [x] }], scope_capabilities: { s: [a, b], o: [c] } }\n",
		"auth: { jwt: [{ issuer: https://i.example, audiences: [x] }], scope_capabilities: { s: [b, c] } }\n"); fmt.Sprint(
		c.Auth.ScopeCapabilities) != "map[o:[] s:[b]]" {
		t.Errorf("the scopes allow %v", c.Auth.ScopeCapabilities)
	}
	if c := refused("endpoints: { e: { match: { group: staff } } }\n"+key(""), "endpoints: { e: { match: { group: admins } } }\n"+key("")); len(c.Endpoints) > 0 {
		t.Errorf("the endpoints are %v", c.Endpoints)
	}
}
