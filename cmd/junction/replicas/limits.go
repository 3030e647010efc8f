package replicas

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"junction/auth"
	"junction/policy"
	"junction/proxy/budget"
	"junction/proxy/members"
)

// inFlight counts the calls in flight of this process, for each principal whose policy limits them
// (concurrent). The table calls_in_flight has one row for each principal, with the counts of all
// members, so that one statement can compare their sum with the limit. A member writes its count,
// not a difference: if a write fails, the next write corrects the table.
type inFlight struct {
	mu          sync.Mutex
	byPrincipal map[string]*callCount
}

// callCount is the number of calls in flight of one principal at this process. mu is held during a
// statement, so that an older count never replaces a newer one.
type callCount struct {
	mu    sync.Mutex
	calls int
	stale bool // the table may have another count
	users int  // callers of use; guarded by inFlight.mu
}

// use returns the count of a principal, and keeps it in memory until done is called.
func (f *inFlight) use(principal string) (n *callCount, done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n = f.byPrincipal[principal]; n == nil {
		if f.byPrincipal == nil {
			f.byPrincipal = map[string]*callCount{}
		}
		n = &callCount{}
		f.byPrincipal[principal] = n
	}
	n.users++
	return n, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if n.users--; n.users == 0 {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.calls == 0 && !n.stale {
				delete(f.byPrincipal, principal)
			}
		}
	}
}

// Enter implements members.Members.
func (m *Member) Enter(ctx context.Context, principal string, l policy.Limits, other bool) (
	leave func(), wait time.Duration, err error) {
	if m.Self() == "" {
		return nil, 0, members.ErrAlone
	}
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	leave = func() {}
	if l.Concurrent > 0 && !other {
		if leave, err = m.begin(ctx, principal, l.Concurrent); err != nil {
			return nil, 0, err
		}
	}
	if l.Rate > 0 {
		if wait, err = m.take(ctx, principal, l, other); err != nil {
			leave()
			return nil, wait, err
		}
	}
	return leave, 0, nil
}

// begin counts a call in flight.
func (m *Member) begin(ctx context.Context, principal string, limit int) (leave func(), err error) {
	n, done := m.inFlight.use(principal)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	if err := m.writeCount(ctx, principal, n, limit); err != nil {
		n.calls--
		n.stale = n.stale || err != budget.ErrTooMany
		go done() // done locks n, which this function still holds
		return nil, err
	}
	return sync.OnceFunc(func() {
		defer done()
		n.mu.Lock()
		defer n.mu.Unlock()
		n.calls--
		ending, cancel := context.WithTimeout(context.Background(), queryTime)
		defer cancel()
		_ = m.writeCount(ending, principal, n, math.MaxInt32) // writeCounts repeats it
	}), nil
}

// writeCount writes a count. n.mu must be held.
func (m *Member) writeCount(ctx context.Context, principal string, n *callCount, limit int) error {
	self := m.Self()
	if self == "" {
		n.stale = true
		return members.ErrAlone
	}
	written, member, err := m.setCalls(ctx, principal, self, n.calls, limit)
	if err == nil && !member { // another member has deleted the row of this process since it was read
		err = members.ErrAlone
	}
	switch {
	case err != nil:
		n.stale = true
		return err
	case !written:
		return budget.ErrTooMany
	}
	n.stale = false
	return nil
}

// writeCounts writes the stale counts. all means that this process has joined with a new ID, so
// that the table has none of its counts.
func (m *Member) writeCounts(ctx context.Context, all bool) {
	m.inFlight.mu.Lock()
	principals := slices.Collect(maps.Keys(m.inFlight.byPrincipal))
	m.inFlight.mu.Unlock()
	for _, principal := range principals {
		n, done := m.inFlight.use(principal)
		n.mu.Lock()
		var err error
		if n.stale || all && n.calls > 0 {
			err = m.writeCount(ctx, principal, n, math.MaxInt32)
		}
		n.mu.Unlock()
		done()
		if err != nil {
			m.o.Log.Debug("cannot write the number of calls in flight", "error", auth.Redact(err.Error()))
			return
		}
	}
}

// take uses one request of a rate limit, or returns the time until one is available.
func (m *Member) take(ctx context.Context, principal string, l policy.Limits, other bool) (time.Duration, error) {
	burst := int64(budget.Burst(l, other))
	cost := int64(math.Ceil(float64(time.Second.Microseconds()) / float64(l.Rate)))
	allowance := fmt.Sprint(principal, "\x00", l.Rate, burst, other)
	taken, full, err := m.spend(ctx, allowance, cost, cost*burst)
	if err != nil || taken {
		return 0, err
	}
	wait := full + cost - cost*burst
	if wait <= 0 { // full is from before the statement; another member has used the allowance since
		wait = cost
	}
	return time.Duration(wait) * time.Microsecond, budget.ErrTooFast
}
