package view

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"junction/policy"
	"junction/upstream"
)

// manyNames makes upstreams of which many items want the same names.
type manyNames struct{ *rand.Rand }

func (r manyNames) pick(list ...string) string { return list[r.IntN(len(list))] }

func (r manyNames) backend(tb testing.TB, name string) *canned {
	parts := map[upstream.Part][]string{}
	for p := range upstream.Parts {
		known := map[string]bool{}
		for range r.IntN(12) {
			own := r.pick("a", "b", "c", "d", "e", "f", "g", name)
			if p >= upstream.PartResources {
				own = r.pick("https://x.example/", "file:///", "note:") + own
			}
			if p == upstream.PartTemplates {
				own += "{n}"
			}
			if !known[own] {
				known[own], parts[p] = true, append(parts[p], own)
			}
		}
	}
	b := offering(tb, name, parts)
	if prefix := r.pick("", "", "x", name); r.IntN(2) == 0 {
		b.config.Prefix = &prefix
	}
	if r.IntN(3) == 0 {
		b.config.Tools = upstream.Rules{{Glob: r.pick("a", "b"), Rule: upstream.Rule{Enabled: new(bool)}},
			{Glob: "c", Rule: upstream.Rule{As: r.pick("", "a", "h.i"), Capabilities: []string{"x"}}}}
	}
	if r.IntN(3) == 0 {
		b.config.Capabilities = []string{"y"}
	}
	return b
}

// expect is what a view is to offer, found out item by item: the targets that have their names.
func expect(before *View, stocks []*Stock) (offers []*Target) {
	has := func(t *Target) bool { return slices.Contains(offers, t) }
	each := func(f func(st *Stock, t *Target, kept bool)) {
		for _, st := range stocks {
			kept := before != nil && slices.Contains(before.Stocks, st)
			for _, t := range st.naming(false).targets {
				if t != nil {
					f(st, t, kept)
				}
			}
		}
	}
	each(func(st *Stock, t *Target, kept bool) {
		if kept && before.has(t) {
			offers = append(offers, t)
		}
	})
	each(func(st *Stock, t *Target, kept bool) { // what takes the place of an item has its name
		if kept || before == nil {
			return
		}
		o := before.Exposed(t.Part, t.Exposed)
		if o != nil && o.stock != st && o.Backend.Name() == st.Backend.Name() && o.Name == t.Name {
			offers = append(offers, t)
		}
	})
	each(func(st *Stock, t *Target, kept bool) {
		same := func(o *Target) bool { return o.Part == t.Part && o.Exposed == t.Exposed }
		if !kept && !slices.ContainsFunc(offers, same) {
			offers = append(offers, t)
		}
	})
	var sorted []*Target
	each(func(_ *Stock, t *Target, _ bool) {
		if has(t) {
			sorted = append(sorted, t)
		}
	})
	return sorted
}

// checkView compares a view with what it is to offer, for a subject who sees some of it.
func checkView(t *testing.T, v *View, want []*Target, rights *policy.Rights) {
	t.Helper()
	for _, st := range v.Stocks {
		items := st.policyItems()
		for _, bare := range []bool{false, true} {
			for place, o := range st.naming(bare).targets {
				if o != nil && !reflect.DeepEqual(items[place], o.PolicyItem()) {
					t.Fatalf("policy reads %+v among the others, and %+v alone", items[place], o.PolicyItem())
				}
			}
		}
	}
	share := NewSubjectView(v, rights, nil, nil)
	visible := func(o *Target) bool { return rights.Bind(o.PolicyItem()).Visible() }
	for p := range upstream.Parts {
		var all, seen []*Target
		for _, o := range want {
			if o.Part == p {
				if all = append(all, o); visible(o) {
					seen = append(seen, o)
				}
			}
		}
		if got := slices.Collect(v.All(p)); !slices.Equal(got, all) {
			show := func(list []*Target) (names []string) {
				for _, o := range list {
					names = append(names, o.Backend.Name()+" "+o.Name+" as "+o.Exposed)
				}
				return names
			}
			t.Fatalf("the view has the %ss\n%q, want\n%q", p, show(got), show(all))
		}
		if got := slices.Collect(share.Sight().All(p)); !slices.Equal(got, seen) {
			t.Fatalf("the subject sees %d of %d %ss, want %d", len(got), len(all), p, len(seen))
		}
		for _, o := range all {
			if v.Exposed(p, o.Exposed) != o || !v.has(o) {
				t.Fatalf("%s of %s is not found by its name %s", o.Name, o.Backend.Name(), o.Exposed)
			}
		}
		if p > upstream.PartPrompts {
			continue
		}
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "a__a", "b__b", "x__c", "z__d", "m", "z"} {
			var found *Target
			if i := slices.IndexFunc(seen, func(o *Target) bool { return o.Exposed == name }); i >= 0 {
				found = seen[i]
			} else if i := slices.IndexFunc(seen, func(o *Target) bool { return o.Name == name }); i >= 0 &&
				!slices.ContainsFunc(seen[i+1:], func(o *Target) bool { return o.Name == name }) {
				found = seen[i]
			}
			got := share.Named(p, name)
			if share.Sight().Whole && got == nil && found != nil && found.Exposed != name {
				continue // an item that is not offered may have the name, too
			}
			if got != found {
				t.Fatalf("the %s %s is %v, want %v", p, name, got, found)
			}
		}
	}
}

// TestDerivedViews makes views of everybody, derives those of people and of clients from
// them, and compares each with what it is to be: the names of the view before stay, and others are
// added in order.
func TestDerivedViews(t *testing.T) {
	r := manyNames{rand.New(rand.NewPCG(10, 2))}
	make1 := func(b *canned) *Stock { return NewStock(b, b.catalog, StockSettings{Names: Names{}.WithDefaults()}) }
	replaced, hidden, rounds := 0, 0, 400
	if testing.Short() {
		t.Attr("short", "true")
		rounds = 80
	}
	for range rounds {
		var stocks []*Stock
		for _, name := range []string{"b", "f", "m", "s"} {
			stocks = append(stocks, make1(r.backend(t, name)))
		}
		some := tools(r.pick("*a", "*b", "x__*", "none"))
		some.Resources = policy.List{r.pick("*https*", "none")}
		prompts := policy.Selector{Upstreams: policy.List{r.pick("b", "f", "z", "none")}, Prompts: policy.List{"*"}}
		p := policy.Entry{Name: "p", Capabilities: []string{r.pick("x", "y")}}
		p.Rules = []policy.Rule{deny(some), deny(prompts), allow(all())}
		rights := compiledPolicy(t, policy.Config{p}).For(policy.Subject{})
		base := Compile("", stocks, false, nil)
		checkView(t, base, expect(nil, stocks), rights)
		// What a person has for themselves.
		own := slices.Clone(stocks)
		for i, name := range []string{"a", "g", "z"} { // beginning, middle and end
			own = slices.Insert(own, 3*i, make1(r.backend(t, name)))
		}
		person := base.Derive("", own)
		checkView(t, person, expect(base, own), rights)
		// Of that, what a client sees that has connections of its own.
		for _, from := range []*View{base, person} {
			client := slices.Clone(from.Stocks)
			for i := range client {
				if r.IntN(3) == 0 {
					client[i] = make1(r.backend(t, client[i].Backend.Name()))
					replaced++
				}
			}
			fitted := from.Derive("", client)
			checkView(t, fitted, expect(from, client), rights)
			if fitted.Base != base || fitted.Bytes() < 1 {
				t.Fatal("a view that is derived twice has another base")
			}
		}
		for _, problem := range person.Problems {
			if problem.Reason == "" {
				t.Errorf("%+v has no reason", problem)
			}
			hidden++
		}
	}
	if replaced < 100 || hidden < 100 {
		t.Errorf("%d catalogs were replaced, and %d names lost: too few for this test", replaced, hidden)
	}
}

// TestOldNamesStay: of two items that want a name the one that had it keeps it, whichever
// view comes between, and a view that is not settled remembers the one before.
func TestOldNamesStay(t *testing.T) {
	none := ""
	of := func(name string, tools ...string) *Stock {
		b := offering(t, name, map[upstream.Part][]string{upstream.PartTools: tools})
		b.config.Prefix = &none
		return NewStock(b, b.catalog, StockSettings{Names: Names{}.WithDefaults()})
	}
	a, b, z := of("a", "x"), of("b", "x", "y"), of("z", "y")
	before := Compile("", []*Stock{b, z}, false, nil)
	after := Compile("", []*Stock{a, b, z}, false, before)
	if got := after.Exposed(upstream.PartTools, "x"); got == nil || got.stock != b {
		t.Errorf("x is %v, want that of b, which had the name", got)
	}
	if len(after.Problems) != 2 || after.Problems[0].Upstream != "a" || after.Problems[1].Upstream != "z" {
		t.Errorf("the problems are %v, want one of a and one of z", after.Problems)
	}
	fresh := Compile("", []*Stock{a, b, z}, false, nil)
	if got := fresh.Exposed(upstream.PartTools, "x"); got == nil || got.stock != a {
		t.Errorf("x is %v, want that of a, which is the first", got)
	}
}
