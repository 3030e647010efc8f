package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// ErrBackup means that a backup cannot be made or restored, for a reason that the error names.
var ErrBackup = errors.New("no backup")

// Report is the result of Check.
type Report struct {
	Schema  int            `json:"schema"` // version of the schema
	Latest  int            `json:"latest"` // version that this program needs
	Rows    map[string]int `json:"rows"`   // by table
	Secrets int            `json:"secrets"`
	// Problems are damages of the file, what another program has added to the schema or removed from
	// it, secrets that the master keys do not open, and rows that another program has changed.
	Problems []string `json:"problems"`
}

// Latest returns the version of the schema that this program needs.
func Latest() int { return len(steps()) }

// checkedTables are the tables that Check counts.
var checkedTables = []string{"users", "idp_sessions", "grants", "oauth_tokens", "upstream_tokens", "audit"}

// Check reads the whole store of a configuration without changing it, also while a process uses it.
// The store may have an older schema. The error is ErrKeys, ErrNewer, or a failure to read.
func Check(ctx context.Context, c Config) (Report, error) {
	s, err := openToRead(ctx, c)
	if err != nil {
		return Report{}, err
	}
	defer s.Close()
	r := Report{Latest: len(s.steps), Rows: map[string]int{}, Problems: []string{}}
	// The schema comes first, since the check of the file evaluates conditions that are in it.
	err = s.checkVersion(ctx, &r)
	if !s.postgres && len(r.Problems) == 0 && !errors.Is(err, ErrNewer) && !errors.Is(err, ErrSchema) {
		damages, failed := s.integrity(ctx)
		if r.Problems = append(r.Problems, damages...); failed != nil && err == nil {
			err = failed
		}
		if len(damages) > 0 {
			err = nil // the damages are the reason
		}
	}
	if err != nil || len(r.Problems) > 0 {
		return r, err
	}
	if _, err := s.checkKeys(ctx); err != nil {
		return r, err
	}
	if r.Schema < r.Latest {
		if s.has, err = columnsAfter(ctx, s.steps[:r.Schema]); err != nil {
			return r, err
		}
	}
	for _, table := range checkedTables {
		n := 0
		if !s.hasColumn(table, "id") && !s.hasColumn(table, "signature") {
			continue
		}
		if err := s.get(ctx, []any{&n}, `SELECT count(*) FROM `+table); err != nil {
			return r, err
		}
		r.Rows[table] = n
	}
	return r, s.verifyAll(ctx, &r)
}

// checkVersion sets the version of the schema, and adds the differences of the schema to the problems.
func (s *Store) checkVersion(ctx context.Context, r *Report) (err error) {
	if r.Schema, err = s.version(ctx); err != nil {
		return err
	}
	switch {
	case r.Schema == 0:
		return fmt.Errorf("%w: it is no store of this program, or an empty one", ErrBackup)
	case s.isNewer(r.Schema):
		return s.newer(r.Schema)
	}
	all, err := s.differences(ctx, r.Schema)
	for _, d := range all[:min(len(all), maxProblems)] {
		r.Problems = append(r.Problems, d.text)
	}
	return err
}

const maxProblems = 20 // of a Report

// openToRead opens the store for reading only.
func openToRead(ctx context.Context, c Config) (*Store, error) {
	if c.Driver == Postgres {
		c.Attach = true
		return connect(ctx, c)
	}
	file, err := filepath.Abs(c.DSN)
	if err == nil {
		_, err = os.Stat(file)
	}
	if err != nil {
		return nil, err
	}
	s, err := blank(c)
	if err != nil {
		return nil, err
	}
	query := url.Values{"_pragma": {"busy_timeout(10000)", "query_only(1)", "trusted_schema(0)"}}
	if s.read, err = sql.Open("sqlite", sqliteURL(file, query)); err != nil {
		return nil, err
	}
	s.write = s.read
	return s, nil
}

// integrity returns the damages that SQLite finds in its file.
func (s *Store) integrity(ctx context.Context) (problems []string, err error) {
	problems, err = s.texts(ctx, `PRAGMA integrity_check(20)`)
	if slices.Equal(problems, []string{"ok"}) {
		problems = []string{}
	}
	return problems, err
}

// verifyAll opens every secret of the store and verifies every row that has a code, and adds to r
// those that another program has changed.
func (s *Store) verifyAll(ctx context.Context, r *Report) error {
	r.Secrets = 1 // the canary
	for _, t := range boundRows {
		if !s.hasColumn(t.blank().table(), t.key) {
			continue
		}
		err := s.eachBound(ctx, t.key, t.blank, func(row boundRow) error {
			for _, p := range row.secrets {
				if len(p.sealed) > 0 {
					r.Secrets++
				}
			}
			if row.err != nil && len(r.Problems) < maxProblems {
				r.Problems = append(r.Problems, fmt.Sprintf("%v (row %s)", row.err, row.key))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Backup writes a copy of a SQLite store to a file, also while a process uses the store. It checks
// the copy before it replaces an older file of that name; after an error, the older file is there,
// and nothing else. The copy has all changes of transactions that ended before the call. Secrets in
// it are sealed with the master keys, which it does not contain.
func Backup(ctx context.Context, c Config, file string) (r Report, err error) {
	if c.Driver == Postgres {
		return r, fmt.Errorf("%w: the storage is Postgres, which has tools of its own", ErrBackup)
	}
	s, err := openToRead(ctx, c)
	if err != nil {
		return r, err
	}
	defer s.Close()
	if v, err := s.version(ctx); err != nil || v == 0 {
		return r, errors.Join(err, fmt.Errorf("%w: %s is no store of this program", ErrBackup, c.DSN))
	}
	if err := mayReplace(ctx, c, file); err != nil {
		return r, err
	}
	err = replaceWith(file, func(temp string) error {
		if err := copyStore(ctx, temp, c.DSN); err != nil {
			return err
		}
		r, err = c.whole(ctx, temp)
		return err
	}, nil)
	return r, err
}

// mayReplace returns an error if a file exists that must not become a backup: the store, or anything
// that is no backup, such as a key file.
func mayReplace(ctx context.Context, c Config, file string) error {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if store, err := os.Stat(c.DSN); err == nil && os.SameFile(info, store) {
		return fmt.Errorf("%w: %s is the storage itself; name another file", ErrBackup, file)
	}
	no := fmt.Errorf("%w: %s exists and is no backup; name another file", ErrBackup, file)
	if !info.Mode().IsRegular() {
		return no
	}
	c.DSN = file
	s, err := openToRead(ctx, c)
	if err != nil {
		return no
	}
	defer s.Close()
	// A store that a Junction uses has a write-ahead log, and a copy has none.
	if mode, err := s.texts(ctx, `PRAGMA journal_mode`); err != nil || len(mode) != 1 || mode[0] == "wal" {
		return no
	}
	if v, err := s.version(ctx); err != nil || v == 0 {
		return no
	}
	return nil
}

// copyStore writes a store to an empty file, with what is not in its main file yet.
func copyStore(ctx context.Context, to, from string) error {
	// not through query_only, which forbids VACUUM
	db, err := sql.Open("sqlite", sqliteURL(mustAbs(from), url.Values{"_pragma": {"busy_timeout(10000)",
		"trusted_schema(0)"}}))
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `VACUUM INTO `+quoted(to))
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}

// Restore replaces the store of a configuration by a backup. No process may use the store. The
// backup must have been made with the master keys, and its schema must not be newer than the
// program's. The store that was there before stays beside it under the name that Restore returns; ""
// if there was none.
func Restore(ctx context.Context, c Config, file string) (r Report, before string, err error) {
	if c.Driver == Postgres {
		return r, "", fmt.Errorf("%w: the storage is Postgres, which has tools of its own", ErrBackup)
	}
	if r, err = c.whole(ctx, file); err != nil {
		return r, "", fmt.Errorf("%s: %w", file, err)
	}
	place := mustAbs(c.DSN)
	if resolved, err := filepath.EvalSymlinks(place); err == nil {
		place = resolved
	}
	l, err := takeLease(ctx, place)
	if err != nil {
		return r, "", err
	}
	defer func() { err = errors.Join(err, l.give()) }()
	err = replaceWith(place, func(temp string) error {
		if err := copyStore(ctx, temp, file); err != nil {
			return err
		}
		r, err = c.whole(ctx, temp) // the file may have changed since the first check
		return err
	}, func() (err error) {
		before, err = setAside(place, c.now())
		return err
	})
	return r, before, err
}

// whole returns the report of a file that can take the place of the store, or ErrBackup.
func (c Config) whole(ctx context.Context, file string) (Report, error) {
	c.DSN = file
	r, err := Check(ctx, c)
	if err == nil && len(r.Problems) > 0 {
		err = fmt.Errorf("%w: the file is damaged, or another program has changed it: %s", ErrBackup, r.Problems[0])
	}
	return r, err
}

func (c Config) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

// setAside renames a store and its side files, so that another file can take its place. It returns
// the new name; "" if there was no store.
func setAside(place string, now time.Time) (string, error) {
	if _, err := os.Stat(place); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	stamp := place + ".before-" + now.UTC().Format("20060102T150405Z")
	before := stamp
	for i := 1; ; i++ { // a name that an earlier restore has not used
		if _, err := os.Lstat(before); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return "", err
		}
		before = fmt.Sprintf("%s-%d", stamp, i)
	}
	for _, side := range []string{"-wal", "-shm", ""} { // the store last: without it nothing was moved
		err := os.Rename(place+side, before+side)
		if err != nil && (side == "" || !errors.Is(err, fs.ErrNotExist)) {
			return "", err
		}
	}
	return before, nil
}

// replaceWith calls write with a new file that only its owner can read, in the folder of file. Once
// the content is on the disk, it calls ready, which may be nil, and gives the new file the name of
// file. After an error the new file is gone.
func replaceWith(file string, write func(temp string) error, ready func() error) (err error) {
	dir := filepath.Dir(mustAbs(file))
	f, err := os.CreateTemp(dir, "."+filepath.Base(file)+"-*")
	if err != nil {
		return err
	}
	temp := f.Name()
	defer func() {
		if err != nil {
			for _, side := range []string{"", "-journal", "-wal", "-shm"} {
				_ = os.Remove(temp + side)
			}
		}
	}()
	if err := f.Close(); err != nil {
		return err
	}
	if err := write(temp); err != nil {
		return err
	}
	if f, err = os.OpenFile(temp, os.O_RDWR, 0); err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if ready != nil {
		if err := ready(); err != nil {
			return err
		}
	}
	return os.Rename(temp, file)
}

// mustAbs returns the absolute form of a path, or the path if the working directory is gone.
func mustAbs(file string) string {
	if abs, err := filepath.Abs(file); err == nil {
		return abs
	}
	return file
}

// quoted returns a text as a literal of SQL.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
