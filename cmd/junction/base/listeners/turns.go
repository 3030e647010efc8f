package listeners

import (
	"net"
	"net/netip"
	"runtime"
	"sync"

	"junction/proxy/budget"
)

// This file shares the processors among TLS handshakes. The computation of a handshake costs as much as
// about forty small calls. Requests without a key must not take that from clients that have one.

// turns lets as many handshakes compute at once as there are places. Networks that wait get their turns one
// after the other, however many connections each has. Loopback and trusted proxies are networks like others.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting map[netip.Addr][]chan struct{} // by network
	order   []netip.Addr                   // of the networks that wait, the next one first
}

// newTurns returns turns for at most half of the processors.
func newTurns() *turns {
	return &turns{free: max(1, runtime.GOMAXPROCS(0)/2), waiting: map[netip.Addr][]chan struct{}{}}
}

// network returns the network for which the handshakes of an address count.
func network(from net.Addr) netip.Addr {
	address, err := netip.ParseAddrPort(from.String())
	if err != nil {
		return netip.Addr{}
	}
	return budget.Network(address.Addr().Unmap().WithZone(""))
}

// take waits for a turn. It returns false if ended was closed before; else the caller must call give.
func (t *turns) take(of netip.Addr, ended <-chan struct{}) bool {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return true
	}
	turn := make(chan struct{})
	if len(t.waiting[of]) == 0 {
		t.order = append(t.order, of)
	}
	t.waiting[of] = append(t.waiting[of], turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-ended:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.leave(of, turn) { // it has just been given
		t.next()
	}
	return false
}

// give passes the turn on.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next()
}

// next gives a turn to the next network, which then waits behind the others. t.mu is held.
func (t *turns) next() {
	if len(t.order) == 0 {
		t.free++
		return
	}
	of := t.order[0]
	turn := t.waiting[of][0]
	t.waiting[of] = t.waiting[of][1:]
	t.order = t.order[1:]
	if len(t.waiting[of]) > 0 {
		t.order = append(t.order, of)
	} else {
		delete(t.waiting, of)
	}
	close(turn)
}

// leave removes a handshake that waits. It returns false if it does not wait. t.mu is held.
func (t *turns) leave(of netip.Addr, turn chan struct{}) bool {
	for i, one := range t.waiting[of] {
		if one != turn {
			continue
		}
		t.waiting[of] = append(t.waiting[of][:i:i], t.waiting[of][i+1:]...)
		if len(t.waiting[of]) > 0 {
			return true
		}
		delete(t.waiting, of)
		for k, network := range t.order {
			if network == of {
				t.order = append(t.order[:k:k], t.order[k+1:]...)
				break
			}
		}
		return true
	}
	return false
}
