package replicas

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"junction/proxy/members"
	"junction/upstream/bounded"
)

const (
	// queryTime limits the time of a query for one request.
	queryTime = 3 * time.Second
	// skew is added to the time for which a row is kept, because the time of day of a member may be
	// wrong.
	skew = 24 * time.Hour
	// claimAttempts bounds how often a claim is repeated because another member has changed the
	// rows at the same time.
	claimAttempts = 5
	// maxKnown bounds owners.of. Dropped entries are read from the database again when needed.
	maxKnown = 1 << 16
)

// owners caches the owners of sessions whose first owner has ended.
type owners struct {
	mu        sync.Mutex
	of        map[[16]byte]string
	waitUntil time.Time // until then, members with an expired lease may still renew it
}

// renewedLate must be called when this process has renewed its lease after it had expired, as after
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
	return o.of[session]
}

func (o *owners) learn(session [16]byte, owner string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	bounded.Put(&o.of, maxKnown, session, owner, nil)
}

func (o *owners) forget(session [16]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of, session)
}

// deleteExpired returns a common table expression named gone. If the condition may holds, it
// deletes the expired rows of the members ids, and returns their IDs. A row that is renewed at the
// same time stays.
func deleteExpired(ids, may string) string {
	return `gone AS (DELETE FROM members WHERE id IN (` + ids + `) AND expires_at <= ` + now + ` AND ` + may + `
		RETURNING id)`
}

// claimSQL makes this process ($3) the owner of a session ($1) if the owner has ended. Its columns
// are: whether the session was deleted, whether this process has become the owner now, and the
// owner. $2 is the first owner.
//
// All parts of the statement see the tables as they were when the statement began. A member has
// ended if its row was missing then (rows never come back), or if the statement deletes the row. An
// owner is replaced only if it is still the one that the statement read. The owner is NULL if
// another member has changed a row at the same time; the statement must then be repeated.
var claimSQL = `WITH ` + deleteExpired(`$2, (SELECT owner FROM session_owners WHERE session_hash = $1)`, `$5`) + `,
	deleted AS (SELECT 1 FROM deleted_sessions WHERE session_hash = $1),
	claimed AS (
		INSERT INTO session_owners AS s (session_hash, owner, expires_at)
		SELECT $1, $3, ` + now + ` + $4::bigint
		WHERE NOT EXISTS (SELECT 1 FROM deleted)
			AND ($2 IN (SELECT id FROM gone) OR NOT EXISTS (SELECT 1 FROM members WHERE id = $2))
			AND EXISTS (SELECT 1 FROM members WHERE id = $3 AND expires_at > ` + now + `)
		ON CONFLICT (session_hash) DO UPDATE SET owner = excluded.owner
		WHERE s.owner = (SELECT owner FROM session_owners WHERE session_hash = $1)
			AND (s.owner IN (SELECT id FROM gone) OR NOT EXISTS (SELECT 1 FROM members WHERE id = s.owner))
		RETURNING owner)
	SELECT EXISTS (SELECT 1 FROM deleted), EXISTS (SELECT 1 FROM claimed), coalesce(
		(SELECT owner FROM claimed),
		(SELECT m.id FROM session_owners s JOIN members m ON m.id = s.owner
			WHERE s.session_hash = $1 AND m.expires_at > ` + now + `),
		(SELECT id FROM members WHERE id = $2 AND expires_at > ` + now + `))`

// Owner implements members.Members.
func (m *Member) Owner(ctx context.Context, session [16]byte, first string, until time.Time) (string, error) {
	if m.Self() == "" {
		return "", members.ErrAlone
	}
	if m.Alive(first) {
		return first, nil
	}
	if owner := m.owners.known(session); owner != "" && m.Alive(owner) {
		return owner, nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	for range claimAttempts {
		self := m.Self()
		var deleted, mine bool
		var owner sql.NullString
		err := m.o.DB.QueryRowContext(ctx, claimSQL, hashOf(session), first, self, keepFor(until),
			m.owners.expiredHaveEnded()).Scan(&deleted, &mine, &owner)
		switch {
		case err != nil:
			return "", unavailable(err)
		case deleted:
			return "", members.ErrDeleted
		case !owner.Valid:
			continue
		}
		if mine {
			m.counters.claimed.Add(1)
			m.readTableSoon()
		}
		if owner.String != first {
			m.owners.learn(session, owner.String)
		}
		return owner.String, nil
	}
	return "", members.ErrAlone
}

// DeleteSession implements members.Members.
func (m *Member) DeleteSession(ctx context.Context, session [16]byte, until time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	_, err := m.o.DB.ExecContext(ctx, `INSERT INTO deleted_sessions (session_hash, expires_at)
		VALUES ($1, `+now+` + $2::bigint) ON CONFLICT (session_hash) DO NOTHING`, hashOf(session), keepFor(until))
	if err != nil {
		return unavailable(err)
	}
	m.owners.forget(session)
	return nil
}

// Once implements members.Members.
func (m *Member) Once(ctx context.Context, id string, until time.Time) (bool, error) {
	if m.Self() == "" {
		return false, members.ErrAlone
	}
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	result, err := m.o.DB.ExecContext(ctx, `INSERT INTO used_ids (id_hash, expires_at)
		VALUES ($1, `+now+` + $2::bigint) ON CONFLICT (id_hash) DO NOTHING`, digestOf(id), keepFor(until))
	if err != nil {
		return false, unavailable(err)
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

// unavailable wraps the error of a failed query, so that it matches members.ErrAlone.
func unavailable(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w: %w", members.ErrAlone, err)
}

// keepFor returns how long to keep a row that is needed until a time, in microseconds.
func keepFor(until time.Time) int64 { return (max(0, time.Until(until)) + skew).Microseconds() }

// hashOf returns the stored form of the hash of a session.
func hashOf(session [16]byte) string { return hex.EncodeToString(session[:]) }

// digestOf returns the stored form of a text, which is a hash: stored rows name no user.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
