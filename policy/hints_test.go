package policy_test

import (
	"strings"
	"testing"

	"junction/policy"
	"junction/upstream/raw"
)

// The annotations of tools of these tests.
const (
	silent      = `{}`
	reads       = `{"annotations":{"readOnlyHint":true}}`
	adds        = `{"annotations":{"destructiveHint":false,"openWorldHint":false}}`
	deletes     = `{"annotations":{"destructiveHint":true,"idempotentHint":true}}`
	contradicts = `{"annotations":{"readOnlyHint":true,"destructiveHint":true}}`
	mistyped    = `{"annotations":{"readOnlyHint":"true","destructiveHint":0}}`
	twice       = `{"annotations":{"readOnlyHint":true,"readOnlyHint":true}}`
	twiceAll    = `{"annotations":{"readOnlyHint":true},"annotations":{"readOnlyHint":true}}`
)

func hinted(t *testing.T, upstream, definition string) policy.Item {
	t.Helper()
	o, err := raw.Parse([]byte(definition))
	if err != nil {
		t.Fatal(err)
	}
	return policy.Item{Kind: policy.Tool, Upstream: upstream, Names: []string{upstream + "__x"}, Hints: policy.HintsOf(o)}
}

// TestRulesSelectByHints: a missing or broken hint has the default of MCP, and the hints of an upstream
// that the rule does not trust count as missing.
func TestRulesSelectByHints(t *testing.T) {
	const files, other = "files", "other"
	for _, test := range []struct {
		selector string
		upstream string
		selected []string // of all definitions
	}{
		{`readOnlyHint: false`, files, []string{silent, adds, deletes, contradicts, mistyped, twice, twiceAll}},
		{`readOnlyHint: true`, files, []string{reads}},
		{`destructiveHint: true`, files, []string{silent, deletes, contradicts, mistyped, twice, twiceAll}},
		{`destructiveHint: false`, files, []string{reads, adds}},
		{`idempotentHint: true`, files, []string{reads, deletes}},
		{`openWorldHint: false`, files, []string{adds}},
		{`readOnlyHint: false, destructiveHint: false`, files, []string{adds}},
		{`readOnlyHint: true, trusted: files`, files, []string{reads}},
		{`readOnlyHint: true, trusted: "f*"`, other, nil},
		{`readOnlyHint: false, trusted: files`, other,
			[]string{silent, reads, adds, deletes, contradicts, mistyped, twice, twiceAll}},
		{`openWorldHint: false, trusted: files`, other, nil},
	} {
		for _, verdict := range []string{"ask", "deny", "allow"} {
			rule := verdict + `: { upstreams: "*", annotations: { ` + test.selector + ` } }`
			rest := "allow"
			if verdict == "allow" {
				rest = "ask"
			}
			rights := mustCompile(t, `[{ name: all, rules: [{ `+rule+` }, { `+rest+`: { upstreams: "*" } }] }]`).
				For(policy.Subject{})
			for _, definition := range []string{silent, reads, adds, deletes, contradicts, mistyped, twice, twiceAll} {
				want := rest
				for _, s := range test.selected {
					if s == definition {
						want = verdict
					}
				}
				it := hinted(t, test.upstream, definition)
				d, err := rights.Bind(it).Decide(raw.Object{})
				if err != nil || d.Verdict.String() != want {
					t.Errorf("%s: %s of %s is %v, %v, want %s", rule, definition, test.upstream, d.Verdict, err, want)
				}
				var bits [1]byte
				policy.NewItems([]policy.Item{it}).Visible(rights, bits[:])
				if visible := bits[0] == 1; visible != (want != "deny") {
					t.Errorf("%s: %s of %s is visible: %v", rule, definition, test.upstream, visible)
				}
			}
			prompt := policy.Item{Kind: policy.Prompt, Upstream: test.upstream, Names: []string{"x"}}
			if d, _ := rights.Bind(prompt).Decide(raw.Object{}); d.Verdict.String() != rest {
				t.Errorf("%s: a prompt is %v, want %s", rule, d.Verdict, rest)
			}
		}
	}
}

// TestReachOfHints: a deny by hints does not hide an upstream, and an allow by hints reaches tools only.
func TestReachOfHints(t *testing.T) {
	denies := mustCompile(t, `[{ name: all, enforced: true, rules: [{ deny: { annotations: { readOnlyHint: false } } },
		{ allow: { upstreams: "*" } }] }]`).For(policy.Subject{})
	allows := mustCompile(t, `[{ name: all, rules: [{ allow: { annotations: { readOnlyHint: true, trusted: a } } }] }]`).
		For(policy.Subject{})
	for _, test := range []struct {
		name   string
		rights *policy.Rights
		kind   policy.Kind
		at     string
		want   bool
	}{
		{"a deny", denies, policy.Tool, "a", true}, {"a deny", denies, policy.Prompt, "a", true},
		{"an allow", allows, policy.Tool, "a", true}, {"an allow", allows, policy.Tool, "b", false},
		{"an allow", allows, policy.Prompt, "a", false}, {"an allow", allows, policy.Resource, "a", false},
	} {
		if got := test.rights.Reaches(test.kind, test.at, nil, ""); got != test.want {
			t.Errorf("%s reaches a %v of %s: %v, want %v", test.name, test.kind, test.at, got, test.want)
		}
	}
	uri := policy.Item{Kind: policy.Resource, Upstream: "a", Names: []string{"x:/"}}
	if v := allows.Beginning(uri); v.Has(policy.Allow) {
		t.Error("an allow by hints allows a resource")
	}
}

// TestOverriddenByHints: rules for different hints have no tool in common.
func TestOverriddenByHints(t *testing.T) {
	for _, test := range []struct{ global, own, want string }{
		{`ask: { annotations: { readOnlyHint: false } }`, `allow: { upstreams: "*" }`,
			"this ask of annotations: { readOnlyHint: false }"},
		{`ask: { annotations: { readOnlyHint: false } }`, `allow: { upstreams: "*", annotations: { readOnlyHint: true } }`, ""},
		{`ask: { annotations: { destructiveHint: true } }`, `allow: { upstreams: "*", annotations: { readOnlyHint: true } }`, ""},
		{`ask: { annotations: { readOnlyHint: false } }`,
			`allow: { annotations: { readOnlyHint: true, trusted: files } }`, ""},
		// files is trusted by the allow alone, so that the ask applies to all of its tools
		{`ask: { annotations: { readOnlyHint: false, trusted: shell } }`,
			`allow: { annotations: { readOnlyHint: true, trusted: files } }`, "this ask of"},
		{`ask: { annotations: { readOnlyHint: false } }`, `allow: { prompts: "*" }`, ""},
		{`deny: { tools: "*" }`, `allow: { annotations: { openWorldHint: false, trusted: files } }`, "this deny of"},
	} {
		c := mustConfig(t, `[{ name: all, rules: [{ `+test.global+` }] }, { name: ann, match: { user: ann }, rules: [{ `+
			test.own+` }] }]`)
		text := ""
		for _, p := range c.Warnings(upstreams) {
			text += p.Text
		}
		if (test.want == "") != (text == "") || !strings.Contains(text, test.want) {
			t.Errorf("%s and %s: %q, want %q", test.global, test.own, text, test.want)
		}
	}
	// A deny by hints shields only the tools that it selects.
	for deny, want := range map[string]bool{"destructiveHint: true": true, "readOnlyHint: false": false} {
		c := mustConfig(t, `[{ name: all, rules: [{ ask: { annotations: { readOnlyHint: false } } }] },
			{ name: ann, match: { user: ann }, rules: [{ deny: { annotations: { `+deny+` } } }, { allow: { upstreams: "*" } }] }]`)
		if got := len(c.Warnings(upstreams)) > 0; got != want {
			t.Errorf("a deny of %s: warnings %v, want %v", deny, got, want)
		}
	}
}

// TestMistakesInAnnotations: what selects nothing, or lets a server allow itself, is refused.
func TestMistakesInAnnotations(t *testing.T) {
	for rule, want := range map[string]string{
		`ask: { annotations: {} }`:                                                         "names no hint",
		`ask: { annotations: { trusted: a } }`:                                             "names no hint",
		`ask: { prompts: "*", annotations: { readOnlyHint: true } }`:                       "applies to tools",
		`ask: { annotations: { readOnlyHint: true, destructiveHint: true } }`:              "selects no tool",
		`allow: { annotations: { readOnlyHint: true } }`:                                   "name the upstreams whose hints you trust",
		`allow: { tools: "*", annotations: { readOnlyHint: true } }`:                       "name the upstreams whose hints you trust",
		`allow: { annotations: { readOnlyHint: true, trusted: "[" } }`:                     "contains [",
		`allow: { annotations: { readOnlyHint: true, trusted: "*" } }`:                     "",
		`allow: { upstreams: files, annotations: { readOnlyHint: true } }`:                 "",
		`deny: { tools: "*__x", where: { a: b }, annotations: { idempotentHint: false } }`: "",
	} {
		text := ""
		for _, p := range mustConfig(t, `[{ name: all, rules: [{ `+rule+` }] }]`).Validate() {
			text += p.Path + " " + p.Text
		}
		if (want == "") != (text == "") || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", rule, text, want)
		}
	}
	c := mustConfig(t, `[{ name: all, rules: [{ ask: { annotations: { readOnlyHint: false, trusted: [files, fles] } } }] }]`)
	if ps := c[0].Unmatched(policy.Places{Upstreams: []policy.Known{{Name: "files"}}}); len(ps) != 1 || ps[0].Path != ".rules[0].ask.annotations.trusted[1]" {
		t.Errorf("an unknown upstream in trusted: %v", ps)
	}
}
