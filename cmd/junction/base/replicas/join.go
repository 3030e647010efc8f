package replicas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"junction/auth/store"
)

// channel is the name for LISTEN and NOTIFY. All schemas of a database share it. A notification
// from another schema makes this process read its table once more, which does no harm.
const channel = "junction_members"

// errRefused means that this process must not join.
var errRefused = errors.New("refused")

// join adds a row for this process, unless it differs from the living members. It returns the time
// of the database.
func (m *Member) join(ctx context.Context, conn *pgx.Conn, id string) (there int64, err error) {
	if err := m.reachesSelf(ctx); err != nil {
		return 0, err
	}
	var refused error // what the transaction has stored stays
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := lockJoin(ctx, tx); err != nil {
			return err
		}
		// Since the start, a command may have migrated the schema, or sealed the store with another key.
		switch err := m.o.MayJoin(ctx); {
		case errors.Is(err, store.ErrNewer), errors.Is(err, store.ErrSchema), errors.Is(err, store.ErrKeys):
			return fmt.Errorf("%w: %w", errRefused, err)
		case err != nil:
			return err
		}
		// A lease that lasts longer than one can is that of another time: the database was restored, or its clock
		// was put back.
		if _, err := tx.Exec(ctx, `UPDATE members SET expires_at = `+now+` + $1 WHERE expires_at > `+now+` + $1`,
			m.o.TTL.Microseconds()); err != nil {
			return err
		}
		digests := m.shared.Load().digests(m.identity)
		rows, _, err := list(ctx, tx, digests, m.o.TTL)
		if err != nil {
			return err
		}
		// In this order, a reason stays the same while the others stay.
		slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.address, b.address) })
		rows = slices.DeleteFunc(rows, func(r row) bool { return r.left <= 0 })
		for _, r := range rows {
			if err := m.compatible(r); err != nil {
				return err
			}
		}
		s, err := standingOf(ctx, tx, digests, m.o.TTL)
		if err != nil {
			return err
		}
		number, refusal := m.place(rows, s)
		m.numbers.own.Store(number)
		m.numbers.highest.Store(max(m.numbers.highest.Load(), s.highest, number))
		if refused = refusal; refused != nil && !errors.Is(refused, errWaits) {
			return nil
		}
		if err := storeNumber(ctx, tx, digests[0], number, refused != nil); err != nil {
			return err
		}
		if refused != nil {
			return announce(ctx, tx)
		}
		// reachesSelf has shown that this process answers at the address, so an older member with
		// the same address has ended.
		if _, err := tx.Exec(ctx, `DELETE FROM members WHERE address = $1`, m.address); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `INSERT INTO members
			(id, address, fingerprint, digest, version, begun_at, expires_at)
			VALUES ($1, $2, $3, $4, $5, `+now+`, `+now+` + $6) RETURNING `+now, id, m.address,
			m.identity.fingerprint(), m.described(), m.o.Version, m.o.TTL.Microseconds()).
			Scan(&there); err != nil {
			return err
		}
		return announce(ctx, tx)
	})
	return there, cmp.Or(err, refused)
}

// compatible returns an error if this process must not join while the member of the row lives, whatever their
// configurations are.
func (m *Member) compatible(r row) error {
	if err := meet("sessions.key_file", r.address, m.identity.fingerprints(), r.keys()); err != nil {
		return err
	}
	if there := store.Fact(r.digest, store.MasterKeys); len(there) > 0 && len(m.o.MasterKeys) > 0 {
		const what = "the master keys (storage.key_file or JUNCTION_MASTER_KEYS)"
		if err := meet(what, r.address, m.o.MasterKeys, there); err != nil {
			return err
		}
	}
	shared := m.shared.Load()
	if here, there := store.SchemaOf(shared.own), store.SchemaOf(r.digest); here > there+1 || there > here+1 {
		return fmt.Errorf("%w: this process is made for the schema %d of the database, and the process at %s for %d; "+
			"upgrade to the versions in between first, or stop all processes", errRefused, here, r.address, there)
	}
	return nil
}

// meet returns an error unless each of two processes accepts the first key of the other one: then each
// opens what the other one seals. what names the keys, of which here and there have the fingerprints.
func meet(what, address string, here, there []string) error {
	list := func(keys []string) string { return strings.Join(keys, ", ") }
	switch known, knows := slices.Contains(there, here[0]), slices.Contains(here, there[0]); {
	case known && knows:
		return nil
	case !known && !knows:
		return fmt.Errorf("%w: the fingerprint of %s is %s here and %s in the process at %s; give all processes the "+
			"same keys", errRefused, what, list(here), list(there), address)
	case !known:
		return fmt.Errorf("%w: the first key of %s here has the fingerprint %s, which the process at %s does not have "+
			"(%s); first add the key there as the last one, and restart that process", errRefused, what, here[0],
			address, list(there))
	default:
		return fmt.Errorf("%w: the first key of %s in the process at %s has the fingerprint %s, which this process "+
			"does not have (%s); add that key here as the last one, until all processes have another first key",
			errRefused, what, address, there[0], list(here))
	}
}

// sessionKeys is the name of the fact of a row that has the fingerprints of the keys of sessions.
const sessionKeys = "~session_keys"

// keys returns the fingerprints of the keys of sessions of a member. A version without the fact has one key.
func (r row) keys() []string {
	if all := store.Fact(r.digest, sessionKeys); len(all) > 0 {
		return all
	}
	return []string{r.fingerprint}
}

// described is the description of this process for its row. The digests of a row are made with the first
// key of its process, which all others have.
type described struct {
	own   string            // for the row of this process
	under map[string]string // with the digests of each key, by its fingerprint
}

// describe returns the description of this process, by Options.Shared.
func (m *Member) describe(shared func(key []byte) (string, error)) (*described, error) {
	d := &described{under: map[string]string{}}
	for _, key := range m.identity.keys {
		text, err := shared(key.digests)
		if err != nil {
			return nil, err
		}
		text += " " + sessionKeys + "=" + strings.Join(m.identity.fingerprints(), ",")
		if len(m.o.MasterKeys) > 0 {
			text += " " + store.MasterKeys + "=" + strings.Join(m.o.MasterKeys, ",")
		}
		d.under[key.fingerprint] = strings.TrimSpace(text)
	}
	d.own = d.under[m.identity.fingerprint()]
	return d, nil
}

// described returns the description of this process for its row.
func (m *Member) described() string {
	text := m.shared.Load().own
	if number := m.numbers.own.Load(); number > 0 {
		text += fmt.Sprintf(" %s=%d", configurationFact, number)
	}
	if m.leaving.Load() {
		text += " " + draining
	}
	return text
}

// renew extends the lease of a row. It returns the time of the database, and false if the row was
// deleted.
func (m *Member) renew(ctx context.Context, conn *pgx.Conn, id string) (there int64, kept bool, err error) {
	err = conn.QueryRow(ctx, `UPDATE members SET expires_at = `+now+` + $2, digest = $3 WHERE id = $1
		RETURNING `+now, id, m.o.TTL.Microseconds(), m.described()).Scan(&there)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	return there, err == nil, err
}

// leave deletes the row of this process. Of two that leave at once, one finds no other row with its number.
func leave(ctx context.Context, conn *pgx.Conn, id string, number int64) error {
	if _, err := conn.Exec(ctx, `DELETE FROM members WHERE id = $1`, id); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, `UPDATE configurations SET ended_at = `+now+` WHERE number = $1
		AND NOT EXISTS (SELECT 1 FROM members WHERE digest || ' ' LIKE '% `+configurationFact+`=' || $1 || ' %')`,
		number); err != nil {
		return err
	}
	return announce(ctx, conn)
}

// deleteLongExpired deletes the rows that expired more than a TTL ago. Rows that expired later
// stay, because their members may renew them after an outage of the database. A member that needs a
// session of an expired member deletes that row itself (claimSessions). Only a process with a valid
// lease (self) deletes rows.
func (m *Member) deleteLongExpired(ctx context.Context, conn *pgx.Conn, self string) error {
	_, err := conn.Exec(ctx, `DELETE FROM members WHERE expires_at < `+now+` - $1
		AND EXISTS (SELECT 1 FROM members WHERE id = $2 AND expires_at > `+now+`)`, m.o.TTL.Microseconds(), self)
	return err
}

// database is a connection or a transaction.
type database interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// announce tells all members that the table has changed.
func announce(ctx context.Context, db database) error {
	_, err := db.Exec(ctx, `NOTIFY `+channel)
	return err
}

// list returns all rows, also those that have expired, and, if there are rows, standing.own and standing.wanted of
// the configuration with these digests.
func list(ctx context.Context, db database, digests []string, ttl time.Duration) (rows []row, s standing, err error) {
	found, err := db.Query(ctx, `SELECT id, address, fingerprint, digest, version, begun_at, expires_at - `+now+`,
		(SELECT coalesce(max(number), 0) FROM configurations WHERE digest = ANY ($1)),
		(SELECT coalesce(max(number), 0) FROM configurations WHERE digest <> ALL ($1) AND wanted_at > `+now+` - $2)
		FROM members`, digests, ttl.Microseconds())
	if err != nil {
		return nil, s, err
	}
	rows, err = pgx.CollectRows(found, func(f pgx.CollectableRow) (r row, err error) {
		var begun, left int64
		err = f.Scan(&r.id, &r.address, &r.fingerprint, &r.digest, &r.version, &begun, &left, &s.own, &s.wanted)
		r.begun, r.left = time.UnixMicro(begun), time.Duration(left)*time.Microsecond
		return r, err
	})
	return rows, s, err
}
