package authserver

import (
	"net/http"
	"net/netip"
	"sync"
)

// bodies bounds the bodies of requests that are being read or answered, which strangers can send and
// never finish: by network, and in total. A /48 of IPv6 counts, too. The zero value is ready.
type bodies struct {
	mu  sync.Mutex
	all int64                  // bytes
	by  map[netip.Prefix]int64 // no value is 0
}

const (
	// smallBody needs no share: a connection takes more memory than that without a body. So the forms of
	// users are read while a stranger behind the same address uses its share.
	smallBody  = 4 << 10
	mostBodies = 16 << 20       // bytes
	nearBodies = mostBodies / 4 // of one IPv4 address, or of a /64 of IPv6
	wideBodies = mostBodies / 2 // of a /48 of IPv6
)

// enter counts n bytes for an address, unless a share does not suffice.
func (b *bodies) enter(from netip.Addr, n int64) limitResult {
	b.mu.Lock()
	defer b.mu.Unlock()
	near, wide := networkOf(from), wideNetworkOf(from)
	switch {
	case b.by[near]+n > nearBodies, wide.IsValid() && b.by[wide]+n > wideBodies:
		return overSourceLimit
	case b.all+n > mostBodies:
		return overTotalLimit
	}
	b.count(from, n)
	return withinLimit
}

// leave gives back what enter has counted.
func (b *bodies) leave(from netip.Addr, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count(from, -n)
}

// count adds bytes to what an address has; b.mu is held.
func (b *bodies) count(from netip.Addr, n int64) {
	if b.by == nil {
		b.by = map[netip.Prefix]int64{}
	}
	b.all += n
	add := func(network netip.Prefix) {
		if b.by[network] += n; b.by[network] == 0 {
			delete(b.by, network)
		}
	}
	add(networkOf(from))
	if wide := wideNetworkOf(from); wide.IsValid() {
		add(wide)
	}
}

// bodySize returns how many bytes of a body count; 0 if the body needs no share.
func bodySize(r *http.Request) int64 {
	switch n := r.ContentLength; {
	case n < 0 || n > maxBody:
		return maxBody
	case n > smallBody:
		return n
	}
	return 0
}

// receive calls answer with a share for the body of the request. If there is none, receive returns the
// reason to reject the request, and nothing of the body is read. what is one of Limitable.
func (srv *Server) receive(what string, w http.ResponseWriter, r *http.Request, answer func()) (why string) {
	from, n := callerOf(r.Context()).from, bodySize(r)
	if n > 0 {
		if over := srv.bodies.enter(from, n); over != withinLimit {
			w.Header().Set("Connection", "close") // else the rest of the body is read
			return srv.rejection(what, over, tooManyBodies, w, r)
		}
		defer srv.bodies.leave(from, n)
	}
	answer()
	return ""
}

// received wraps a handler for programs with receive.
func (srv *Server) received(what string, answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if why := srv.receive(what, w, r, func() { answer(w, r) }); why != "" {
			fail(w, http.StatusTooManyRequests, "temporarily_unavailable", why)
		}
	}
}
