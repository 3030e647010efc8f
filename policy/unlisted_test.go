package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"junction/policy"
)

// listings are two upstreams with items, one with templates of resources alone, and one that is down.
func listings() []policy.Listing {
	tool := func(upstream, name string, arguments policy.Arguments) policy.Listed {
		return policy.Listed{Item: policy.Item{Kind: policy.Tool, Upstream: upstream, Names: []string{name}},
			Arguments: func() policy.Arguments { return arguments }}
	}
	closed := func(names ...string) policy.Arguments { return policy.Arguments{Names: names} }
	open := func(names ...string) policy.Arguments { return policy.Arguments{Names: names, Open: true} }
	renamed := tool("git", "git__show_commit", closed("rev"))
	renamed.Former = "git__show"
	down := policy.Listing{Known: policy.Known{Name: "down", Begin: "down__"}}
	for i := range down.Unknown {
		down.Unknown[i] = true
	}
	return []policy.Listing{
		{Known: policy.Known{Name: "demo", Begin: "demo__"}, Items: []policy.Listed{
			tool("demo", "demo__echo", closed("text")), tool("demo", "demo__add", closed("a", "b")),
			tool("demo", "demo__free", policy.Arguments{Unknown: true}),
			{Item: policy.Item{Kind: policy.Prompt, Upstream: "demo", Names: []string{"demo__greet"}},
				Arguments: func() policy.Arguments { return closed("name") }},
			{Item: policy.Item{Kind: policy.Skill, Upstream: "demo", Names: []string{"demo/acme/refunds"}}},
		}},
		{Known: policy.Known{Name: "git", Begin: "git__"}, Places: true, Items: []policy.Listed{
			tool("git", "git__git_status", open("repo_path")), renamed,
			{Item: policy.Item{Kind: policy.Resource, Upstream: "git",
				Names: []string{"git://head", "mcp://git/git://head"}}},
		}},
		{Known: policy.Known{Name: "wiki", Begin: "wiki__"}, Places: true, Templates: true},
		down,
	}
}

// TestRulesThatMatchNothingInTheCatalogs: a name that no server offers is reported with the nearest
// one. A name that a server without a catalog may have, and a name that clients do not see, are not
// reported.
func TestRulesThatMatchNothingInTheCatalogs(t *testing.T) {
	for rule, want := range map[string]string{
		`ask: { tools: demo__eco }`:                                                           "ask.tools: \"demo__eco\" matches no tool; did you mean demo__echo?",
		`allow: { tools: [demo__add, git__git_stauts] }`:                                      "allow.tools[1]: \"git__git_stauts\" matches no tool; did you mean git__git_status?",
		`deny: { tools: git__show }`:                                                          "deny.tools: \"git__show\" matches no tool; tools.NAME.as renames it: write git__show_commit",
		`deny: { tools: "git__rm*" }`:                                                         "deny.tools: \"git__rm*\" matches no tool",
		`deny: { tools: "git__shwo_*" }`:                                                      "deny.tools: \"git__shwo_*\" matches no tool; did you mean git__show_*?",
		`deny: { tools: "demo__ehco*" }`:                                                      "deny.tools: \"demo__ehco*\" matches no tool; did you mean demo__echo*?",
		`deny: { upstreams: git, tools: "*_comit" }`:                                          "deny.tools: \"*_comit\" matches no tool; did you mean *_commit?",
		`deny: { tools: "git__*_stauts" }`:                                                    "deny.tools: \"git__*_stauts\" matches no tool; did you mean git__*_status?",
		`deny: { upstreams: git, tools: "\\git__shwo_*" }`:                                    "deny.tools: \"\\\\git__shwo_*\" matches no tool",
		`deny: { tools: "*drop*" }`:                                                           "", // a tool of down may have such a name
		`deny: { upstreams: [demo, git], tools: "*drop*" }`:                                   "deny.tools: \"*drop*\" matches no tool",
		`deny: { upstreams: git, tools: "demo__*" }`:                                          "deny.tools: \"demo__*\" matches no tool",
		`deny: { tools: "down__x" }`:                                                          "",
		`deny: { tools: ["demo__?cho", "*", "git__*"] }`:                                      "",
		`deny: { upstreams: nosuch, tools: x }`:                                               "", // Unmatched reports it
		`allow: { prompts: demo__great }`:                                                     "allow.prompts: \"demo__great\" matches no prompt; did you mean demo__greet?",
		`allow: { prompts: demo__greet, tools: demo__greet }`:                                 "allow.tools: \"demo__greet\" matches no tool; a prompt has the name: write prompts",
		`deny: { skills: demo/acme/refund }`:                                                  "deny.skills: \"demo/acme/refund\" matches no skill that is listed; did you mean demo/acme/refunds?",
		`deny: { skills: [demo/acme, "*/refunds", "down/*"] }`:                                "",
		`deny: { resources: "file:///etc/*" }`:                                                "", // a resource may be in no list
		`deny: { upstreams: demo, resources: "file:///etc/*" }`:                               "deny.resources: \"file:///etc/*\" matches nothing: no upstream of this rule has resources",
		`deny: { upstreams: demo, resources: "*" }`:                                           "",
		`deny: { upstreams: git, resources: "git://heat" }`:                                   "deny.resources: \"git://heat\" matches no resource that is listed; did you mean git://head?",
		`deny: { upstreams: git, resources: ["git://head", "git://other"] }`:                  "",
		`deny: { upstreams: [git, wiki], resources: "git://heat" }`:                           "", // a template may have it
		`deny: { upstreams: demo, resources: "skill://demo/*" }`:                              "",
		`deny: { tools: demo__echo, where: { txt: "a*" } }`:                                   `deny.where.txt: nothing that this rule selects has an argument "txt"; did you mean text?`,
		`deny: { tools: git__git_status, where: { /repo_pat/0: "a*" } }`:                      `deny.where./repo_pat/0: nothing that this rule selects describes an argument "repo_pat"; did you mean repo_path?`,
		`deny: { tools: [demo__echo, demo__add], where: { text: x, b: y } }`:                  "",
		`deny: { tools: "demo__*", where: { command: x } }`:                                   "", // demo__free may take it
		`deny: { upstreams: [git, down], where: { command: x } }`:                             "", // a tool of down may have it
		`ask: { upstreams: git, where: { command: x } }`:                                      `ask.where.command: nothing that this rule selects describes an argument "command"`,
		`ask: { prompts: demo__greet, where: { nam: x } }`:                                    `ask.where.nam: nothing that this rule selects has an argument "nam"; did you mean name?`,
		`ask: { tools: [demo__echo, demo__eco], where: { nosuch: x } }`:                       "ask.tools[1]: \"demo__eco\" matches no tool; did you mean demo__echo?",
		`ask: { upstreams: demo, annotations: { readOnlyHint: true }, where: { nosuch: x } }`: "",
	} {
		c := mustConfig(t, "- { name: a, rules: [ { "+rule+" } ] }")
		if problems := c.Validate(); len(problems) > 0 {
			t.Fatalf("%s: %v", rule, problems)
		}
		var got []string
		for _, p := range c.Unlisted(listings()) {
			got = append(got, strings.TrimPrefix(p.Path, "[0].rules[0].")+": "+p.Text)
		}
		if text := strings.Join(got, "\n"); text != want {
			t.Errorf("%s:\n got %q\nwant %q", rule, text, want)
		}
	}
	c := mustConfig(t, "- { name: a, catalog: search, always: [demo__echo, demo__ad] }")
	if ps := c.Unlisted(listings()); len(ps) != 1 || ps[0].Path != "[0].always[1]" || ps[0].Text != `"demo__ad" matches no tool; did you mean demo__add?` {
		t.Errorf("always: %v", ps)
	}
	c = mustConfig(t, "- { name: a b, rules: [ { deny: { tools: nosuch } } ] }")
	if ps := c.Unlisted(listings()); len(ps) > 0 {
		t.Errorf("policies with a mistake are compared: %v", ps)
	}
}

// TestArgumentsOfDefinitions: a schema that does not close its arguments may have others, and one
// that combines schemas tells nothing.
func TestArgumentsOfDefinitions(t *testing.T) {
	for definition, want := range map[string]string{
		`{"inputSchema":{"type":"object","properties":{"a":{},"\u0062":1},"additionalProperties":false}}`: "[a b] false false",
		`{"inputSchema":{"properties":{"a":{}}}}`:                                                         "[a] true false",
		`{"inputSchema":{"properties":{"a":{}},"additionalProperties":{"x":1}}}`:                          "[a] true false",
		`{"inputSchema":{"type":"object"}}`:                                                               "[] true true",
		`{"inputSchema":{"type":"object","additionalProperties":false}}`:                                  "[] false false",
		`{"inputSchema":{"properties":{"a":{}},"anyOf":[{"properties":{"b":1}}]}}`:                        "[] false true",
		`{"inputSchema":{"properties":[]}}`:                                                               "[] true true",
		`{"inputSchema":true}`:                                                                            "[] false true",
		`{}`:                                                                                              "[] false true",
	} {
		a := policy.ArgumentsOf(policy.Tool, mustParse(t, definition))
		if got := fmt.Sprint(a.Names, a.Open, a.Unknown); got != want {
			t.Errorf("%s: %s, want %s", definition, got, want)
		}
	}
	for definition, want := range map[string]string{
		`{"arguments":[{"name":"a"},{"name":"b"}]}`: "[a b] false false", `{}`: "[] false false", `{"arguments":1}`: "[] false false",
	} {
		a := policy.ArgumentsOf(policy.Prompt, mustParse(t, definition))
		if got := fmt.Sprint(a.Names, a.Open, a.Unknown); got != want {
			t.Errorf("prompt %s: %s, want %s", definition, got, want)
		}
	}
}

// many are 10,000 tools of ten upstreams, and 1,000 rules in a hundred policies, each with this
// text, in which %d is the number of the rule.
func many(tb testing.TB, rule string) ([]policy.Listing, policy.Config) {
	var list []policy.Listing
	for u := range 10 {
		l := policy.Listing{Known: policy.Known{Name: fmt.Sprintf("up%d", u), Begin: fmt.Sprintf("up%d__", u)}}
		for i := range 1000 {
			l.Items = append(l.Items, policy.Listed{Item: policy.Item{Kind: policy.Tool, Upstream: l.Name,
				Names: []string{fmt.Sprintf("up%d__some_tool_%d", u, i)}},
				Arguments: func() policy.Arguments { return policy.Arguments{Names: []string{"path", "text"}} }})
		}
		list = append(list, l)
	}
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, "- name: p%d\n  rules:\n", i)
		for k := range 10 {
			fmt.Fprintf(&b, "    - "+rule+"\n", 10*i+k)
		}
	}
	return list, mustConfig(tb, b.String())
}

// TestUnlistedIsBounded: with 10,000 tools and 1,000 rules, the list of problems is short, few names are
// looked for, and the list says that it is not all.
func TestUnlistedIsBounded(t *testing.T) {
	list, c := many(t, `deny: { tools: up1__sme_tool_%d }`)
	ps := c.Unlisted(list)
	if n := len(ps); n != 101 || !strings.Contains(ps[100].Text, "correct the others first") {
		t.Errorf("%d problems, the last one: %v", n, ps[max(0, n-1)])
	}
	hints := 0
	for _, p := range ps {
		if strings.Contains(p.Text, "; did you mean up1__some_tool_") {
			hints++
		}
	}
	if hints != 20 {
		t.Errorf("%d problems have the nearest name, want 20", hints)
	}
	list, c = many(t, `deny: { tools: "*nothing%d*", where: { path: "*" } }`)
	if ps := c.Unlisted(list); len(ps) != 101 {
		t.Errorf("%d problems of globs", len(ps))
	}
	list, c = many(t, `deny: { upstreams: "up*", tools: "*_999", where: { text: "%d*" } }`)
	if ps := c.Unlisted(list); len(ps) != 0 {
		t.Errorf("rules that all match: %v", ps)
	}
	list, c = many(t, `deny: { annotations: { readOnlyHint: true }, where: { text: "%d*" } }`) // each is compared with all
	if ps := c.Unlisted(list); len(ps) != 1 || !strings.Contains(ps[0].Text, "in part only") {
		t.Errorf("too many to compare: %v", ps)
	}
}

// BenchmarkUnlisted compares 1,000 rules with 10,000 tools.
func BenchmarkUnlisted(b *testing.B) {
	for _, rule := range []string{`deny: { tools: up1__some_tool_%d }`, `deny: { tools: up1__no_such_tool_%d }`,
		`deny: { tools: "*nothing%d*" }`, `deny: { upstreams: "up*", where: { pat: "%d*" } }`,
		`deny: { tools: "up%d*", where: { path: "*" } }`, `deny: { upstreams: "u*", tools: "*9_%d*" }`} {
		b.Run(rule, func(b *testing.B) {
			list, c := many(b, rule)
			for b.Loop() {
				c.Unlisted(list)
			}
		})
	}
}

// TestMistyped: a deny with a wildcard that is near no name is most likely meant for items of later. All else that
// matches nothing is told as by Unlisted.
func TestMistyped(t *testing.T) {
	c := mustConfig(t, `
- name: all
  rules:
    - deny: { tools: ["*__delete_*", "files__raed*", files__wipe] }
    - allow: { tools: ["files__view*", files__read] }
`)
	item := policy.Listed{Item: policy.Item{Kind: policy.Tool, Upstream: "files", Names: []string{"files__read"}}}
	listings := []policy.Listing{{Known: policy.Known{Name: "files", Begin: "files__"}, Items: []policy.Listed{item}}}
	var all, likely []string
	for _, p := range c.Unlisted(listings) {
		all = append(all, p.Path)
	}
	for _, p := range c.Mistyped(listings) {
		likely = append(likely, p.Path)
	}
	const deny, allow = "[0].rules[0].deny.tools", "[0].rules[1].allow.tools"
	if want := []string{deny + "[0]", deny + "[1]", deny + "[2]", allow + "[0]"}; !slices.Equal(all, want) {
		t.Errorf("unlisted are %q, want %q", all, want)
	}
	if !slices.Equal(likely, all[1:]) {
		t.Errorf("mistyped are %q, want %q", likely, all[1:])
	}
}
