package proxy

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/go-chi/chi/v5"

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
	routes    http.Handler
	merged    http.Handler // the handler of routes for /mcp
	making    view.Making
	shadowed  []view.Problem               // tools with the name of a tool of Junction
	stocks    map[view.Backend]*view.Stock // of backends

	subjects          bounded.Room // subject views, and the endpoints of users and clients
	pages             bounded.Room // of lists; locked after subjects if both are locked
	wanted            wanted
	rulings           *view.Rulings
	personalEndpoints bounded.Cache[personalKey, *personalEndpoint]

	direct bool                   // there is no authentication, so requests through a proxy are rejected
	host   atomic.Pointer[string] // the latest allowed host: usually the next one is the same
}

// close empties the caches of a replaced snapshot.
func (w *snapshot) close() {
	w.subjects.Close()
	w.pages.Close()
	w.rulings.Close()
}

// newSnapshot builds a snapshot. Items keep the names that they have in old, which may be nil.
func (s *Server) newSnapshot(c SnapshotConfig, backends []view.Backend, old *snapshot) *snapshot {
	w := &snapshot{config: c, backends: backends, endpoints: map[string]*endpoint{}}
	w.making = view.Making{Names: c.Names, Pinned: c.Policy.Pins(), Pins: c.Pins, Count: &s.stocked}
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
	r := chi.NewRouter()
	r.Use(func(next http.Handler) http.Handler { return s.checkOrigin(w, next) })
	r.NotFound(func(rw http.ResponseWriter, _ *http.Request) {
		http.Error(rw, "Nothing is here; the MCP endpoint is /mcp.", http.StatusNotFound)
	})
	merged := s.at(w, func(*http.Request) string { return "" })
	r.Handle("/mcp", merged)
	r.Handle("/mcp/{upstream}", s.at(w, func(r *http.Request) string { return chi.URLParam(r, "upstream") }))
	r.Handle("/{endpoint}/mcp", s.at(w, func(r *http.Request) string { return chi.URLParam(r, "endpoint") + "/" }))
	w.routes = http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) { r.ServeHTTP(rw, withoutSlash(req)) })
	w.merged = s.checkOrigin(w, merged)
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
