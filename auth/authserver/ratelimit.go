package authserver

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"junction/upstream/bounded"
)

// rateLimit limits unauthenticated requests: per source network, and in total. One network gets a
// twentieth of the rate and a fifth of the burst, so that it cannot use up the limit of the others.
// Make it with newRateLimit.
type rateLimit struct {
	near sources // IPv4 /32, IPv6 /64
	wide sources // IPv6 /48, which one customer often has: four times as much
	all  *rate.Limiter
}

func newRateLimit(perSecond rate.Limit, burst int) *rateLimit {
	return &rateLimit{
		near: sources{limit: perSecond / 20, burst: max(1, burst/5)},
		wide: sources{limit: perSecond / 5, burst: max(1, burst*4/5)},
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
	if wide, err := from.Prefix(48); err == nil && from.Is6() && !g.wide.pass(wide, now) {
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

// sources are the limiters of the networks seen recently.
type sources struct {
	limit rate.Limit
	burst int

	mu sync.Mutex
	by map[netip.Prefix]*rate.Limiter
}

const maxSources = 4096 // for each rateLimit; 100 to 200 bytes each

func (s *sources) pass(network netip.Prefix, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.by[network]
	if l == nil {
		l = rate.NewLimiter(s.limit, s.burst)
		// A limiter with its full burst may go, since the network would begin with another such.
		bounded.Put(&s.by, maxSources, network, l,
			func(l *rate.Limiter) bool { return l.TokensAt(now) >= float64(s.burst) })
	}
	return l.AllowN(now, 1)
}

// rateLimits are the limits of the endpoints that need no credential. Each endpoint has its own, so
// that a flood of one does not block the others.
type rateLimits struct {
	begin    *rateLimit // pages that store a request
	finish   *rateLimit // the pages after them, so that started sign-ins can go on
	register *rateLimit
	token    *rateLimit
	revoke   *rateLimit
	fetches  *rateLimit // of documents, for clients that no user has allowed
	events   *rateLimit // written to the audit
}

func newRateLimits() rateLimits {
	return rateLimits{
		begin: newRateLimit(100, 1000), finish: newRateLimit(200, 2000),
		register: newRateLimit(100, 1000), token: newRateLimit(500, 2500), revoke: newRateLimit(100, 1000),
		fetches: newRateLimit(2, 60), events: newRateLimit(rate.Every(6*time.Second), 60),
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

// limitedPage wraps a handler for people with a rate limit.
func (srv *Server) limitedPage(g *rateLimit, answer pageHandler) pageHandler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if why := srv.overLimit(g, w, r); why != "" {
			return stop(http.StatusTooManyRequests, pageData{Title: "Too many requests", Text: why})
		}
		return answer(w, r)
	}
}

// overLimit returns the reason to reject a request, "" if it is within the limit.
func (srv *Server) overLimit(g *rateLimit, w http.ResponseWriter, r *http.Request) string {
	by := callerOf(r.Context())
	switch g.pass(by.from, srv.now()) {
	case overSourceLimit:
		srv.logOverLimit.Do(func() {
			srv.log.Warn("rejecting sign-in requests: too many from one address. "+
				"If it is a reverse proxy, add it to auth.trusted_proxies", "address", by.address, "path",
				r.URL.Path, "request_id", by.request)
		})
		w.Header().Set("Retry-After", "5")
		return "Your network address sends too many requests. Wait a few seconds, then try again."
	case overTotalLimit:
		w.Header().Set("Retry-After", "2")
		return "This server gets too many requests. Wait a few seconds, then try again."
	}
	return ""
}
