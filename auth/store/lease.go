package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"
)

// lease reserves a SQLite file for one process. It is an open transaction on a file beside it,
// which the operating system ends with the process, however the process ends.
type lease struct {
	db   *sql.DB
	conn *sql.Conn
}

// busy is SQLite's code for a locked database.
const busy = 5

// takeLease returns the lease of a file, or ErrInUse.
func takeLease(ctx context.Context, file string) (_ *lease, err error) {
	beside := file + ".lease"
	if err := touch(beside); err != nil {
		return nil, err
	}
	l := &lease{}
	if l.db, err = sql.Open("sqlite", sqliteURL(beside, url.Values{"_pragma": {"busy_timeout(200)"}})); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = l.give()
		}
	}()
	if l.conn, err = l.db.Conn(ctx); err != nil {
		return nil, err
	}
	if _, err = l.conn.ExecContext(ctx, `BEGIN EXCLUSIVE`); err != nil {
		var code *sqlite.Error
		if errors.As(err, &code) && code.Code()&0xff == busy {
			used := &InUseError{File: file, Holder: holder(ctx, file)}
			if host, _ := os.Hostname(); used.Holder != "" {
				var on string
				if _, err := fmt.Sscanf(used.Holder, holderFormat, &used.PID, &on); err != nil || on != host {
					used.PID = 0
				}
			}
			return nil, used
		}
		return nil, fmt.Errorf("%s: %w", beside, err)
	}
	return l, nil
}

// give ends the lease. The file beside stays, since another process may have opened it.
func (l *lease) give() error {
	var errs []error
	if l.conn != nil {
		errs = append(errs, l.conn.Close())
	}
	return errors.Join(append(errs, l.db.Close())...)
}

// signLease stores who has the lease, for the error message of the next process.
func (s *Store) signLease(ctx context.Context) error {
	host, _ := os.Hostname() // "" does as well
	_, err := s.exec(ctx,
		`INSERT INTO leases (id, holder, since) VALUES ('sqlite', $1, $2)
			ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, since = excluded.since`,
		fmt.Sprintf(holderFormat, os.Getpid(), host), seconds(s.now()))
	return err
}

// holderFormat is how the holder of a lease is stored: its process ID and the name of its machine.
const holderFormat = "process %d on %q"

// holder returns the holder of a file's lease, or "" if it is unknown.
func holder(ctx context.Context, file string) string {
	db, err := sql.Open("sqlite", sqliteURL(file, url.Values{"_pragma": {"busy_timeout(200)", "query_only(1)"}}))
	if err != nil {
		return ""
	}
	defer db.Close()
	var name string
	if db.QueryRowContext(ctx, `SELECT holder FROM leases WHERE id = 'sqlite'`).Scan(&name) != nil {
		return ""
	}
	return name
}

// InUseError is ErrInUse with the file, and with the process that uses it, "" if that is unknown.
type InUseError struct {
	File, Holder string
	PID          int // of the holder, if it runs on this machine; otherwise 0
}

// Error implements error.
func (e *InUseError) Error() string {
	by := ""
	if e.Holder != "" {
		by = " (" + e.Holder + ")"
	}
	ext := filepath.Ext(e.File)
	own := strings.TrimSuffix(e.File, ext) + "-2" + ext
	return fmt.Sprintf("%s: %v%s; stop that process, or give this one a database of its own with the line "+
		"storage: { dsn: %q } in its configuration file, or use Postgres", e.File, ErrInUse, by, own)
}

// Is reports whether the target is ErrInUse.
func (e *InUseError) Is(target error) bool { return target == ErrInUse }
