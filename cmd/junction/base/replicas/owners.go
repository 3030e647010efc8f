package replicas

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"junction/proxy/members"
	"junction/upstream/bounded"
	"junction/upstream/pace"
)

const (
	// claimAttempts bounds how often a claim is repeated because another member has changed the
	// rows at the same time.
	claimAttempts = 5
	// maxKnown bounds owners.bySession. Dropped entries are read from the database again when
	// needed.
	maxKnown = 1 << 16
)

// owners caches the owners of sessions whose first owner has ended.
type owners struct {
	mu        sync.Mutex
	bySession map[[16]byte]string
	waitUntil time.Time // until then, members with an expired lease may still renew it
}

// renewedLate must be called when this process has renewed its lease later than usual, as after
// an outage of the database. The other members will probably renew theirs soon: for the time wait,
// their expired rows are not deleted.
func (o *owners) renewedLate(at time.Time, wait time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waitUntil = at.Add(wait)
}

// expiredHaveEnded reports whether a member with an expired lease counts as ended: see renewedLate.
func (o *owners) expiredHaveEnded() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !time.Now().Before(o.waitUntil)
}

func (o *owners) known(session [16]byte) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bySession[session]
}

func (o *owners) learn(session [16]byte, owner string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	bounded.Put(&o.bySession, maxKnown, session, owner, nil)
}

func (o *owners) forget(session [16]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.bySession, session)
}

// Owner implements members.Members. The owner that the table names comes before the first one, which
// has ended or has given the session up then, and never gets it back.
func (m *Member) Owner(ctx context.Context, session [16]byte, first, released string, until time.Time) (string, error) {
	owner, _, err := m.owner(ctx, session, first, released, until)
	return owner, err
}

// owner is Owner. took reports that this process has replaced another owner.
func (m *Member) owner(ctx context.Context, session [16]byte, first, released string, until time.Time) (
	owner string, took bool, err error) {
	if m.Self() == "" {
		return "", false, members.ErrAlone
	}
	if owner := m.owners.known(session); owner != "" && owner != released && m.Alive(owner) {
		return owner, false, nil
	}
	if first != released && m.Alive(first) {
		return first, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	for range claimAttempts {
		c, err := m.claim(ctx, session, claimOf{first, released}, until)
		switch {
		case err != nil:
			return "", false, err
		case c.Deleted:
			return "", false, members.ErrDeleted
		case c.Owner == nil:
			continue
		}
		if *c.Owner != first {
			m.owners.learn(session, *c.Owner)
		}
		return *c.Owner, c.Took, nil
	}
	return "", false, members.ErrAlone
}

const (
	// maxClaims bounds the sessions of one statement.
	maxClaims = 200
	// claimsAtOnce bounds the statements that claim sessions at the same time. Further claims gather
	// meanwhile, and go together: when a process with many sessions ends, all its clients come at once.
	claimsAtOnce = 2
)

// claimOf has the claims that can go in one statement.
type claimOf struct{ first, released string }

// claims gathers claims of sessions.
type claims struct {
	turn chan struct{} // has an element for each statement that runs
	mu   sync.Mutex
	next map[claimOf]*claimBatch // which wait for their turn

	statements atomic.Int64 // for tests
}

// claimBatch is the claims of one statement.
type claimBatch struct {
	until map[[16]byte]time.Time // by session; guarded by claims.mu until the statement runs
	done  chan struct{}          // closed when got and err are set
	got   map[[16]byte]claim
	err   error
	took  sync.Map // sessions for which one of the callers was told that this process has replaced the owner
}

// join adds a session to the next batch, and reports whether the caller must run it.
func (c *claims) join(of claimOf, session [16]byte, until time.Time) (b *claimBatch, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b = c.next[of]; b == nil || len(b.until) >= maxClaims {
		b, first = &claimBatch{until: map[[16]byte]time.Time{}, done: make(chan struct{})}, true
		c.next[of] = b
	}
	b.until[session] = until
	return b, first
}

// begin closes a batch to further claims.
func (c *claims) begin(of claimOf, b *claimBatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next[of] == b {
		delete(c.next, of)
	}
}

// claim makes this process the owner of a session if its owner has ended, together with the other
// sessions that are claimed meanwhile.
func (m *Member) claim(ctx context.Context, session [16]byte, of claimOf, until time.Time) (claim, error) {
	b, first := m.claims.join(of, session, until)
	if first { // the others wait for this one, also if its client has gone
		m.runClaims(context.WithoutCancel(ctx), of, b)
	}
	select {
	case <-b.done:
		return b.result(session)
	case <-ctx.Done():
		return claim{}, fmt.Errorf("%w: %w", members.ErrAlone, ctx.Err())
	}
}

// result returns the result for a session, with Took for the first caller only.
func (b *claimBatch) result(session [16]byte) (claim, error) {
	c := b.got[session]
	if c.Took {
		_, earlier := b.took.LoadOrStore(session, true)
		c.Took = !earlier
	}
	return c, b.err
}

// runClaims runs a batch when it is its turn.
func (m *Member) runClaims(ctx context.Context, of claimOf, b *claimBatch) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	defer close(b.done)
	b.err = lock(ctx, m.claims.turn)
	m.claims.begin(of, b)
	if b.err != nil {
		return
	}
	defer unlock(m.claims.turn)
	m.claims.statements.Add(1)
	if b.got, b.err = m.claimSessions(ctx, of.first, of.released, b.until); b.err != nil {
		return
	}
	for _, c := range b.got {
		if c.Mine {
			m.counters.claimed.Add(1)
			pace.Wake(m.wake)
		}
	}
}

// Ended implements members.Members.
func (m *Member) Ended(ctx context.Context, id string) (bool, error) {
	switch {
	case m.Self() == "":
		return false, members.ErrAlone
	case m.Alive(id):
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	return m.ended(ctx, id)
}

// DeleteSession implements members.Members.
func (m *Member) DeleteSession(ctx context.Context, session [16]byte, until time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	_, err := m.add(ctx, addDeletedSQL, hashOf(session), until)
	if err == nil {
		m.owners.forget(session)
	}
	return err
}

// Once implements members.Members.
func (m *Member) Once(ctx context.Context, id string, until time.Time) (bool, error) {
	if m.Self() == "" {
		return false, members.ErrAlone
	}
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	return m.add(ctx, addUsedSQL, digestOf(id), until)
}
