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
	// askTime limits a question to the database about one request.
	askTime = 3 * time.Second
	// skew is added to the time until which a row is kept: the caller's time of day may be wrong.
	skew = 24 * time.Hour
	// askAgain bounds how often a question is asked when another member answers it at the same time.
	askAgain = 5
	// mostClaims bounds the known owners.
	mostClaims = 1 << 16
)

// owners are the owners of sessions whose first owner has ended, as far as they are known here.
type owners struct {
	mu      sync.Mutex
	of      map[[16]byte]string
	patient time.Time // until then, members that have not renewed their lease may do so
}

// returned notes that this process has renewed its lease after an outage. The others may be about
// to do the same.
func (o *owners) returned(at time.Time, wait time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.patient = at.Add(wait)
}

// mayBury reports whether a member without a valid lease counts as ended.
func (o *owners) mayBury() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !time.Now().Before(o.patient)
}

func (o *owners) known(session [16]byte) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of[session]
}

func (o *owners) learn(session [16]byte, owner string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	bounded.Put(&o.of, mostClaims, session, owner, nil)
}

func (o *owners) forget(session [16]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of, session)
}

// buried is a common table expression: it deletes the rows of some members that have no valid
// lease, if $may, and returns their IDs. A row that is renewed at the same time stays.
func buried(ids, may string) string {
	return `gone AS (DELETE FROM members WHERE id IN (` + ids + `) AND expires_at <= ` + now + ` AND ` + may + `
		RETURNING id)`
}

// claim makes this process the owner of a session whose owner has ended, and returns the owner. The
// parts of a statement see the table as it was at its begin. So a member counts as ended if its row
// was missing then, since rows never come back, or if this statement deletes it. An owner is
// replaced only if it is still the one that was read. If the answer is NULL, another member has
// changed something at the same time.
var claim = `WITH ` + buried(`$2, (SELECT owner FROM session_owners WHERE session_hash = $1)`, `$5`) + `,
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
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for range askAgain {
		self := m.Self()
		var deleted, mine bool
		var owner sql.NullString
		err := m.o.DB.QueryRowContext(ctx, claim, hashOf(session), first, self, kept(until), m.owners.mayBury()).
			Scan(&deleted, &mine, &owner)
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
			m.lookNow()
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
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	_, err := m.o.DB.ExecContext(ctx, `INSERT INTO deleted_sessions (session_hash, expires_at)
		VALUES ($1, `+now+` + $2::bigint) ON CONFLICT (session_hash) DO NOTHING`, hashOf(session), kept(until))
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
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	result, err := m.o.DB.ExecContext(ctx, `INSERT INTO used_ids (id_hash, expires_at)
		VALUES ($1, `+now+` + $2::bigint) ON CONFLICT (id_hash) DO NOTHING`, digestOf(id), kept(until))
	if err != nil {
		return false, unavailable(err)
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

// unavailable is the error of a question that the database did not answer.
func unavailable(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w: %w", members.ErrAlone, err)
}

// kept returns for how many microseconds a row is kept that is needed until a time.
func kept(until time.Time) int64 { return (max(0, time.Until(until)) + skew).Microseconds() }

// hashOf returns the stored form of the hash of a session.
func hashOf(session [16]byte) string { return hex.EncodeToString(session[:]) }

// digestOf returns the stored form of a text of any length.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
