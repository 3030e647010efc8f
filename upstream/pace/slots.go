// Package pace schedules calls and retries: which waiting call an upstream takes next, and how long
// to pause between two attempts.
package pace

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Slots shares the concurrent calls of an upstream (concurrency) among accounts. Calls over the
// limit wait: the calls of one account in their order, the accounts in turns. An account that
// shares uses at most half of the slots that the others leave free. So the next account finds a
// free slot, even if the calls in progress take long.
type Slots struct {
	total int

	mu   sync.Mutex
	used int
	// accounts with calls, including abandoned ones, and some recent accounts
	takers map[string]*taker
	queue  []*taker // accounts with waiting calls, in the order of their turns
}

// taker is an account that uses slots or waits for one. It is guarded by Slots.mu.
type taker struct {
	account string
	shares  bool // it is limited to half of the slots that the others leave free
	used    int
	left    int // abandoned calls
	waiting []*waiter
}

// waiter is a call that waits for a slot.
type waiter struct {
	ready chan struct{} // closed when the call has the slot
}

// fewLeft is the number of abandoned calls that an account may always have, regardless of its
// share.
const fewLeft = 4

// Slot is the slot of one call. The zero value uses none. It is guarded by Slots.mu, except for slots.
type Slot struct {
	slots    *Slots
	taker    *taker
	state    slotState
	answered bool        // the server has responded to the abandoned call
	timer    *time.Timer // frees an abandoned slot
}

type slotState int

const (
	slotFree slotState = iota
	slotUsed           // next: abandoned, free
	// the call is over for the client, but the server may still process it; next: free
	slotAbandoned
)

// New returns Slots for total concurrent calls.
func New(total int) *Slots { return &Slots{total: total, takers: map[string]*taker{}} }

// Take waits for a slot of the account and reports whether it had to wait. shares limits the
// account to its share: see Slots. Take returns an error if ctx ends first. Otherwise the caller must
// call Free or Abandon of into.
//
// futile is called only by a call that must wait. It returns why the call need not wait, or a channel
// that is closed when Take must call futile again.
func (s *Slots) Take(
	ctx context.Context, account string, shares bool, into *Slot, futile func() (<-chan struct{}, error),
) (waited bool, err error) {
	s.mu.Lock()
	t := s.takers[account]
	if t == nil {
		t = &taker{account: account, shares: shares}
		s.takers[account] = t
	}
	into.slots, into.taker = s, t
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
	var reason error
	for reason == nil && ctx.Err() == nil {
		var again <-chan struct{}
		if again, reason = futile(); reason != nil {
			break
		}
		select {
		case <-w.ready:
			into.state = slotUsed // no other goroutine uses it yet
			return true, nil
		case <-again:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(t.waiting, w); i < 0 { // the slot was given at the same moment
		into.state = slotUsed
		into.release()
	} else if t.waiting = slices.Delete(t.waiting, i, i+1); len(t.waiting) == 0 {
		s.queue = slices.DeleteFunc(s.queue, func(other *taker) bool { return other == t })
	}
	s.forget(t)
	if reason != nil {
		return true, reason
	}
	if s.used < s.total {
		return true, fmt.Errorf("the caller uses its whole share of the %d calls that the server may get at once "+
			"(concurrency)", s.total)
	}
	return true, fmt.Errorf("the server already has as many calls as it may get at once (concurrency: %d)", s.total)
}

// admits reports whether a taker may have another slot now; mu is held.
func (s *Slots) admits(t *taker) bool {
	if s.used >= s.total {
		return false
	}
	share := max(1, (s.total-(s.used-t.used))/2)
	return !t.shares || t.used < share && t.used+t.left < max(share, fewLeft)
}

// give assigns a slot to a taker; mu is held.
func (s *Slots) give(t *taker) {
	s.used++
	t.used++
}

// turns assigns free slots to waiting calls, one per account in turns; mu is held.
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
		looked = 0 // the shares have changed
	}
}

// fewTakers is the number of takers that are kept even if they use nothing, because most call
// again.
const fewTakers = 64

// forget drops a taker that uses nothing, if there are more than fewTakers; mu is held.
func (s *Slots) forget(t *taker) {
	if len(s.takers) > fewTakers && t.used == 0 && t.left == 0 && len(t.waiting) == 0 {
		delete(s.takers, t.account)
	}
}

// release frees the slot; slots.mu is held.
func (l *Slot) release() {
	switch l.state {
	case slotUsed:
		l.slots.used--
		l.taker.used--
	case slotAbandoned:
		l.timer.Stop()
		l.taker.left--
	default:
		return
	}
	l.state = slotFree
	l.slots.turns()
	l.slots.forget(l.taker)
}

// Free frees the slot of a call that has ended, unless the call was abandoned.
func (l *Slot) Free() {
	l.slots.mu.Lock()
	defer l.slots.mu.Unlock()
	if l.state == slotUsed {
		l.release()
	}
}

// Abandon frees the slot of a call that its client has abandoned. The server may still process the
// call, so it counts for its account until the server responds or the call's remaining time is
// over.
func (l *Slot) Abandon(left time.Duration) {
	l.slots.mu.Lock()
	defer l.slots.mu.Unlock()
	if l.state != slotUsed || l.answered || !l.taker.shares {
		return
	}
	l.slots.used--
	l.taker.used--
	l.taker.left++
	l.state = slotAbandoned
	l.timer = time.AfterFunc(left, l.Late)
	l.slots.turns()
}

// Late ends the counting of an abandoned call: the server has responded, or its time is over.
func (l *Slot) Late() {
	if l.slots == nil { // one of Junction's own requests
		return
	}
	l.slots.mu.Lock()
	defer l.slots.mu.Unlock()
	if l.answered = true; l.state == slotAbandoned {
		l.release()
	}
}

// Over reports whether the slot is free.
func (l *Slot) Over() bool {
	if l.slots == nil {
		return true
	}
	l.slots.mu.Lock()
	defer l.slots.mu.Unlock()
	return l.state == slotFree
}

// Load returns the numbers of used slots and of calls that wait for one.
func (s *Slots) Load() (used, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.queue {
		waiting += len(t.waiting)
	}
	return s.used, waiting
}
