package scope

import (
	"fmt"
	"testing"

	"junction/auth"
	"junction/policy"
	"junction/proxy/proxytest"
	"junction/proxy/view"
)

// TestOnlyEndpointsOfAChangedUpstreamAreCompiled changes the catalog of one of twenty upstreams. Only
// the endpoints that have the upstream are compiled again: the merged one, its own, and a configured
// one. A reload of the configuration compiles all.
func TestOnlyEndpointsOfAChangedUpstreamAreCompiled(t *testing.T) {
	crowd := proxytest.Crowd{Upstreams: 20, Tools: 5}
	backends := crowd.Backends(t)
	c := Config{Names: view.Names{}.WithDefaults(), Guard: &auth.Guard{}, Policy: policy.Open(), Endpoints: map[string]EndpointConfig{
		"with": {Upstreams: []string{"up1", "up2"}}, "without": {Upstreams: []string{"up3", "up4"}},
	}}
	var made Made
	w := New(c, backends, nil, &made)
	const all = 20 + 3
	if made.Stocks.Load() != 20 || made.Views.Load() != all {
		t.Fatalf("%d stocks and %d views were made, want 20 and %d", made.Stocks.Load(), made.Views.Load(), all)
	}
	backends[1].(*proxytest.Backend).Lists = proxytest.NewBackend(t, 3, 10).Lists
	name := backends[1].Name()
	next := New(c, backends, w, &made)
	if made.Stocks.Load() != 21 {
		t.Errorf("%d stocks were made, want one more", made.Stocks.Load())
	}
	has := func(e *Endpoint) bool {
		for _, st := range e.View.Stocks {
			if st.Backend.Name() == name {
				return true
			}
		}
		return false
	}
	compiled := 0
	for at, e := range next.Endpoints {
		if changed := e.View != w.Endpoints[at].View; changed != has(e) {
			t.Errorf("the endpoint %q is compiled again: %t, has %s: %t", at, changed, name, has(e))
		} else if changed {
			compiled++
		}
	}
	if n := made.Views.Load() - all; int(n) != compiled {
		t.Errorf("%d views were made for %d endpoints", n, compiled)
	}
	c.Policy = proxytest.MustPolicy(t, policy.Config{{Name: "all", Rules: []policy.Rule{proxytest.Allow(proxytest.All())}}})
	before := made.Views.Load()
	if New(c, backends, next, &made); made.Views.Load()-before != all {
		t.Errorf("a reload compiles %d views, want %d", made.Views.Load()-before, all)
	}
}

// BenchmarkChange changes the catalog of one of fifty upstreams with 200 tools each.
func BenchmarkChange(b *testing.B) {
	crowd := proxytest.Crowd{Upstreams: 50, Tools: 200}
	backends := crowd.Backends(b)
	c := Config{Names: view.Names{}.WithDefaults(), Guard: &auth.Guard{}, Policy: policy.Open(), Endpoints: map[string]EndpointConfig{}}
	for i := range 10 {
		c.Endpoints[fmt.Sprint("e", i)] = EndpointConfig{Upstreams: []string{fmt.Sprint("up", i), fmt.Sprint("up", i+10), fmt.Sprint("up", i+20)}}
	}
	var made Made
	w := New(c, backends, nil, &made)
	one := backends[0].(*proxytest.Backend)
	for b.Loop() {
		changed := *one.Lists
		one.Lists = &changed
		w = New(c, backends, w, &made)
	}
}
