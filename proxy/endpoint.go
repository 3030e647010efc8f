package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"net/http"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
	"junction/policy"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// endpoint is one URL: the merged one, whose name is "", that of one upstream with bare names, or a
// named one, whose name ends in a slash.
type endpoint struct {
	name    string
	surface string // for policy; "" is none
	view    *view.View

	// What is kept for those who use it ends with it, if it is of a person or a client.
	subjects        subjectViews
	pages           pages
	clientEndpoints cache[uint64, *clientEndpoint] // by hash
}

// newEndpoint makes an endpoint of the world.
func (w *snapshot) newEndpoint(name, surface string, v *view.View) *endpoint {
	e := &endpoint{name: name, surface: surface, view: v}
	e.subjects.begin(&w.subjects)
	e.pages.of.room, e.pages.wanted = &w.pages, &w.wanted
	e.clientEndpoints = cache[uint64, *clientEndpoint]{room: &w.subjects, left: func(f *clientEndpoint) { f.made.end() }}
	return e
}

// bytes is about how much memory the endpoint of a person or a client takes.
func (e *endpoint) bytes() int {
	if e.view.Base == nil { // it has one upstream, which is theirs
		return 4000 + e.view.Stocks[0].Bytes()
	}
	return 2000 + e.view.Bytes()
}

// end lets go what is kept for those who use the endpoint of a person or a client; w.subjects is
// locked.
func (e *endpoint) end() {
	e.subjects.of.end()
	e.clientEndpoints.end()
	e.pages.of.room.mu.Lock()
	defer e.pages.of.room.mu.Unlock()
	e.pages.of.end()
}

var errNoEndpoint = errors.New("there is no such endpoint for the caller")

// caller is who makes a request, where, and what it may use there.
type caller struct {
	snapshot  *snapshot
	endpoint  *endpoint
	principal *auth.Principal
	subject   *subjectView
	who       identity
}

// user tells upstreams' connections of one user from those of others; "" while there is one user
// only.
func (c caller) user() string {
	if c.principal.Kind == auth.KindLocal {
		return ""
	}
	return c.principal.ID
}

// hidden reports whether the endpoint does not exist for the caller, because it may use nothing of
// what is there.
func (c caller) hidden() bool {
	return c.endpoint.name != "" && len(c.endpoint.view.Stocks) > 0 && c.subject.Sight().None()
}

// People finds the upstreams that people sign in to themselves.
type People interface {
	// Of returns those of a principal in the order of their names, the same ones for as long as
	// nothing about them changes; none for whoever is no person that can sign in to one. It does
	// not block.
	Of(*auth.Principal) []*upstream.Upstream
}

// personalKey is one of a person's endpoints.
type personalKey struct{ principal, endpoint string }

// personalEndpoint is an endpoint of theirs, and what it was made of. It is immutable.
type personalEndpoint struct {
	own      []*upstream.Upstream
	sources  []*upstream.Catalog // of own
	endpoint *endpoint
}

// personal returns the upstreams that are the principal's alone.
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
	its, known := w.personalEndpoints.get(key)
	if known && slices.Equal(its.own, own) && slices.EqualFunc(own, its.sources, same) {
		return its.endpoint
	}
	its = &personalEndpoint{own: own}
	for _, u := range own {
		its.sources = append(its.sources, u.Catalog())
	}
	if its.endpoint = w.withOwn(name, shared, its); its.endpoint == shared {
		return shared // there is no end to the names of what is not there
	}
	key.principal, key.endpoint = strings.Clone(p.ID), its.endpoint.name
	w.personalEndpoints.put(key, its, its.endpoint.bytes())
	return its.endpoint
}

// withOwn makes an endpoint of the shared one, which may be nil, and of what a person has for
// themselves.
func (w *snapshot) withOwn(name string, shared *endpoint, its *personalEndpoint) *endpoint {
	if i := slices.IndexFunc(its.own, func(u *upstream.Upstream) bool { return u.Name() == name }); i >= 0 {
		alone := view.NewStock(its.own[i], its.sources[i], w.making)
		return w.newEndpoint(alone.Backend.Name(), "", view.Compile(name, []*view.Stock{alone}, true, nil))
	}
	if shared == nil || name != "" && !strings.HasSuffix(name, "/") {
		return shared
	}
	stocks := slices.Clone(shared.view.Stocks)
	only := w.config.Endpoints[strings.TrimSuffix(name, "/")].Upstreams
	for i, u := range its.own {
		if len(only) == 0 || slices.Contains(only, u.Name()) {
			stocks = append(stocks, view.NewStock(u, its.sources[i], w.making))
		}
	}
	if len(stocks) == len(shared.view.Stocks) {
		return shared
	}
	slices.SortStableFunc(stocks, func(a, b *view.Stock) int { return strings.Compare(a.Backend.Name(), b.Backend.Name()) })
	return w.newEndpoint(shared.name, shared.surface, shared.view.Derive(name, stocks))
}

// awaitPersonal waits a moment for those of the principal's upstreams that were started just now: a client
// that asks for the tools once should find them.
func (w *snapshot) awaitPersonal(ctx context.Context, p *auth.Principal) {
	for _, u := range w.personal(p) {
		u.Meet(ctx)
	}
}

// connecting returns what offers to connect the upstream that a name means, if that is what a call
// of it is about: t is the tool of that name, nil for none. Names of tools that an upstream had
// until its person was signed out are about that as well.
func (x *exchange) connecting(t *view.Target, name string) *view.Target {
	if t != nil {
		if t.Connects {
			return t
		}
		return nil
	}
	bare := x.subject.View.Bare
	for st := range x.subject.Sight().Stocks() {
		c := st.Connect(bare)
		if c == nil {
			continue
		}
		begin := x.snapshot.config.Names.Full(view.PrefixOf(c.Backend), "")
		if c.Exposed == name || c.Backend.Catalog().SignIn && (bare || begin != "" && strings.HasPrefix(name, begin)) {
			return c
		}
	}
	return nil
}

// connectRounds bounds for how long a call waits for a person who is connecting the upstream just
// now: about half a minute.
const connectRounds = 18

// connect answers the call that offers to connect an upstream.
func (s *Server) connect(ctx context.Context, x *exchange, t *view.Target, info *CallInfo) (result, error) {
	x.target = t
	info.Upstream, info.Own, info.Verdict = t.Backend.Name(), t.Name, policy.Allow.String()
	x.begin()
	var st state
	if x.era == upstream.EraModern {
		var err error
		if st, err = s.openState(x, x.call(t, nil), true); err != nil {
			return result{}, err
		}
	}
	err := t.Backend.SignedIn(ctx)
	for round := 0; st.Kind == stateConnect && round < connectRounds && needsSignIn(err) != nil; round++ {
		if err := pause(ctx, round); err != nil {
			return result{}, err
		}
		err = t.Backend.SignedIn(ctx)
	}
	if need := needsSignIn(err); need != nil {
		return s.offer(x, need)
	}
	if err != nil {
		return result{}, err
	}
	return s.ownResult(x, string(raw.AppendQuote([]byte(`"content":[{"type":"text","text":`), t.Backend.Name()+" is connected. Its tools are in the list now."))+"}]"), nil
}

// needsSignIn returns what a person has to do before a call can be made, nil if the error is about
// something else.
func needsSignIn(err error) *upstream.SignInError {
	need, _ := err.(*upstream.SignInError) // (*upstream.Upstream).Call and SignedIn return it as it is
	return need
}

// offer answers a call that a person has to sign in to an upstream for, in the way that the client
// can show best: a page to open in the browser, or words.
func (s *Server) offer(x *exchange, need *upstream.SignInError) (result, error) {
	x.offered = true
	message := signInMessage(need)
	if need.URL != "" && x.profile.URL && (x.era == upstream.EraModern && mcp.MCPMethod(x.msg.Method) != mcp.MethodCompletionComplete ||
		x.era == upstream.EraLegacy && x.session.version >= mcp.ProtocolVersion20251125) {
		data := raw.AppendQuote([]byte(`{"elicitations":[{"mode":"url","elicitationId":`), "junction-"+rand.Text())
		data = raw.AppendQuote(append(data, `,"url":`...), need.URL)
		data = append(raw.AppendQuote(append(data, `,"message":`...), message), "}]}"...)
		if x.era == upstream.EraModern {
			return s.openURLs(x, &jsonrpc.Error{Code: mcp.URL_ELICITATION_REQUIRED, Message: message, Data: data})
		}
		return result{}, &refusal{status: http.StatusOK, code: mcp.URL_ELICITATION_REQUIRED, text: message, data: data}
	}
	if need.URL != "" {
		message += ": open " + need.URL + " in your browser, and then try again."
	}
	if mcp.MCPMethod(x.msg.Method) != mcp.MethodToolsCall {
		e := failure(need.Upstream, signInKind(need), message)
		return result{}, &refusal{status: http.StatusOK, code: e.Code, text: e.Message, data: e.Data}
	}
	members := raw.AppendQuote([]byte(`"content":[{"type":"text","text":`), message)
	members = append(members, `}],"isError":true,"structuredContent":{"code":"`+signInKind(need)+`"`...)
	if need.URL != "" {
		members = raw.AppendQuote(append(members, `,"connect_url":`...), need.URL)
	}
	return s.ownResult(x, string(append(members, '}'))), nil
}

// The kinds of our error for what a person has to sign in for: at first, and once more.
const (
	kindNotConnected = "upstream_not_connected"
	kindReconnect    = "upstream_needs_reconnect"
)

func signInKind(need *upstream.SignInError) string {
	if need.Again {
		return kindReconnect
	}
	return kindNotConnected
}

func signInMessage(need *upstream.SignInError) string {
	if need.Again {
		return fmt.Sprintf("%s has to be connected again with your account there", need.Upstream)
	}
	return fmt.Sprintf("%s is not connected with your account there yet", need.Upstream)
}

// identity tells clients apart where upstreams separate them.
type identity struct {
	profile upstream.Profile
	session string // the key of a legacy session; "" in the modern era
}

// clientEndpoint is an endpoint with other catalogs for some of its upstreams; nil leaves that of the
// view.
type clientEndpoint struct {
	own  []*upstream.Catalog
	made *endpoint
}

// forClient returns the caller with its endpoint as its client sees it: c.who is set, and c.endpoint is
// the one that all clients of the principal share.
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

// clientEndpoint returns the endpoint e with other catalogs. It is made when it is first asked for, and
// again when it was not asked for in a while.
func (w *snapshot) clientEndpoint(e *endpoint, own []*upstream.Catalog) *endpoint {
	var h maphash.Hash
	h.SetSeed(fittingSeed)
	for _, catalog := range own {
		maphash.WriteComparable(&h, catalog)
	}
	key := h.Sum64()
	if known, ok := e.clientEndpoints.get(key); ok && slices.Equal(known.own, own) {
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
	if known := e.clientEndpoints.keep(key, func() (*clientEndpoint, int) { return f, bytes }); slices.Equal(known.own, own) {
		return known.made
	}
	return f.made // of another one with the same hash
}
