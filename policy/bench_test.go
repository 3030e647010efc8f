package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"junction/policy"
	"junction/upstream/raw"
)

// crowd has twenty policies of five rules; three of them match a caller.
func crowd(tb testing.TB, more string) *policy.Rights {
	var b strings.Builder
	for i := range 18 {
		fmt.Fprintf(&b, "- { name: team%d, match: { group: team%d }, capabilities: [web], rules: [{ ask: { tools: "+
			"\"shell__*\" } }, { allow: { upstreams: [files, search] } },"+
			" { deny: { tools: [\"*delete*\", \"*drop*\"] } }, { deny: { resources: \"*.env\" } }, { allow: { "+
			"prompts: \"*\" } }] }\n", i, i)
	}
	b.WriteString("- { name: web, match: { surface: web }, rules: [{ deny: { upstreams: admin } }] }\n" + more)
	return mustCompile(tb, b.String()).For(policy.Subject{Kind: "user", Groups: []string{"team3"}, Surface: "web"})
}

const everybody = "- { name: everybody, rules: [{ allow: { upstreams: \"*\" } }] }\n"

// kilobyte is an argument of 1 KB.
func kilobyte(tb testing.TB) raw.Object {
	o := mustParse(tb,
		`{"command":"git log --oneline","cwd":"/srv/project","options":{"env":{"LANG":"C"},"timeout":30},"input":"`+
			strings.Repeat("some text ", 92)+`"}`)
	if n := len(o.Text()); n < 1000 || n > 1100 {
		tb.Fatalf("%d bytes", n)
	}
	return o
}

// BenchmarkDecide measures a call by the number of patterns for its arguments.
func BenchmarkDecide(b *testing.B) {
	ten := "- name: everybody\n  rules:\n"
	for i := range 5 {
		ten += fmt.Sprintf("    - deny: { tools: \"*\", where: { command: \"*bad%d*\", input: { re: "+
			"\"secret-%d[0-9]+\" } } }\n", i, i)
		ten += fmt.Sprintf("    - deny: { tools: \"*\", where: { input: \"*rm -rf %d*\" } }\n", i)
	}
	ten += "    - allow: { tools: \"*\", where: { command: \"git *\" } }\n"
	regular := "- name: everybody\n  rules:\n"
	for i := range 10 {
		regular += fmt.Sprintf("    - deny: { tools: \"*\", where: { input: { re: \"secret-%d[0-9]+\" } } }\n", i)
	}
	inner := "- name: everybody\n  rules:\n"
	for i := range 10 {
		inner += fmt.Sprintf("    - deny: { tools: \"*\", where: { /options/env/LANG: \"x%d*\" } }\n", i)
	}
	for _, test := range []struct{ name, policies string }{
		{"none", everybody}, {"ten", ten}, {"ten-expressions", regular + "    - allow: { tools: \"*\" }\n"},
		{"ten-pointers", inner + "    - allow: { tools: \"*\" }\n"},
	} {
		b.Run(test.name, func(b *testing.B) {
			g := crowd(b, test.policies).Bind(policy.Item{Upstream: "git", Names: []string{"git__run", "git__run"},
				Requires: []string{"web"}})
			arguments := kilobyte(b)
			b.ReportAllocs()
			for b.Loop() {
				if d, err := g.Decide(arguments); err != nil || d.Verdict != policy.Allow {
					b.Fatal(d, err)
				}
			}
		})
	}
}

// BenchmarkBind measures the view of one principal with 1,000 tools.
func BenchmarkBind(b *testing.B) {
	r := crowd(b, everybody)
	items := make([]policy.Item, 1000)
	for i := range items {
		upstream := fmt.Sprintf("upstream%d", i%20)
		name := fmt.Sprintf("%s__tool_number_%d", upstream, i)
		items[i] = policy.Item{Upstream: upstream, Names: []string{name, name}, Requires: []string{"web"}}
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, it := range items {
			if !r.Bind(it).Visible() {
				b.Fatal(it)
			}
		}
	}
}

// BenchmarkFor measures the cost of a new principal.
func BenchmarkFor(b *testing.B) {
	var text strings.Builder
	for i := range 20 {
		fmt.Fprintf(&text, "- { name: team%d, match: { group: [team%d, other%d], cidr: 10.0.0.0/8 }, rules: [{ "+
			"allow: { upstreams: files } }] }\n", i, i, i)
	}
	p := mustCompile(b, text.String())
	s := mustSubject(b, "group=team1,team2 address=10.1.2.3 surface=web")
	b.ReportAllocs()
	for b.Loop() {
		p.For(s)
	}
}

// TestDecideWithoutPatternsAllocatesNothing: a call without conditions does not allocate.
func TestDecideWithoutPatternsAllocatesNothing(t *testing.T) {
	g := crowd(t, everybody).Bind(policy.Item{Upstream: "git", Names: []string{"git__run"}})
	arguments := kilobyte(t)
	if n := testing.AllocsPerRun(100, func() { _, _ = g.Decide(arguments) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
