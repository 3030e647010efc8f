package policy_test

import (
	"testing"

	"junction/policy"
	"junction/upstream/raw"
)

// TestScopes: capabilities that the scopes of a token restrict, and that another token would
// restore.
func TestScopes(t *testing.T) {
	compiled, err := policy.Compile(policy.Config{
		{Name: "everybody", Match: &policy.Match{Group: policy.List{"dev"}},
			Capabilities: []string{"read", "write", "admin"}, Rules: []policy.Rule{
				{Allow: &policy.Selector{Upstreams: policy.List{"*"}}},
				{Deny: &policy.Selector{Tools: policy.List{"bad"}}},
				{Deny: &policy.Selector{Tools: policy.List{"run"},
					Where: policy.Where{"x": policy.Pattern{{Glob: "no"}}}}},
			}},
	})
	if err != nil {
		t.Fatal(err)
	}
	gives := map[string][]string{"mcp:read": {"read"}, "mcp:write": {"read", "write"}, "zz": {"write"},
		"other": {"elsewhere"}}
	subject := func(kind string, scopes ...string) policy.Subject {
		return policy.Subject{Kind: kind, Groups: []string{"dev"}, Scopes: scopes}
	}
	tool := func(name string, requires ...string) policy.Item {
		return policy.Item{Kind: policy.Tool, Upstream: "up", Names: []string{name}, Requires: requires}
	}
	for _, row := range []struct {
		name            string
		subject         policy.Subject
		item            policy.Item
		arguments       string
		verdict         policy.Verdict
		scopes, missing string
		visible         bool
	}{
		{"nothing required", subject("user"), tool("t"), "", policy.Allow, "", "", true},
		{"given", subject("user", "mcp:read"), tool("t", "read"), "", policy.Allow, "", "", true},
		{"given by another scope", subject("user", "mcp:write"), tool("t", "read", "write"), "", policy.Allow, "", "",
			true},
		{"not given", subject("user"), tool("t", "read"), "", policy.Deny, "mcp:read", "", true},
		{"a service", subject("service"), tool("t", "read"), "", policy.Deny, "mcp:read", "", true},
		{"one of two: all that are needed", subject("user", "mcp:read"), tool("t", "read", "write"), "", policy.Deny,
			"mcp:read mcp:write", "", true},
		{"always the same of several", subject("user"), tool("t", "write"), "", policy.Deny, "mcp:write", "", true},
		{"no scope gives it", subject("user", "mcp:write"), tool("t", "admin"), "", policy.Deny, "", "admin", false},
		{"no policy gives it", subject("user", "other"), tool("t", "elsewhere"), "", policy.Deny, "", "elsewhere",
			false},
		{"neither helps with the other", subject("user"), tool("t", "read", "admin"), "", policy.Deny, "", "admin",
			false},
		{"a key has no scopes", subject("key"), tool("t", "read", "admin"), "", policy.Allow, "", "", true},
		{"local", subject("local"), tool("t", "write"), "", policy.Allow, "", "", true},
		{"denied in any case", subject("user"), tool("bad", "read"), "", policy.Deny, "", "", false},
		{"denied with these arguments", subject("user"), tool("run", "read"), `{"x":"no"}`, policy.Deny, "", "", true},
		{"not denied with these", subject("user"), tool("run", "read"), `{"x":"yes"}`, policy.Deny, "mcp:read", "",
			true},
		{"nobody of the policy", policy.Subject{Kind: "user"}, tool("t", "read"), "", policy.Deny, "", "read", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			var arguments raw.Object
			if row.arguments != "" {
				arguments = mustParse(t, row.arguments)
			}
			rights := compiled.WithScopes(gives).For(row.subject)
			g := rights.Bind(row.item)
			d, err := g.Decide(arguments)
			if err != nil || d.Verdict != row.verdict || d.Scopes != row.scopes || d.Missing != row.missing ||
				g.Visible() != row.visible {
				t.Errorf("got %+v, visible %v, %v; want %v, scopes %q, missing %q, visible %v", d, g.Visible(), err,
					row.verdict, row.scopes, row.missing, row.visible)
			}
			if got := rights.Reaches(policy.Tool, "up", row.item.Requires, ""); got != (row.missing == "") {
				t.Errorf("Reaches = %v", got)
			}
		})
	}
	who, item := subject("user"), tool("t", "admin")
	if d, _ := compiled.WithScopes(nil).Decide(who, item, raw.Object{}); d.Verdict != policy.Allow {
		t.Errorf("without a map scopes take something away: %+v", d)
	}
	if compiled.WithScopes(gives).For(who).Equal(compiled.WithScopes(gives).For(subject("user", "mcp:read"))) {
		t.Error("rights with and without a scope are equal")
	}
	if (*policy.Policy)(nil).WithScopes(gives) != nil {
		t.Error("no policy is a policy")
	}
}
