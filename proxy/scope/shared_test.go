package scope

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"gopkg.in/yaml.v3"

	"junction/auth"
	"junction/policy"
	"junction/proxy/proxytest"
	"junction/proxy/view"
	"junction/upstream"
)

// TestSharesAreSharedByThoseWhoMayDoTheSame has many principals of few policies: what they may use
// is computed once for each policy, and not shared with other policies.
func TestSharesAreSharedByThoseWhoMayDoTheSame(t *testing.T) {
	var c policy.Config
	err := yaml.Unmarshal([]byte(`
- { name: all, rules: [ { allow: { upstreams: "*" } } ] }
- { name: a, match: { group: a }, rules: [ { deny: { tools: up__tool0 } } ] }
- { name: b, match: { group: b }, limits: { concurrent: 1 }, capabilities: [x] }
`), &c)
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	w := New(Config{Names: view.Names{}.WithDefaults(), Guard: &auth.Guard{}, Policy: p}, []view.Backend{proxytest.NewBackend(t, 3, 10)}, nil, new(Made))
	var all sync.WaitGroup
	for i := range 2000 {
		all.Go(func() {
			groups := []string{"a", "b", "c"}[i%3]
			got := w.SubjectViewFor(w.Endpoints[""], &auth.Principal{Kind: auth.KindUser, ID: fmt.Sprint("user ", i), Groups: []string{groups}})
			if n, want := len(slices.Collect(got.Sight().All(upstream.PartTools))), map[string]int{"a": 2, "b": 3, "c": 3}[groups]; n != want {
				t.Errorf("one of %s sees %d tools, want %d", groups, n, want)
			}
			if n, want := got.Limits.Concurrent, map[string]int{"b": 1}[groups]; n != want || !got.Private() {
				t.Errorf("one of %s may make %d calls at once, want %d", groups, n, want)
			}
		})
	}
	all.Wait()
	if local := w.SubjectViewFor(w.Endpoints[""], auth.Local); local.Private() {
		t.Error("the lists of everybody are private")
	}
	different := map[*subjectView]bool{}
	of := w.Endpoints[""].subjects.cache.Of
	for _, s := range of {
		different[s.Value] = true
	}
	if len(of) != 2001 || len(different) != 4 {
		t.Errorf("%d principals have %d shares", len(of), len(different))
	}
}
