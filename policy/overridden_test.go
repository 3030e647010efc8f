package policy_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"junction/policy"
	"junction/upstream/yamlread"
)

// upstreams are the upstreams of the tests below.
var upstreams = []policy.Known{
	{Name: "files", Begin: "files__"}, {Name: "shell", Begin: "sh__"}, {Name: "bare"},
}

// TestOverriddenDenies compares a global rule with the rules of a caller's own.
func TestOverriddenDenies(t *testing.T) {
	for _, test := range []struct {
		global, own string
		want        string // what is lifted; "" if nothing is
	}{
		// Names: globs that overlap without one containing the other, and globs that do not.
		{`deny: { tools: "*__delete_*" }`, `allow: { upstreams: "*" }`, `deny of tools: "*__delete_*"`},
		{`deny: { tools: "*__delete_*" }`, `allow: { tools: "files__*" }`, `deny of tools: "*__delete_*"`},
		{`deny: { tools: "*__delete_*" }`, `allow: { tools: ["x__y", "*_file"] }`, `deny of tools: "*__delete_*"`},
		{`deny: { tools: "files__*" }`, `allow: { tools: "sh__*" }`, ""},
		{`deny: { tools: "*_a" }`, `allow: { tools: "*_b" }`, ""},
		{`deny: { tools: "sh__a?" }`, `allow: { tools: "sh__?b" }`, `deny of tools: "sh__a?"`},
		{`deny: { tools: "sh__a?" }`, `allow: { tools: "sh__a" }`, ""},
		{`deny: { tools: "sh__*a*" }`, `allow: { tools: "sh__b*b" }`, `deny of tools: "sh__*a*"`},
		{`deny: { tools: 'sh__\*' }`, `allow: { tools: "sh__?" }`, `deny of tools: "sh__\\*"`},
		{`deny: { tools: 'sh__\*' }`, `allow: { tools: "sh__a*" }`, ""},
		{`deny: { tools: "sh__é?" }`, `allow: { tools: "sh__?é" }`, `deny of tools: "sh__é?"`},
		// Kinds and upstreams.
		{`deny: { tools: "*" }`, `allow: { prompts: "*" }`, ""},
		{`deny: { tools: "*" }`, `allow: { resources: "*" }`, ""},
		{`deny: { prompts: "*p" }`, `allow: { prompts: "files__*" }`, `deny of prompts: "*p"`},
		{`deny: { upstreams: shell }`, `allow: { tools: "files__*" }`, ""},
		{`deny: { upstreams: shell }`, `allow: { tools: "sh__*" }`, `deny of upstreams: "shell"`},
		{`deny: { upstreams: shell }`, `allow: { upstreams: files }`, ""},
		{`deny: { upstreams: "s*" }`, `allow: { upstreams: "*l" }`, `deny of upstreams: "s*"`},
		{`deny: { upstreams: "s*" }`, `allow: { upstreams: "*s" }`, ""}, // such as sales, which is not there
		{`deny: { tools: "x__*" }`, `allow: { upstreams: [files, shell] }`, ""},
		{`deny: { tools: "x__*" }`, `allow: { upstreams: bare }`, `deny of tools: "x__*"`},
		{`deny: { upstreams: nothing }`, `allow: { upstreams: "*" }`, ""},
		{`deny: { where: { x: a } }`, `allow: { where: { x: a } }`, `deny of upstreams: "*"`},
		// Resources, by either URI.
		{`deny: { resources: "file:///etc/*" }`, `allow: { resources: "file:///*" }`,
			`deny of resources: "file:///etc/*"`},
		{`deny: { resources: "file:///etc/*" }`, `allow: { resources: "file:///home/*" }`, ""},
		{`deny: { resources: "file:///etc/*" }`, `allow: { resources: "mcp://files/file:*" }`,
			`deny of resources: "file:///etc/*"`},
		{`deny: { resources: "mcp://files/*" }`, `allow: { resources: "file:///home/*" }`,
			`deny of resources: "mcp://files/*"`},
		{`deny: { resources: "mcp://files/*" }`, `allow: { resources: "mcp://shell/*" }`, ""},
		{`deny: { resources: "mcp://files/*" }`, `allow: { upstreams: shell }`, ""},
		{`deny: { upstreams: shell }`, `allow: { resources: "mcp://files/*" }`, ""},
		{`deny: { resources: "ui://clock/*" }`, `allow: { resources: "ui://shell/clock/*" }`,
			`deny of resources: "ui://clock/*"`},
		{`deny: { resources: "ui://clock/*" }`, `allow: { resources: "ui://shell/bell/*" }`, ""},
		{`deny: { resources: "https://evil/*" }`, `allow: { resources: "mcp://files/*" }`, ""},
		{`deny: { resources: "https://evil/*" }`, `allow: { resources: "https://EVIL:443/x" }`,
			`deny of resources: "https://evil/*"`},
		{`deny: { resources: "file:///etc/*" }`, `allow: { resources: "file:///%65tc/*" }`,
			`deny of resources: "file:///etc/*"`},
		{`deny: { resources: "*.env" }`, `allow: { resources: "file:///srv/*" }`, `deny of resources: "*.env"`},
		{`deny: { upstreams: "*", where: { x: a } }`, `allow: { resources: "*" }`, ""},
		// Conditions.
		{`deny: { tools: sh__run, where: { command: "rm *" } }`, `allow: { tools: sh__run }`,
			`deny of tools: "sh__run"`},
		{`deny: { tools: sh__run, where: { command: "rm *" } }`,
			`allow: { tools: sh__run, where: { command: "git *" } }`, ""},
		{`deny: { tools: sh__run, where: { command: "rm *" } }`,
			`ask: { tools: sh__run, where: { /command: ["git *", "ls"] } }`, ""},
		{`deny: { tools: sh__run, where: { command: "* rm *" } }`,
			`allow: { tools: sh__run, where: { command: "git *" } }`, `deny of tools: "sh__run"`},
		{`deny: { tools: sh__run, where: { command: "rm *" } }`,
			`allow: { tools: sh__run, where: { dir: "/srv/*" } }`, `deny of tools: "sh__run"`},
		{`deny: { tools: sh__run, where: { command: "rm *" } }`,
			`allow: { tools: sh__run, where: { command: { re: "^(git|ls) " } } }`, ""},
		{`deny: { tools: sh__run, where: { command: "rm *" } }`,
			`allow: { tools: sh__run, where: { command: { re: "(git|ls) " } } }`, `deny of tools: "sh__run"`},
		{`deny: { tools: sh__run, where: { command: { re: "(^|[;&|]) *sudo " } } }`,
			`allow: { tools: sh__run, where: { command: "git status" } }`, ""},
		{`deny: { tools: sh__run, where: { command: { re: "(^|[;&|]) *sudo " } } }`,
			`allow: { tools: sh__run, where: { command: "git *" } }`, `deny of tools: "sh__run"`},
		{`deny: { tools: sh__run, where: { command: { re: "\\.env$" } } }`,
			`allow: { tools: sh__run, where: { command: "*.txt" } }`, ""},
		{`deny: { tools: sh__run, where: { command: { re: "(?i)^RM" } } }`,
			`allow: { tools: sh__run, where: { command: "rm*" } }`, `deny of tools: "sh__run"`},
		{`deny: { tools: sh__run, where: { n: "22" } }`, `allow: { tools: sh__run, where: { n: "23" } }`, ""},
		// Verdicts: asks lift denies, and allows lift asks.
		{`deny: { tools: sh__run }`, `ask: { tools: "sh__*" }`, `deny of tools: "sh__run"`},
		{`ask: { tools: sh__run }`, `ask: { tools: "sh__*" }`, ""},
		{`ask: { tools: sh__run }`, `allow: { tools: "sh__*" }`, `ask of tools: "sh__run"`},
		{`allow: { tools: sh__run }`, `allow: { tools: "sh__*" }`, ""},
		{`deny: { tools: sh__run }`, `deny: { tools: "sh__*" }`, ""},
		// Not lifted, since another rule for the same callers keeps it.
		{`deny: { tools: sh__run }`, `deny: { tools: "sh__r*" } }, { allow: { tools: "sh__*" }`, ""},
		{`deny: { tools: sh__run }`, `allow: { tools: "sh__*" } }, { deny: { upstreams: [shell, bare] }`, ""},
		{`deny: { tools: "sh__*n" }`, `allow: { tools: "sh__*" } }, { deny: { tools: "sh__r*" }`,
			`deny of tools: "sh__*n"`},
		{`deny: { tools: sh__run }`, `allow: { tools: "sh__*" } }, { deny: { tools: sh__run, where: { x: a } }`,
			`deny of tools: "sh__run"`},
		{`deny: { tools: sh__run, where: { x: a } }`,
			`allow: { tools: "sh__*" } }, { deny: { tools: sh__run, where: { x: [a, b] } }`, ""},
		{`ask: { tools: sh__run }`, `ask: { tools: sh__run } }, { allow: { tools: "sh__*" }`, ""},
		{`ask: { tools: sh__run }`, `allow: { tools: "sh__*" } }, { ask: { tools: sh__run }`,
			`ask of tools: "sh__run"`},
		{`deny: { tools: sh__run }`, `ask: { tools: sh__run } }, { allow: { tools: "sh__*" }`,
			`deny of tools: "sh__run"`},
		{`allow: { tools: sh__run } }, { ask: { tools: "sh__*" }`, `allow: { tools: sh__run }`, ""},
	} {
		for _, match := range []string{"match: { key: [ann, bob] }", "match: { surface: web }"} {
			text := fmt.Sprintf("- { name: everybody, rules: [{ %s }] }\n- { name: theirs, %s, rules: [{ %s }] }\n",
				test.global, match, test.own)
			lifted := warningsOf(t, text)
			got := ""
			for _, p := range lifted {
				text, _, _ := strings.Cut(p.Text, ": rules[")
				got += strings.TrimPrefix(text, "policy theirs lifts this ")
			}
			if got != test.want {
				t.Errorf("of\n%swarns %v, want %q", text, lifted, test.want)
			}
		}
	}
}

func warningsOf(t *testing.T, text string) []yamlread.Problem {
	t.Helper()
	return mustConfig(t, text).Warnings(upstreams)
}

// TestOverriddenWarningsSayWhatToDo compares whole warnings.
func TestOverriddenWarningsSayWhatToDo(t *testing.T) {
	const rest = `, and own policies decide before global ones; add enforced: true to policy all, or enforced: false if that is intended`
	const all = "- { name: all, rules: [{ allow: { upstreams: files } }, { deny: { tools: \"*__rm\" } }] }\n"
	own := func(names ...string) (text string) {
		for _, name := range names {
			text += fmt.Sprintf("- { name: %s, match: { key: %s }, rules: [{ allow: { upstreams: \"*\" } }] }\n",
				name, name)
		}
		return text
	}
	rule := `rules[0] of a is allow: { upstreams: "*" }` + rest
	for _, test := range []struct {
		text string
		want []string
	}{
		{all + own("a"), []string{`policies[0].rules[1].deny: policy a lifts this deny of tools: "*__rm": ` + rule}},
		{all + own("a", "b"),
			[]string{`policies[0].rules[1].deny: policies a and b lift this deny of tools: "*__rm": ` + rule}},
		{all + own("a", "b", "c"),
			[]string{`policies[0].rules[1].deny: policies a, b and c lift this deny of tools: "*__rm": ` + rule}},
		{all + own("a", "b", "c", "d", "e"),
			[]string{`policies[0].rules[1].deny: policies a, b, c and 2 more lift this deny of tools: "*__rm": ` +
				rule}},
		{strings.Replace(all, "name: all", "name: all, enforced: true", 1) + own("a"), nil},
		{strings.Replace(all, "name: all", "name: all, enforced: false", 1) + own("a"), nil},
		// Another enforced policy, or one for the same callers, may keep it.
		{all + own("a") + "- { name: x, enforced: true, rules: [{ deny: { tools: \"*__r?\" } }] }\n", nil},
		{all + own("a") + "- { name: x, match: { key: a }, rules: [{ deny: { tools: \"*__r?\" } }] }\n", nil},
		{all + own("a") + "- { name: x, match: { key: b }, rules: [{ deny: { tools: \"*__r?\" } }] }\n",
			[]string{`policies[0].rules[1].deny: policy a lifts this deny of tools: "*__rm": ` + rule}},
		// Only denies and asks are enforced.
		{"- { name: a, enforced: true, capabilities: [x], rules: [{ allow: { upstreams: \"*\" } }] }\n",
			[]string{"policies[0].enforced: has no effect: only denies and asks are enforced, and this policy has " +
				"none; add one, or remove the key"}},
		{"- { name: a, enforced: true, rules: [{ allow: { upstreams: \"*\" } }, { ask: { tools: x } }] }\n", nil},
		{"- { name: a, enforced: false, rules: [{ allow: { upstreams: \"*\" } }] }\n", nil},
		// All conditions of a deny must match.
		{"- { name: a, match: { key: a }, rules: [{ deny: { upstreams: s, tools: [run, x], where: { command: [\"rm " +
			"*\", { re: \"su|do\" }], /cwd: \"/etc*\", b: c } } }] }\n",
			[]string{"policies[0].rules[0].deny.where: denies only calls that match all 3 keys; to deny calls that " +
				"match any of them, write a rule for each: " +
				`deny: { upstreams: "s", tools: ["run", "x"], where: { /cwd: "/etc*" } } and deny: { upstreams: "s", tools: ["run", "x"], where: { b: "c" } } and ` +
				`deny: { upstreams: "s", tools: ["run", "x"], where: { command: ["rm *", { re: "su|do" }] } }`}},
		{"- { name: a, rules: [{ allow: { tools: x, where: { a: b, c: d } } }, { ask: { tools: x, where: { a: b, c: " +
			"d } } }, { deny: { tools: x, where: { a: [b, c] } } }] }\n", nil},
		// An invalid section gives no warnings.
		{all + own("a") + "- { name: a, rules: [{ deny: { tools: x, where: { a: { re: \"(\" } } } }] }\n", nil},
	} {
		var got []string
		for _, p := range warningsOf(t, test.text) {
			got = append(got, "policies"+p.Path+": "+p.Text)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("warnings of\n%s\t%s\nwant\n\t%s", test.text, strings.Join(got, "\n\t"), strings.Join(test.want,
				"\n\t"))
		}
	}
}

// FuzzOverlap compares the warnings about small patterns with all short texts.
func FuzzOverlap(f *testing.F) {
	for _, s := range [][4]string{{"a*", "*b", "", ""}, {"a", "?", "b", "^a"}, {"*a*", "*b*", "*ab*", "a$"}, {"a?*",
		"*?a", "a*a", "(a|b)+$"}, {"?*b", "a*", "?b", "(^|b)a"}, {"**", "?", "a", "a?b*"}} {
		f.Add(s[0], s[1], s[2], s[3])
	}
	small := func(glob string) bool { return len(glob) <= 4 && strings.Trim(glob, "ab*?") == "" }
	var texts []string
	for text := []byte(""); len(text) < 9; {
		texts = append(texts, string(text))
		i := len(text) - 1
		for ; i >= 0 && text[i] == 'b'; i-- {
			text[i] = 'a'
		}
		if i < 0 {
			text = append(text, 'a')
			continue
		}
		text[i] = 'b'
	}
	f.Fuzz(func(t *testing.T, deny, allow, kept, re string) {
		if !small(deny) || !small(allow) || !small(kept) || deny == "" || allow == "" || len(re) > 12 {
			return
		}
		rules := []policy.Rule{{Allow: &policy.Selector{Tools: policy.List{allow}}}}
		if kept != "" {
			rules = append(rules, policy.Rule{Deny: &policy.Selector{Tools: policy.List{kept}}})
		}
		warned := func(deny *policy.Selector, rules []policy.Rule) bool {
			c := policy.Config{{Name: "all", Rules: []policy.Rule{{Deny: deny}}}, {Name: "own",
				Match: &policy.Match{Key: policy.List{"k"}}, Rules: rules}}
			return len(c.Warnings([]policy.Known{{Name: "u"}})) > 0
		}
		exists := func(test func(string) bool) bool { return slices.ContainsFunc(texts, test) }
		denied, allowed := likeRegexp(deny), likeRegexp(allow)
		keeps := regexp.MustCompile("x")
		if kept != "" {
			keeps = likeRegexp(kept)
		}
		lifted := exists(func(s string) bool {
			return denied.MatchString(s) && allowed.MatchString(s) &&
				!keeps.MatchString(s)
		})
		got := warned(&policy.Selector{Tools: policy.List{deny}}, rules)
		if lifted && !got || got && !lifted && kept == "" {
			t.Errorf("a deny of %s, an allow of %s and a deny of %q: warned %v, and a text is allowed: %v", deny,
				allow, kept, got, lifted)
		}
		expression, err := regexp.Compile(re)
		if err != nil || re == "" || strings.Contains(re, "\x00") || !utf8.ValidString(re) {
			return
		}
		tools := policy.List{"t"}
		lifted = exists(func(s string) bool { return denied.MatchString(s) && expression.MatchString(s) })
		for _, swap := range []bool{false, true} {
			one, two := policy.Where{"x": {{Glob: deny}}}, policy.Where{"x": {{Re: re}}}
			if swap {
				one, two = two, one
			}
			if !warned(&policy.Selector{Tools: tools, Where: one},
				[]policy.Rule{{Allow: &policy.Selector{Tools: tools, Where: two}}}) && lifted {
				t.Errorf("the glob %s and the expression %s have a text in common, which no warning tells", deny, re)
			}
		}
	})
}
