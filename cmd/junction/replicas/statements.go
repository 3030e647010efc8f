package replicas

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"junction/proxy/members"
)

// This file has the statements about the tables that all members share; join.go has those about the
// table members. Each function runs one statement, with named arguments.

// now is the SQL expression for the time of the database in microseconds.
const now = `(extract(epoch FROM statement_timestamp()) * 1000000)::bigint`

// statement is a text of SQL with the names of its arguments.
type statement struct {
	text  string // with $1, $2 and so on
	names []string
}

// args are the arguments of a statement by name.
type args map[string]any

var argument = regexp.MustCompile(`@\w+`)

// named returns a statement in whose text @name is an argument, and @now the time of the database.
func named(text string) (s statement) {
	s.text = argument.ReplaceAllStringFunc(strings.ReplaceAll(text, "@now", now), func(name string) string {
		if !slices.Contains(s.names, name[1:]) {
			s.names = append(s.names, name[1:])
		}
		return fmt.Sprint("$", slices.Index(s.names, name[1:])+1)
	})
	return s
}

// queryTime limits the time of the statements for one request.
const queryTime = 3 * time.Second

// query runs a statement, and reads its only row into the places. The error matches
// members.ErrAlone unless the context was cancelled.
func (m *Member) query(ctx context.Context, s statement, values args, places ...any) error {
	list := make([]any, len(s.names))
	for i, name := range s.names {
		list[i] = values[name]
	}
	err := m.o.DB.QueryRowContext(ctx, s.text, list...).Scan(places...)
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w: %w", members.ErrAlone, err)
}

// deleteExpired returns a common table expression named gone. If @expired_have_ended holds, it
// deletes the expired rows of the members ids, and returns their IDs. A row that is renewed at the
// same time stays.
func deleteExpired(ids string) string {
	return `gone AS (DELETE FROM members WHERE id IN (` + ids + `) AND expires_at <= @now AND @expired_have_ended
		RETURNING id)`
}

// claim is the result of claimSession.
type claim struct {
	deleted bool    // the session was deleted
	mine    bool    // this process has become the owner now
	owner   *string // nil if another member has changed a row at the same time: repeat the statement
}

// claimSession makes this process (self) the owner of a session if its owner has ended. first is
// the first owner.
//
// All parts of the statement see the tables as they were when the statement began. A member has
// ended if its row was missing then (rows never come back), or if the statement deletes the row. An
// owner is replaced only if it is still the one that the statement read.
func (m *Member) claimSession(ctx context.Context, session [16]byte, first, self string, until time.Time) (
	c claim, err error) {
	err = m.query(ctx, claimSQL, args{"session": hashOf(session), "first": first, "self": self,
		"keep": keepFor(until), "expired_have_ended": m.owners.expiredHaveEnded()}, &c.deleted, &c.mine, &c.owner)
	return c, err
}

var claimSQL = named(`WITH
	` + deleteExpired(`@first, (SELECT owner FROM session_owners WHERE session_hash = @session)`) + `,
	deleted AS (SELECT 1 FROM deleted_sessions WHERE session_hash = @session),
	claimed AS (
		INSERT INTO session_owners AS s (session_hash, owner, expires_at)
		SELECT @session, @self, @now + @keep::bigint
		WHERE NOT EXISTS (SELECT 1 FROM deleted)
			AND (@first IN (SELECT id FROM gone) OR NOT EXISTS (SELECT 1 FROM members WHERE id = @first))
			AND EXISTS (SELECT 1 FROM members WHERE id = @self AND expires_at > @now)
		ON CONFLICT (session_hash) DO UPDATE SET owner = excluded.owner
		WHERE s.owner = (SELECT owner FROM session_owners WHERE session_hash = @session)
			AND (s.owner IN (SELECT id FROM gone) OR NOT EXISTS (SELECT 1 FROM members WHERE id = s.owner))
		RETURNING owner)
	SELECT EXISTS (SELECT 1 FROM deleted) AS deleted, EXISTS (SELECT 1 FROM claimed) AS mine, coalesce(
		(SELECT owner FROM claimed),
		(SELECT m.id FROM session_owners s JOIN members m ON m.id = s.owner
			WHERE s.session_hash = @session AND m.expires_at > @now),
		(SELECT id FROM members WHERE id = @first AND expires_at > @now)) AS owner`)

// add stores a key with addDeletedSQL or addUsedSQL. added is false if it was stored before.
func (m *Member) add(ctx context.Context, s statement, key string, until time.Time) (added bool, err error) {
	err = m.query(ctx, s, args{"key": key, "keep": keepFor(until)}, &added)
	return added, err
}

var (
	addDeletedSQL = addSQL(`deleted_sessions (session_hash, expires_at)`)
	addUsedSQL    = addSQL(`used_ids (id_hash, expires_at)`)
)

func addSQL(table string) statement {
	return named(`WITH added AS (
			INSERT INTO ` + table + ` VALUES (@key, @now + @keep::bigint) ON CONFLICT DO NOTHING RETURNING 1)
		SELECT EXISTS (SELECT 1 FROM added) AS added`)
}

// setCalls sets the number of calls in flight of a principal at this process (self), if the sum of
// all members is then at most limit. It removes the numbers of members that have ended, which it
// finds as claimSession does. member is false if this process is none.
func (m *Member) setCalls(ctx context.Context, principal, self string, calls, limit int) (written, member bool,
	err error) {
	err = m.query(ctx, setCallsSQL, args{"principal": digestOf(principal), "self": self, "calls": calls,
		"limit": limit, "expired_have_ended": m.owners.expiredHaveEnded()}, &written, &member)
	return written, member, err
}

var setCallsSQL = named(`WITH
	seen AS (SELECT jsonb_object_keys(calls::jsonb) AS id FROM calls_in_flight WHERE principal_hash = @principal),
	` + deleteExpired(`SELECT id FROM seen`) + `,
	dead AS (SELECT coalesce(array_agg(id), '{}') AS ids FROM seen
		WHERE id IN (SELECT id FROM gone) OR NOT EXISTS (SELECT 1 FROM members WHERE members.id = seen.id)),
	written AS (
		INSERT INTO calls_in_flight AS c (principal_hash, calls, changed_at)
		SELECT @principal, jsonb_build_object(@self::text, @calls::int)::text, @now WHERE @calls::int <= @limit::int
		ON CONFLICT (principal_hash) DO UPDATE SET changed_at = excluded.changed_at,
			calls = ((c.calls::jsonb - (SELECT ids FROM dead)) || excluded.calls::jsonb)::text
		WHERE (SELECT coalesce(sum(value::int), 0)
			FROM jsonb_each_text(c.calls::jsonb - (SELECT ids FROM dead) - @self::text)) + @calls::int <= @limit::int
		RETURNING 1)
	SELECT EXISTS (SELECT 1 FROM written) AS written, EXISTS (SELECT 1 FROM members WHERE id = @self) AS member`)

// spend takes a call from an allowance, if there is one left. An allowance refills with time: a
// call costs so many microseconds of refilling, and a full allowance holds most. full is the time
// until the allowance is full again.
func (m *Member) spend(ctx context.Context, allowance string, cost, most int64) (taken bool, full int64, err error) {
	err = m.query(ctx, spendSQL, args{"allowance": digestOf(allowance), "cost": cost, "most": most}, &taken, &full)
	return taken, full, err
}

var spendSQL = named(`WITH taken AS (
		INSERT INTO rates AS r (rate_hash, full_at) VALUES (@allowance, @now + @cost::bigint)
		ON CONFLICT (rate_hash) DO UPDATE SET full_at = greatest(r.full_at, @now) + @cost::bigint
		WHERE greatest(r.full_at, @now) + @cost::bigint - @now <= @most::bigint
		RETURNING 1)
	SELECT EXISTS (SELECT 1 FROM taken) AS taken,
		coalesce((SELECT full_at FROM rates WHERE rate_hash = @allowance) - @now, 0) AS full_in`)

// skew is added to the time for which a row is kept, because the time of day of a member may be
// wrong.
const skew = 24 * time.Hour

// keepFor returns how long to keep a row that is needed until a time, in microseconds.
func keepFor(until time.Time) int64 { return (max(0, time.Until(until)) + skew).Microseconds() }

// hashOf returns the stored form of the hash of a session.
func hashOf(session [16]byte) string { return hex.EncodeToString(session[:]) }

// digestOf returns the stored form of a text, which is a hash: stored rows name no user.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
