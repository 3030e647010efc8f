package proxy

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"

	"junction/auth"
	"junction/policy"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/bounded"
)

// endpoint is one URL. The name of the merged endpoint is "". The name of an upstream's endpoint is
// the upstream's name. The name of a configured endpoint ends in a slash.
type endpoint struct {
	name    string
	surface string // for policy; "" for none
	view    *view.View
	search  bool         // tools are found by search
	always  policy.Globs // the tools that are listed nevertheless

	// The caches end with the endpoint of a user or a client.
	subjects        subjectViews
	pages           pages
	clientEndpoints bounded.Cache[uint64, *clientEndpoint] // by hash
}

// newEndpoint makes an endpoint of the snapshot.
func (w *snapshot) newEndpoint(name, surface string, v *view.View) *endpoint {
	e := &endpoint{name: name, surface: surface, view: v}
	if key, configured := strings.CutSuffix(name, "/"); configured {
		c := w.config.Endpoints[key]
		e.search, e.always = c.Catalog == policy.CatalogSearch, policy.CompileGlobs(c.Always)
	}
	e.subjects.begin(&w.subjects)
	e.pages.of.Room, e.pages.wanted = &w.pages, &w.wanted
	e.clientEndpoints = bounded.Cache[uint64, *clientEndpoint]{Room: &w.subjects,
		Left: func(f *clientEndpoint) { f.made.end() }}
	return e
}

// bytes returns the approximate memory of the endpoint of a user or a client, in bytes.
func (e *endpoint) bytes() int {
	if e.view.Base == nil { // it has only the user's own upstream
		return 4000 + e.view.Stocks[0].Bytes()
	}
	return 2000 + e.view.Bytes()
}

// end empties the caches of the endpoint of a user or a client; w.subjects is locked.
func (e *endpoint) end() {
	e.subjects.of.End()
	e.clientEndpoints.End()
	e.pages.of.Room.Mu.Lock()
	defer e.pages.of.Room.Mu.Unlock()
	e.pages.of.End()
}

// Cached are the numbers of entries in the caches of an endpoint.
type Cached struct {
	Subjects int // principals
	Rights   int // different subject views of them
	Pages    int
	Clients  int // endpoints of clients with catalogs of their own
}

// cached returns how much the caches hold.
func (e *endpoint) cached() (n Cached) {
	e.subjects.of.Room.Mu.Lock()
	n.Subjects, n.Rights, n.Clients = len(e.subjects.of.Of), len(e.subjects.alike), len(e.clientEndpoints.Of)
	e.subjects.of.Room.Mu.Unlock()
	e.pages.of.Room.Mu.Lock()
	n.Pages = len(e.pages.of.Of)
	e.pages.of.Room.Mu.Unlock()
	return n
}

// caller is the principal of a request, with its endpoint and its subject view.
type caller struct {
	snapshot  *snapshot
	endpoint  *endpoint
	principal *auth.Principal
	subject   *subjectView
	who       identity
}

// user identifies the user to pools of connections. It is "" without authentication, where there is
// one user.
func (c caller) user() string {
	if c.principal.Kind == auth.KindLocal {
		return ""
	}
	return c.principal.ID
}

// untilExpiry returns a context that ends with the caller's token, if the token expires.
func (c caller) untilExpiry(ctx context.Context) (context.Context, context.CancelFunc) {
	if ends := c.principal.Expires; !ends.IsZero() {
		return context.WithDeadline(ctx, ends)
	}
	return context.WithCancel(ctx)
}

// hidden reports whether the endpoint does not exist for the caller, because the caller may use
// none of its items.
func (c caller) hidden() bool {
	return c.endpoint.name != "" && len(c.endpoint.view.Stocks) > 0 && c.subject.Sight().None()
}

// People finds the upstreams that each user signs in to.
type People interface {
	// Of returns the upstreams of a principal in the order of their names, and the same ones until
	// something about them changes. It returns none for a principal that is not a signed-in user.
	// It does not block.
	Of(*auth.Principal) []*upstream.Upstream
}

// personalKey identifies an endpoint of one user.
type personalKey struct{ principal, endpoint string }

// personalEndpoint is an endpoint with the upstreams of one user, and its sources. It is immutable.
type personalEndpoint struct {
	own      []*upstream.Upstream
	sources  []*upstream.Catalog // of own
	endpoint *endpoint
}

// personal returns the upstreams that only the principal has.
func (w *snapshot) personal(p *auth.Principal) []*upstream.Upstream {
	if w.config.People == nil {
		return nil
	}
	return w.config.People.Of(p)
}

// endpoint returns the endpoint of that name as the principal sees it; nil if there is none.
func (w *snapshot) endpoint(name string, p *auth.Principal) *endpoint {
	shared, own := w.endpoints[name], w.personal(p)
	if len(own) == 0 {
		return shared
	}
	key := personalKey{p.ID, name}
	same := func(u *upstream.Upstream, c *upstream.Catalog) bool { return u.Catalog() == c }
	personal, known := w.personalEndpoints.Get(key)
	if known && slices.Equal(personal.own, own) && slices.EqualFunc(own, personal.sources, same) {
		return personal.endpoint
	}
	personal = &personalEndpoint{own: own}
	for _, u := range own {
		personal.sources = append(personal.sources, u.Catalog())
	}
	if personal.endpoint = w.withOwn(name, shared, personal); personal.endpoint == shared {
		return shared // the number of unknown names is unbounded, so they are not cached
	}
	key.principal, key.endpoint = strings.Clone(p.ID), personal.endpoint.name
	w.personalEndpoints.Put(key, personal, personal.endpoint.bytes())
	return personal.endpoint
}

// withOwn adds the upstreams of a user to the shared endpoint, which may be nil.
func (w *snapshot) withOwn(name string, shared *endpoint, personal *personalEndpoint) *endpoint {
	if i := slices.IndexFunc(personal.own, func(u *upstream.Upstream) bool { return u.Name() == name }); i >= 0 {
		alone := view.NewStock(personal.own[i], personal.sources[i], w.making)
		return w.newEndpoint(alone.Backend.Name(), "", view.Compile(name, []*view.Stock{alone}, true, nil))
	}
	if shared == nil || name != "" && !strings.HasSuffix(name, "/") {
		return shared
	}
	stocks := slices.Clone(shared.view.Stocks)
	only := w.config.Endpoints[strings.TrimSuffix(name, "/")].Upstreams
	for i, u := range personal.own {
		if len(only) == 0 || slices.Contains(only, u.Name()) {
			stocks = append(stocks, view.NewStock(u, personal.sources[i], w.making))
		}
	}
	if len(stocks) == len(shared.view.Stocks) {
		return shared
	}
	slices.SortStableFunc(stocks, func(a, b *view.Stock) int {
		return strings.Compare(a.Backend.Name(), b.Backend.Name())
	})
	return w.newEndpoint(shared.name, shared.surface, shared.view.Derive(name, stocks))
}

// awaitPersonal waits briefly for upstreams of the principal that were just started, so that a
// client's first tools/list contains their tools.
func (w *snapshot) awaitPersonal(ctx context.Context, p *auth.Principal) {
	for _, u := range w.personal(p) {
		u.Meet(ctx)
	}
}

// identity distinguishes clients for upstreams with separate catalogs.
type identity struct {
	profile upstream.Profile
	session string // the key of a legacy session; "" in the modern era
}

// clientEndpoint is an endpoint with other catalogs for some of its upstreams. A nil catalog leaves
// that of the view.
type clientEndpoint struct {
	own  []*upstream.Catalog
	made *endpoint
}

// forClient returns the caller with its client's endpoint. c.who must be set, and c.endpoint must
// be the endpoint that all clients of the principal share.
func (w *snapshot) forClient(c caller) caller {
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
		c.endpoint = w.clientEndpoint(c.endpoint, own)
		c.subject = w.subjectView(c.endpoint, c.principal)
	}
	return c
}

var fittingSeed = maphash.MakeSeed()

// clientEndpoint returns the endpoint e with other catalogs. It makes the endpoint at the first
// use, and again after its eviction.
func (w *snapshot) clientEndpoint(e *endpoint, own []*upstream.Catalog) *endpoint {
	var h maphash.Hash
	h.SetSeed(fittingSeed)
	for _, catalog := range own {
		maphash.WriteComparable(&h, catalog)
	}
	key := h.Sum64()
	if known, ok := e.clientEndpoints.Get(key); ok && slices.Equal(known.own, own) {
		return known.made
	}
	stocks := slices.Clone(e.view.Stocks)
	for i, catalog := range own {
		if catalog != nil {
			stocks[i] = view.NewStock(stocks[i].Backend, catalog, w.making)
		}
	}
	f := &clientEndpoint{own, w.newEndpoint(e.name, e.surface, e.view.Derive(e.name, stocks))}
	bytes := f.made.bytes()
	known := e.clientEndpoints.Keep(key, func() (*clientEndpoint, int) { return f, bytes })
	if slices.Equal(known.own, own) {
		return known.made
	}
	return f.made // another endpoint had the same hash
}

// enter finds the endpoint and the subject view of the caller, if the endpoint exists. It returns the
// rights of the caller there: also if it does not, so that the answer does not reveal which endpoints
// exist.
func (c *caller) enter(at string) *policy.Rights {
	if c.endpoint = c.snapshot.endpoint(at, c.principal); c.endpoint != nil {
		c.subject = c.snapshot.subjectView(c.endpoint, c.principal)
		return c.subject.Rights
	}
	surface, named := strings.CutSuffix(at, "/")
	if !named {
		surface = ""
	}
	return c.snapshot.config.Policy.For(Subject(c.principal, surface))
}

// adopt returns the caller in this snapshot. Its subject is nil if the caller is rejected or may
// use nothing.
func (w *snapshot) adopt(c caller) caller {
	n := caller{snapshot: w, endpoint: w.endpoint(c.endpoint.name, c.principal), principal: c.principal, who: c.who}
	if n.endpoint == nil || !w.config.Guard.Still(n.principal) {
		return n
	}
	n.subject = w.subjectView(n.endpoint, n.principal)
	if n = w.forClient(n); n.subject.Rights.None() || n.hidden() {
		n.subject = nil
	}
	return n
}

// sameList reports whether the caller's list of a part is unchanged. It compares rights and stocks
// first, because computing the list takes longer.
func (c caller) sameList(now caller, p upstream.Part) bool {
	if c.subject == now.subject || !c.subject.search && !now.subject.search &&
		c.snapshot.making == now.snapshot.making &&
		c.snapshot.config.Policy == now.snapshot.config.Policy &&
		c.subject.View.SamePart(now.subject.View, p) && c.subject.Rights.Equal(now.subject.Rights) {
		return true
	}
	print := func(of caller) uint64 {
		return of.subject.print(p, of.subject.View.Kind(p, upstream.EraLegacy, of.who.profile))
	}
	return print(c) == print(now)
}
