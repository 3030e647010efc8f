package replicas

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
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

// sender is a common table expression with one row if this process (@self) still acts as a member:
// its lease has not expired, and the statement is not late (@latest). A statement that was held up
// on the way must change nothing: after an outage of the network, it can arrive before the other
// members have renewed their leases.
const sender = `sender AS (SELECT 1 FROM members WHERE id = @self AND expires_at > @now AND @now <= @latest::bigint)`

// deleteExpired returns a common table expression named gone, which needs the expression sender. If
// @expired_have_ended holds, it deletes the expired rows of the members ids, and returns their IDs.
// A row that is renewed at the same time stays.
func deleteExpired(ids string) string {
	return `gone AS (DELETE FROM members WHERE id IN (` + ids + `) AND expires_at <= @now AND @expired_have_ended
		AND EXISTS (SELECT 1 FROM sender) RETURNING id)`
}

// asSender adds the arguments of sender and deleteExpired to the arguments of a statement.
func (m *Member) asSender(values args) args {
	values["self"], values["latest"], values["expired_have_ended"] = "", int64(0), false
	if l := m.lease.Load(); l != nil {
		now := time.Now()
		values["self"], values["latest"] = l.id, l.clock()+queryTime.Microseconds()
		// If the last renewal is late, the database does not answer: the others may be late, too.
		values["expired_have_ended"] = now.Sub(l.renewed) < m.o.TTL/2 && m.owners.expiredHaveEnded()
	}
	return values
}

// claim is the result of claimSessions for one session.
type claim struct {
	Session string  `json:"s"`
	Deleted bool    `json:"d"` // the session was deleted
	Mine    bool    `json:"m"` // this process has become the owner now
	Took    bool    `json:"t"` // and another one was the owner before, by the table
	Owner   *string `json:"o"` // nil if another member has changed a row at the same time: repeat the statement
}

// claimSessions makes this process the owner of sessions if their owners have ended. first is the first
// owner of all. released is a member that has given the sessions up, and counts as ended; "" for none.
//
// All parts of the statement see the tables as they were when the statement began. A member has
// ended if its row was missing then (rows never come back), or if the statement deletes the row. An
// owner is replaced only if it is still the one that the statement read. Rows are locked in order.
func (m *Member) claimSessions(ctx context.Context, first, released string, until map[[16]byte]time.Time) (
	map[[16]byte]claim, error) {
	sessions, keeps, all := []string{}, []int64{}, map[string][16]byte{}
	for session, ends := range until {
		all[hashOf(session)] = session
		sessions, keeps = append(sessions, hashOf(session)), append(keeps, keepFor(ends))
	}
	var text string
	err := m.query(ctx, claimSQL, m.asSender(args{"sessions": sessions, "keeps": keeps, "first": first,
		"released": released}), &text)
	if err != nil {
		return nil, err
	}
	var list []claim
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("read the owners of sessions: %w", err)
	}
	got := map[[16]byte]claim{}
	for _, c := range list {
		got[all[c.Session]] = c
	}
	return got, nil
}

// A subquery for each session uses the index, also with a plan that was made when the tables were empty.
var claimSQL = named(`WITH
	` + sender + `,
	asked AS (SELECT session, keep,
			(SELECT owner FROM session_owners WHERE session_hash = session) AS owner,
			(SELECT true FROM deleted_sessions WHERE session_hash = session) AS deleted
		FROM unnest(@sessions::text[], @keeps::bigint[]) AS a (session, keep)),
	` + deleteExpired(`SELECT @first::text UNION ALL SELECT owner FROM asked`) + `,
	claimed AS (
		INSERT INTO session_owners AS s (session_hash, owner, expires_at)
		SELECT session, @self, @now + keep FROM asked
		WHERE deleted IS NULL
			AND (@first IN (SELECT id FROM gone) OR NOT EXISTS (SELECT 1 FROM members WHERE id = @first)
				OR @first = @released)
			AND EXISTS (SELECT 1 FROM sender)
		ORDER BY session
		ON CONFLICT (session_hash) DO UPDATE SET owner = excluded.owner,
			expires_at = greatest(s.expires_at, excluded.expires_at)
		WHERE s.owner = (SELECT owner FROM asked WHERE session = s.session_hash)
			AND (s.owner IN (SELECT id FROM gone) OR NOT EXISTS (SELECT 1 FROM members WHERE id = s.owner)
				OR s.owner = @released)
		RETURNING session_hash, owner)
	SELECT json_agg(json_build_object('s', session, 'd', a.deleted IS NOT NULL, 'm', c.owner IS NOT NULL,
		't', c.owner IS NOT NULL AND a.owner IS NOT NULL, 'o', coalesce(c.owner,
			(SELECT id FROM members WHERE id = a.owner AND expires_at > @now AND id <> @released),
			(SELECT id FROM members WHERE id = @first AND expires_at > @now AND id <> @released))))::text AS claims
	FROM asked a LEFT JOIN claimed c ON c.session_hash = session`)

// ended reports whether a member has ended, and deletes its row if its lease has expired.
func (m *Member) ended(ctx context.Context, id string) (yes bool, err error) {
	err = m.query(ctx, endedSQL, m.asSender(args{"member": id}), &yes)
	return yes, err
}

var endedSQL = named(`WITH ` + sender + `, ` + deleteExpired(`@member`) + `
	SELECT (EXISTS (SELECT 1 FROM gone) OR NOT EXISTS (SELECT 1 FROM members WHERE id = @member)) AS yes`)

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
