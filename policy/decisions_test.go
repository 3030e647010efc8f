package policy_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"junction/policy"
	"junction/upstream/raw"
)

// A story is a policies section with calls and their decisions.
type story struct {
	name     string
	policies string
	rows     []row
}

// A row is one call: the caller, the item, the arguments and the decision. mustSubject, mustItem
// and verdict define the notation.
type row struct{ who, what, arguments, want string }

// stories are all stories.
var stories = slices.Concat(ruleStories, argumentStories)

// team is the section of several stories.
const team = `
- name: everybody
  rules:
    - allow: { upstreams: search }
    - ask: { tools: "shell__*" }
- name: web
  match: { surface: web }
  rules:
    - deny: { upstreams: shell }
    - allow: { tools: files__read }
- name: developers
  match: { group: engineering }
  rules:
    - allow: { tools: shell__run, where: { command: "git *" } }
    - deny: { tools: shell__run, where: { command: "*--force*" } }
- name: trainees
  match: { group: trainees, surface: [web, cli] }
  rules:
    - ask: { tools: shell__run, where: { command: "git *" } }
    - deny: { upstreams: files }
`

func TestDecisions(t *testing.T) {
	rows := 0
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			p := mustCompile(t, s.policies)
			for _, r := range s.rows {
				subject, item, arguments := mustSubject(t, r.who), mustItem(t, r.what), mustParse(t, r.arguments)
				d, err := p.Decide(subject, item, arguments)
				got := verdict(d, err)
				if got != r.want {
					t.Errorf("%s, %s %s: %s, want %s", r.who, r.what, r.arguments, got, r.want)
				}
				if visible := p.For(subject).Bind(item).Visible(); !visible &&
					(d.Verdict != policy.Deny || err != nil) {
					t.Errorf("%s, %s %s: %s, and it is not visible", r.who, r.what, r.arguments, got)
				}
			}
		})
		rows += len(s.rows)
	}
	if rows < 150 {
		t.Errorf("%d rows, want at least 150", rows)
	}
}

// TestNoPolicies: no section, an empty one, and a nil Policy.
func TestNoPolicies(t *testing.T) {
	empty, err := policy.Compile(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		policy *policy.Policy
		what   string
		want   string
	}{
		{"no section", policy.Open(), "tool a__b", "allow"},
		{"no section", policy.Open(), "prompt a__b", "allow"},
		{"no section", policy.Open(), "resource file:///a/../b @a", "allow"},
		{"no section", policy.Open(), "tool a__b needs=web", "deny missing web"},
		{"an empty section", empty, "tool a__b", "deny"},
		{"no Policy", nil, "tool a__b", "deny"},
		{"the zero Policy", &policy.Policy{}, "tool a__b", "deny"},
	} {
		d, err := test.policy.Decide(policy.Subject{}, mustItem(t, test.what), raw.Object{})
		if got := verdict(d, err); got != test.want {
			t.Errorf("%s: %s: %s, want %s", test.name, test.what, got, test.want)
		}
	}
}

// TestNameless: an item without names. An allow of names does not match it; a deny does.
func TestNameless(t *testing.T) {
	p := mustCompile(t, `
- { name: allow, match: { key: a }, rules: [{ allow: { tools: "*", resources: "x*" } }] }
- { name: deny, match: { key: b }, rules: [{ deny: { tools: x, resources: x } }, { allow: { upstreams: "*" } }] }
`)
	for _, who := range []string{"key=a", "key=b"} {
		for _, kind := range []policy.Kind{policy.Tool, policy.Resource} {
			if d, err := p.Decide(mustSubject(t, who), policy.Item{Kind: kind, Upstream: "u"},
				raw.Object{}); err != nil || d.Verdict != policy.Deny {
				t.Errorf("%s, a %v without a name: %v, %v", who, kind, d, err)
			}
		}
	}
}

// verdict formats a decision: the verdict, then the policy and its rule, or what is missing. An
// error is "ambiguous".
func verdict(d policy.Decision, err error) string {
	if errors.Is(err, raw.ErrAmbiguous) && d == (policy.Decision{}) {
		return "ambiguous"
	}
	if err != nil {
		return err.Error()
	}
	words := []string{d.Verdict.String()}
	if d.Missing != "" {
		words = append(words, "missing", d.Missing)
	}
	for _, s := range []string{d.Policy, d.Rule} {
		if s != "" {
			words = append(words, s)
		}
	}
	return strings.Join(words, " ")
}

// mustSubject parses key=value pairs; lists have commas. The word local is a kind.
func mustSubject(tb testing.TB, text string) policy.Subject {
	tb.Helper()
	var s policy.Subject
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "local":
			s.Kind, s.ID = "local", "local"
		case "kind":
			s.Kind = value
		case "id":
			s.ID = value
		case "key":
			s.Key = value
		case "user":
			s.User = value
		case "issuer":
			s.Issuer = value
		case "email":
			s.Email = value
		case "group":
			s.Groups = strings.Split(value, ",")
		case "scope":
			s.Scopes = strings.Split(value, ",")
		case "client":
			s.OAuthClient = value
		case "surface":
			s.Surface = value
		case "address":
			s.Address = netip.MustParseAddr(value)
		default:
			tb.Fatalf("what is %s?", word)
		}
	}
	return s
}

// mustItem parses a kind, names separated by |, the upstream after @ (by default the part before
// __), and capabilities after needs=.
func mustItem(tb testing.TB, text string) policy.Item {
	tb.Helper()
	var it policy.Item
	kind, text, ok := strings.Cut(text, " ")
	text, needs, _ := strings.Cut(text, " needs=")
	if needs != "" {
		it.Requires = strings.Split(needs, ",")
	}
	kinds := map[string]policy.Kind{"tool": policy.Tool, "prompt": policy.Prompt, "resource": policy.Resource}
	if it.Kind = kinds[kind]; !ok || it.Kind.String() != kind {
		tb.Fatalf("what is %s?", kind)
	}
	text, it.Upstream, ok = strings.Cut(text, " @")
	it.Names = strings.Split(text, "|")
	if !ok {
		if it.Upstream, _, ok = strings.Cut(text, "__"); !ok {
			tb.Fatalf("%s is of no upstream", text)
		}
	}
	return it
}
