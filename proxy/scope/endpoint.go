package scope

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
	"junction/upstream/client"
	"junction/upstream/folder"
)

// Endpoint is one URL. The name of the merged Endpoint is "". The name of an upstream's Endpoint is
// the upstream's name. The name of a configured endpoint ends in a slash.
type Endpoint struct {
	Name    string
	Surface string // for policy; "" for none
	View    *view.View
	Search  bool            // tools are found by search
	Eras    Eras            // in which it answers
	Always  policy.Globs    // the tools that are listed nevertheless
	match   *policy.Matcher // of the callers for whom the endpoint exists

	// The caches end with the endpoint of a user or a client.
	subjects        subjectViews
	pages           pages
	clientEndpoints bounded.Cache[uint64, *clientEndpoint] // by hash
}

// newEndpoint makes an endpoint of the snapshot.
func (w *Snapshot) newEndpoint(name, surface string, v *view.View) *Endpoint {
	e := &Endpoint{Name: name, Surface: surface, View: v}
	if key, configured := strings.CutSuffix(name, "/"); configured {
		c := w.Config.Endpoints[key]
		e.Search, e.Always = c.Catalog == policy.CatalogSearch, policy.CompileGlobs(c.Always)
		e.Eras = c.Eras
		e.match = policy.CompileMatch(c.Match)
	}
	e.subjects.begin(&w.Subjects)
	e.pages.cache.Room, e.pages.wanted = &w.Pages, &w.wanted
	e.clientEndpoints = bounded.Cache[uint64, *clientEndpoint]{Room: &w.Subjects,
		Left: func(f *clientEndpoint) { f.made.end() }}
	return e
}

// bytes returns the approximate memory of the endpoint of a user or a client, in bytes.
func (e *Endpoint) bytes() int {
	if e.View.Base == nil { // it has only the user's own upstream
		return 4000 + e.View.Stocks[0].Bytes()
	}
	return 2000 + e.View.Bytes()
}

// end empties the caches of the endpoint of a user or a client; w.Subjects is locked.
func (e *Endpoint) end() {
	e.subjects.cache.End()
	e.clientEndpoints.End()
	e.pages.cache.Room.Mu.Lock()
	defer e.pages.cache.Room.Mu.Unlock()
	e.pages.cache.End()
}

// Cached are the numbers of entries in the caches of an endpoint.
type Cached struct {
	Subjects int // principals
	Rights   int // different subject views of them
	Pages    int
	Clients  int // endpoints of clients with catalogs of their own
}

// Cached returns how much the caches hold.
func (e *Endpoint) Cached() (n Cached) {
	e.subjects.cache.Room.Mu.Lock()
	n.Subjects, n.Rights, n.Clients = len(e.subjects.cache.Of), len(e.subjects.alike), len(e.clientEndpoints.Of)
	e.subjects.cache.Room.Mu.Unlock()
	e.pages.cache.Room.Mu.Lock()
	n.Pages = len(e.pages.cache.Of)
	e.pages.cache.Room.Mu.Unlock()
	return n
}

// Caller is the principal of a request, with its endpoint and its subject view.
type Caller struct {
	Snapshot  *Snapshot
	Endpoint  *Endpoint
	Principal *auth.Principal
	Subject   *subjectView
	Who       Identity
	// Stricter are the policies of the member that has forwarded the request, if they differ: what they deny
	// is denied, too. nil for none.
	Stricter *policy.Policy
}

// User identifies the user to pools of connections. It is "" without authentication, where there is
// one user.
func (c Caller) User() string {
	if c.Principal.Kind == auth.KindLocal {
		return ""
	}
	return c.Principal.ID
}

// Folders returns the Guard for the folders that the caller names for a server.
func (c Caller) Folders(b view.Backend) *folder.Guard {
	g := c.Snapshot.Config.Folders.Narrowed(c.Subject.Rights.PermitsFolder)
	if b.Config().Sandbox != nil {
		g = g.Beside(b.Name())
	}
	return g
}

// Kind returns the kind of list that the caller gets for a part.
func (c Caller) Kind(p upstream.Part, era client.Era) view.ListKind {
	return c.Subject.View.Kind(p, era, c.Who.Profile)
}

// UntilExpiry returns a context that ends with the caller's token, if the token expires.
func (c Caller) UntilExpiry(ctx context.Context) (context.Context, context.CancelFunc) {
	if ends := c.Principal.Expires; !ends.IsZero() {
		return context.WithDeadline(ctx, ends)
	}
	return context.WithCancel(ctx)
}

// Hidden reports whether the endpoint does not exist for the caller, because the caller is bound to
// others, or may use none of its items.
func (c Caller) Hidden() bool {
	return c.Outside() || c.Endpoint.Name != "" && len(c.Endpoint.View.Stocks) > 0 && c.Subject.Sight().None()
}

// Outside reports whether the caller may not use the endpoint: by the match of the endpoint, or by the
// endpoints of the caller's key or policies.
func (c Caller) Outside() bool {
	name, bound := c.Endpoint.ConfigName(), c.Principal.Endpoints
	return bound != nil && !slices.Contains(bound, name) || c.Subject.Rights.Outside(name) != "" ||
		!c.Endpoint.match.Matches(Subject(c.Principal, c.Endpoint.Surface))
}

// ConfigName returns the name of the endpoint in the configuration: the name in the section endpoints,
// mcp, or mcp/ and the name of an upstream.
func (e *Endpoint) ConfigName() string {
	if name, configured := strings.CutSuffix(e.Name, "/"); configured {
		return name
	}
	return strings.TrimSuffix("mcp/"+e.Name, "/")
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
	endpoint *Endpoint
}

// personal returns the upstreams that only the principal has.
func (w *Snapshot) personal(p *auth.Principal) []*upstream.Upstream {
	if w.Config.People == nil {
		return nil
	}
	return w.Config.People.Of(p)
}

// EndpointFor returns the endpoint of that name as the principal sees it; nil if there is none.
func (w *Snapshot) EndpointFor(name string, p *auth.Principal) *Endpoint {
	shared, own := w.Endpoints[name], w.personal(p)
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
	key.principal, key.endpoint = strings.Clone(p.ID), personal.endpoint.Name
	w.personalEndpoints.Put(key, personal, personal.endpoint.bytes())
	return personal.endpoint
}

// withOwn adds the upstreams of a user to the shared endpoint, which may be nil.
func (w *Snapshot) withOwn(name string, shared *Endpoint, personal *personalEndpoint) *Endpoint {
	if i := slices.IndexFunc(personal.own, func(u *upstream.Upstream) bool { return u.Name() == name }); i >= 0 {
		alone := view.NewStock(personal.own[i], personal.sources[i], w.settings)
		return w.newEndpoint(alone.Backend.Name(), "", view.Compile(name, []*view.Stock{alone}, true, nil))
	}
	if shared == nil || name != "" && !strings.HasSuffix(name, "/") {
		return shared
	}
	stocks := slices.Clone(shared.View.Stocks)
	only := w.Config.Endpoints[strings.TrimSuffix(name, "/")].Upstreams
	for i, u := range personal.own {
		if len(only) == 0 || slices.Contains(only, u.Name()) {
			stocks = append(stocks, view.NewStock(u, personal.sources[i], w.settings))
		}
	}
	if len(stocks) == len(shared.View.Stocks) {
		return shared
	}
	slices.SortStableFunc(stocks, func(a, b *view.Stock) int {
		return strings.Compare(a.Backend.Name(), b.Backend.Name())
	})
	return w.newEndpoint(shared.Name, shared.Surface, shared.View.Derive(name, stocks))
}

// AwaitPersonal waits briefly for upstreams of the principal that were just started, so that a
// client's first tools/list contains their tools.
func (w *Snapshot) AwaitPersonal(ctx context.Context, p *auth.Principal) {
	for _, u := range w.personal(p) {
		u.Meet(ctx)
	}
}

// Identity distinguishes clients for upstreams with separate catalogs.
type Identity struct {
	Profile client.Profile
	// the key of a legacy session; in the modern era what stands for one (upstream.WindowIn), or ""
	Session string
}

// clientEndpoint is an endpoint with other catalogs for some of its upstreams. For a nil catalog, the
// catalog of the view counts.
type clientEndpoint struct {
	own  []*upstream.Catalog
	made *Endpoint
}

// ForClient returns the caller with its client's endpoint. c.Who must be set, and c.Endpoint must
// be the endpoint that all clients of the principal share.
func (w *Snapshot) ForClient(c Caller) Caller {
	v := c.Endpoint.View
	if !v.Separates {
		return c
	}
	var own []*upstream.Catalog
	for i, st := range v.Stocks {
		if catalog := st.Backend.CatalogFor(c.Who.Profile, c.Who.Session, c.User()); catalog != st.Backend.Catalog() {
			if own == nil {
				own = make([]*upstream.Catalog, len(v.Stocks))
			}
			own[i] = catalog
		}
	}
	if own != nil {
		c.Endpoint = w.clientEndpoint(c.Endpoint, own)
		c.Subject = w.subjectView(c.Endpoint, c.Principal, c.Stricter)
	}
	return c
}

var fittingSeed = maphash.MakeSeed()

// clientEndpoint returns the endpoint e with other catalogs. It makes the endpoint at the first
// use, and again after its eviction.
func (w *Snapshot) clientEndpoint(e *Endpoint, own []*upstream.Catalog) *Endpoint {
	var h maphash.Hash
	h.SetSeed(fittingSeed)
	for _, catalog := range own {
		maphash.WriteComparable(&h, catalog)
	}
	key := h.Sum64()
	if known, ok := e.clientEndpoints.Get(key); ok && slices.Equal(known.own, own) {
		return known.made
	}
	stocks := slices.Clone(e.View.Stocks)
	for i, catalog := range own {
		if catalog != nil {
			stocks[i] = view.NewStock(stocks[i].Backend, catalog, w.settings)
		}
	}
	f := &clientEndpoint{own, w.newEndpoint(e.Name, e.Surface, e.View.Derive(e.Name, stocks))}
	bytes := f.made.bytes()
	known := e.clientEndpoints.Keep(key, func() (*clientEndpoint, int) { return f, bytes })
	if slices.Equal(known.own, own) {
		return known.made
	}
	return f.made // another endpoint had the same hash
}

// Enter finds the endpoint and the subject view of the caller, if the endpoint exists. It returns the
// rights of the caller there: also if it does not, or if the caller is bound to others, so that the
// answer does not reveal which endpoints exist.
func (c *Caller) Enter(at string) *policy.Rights {
	if c.Endpoint = c.Snapshot.EndpointFor(at, c.Principal); c.Endpoint != nil {
		if c.Subject = c.Snapshot.subjectView(c.Endpoint, c.Principal, c.Stricter); !c.Outside() {
			return c.Subject.Rights
		}
	}
	surface, named := strings.CutSuffix(at, "/")
	if !named {
		surface = ""
	}
	return c.Snapshot.rules(c.Stricter).For(Subject(c.Principal, surface))
}

// Adopt returns the caller in this snapshot. Its subject is nil if the caller is rejected or may
// use nothing.
func (w *Snapshot) Adopt(c Caller) Caller {
	if !w.Config.Guard.Still(c.Principal) {
		at := w.EndpointFor(c.Endpoint.Name, c.Principal)
		return Caller{Snapshot: w, Endpoint: at, Principal: c.Principal, Who: c.Who, Stricter: c.Stricter}
	}
	return w.see(c)
}

// Alone returns the caller without Stricter, for what outlives the request. Its subject is nil if the caller
// may use nothing.
func (c Caller) Alone() Caller {
	if c.Stricter == nil {
		return c
	}
	c.Stricter = nil
	return c.Snapshot.see(c)
}

// see is Adopt for a caller that is not rejected.
func (w *Snapshot) see(c Caller) Caller {
	n := Caller{Snapshot: w, Endpoint: w.EndpointFor(c.Endpoint.Name, c.Principal), Principal: c.Principal, Who: c.Who,
		Stricter: c.Stricter}
	if n.Endpoint == nil {
		return n
	}
	n.Subject = w.subjectView(n.Endpoint, n.Principal, n.Stricter)
	if n = w.ForClient(n); n.Subject.Rights.None() || n.Hidden() {
		n.Subject = nil
	}
	return n
}

// SameList reports whether the caller's list of a part is unchanged. It compares rights and stocks
// first, because computing the list takes longer.
func (c Caller) SameList(now Caller, p upstream.Part) bool {
	if c.Subject == now.Subject || !c.Subject.Search && !now.Subject.Search &&
		c.Snapshot.settings == now.Snapshot.settings &&
		c.Snapshot.Config.Policy == now.Snapshot.Config.Policy &&
		c.Subject.View.SamePart(now.Subject.View, p) && c.Subject.Rights.Equal(now.Subject.Rights) {
		return true
	}
	print := func(c Caller) uint64 {
		return c.Subject.Print(p, c.Subject.View.Kind(p, client.EraLegacy, c.Who.Profile))
	}
	return print(c) == print(now)
}
