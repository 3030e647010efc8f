package policy_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"junction/policy"
	"junction/upstream/raw"
)

func mustConfig(tb testing.TB, text string) policy.Config {
	tb.Helper()
	var c policy.Config
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		tb.Fatalf("%v in\n%s", err, text)
	}
	return c
}

func mustCompile(tb testing.TB, text string) *policy.Policy {
	tb.Helper()
	p, err := policy.Compile(mustConfig(tb, text))
	if err != nil {
		tb.Fatalf("Compile: %v\n%s", err, text)
	}
	return p
}

func mustParse(tb testing.TB, arguments string) raw.Object {
	tb.Helper()
	if arguments == "" {
		return raw.Object{}
	}
	o, err := raw.Parse([]byte(arguments))
	if err != nil {
		tb.Fatalf("%v: %s", err, arguments)
	}
	return o
}

func TestVisible(t *testing.T) {
	for _, test := range []struct {
		rules string
		what  string
		want  bool
	}{
		{"[]", "tool t__a", false},
		{"[{ allow: { tools: t__a } }]", "tool t__a", true},
		{"[{ allow: { tools: t__a } }]", "tool t__b", false},
		{"[{ ask: { tools: t__a } }]", "tool t__a", true},
		{"[{ allow: { tools: t__a } }]", "tool t__a needs=web", true},
		{"[{ allow: { tools: t__a } }]", "tool t__a needs=web,other", false},
		{"[{ deny: { tools: t__a } }, { allow: { tools: t__a } }]", "tool t__a", false},
		{"[{ allow: { tools: t__a } }, { deny: { tools: t__a } }]", "tool t__a", false},
		{"[{ allow: { tools: t__a, where: { x: a } } }]", "tool t__a", true},
		{"[{ allow: { tools: t__a, where: { x: a } } }]", "prompt t__a", false},
		{"[{ allow: { upstreams: t, where: { x: a } } }]", "resource x:y @t", false}, // which has no arguments
		{"[{ allow: { tools: t__a } }, { deny: { tools: t__a, where: { x: '*' } } }]", "tool t__a", true},
		// Whenever the allow applies, the deny does.
		{"[{ allow: { tools: t__a, where: { x: a } } }, { deny: { tools: t__a, where: { x: '*' } } }]", "tool t__a",
			false},
		{"[{ allow: { tools: t__a, where: { x: a } } }, { deny: { tools: t__a, where: { x: a } } }]", "tool t__a",
			false},
		{"[{ allow: { tools: t__a, where: { x: a } } }, { deny: { tools: t__a, where: { x: [b, a] } } }]", "tool t__a",
			false},
		{"[{ allow: { tools: t__a, where: { x: { re: a } } } }, { deny: { tools: t__a, where: { x: { re: a } } } }]",
			"tool t__a", false},
		{"[{ allow: { tools: t__a, where: { x: a, y: b } } }, { deny: { tools: t__a, where: { y: b } } }]", "tool t__a",
			false},
		{"[{ allow: { tools: t__a, where: { /x/*: a } } }, { deny: { tools: t__a, where: { /x/*: '*' } } }]",
			"tool t__a", false},
		{"[{ ask: { tools: t__a, where: { x: a } } }, { deny: { tools: t__a, where: { x: a } } }]", "tool t__a", false},
		// It need not.
		{"[{ allow: { tools: t__a, where: { x: [a, b] } } }, { deny: { tools: t__a, where: { x: a } } }]", "tool t__a",
			true},
		{"[{ allow: { tools: t__a, where: { x: a } } }, { deny: { tools: t__a, where: { x: { re: a } } } }]",
			"tool t__a", true},
		{"[{ allow: { tools: t__a, where: { x: a } } }, { deny: { tools: t__a, where: { y: '*' } } }]", "tool t__a",
			true},
		{"[{ allow: { tools: t__a, where: { x: 're:a' } } }, { deny: { tools: t__a, where: { x: { re: a } } } }]",
			"tool t__a", true},
		{"[{ allow: { tools: t__a, where: { x: a } } }, { deny: { tools: t__a, where: { x: '*', y: '*' } } }]",
			"tool t__a", true},
		// not seen through
		{"[{ allow: { tools: t__a, where: { x: a } } }, { deny: { tools: t__a, where: { x: '?*' } } }]", "tool t__a",
			true},
	} {
		p := mustCompile(t, "- { name: all, capabilities: [web], rules: "+test.rules+" }")
		if got := p.For(policy.Subject{}).Bind(mustItem(t, test.what)).Visible(); got != test.want {
			t.Errorf("%s visible with %s: %v, want %v", test.what, test.rules, got, test.want)
		}
	}
}

// TestVisibleThroughLayers: items that one layer denies and another allows.
func TestVisibleThroughLayers(t *testing.T) {
	p := mustCompile(t, `
- name: everybody
  rules: [{ allow: { upstreams: t } }, { allow: { upstreams: u, where: { x: a } } }]
- name: web
  match: { surface: web }
  rules: [{ deny: { tools: u__some, where: { x: "*" } } }, { deny: { tools: t__surface } }, { deny: { tools: t__some, where: { x: "*" } } }, { ask: { tools: t__mine } }]
- name: me
  match: { key: me }
  rules: [{ allow: { tools: [t__surface] } }, { deny: { tools: t__mine } }, { allow: { tools: t__some, where: { x: a } } }]
`)
	for _, test := range []struct {
		who, what string
		want      bool
	}{
		{"", "tool t__surface", true},
		{"surface=web", "tool t__surface", false},
		{"surface=web key=me", "tool t__surface", true},
		{"surface=web", "tool t__mine", true},
		{"surface=web key=me", "tool t__mine", false},
		{"key=me", "tool t__mine", false},
		{"surface=web", "tool t__some", true},
		{"", "tool u__some", true},
		{"surface=web", "tool u__some", false}, // the surface denies whatever everybody's rule allows
	} {
		if got := p.For(mustSubject(t, test.who)).Bind(mustItem(t, test.what)).Visible(); got != test.want {
			t.Errorf("%s visible for %q: %v, want %v", test.what, test.who, got, test.want)
		}
	}
}

// TestHiddenItemsSayNothing: an always denied item gives the same answer even for arguments that a
// rule cannot read.
func TestHiddenItemsSayNothing(t *testing.T) {
	p := mustCompile(t, `
- name: all
  rules: [{ deny: { tools: t__a, where: { x: a } } }]
`)
	g := p.For(policy.Subject{}).Bind(mustItem(t, "tool t__a"))
	if g.Visible() {
		t.Fatal("it is visible")
	}
	if d, err := g.Decide(mustParse(t, `{"x":1,"x":2}`)); err != nil || d != (policy.Decision{}) {
		t.Errorf("Decide = %v, %v; want a plain deny", d, err)
	}
}

// TestBindKeepsNothing changes an item and a subject after they were used.
func TestBindKeepsNothing(t *testing.T) {
	p := mustCompile(t, `
- { name: all, match: { group: a }, rules: [{ allow: { tools: t__a, where: { x: a } } }] }
`)
	groups, names, requires := []string{"a"}, []string{"t__a"}, []string{}
	r := p.For(policy.Subject{Groups: groups})
	g := r.Bind(policy.Item{Upstream: "t", Names: names, Requires: requires})
	groups[0], names[0] = "b", "t__b"
	if d, err := g.Decide(mustParse(t, `{"x":"a"}`)); err != nil || d.Verdict != policy.Allow {
		t.Errorf("Decide = %v, %v", d, err)
	}
}

// TestCompileCopies changes the configuration after it was compiled.
func TestCompileCopies(t *testing.T) {
	c := mustConfig(t, `
- { name: all, match: { key: [me] }, capabilities: [web], rules: [{ allow: { tools: [t__a], where: { x: [a] } } }] }
`)
	p, err := policy.Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	c[0].Name, c[0].Match.Key[0], c[0].Capabilities[0], c[0].Rules[0].Allow.Tools[0] = "", "you", "other", "t__b"
	c[0].Rules[0].Allow.Where["x"][0].Glob = "b"
	d, err := p.Decide(mustSubject(t, "key=me"), mustItem(t, "tool t__a needs=web"), mustParse(t, `{"x":"a"}`))
	if got, want := verdict(d, err), "allow all rules[0]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestExplain(t *testing.T) {
	p := mustCompile(t, team+`
- { name: none, match: { key: nobody }, rules: [{ deny: { upstreams: "*" } }] }
`)
	for _, test := range []struct {
		who, what string
		want      []policy.Reason
	}{
		{"group=engineering,trainees surface=web", "tool shell__run needs=web,root", []policy.Reason{
			{Missing: "web"}, {Missing: "root"},
			{Layer: "own", Policy: "developers", Rule: "rules[0]", Verdict: policy.Allow, Where: `command: "git *"`},
			{Layer: "own", Policy: "developers", Rule: "rules[1]", Verdict: policy.Deny, Where: `command: "*--force*"`},
			{Layer: "own", Policy: "trainees", Rule: "rules[0]", Verdict: policy.Ask, Where: `command: "git *"`},
			{Layer: "surface", Policy: "web", Rule: "rules[0]", Verdict: policy.Deny},
			{Layer: "global", Policy: "everybody", Rule: "rules[1]", Verdict: policy.Ask,
				Note: "an earlier layer decides"},
		}},
		{"surface=cli", "tool search__find", []policy.Reason{
			{Layer: "own", Note: "no policy matches"},
			{Layer: "surface", Note: "no policy matches"},
			{Layer: "global", Policy: "everybody", Rule: "rules[0]", Verdict: policy.Allow},
		}},
		{"surface=web", "tool other__find", []policy.Reason{
			{Layer: "own", Note: "no policy matches"},
			{Layer: "surface", Policy: "web", Note: "no rule applies"},
			{Layer: "global", Policy: "everybody", Note: "no rule applies"},
		}},
	} {
		got := p.For(mustSubject(t, test.who)).Bind(mustItem(t, test.what)).Explain()
		if !slices.Equal(got, test.want) {
			t.Errorf("%s for %s:\n%s\nwant\n%s", test.what, test.who, lines(got), lines(test.want))
		}
	}

	p = mustCompile(t, `
- name: a
  rules:
    - allow: { tools: t__b }
    - deny: { tools: t__a }
    - ask: { tools: t__b }
    - deny: { tools: [t__a, t__b], where: { n: [1.0, { re: "^x" }], /a/b: "y\"" } }
    - ask: { resources: "file:///a/*" }
`)
	for _, test := range []struct {
		what string
		want []policy.Reason
	}{
		{"tool t__a", []policy.Reason{
			{Layer: "global", Policy: "a", Rule: "rules[1]", Verdict: policy.Deny},
			{Layer: "global", Policy: "a", Rule: "rules[3]", Verdict: policy.Deny,
				Where: `/a/b: "y\"", n: ["1.0", { re: "^x" }]`, Note: "rules[1] of a always denies"},
		}},
		{"tool t__b", []policy.Reason{
			{Layer: "global", Policy: "a", Rule: "rules[0]", Verdict: policy.Allow},
			{Layer: "global", Policy: "a", Rule: "rules[2]", Verdict: policy.Ask, Note: "rules[0] applies first"},
			{Layer: "global", Policy: "a", Rule: "rules[3]", Verdict: policy.Deny,
				Where: `/a/b: "y\"", n: ["1.0", { re: "^x" }]`},
		}},
		{"resource file:///a/../b @files", []policy.Reason{
			{Layer: "global", Policy: "a", Rule: "rules[4]", Verdict: policy.Deny, Note: "an ask, denied because " +
				"the URI is ambiguous"},
		}},
	} {
		got := p.For(policy.Subject{}).Bind(mustItem(t, test.what)).Explain()
		if !slices.Equal(got[2:], test.want) {
			t.Errorf("%s:\n%s\nwant\n%s", test.what, lines(got[2:]), lines(test.want))
		}
	}
	if got, want := policy.Open().For(policy.Subject{}).Bind(mustItem(t, "tool t__a")).Explain()[2],
		(policy.Reason{Layer: "global", Verdict: policy.Allow, Note: "there are no policies"}); got != want {
		t.Errorf("without policies %+v, want %+v", got, want)
	}
}

// TestStrictestRememberCounts: of several asks that apply to a call, in one policy or in several, the
// one counts that lets the user allow least, at any position. An allow is an exception from the asks
// behind it, and why names the rules that never count.
func TestStrictestRememberCounts(t *testing.T) {
	const all = "{ ask: { tools: t__a }, remember: server }"
	for _, test := range []struct {
		policies, arguments string
		rule                string
		most                policy.Span
		notes               []string // of the rules
	}{
		{"[" + all + ", { ask: { tools: t__a, where: { a: \"x*\" } }, remember: once }]", `{"a":"xx"}`, "p rules[1]",
			policy.SpanOnce, []string{"", ""}},
		{"[" + all + ", { ask: { tools: t__a, where: { a: \"x*\" } }, remember: once }]", `{"a":"y"}`, "p rules[0]",
			policy.SpanServer, []string{"", ""}},
		{"[{ ask: { tools: t__a }, remember: once }, " + all + "]", `{}`, "p rules[0]", policy.SpanOnce,
			[]string{"", "rules[0] applies first"}},
		{"[" + all + ", { ask: { tools: t__a } }, { ask: { tools: t__a }, remember: tool }]", `{}`, "p rules[1]",
			policy.SpanCall, []string{"", "", "rules[1] applies first"}},
		{"[" + all + ", { allow: { tools: t__a } }, { ask: { tools: t__a }, remember: once }]", `{}`, "p rules[0]",
			policy.SpanServer, []string{"", "rules[0] applies first", "rules[1] applies first"}},
		{"[" + all + ", { allow: { tools: t__a, where: { a: x } } }, { ask: { tools: t__a }, remember: once }]",
			`{"a":"x"}`, "p rules[0]", policy.SpanServer, []string{"", "rules[0] applies first", ""}},
		{"[" + all + ", { allow: { tools: t__a, where: { a: x } } }, { ask: { tools: t__a }, remember: once }]",
			`{"a":"y"}`, "p rules[2]", policy.SpanOnce, []string{"", "rules[0] applies first", ""}},
		{"[" + all + "] }, { name: q, rules: [" + all + ", { ask: { tools: t__a, where: { a: x } }, remember: tool }]",
			`{"a":"x"}`, "q rules[1]", policy.SpanTool, []string{"", "", ""}},
	} {
		for _, enforced := range []string{"", "enforced: true, "} {
			g := mustCompile(t, "[{ name: p, "+enforced+"rules: "+test.policies+" }]").For(policy.Subject{}).
				Bind(mustItem(t, "tool t__a"))
			d, err := g.Decide(mustParse(t, test.arguments))
			if err != nil || d.Verdict != policy.Ask || d.Policy+" "+d.Rule != test.rule || d.Remember != test.most {
				t.Errorf("%s%s with %s: %+v, %v", enforced, test.policies, test.arguments, d, err)
			}
			var notes []string
			for _, r := range g.Explain()[2:] {
				notes = append(notes, r.Note)
			}
			if !slices.Equal(notes, test.notes) {
				t.Errorf("%s%s is explained by %q, want %q", enforced, test.policies, notes, test.notes)
			}
		}
	}
}

func lines(reasons []policy.Reason) string {
	var b strings.Builder
	for _, r := range reasons {
		fmt.Fprintf(&b, "\t%+v\n", r)
	}
	return b.String()
}

// TestEachLimitLimits sets each field of Limits alone: a new field limits calls and other requests
// until None excludes it.
func TestEachLimitLimits(t *testing.T) {
	nothing := map[string][2]bool{"Rate": {}, "Burst": {true, true}, "Concurrent": {false, true}} // calls, others
	for _, field := range reflect.VisibleFields(reflect.TypeFor[policy.Limits]()) {
		var l policy.Limits
		switch v := reflect.ValueOf(&l).Elem().FieldByIndex(field.Index); {
		case v.CanInt():
			v.SetInt(1)
		case v.CanFloat():
			v.SetFloat(1)
		default:
			t.Fatalf("%s is no number", field.Name)
		}
		if got := [2]bool{l.None(false), l.None(true)}; got != nothing[field.Name] {
			t.Errorf("%s alone: None is %v for calls and for others, want %v", field.Name, got, nothing[field.Name])
		}
	}
	if l := (policy.Limits{}); !l.None(false) || !l.None(true) {
		t.Error("the zero value limits something")
	}
}

// TestTextComesBackIfAllPoliciesAgree: one policy that removes a pattern without restore is enough to
// lose its text; restore alone removes known secrets.
func TestTextComesBackIfAllPoliciesAgree(t *testing.T) {
	p := mustCompile(t, `
- { name: all, redact: [{ name: ticket, re: "TCK-[0-9]+" }] }
- { name: ci, match: { key: ci }, redact: { restore: true } }
- { name: web, match: { surface: web }, redact: { restore: true, patterns: [{ name: ticket, re: "TCK-[0-9]+" }, { name: host, re: "[a-z]+[.]internal" }] } }
- { name: lost, match: { key: [ci, other], surface: web }, redact: { patterns: [secrets] } }
`)
	for who, want := range map[string]string{
		"": "ticket", "key=ci": "ticket secrets+", "surface=web": "ticket host+", "key=ci surface=web": "ticket host+ secrets",
		"key=other surface=web": "ticket host+ secrets",
	} {
		g := p.For(mustSubject(t, who)).Safeguards()
		var got []string
		add := func(name string, comes bool) {
			if comes {
				name += "+"
			}
			got = append(got, name)
		}
		for _, r := range g.Redactions {
			add(r.Name, r.Restore)
		}
		if g.Secrets {
			add("secrets", !g.LoseSecrets)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q has %q, want %q", who, got, want)
		}
	}
}

// TestGuardsAndLimits: guards add up, and the strictest limit counts.
func TestGuardsAndLimits(t *testing.T) {
	p := mustCompile(t, `
- { name: all, redact: [{ name: ticket, re: "TCK-[0-9]+" }], limits: { rate: 60/m, concurrent: 8 } }
- { name: ci, match: { key: ci }, redact: [secrets, { name: ticket, re: "TCK-[0-9]+" }, { name: host, re: "[a-z]+[.]internal" }], validate: true, limits: { rate: 1000/h, burst: 50 } }
- { name: web, match: { surface: web }, pinned: true, limits: { concurrent: 2, rate: 5/s } }
`)
	for _, test := range []struct {
		who        string
		redactions []string
		secrets    bool
		validate   bool
		pinned     bool
		limits     policy.Limits
	}{
		{"", []string{"ticket TCK-[0-9]+"}, false, false, false, policy.Limits{Rate: 1, Burst: 10, Concurrent: 8}},
		{"key=ci", []string{"ticket TCK-[0-9]+", "host [a-z]+[.]internal"}, true, true, false,
			policy.Limits{Rate: 1000. / 3600, Burst: 10, Concurrent: 8}},
		{"surface=web", []string{"ticket TCK-[0-9]+"}, false, false, true,
			policy.Limits{Rate: 1, Burst: 10, Concurrent: 2}},
	} {
		r := p.For(mustSubject(t, test.who))
		g := r.Safeguards()
		var redactions []string
		for _, r := range g.Redactions {
			redactions = append(redactions, r.Name+" "+r.Re.String())
		}
		slices.Sort(redactions)
		slices.Sort(test.redactions)
		if !slices.Equal(redactions, test.redactions) || g.Secrets != test.secrets || g.Validate != test.validate ||
			g.Pinned != test.pinned {
			t.Errorf("%q: guards %q %+v, want %+v", test.who, redactions, g, test)
		}
		if got := r.Limits(); got != test.limits {
			t.Errorf("%q: limits %+v, want %+v", test.who, got, test.limits)
		}
	}
	for name, p := range map[string]*policy.Policy{"no Policy": nil, "no section": policy.Open()} {
		r := p.For(policy.Subject{})
		if g := r.Safeguards(); g == nil || g.Redactions != nil || g.Secrets || g.Validate || g.Pinned ||
			r.Limits() != (policy.Limits{}) {
			t.Errorf("%s: %+v, %+v", name, g, r.Limits())
		}
	}
	if got, want := p.For(mustSubject(t, "")).Limits().Burst, 10; got != want {
		t.Errorf("burst %d, want %d", got, want)
	}
}

// TestEqual: a reload changes the rights of the affected subjects only.
func TestEqual(t *testing.T) {
	const first = `
- { name: all, rules: [{ allow: { tools: "*" } }] }
- { name: ci, match: { key: ci }, capabilities: [web], rules: [{ deny: { tools: x, where: { a: { re: b } } } }] }
`
	for _, test := range []struct {
		name, text string
		ci, me     bool
	}{
		{"nothing", first, true, true},
		{"white space and comments", strings.ReplaceAll(first, ", ", ",   "), true, true},
		{"another's policy", first + "- { name: you, match: { key: you }, capabilities: [all] }\n", true, true},
		{"a capability", strings.Replace(first, "[web]", "[web, files]", 1), false, true},
		{"an expression", strings.Replace(first, "re: b", "re: c", 1), false, true},
		{"a verdict", strings.Replace(first, "deny", "ask", 1), false, true},
		{"everybody's", strings.Replace(first, `"*"`, `"?*"`, 1), false, false},
		{"limits", strings.Replace(first, "name: all,", "name: all, limits: { rate: 1/s },", 1), false, false},
		{"a policy more", first + "- { name: more, redact: [secrets] }\n", false, false},
		{"a policy less", strings.SplitAfter(first, "\n")[1], false, true},
		{"a match", strings.Replace(first, "key: ci", "key: [ci, you]", 1), false, true},
	} {
		for who, want := range map[string]bool{"key=ci": test.ci, "key=me": test.me} {
			a, b := mustCompile(t, first).For(mustSubject(t, who)), mustCompile(t, test.text).For(mustSubject(t, who))
			if a.Equal(b) != want || b.Equal(a) != want {
				t.Errorf("%s: the rights of %s are equal: %v, %v, want %v", test.name, who, a.Equal(b), b.Equal(a),
					want)
			}
		}
	}
	none, open := (*policy.Policy)(nil).For(policy.Subject{}), policy.Open().For(policy.Subject{})
	if none.Equal(open) || open.Equal(none) || !open.Equal(policy.Open().For(policy.Subject{})) {
		t.Error("no rights and all rights are the same")
	}
}

func TestCapabilities(t *testing.T) {
	const text = `
- { name: a, capabilities: [web, files] }
- { name: b, match: { key: k }, capabilities: [files, "deploy:prod"] }
`
	want := []string{"deploy:prod", "files", "web"}
	if got := mustConfig(t, text).Capabilities(); !slices.Equal(got, want) {
		t.Errorf("Capabilities = %q, want %q", got, want)
	}
	if r := mustCompile(t, text).For(policy.Subject{}); !r.Holds("web") || r.Holds("deploy:prod") || r.Holds("") {
		t.Error("Holds is wrong")
	}
}

func TestVerdict(t *testing.T) {
	var zero policy.Decision
	if zero.Verdict != policy.Deny || policy.Deny != 0 || policy.Ask <= policy.Deny || policy.Allow <= policy.Ask {
		t.Error("deny is not the zero verdict, or the verdicts are not in the order of their strictness")
	}
	if got, want := fmt.Sprint(policy.Deny, policy.Ask, policy.Allow,
		policy.Verdict(9)), "deny ask allow deny"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestURIsTakeNoTime: URIs with very many readings are decided quickly, and too long ones are
// denied.
func TestURIsTakeNoTime(t *testing.T) {
	r := mustCompile(t, `
- name: all
  rules:
    - deny: { resources: ["mcp://up/file:///root/*", "mcp://other/file:///root/*"] }
    - allow: { resources: "mcp://up/b:*" }
    - allow: { upstreams: other }
`).For(policy.Subject{})
	began := time.Now()
	for _, piece := range []string{"a://b/", "%2525252525", "../", "a/", "//", ";x/..", "\\", "https://x:443/",
		"file://a/"} {
		for _, n := range []int{100, 7900, 1 << 20} {
			it := policy.Item{Kind: policy.Resource, Upstream: "other",
				Names: []string{"mcp://other/" + strings.Repeat(piece, n/len(piece)) + ":"}}
			if got, want := r.Bind(it).Visible(), n < 1000; got != want {
				t.Errorf("%d bytes of %s are visible: %v, want %v", n, piece, got, want)
			}
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
	for uri, want := range map[string]bool{
		"b:" + strings.Repeat("x", 100): true, "b:" + strings.Repeat("x", 10000): false,
		"mcp://x/mcp://y/file:///root/a": false,
	} {
		if got := r.Bind(policy.Item{Kind: policy.Resource, Upstream: "up",
			Names: []string{"mcp://up/" + uri}}).Visible(); got != want {
			t.Errorf("%.40s is visible: %v, want %v", uri, got, want)
		}
	}
}
