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

// pairOf returns two policies of a script. The second one is often a changed copy of the first one, as
// the file after an edit.
func pairOf(t *testing.T, s *script) [2]*policy.Policy {
	t.Helper()
	one, two := withSafeguards(s, s.policies()), withSafeguards(s, s.policies())
	if s.next(2) == 0 {
		two = slices.Clone(one)
		e := &two[s.next(len(two))]
		e.Rules = append(slices.Clone(e.Rules), policy.Rule{Deny: s.selector()})
		e.Capabilities = pickOf(s, nil, []string{"c"}, []string{"d"})
	}
	var pair [2]*policy.Policy
	for i, c := range [2]policy.Config{one, two} {
		p, err := policy.Compile(c)
		if err != nil {
			t.Fatal(err)
		}
		pair[i] = p.WithScopes(pickOf(s, nil, nil, map[string][]string{"read": {"c"}},
			map[string][]string{"write": {"c", "d"}}, map[string][]string{"read": {"c"}, "write": {"d"}}))
	}
	return pair
}

// withSafeguards adds policies with the keys that the policies of a script do not have.
func withSafeguards(s *script, c policy.Config) policy.Config {
	all := policy.List{"*"}
	return append(c, policy.Entry{Name: "more", Rules: []policy.Rule{
		{Deny: &policy.Selector{Resources: policy.List{pickOf(s, "none:", "file:///etc/*")}}},
		{Ask: &policy.Selector{Resources: policy.List{pickOf(s, "file:///*", "mcp://u/note:*")}}},
		{Ask: &policy.Selector{Tools: policy.List{"u__t*"}},
			Remember: pickOf(s, policy.Remember("once"), "call", "tool", "server")},
		{Allow: &policy.Selector{Upstreams: policy.List{pickOf(s, "*", "v")}, Prompts: all, Resources: all,
			Skills: pickOf(s, nil, all)}},
	}, Redact: pickOf(s, policy.Redactions{}, policy.Redactions{Patterns: []policy.Redact{{Word: "secrets"}}},
		policy.Redactions{Patterns: []policy.Redact{{Name: "n", Re: "x+"}}, Restore: true},
		policy.Redactions{Patterns: []policy.Redact{{Name: "n", Re: "x+"}}}),
		Validate: s.next(2) == 0, Pinned: s.next(2) == 0, Catalog: pickOf(s, policy.CatalogFull, policy.CatalogSearch),
		Limits:    policy.Limits{Rate: policy.Rate(s.next(3)), Concurrent: s.next(3)},
		Endpoints: pickOf(s, nil, policy.List{"mcp"}, policy.List{"web"}, policy.List{"mcp", "web"})})
}

// TestBothAllowsNoMoreThanEither compares the meet of two generated policies with each of them, for each
// subject, item and argument: what exists, each verdict and each answer before an item is known is the
// stricter of the two.
func TestBothAllowsNoMoreThanEither(t *testing.T) {
	random := rand.New(rand.NewPCG(40, 12))
	seen := map[string]int{}
	for range 200 {
		s := make(script, 3000)
		for i := range s {
			s[i] = byte(random.Uint32())
		}
		pair := pairOf(t, &s)
		both := policy.Both(pair[0], pair[1])
		if pins, want := both.Pins(), pair[0].Pins() || pair[1].Pins(); pins != want {
			t.Fatalf("definitions are pinned: %v, want %v", pins, want)
		}
		if search, want := both.Searches(), pair[0].Searches() || pair[1].Searches(); search != want {
			t.Fatalf("a catalog is searched: %v, want %v", search, want)
		}
		list := manyItems(&s, 1+s.next(40))
		items := policy.NewItems(list)
		for _, subject := range []policy.Subject{{}, {Key: "k", Kind: "key"}, {Surface: "s"}, {Key: "k", Surface: "s"},
			{User: "nobody", Kind: "user"}, {User: "nobody", Kind: "user", Scopes: []string{"read"}},
			{User: "nobody", Kind: "user", Scopes: []string{"read", "write"}}} {
			a, b, r := pair[0].For(subject), pair[1].For(subject), both.For(subject)
			compareRights(t, a, b, r)
			bits := make([]byte, (len(list)+7)/8)
			items.Visible(r, bits)
			for i, it := range list {
				g := r.Bind(it)
				if got := bits[i/8]&(1<<(i%8)) != 0; got != g.Visible() {
					t.Fatalf("%+v is visible together with others: %v, alone: %v", it, got, g.Visible())
				}
				compareItem(t, &s, [3]*policy.Rights{a, b, r}, it, seen)
			}
		}
	}
	t.Log(seen)
	for _, word := range []string{"deny by one", "ask", "allow", "scopes", "hidden by one", "by arguments"} {
		if seen[word] < 100 {
			t.Errorf("the pairs have %q only %d times", word, seen[word])
		}
	}
}

// compareRights compares what is decided before an item is known.
func compareRights(t *testing.T, a, b, r *policy.Rights) {
	t.Helper()
	if got, want := r.None(), a.None() || b.None(); got != want {
		t.Fatalf("nothing is allowed: %v, want %v", got, want)
	}
	for _, at := range []string{"mcp", "web", "ops"} {
		if got, want := r.Outside(at) != "", a.Outside(at)+b.Outside(at) != ""; got != want {
			t.Fatalf("outside of %s: %v, want %v", at, got, want)
		}
	}
	for _, u := range []string{"u", "v"} {
		for _, requires := range [][]string{nil, {"c"}, {"c", "d"}} {
			reaches := func(r *policy.Rights) bool { return r.Reaches(policy.Tool, u, requires, u+"__") }
			if got, want := reaches(r), reaches(a) && reaches(b); got != want {
				t.Fatalf("%s with %v is reached: %v, want %v", u, requires, got, want)
			}
		}
		if got, want := r.FilesDiffer(u), a.FilesDiffer(u) || b.FilesDiffer(u); got != want {
			t.Fatalf("the files of %s differ: %v, want %v", u, got, want)
		}
	}
	g, s1, s2 := r.Safeguards(), a.Safeguards(), b.Safeguards()
	if g.Validate != (s1.Validate || s2.Validate) || g.Pinned != (s1.Pinned || s2.Pinned) ||
		g.Search != (s1.Search || s2.Search) || g.Secrets != (s1.Secrets || s2.Secrets) ||
		len(g.Redactions) < max(len(s1.Redactions), len(s2.Redactions)) {
		t.Fatalf("the safeguards are %+v, of %+v and %+v", g, s1, s2)
	}
	for _, x := range g.Redactions {
		for _, y := range slices.Concat(s1.Redactions, s2.Redactions) {
			if x.Name == y.Name && x.Restore && !y.Restore {
				t.Fatalf("%s comes back, which one of the policies forbids", x.Name)
			}
		}
	}
	smaller := func(got, x, y float64) bool { return (x == 0 || got <= x) && (y == 0 || got <= y) && got+x+y >= got }
	l, l1, l2 := r.Limits(), a.Limits(), b.Limits()
	if !smaller(float64(l.Rate), float64(l1.Rate), float64(l2.Rate)) || l.Rate == 0 && l1.Rate+l2.Rate > 0 ||
		!smaller(float64(l.Concurrent), float64(l1.Concurrent), float64(l2.Concurrent)) ||
		l.Concurrent == 0 && l1.Concurrent+l2.Concurrent > 0 || (l.Rate > 0) != (l.Burst > 0) {
		t.Fatalf("the limits are %+v, of %+v and %+v", l, l1, l2)
	}
}

// compareItem compares what is decided about one item. The third rights are those of both policies.
func compareItem(t *testing.T, s *script, rights [3]*policy.Rights, it policy.Item, seen map[string]int) {
	t.Helper()
	a, b, g := rights[0].Bind(it), rights[1].Bind(it), rights[2].Bind(it)
	if got, want := g.Visible(), a.Visible() && b.Visible(); got != want {
		t.Fatalf("%+v is visible: %v, want %v", it, got, want)
	}
	if a.Visible() != b.Visible() {
		seen["hidden by one"]++
	}
	if it.Kind == policy.Resource {
		x, y, z := rights[0].Beginning(it), rights[1].Beginning(it), rights[2].Beginning(it)
		if z.Only(policy.Allow) && !(x.Only(policy.Allow) && y.Only(policy.Allow)) ||
			(x.Only(policy.Deny) || y.Only(policy.Deny)) && !z.Only(policy.Deny) {
			t.Fatalf("what begins with %+v: %b, of %b and %b", it, z, x, y)
		}
	}
	sure, unconditional := g.Unconditional()
	// Another token is asked for only if both policies would accept one.
	plain := func(d policy.Decision) bool { return d.Verdict == policy.Deny && d.Scopes == "" }
	var scopes []string
	for _, one := range []*policy.Ruling{a, b} {
		d, always := one.Unconditional()
		if always && plain(d) && !(unconditional && plain(sure)) {
			t.Fatalf("%+v is always denied by one, and by both %+v, %v", it, sure, unconditional)
		}
		if scopes = append(scopes, strings.Fields(one.Scopes())...); d.Missing != "" && g.Scopes() != "" {
			t.Fatalf("%+v asks for another token with %s, which one does not accept", it, g.Scopes())
		}
	}
	for _, scope := range scopes {
		if g.Visible() && !slices.Contains(strings.Fields(g.Scopes()), scope) {
			t.Fatalf("%+v asks for %q, and one also for %s", it, g.Scopes(), scope)
		}
	}
	for range 4 {
		arguments := fmt.Sprintf(`{"x":%s,"y":%s,"z":[%s]}`, pickOf(s, `"a"`, `"ab"`, "1", "null"),
			pickOf(s, `"a"`, `"b"`, "[]"), pickOf(s, "", `"a"`, `"b",1`))
		args := mustParse(t, arguments)
		d1, d2, d := mustDecide(t, a, args), mustDecide(t, b, args), mustDecide(t, g, args)
		if want := min(d1.Verdict, d2.Verdict); d.Verdict != want {
			t.Fatalf("%+v with %s: %+v, want %v, of %+v and %+v", it, arguments, d, want, d1, d2)
		}
		if d.Verdict == policy.Ask && (d1.Verdict == policy.Ask && d.Remember > d1.Remember ||
			d2.Verdict == policy.Ask && d.Remember > d2.Remember) {
			t.Fatalf("%+v with %s: an approval covers %v, of %+v and %+v", it, arguments, d.Remember, d1, d2)
		}
		if d.Verdict == policy.Deny && plain(d) != (plain(d1) || plain(d2)) {
			t.Fatalf("%+v with %s: %+v, of %+v and %+v", it, arguments, d, d1, d2)
		}
		if unconditional && (sure.Verdict != d.Verdict || sure.Scopes != d.Scopes) {
			t.Fatalf("%+v is %+v in any case, and %+v with %s", it, sure, d, arguments)
		}
		if d.Verdict != policy.Deny && !g.Visible() {
			t.Fatalf("%+v is hidden, and %+v with %s", it, d, arguments)
		}
		switch {
		case d.Scopes != "":
			seen["scopes"]++
		case d1.Verdict != d2.Verdict && d.Verdict == policy.Deny:
			seen["deny by one"]++
		default:
			seen[d.Verdict.String()]++
		}
		if g.Reads() {
			seen["by arguments"]++
		}
	}
}

func mustDecide(t *testing.T, g *policy.Ruling, arguments raw.Object) policy.Decision {
	t.Helper()
	d, err := g.Decide(arguments)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestBothExplains: the reasons of both policies are told apart, and the rights differ from those of one.
func TestBothExplains(t *testing.T) {
	one := mustCompile(t, `[{ name: all, rules: [{ allow: { tools: "*" } }] }]`)
	two := mustCompile(t, `[{ name: all, rules: [{ deny: { tools: u__a } }, { allow: { tools: "*" } }] }]`)
	both, s := policy.Both(one, two), policy.Subject{}
	var also []bool
	for _, r := range both.For(s).Bind(policy.Item{Upstream: "u", Names: []string{"u__a"}}).Explain() {
		if r.Policy != "" {
			also = append(also, r.Also)
		}
	}
	if !slices.Equal(also, []bool{false, true, true}) {
		t.Errorf("the reasons are of the other policy: %v", also)
	}
	if both.For(s).Equal(one.For(s)) || one.For(s).Equal(both.For(s)) ||
		!both.For(s).Equal(policy.Both(one, two).For(s)) ||
		both.For(s).Equal(policy.Both(one, one).For(s)) {
		t.Error("the rights of both policies are compared wrongly")
	}
	if policy.Both(nil, one) != nil || policy.Both(one, nil) != nil {
		t.Error("beside a policy that allows nothing, something is allowed")
	}
	nothing := mustCompile(t, `[{ name: all, rules: [{ deny: { skills: u/a } }] }]`)
	if r := policy.Both(one, nothing).For(s); !r.None() || !r.FilesDiffer("u") || one.For(s).None() ||
		one.For(s).FilesDiffer("u") {
		t.Error("beside a policy without an allow, something is allowed, or the files of a server are alike")
	}
	// A token that lacks the scope of one policy keeps the scope that the other one needs.
	of := func(scope string) *policy.Policy {
		return mustCompile(t, `[{ name: all, capabilities: [c], rules: [{ allow: { tools: "*" } }] }]`).WithScopes(
			map[string][]string{scope: {"c"}})
	}
	g := policy.Both(of("read"), of("write")).For(policy.Subject{Kind: "user", Scopes: []string{"read"}}).Bind(
		policy.Item{Upstream: "u", Names: []string{"u__a"}, Requires: []string{"c"}})
	if d := mustDecide(t, g, raw.Object{}); d.Scopes != "read write" || g.Scopes() != d.Scopes {
		t.Errorf("the call needs %+v", d)
	}
	three := policy.Both(both,
		mustCompile(t, `[{ name: all, rules: [{ deny: { tools: u__b } }, { allow: { tools: "*" } }] }]`))
	for name, want := range map[string]bool{"u__a": false, "u__b": false, "u__c": true} {
		if got := three.For(s).Bind(policy.Item{Upstream: "u", Names: []string{name}}).Visible(); got != want {
			t.Errorf("%s is visible by three policies: %v, want %v", name, got, want)
		}
	}
}
