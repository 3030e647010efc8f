package auth

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"junction/upstream/bounded"
)

// turns shares the queries about tokens that are not known to be valid, which a stranger can invent, among
// the networks that cause them. A network is an IPv4 address, or a /64 of IPv6; a /48 of IPv6, which one
// customer often has, counts, too. The /48s and IPv4 addresses take turns.
//
// The zero value is ready.
type turns struct {
	mu      sync.Mutex
	running int // queries
	near    map[netip.Prefix]*use
	wide    map[netip.Prefix]*use
	waiting map[netip.Prefix][]*turn // by wide network; no list is empty
	order   []netip.Prefix           // the keys of waiting: the next one is first
	waits   int                      // turns that wait
	known   map[netip.Prefix]time.Time
}

// use is what a network has.
type use struct{ running, waits int }

// turn is one query that waits or runs.
type turn struct {
	near, wide netip.Prefix
	known      bool
	begin      chan struct{} // closed when it may run
}

const (
	mostTurns = maxQuestions / 2 // queries at once
	// knownTurns of them are for networks that had a valid token lately.
	knownTurns = mostTurns / 4
	nearTurns  = 12 // of one network at once
	wideTurns  = 16 // of a /48 at once
	nearWaits  = 64
	wideWaits  = 128
	mostWaits  = 1024
	queueTime  = 5 * time.Second
	// knownFor is longer than tokens usually live, so that a client with the next token is known.
	knownFor = 24 * time.Hour
	maxKnown = 10_000 // networks
)

var errTooManyQueries = errors.New("too many tokens are being checked")

// enter waits for a turn of an address, for queueTime at most. The caller must call leave if err is
// nil. The error is errTooManyQueries, or comes from ctx.
func (q *turns) enter(ctx context.Context, from netip.Addr, now time.Time) (leave func(), err error) {
	t, err := q.join(from, now)
	if err != nil {
		return nil, err
	}
	limit := time.NewTimer(queueTime)
	defer limit.Stop()
	select {
	case <-t.begin:
		return func() { q.leave(t) }, nil
	case <-limit.C:
		err = errTooManyQueries
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !q.giveUp(t) { // it may run since now
		q.leave(t)
	}
	return nil, err
}

// join adds a turn to the queue, and begins the turns that may run.
func (q *turns) join(from netip.Addr, now time.Time) (*turn, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := &turn{near: network(from, 64), wide: network(from, 48), begin: make(chan struct{})}
	t.known = now.Before(q.known[t.near])
	near, wide := q.near[t.near], q.wide[t.wide]
	if q.waits >= mostWaits || near != nil && near.waits >= nearWaits || wide != nil && wide.waits >= wideWaits {
		return nil, errTooManyQueries
	}
	if q.near == nil {
		q.near, q.wide = map[netip.Prefix]*use{}, map[netip.Prefix]*use{}
		q.waiting = map[netip.Prefix][]*turn{}
	}
	q.count(t, 0, 1)
	if len(q.waiting[t.wide]) == 0 {
		q.order = append(q.order, t.wide)
	}
	q.waiting[t.wide] = append(q.waiting[t.wide], t)
	q.next()
	return t, nil
}

// next begins the turns that may run, one of each network after the other. q.mu is held.
func (q *turns) next() {
	for passed := 0; passed < len(q.order) && q.running < mostTurns; {
		wide := q.order[0]
		q.order = append(q.order[1:], wide)
		list := q.waiting[wide]
		i := slices.IndexFunc(list, q.fits)
		if i < 0 {
			passed++
			continue
		}
		passed = 0
		t := list[i]
		q.count(t, 1, 0) // before remove, which deletes the counts of a network without any
		q.remove(t)
		close(t.begin)
	}
}

// fits reports whether a turn may run. q.mu is held.
func (q *turns) fits(t *turn) bool {
	most := mostTurns
	if !t.known {
		most -= knownTurns
	}
	return q.running < most && q.near[t.near].running < nearTurns && q.wide[t.wide].running < wideTurns
}

// remove takes a turn out of the queue. q.mu is held.
func (q *turns) remove(t *turn) {
	is := func(other *turn) bool { return other == t }
	if list := slices.DeleteFunc(q.waiting[t.wide], is); len(list) > 0 {
		q.waiting[t.wide] = list
	} else {
		delete(q.waiting, t.wide)
		q.order = slices.DeleteFunc(q.order, func(p netip.Prefix) bool { return p == t.wide })
	}
	q.count(t, 0, -1)
}

// giveUp takes a turn out of the queue, and reports whether it was there.
func (q *turns) giveUp(t *turn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !slices.Contains(q.waiting[t.wide], t) {
		return false
	}
	q.remove(t)
	return true
}

func (q *turns) leave(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count(t, -1, 0)
	q.next()
}

// count changes what the networks of a turn have. q.mu is held.
func (q *turns) count(t *turn, running, waits int) {
	q.running += running
	q.waits += waits
	add := func(uses map[netip.Prefix]*use, n netip.Prefix) {
		u := uses[n]
		if u == nil {
			u = new(use)
			uses[n] = u
		}
		if u.running, u.waits = u.running+running, u.waits+waits; *u == (use{}) {
			delete(uses, n)
		}
	}
	add(q.near, t.near)
	add(q.wide, t.wide)
}

// learn notes that an address had a valid token.
func (q *turns) learn(from netip.Addr, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	bounded.Put(&q.known, maxKnown, network(from, 64), now.Add(knownFor),
		func(until time.Time) bool { return !now.Before(until) })
}

// network returns the IPv4 address, or the IPv6 network of that many bits. Unknown addresses share the
// zero network.
func network(from netip.Addr, bits int) netip.Prefix {
	if from = plain(from); from.Is4() {
		bits = 32
	}
	n, _ := from.Prefix(bits)
	return n
}
