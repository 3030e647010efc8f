package replicas

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"junction/auth"
	"junction/policy"
	"junction/proxy/budget"
	"junction/proxy/members"
	"junction/upstream/pace"
)

// holdings are the shares of limits that this process holds, and may use without a statement.
type holdings struct {
	mu       sync.Mutex
	byLimit  map[limitOf]*holding
	byDigest map[string]*holding
}

// limitOf identifies a limit. The calls in flight of a principal are counted together, whatever the
// limit is; each rate is a limit of its own.
type limitOf struct {
	principal string
	rate      policy.Rate // 0 for calls in flight
	burst     int
	other     bool
}

// holding has the shares of one limit at this process.
type holding struct {
	digest string        // of the limit, in the table
	users  int           // callers of keep; guarded by holdings.mu
	table  chan struct{} // has an element while a statement about the limit runs
	asking chan struct{} // has an element while a request asks for more shares

	mu       sync.Mutex
	id       string // the ID of this process for which the shares hold
	limit    limit  // for which they were given
	shares   int
	used     int     // calls in flight; 0 for a rate
	requests float64 // which the shares allow now; 0 for calls in flight
	given    float64 // requests of shares that were given back, and are not in the row yet
	unsure   *plan   // that a statement with an unknown result may have written; nil for none
	filled   time.Time
	lastUsed time.Time
	settled  time.Time
	failed   time.Time // when the last attempt began that found no share
	next     time.Time // no attempt before
}

// use returns the holding of a limit, and keeps it in memory until done is called.
func (hs *holdings) use(of limitOf) (h *holding, done func()) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h = hs.byLimit[of]; h == nil {
		if hs.byLimit == nil {
			hs.byLimit, hs.byDigest = map[limitOf]*holding{}, map[string]*holding{}
		}
		text := of.principal // as text, it has no zero byte
		if of.rate > 0 {
			text = fmt.Sprint(of.principal, "\x00", of.rate, of.burst, of.other)
		}
		h = &holding{digest: digestOf(text), table: make(chan struct{}, 1), asking: make(chan struct{}, 1)}
		hs.byLimit[of], hs.byDigest[h.digest] = h, h
	}
	return h, hs.keep(h)
}

// known returns the holding of a digest, and keeps it in memory until done is called; nil if there is none.
// Without that, a new holding of the limit could take shares that a change of the old one then gives back.
func (hs *holdings) known(digest string) (h *holding, done func()) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h = hs.byDigest[digest]; h == nil {
		return nil, nil
	}
	return h, hs.keep(h)
}

// keep counts a user of a holding until done is called; mu is held.
func (hs *holdings) keep(h *holding) (done func()) {
	h.users++
	return func() {
		hs.mu.Lock()
		defer hs.mu.Unlock()
		h.users--
	}
}

// all returns all holdings with their limits.
func (hs *holdings) all() map[limitOf]*holding {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	list := make(map[limitOf]*holding, len(hs.byLimit))
	for of, h := range hs.byLimit {
		list[of] = h
	}
	return list
}

// drop forgets a holding that is not in use and has no share.
func (hs *holdings) drop(of limitOf, h *holding) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users == 0 && h.used == 0 && h.shares == 0 && h.given == 0 && h.unsure == nil {
		delete(hs.byLimit, of)
		delete(hs.byDigest, h.digest)
	}
}

// Enter implements members.Members.
func (m *Member) Enter(ctx context.Context, principal string, l policy.Limits, other bool) (
	leave func(), wait time.Duration, err error) {
	if m.Self() == "" {
		return nil, 0, members.ErrAlone
	}
	leave = func() {}
	if l.Concurrent > 0 && !other {
		h, done := m.holdings.use(limitOf{principal: principal})
		err := m.take(ctx, h, limit{shares: l.Concurrent})
		done()
		if err != nil {
			return nil, 0, err
		}
		leave = sync.OnceFunc(h.leave)
	}
	if l.Rate > 0 {
		of := limitOf{principal, l.Rate, budget.Burst(l, other), other}
		h, done := m.holdings.use(of)
		defer done()
		if err := m.take(ctx, h, rateLimit(l.Rate, of.burst)); err != nil {
			leave()
			if err == budget.ErrTooFast {
				wait = h.wait()
			}
			return nil, wait, err
		}
	}
	return leave, 0, nil
}

// take uses a share. If this process has none left, it takes free ones from the table, and asks the
// members that hold the others to give back what they do not use. One request does so at a time: those
// that come while it waits for its turn have its result.
func (m *Member) take(ctx context.Context, h *holding, l limit) error {
	if h.take(m.Self(), l) {
		return nil
	}
	came := time.Now()
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	if err := lock(ctx, h.asking); err != nil {
		return err
	}
	defer unlock(h.asking)
	if h.take(m.Self(), l) {
		return nil
	}
	failed, next := h.attempts()
	if !failed.Before(came) || l.rate > 0 && time.Now().Before(next) {
		return l.refusal()
	}
	pace.Sleep(ctx, time.Until(next), nil)
	began := time.Now()
	for asked := false; !h.take(m.Self(), l); asked = true {
		holders, err := m.settle(ctx, h, l, more)
		if err != nil {
			return err
		}
		if h.take(m.Self(), l) {
			return nil
		}
		if asked || len(holders) == 0 {
			h.fail(began, l.pause())
			return l.refusal()
		}
		m.askBack(ctx, h.digest, holders)
	}
	return nil
}

// take uses a share that this process has.
func (h *holding) take(self string, l limit) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	switch {
	case self == "" || h.id != self || h.limit.shares > l.shares:
		return false
	case l.rate > 0:
		h.fill(now)
		if h.requests < 1 {
			return false
		}
		h.requests--
	case h.used >= h.shares:
		return false
	default:
		h.used++
	}
	h.lastUsed = now
	return true
}

// fill adds the requests that the shares of a rate have gained; mu is held.
func (h *holding) fill(now time.Time) {
	h.requests = h.limit.gain(h.shares, h.requests, now.Sub(h.filled))
	h.filled = now
}

// leave counts a call that has ended.
func (h *holding) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.used--
	h.lastUsed = time.Now()
}

// wait returns the time until a rate allows another request, at one of the members.
func (h *holding) wait() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(time.Millisecond, time.Duration((1-min(h.requests, 1))/h.limit.rate*float64(time.Second)))
}

func (h *holding) attempts() (failed, next time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed, h.next
}

func (h *holding) fail(began time.Time, pause time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed, h.next = began, time.Now().Add(pause)
}

const (
	shareIdle  = time.Minute      // unused shares go back to the table
	shareTouch = 10 * time.Minute // a row is written again, so that no sweep deletes it
)

// tendRegularly looks after the shares until ctx ends.
func (m *Member) tendRegularly(ctx context.Context) {
	tick := time.NewTicker(m.o.TTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-m.rejoined:
		case <-ctx.Done():
			return
		}
		m.tend(ctx)
	}
}

// tend gives back shares that are not used, renews rows that are, and counts the calls in flight for
// the new ID if this process has joined again. It goes on after an error, until the next tick is due.
func (m *Member) tend(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, m.o.TTL/3)
	defer cancel()
	failed, first := 0, error(nil)
	self, now := m.Self(), time.Now()
	for of, h := range m.holdings.all() {
		h.mu.Lock()
		idle := h.used == 0 && now.Sub(h.lastUsed) > shareIdle
		due, l := idle || h.id != self && h.used > 0 || now.Sub(h.settled) > shareTouch, h.limit
		if h.unsure != nil {
			l = h.unsure.limit
		}
		h.mu.Unlock()
		if self == "" || !due {
			continue
		}
		if l.shares == 0 { // its first shares are being taken, or could not be
			m.holdings.drop(of, h)
			continue
		}
		change := same
		if idle {
			change = none
		}
		limited, cancel := context.WithTimeout(ctx, queryTime)
		_, err := m.settle(limited, h, l, change)
		cancel()
		if err == nil {
			m.holdings.drop(of, h)
			continue
		}
		if failed++; first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	if first != nil {
		m.o.Log.Debug("cannot write the shares of some limits", "limits", failed, "error", auth.Redact(first.Error()))
	}
}

// giveBack gives back what this process does not use of a limit, because another member asks for it.
func (m *Member) giveBack(ctx context.Context, digest string) {
	h, done := m.holdings.known(digest)
	if h == nil {
		return
	}
	defer done()
	// A member that waits no longer ends no statement, after which nobody could use the shares for a while.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTime)
	defer cancel()
	h.mu.Lock()
	l := h.limit
	h.mu.Unlock()
	if l.shares == 0 {
		return // its first shares are being taken
	}
	if _, err := m.settle(ctx, h, l, fewer); err != nil {
		m.o.Log.Debug("cannot give back shares of a limit", "error", auth.Redact(err.Error()))
	}
}

// giveAllBack gives back all rates, because this process stops: otherwise the requests that they allow
// would be lost. It goes on after an error, until ctx ends.
func (m *Member) giveAllBack(ctx context.Context) error {
	var errs []error
	for of, h := range m.holdings.all() {
		h.mu.Lock()
		l := h.limit
		h.mu.Unlock()
		if of.rate == 0 || l.shares == 0 {
			continue
		}
		if ctx.Err() != nil {
			errs = append(errs, ctx.Err())
			break
		}
		if _, err := m.settle(ctx, h, l, none); err != nil && len(errs) < maxJoined {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

const maxJoined = 5 // errors of giveAllBack, for one line of the log

func lock(ctx context.Context, c chan struct{}) error {
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", members.ErrAlone, ctx.Err())
	}
}

func unlock(c chan struct{}) { <-c }
