package replicas

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"junction/auth"
	"junction/policy"
	"junction/proxy/budget"
	"junction/proxy/members"
)

// inFlight are the calls in flight of this process, by principals with a limit of them. The table
// has the numbers of all members in one row for each principal, so that one statement can compare
// their sum with the limit. A member writes its number, not a difference: a number that could not
// be written is repaired by the next one.
type inFlight struct {
	mu sync.Mutex
	of map[string]*number
}

// number is the number of calls in flight of one principal. Its statements come one after the
// other.
type number struct {
	mu    sync.Mutex
	calls int
	stale bool // the table has another number
	users int  // guarded by inFlight.mu
}

// use returns the number of a principal. done must be called afterwards.
func (f *inFlight) use(principal string) (n *number, done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n = f.of[principal]; n == nil {
		if f.of == nil {
			f.of = map[string]*number{}
		}
		n = &number{}
		f.of[principal] = n
	}
	n.users++
	return n, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if n.users--; n.users == 0 {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.calls == 0 && !n.stale {
				delete(f.of, principal)
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
	ctx, cancel := context.WithTimeout(ctx, askTime)
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

// write sets the number of calls of this process, $3, if the sum is at most $4. Numbers of members
// that have ended do not count: see claim.
var write = `WITH seen AS (SELECT jsonb_object_keys(calls::jsonb) AS id FROM calls_in_flight WHERE principal_hash = $1),
	` + buried(`SELECT id FROM seen`, `$5`) + `,
	dead AS (SELECT coalesce(array_agg(id), '{}') AS ids FROM seen
		WHERE id IN (SELECT id FROM gone) OR NOT EXISTS (SELECT 1 FROM members WHERE members.id = seen.id)),
	written AS (
		INSERT INTO calls_in_flight AS c (principal_hash, calls, changed_at)
		SELECT $1, jsonb_build_object($2::text, $3::int)::text, ` + now + ` WHERE $3::int <= $4::int
		ON CONFLICT (principal_hash) DO UPDATE SET changed_at = excluded.changed_at,
			calls = ((c.calls::jsonb - (SELECT ids FROM dead)) || excluded.calls::jsonb)::text
		WHERE (SELECT coalesce(sum(value::int), 0)
			FROM jsonb_each_text(c.calls::jsonb - (SELECT ids FROM dead) - $2::text)) + $3::int <= $4::int
		RETURNING 1)
	SELECT EXISTS (SELECT 1 FROM written), EXISTS (SELECT 1 FROM members WHERE id = $2)`

// begin counts a call in flight.
func (m *Member) begin(ctx context.Context, principal string, limit int) (leave func(), err error) {
	n, done := m.inFlight.use(principal)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	if err := m.write(ctx, principal, n, limit); err != nil {
		n.calls--
		n.stale = n.stale || err != budget.ErrTooMany
		go done() // it locks n
		return nil, err
	}
	return sync.OnceFunc(func() {
		defer done()
		n.mu.Lock()
		defer n.mu.Unlock()
		n.calls--
		ending, cancel := context.WithTimeout(context.Background(), askTime)
		defer cancel()
		_ = m.write(ending, principal, n, math.MaxInt32) // settle repeats it
	}), nil
}

// write writes a number; n.mu is held.
func (m *Member) write(ctx context.Context, principal string, n *number, limit int) error {
	self, written, member := m.Self(), false, false
	if self == "" {
		n.stale = true
		return members.ErrAlone
	}
	err := m.o.DB.QueryRowContext(ctx, write, digestOf(principal), self, n.calls, limit, m.owners.mayBury()).
		Scan(&written, &member)
	switch {
	case err != nil:
		n.stale = true
		return unavailable(err)
	case !member: // this process has lost its lease, and does not know it yet
		n.stale = true
		return members.ErrAlone
	case !written:
		return budget.ErrTooMany
	}
	n.stale = false
	return nil
}

// settle writes the numbers that the table does not have. all means that it has none of them,
// because this process has joined under a new ID.
func (m *Member) settle(ctx context.Context, all bool) {
	m.inFlight.mu.Lock()
	var principals []string
	for principal := range m.inFlight.of {
		principals = append(principals, principal)
	}
	m.inFlight.mu.Unlock()
	for _, principal := range principals {
		n, done := m.inFlight.use(principal)
		n.mu.Lock()
		var err error
		if n.stale || all && n.calls > 0 {
			err = m.write(ctx, principal, n, math.MaxInt32)
		}
		n.mu.Unlock()
		done()
		if err != nil {
			m.o.Log.Debug("cannot write the number of calls in flight", "error", auth.Redact(err.Error()))
			return
		}
	}
}

// spend takes a call of $2 microseconds from an allowance that holds $3 microseconds, if it has
// one. full_at is when it is full again.
var spend = `WITH taken AS (
		INSERT INTO rates AS r (rate_hash, full_at) VALUES ($1, ` + now + ` + $2::bigint)
		ON CONFLICT (rate_hash) DO UPDATE SET full_at = greatest(r.full_at, ` + now + `) + $2::bigint
		WHERE greatest(r.full_at, ` + now + `) + $2::bigint - ` + now + ` <= $3::bigint
		RETURNING 1)
	SELECT EXISTS (SELECT 1 FROM taken),
		coalesce((SELECT full_at FROM rates WHERE rate_hash = $1) - ` + now + `, 0)`

// take uses one request of a rate limit, or returns the time until one is available.
func (m *Member) take(ctx context.Context, principal string, l policy.Limits, other bool) (time.Duration, error) {
	burst := int64(budget.Burst(l, other))
	cost := int64(math.Ceil(float64(time.Second.Microseconds()) / float64(l.Rate)))
	key := digestOf(fmt.Sprint(principal, "\x00", l.Rate, burst, other))
	var taken bool
	var full int64
	if err := m.o.DB.QueryRowContext(ctx, spend, key, cost, cost*burst).Scan(&taken, &full); err != nil {
		return 0, unavailable(err)
	}
	if taken {
		return 0, nil
	}
	wait := full + cost - cost*burst
	if wait <= 0 { // others have used the allowance since the statement began
		wait = cost
	}
	return time.Duration(wait) * time.Microsecond, budget.ErrTooFast
}
