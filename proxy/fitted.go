package proxy

import (
	"slices"
	"sync"

	"junction/upstream"
)

// This file holds the endpoints of clients that have connections of their own to some upstreams (isolation, or questions: exact). Such an upstream may offer them
// something else than others. An endpoint as such a client sees it is made of the catalogs of its connections.

// identity tells clients apart where upstreams separate them.
type identity struct {
	profile upstream.Profile
	session string // the key of a legacy session; "" in the modern era
}

// fittings are the endpoints of a world that differ from the shared ones, made when they are first asked for. The zero value has none.
type fittings struct {
	mu   sync.Mutex
	list []fitting
}

// fitting is an endpoint with other catalogs for some of its backends; nil leaves that of the view.
type fitting struct {
	of   *endpoint
	own  []*upstream.Catalog
	made *endpoint
}

// find returns what was made of an endpoint and these catalogs; nil if nothing was.
func (f *fittings) find(e *endpoint, own []*upstream.Catalog) *endpoint {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, known := range f.list {
		if known.of == e && slices.Equal(known.own, own) {
			return known.made
		}
	}
	return nil
}

// maxFittings bounds those that are remembered. With more they are made again.
const maxFittings = 64

// fit returns the caller with its endpoint as its client sees it: c.who is set, and c.endpoint is the one that all clients of the principal share.
func (w *world) fit(c caller) caller {
	if !c.endpoint.view.separates {
		return c
	}
	v, different := c.endpoint.view, false
	own := make([]*upstream.Catalog, len(v.backends))
	for i, b := range v.backends {
		if catalog := b.CatalogFor(c.who.profile, c.who.session, c.user()); catalog != b.Catalog() {
			own[i], different = catalog, true
		}
	}
	if different {
		c.endpoint = w.fitted(c.endpoint, own)
		c.share = w.share(c.endpoint, c.principal)
	}
	return c
}

// fitted returns the endpoint e with other catalogs.
func (w *world) fitted(e *endpoint, own []*upstream.Catalog) *endpoint {
	f := &w.fittings
	if known := f.find(e, own); known != nil {
		return known
	}
	made := &endpoint{name: e.name, surface: e.surface, view: e.view.withCatalogs(e.name, own, w.config.Names), shares: new(shares)}
	if w.policy.Pins() {
		made.view.hold(w.config.Pins)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.list) >= maxFittings {
		f.list = slices.Delete(f.list, 0, maxFittings/2)
	}
	f.list = append(f.list, fitting{e, own, made})
	return made
}

// withCatalogs returns the view with other catalogs for those backends that have one in own.
func (v *view) withCatalogs(endpoint string, own []*upstream.Catalog, names Names) *view {
	n := newView(v.bare)
	for i, b := range v.backends {
		if own[i] == nil {
			n.include(b, v.sources[i])
			n.share(endpoint, b, v, v)
		} else {
			n.addAll(endpoint, b, own[i], names, v)
		}
	}
	n.finish(endpoint, v)
	return n
}
