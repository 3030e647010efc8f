// Package scope is what one caller sees: the configuration, policy and catalogs of a moment (a
// Snapshot), the endpoints with their merged catalogs, and the part of an endpoint that the policies
// allow one subject. It knows nothing of requests. Package view merges, renames and judges the items;
// this package keeps the results for the callers that share them, within bounds.
package scope

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"

	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/bounded"
)

// Snapshot holds everything that a request needs: configuration, policy and catalogs. It is
// immutable except for its caches, and is replaced as a whole.
type Snapshot struct {
	Config    Config
	Backends  []view.Backend
	Endpoints map[string]*Endpoint
	settings  view.StockSettings
	shadowed  []view.Problem               // tools with the name of a tool of Junction
	stocks    map[view.Backend]*view.Stock // of backends

	Subjects          bounded.Room // subject views, and the endpoints of users and clients
	Pages             bounded.Room // of lists; locked after Subjects if both are locked
	wanted            wanted
	Rulings           *view.Rulings
	personalEndpoints bounded.Cache[personalKey, *personalEndpoint]

	Direct bool // there is no authentication, so requests through a proxy are rejected
}

// Close empties the caches of a replaced snapshot.
func (w *Snapshot) Close() {
	w.Subjects.Close()
	w.Pages.Close()
	w.Rulings.Close()
}

// Made counts what snapshots have made of catalogs. The rest they have taken from the snapshot before.
type Made struct {
	Stocks atomic.Uint64
	Views  atomic.Uint64 // of endpoints that callers share
}

// New builds a snapshot. Items keep the names that they have in old, which may be nil. If old
// has the same configuration, New compiles only the endpoints with an upstream whose catalog has
// changed. made counts them.
func New(c Config, backends []view.Backend, old *Snapshot, made *Made) *Snapshot {
	w := &Snapshot{Config: c, Backends: backends, Endpoints: map[string]*Endpoint{}}
	w.settings = view.StockSettings{Names: c.Names, Pinned: c.Policy.Pins(), Pins: c.Pins, Count: &made.Stocks}
	w.Subjects.Max, w.Pages.Max, w.Rulings = maxSubjects, maxPages, new(view.Rulings)
	w.personalEndpoints = bounded.Cache[personalKey, *personalEndpoint]{Room: &w.Subjects,
		Left: func(e *personalEndpoint) { e.endpoint.end() }}
	all := w.stockUp(old)
	w.Direct = w.Open() && !c.BehindProxy
	add := func(name, surface string, stocks []*view.Stock, bare bool) {
		var v *view.View
		if old != nil && old.Endpoints[name] != nil {
			v = old.Endpoints[name].View
		}
		if v == nil || v.Bare != bare || !v.Current(stocks) {
			v = view.Compile(name, stocks, bare, v)
			made.Views.Add(1)
		}
		w.Endpoints[name] = w.newEndpoint(name, surface, v)
	}
	add("", "", all, false)
	for i, b := range backends {
		add(b.Name(), "", all[i:i+1:i+1], true)
	}
	for name, n := range c.Endpoints {
		chosen := all
		if len(n.Upstreams) > 0 {
			other := func(st *view.Stock) bool { return !slices.Contains(n.Upstreams, st.Backend.Name()) }
			chosen = slices.DeleteFunc(slices.Clone(all), other)
		}
		add(name+"/", cmp.Or(n.Surface, name), chosen, false)
	}
	for _, name := range slices.Sorted(maps.Keys(w.Endpoints)) {
		if e := w.Endpoints[name]; e.Search || c.Policy.Searches() {
			w.shadowed = append(w.shadowed, e.View.Shadowed(name)...)
		}
	}
	return w
}

// stockUp makes the stocks of the backends, or reuses those of the old snapshot.
func (w *Snapshot) stockUp(old *Snapshot) (all []*view.Stock) {
	w.stocks = map[view.Backend]*view.Stock{}
	for _, b := range w.Backends {
		catalog := b.Catalog()
		var st *view.Stock
		if old != nil && old.settings == w.settings && old.Config.Policy == w.Config.Policy {
			st = old.stocks[b]
		}
		if st == nil || st.Catalog != catalog {
			st = view.NewStock(b, catalog, w.settings)
		}
		w.stocks[b] = st
		all = append(all, st)
	}
	return all
}

var _ view.Backend = (*upstream.Upstream)(nil)

// Limits of the caches of a snapshot, in bytes. Together they are less than 64 MiB; the policies'
// selections (package policy) use the rest.
const (
	maxSubjects = 33 << 20 // subject views, and the endpoints of users and clients
	maxPages    = 16 << 20
)

// Open reports whether the Guard accepts requests without a key or a token.
func (w *Snapshot) Open() bool { return w.Config.Guard != nil && w.Config.Guard.Verifier == nil }

// Settled reports whether the snapshot has the current catalogs.
func (w *Snapshot) Settled() bool {
	for b, st := range w.stocks {
		if b.Catalog() != st.Catalog {
			return false
		}
	}
	return true
}
