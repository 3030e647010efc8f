// Package pace decides when: whose call is the next that an upstream takes, and how long a
// pause is between two attempts.
package pace

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Slots are how the callers of an upstream share the calls that it takes at once (concurrency).
// Calls beyond that wait: those of one account in their order, the accounts in turns. Where callers
// are principals, one of them uses at most half of what the others leave, so that there is a slot
// for a principal that comes next, however long the calls in progress take.
type Slots struct {
	total int

	mu    sync.Mutex
	used  int
	of    map[string]*taker // those with a call, an abandoned one included, and some more
	queue []*taker          // those with a waiter; the first is the next in turn
}

// taker is an account that uses slots, or waits for one. It is guarded by Slots.mu.
type taker struct {
	account string
	shares  bool // it uses at most half of what the others leave
	used    int
	left    int // abandoned calls
	waiting []*waiter
}

// waiter is a call that waits for its slot.
type waiter struct {
	ready chan struct{} // closed when it has the slot
}

// fewLeft are the abandoned calls that keep no account from calling, whatever its share is.
const fewLeft = 4

// Slot is what one call uses. Its zero value uses nothing. It is guarded by Slots.mu, but for of.
type Slot struct {
	of       *Slots
	taker    *taker
	state    slotState
	answered bool        // the server has answered after the call was abandoned
	timer    *time.Timer // frees an abandoned slot
}

type slotState int

const (
	slotFree      slotState = iota
	slotUsed                // next: abandoned, free
	slotAbandoned           // the call is over for us, the server may work on it; next: free
)

// New returns slots for that many calls at once.
func New(total int) *Slots { return &Slots{total: total, of: map[string]*taker{}} }

// Take waits for a slot. It reports whether it had to wait; the error says that ctx has ended
// before.
func (s *Slots) Take(ctx context.Context, account string, shares bool, into *Slot) (waited bool, err error) {
	s.mu.Lock()
	t := s.of[account]
	if t == nil {
		t = &taker{account: account, shares: shares}
		s.of[account] = t
	}
	into.of, into.taker = s, t
	if s.admits(t) && len(t.waiting) == 0 {
		s.give(t)
		into.state = slotUsed
		s.mu.Unlock()
		return false, nil
	}
	w := &waiter{make(chan struct{})}
	if t.waiting = append(t.waiting, w); len(t.waiting) == 1 {
		s.queue = append(s.queue, t)
	}
	s.mu.Unlock()
	select {
	case <-w.ready:
		into.state = slotUsed // no other goroutine uses it yet
		return true, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(t.waiting, w); i < 0 { // it came just now
		into.state = slotUsed
		into.release()
	} else if t.waiting = slices.Delete(t.waiting, i, i+1); len(t.waiting) == 0 {
		s.queue = slices.DeleteFunc(s.queue, func(other *taker) bool { return other == t })
	}
	s.forget(t)
	if s.used < s.total {
		return true, fmt.Errorf("the caller has its share of the %d calls that the server takes at once (concurrency)",
			s.total)
	}
	return true, fmt.Errorf("all %d calls that it takes at once (concurrency) are in use", s.total)
}

// admits reports whether a taker may have one more slot now; mu is held.
func (s *Slots) admits(t *taker) bool {
	if s.used >= s.total {
		return false
	}
	share := max(1, (s.total-(s.used-t.used))/2)
	return !t.shares || t.used < share && t.used+t.left < max(share, fewLeft)
}

// give gives a taker a slot; mu is held.
func (s *Slots) give(t *taker) {
	s.used++
	t.used++
}

// turns gives what is free to those who wait, one each in turns; mu is held.
func (s *Slots) turns() {
	for looked := 0; looked < len(s.queue) && s.used < s.total; {
		t := s.queue[0]
		s.queue = append(s.queue[:0], s.queue[1:]...)
		if !s.admits(t) {
			s.queue = append(s.queue, t)
			looked++
			continue
		}
		s.give(t)
		close(t.waiting[0].ready)
		if t.waiting = slices.Delete(t.waiting, 0, 1); len(t.waiting) > 0 {
			s.queue = append(s.queue, t)
		}
		looked = 0 // its share is another one now, and that of others
	}
}

// fewTakers are kept although they use nothing, since most call again.
const fewTakers = 64

// forget drops a taker that uses nothing, if there are many; mu is held.
func (s *Slots) forget(t *taker) {
	if len(s.of) > fewTakers && t.used == 0 && t.left == 0 && len(t.waiting) == 0 {
		delete(s.of, t.account)
	}
}

// release ends the use; of.mu is held.
func (l *Slot) release() {
	switch l.state {
	case slotUsed:
		l.of.used--
		l.taker.used--
	case slotAbandoned:
		l.timer.Stop()
		l.taker.left--
	default:
		return
	}
	l.state = slotFree
	l.of.turns()
	l.of.forget(l.taker)
}

// Free ends the use of a call that is over, unless the call was abandoned.
func (l *Slot) Free() {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if l.state == slotUsed {
		l.release()
	}
}

// Abandon frees the slot of a call that its client has given up. The call counts for its account
// until the server answers it, or until the time of the call is over: the server may not have
// stopped.
func (l *Slot) Abandon(left time.Duration) {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if l.state != slotUsed || l.answered || !l.taker.shares {
		return
	}
	l.of.used--
	l.taker.used--
	l.taker.left++
	l.state = slotAbandoned
	l.timer = time.AfterFunc(left, l.Late)
	l.of.turns()
}

// Late ends what an abandoned call counts for: the server has answered it, or does not any more.
func (l *Slot) Late() {
	if l.of == nil { // of a request of ours
		return
	}
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if l.answered = true; l.state == slotAbandoned {
		l.release()
	}
}

// Over reports whether the slot is free.
func (l *Slot) Over() bool {
	if l.of == nil {
		return true
	}
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	return l.state == slotFree
}

// Count returns how many slots are used, how many abandoned calls count, and how many accounts
// wait.
func (s *Slots) Count() (used, left, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.of {
		left += t.left
	}
	return s.used, left, len(s.queue)
}
