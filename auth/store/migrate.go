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
// once, and never changes: TestMigrationsAreOnlyAdded has their digests.
//
// A release has at most one new step, and a program works with the schema of the next step: so the
// processes of a Postgres can be upgraded, and downgraded, one after the other, and a SQLite file goes
// back to the program before. A step therefore adds
// what its program needs (expand), and removes only what the program before it no longer used
// (contract). acceptsMore says what a step may add.
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

// A migration is what migrate does with an older schema.
type migration int

const (
	noMigration   migration = iota // only check the keys and the schema
	migrateAlone                   // migrate if no other process uses the database
	migrateForAll                  // migrate also below processes of the version before
)

// migrate checks the keys and the schema, and migrates the schema, in one transaction, in one process
// at a time. It returns the version that the schema had.
func (s *Store) migrate(ctx context.Context, how migration) (was int, err error) {
	steps := s.steps
	err = s.WithTx(ctx, func(ctx context.Context) error {
		if s.postgres && how != noMigration {
			if _, err := s.exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrating)); err != nil {
				return err
			}
		}
		var err error
		if was, err = knownVersion(ctx, s, how); err != nil {
			return err
		}
		due := len(steps) - was
		if due > 0 && was > 0 && s.postgres {
			if err := s.mayMigrate(ctx, was, how); err != nil {
				return err
			}
		}
		sealed := false
		if was > 0 {
			if sealed, err = s.checkKeys(ctx); err != nil {
				return err
			}
		}
		if how == noMigration {
			return nil
		}
		for i := was; i < len(steps); i++ {
			if err := s.apply(ctx, steps[i], i+1); err != nil {
				return fmt.Errorf("migrate the schema: %s, and nothing was changed: %w", steps[i].name, err)
			}
		}
		if !sealed {
			return s.addCanary(ctx)
		}
		return nil
	})
	return was, err
}

// knownVersion returns the version of the schema, which has what this version makes. Without the lock of
// migrations, the schema may change between two statements: then the check begins again.
func knownVersion(ctx context.Context, s *Store, how migration) (int, error) {
	for {
		was, err := s.version(ctx)
		switch {
		case err != nil:
			return was, err
		case s.isNewer(was):
			return was, s.newer(was)
		case was < len(s.steps) && how == noMigration:
			remedy := "start the server first, which migrates it"
			if s.postgres && was > 0 {
				remedy = "run junction storage migrate first, with this version"
			}
			return was, fmt.Errorf("the store's schema is %d, but this program needs %d; %s", was, len(s.steps), remedy)
		}
		err = s.checkSchema(ctx, was)
		if !errors.Is(err, ErrSchema) {
			return was, err
		}
		if now, failed := s.version(ctx); failed != nil || now == was {
			return was, err
		}
	}
}

// mayMigrate returns an error if other processes use the database, and would not work with the schema of
// this program. No process joins until the transaction ends.
func (s *Store) mayMigrate(ctx context.Context, was int, how migration) error {
	others, err := s.holdMembers(ctx)
	if err != nil || len(others) == 0 {
		return err
	}
	var all, old []string
	for _, m := range others {
		all = append(all, m.address)
		switch {
		case m.schema == 0:
			old = append(old, m.address+" (schema unknown)")
		case m.schema < len(s.steps)-1:
			old = append(old, fmt.Sprintf("%s (schema %d)", m.address, m.schema))
		}
	}
	switch {
	case len(old) > 0:
		return fmt.Errorf("%w: this program would migrate the schema of the database from %d to %d, and these "+
			"processes do not work with schema %d: %s; upgrade these processes to the versions in between first, "+
			"or stop them", ErrMembers, was, len(s.steps), len(s.steps), strings.Join(old, ", "))
	case how == migrateAlone:
		return fmt.Errorf("%w: the schema of the database is %d, this program needs %d, and other processes "+
			"use it, at %s; run once, with this version: junction storage migrate --config FILE",
			ErrMembers, was, len(s.steps), strings.Join(all, ", "))
	}
	return nil
}

// isNewer reports whether this program does not work with a version of the schema: it works with the next one.
func (s *Store) isNewer(version int) bool { return version > len(s.steps)+1 }

// newer returns the error about a version of the schema that this program does not know. Versions from
// before 0.1.0 had more and other steps.
func (s *Store) newer(version int) error {
	return fmt.Errorf("%w: its schema is %d, this program knows %d; use the version of the program that made it, or "+
		"a later one; no release can use a schema from before 0.1.0, so begin with an empty database in that case",
		ErrNewer, version, len(s.steps))
}

// Migrate migrates the schema of an existing Postgres while processes of the version before use it. It
// returns the versions of before and after. For Open, such processes are a reason to refuse.
func Migrate(ctx context.Context, c Config) (was, now int, err error) {
	s, err := connect(ctx, c)
	if err != nil {
		return 0, 0, err
	}
	defer s.Close()
	was, err = s.migrate(ctx, migrateForAll)
	return was, max(was, len(s.steps)), err
}

// steps returns the migrations of this program in order.
func steps() (all []step) {
	names, _ := fs.Glob(migrations, "migrations/*.sql") // the pattern is valid
	for _, name := range names {
		text, _ := migrations.ReadFile(name) // an embedded file is always readable
		all = append(all, step{path.Base(name), string(text)})
	}
	return append(all, invented()...)
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
