package replicas

import (
	"context"
	"sync"
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
	if m.Self() == "" {
		return "", members.ErrAlone
	}
	if owner := m.owners.known(session); owner != "" && owner != released && m.Alive(owner) {
		return owner, nil
	}
	if first != released && m.Alive(first) {
		return first, nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	for range claimAttempts {
		c, err := m.claimSession(ctx, session, first, released, until)
		switch {
		case err != nil:
			return "", err
		case c.deleted:
			return "", members.ErrDeleted
		case c.owner == nil:
			continue
		}
		if c.mine {
			m.counters.claimed.Add(1)
			pace.Wake(m.wake)
		}
		if *c.owner != first {
			m.owners.learn(session, *c.owner)
		}
		return *c.owner, nil
	}
	return "", members.ErrAlone
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
