package replicas

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"junction/upstream/http1"
)

// This file recognises a member whose process does not run: it is frozen, while its system accepts connections
// and bytes for it. It renews its lease later, or not at all, and until then nobody may take its sessions over.
// Requests that it has begun wait for that, because they may have been executed. The others need not: a process
// that wakes up must not begin them. So each request has the latest time of its begin, by the clock of the
// database, which all members count with their leases; and a member says that it has begun a POST.

// beginTime is how long a member may take to begin a request. Later it refuses the request. After this time, it
// has dialTime to answer a new connection: until then its word that it begins has arrived, also if a packet was
// lost.
const beginTime = 2 * time.Second

// latest returns the time of the database until which a member may begin a request that is sent now, in
// microseconds; "" if this process has never joined. The clock of this process may be ahead by the time that
// its renewal took.
func (m *Member) latest() string {
	l := m.lease.Load()
	if l == nil {
		return ""
	}
	return strconv.FormatInt(l.clock()+(beginTime-l.took).Microseconds(), 10)
}

// tooLate reports whether a request must not begin any more: its sender has given it up, or will.
func (m *Member) tooLate(latest string) bool {
	l, until := m.lease.Load(), int64(0)
	if l != nil {
		until, _ = strconv.ParseInt(latest, 10, 64) // 0 is in the past
	}
	return l == nil || l.clock() > until
}

// begin tells the sender of a request that this process begins it. Requests other than POST change nothing.
func begin(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		w.WriteHeader(http.StatusProcessing)
	}
}

// beginning is a request to a member that has perhaps not begun it.
type beginning struct {
	state atomic.Int32 // isSent, isBegun or isGivenUp; the first change counts
	timer *time.Timer
}

const (
	isSent int32 = iota
	isBegun
	isGivenUp
)

// awaitBegin gives the exchange up if the member does not run. Call end when the head of the response has
// arrived.
func (m *Member) awaitBegin(p *otherMember, x *http1.Exchange) *beginning {
	b := &beginning{}
	x.Interim = func() {
		b.state.CompareAndSwap(isSent, isBegun)
		p.conns.tells.Store(true)
	}
	b.timer = time.AfterFunc(time.Hour, func() { m.giveUp(b, p, x) })
	b.timer.Reset(beginTime) // the function reads b.timer
	return b
}

func (m *Member) giveUp(b *beginning, p *otherMember, x *http1.Exchange) {
	switch {
	case b.state.Load() != isSent, !p.conns.tells.Load():
	case !m.frozen(context.Background(), p):
		b.timer.Reset(beginTime)
	case b.state.CompareAndSwap(isSent, isGivenUp):
		x.Abort()
	}
}

// end reports whether the request was given up, so that the member does not execute it.
func (b *beginning) end() (givenUp bool) {
	b.timer.Stop()
	return !b.state.CompareAndSwap(isSent, isBegun) && b.state.Load() == isGivenUp
}

// probing is the attempt to connect to a member that all requests for it share.
type probing struct {
	mu     sync.Mutex
	now    *probe // nil if none runs
	frozen atomic.Bool
}

type probe struct {
	done   chan struct{}
	frozen bool
}

// frozen connects to a member anew, and reports whether its process does not run: the connection is accepted,
// and nothing answers. It is false if no connection is made: then the member may have ended, or the network is
// broken, and a request that was sent may have been begun.
func (m *Member) frozen(ctx context.Context, p *otherMember) bool {
	at := &p.conns.probing
	at.mu.Lock()
	a := at.now
	if a != nil {
		at.mu.Unlock()
		<-a.done
		return a.frozen
	}
	a = &probe{done: make(chan struct{})}
	at.now = a
	at.mu.Unlock()
	c, err := m.dial(ctx, "tcp", p.address)
	if err == nil {
		c.Close()
	}
	_, a.frozen = errors.AsType[unanswered](err)
	m.noteFrozen(p, a.frozen, err)
	at.mu.Lock()
	at.now = nil
	at.mu.Unlock()
	close(a.done)
	return a.frozen
}

// noteFrozen notes whether a member runs. Requests are not sent to one that does not.
func (m *Member) noteFrozen(p *otherMember, frozen bool, err error) {
	switch before := p.conns.probing.frozen.Swap(frozen); {
	case frozen && !before:
		m.o.Log.Warn("another replica does not run; requests for its sessions get 503 until it does, or until its "+
			"lease ends", "address", p.address, "error", err)
	case before && !frozen && err == nil:
		m.o.Log.Info("the replica runs again", "address", p.address)
	}
}

// knownFrozen reports whether a member is known not to run. While requests come for it, it is asked again once a
// second.
func (m *Member) knownFrozen(p *otherMember) bool {
	if !p.conns.probing.frozen.Load() {
		return false
	}
	if p.conns.tryAgain() {
		select {
		case m.probes <- p:
		default: // others are asked
		}
	}
	return true
}

// probeFrozen asks members that do not run whether they do, until ctx ends.
func (m *Member) probeFrozen(ctx context.Context) {
	for {
		select {
		case p := <-m.probes:
			m.frozen(ctx, p)
		case <-ctx.Done():
			return
		}
	}
}

// unanswered is the error of a connection that was accepted, and on which nothing has arrived in time.
type unanswered struct{ error }

func (u unanswered) Unwrap() error { return u.error }
