package config

import (
	"slices"
	"strings"
	"testing"
)

// TestWhatMembersCompare: members over one database need equal values of some keys, show a difference of
// others while a change is rolled out (~), and have values of their own for the rest.
func TestWhatMembersCompare(t *testing.T) {
	file := func(more string) string { return "upstreams: { a: { command: [x] } }\n" + more + "\n" }
	parts := func(text string) []string {
		all, err := mustParse(t, text, nil).Shared([]byte("key"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(all)
	}
	for _, test := range []struct{ one, other, want string }{
		{"auth: { none: true }\npublic_url: https://a.example", "auth: { none: true }\npublic_url: https://b.example", "public_url"},
		{`names: { separator: "_" }`, `names: { separator: "-" }`, "names"},
		{"auth: { jwt: [{ issuer: https://i.example, audiences: [a] }] }",
			"auth: { jwt: [{ issuer: https://i.example, audiences: [b] }] }", "auth"},
		{"auth: { trusted_proxies: [10.0.0.1/32] }", "auth: { trusted_proxies: [10.0.0.2/32] }", "~trusted_proxies"},
		{"auth: { api_keys: [" + keyA + "] }", "auth: { api_keys: [" + keyB + "] }", "~api_keys"},
		{"limits: { requests: 7 }", "limits: { requests: 8 }", "~limits"},
		{"defaults: { timeout: 7s }", "defaults: { timeout: 8s }", ""},
		{"endpoints: { web: { upstreams: [a] } }", "", "~endpoints"},
		{`policies: [{ name: p, rules: [{ allow: { upstreams: "*" } }] }]`, `policies: [{ name: q, rules: [{ allow: { upstreams: "*" } }] }]`, "~policies"},
		{"listen: 127.0.0.1:1", "listen: 127.0.0.1:2", ""},
		{"log: { level: debug }", "log: { level: info }", ""},
		{"shutdown_grace: 7s", "shutdown_grace: 8s", ""},
	} {
		one, other := parts(file(test.one)), parts(file(test.other))
		var differ []string
		for i, part := range one {
			if part != other[i] {
				name, _, _ := strings.Cut(part, "=")
				differ = append(differ, name)
			}
		}
		if got := strings.Join(differ, " "); got != test.want || len(one) != len(other) {
			t.Errorf("members with %q and %q differ in %q, want %q", test.one, test.other, got, test.want)
		}
	}
	required := slices.DeleteFunc(parts(file("")), func(s string) bool { return s[0] == '~' })
	if len(required) != 3 {
		t.Errorf("members need equal values of %q, want auth, names and public_url", required)
	}
}
