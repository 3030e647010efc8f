package proxy

import (
	"hash/maphash"
	"slices"

	"junction/proxy/view"
	"junction/upstream"
)

// This file holds the endpoints of clients that have connections of their own to some upstreams
// (isolation, or questions: exact). Such an upstream may offer them something else than others. An
// endpoint as such a client sees it is made of the catalogs of its connections.

// identity tells clients apart where upstreams separate them.
type identity struct {
	profile upstream.Profile
	session string // the key of a legacy session; "" in the modern era
}

// fitting is an endpoint with other catalogs for some of its upstreams; nil leaves that of the
// view.
type fitting struct {
	own  []*upstream.Catalog
	made *endpoint
}

// fit returns the caller with its endpoint as its client sees it: c.who is set, and c.endpoint is
// the one that all clients of the principal share.
func (w *world) fit(c caller) caller {
	v := c.endpoint.view
	if !v.Separates {
		return c
	}
	var own []*upstream.Catalog
	for i, st := range v.Stocks {
		if catalog := st.Backend.CatalogFor(c.who.profile, c.who.session, c.user()); catalog != st.Backend.Catalog() {
			if own == nil {
				own = make([]*upstream.Catalog, len(v.Stocks))
			}
			own[i] = catalog
		}
	}
	if own != nil {
		c.endpoint = w.fitted(c.endpoint, own)
		c.share = w.share(c.endpoint, c.principal)
	}
	return c
}

var fittingSeed = maphash.MakeSeed()

// fitted returns the endpoint e with other catalogs. It is made when it is first asked for, and
// again when it was not asked for in a while.
func (w *world) fitted(e *endpoint, own []*upstream.Catalog) *endpoint {
	var h maphash.Hash
	h.SetSeed(fittingSeed)
	for _, catalog := range own {
		maphash.WriteComparable(&h, catalog)
	}
	key := h.Sum64()
	if known, ok := e.fittings.get(key); ok && slices.Equal(known.own, own) {
		return known.made
	}
	stocks := slices.Clone(e.view.Stocks)
	for i, catalog := range own {
		if catalog != nil {
			stocks[i] = view.NewStock(stocks[i].Backend, catalog, w.making)
		}
	}
	f := &fitting{own, w.newEndpoint(e.name, e.surface, e.view.Derive(e.name, stocks))}
	bytes := f.made.bytes()
	if known := e.fittings.keep(key, func() (*fitting, int) { return f, bytes }); slices.Equal(known.own, own) {
		return known.made
	}
	return f.made // of another one with the same hash
}
