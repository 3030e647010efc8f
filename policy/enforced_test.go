package policy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"junction/policy"
	"junction/upstream/raw"
)

// locked has an enforced global policy and an enforced policy of bob's own. Each caller with a key
// has an allow of everything.
const locked = `
- name: locked
  enforced: true
  rules:
    - allow: { tools: shell__status }
    - deny: { tools: "shell__rm*", prompts: shell__wipe, resources: ["file:///etc/*", "*.env"] }
    - ask: { tools: ["shell__*", ghost__x], prompts: "shell__*", resources: "file:///home/*" }
    - deny: { tools: files__write, where: { path: "/etc/*" } }
    - ask: { tools: files__write, where: { path: "/home/*" } }
- name: everybody
  rules:
    - allow: { upstreams: files }
    - deny: { tools: db__drop }
- name: web
  match: { surface: web }
  rules: [{ deny: { tools: [web__x, db__y] } }, { allow: { tools: shell__rm } }]
- name: ann
  match: { key: ann }
  rules: [{ deny: { tools: shell__no } }, { allow: { upstreams: "*" } }]
- name: bob
  match: { key: bob }
  enforced: true
  rules: [{ ask: { tools: [web__x, db__drop, db__w] } }, { allow: { tools: [db__y, web__x] } }, { deny: { tools: db__z, where: { x: a } } }]
- name: staff
  match: { key: [ann, bob], kind: key }
  rules: [{ allow: { upstreams: [db, web] } }]
`

// TestEnforcedHolds: callers with an allow of their own call items that an enforced policy
// denies or asks about.
func TestEnforcedHolds(t *testing.T) {
	p := mustCompile(t, locked)
	for _, r := range []struct {
		who, what, arguments, want string
		visible                    bool
	}{
		// A deny holds in every layer, and the item is hidden.
		{"key=ann", "tool shell__rm", "", "deny locked rules[1]", false},
		{"key=ann surface=web", "tool shell__rm", "", "deny locked rules[1]", false},
		{"surface=web", "tool shell__rm", "", "deny locked rules[1]", false},
		{"key=ann", "prompt shell__wipe", "", "deny locked rules[1]", false},
		{"key=ann", "resource file:///etc/passwd @files", "", "deny locked rules[1]", false},
		{"key=ann", "resource file:///srv/../etc/passwd @files", "", "deny locked rules[1]", false},
		{"key=ann", "resource file:///etc/{name} @files", "", "deny locked rules[1]", false}, // a template
		{"key=ann", "resource file:///srv/x @files", "", "allow ann rules[1]", true},
		// An ask holds too, but a deny of another layer is stricter.
		{"key=ann", "tool shell__ls", "", "ask locked rules[2]", true},
		{"key=ann", "tool shell__no", "", "deny ann rules[0]", false},
		{"key=ann", "prompt shell__how", "", "ask locked rules[2]", true},
		{"key=ann", "resource file:///home/x @files", "", "ask locked rules[2]", true},
		// an ambiguous URI
		{"key=ann", "resource file:///home/a/../x @files", "", "deny locked rules[2]", false},
		// An allow before the ask is an exception to it, and has no other effect.
		{"key=ann", "tool shell__status", "", "allow ann rules[1]", true},
		{"key=eve", "tool shell__status", "", "allow locked rules[0]", true},
		// If no layer has a rule, the ask allows after approval, like any ask.
		{"key=eve", "tool ghost__x", "", "ask locked rules[2]", true},
		{"key=eve", "tool shell__ls", "", "ask locked rules[2]", true},
		// Conditions read the arguments, whichever layer decides.
		{"key=ann", "tool files__write", `{"path":"/etc/hosts"}`, "deny locked rules[3]", true},
		{"key=ann", "tool files__write", `{"path":"/home/a"}`, "ask locked rules[4]", true},
		{"key=ann", "tool files__write", `{"path":"/srv/a"}`, "allow ann rules[1]", true},
		{"key=ann", "tool files__write", `{"path":["/srv/a"]}`, "deny locked rules[3]", true},
		{"key=ann", "tool files__write", `{"path":"/srv/a","path":"/etc/a"}`, "ambiguous", true},
		{"key=ann", "tool files__read", `{"path":"/srv/a","path":"/etc/a"}`, "allow ann rules[1]", true},
		// An enforced ask of a caller's own lifts no deny of a later layer, since it does not
		// decide its layer.
		{"key=bob surface=web", "tool web__x", "", "deny web rules[0]", false},
		{"key=bob", "tool db__drop", "", "deny everybody rules[1]", false},
		{"key=bob kind=key surface=web", "tool web__x", "", "ask bob rules[0]", true}, // staff's allow lifts it
		{"key=bob", "tool db__w", "", "ask bob rules[0]", true},
		// An enforced allow decides for its layer as any allow.
		{"key=bob surface=web", "tool db__y", "", "allow bob rules[1]", true},
		{"key=bob kind=key", "tool db__z", `{"x":"a"}`, "deny bob rules[2]", true},
		{"key=bob kind=key", "tool db__z", `{"x":"b"}`, "allow staff rules[0]", true},
		// It does not apply to other callers.
		{"key=ann kind=key", "tool db__z", `{"x":"a"}`, "allow ann rules[1]", true},
		{"key=ann", "tool db__drop", "", "allow ann rules[1]", true}, // everybody is not enforced
		{"", "tool other__x", "", "deny", false},
	} {
		subject, item := mustSubject(t, r.who), mustItem(t, r.what)
		g := p.For(subject).Bind(item)
		d, err := g.Decide(mustParse(t, r.arguments))
		if got := verdict(d, err); got != r.want || g.Visible() != r.visible {
			t.Errorf("%s, %s %s: %s, visible %v; want %s, %v", r.who, r.what, r.arguments, got, g.Visible(), r.want,
				r.visible)
		}
	}
}

// TestEnforcedIsExplained: the explanation names the deciding enforced policy, and the rules
// that it overrides.
func TestEnforcedIsExplained(t *testing.T) {
	p := mustCompile(t, locked)
	for _, test := range []struct {
		who, what string
		want      []string
	}{
		{"key=ann", "tool shell__rm", []string{
			"own ann rules[1] allow; rules[1] of locked, which is enforced, always denies",
			"surface; no policy matches",
			"global locked (enforced) rules[1] deny",
			"global locked (enforced) rules[2] ask; rules[1] of locked, which is enforced, always denies",
			"global everybody; no rule applies",
		}},
		{"key=ann", "tool shell__ls", []string{
			"own ann rules[1] allow; rules[2] of locked, which is enforced, always asks",
			"surface; no policy matches",
			"global locked (enforced) rules[2] ask", "global everybody; no rule applies",
		}},
		{"key=ann", "tool shell__status", []string{
			"own ann rules[1] allow", "surface; no policy matches",
			"global locked (enforced) rules[0] allow; an earlier layer decides",
			"global locked (enforced) rules[2] ask; an earlier layer decides", "global everybody; no rule applies",
		}},
		{"key=ann", "tool files__write", []string{
			"own ann rules[1] allow", "surface; no policy matches",
			"global locked (enforced) rules[3] deny where path: \"/etc/*\"",
			"global locked (enforced) rules[4] ask where path: \"/home/*\"",
			"global everybody rules[0] allow; an earlier layer decides",
		}},
		{"key=bob surface=web", "tool web__x", []string{
			"own bob (enforced) rules[0] ask", "own bob (enforced) rules[1] allow; rules[0] applies first",
			"surface web rules[0] deny",
			"global locked (enforced); no rule applies", "global everybody; no rule applies",
		}},
		{"key=bob", "tool db__y", []string{
			"own bob (enforced) rules[1] allow", "surface; no policy matches",
			"global locked (enforced); no rule applies", "global everybody; no rule applies",
		}},
	} {
		var got []string
		for _, r := range p.For(mustSubject(t, test.who)).Bind(mustItem(t, test.what)).Explain() {
			line := strings.TrimSpace(r.Layer + " " + r.Policy)
			if r.Enforced {
				line += " (enforced)"
			}
			if r.Rule != "" {
				line += " " + r.Rule + " " + r.Verdict.String()
			}
			if r.Where != "" {
				line += " where " + r.Where
			}
			if r.Note != "" {
				line += "; " + r.Note
			}
			got = append(got, line)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s for %s:\n\t%s\nwant\n\t%s", test.what, test.who, strings.Join(got, "\n\t"),
				strings.Join(test.want, "\n\t"))
		}
	}
}

// TestEnforcedWithoutArguments: answers before there are arguments or items.
func TestEnforcedWithoutArguments(t *testing.T) {
	p := mustCompile(t, locked+`
- { name: off, enforced: true, rules: [{ deny: { upstreams: gone } }, { deny: { upstreams: half, where: { x: a } } }, { deny: { upstreams: part, tools: "*" } }] }
`)
	for what, want := range map[string]string{
		"tool shell__rm": "deny locked rules[1]", "prompt shell__how": "ask locked rules[2]",
		"tool shell__status": "allow ann rules[1]", "tool files__write": "depends",
		"tool files__read": "allow ann rules[1]", "prompt half__x": "depends", "prompt gone__x": "deny off rules[0]",
	} {
		got := "depends"
		if d, ok := p.For(mustSubject(t, "key=ann")).Bind(mustItem(t, what)).Unconditional(); ok {
			got = verdict(d, nil)
		}
		if got != want {
			t.Errorf("%s without arguments: %s, want %s", what, got, want)
		}
	}
	r := p.For(mustSubject(t, "key=ann"))
	for upstream, want := range map[string]bool{"gone": false, "half": true, "part": true, "other": true} {
		if got := r.Reaches(policy.Tool, upstream, nil, upstream+"__"); got != want {
			t.Errorf("a tool of %s is in reach: %v, want %v", upstream, got, want)
		}
	}
}

// TestEnforcedChangesTheRights: a change of enforced changes the rights, so that a reload takes
// effect.
func TestEnforcedChangesTheRights(t *testing.T) {
	before := mustCompile(t, locked)
	after := mustCompile(t, strings.Replace(locked, "  enforced: true\n", "  enforced: false\n", 1))
	ann := mustSubject(t, "key=ann")
	if before.For(ann).Equal(after.For(ann)) {
		t.Error("the rights are equal, with and without enforced")
	}
	d, err := after.Decide(ann, mustItem(t, "tool shell__rm"), raw.Object{})
	if verdict(d, err) != "allow ann rules[1]" {
		t.Errorf("where the policy is not enforced the verdict is %v, %v", d, err)
	}
}

// TestBeginningOfURIHasEachVerdict generates policies about resources. Every verdict of a URI is
// among those of its beginning.
func TestBeginningOfURIHasEachVerdict(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	sets, rounds := map[policy.Verdicts]bool{}, 4000
	if testing.Short() {
		rounds = 500
	}
	for range rounds {
		var text strings.Builder
		for i := range 1 + random.IntN(4) {
			match := pick("", "match: { key: k },", "match: { surface: s },")
			fmt.Fprintf(&text, "- { name: p%d, %s %s rules: [", i, match, pick("", "enforced: true,"))
			for range 1 + random.IntN(3) {
				place := pick("*", "x:*", "x:a*", "x:a", "x:ab*", "y:*", "*b")
				fmt.Fprintf(&text, "{ %s: { resources: %q } }, ", pick("allow", "ask", "deny"), place)
			}
			text.WriteString("] }\n")
		}
		r := mustCompile(t, text.String()).For(mustSubject(t, "key=k surface=s"))
		for _, begin := range []string{"x:", "x:a", "x:ab", "y:"} {
			set := r.Beginning(policy.Item{Upstream: "u", Names: []string{begin}})
			sets[set] = true
			for _, rest := range []string{"", "a", "b", "ab", "bb", "c"} {
				item := policy.Item{Kind: policy.Resource, Upstream: "u", Names: []string{begin + rest}}
				d, err := r.Bind(item).Decide(raw.Object{})
				if err != nil || !set.Has(d.Verdict) {
					t.Fatalf("%s gets %v, %v, and what begins with %s only %b, of\n%s", begin+rest, d, err, begin,
						set, text.String())
				}
			}
		}
	}
	if len(sets) != 7 {
		t.Errorf("%d sets of verdicts, want all 7", len(sets))
	}
}
