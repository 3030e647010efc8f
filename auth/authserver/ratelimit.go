package authserver

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"junction/auth"
	"junction/upstream/bounded"
)

// rateLimit limits unauthenticated requests: per source network, and in total. One network gets a
// twentieth of the rate and a fifth of the burst, so that it cannot use up the limit of the others.
// Make it with newRateLimit.
type rateLimit struct {
	what string                // of Limitable
	near sources[netip.Prefix] // IPv4 /32, IPv6 /64
	wide sources[netip.Prefix] // IPv6 /48, which one customer often has: four times as much
	all  *rate.Limiter
}

func newRateLimit(what string, perSecond rate.Limit, burst int) *rateLimit {
	return &rateLimit{
		what: what,
		near: sources[netip.Prefix]{limit: perSecond / 20, burst: max(1, burst/5)},
		wide: sources[netip.Prefix]{limit: perSecond / 5, burst: max(1, burst*4/5)},
		all:  rate.NewLimiter(perSecond, burst),
	}
}

// limitResult is the decision of a rateLimit.
type limitResult int

const (
	withinLimit     limitResult = iota
	overSourceLimit             // of this network
	overTotalLimit              // of all networks
)

// pass counts an event and decides whether it may happen. A rejection for the source does not count
// against the total.
func (g *rateLimit) pass(from netip.Addr, now time.Time) limitResult {
	if !g.near.pass(networkOf(from), now) {
		return overSourceLimit
	}
	if wide := wideNetworkOf(from); wide.IsValid() && !g.wide.pass(wide, now) {
		return overSourceLimit
	}
	if !g.all.AllowN(now, 1) {
		return overTotalLimit
	}
	return withinLimit
}

// networkOf returns the network that counts as one source: an IPv6 address counts as its /64.
// Unknown addresses share the zero network.
func networkOf(from netip.Addr) netip.Prefix {
	bits := 32
	if from.Is6() {
		bits = 64
	}
	network, _ := from.Prefix(bits)
	return network
}

// wideNetworkOf returns the /48 of an IPv6 address; other addresses have none.
func wideNetworkOf(from netip.Addr) (network netip.Prefix) {
	if from.Is6() {
		network, _ = from.Prefix(48)
	}
	return network
}

// sources are the limiters of the networks, or of the grants, seen recently.
type sources[K comparable] struct {
	limit rate.Limit
	burst int

	mu sync.Mutex
	by map[K]*rate.Limiter
}

const maxSources = 4096 // for each rateLimit; 100 to 200 bytes each

func (s *sources[K]) pass(source K, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.by[source]
	if l == nil {
		l = rate.NewLimiter(s.limit, s.burst)
		// A limiter with its full burst may go, since the network would begin with another such.
		bounded.Put(&s.by, maxSources, source, l,
			func(l *rate.Limiter) bool { return l.TokensAt(now) >= float64(s.burst) })
	}
	return l.AllowN(now, 1)
}

// What Options.Limited is called with.
const (
	limitSignIn   = "sign_in"  // a page that begins a sign-in or the connection of a server
	limitPage     = "page"     // a page after it
	limitRegister = "register" // the registration of a client
	limitToken    = "token"    // a request for a token, but no refresh of one that this server has made
	limitRefresh  = "refresh"
	limitRevoke   = "revoke"
	limitLogout   = "logout" // of a provider
)

// Limitable returns what Options.Limited is called with. Only a test needs the list: it compares the counts
// that telemetry begins with 0 with these words.
func Limitable() []string {
	return []string{limitSignIn, limitPage, limitRegister, limitToken, limitRefresh, limitRevoke, limitLogout}
}

// rateLimits are the limits of the endpoints that need no credential. Each endpoint has its own, so
// that a flood of one does not block the others.
type rateLimits struct {
	begin    *rateLimit // pages that store a request
	finish   *rateLimit // the pages after them, so that started sign-ins can go on
	register *rateLimit
	token    *rateLimit // without a code or token that this server has made
	known    knownLimit // token requests of clients that users have signed in
	revoke   *rateLimit
	logout   *rateLimit // of a provider, which may end the sessions of all its users at once
	fetches  *rateLimit // of documents, for clients that no user has allowed
	events   *rateLimit // written to the audit

	knownBegin, knownFinish knownLimit // pages in browsers in which a user has signed in
	requests                int        // stored requests of one network, before its oldest go
}

func newRateLimits(l Limits) rateLimits {
	pages, tokens := rate.Limit(20*l.Pages), rate.Limit(20*l.Tokens)
	return rateLimits{
		begin:    newRateLimit(limitSignIn, pages, 200*l.Pages),
		finish:   newRateLimit(limitPage, 2*pages, 400*l.Pages),
		register: newRateLimit(limitRegister, pages, 200*l.Pages),
		token:    newRateLimit(limitToken, tokens, 100*l.Tokens),
		known: knownLimit{by: sources[string]{limit: 1, burst: 100},
			near: sources[netip.Prefix]{limit: tokens / 5, burst: 20 * l.Tokens},
			all:  rate.NewLimiter(tokens, 100*l.Tokens)},
		revoke:  newRateLimit(limitRevoke, 100, 1000),
		logout:  newRateLimit(limitLogout, rate.Limit(200*l.Pages), 1000*l.Pages),
		fetches: newRateLimit("", 2, 60), events: newRateLimit("", rate.Every(6*time.Second), 60),
		knownBegin: newKnownPages(pages, 200*l.Pages), knownFinish: newKnownPages(2*pages, 400*l.Pages),
		requests: 200 + 64*max(0, l.Pages-5),
	}
}

// knownLimit limits requests with something that this server has made for a user who has signed in: a
// code, a refresh token or a cookie. It limits by that, by address and in total. So users behind one
// address do not share its limit with strangers.
type knownLimit struct {
	by   sources[string]
	near sources[netip.Prefix] // a person can have many codes
	all  *rate.Limiter
}

// newKnownPages returns the limit of pages in known browsers. One address has as much as all strangers.
func newKnownPages(perSecond rate.Limit, burst int) knownLimit {
	return knownLimit{by: sources[string]{limit: 1, burst: 60},
		near: sources[netip.Prefix]{limit: perSecond, burst: burst}, all: rate.NewLimiter(4*perSecond, 4*burst)}
}

// pass counts a request and decides whether it may happen.
func (k *knownLimit) pass(source string, from netip.Addr, now time.Time) limitResult {
	switch {
	case !k.by.pass(source, now), !k.near.pass(networkOf(from), now):
		return overSourceLimit
	case !k.all.AllowN(now, 1):
		return overTotalLimit
	}
	return withinLimit
}

// limitedToken wraps the token endpoint with the limit of known clients or of strangers.
func (srv *Server) limitedToken(answer http.HandlerFunc) http.HandlerFunc {
	strangers := srv.limited(srv.limits.token, answer)
	return func(w http.ResponseWriter, r *http.Request) {
		q, err := form(r)
		if err != nil {
			strangers(w, r)
			return
		}
		source, what := srv.minter.grant(q.Get("refresh_token")), limitRefresh
		if source == "" {
			what = limitToken
			source, _ = srv.minter.signature(q.Get("code"), codePrefix)
		}
		if source == "" {
			strangers(w, r)
			return
		}
		switch srv.limits.known.pass(source, callerOf(r.Context()).from, srv.now()) {
		case overSourceLimit:
			srv.limitReached(what)
			w.Header().Set("Retry-After", "5")
			fail(w, http.StatusTooManyRequests, "temporarily_unavailable",
				"this sign-in sends too many token requests; wait a few seconds, then try again")
		case overTotalLimit:
			srv.limitReached(what)
			w.Header().Set("Retry-After", "2")
			fail(w, http.StatusTooManyRequests, "temporarily_unavailable",
				"this server gets too many requests; wait a few seconds, then try again")
		default:
			answer(w, r)
		}
	}
}

// limited wraps a handler for programs with a rate limit.
func (srv *Server) limited(g *rateLimit, answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if why := srv.overLimit(g, w, r); why != "" {
			fail(w, http.StatusTooManyRequests, "temporarily_unavailable", why)
			return
		}
		answer(w, r)
	}
}

// limitedPage wraps a handler for people with a rate limit: one for known browsers, and one for strangers.
func (srv *Server) limitedPage(g *rateLimit, known *knownLimit, answer pageHandler) pageHandler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var why string
		if browser := srv.knownBrowser(r); browser == "" {
			why = srv.overLimit(g, w, r)
		} else if known.pass(browser, callerOf(r.Context()).from, srv.now()) != withinLimit {
			srv.limitReached(g.what)
			w.Header().Set("Retry-After", "5")
			why = "This browser, or your network address, opens too many pages. Wait a few seconds, then try again."
		}
		var err error
		if why == "" {
			why = srv.receive(g.what, w, r, func() { err = answer(w, r) })
		}
		if why != "" {
			return stop(http.StatusTooManyRequests, pageData{Title: "Too many requests", Text: why})
		}
		return err
	}
}

// overLimit returns the reason to reject a request, "" if it is within the limit.
func (srv *Server) overLimit(g *rateLimit, w http.ResponseWriter, r *http.Request) string {
	return srv.rejection(g.what, g.pass(callerOf(r.Context()).from, srv.now()), tooManyRequests, w, r)
}

const (
	tooManyRequests = "rejecting sign-in requests: too many from one address. If it is a reverse proxy, " +
		"add it to auth.trusted_proxies; if many users share it, raise auth.oauth.limits"
	tooManyBodies = "rejecting sign-in requests: too many unfinished ones from one address. " +
		"If it is a reverse proxy, add it to auth.trusted_proxies"
)

// rejection returns the reason to reject a request with such a result, "" if it is within the limit. what
// is one of Limitable. advice is logged if one address has reached its limit.
func (srv *Server) rejection(what string, over limitResult, advice string, w http.ResponseWriter,
	r *http.Request) string {
	if over != withinLimit {
		srv.limitReached(what)
	}
	switch over {
	case overSourceLimit:
		by := callerOf(r.Context())
		srv.logOverLimit.Do(func() {
			srv.log.Warn(advice, "address", by.address, "path", r.URL.Path, auth.LoggedIDs(by.request, by.trace))
		})
		w.Header().Set("Retry-After", "5")
		return "Your network address sends too many requests. Wait a few seconds, then try again."
	case overTotalLimit:
		w.Header().Set("Retry-After", "2")
		return "This server gets too many requests. Wait a few seconds, then try again."
	}
	return ""
}
