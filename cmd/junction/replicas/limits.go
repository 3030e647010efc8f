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

// inFlight counts the calls in flight of this process, for each principal whose policy limits them
// (concurrent). The table calls_in_flight has one row for each principal, with the counts of all
// members, so that one statement can compare their sum with the limit. A member writes its count,
// not a difference: if a write fails, the next write corrects the table.
type inFlight struct {
	mu sync.Mutex
	of map[string]*callCount
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
	if n = f.of[principal]; n == nil {
		if f.of == nil {
			f.of = map[string]*callCount{}
		}
		n = &callCount{}
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

// writeCountSQL sets the count of this process ($2) to $3, if the sum for the principal ($1) is
// then at most $4. It removes the counts of members that have ended, which it finds as claimSQL
// does. Its columns are: whether it has written the count, and whether this process is a member.
var writeCountSQL = `WITH
	seen AS (SELECT jsonb_object_keys(calls::jsonb) AS id FROM calls_in_flight WHERE principal_hash = $1),
	` + deleteExpired(`SELECT id FROM seen`, `$5`) + `,
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
	self, written, member := m.Self(), false, false
	if self == "" {
		n.stale = true
		return members.ErrAlone
	}
	err := m.o.DB.QueryRowContext(ctx, writeCountSQL, digestOf(principal), self, n.calls, limit,
		m.owners.expiredHaveEnded()).Scan(&written, &member)
	switch {
	case err != nil:
		n.stale = true
		return unavailable(err)
	case !member: // another member has deleted the row of this process since it was read
		n.stale = true
		return members.ErrAlone
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

// spendSQL takes a call from an allowance ($1), if there is one left. An allowance refills with
// time: a call costs $2 microseconds of refilling, and a full allowance holds $3. full_at is when
// the allowance is full again. The columns are: whether the call was taken, and the time until
// full_at.
var spendSQL = `WITH taken AS (
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
	if err := m.o.DB.QueryRowContext(ctx, spendSQL, key, cost, cost*burst).Scan(&taken, &full); err != nil {
		return 0, unavailable(err)
	}
	if taken {
		return 0, nil
	}
	wait := full + cost - cost*burst
	if wait <= 0 { // full is from before the statement; another member has used the allowance since
		wait = cost
	}
	return time.Duration(wait) * time.Microsecond, budget.ErrTooFast
}
