package policy_test

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"junction/policy"
)

// manyItems are items of one upstream, of all kinds; many have the same rules.
func manyItems(s *script, n int) []policy.Item {
	list := make([]policy.Item, n)
	for i := range list {
		it := policy.Item{Upstream: "u", Kind: pickOf(s, policy.Tool, policy.Tool, policy.Prompt, policy.Resource),
			Requires: pickOf(s, nil, nil, []string{"c"}, []string{"c", "d"}, []string{"cd"})}
		name := pickOf(s, "a", "b", "c", fmt.Sprint("t", i))
		switch it.Names = []string{"u__" + name}; {
		case it.Kind == policy.Resource:
			own := pickOf(s, "file:///etc/", "file:///home/", "file:///etc/../home/", "note:") + name
			it.Names = []string{own, "mcp://u/" + own}
		case s.next(8) == 0:
			it.Names = nil
		}
		list[i] = it
	}
	return list
}

// TestItemsAreVisibleTogether compares the visibility of all items together with that of each item,
// for random shared policies and concurrent subjects.
func TestItemsAreVisibleTogether(t *testing.T) {
	random := rand.New(rand.NewPCG(10, 1))
	visible, hidden := 0, 0
	for round := range 300 {
		s := make(script, 2000)
		for i := range s {
			s[i] = byte(random.Uint32())
		}
		c := s.policies()
		all := policy.List{"*"}
		c = append(c, policy.Entry{Name: "more", Rules: []policy.Rule{
			{Deny: &policy.Selector{Prompts: pickOf(&s, all, policy.List{"u__a"})}},
			{Deny: &policy.Selector{Resources: policy.List{pickOf(&s, "none:", "file:///etc/*")}}},
			{Ask: &policy.Selector{Resources: policy.List{pickOf(&s, "file:///*", "mcp://u/note:*")}}},
			{Allow: &policy.Selector{Upstreams: policy.List{pickOf(&s, "*", "v")}, Prompts: all, Resources: all}},
		}})
		p, err := policy.Compile(c)
		if err != nil {
			t.Fatal(err)
		}
		list := manyItems(&s, 1+s.next(200))
		items := policy.NewItems(list)
		subjects := []policy.Subject{{}, {Key: "k"}, {Surface: "s"}, {Key: "k", Surface: "s"}, {User: "nobody"}}
		bits := make([][]byte, len(subjects))
		var asking sync.WaitGroup
		for k, subject := range subjects {
			bits[k] = make([]byte, (len(list)+7)/8)
			asking.Go(func() { items.Visible(p.For(subject), bits[k]) })
		}
		asking.Wait()
		for k, subject := range subjects {
			for i, it := range list {
				want := p.For(subject).Bind(it).Visible()
				if got := bits[k][i/8]&(1<<(i%8)) != 0; got != want {
					t.Fatalf("round %d: %+v of %+v is visible: %t, alone %t; of\n%+v", round, it, subject, got, want, c)
				}
				if want {
					visible++
				} else {
					hidden++
				}
			}
		}
	}
	if t.Logf("%d items were visible, and %d were not", visible, hidden); min(visible, hidden) < 1000 {
		t.Error("the policies hide too few items, or too many, for this test")
	}
}

// TestItemsOfManyRules has a policy with a rule for each tool, so that no two tools have
// the same rules, and more policies than are cached.
func TestItemsOfManyRules(t *testing.T) {
	const tools = 600
	policies := 3000
	if testing.Short() {
		policies = 1000
	}
	var c policy.Config
	each := policy.Entry{Name: "each"}
	list := make([]policy.Item, tools)
	for i := range list {
		list[i] = policy.Item{Upstream: "u", Names: []string{fmt.Sprint("u__t", i)}}
		if i%3 == 0 {
			each.Rules = append(each.Rules, policy.Rule{Deny: &policy.Selector{Tools: policy.List(list[i].Names)}})
		} else {
			each.Rules = append(each.Rules, policy.Rule{Allow: &policy.Selector{Tools: policy.List(list[i].Names)}})
		}
	}
	each.Match = &policy.Match{Group: policy.List{"each"}}
	c = append(c, each)
	for i := range policies {
		c = append(c, policy.Entry{Name: fmt.Sprint("p", i), Match: &policy.Match{Group: policy.List{fmt.Sprint(i)}},
			Rules: []policy.Rule{{Allow: &policy.Selector{Tools: policy.List{fmt.Sprint("u__t", i%tools)}}}}})
	}
	p, err := policy.Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	items := policy.NewItems(list)
	before := held()
	look := func(i int) {
		groups := []string{fmt.Sprint(i / 2), fmt.Sprint(i)}
		if i%100 == 0 {
			groups = append(groups, "each")
		}
		bits := make([]byte, tools/8)
		items.Visible(p.For(policy.Subject{Groups: groups}), bits)
		for k := range list {
			want := k == i%tools || k == i/2%tools
			if len(groups) > 2 {
				want = k%3 != 0 // of the same layer
			}
			if got := bits[k/8]&(1<<(k%8)) != 0; got != want {
				t.Errorf("%s is visible to %v: %t", list[k].Names, groups, got)
			}
		}
	}
	var all sync.WaitGroup
	for begin := range 8 {
		all.Go(func() {
			for i := begin; i < policies; i += 8 {
				look(i)
			}
		})
	}
	all.Wait()
	grown := held() - before
	if t.Logf("%d policies take %d KiB", policies, grown>>10); grown > 1<<20 {
		t.Errorf("%d policies take %d KiB, want at most 1 MiB", policies, grown>>10)
	}
	runtime.KeepAlive(items)
	runtime.KeepAlive(p)
}

// held returns the memory in use in bytes.
func held() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestRightsHash: equal rights have equal hashes, and others almost always different ones.
func TestRightsHash(t *testing.T) {
	p := mustCompile(t, `
- { name: a, match: { group: a }, rules: [{ allow: { tools: "*" } }] }
- { name: b, match: { group: b }, capabilities: [x] }
`)
	seed := maphash.MakeSeed()
	of := func(groups ...string) uint64 { return p.For(policy.Subject{Groups: groups}).Hash(seed) }
	if of("a") != of("a", "c") || of("a") == of("b") || of("a", "b") == of("a") || of() == of("a") {
		t.Error("the hashes of rights are not those of their policies")
	}
}

// BenchmarkItems measures the visibility of 1,000 tools, after their policies were compared with
// them.
func BenchmarkItems(b *testing.B) {
	r := crowd(b, everybody)
	var all []*policy.Items
	for u := range 20 {
		var list []policy.Item
		for i := range 50 {
			name := fmt.Sprintf("upstream%d__tool_number_%d", u, i)
			it := policy.Item{Upstream: fmt.Sprint("upstream", u), Names: []string{name, name}}
			it.Requires = []string{"web"}
			list = append(list, it)
		}
		all = append(all, policy.NewItems(list))
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, items := range all {
			items.Visible(r, make([]byte, 7))
		}
	}
}
