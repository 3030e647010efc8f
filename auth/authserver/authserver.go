// Package authserver is an OAuth authorization server for MCP clients. People sign in at the
// organisation's own OpenID Connect provider; clients receive tokens that this package issues. It
// adds what MCP clients need and most providers lack: dynamic client registration, client metadata
// documents and resource indicators.
//
// A sign-in, by file:
//
//  1. metadata.go tells a client the endpoints.
//  2. client.go identifies the client: by its registration (register.go), by its metadata document
//     (documents.go), or by the configuration.
//  3. authorize.go checks the authorization request, shows the consent page (pages.go), and sends
//     the browser to the provider (package provider). A cookie (cookie.go) binds the request to the
//     browser.
//  4. callback.go takes the provider's answer, or asks the provider about a user who was already signed in
//     (refresh.go), stores the grant, and returns a code to the client. redirect.go decides which
//     redirect URIs are allowed.
//  5. token.go exchanges the code, and refresh.go a refresh token, for new tokens. mint.go makes and
//     checks their strings. assertion.go authenticates clients that sign with a key.
//  6. verify.go tells the guard who a token belongs to, and disabled.go which users it must refuse.
//     logout.go takes the logouts of a provider.
//
// The package provider asks the identity providers: who signs in, and whether a session still stands.
// account.go is the page on which users see and revoke their grants. connections.go holds the pages
// on which users sign in to upstreams. ratelimit.go limits unauthenticated requests, and fetcher.go
// limits fetches from URLs that clients supply. config.go is the section auth.oauth of the file, and
// others.go is about a change of it that is rolled out process by process.
//
// If the server cannot decide, because the database or the provider is down, it answers 503. An
// outage never ends a sign-in.
package authserver

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"golang.org/x/time/rate"

	"junction/auth"
	"junction/auth/authserver/provider"
	"junction/auth/seal"
	"junction/auth/store"
)

// Options configures New. URL, Store and Keys are required.
type Options struct {
	Config Config // validated
	URL    string // where clients reach this server, without a path; also the issuer
	// Scopes are further scopes that a client may request. Policies decide what they give.
	Scopes []string
	Store  *store.Store // New does not take ownership
	Keys   *seal.Ring
	// HTTP calls the identity providers, which may be in a private network. Default: a client with
	// a timeout.
	HTTP *http.Client
	// Fetch reads documents from URLs that clients supply; nil reads none.
	Fetch Fetch
	// Granted reports whether any policy lets a user use anything. A user without any access is
	// told so before the client receives a code. nil grants.
	Granted func(*auth.Principal) bool
	// Connector signs users in to upstreams; nil disables that. MayUse reports whether policies let
	// a user use anything of an upstream; nil grants.
	Connector Connector
	// Keeper keeps the keys of users for upstreams; nil if there are none. It needs a Connector.
	Keeper Keeper
	// SignInWords and KeyWords are the words of the account page for the upstreams of Connector and Keeper.
	SignInWords, KeyWords Words

	MayUse func(p *auth.Principal, upstream string) bool
	// Servers returns the names of the upstreams of which policies let a user use anything, sorted, for
	// the account page; nil shows none.
	Servers func(p *auth.Principal) []string
	// Address returns the client address of a request, for the log and the audit. It may be nil.
	Address func(*http.Request) netip.Addr
	// Others are the other processes over the same database; nil if there are none.
	Others auth.Others
	// Ended is called after grants have ended or users were disabled, on this replica or another, so that
	// their streams can be closed. It may be nil.
	Ended func()
	// Limited is called for each request that is rejected because of a limit, with one of Limitable. It
	// may be nil.
	Limited func(what string)
	Log     *slog.Logger     // nil discards
	Now     func() time.Time // nil is time.Now
}

// Server is the authorization server. It is an http.Handler, and the auth.Verifier of the tokens
// that it issues. Close it.
type Server struct {
	config       Config
	tokens       Tokens
	url, name    string
	resources    *auth.Resources
	scopes       []string
	store        *store.Store
	registrar    registrar
	documents    *documents // nil if disabled
	static       map[string]*client
	providers    []*provider.Provider
	minter       minter
	cookies      [][]byte // keys
	granted      func(*auth.Principal) bool
	connector    Connector // nil if there is nothing to connect
	keeper       Keeper    // nil if there are no keys
	signInWords  Words
	keyWords     Words
	mayUse       func(*auth.Principal, string) bool
	servers      func(*auth.Principal) []string
	links        *seal.Vault // of ConnectURL
	address      func(*http.Request) netip.Addr
	others       auth.Others // nil if there are none
	ended        func()
	limitReached func(what string)
	log          *slog.Logger
	now          func() time.Time
	pages        *pages
	routes       http.Handler
	limits       rateLimits
	bodies       bodies
	logOverLimit rate.Sometimes // limits the log line about rejected addresses
	cache        tokenCache
	disabled     directory

	stop   context.CancelFunc
	polled sync.WaitGroup

	finding sync.Mutex // held by FindRevoked
	found   time.Time  // grants that ended before it are known; guarded by finding
}

// CheckProviders reads the metadata of the identity providers. Sign-ins use what has changed there, and
// the last good metadata of a provider that does not serve them; CheckProviders returns an error for
// each of these. Call it now and then. It blocks on the network, at most until ctx ends.
func (srv *Server) CheckProviders(ctx context.Context) error {
	var errs []error
	for _, p := range srv.providers {
		changed, err := p.Check(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.Label(), err))
		}
		if len(changed) > 0 {
			srv.log.Info("the metadata of an identity provider have changed", "provider", p.ID,
				"changed", strings.Join(changed, ", "))
		}
	}
	return errors.Join(errs...)
}

// New returns a Server and starts its poller. It does not contact the identity providers, so that
// the program starts while a provider is down.
func New(o Options) (*Server, error) {
	f := &Server{
		config: o.Config, tokens: o.Config.Tokens.withDefaults(), url: o.URL, store: o.Store,
		static:  map[string]*client{},
		granted: o.Granted, connector: o.Connector, keeper: o.Keeper, mayUse: o.MayUse,
		signInWords: o.SignInWords, keyWords: o.KeyWords,
		servers: o.Servers, address: o.Address, others: o.Others, ended: o.Ended, limitReached: o.Limited,
		log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), now: o.Now,
		limits: newRateLimits(o.Config.Limits.withDefaults()), logOverLimit: rate.Sometimes{Interval: time.Minute},
	}
	f.config.Clients.AllowedSchemes = o.Config.Clients.schemes()
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Path != "" {
		return nil, fmt.Errorf("the URL of an authorization server must have no path: %q", o.URL)
	}
	f.name = cmp.Or(f.config.Name, u.Host)
	if f.now == nil {
		f.now = time.Now
	}
	if f.limitReached == nil {
		f.limitReached = func(string) {}
	}
	f.scopes = append(slices.Clone(scopes),
		slices.DeleteFunc(slices.Clone(o.Scopes), func(s string) bool { return slices.Contains(scopes, s) })...)
	f.resources = auth.NewResources(f.url, []string{f.url}, []string{scopeMCP})
	f.registrar, f.minter = newRegistrar(o.Keys.Secrets("dcr")...), minter{o.Keys.Secrets("oauth-hmac")}
	f.cookies, f.links = o.Keys.Secrets("cookie"), o.Keys.Vault("connect")
	for _, p := range o.Config.IdentityProviders {
		f.providers = append(f.providers, provider.New(p, f.url+"/oauth/callback/"+p.ID, o.HTTP, f.now))
	}
	for _, s := range o.Config.Clients.Static {
		f.static[s.ID] = &client{ID: s.ID, Kind: kindStatic, Name: cmp.Or(s.Name, s.ID), Redirects: s.RedirectURIs}
	}
	if o.Config.Clients.CIMD.Trust != trustOff && (o.Fetch != nil || len(o.Config.Clients.CIMD.StaticDocuments) > 0) {
		if f.documents, err = newDocuments(f, o.Fetch); err != nil {
			return nil, err
		}
	}
	f.pages = newPages()
	f.cache.tokens, f.cache.ended = map[auth.Hash]*knownToken{}, map[string]time.Time{}
	f.routes = f.router()
	f.found = f.now().Add(-clockMargin)
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	f.polled.Go(func() { f.poll(ctx) })
	return f, nil
}

// Close stops the Server and waits for its poller. The store stays open.
func (srv *Server) Close() {
	srv.stop()
	srv.polled.Wait()
}

func (srv *Server) router() http.Handler {
	m := chi.NewRouter()
	// public endpoints are for programs, including scripts of other origins in a browser
	public := func(pattern string, answer http.HandlerFunc, methods string) {
		m.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("Access-Control-Allow-Origin", "*")
			h.Set("Access-Control-Expose-Headers", "WWW-Authenticate, Retry-After, X-Request-Id")
			if r.Method == http.MethodOptions {
				h.Set("Access-Control-Allow-Methods", methods)
				h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Mcp-Protocol-Version")
				h.Set("Access-Control-Max-Age", "600")
				w.WriteHeader(http.StatusNoContent)
				return
			}
			if !strings.Contains(methods, r.Method) {
				h.Set("Allow", methods)
				// OAuth clients expect 400 from the token endpoint (RFC 6749, section 5.2).
				status := http.StatusMethodNotAllowed
				if r.URL.Path == "/oauth/token" {
					status = http.StatusBadRequest
				}
				fail(w, status, "invalid_request", "use "+methods)
				return
			}
			answer(w, r)
		})
	}
	const reads, post = "GET, HEAD, OPTIONS", "POST, OPTIONS"
	public("/.well-known/oauth-authorization-server", srv.metadata, reads)
	// for clients that append the path of the endpoint
	public("/.well-known/oauth-authorization-server/*", srv.metadata, reads)
	public("/oauth/register", srv.limited(srv.limits.register, srv.received(limitRegister, srv.register)), post)
	public("/oauth/token", srv.received(limitToken, srv.limitedToken(srv.token)), post)
	public("/oauth/revoke", srv.limited(srv.limits.revoke, srv.received(limitRevoke, srv.revoke)), post)
	m.HandleFunc(logoutPath+"{idp}", srv.limited(srv.limits.logout, srv.received(limitLogout, srv.backchannelLogout)))
	get := func(pattern string, answer http.Handler) {
		m.Method(http.MethodGet, pattern, answer)
		m.Method(http.MethodHead, pattern, answer)
	}
	begins := func(answer pageHandler) http.Handler {
		return srv.forPeople(srv.limitedPage(srv.limits.begin, &srv.limits.knownBegin, answer))
	}
	goesOn := func(answer pageHandler) http.Handler {
		return srv.forPeople(srv.limitedPage(srv.limits.finish, &srv.limits.knownFinish, answer))
	}
	get("/oauth/authorize", begins(srv.authorize))
	m.Method(http.MethodPost, "/oauth/authorize", begins(srv.authorize))
	m.Method(http.MethodPost, "/oauth/consent", goesOn(srv.consent))
	get("/oauth/continue", goesOn(srv.continueRequest))
	get("/oauth/callback/{idp}", goesOn(srv.callback))
	public("/oauth/client-metadata.json", srv.clientDocument, reads)
	get("/connect/{upstream}", begins(srv.forUpstream(srv.connectPage)))
	m.Method(http.MethodPost, "/connect/{upstream}", goesOn(srv.forUpstream(srv.connectUpstream)))
	get("/connect/{upstream}/callback", goesOn(srv.forUpstream(srv.connectCallback)))
	m.Method(http.MethodPost, "/connect/{upstream}/disconnect", goesOn(srv.accountForm(srv.disconnect)))
	get("/account", begins(srv.account))
	m.Method(http.MethodPost, "/account/grants/{id}/revoke", goesOn(srv.accountForm(srv.revokeGrant)))
	m.Method(http.MethodPost, "/account/signout", goesOn(srv.accountForm(srv.signOut)))
	m.Method(http.MethodPost, "/account/logout", goesOn(srv.accountForm(srv.logout)))
	get("/", srv.forPeople(srv.instructions))
	// another method of a page has the same answer as a path without a page
	m.NotFound(srv.forPeople(noPage).ServeHTTP)
	m.MethodNotAllowed(srv.forPeople(noPage).ServeHTTP)
	return m
}

// noPage answers a request for a path that does not exist: people get a page, programs an error.
func noPage(w http.ResponseWriter, r *http.Request) error {
	for _, page := range []string{"/account", "/connect/", "/oauth/c"} {
		if strings.HasPrefix(r.URL.Path, page) {
			return errNoPage
		}
	}
	fail(w, http.StatusNotFound, "not_found", "no such endpoint")
	return nil
}

// ServeHTTP answers a request. Pages, log lines and audit rows contain the request id if the caller
// has set one with auth.RequestIDs.
func (srv *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	by := caller{request: auth.RequestID(w), trace: auth.TraceID(r)}
	if srv.address != nil {
		if by.from = srv.address(r); by.from.IsValid() {
			by.address = by.from.String()
		}
	}
	r = r.WithContext(context.WithValue(r.Context(), callerKey{}, by))
	if r.Body != nil {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	}
	srv.routes.ServeHTTP(w, r)
}

// caller is the address and the ids of a request, as logged; "" if unknown.
type caller struct {
	address, request, trace string
	from                    netip.Addr // the zero Addr if unknown
}

// network is the network by which stored rows are limited, "" if unknown.
func (c caller) network() string {
	if n := networkOf(c.from); n.IsValid() {
		return n.String()
	}
	return ""
}

// callerKey is the context key of the caller.
type callerKey struct{}

func callerOf(ctx context.Context) caller {
	by, _ := ctx.Value(callerKey{}).(caller)
	return by
}

// maxBody is the largest request body in bytes. A form with a client assertion has a few kilobytes.
const maxBody = 64 << 10

// answerOutage answers a program with 503 if something that the server needs cannot be reached. The
// client keeps its tokens.
func (srv *Server) answerOutage(w http.ResponseWriter, r *http.Request, err error) {
	level := slog.LevelError
	// anyone can cause these
	_, fetch := errors.AsType[*fetchError](err)
	_, undecided := errors.AsType[*undecidedError](err)
	if fetch || undecided || errors.Is(err, provider.ErrUnchecked) {
		if level = slog.LevelWarn; srv.limits.events.pass(callerOf(r.Context()).from, srv.now()) != withinLimit {
			level = slog.LevelDebug
		}
	}
	if r.Context().Err() == nil {
		srv.log.Log(r.Context(), level, "cannot answer a sign-in request",
			"path", r.URL.Path, auth.LogIDs(w, r), "error", err)
	}
	w.Header().Set("Retry-After", "5")
	fail(w, http.StatusServiceUnavailable, "temporarily_unavailable",
		"the sign-in service is temporarily unavailable; try again in a moment")
}

// fail answers with an OAuth error as JSON (RFC 6749, section 5.2).
func fail(w http.ResponseWriter, status int, code, description string) {
	reply(w, status, struct {
		Error       string `json:"error"`
		Description string `json:"error_description,omitempty"`
	}{code, description})
}

// reply answers with JSON, with Cache-Control: no-store unless that header is already set.
func reply(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":"server_error"}`)
	}
	write(w, status, body)
}

func write(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// resource returns the canonical name of a requested resource, "" if it is not an endpoint of this
// server. An empty request means the endpoint that merges all upstreams.
func (srv *Server) resource(given string) string {
	if given == "" {
		given = srv.url
	}
	return srv.resources.Canonical(given)
}

// secret returns 256 random bits in 43 characters.
func secret() string {
	b := make([]byte, 32)
	rand.Read(b) // never fails, see crypto/rand
	return base64.RawURLEncoding.EncodeToString(b)
}

// derive returns a secret computed from its arguments with the first key. Equal arguments give
// equal secrets.
func (srv *Server) derive(purpose string, inputs ...string) string {
	return derive(srv.cookies[0], purpose, inputs)
}

// derived reports whether derive made the text with any of the keys.
func (srv *Server) derived(text, purpose string, inputs ...string) bool {
	return slices.ContainsFunc(srv.cookies,
		func(key []byte) bool { return hmac.Equal([]byte(text), []byte(derive(key, purpose, inputs))) })
}

func derive(key []byte, purpose string, inputs []string) string {
	h := hmac.New(sha256.New, key)
	fmt.Fprintf(h, "%s", purpose)
	for _, s := range inputs {
		fmt.Fprintf(h, "|%d|%s", len(s), s)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// isOver reports whether an error of the store describes the row (missing, expired, used or
// revoked), and not a failure of the store.
func isOver(err error) bool {
	return errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrExpired) || errors.Is(err, store.ErrUsed) ||
		errors.Is(err, store.ErrRevoked)
}
