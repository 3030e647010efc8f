package replicas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// One at a time: of two that differ and begin at once, one must see the other.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1 + 'members'::regclass::oid::bigint)`,
			int64(store.JoinLock)); err != nil {
			return err
		}
		rows, err := list(ctx, tx)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if r.left <= 0 {
				continue
			}
			if err := m.compatible(r); err != nil {
				return err
			}
		}
		// reachesSelf has shown that this process answers at the address, so an older member with
		// the same address has ended.
		if _, err := tx.Exec(ctx, `DELETE FROM members WHERE address = $1`, m.address); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `INSERT INTO members
			(id, address, fingerprint, digest, version, begun_at, expires_at)
			VALUES ($1, $2, $3, $4, $5, `+now+`, `+now+` + $6) RETURNING `+now, id, m.address, m.identity.fingerprint,
			*m.shared.Load(), m.o.Version, m.o.TTL.Microseconds()).Scan(&there); err != nil {
			return err
		}
		return announce(ctx, tx)
	})
	return there, err
}

// compatible returns an error if this process must not join while the member of the row lives.
func (m *Member) compatible(r row) error {
	if r.fingerprint != m.identity.fingerprint {
		return fmt.Errorf("%w: the fingerprint of sessions.key_file is %s here and %s in the process at %s; "+
			"give all processes the same file", errRefused, m.identity.fingerprint, r.fingerprint, r.address)
	}
	if parts := differing(required(*m.shared.Load()), required(r.digest)); parts != "" {
		return fmt.Errorf("%w: the configuration differs from that of the process at %s: %s; give all processes "+
			"the same configuration, and stop those with the other one first", errRefused, r.address, parts)
	}
	if here, there := store.SchemaOf(*m.shared.Load()), store.SchemaOf(r.digest); here > there+1 || there > here+1 {
		return fmt.Errorf("%w: this process is made for the schema %d of the database, and the process at %s for %d; "+
			"upgrade to the versions in between first, or stop all processes", errRefused, here, r.address, there)
	}
	return nil
}

// required returns the parts of Shared that must be equal, without those that may differ for the time
// of a rollout: the names of these begin with ~.
func required(shared string) string {
	parts := slices.DeleteFunc(strings.Fields(shared), func(part string) bool { return part[0] == '~' })
	return strings.Join(parts, " ")
}

// differing returns the parts of Shared that differ, with both digests, or "".
func differing(here, there string) string {
	if here == there {
		return ""
	}
	digests := func(text string) map[string]string {
		parts := map[string]string{}
		for part := range strings.FieldsSeq(text) {
			name, digest, _ := strings.Cut(part, "=")
			parts[strings.TrimPrefix(name, "~")] = digest
		}
		return parts
	}
	a, b := digests(here), digests(there)
	both := maps.Clone(a)
	maps.Copy(both, b)
	var list []string
	for _, name := range slices.Sorted(maps.Keys(both)) {
		if a[name] != b[name] {
			list = append(list, fmt.Sprintf("%s (%s here, %s there)", name, cmp.Or(a[name], "none"),
				cmp.Or(b[name], "none")))
		}
	}
	return strings.Join(list, ", ")
}

// renew extends the lease of a row. It returns the time of the database, and false if the row was
// deleted.
func (m *Member) renew(ctx context.Context, conn *pgx.Conn, id string) (there int64, kept bool, err error) {
	err = conn.QueryRow(ctx, `UPDATE members SET expires_at = `+now+` + $2, digest = $3 WHERE id = $1
		RETURNING `+now, id, m.o.TTL.Microseconds(), *m.shared.Load()).Scan(&there)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	return there, err == nil, err
}

// leave deletes the row of this process.
func leave(ctx context.Context, conn *pgx.Conn, id string) error {
	if _, err := conn.Exec(ctx, `DELETE FROM members WHERE id = $1`, id); err != nil {
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

// list returns all rows, also those that have expired.
func list(ctx context.Context, db database) ([]row, error) {
	found, err := db.Query(ctx, `SELECT id, address, fingerprint, digest, version, begun_at, expires_at - `+now+`
		FROM members`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, func(f pgx.CollectableRow) (r row, err error) {
		var begun, left int64
		err = f.Scan(&r.id, &r.address, &r.fingerprint, &r.digest, &r.version, &begun, &left)
		r.begun, r.left = time.UnixMicro(begun), time.Duration(left)*time.Microsecond
		return r, err
	})
}
