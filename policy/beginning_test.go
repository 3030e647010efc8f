package policy_test

import (
	"testing"

	"junction/policy"
)

// TestBeginningOfURI decides for URIs with a known beginning only.
func TestBeginningOfURI(t *testing.T) {
	for _, test := range []struct{ rules, uri, want string }{
		{`[{ allow: { upstreams: "*" } }]`, "", "allow"},
		{`[{ allow: { tools: "*" } }]`, "", "deny"},
		{`[{ allow: { upstreams: other } }]`, "file:///", "deny"},
		{`[{ allow: { resources: "file:///home/*" } }]`, "file:///", "deny allow"},
		{`[{ allow: { resources: "file:///home/*" } }]`, "file:///home/", "allow"},
		{`[{ allow: { resources: "file:///home/*.txt" } }]`, "file:///home/", "deny allow"},
		{`[{ allow: { resources: "file:///home/*" } }]`, "file:///home/../", "deny"},
		{`[{ allow: { resources: "file:///home/*" } }]`, "note:", "deny"},
		{`[{ deny: { resources: "file:///etc/*" } }, { allow: { upstreams: "*" } }]`, "file:///", "deny allow"},
		{`[{ deny: { resources: "file:///etc/*" } }, { allow: { upstreams: "*" } }]`, "file:///etc/", "deny"},
		{`[{ deny: { resources: "file:///etc/*" } }, { allow: { upstreams: "*" } }]`, "FILE://localhost//etc/x",
			"deny"},
		{`[{ deny: { resources: "file:///etc/*" } }, { allow: { upstreams: "*" } }]`, "file:///%65tc/x", "deny"},
		{`[{ deny: { resources: "file:///etc/*" } }, { allow: { upstreams: "*" } }]`, "file:///home/", "allow"},
		{`[{ deny: { resources: "https://evil/*" } }, { allow: { upstreams: "*" } }]`, "https://good", "deny allow"},
		{`[{ deny: { resources: "https://evil/*" } }, { allow: { upstreams: "*" } }]`, "https://good/", "allow"},
		{`[{ ask: { resources: "file:///*" } }, { allow: { upstreams: "*" } }]`, "file:///a", "ask"},
		{`[{ ask: { resources: "file:///a*" } }, { allow: { upstreams: "*" } }]`, "file:///", "ask allow"},
		{`[{ ask: { resources: "file:///a*" } }, { allow: { upstreams: "*" } }]`, "file:///b/../a", "deny"},
		{`[{ deny: { resources: "notes://secret/*" } }, { allow: { upstreams: "*" } }]`, "notes:///secret/", "deny"},
		{`[{ deny: { resources: "notes://secret/*" } }, { allow: { upstreams: "*" } }]`, "notes://x/../secret/a", "deny"},
		{`[{ deny: { resources: "notes://secret/*" } }, { allow: { upstreams: "*" } }]`, "notes://u@secret:80/", "deny"},
		{`[{ deny: { resources: "notes://secret/*" } }, { allow: { upstreams: "*" } }]`, "notes://../root/", "deny allow"},
		{`[{ deny: { resources: "notes://secret/*" } }, { allow: { upstreams: "*" } }]`, "notes:///", "deny allow"},
		{`[{ deny: { resources: "notes://secret/*" } }, { allow: { upstreams: "*" } }]`, "notes://x/", "allow"},
		{`[{ deny: { resources: "notes:///secret/*" } }, { allow: { upstreams: "*" } }]`, "notes://x/", "deny allow"},
	} {
		r := mustCompile(t, `[{ name: one, rules: `+test.rules+` }]`).For(policy.Subject{})
		got := r.Beginning(policy.Item{Upstream: "up", Names: []string{test.uri}})
		text := ""
		for _, v := range []policy.Verdict{policy.Deny, policy.Ask, policy.Allow} {
			if got.Has(v) {
				text += " " + v.String()
			}
		}
		if text = text[min(1, len(text)):]; text != test.want {
			t.Errorf("%s gives what begins with %q: %s, want %s", test.rules, test.uri, text, test.want)
		}
	}
	layers := mustCompile(t, `
- { name: all, rules: [{ deny: { resources: "file:///etc/*" } }, { allow: { upstreams: "*" } }] }
- { name: one, match: { key: one }, rules: [{ allow: { resources: "file:///*" } }] }
- { name: two, match: { key: two }, rules: [{ allow: { resources: "file:///e*" } }] }
`)
	etc := policy.Item{Upstream: "up", Names: []string{"file:///"}}
	if got := layers.For(mustSubject(t, "key=one")).Beginning(etc); !got.Only(policy.Allow) {
		t.Errorf("own rules that allow everything leave %b, want allow alone: they decide before the global ones", got)
	}
	if got := layers.For(mustSubject(t, "key=two")).Beginning(etc); !got.Has(policy.Deny) || !got.Has(policy.Allow) {
		t.Errorf("own rules that allow a part leave %b, want what the global ones may give, too", got)
	}
}
