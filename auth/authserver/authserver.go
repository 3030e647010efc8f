// Package authserver is an authorization server for MCP clients, with the organisation's own identity
// provider behind it: clients find what they need here (metadata, registration, resource
// indicators), people sign in where they always do, and what a client is given is ours alone.
//
// A sign-in, by file: a client finds the endpoints (metadata.go) and says who it is (client.go,
// register.go, documents.go); its person's browser comes to authorize.go, which knows it again by a
// cookie (cookie.go), checks what is asked, shows who asks (pages.go), and sends a person who
// agrees to the provider (provider.go); callback.go takes the provider's answer; mint.go makes a
// code of it, and token.go and refresh.go tokens of the code, for a client that signs where it has
// keys (assertion.go). verify.go tells the guard whose a token is, account.go shows people what
// they have allowed and takes it back. redirect.go says where an answer may go. On the pages of
// connections.go people sign in to upstreams of their own. strangers.go bounds what anybody can
// have us do, and outside.go what we fetch from URLs of strangers. config.go is the section of the
// file.
//
// Whatever cannot be found out is 503, and nobody's sign-in is over for it.
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

	"golang.org/x/time/rate"

	"junction/auth"
	"junction/auth/seal"
	"junction/auth/store"
)

// Options is what a Server is made of. URL, Store and Keys are required.
type Options struct {
	Config Config // validated
	URL    string // where clients reach us, without a path: the issuer
	// beyond those that everybody gets, which a client may ask for: what they give is for policies
	// to say
	Scopes []string
	Store  *store.Store // stays the caller's
	Keys   *seal.Ring
	// HTTP asks the identity providers. Default: a client with a timeout. The operator names them,
	// so that they may be in a private network.
	HTTP *http.Client
	// Fetch reads what strangers' URLs name; nil reads none.
	Fetch Fetch
	// Granted reports whether any policy lets a person use anything; nil says yes. One that it does
	// not is told so before the client is given a token.
	Granted func(*auth.Principal) bool
	// Connector is who people connect upstreams by; nil: nobody connects any. MayUse reports
	// whether policies let a person use anything of an upstream; nil says yes.
	Connector Connector
	MayUse    func(p *auth.Principal, upstream string) bool
	// Address finds out where a request comes from, for what is written down; nil leaves that out.
	Address func(*http.Request) netip.Addr
	// Ended is called after grants have ended, also on another replica, so that streams that rest
	// on them can be closed. It may be nil.
	Ended func()
	Log   *slog.Logger     // nil discards
	Now   func() time.Time // nil is time.Now
}

// Server is the authorization server. It is an http.Handler, and the auth.Verifier of the tokens
// that it gives. Close it.
type Server struct {
	config       Config
	tokens       Tokens
	url, name    string
	resources    *auth.Resources
	scopes       []string
	store        *store.Store
	registrar    registrar
	documents    *documents // nil reads none
	static       map[string]*client
	providers    []*provider
	minter       minter
	cookies      [][]byte // keys
	granted      func(*auth.Principal) bool
	connector    Connector // nil: there is nothing to connect
	mayUse       func(*auth.Principal, string) bool
	links        *seal.Vault // of ConnectURL
	address      func(*http.Request) netip.Addr
	ended        func()
	log          *slog.Logger
	now          func() time.Time
	pages        *pages
	routes       http.Handler
	limits       rateLimits
	logOverLimit rate.Sometimes // says that an address is refused
	cache        tokenCache

	stop   context.CancelFunc
	polled sync.WaitGroup
}

// New returns a Server. It asks nobody for anything yet: a provider that is down keeps nothing from
// starting.
func New(o Options) (*Server, error) {
	f := &Server{
		config: o.Config, tokens: o.Config.Tokens.withDefaults(), url: o.URL, store: o.Store,
		static:  map[string]*client{},
		granted: o.Granted, connector: o.Connector, mayUse: o.MayUse, address: o.Address, ended: o.Ended, log: o.Log,
		now:    o.Now,
		limits: newRateLimits(), logOverLimit: rate.Sometimes{Interval: time.Minute},
	}
	f.config.Clients.AllowedSchemes = o.Config.Clients.schemes()
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Path != "" {
		return nil, fmt.Errorf("the URL of an authorization server ends after the host: %q", o.URL)
	}
	f.name = cmp.Or(f.config.Name, u.Host)
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	if f.now == nil {
		f.now = time.Now
	}
	f.scopes = slices.Clone(scopes)
	for _, scope := range o.Scopes {
		if !slices.Contains(f.scopes, scope) {
			f.scopes = append(f.scopes, scope)
		}
	}
	f.resources = auth.NewResources(f.url, []string{f.url}, []string{scopeMCP})
	registration, err := o.Keys.Secrets("dcr")
	if err != nil {
		return nil, err
	}
	f.registrar = newRegistrar(registration...)
	if f.cookies, err = o.Keys.Secrets("cookie"); err != nil {
		return nil, err
	}
	if f.links, err = o.Keys.Vault("connect"); err != nil {
		return nil, err
	}
	secrets, err := o.Keys.Secrets("oauth-hmac")
	if err != nil {
		return nil, err
	}
	asker := cmp.Or(o.HTTP, &http.Client{Timeout: providerPatience})
	for _, p := range o.Config.IdentityProviders {
		f.providers = append(f.providers,
			&provider{IdentityProvider: p, redirect: f.url + "/oauth/callback/" + p.ID, http: asker, now: f.now})
	}
	for _, s := range o.Config.Clients.Static {
		f.static[s.ID] = &client{ID: s.ID, Kind: kindStatic, Name: cmp.Or(s.Name, s.ID), Redirects: s.RedirectURIs}
	}
	if o.Config.Clients.CIMD.Trust != trustOff && (o.Fetch != nil || len(o.Config.Clients.CIMD.StaticDocuments) > 0) {
		if f.documents, err = newDocuments(f, o.Fetch); err != nil {
			return nil, err
		}
	}
	if f.pages, err = newPages(); err != nil {
		return nil, err
	}
	f.minter = minter{secrets}
	f.cache.tokens = map[auth.Hash]*knownToken{}
	f.routes = f.router()
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	f.polled.Go(func() { f.poll(ctx) })
	return f, nil
}

// Close ends the Server; the store stays open.
func (srv *Server) Close() {
	srv.stop()
	srv.polled.Wait()
}

func (srv *Server) router() http.Handler {
	m := http.NewServeMux()
	// for programs, also those that run in a browser on another page
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
				// An authorization server says 400 to a GET of the token endpoint, which clients
				// understand (RFC 6749, section 5.2).
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
	const get, post = "GET, HEAD, OPTIONS", "POST, OPTIONS"
	public("/.well-known/oauth-authorization-server", srv.metadata, get)
	// for clients that look below the path of the endpoint
	public("/.well-known/oauth-authorization-server/", srv.metadata, get)
	public("/oauth/register", srv.limited(srv.limits.register, srv.register), post)
	public("/oauth/token", srv.limited(srv.limits.token, srv.token), post)
	public("/oauth/revoke", srv.limited(srv.limits.revoke, srv.revoke), post)
	begins := func(pattern string, answer http.HandlerFunc) {
		m.HandleFunc(pattern, srv.limitedPage(srv.limits.begin, answer))
	}
	goesOn := func(pattern string, answer http.HandlerFunc) {
		m.HandleFunc(pattern, srv.limitedPage(srv.limits.finish, answer))
	}
	begins("GET /oauth/authorize", srv.authorize)
	begins("POST /oauth/authorize", srv.authorize)
	goesOn("POST /oauth/consent", srv.consent)
	goesOn("GET /oauth/continue", srv.continueRequest)
	goesOn("GET /oauth/callback/{idp}", srv.callback)
	public("/oauth/client-metadata.json", srv.clientDocument, get)
	begins("GET /connect/{upstream}", srv.connectPage)
	goesOn("POST /connect/{upstream}", srv.connectUpstream)
	goesOn("GET /connect/{upstream}/callback", srv.connectCallback)
	goesOn("POST /connect/{upstream}/disconnect", srv.disconnect)
	begins("GET /account", srv.account)
	goesOn("POST /account/grants/{id}/revoke", srv.revokeGrant)
	goesOn("POST /account/logout", srv.logout)
	m.HandleFunc("GET /{$}", srv.instructions)
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/account") || strings.HasPrefix(r.URL.Path, "/connect/") ||
			strings.HasPrefix(r.URL.Path, "/oauth/c") {
			srv.page(w, http.StatusNotFound, "error",
				pageData{Title: "There is no such page", Text: "The address is not one of this server's."})
			return
		}
		fail(w, http.StatusNotFound, "not_found", "nothing is here")
	})
	return m
}

// ServeHTTP answers a request. Pages, the log and the audit have its id where whoever serves it has
// given it one, with auth.RequestIDs.
func (srv *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	by := caller{request: auth.RequestID(w)}
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

// caller is where a request comes from, and its id, in the words of what is written down; "" where
// that is not known.
type caller struct {
	address, request string
	from             netip.Addr // the zero Addr where it is not known
}

// network is what a caller counts by where rows are bounded, "" where it is not known.
func (c caller) network() string {
	if n := networkOf(c.from); n.IsValid() {
		return n.String()
	}
	return ""
}

// callerKey finds the caller in the context of a request.
type callerKey struct{}

func callerOf(ctx context.Context) caller {
	by, _ := ctx.Value(callerKey{}).(caller)
	return by
}

// maxBody bounds every body that is sent to us; a form with an assertion has a few kilobytes.
const maxBody = 64 << 10

// away answers a program when something that we need cannot be reached. It is never the client's
// fault, and never the end of a sign-in.
func (srv *Server) answerOutage(w http.ResponseWriter, r *http.Request, err error) {
	level := slog.LevelError
	if _, theirs := errors.AsType[*fetchError](err); theirs { // a stranger can cause as many of these as they like
		if level = slog.LevelWarn; srv.limits.events.pass(callerOf(r.Context()).from, srv.now()) != withinLimit {
			level = slog.LevelDebug
		}
	}
	if r.Context().Err() == nil {
		srv.log.Log(r.Context(), level, "a sign-in request could not be answered",
			"path", r.URL.Path, "request_id", auth.RequestID(w), "error", err)
	}
	w.Header().Set("Retry-After", "5")
	fail(w, http.StatusServiceUnavailable, "temporarily_unavailable",
		"the sign-in service cannot answer now; try again in a moment")
}

// fail answers a program with an error (RFC 6749, section 5.2).
func fail(w http.ResponseWriter, status int, code, description string) {
	reply(w, status, struct {
		Error       string `json:"error"`
		Description string `json:"error_description,omitempty"`
	}{code, description})
}

// reply answers with JSON that nobody keeps, unless a header says otherwise already.
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

// resource returns the canonical name of the endpoint that a client means, "" if it means none of
// ours. Whoever names none means the one over everything.
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

// derive returns a secret that is made of others, the same each time. It is made with the first
// key.
func (srv *Server) derive(purpose string, of ...string) string {
	return derive(srv.cookies[0], purpose, of)
}

// derived reports whether a text was derived so, with whatever key.
func (srv *Server) derived(text, purpose string, of ...string) bool {
	return slices.ContainsFunc(srv.cookies,
		func(key []byte) bool { return hmac.Equal([]byte(text), []byte(derive(key, purpose, of))) })
}

func derive(key []byte, purpose string, of []string) string {
	h := hmac.New(sha256.New, key)
	fmt.Fprintf(h, "%s", purpose)
	for _, s := range of {
		fmt.Fprintf(h, "|%d|%s", len(s), s)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// isOver reports whether an error of the store says something about a row, as opposed to one that
// kept us from finding out.
func isOver(err error) bool {
	return errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrExpired) || errors.Is(err, store.ErrUsed) ||
		errors.Is(err, store.ErrRevoked)
}
