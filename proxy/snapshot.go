package proxy

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"

	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/bounded"
)

// snapshot holds everything that a request needs: configuration, policy and catalogs. It is
// immutable except for its caches, and is replaced as a whole.
type snapshot struct {
	config    SnapshotConfig
	backends  []view.Backend
	endpoints map[string]*endpoint
	making    view.Making
	shadowed  []view.Problem               // tools with the name of a tool of Junction
	stocks    map[view.Backend]*view.Stock // of backends

	subjects          bounded.Room // subject views, and the endpoints of users and clients
	pages             bounded.Room // of lists; locked after subjects if both are locked
	wanted            wanted
	rulings           *view.Rulings
	personalEndpoints bounded.Cache[personalKey, *personalEndpoint]

	direct bool // there is no authentication, so requests through a proxy are rejected
}

// close empties the caches of a replaced snapshot.
func (w *snapshot) close() {
	w.subjects.Close()
	w.pages.Close()
	w.rulings.Close()
}

// newSnapshot builds a snapshot. Items keep the names that they have in old, which may be nil. count
// counts the stocks that are made.
func newSnapshot(c SnapshotConfig, backends []view.Backend, old *snapshot, count *atomic.Uint64) *snapshot {
	w := &snapshot{config: c, backends: backends, endpoints: map[string]*endpoint{}}
	w.making = view.Making{Names: c.Names, Pinned: c.Policy.Pins(), Pins: c.Pins, Count: count}
	w.subjects.Max, w.pages.Max, w.rulings = maxSubjects, maxPages, new(view.Rulings)
	w.personalEndpoints = bounded.Cache[personalKey, *personalEndpoint]{Room: &w.subjects,
		Left: func(e *personalEndpoint) { e.endpoint.end() }}
	all := w.stockUp(old)
	w.direct = w.open() && !c.BehindProxy
	add := func(name, surface string, stocks []*view.Stock, bare bool) {
		var before *view.View
		if old != nil && old.endpoints[name] != nil {
			before = old.endpoints[name].view
		}
		w.endpoints[name] = w.newEndpoint(name, surface, view.Compile(name, stocks, bare, before))
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
	for _, name := range slices.Sorted(maps.Keys(w.endpoints)) {
		if e := w.endpoints[name]; e.search || c.Policy.Searches() {
			w.shadowed = append(w.shadowed, e.view.Shadowed(name)...)
		}
	}
	return w
}

// stockUp makes the stocks of the backends, or reuses those of the old snapshot.
func (w *snapshot) stockUp(old *snapshot) (all []*view.Stock) {
	w.stocks = map[view.Backend]*view.Stock{}
	for _, b := range w.backends {
		catalog := b.Catalog()
		var st *view.Stock
		if old != nil && old.making == w.making && old.config.Policy == w.config.Policy {
			st = old.stocks[b]
		}
		if st == nil || st.Catalog != catalog {
			st = view.NewStock(b, catalog, w.making)
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

// open reports whether the Guard accepts requests without a key or a token.
func (w *snapshot) open() bool { return w.config.Guard != nil && w.config.Guard.Verifier == nil }

func (w *snapshot) problems() []view.Problem {
	all := slices.Clip(w.endpoints[""].view.Problems)
	for _, b := range w.backends {
		all = view.Problems(all, w.endpoints[b.Name()].view.Problems)
	}
	return view.Problems(all, w.shadowed)
}

// settled reports whether the snapshot has the current catalogs.
func (w *snapshot) settled() bool {
	for b, st := range w.stocks {
		if b.Catalog() != st.Catalog {
			return false
		}
	}
	return true
}
