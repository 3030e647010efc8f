package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// migrations has the steps of the schema: migrations/0001_….sql, 0002_….sql and so on. Each runs
// once, and must not change after a release.
//
//go:embed migrations/*.sql
var migrations embed.FS

// step is one migration, for both databases. Its name begins with its number.
type step struct{ name, text string }

// Keys of Postgres advisory locks. They must not change.
const (
	migrating = 0x6a756e6301
	sweeping  = 0x6a756e63 << 32 // and the id of a table, of 32 bits
)

// migrate checks the keys and the schema, and migrates the schema, in one transaction, in one process
// at a time. If apply is false, it only checks both.
func (s *Store) migrate(ctx context.Context, apply bool) error {
	steps := s.steps
	return s.WithTx(ctx, func(ctx context.Context) error {
		if s.postgres && apply {
			if _, err := s.exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrating)); err != nil {
				return err
			}
		}
		done, err := s.version(ctx)
		if err != nil {
			return err
		}
		switch {
		case done > len(steps):
			return fmt.Errorf("%w: its schema is %d, this program knows %d; upgrade the program", ErrNewer, done,
				len(steps))
		case done < len(steps) && !apply:
			return fmt.Errorf("the store's schema is %d, but this program needs %d; start the server first, which "+
				"migrates it", done,
				len(steps))
		}
		if err := s.checkSchema(ctx, done); err != nil {
			return err
		}
		sealed := false
		if done > 0 {
			if sealed, err = s.checkKeys(ctx); err != nil {
				return err
			}
		}
		if !apply {
			return nil
		}
		for i := done; i < len(steps); i++ {
			if err := s.apply(ctx, steps[i], i+1); err != nil {
				return fmt.Errorf("migrate the schema: %s, and nothing was changed: %w", steps[i].name, err)
			}
		}
		if !sealed {
			return s.addCanary(ctx)
		}
		return nil
	})
}

// steps returns the migrations of this program in order.
func steps() (all []step) {
	names, _ := fs.Glob(migrations, "migrations/*.sql") // the pattern is valid
	for _, name := range names {
		text, _ := migrations.ReadFile(name) // an embedded file is always readable
		all = append(all, step{path.Base(name), string(text)})
	}
	return all
}

// version returns how many steps the schema has.
func (s *Store) version(ctx context.Context) (n int, err error) {
	// Anything else of this name must not even be read: it may be a view, or a table with code.
	catalog := `SELECT count(*), coalesce(sum(type = 'table' AND sql = '` + migrationsTable + `'), 0)
		FROM sqlite_schema WHERE name = 'schema_migrations'`
	if s.postgres {
		catalog = `SELECT count(*), count(*) FILTER (WHERE table_type = 'BASE TABLE') FROM information_schema.tables
			WHERE table_schema = current_schema() AND table_name = 'schema_migrations'`
	}
	plain := 0
	if err := s.get(ctx, []any{&n, &plain}, catalog); err != nil || n == 0 {
		return 0, err
	}
	if n != plain {
		return 0, fmt.Errorf("%w: schema_migrations is not the table that Junction has made", ErrSchema)
	}
	var last sql.NullInt64
	err = s.get(ctx, []any{&n, &last}, `SELECT count(*), max(version) FROM schema_migrations`)
	if err == nil && int64(n) != last.Int64 {
		err = errors.New("the table schema_migrations has gaps")
	}
	return n, err
}

// apply runs the step that makes a version of the schema.
func (s *Store) apply(ctx context.Context, m step, version int) error {
	if number, _, _ := strings.Cut(m.name, "_"); number != fmt.Sprintf("%04d", version) {
		return errors.New("it is step " + strconv.Itoa(version))
	}
	statements := m.text
	if version == 1 {
		statements = migrationsTable + ";\n" + statements
	}
	if s.postgres {
		statements = strings.ReplaceAll(statements, " BLOB", " BYTEA")
	}
	for statement := range strings.SplitSeq(statements, ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := s.exec(ctx, statement); err != nil {
			return err
		}
	}
	_, err := s.exec(ctx, `INSERT INTO schema_migrations (version, at) VALUES ($1, $2)`, version, seconds(s.now()))
	return err
}
