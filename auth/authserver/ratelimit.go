package authserver

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// gate lets what strangers cause through at a bounded pace: first what one address causes, then
// what all cause. One address gets a twentieth of the pace and a fifth of the burst, and so it
// cannot use up what is there for the others. newGate makes one.
type rateLimit struct {
	near sources // IPv4 /32, IPv6 /64
	wide sources // IPv6 /48, which one customer of a provider often has whole: four times as much
	all  *rate.Limiter
}

func newRateLimit(perSecond rate.Limit, burst int) *rateLimit {
	return &rateLimit{
		near: sources{limit: perSecond / 20, burst: max(1, burst/5)},
		wide: sources{limit: perSecond / 5, burst: max(1, burst*4/5)},
		all:  rate.NewLimiter(perSecond, burst),
	}
}

// passage is what a gate says.
type limitResult int

const (
	withinLimit     limitResult = iota
	overSourceLimit             // from this address
	overTotalLimit              // from all together
)

// pass counts an event of an address, and reports whether it may happen. What is refused for its
// address takes nothing from the others.
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

// networkOf returns the network that counts as one address: whoever has an address of IPv6 has its
// /64 too. Addresses that are not known are one network together, the zero one.
func networkOf(from netip.Addr) netip.Prefix {
	bits := 32
	if from.Is6() {
		bits = 64
	}
	network, _ := from.Prefix(bits)
	return network
}

// sources are the limiters of the networks that were here lately.
type sources struct {
	limit rate.Limit
	burst int

	mu sync.Mutex
	by map[netip.Prefix]*rate.Limiter
}

const maxSources = 4096 // for each gate; 100 to 200 bytes each

func (s *sources) pass(network netip.Prefix, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.by[network]
	if l == nil {
		s.makeRoom(now)
		l = rate.NewLimiter(s.limit, s.burst)
		s.by[network] = l
	}
	return l.AllowN(now, 1)
}

// makeRoom forgets networks while there are too many: of a few at random those whose burst has
// filled up again, for which nothing changes, or else the first. A network that is forgotten begins
// anew, which harms no other one; what all may do together stays bounded.
func (s *sources) makeRoom(now time.Time) {
	if s.by == nil {
		s.by = map[netip.Prefix]*rate.Limiter{}
	}
	if len(s.by) < maxSources {
		return
	}
	var first netip.Prefix
	looked := 0
	for network, l := range s.by {
		if looked == 0 {
			first = network
		}
		if l.TokensAt(now) >= float64(s.burst) {
			delete(s.by, network)
		}
		if looked++; looked == 16 {
			break
		}
	}
	if len(s.by) >= maxSources {
		delete(s.by, first)
	}
}

// gates bound the paths that need no credential, each on its own: a flood of one of them keeps
// nobody from another.
type rateLimits struct {
	begin    *rateLimit // pages that store a request
	finish   *rateLimit // what comes after them, so that a person who has begun can go on
	register *rateLimit
	token    *rateLimit
	revoke   *rateLimit
	fetches  *rateLimit // of documents of clients that no user has allowed
	events   *rateLimit // that are written down
}

func newRateLimits() rateLimits {
	return rateLimits{
		begin: newRateLimit(100, 1000), finish: newRateLimit(200, 2000),
		register: newRateLimit(100, 1000), token: newRateLimit(500, 2500), revoke: newRateLimit(100, 1000),
		fetches: newRateLimit(2, 60), events: newRateLimit(rate.Every(6*time.Second), 60),
	}
}

// limited returns a handler for programs that refuses requests beyond what the gate lets through.
func (srv *Server) limited(g *rateLimit, answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if why := srv.overLimit(g, w, r); why != "" {
			fail(w, http.StatusTooManyRequests, "temporarily_unavailable", why)
			return
		}
		answer(w, r)
	}
}

// limitedPage is limited for people.
func (srv *Server) limitedPage(g *rateLimit, answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if why := srv.overLimit(g, w, r); why != "" {
			srv.page(w, http.StatusTooManyRequests, "error", pageData{Title: "Too many requests", Text: why})
			return
		}
		answer(w, r)
	}
}

// crowded returns why a gate refuses a request, "" if it does not.
func (srv *Server) overLimit(g *rateLimit, w http.ResponseWriter, r *http.Request) string {
	by := callerOf(r.Context())
	switch g.pass(by.from, srv.now()) {
	case overSourceLimit:
		srv.logOverLimit.Do(func() {
			srv.log.Warn("an address sends too many sign-in requests; they are refused. "+
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
