package store

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// crafted are statements that a program could run on a SQLite file, and what a problem then names.
var crafted = []struct{ name, statements, says string }{
	{"a trigger", `CREATE TRIGGER redirect AFTER INSERT ON upstream_tokens BEGIN
		UPDATE upstream_tokens SET principal = 'user:mallory' WHERE id = new.id; END`,
		"it has the trigger redirect on upstream_tokens"},
	{"a view", `CREATE VIEW everything AS SELECT * FROM users`, "it has the view everything"},
	{"a view in place of a table", `ALTER TABLE cimd_cache RENAME TO other; CREATE VIEW cimd_cache AS SELECT * FROM other`,
		"it has the view cimd_cache"},
	{"a view in place of the versions", `ALTER TABLE schema_migrations RENAME TO other;
		CREATE VIEW schema_migrations AS SELECT * FROM other`, "schema_migrations is not the table"},
	{"a table", `CREATE TABLE other (id TEXT)`, "it has the table other"},
	{"a virtual table", `CREATE VIRTUAL TABLE words USING fts5(text)`, "it has the table words"},
	{"a column", `ALTER TABLE grants ADD COLUMN other TEXT`, "the table grants is not as"},
	{"a generated column", `ALTER TABLE grants ADD COLUMN other TEXT AS (upper(scope))`, "the table grants is not as"},
	{"an index", `CREATE INDEX other ON grants (scope)`, "it has the index other on grants"},
	{"an index of an expression", `CREATE INDEX other ON grants (abs(expires_at))`, "it has the index other on grants"},
	{"a lost index", `DROP INDEX grants_user`, "the index grants_user on grants is missing"},
	{"a partial index", `DROP INDEX grants_user; CREATE INDEX grants_user ON grants (user_id) WHERE scope = ''`,
		"the index grants_user on grants is not as"},
	{"a lost table", `DROP TABLE assertion_jtis`, "the table assertion_jtis is missing"},
	{"a check", `PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = replace(sql, 'email TEXT NOT NULL',
		'email TEXT NOT NULL CHECK (length(email) < 9999)') WHERE name = 'users'`, "the table users is not as"},
	{"a default", `PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = replace(sql, 'network TEXT NOT NULL',
		'network TEXT NOT NULL DEFAULT ''x''') WHERE name = 'auth_requests'`, "the table auth_requests is not as"},
	{"a space that is a letter of SQL", `PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = replace(sql,
		'email TEXT NOT NULL', 'email TEXT' || char(160) || 'NOT' || char(160) || 'NULL') WHERE name = 'users'`,
		"the table users is not as"},
	{"another order of texts", `PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = replace(sql,
		'id TEXT PRIMARY KEY', 'id TEXT COLLATE NOCASE PRIMARY KEY') WHERE name = 'users'`, "the table users is not as"},
}

// TestCraftedSchemasAreRefused adds to a store of SQLite what Junction has not made. The check names
// it, a backup with it is not restored, and neither the server nor a command opens the store.
func TestCraftedSchemasAreRefused(t *testing.T) {
	for i, tt := range crafted {
		if testing.Short() && i%6 > 0 { // each opens several stores; no goroutines meet in them
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			ctx := t.Context()
			d := mustLoad(t, Latest())
			db, err := sql.Open("sqlite", d.dsn)
			want(t, "Open", err, nil)
			db.SetMaxOpenConns(1)
			_, err = db.Exec(tt.statements)
			want(t, "Exec", errors.Join(err, db.Close()), nil)

			r, err := Check(ctx, d.config(t))
			if err == nil && len(r.Problems) == 0 || err != nil && !errors.Is(err, ErrSchema) {
				t.Errorf("Check = %+v, %v; want a problem", r, err)
			}
			if said := strings.Join(r.Problems, "\n") + errorText(err); !strings.Contains(said, tt.says) {
				t.Errorf("Check says %q, want %q", said, tt.says)
			}
			place := mustLoad(t, Latest())
			before, err := os.ReadFile(place.dsn)
			want(t, "ReadFile", err, nil)
			_, _, err = Restore(ctx, place.config(t), d.dsn)
			if !errors.Is(err, ErrBackup) && !errors.Is(err, ErrSchema) {
				t.Errorf("Restore = %v, want an error", err)
			}
			if after, err := os.ReadFile(place.dsn); err != nil || string(after) != string(before) {
				t.Errorf("the store was changed (%v)", err)
			}
			_, err = Backup(ctx, d.config(t), filepath.Join(t.TempDir(), "backup.db"))
			if !errors.Is(err, ErrBackup) && !errors.Is(err, ErrSchema) {
				t.Errorf("Backup = %v, want an error", err)
			}
			for _, attach := range []bool{false, true} {
				c := d.config(t)
				c.Attach = attach
				s, err := Open(ctx, c)
				if !errors.Is(err, ErrSchema) {
					t.Errorf("Open, attached %v: %v, want %v", attach, err, ErrSchema)
				}
				if err == nil {
					want(t, "Close", s.Close(), nil)
				}
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestWordsOfAForeignSchema: the error says what is true of the schema, and what the operator can do. It calls
// nothing newer that may be older, and nothing added that was changed.
func TestWordsOfAForeignSchema(t *testing.T) {
	const old = "or a version from before 0.1.0 has made it: restore a backup, or begin with an empty database"
	for name, tt := range map[string]struct {
		statements string
		says       string
		never      string
	}{
		"added": {`CREATE TABLE other (id TEXT)`, "remove what another program has added", "0.1.0"},
		"edited": {`ALTER TABLE grants ADD COLUMN other TEXT; CREATE TABLE another (id TEXT)`,
			"the table grants is not as Junction has made it (and 1 more); another program has changed the schema, " + old,
			"remove what"},
		"a version before the first release": {`DROP TABLE members; DROP TABLE limit_shares`, "is missing (and 4 more); " +
			"another program has changed the schema, " + old, "remove what"},
		"one with more steps": {fmt.Sprintf(`INSERT INTO schema_migrations VALUES (%d, 0), (%d, 0)`, Latest()+1, Latest()+2),
			fmt.Sprintf("its schema is %d, this program knows %d; use the version of the program that made it, or a "+
				"later one; no release can use a schema from before 0.1.0", Latest()+2, Latest()), "newer"},
	} {
		t.Run(name, func(t *testing.T) {
			d := mustLoad(t, Latest())
			db, err := sql.Open("sqlite", d.dsn)
			want(t, "Open", err, nil)
			_, err = db.Exec(tt.statements)
			want(t, "Exec", errors.Join(err, db.Close()), nil)
			_, err = Open(t.Context(), d.config(t))
			if text := errorText(err); !strings.Contains(text, tt.says) || strings.Contains(text, tt.never) {
				t.Errorf("Open = %q, want %q, and not %q", text, tt.says, tt.never)
			}
		})
	}
}

// TestStatisticsAreNoChange: ANALYZE, which an operator may run, adds a table of SQLite.
func TestStatisticsAreNoChange(t *testing.T) {
	d := mustLoad(t, Latest())
	db, err := sql.Open("sqlite", d.dsn)
	want(t, "Open", err, nil)
	_, err = db.Exec(`ANALYZE`)
	want(t, "ANALYZE", errors.Join(err, db.Close()), nil)
	if r, err := Check(t.Context(), d.config(t)); err != nil || len(r.Problems) > 0 {
		t.Errorf("Check = %+v, %v", r, err)
	}
	mustOpen(t, d, nil)
}

// TestForeignFilesAreNotTaken: a SQLite file of another program gets no tables of Junction.
func TestForeignFilesAreNotTaken(t *testing.T) {
	d := database{SQLite, filepath.Join(t.TempDir(), "other.db"), mustRing(t, "a")}
	db, err := sql.Open("sqlite", d.dsn)
	want(t, "Open", err, nil)
	_, err = db.Exec(`CREATE TABLE photos (id INTEGER)`)
	want(t, "Exec", errors.Join(err, db.Close()), nil)
	_, err = Open(t.Context(), d.config(t))
	want(t, "Open", err, ErrSchema)
}

// TestCraftedSchemasAreRefusedByPostgres is TestCraftedSchemasAreRefused for Postgres, whose backups
// Postgres restores itself.
func TestCraftedSchemasAreRefusedByPostgres(t *testing.T) {
	for _, tt := range []struct{ name, statements, says string }{
		{"a trigger", `CREATE FUNCTION redirect() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN new.principal = 'user:mallory'; RETURN new; END $$;
			CREATE TRIGGER redirect BEFORE INSERT ON upstream_tokens FOR EACH ROW EXECUTE FUNCTION redirect()`,
			"it has the trigger redirect on table upstream_tokens"},
		{"a rule", `CREATE RULE keep AS ON DELETE TO grants DO INSTEAD NOTHING`, "it has the rule keep on table grants"},
		{"a policy", `CREATE POLICY few ON users USING (true)`, "it has the policy few on table users"},
		{"row security", `ALTER TABLE users ENABLE ROW LEVEL SECURITY`, "the table users is not as"},
		{"a view in place of a table", `ALTER TABLE cimd_cache RENAME TO other;
			CREATE VIEW cimd_cache AS SELECT * FROM other`, "the table cimd_cache is not as"},
		{"a view in place of the versions", `ALTER TABLE schema_migrations RENAME TO other;
			CREATE VIEW schema_migrations AS SELECT * FROM other`, "schema_migrations is not the table"},
		{"a column", `ALTER TABLE grants ADD COLUMN other TEXT`, "it has the column other of table grants"},
		{"a generated column", `ALTER TABLE grants ADD COLUMN other TEXT GENERATED ALWAYS AS (upper(scope)) STORED`,
			"it has the column other of table grants"},
		{"a default", `ALTER TABLE users ALTER COLUMN email SET DEFAULT 'x'`, "the column email of table users is not as"},
		{"a column that may be empty", `ALTER TABLE users ALTER COLUMN email DROP NOT NULL`,
			"the column email of table users is not as"},
		{"another type", `ALTER TABLE users ALTER COLUMN email TYPE varchar(100)`, "the column email of table users is not as"},
		{"another order of texts", `ALTER TABLE users ALTER COLUMN email TYPE text COLLATE "C"`,
			"the column email of table users is not as"},
		{"a check", `ALTER TABLE users ADD CHECK (length(email) < 99)`, "it has the constraint users_email_check"},
		{"a lost index", `ALTER TABLE users DROP CONSTRAINT users_issuer_subject_key`,
			"the unique index on users (issuer, subject) is missing"},
		{"an index of an expression", `CREATE INDEX other ON grants (upper(scope))`, "it has the other index on grants ()"},
		{"a child table", `CREATE TABLE child () INHERITS (users)`, "it has the parent or child of table users"},
		{"a reference with an action", `CREATE TABLE other (id TEXT PRIMARY KEY);
			ALTER TABLE grants ADD FOREIGN KEY (scope) REFERENCES other ON DELETE CASCADE NOT VALID`,
			"it has the reference scope of table grants"},
		{"a reference to a table", `CREATE TABLE other (id TEXT REFERENCES users (id))`,
			"it has the reference from another table to table users"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := t.Context()
			d := mustLoadPostgres(t, Latest())
			if r, err := Check(ctx, d.config(t)); err != nil || len(r.Problems) > 0 {
				t.Fatalf("before: %+v, %v", r, err)
			}
			db, err := sql.Open("pgx", d.dsn)
			want(t, "Open", err, nil)
			_, err = db.Exec(tt.statements)
			want(t, "Exec", errors.Join(err, db.Close()), nil)
			r, err := Check(ctx, d.config(t))
			if said := strings.Join(r.Problems, "\n") + errorText(err); !strings.Contains(said, tt.says) {
				t.Errorf("Check says %q, want %q", said, tt.says)
			}
			for _, attach := range []bool{false, true} {
				c := d.config(t)
				c.Attach = attach
				s, err := Open(ctx, c)
				want(t, "Open", err, ErrSchema)
				if err == nil {
					want(t, "Close", s.Close(), nil)
				}
			}
		})
	}
}

// unbound are the tables without codes, of which integration/safety/README.md says what a program that can
// write to them can do.
var unbound = []string{"schema_migrations", "canary", "leases", "client_blocks", "assertion_jtis", "audit",
	"members", "session_owners", "deleted_sessions", "used_ids", "limit_shares",
	"configurations"}

// TestEveryTableIsBoundOrNamed: a new table has codes or is named here, each of its columns is bound or
// named by free(), and sealed.go has a line for each sealed column and each bound table.
func TestEveryTableIsBoundOrNamed(t *testing.T) {
	ctx := t.Context()
	s, err := inMemory(ctx, steps())
	want(t, "inMemory", err, nil)
	defer s.Close()
	text, err := os.ReadFile("sealed.go")
	want(t, "ReadFile", err, nil)
	tables, err := s.texts(ctx, `SELECT name FROM sqlite_schema WHERE type = 'table'`)
	want(t, "tables", err, nil)
	known := map[string]bound{}
	for _, b := range boundRows {
		known[b.blank().table()] = b.blank()
	}
	// Columns outside of the records: the keys follow from other columns, and the rest decides nothing.
	outside := []string{"upstream_clients.id", "upstream_tokens.id", "upstream_tokens.claimed_until",
		"idp_sessions.claimed_until", "oauth_tokens.replay_enc", "cimd_cache.etag"}
	for _, table := range tables {
		columns, err := s.texts(ctx, `SELECT name FROM pragma_table_info($1)`, table)
		want(t, "columns", err, nil)
		r, isBound := known[table]
		if isBound == slices.Contains(unbound, table) {
			t.Errorf("table %s: decide whether its rows have codes", table)
		}
		for _, column := range columns {
			name := table + "." + column
			if strings.HasSuffix(column, "_enc") && !strings.Contains(string(text), "\t"+name+" ") {
				t.Errorf("sealed.go does not say to what %s is bound", name)
			}
			if !isBound || slices.Contains(outside, name) {
				continue
			}
			if !slices.ContainsFunc(columnsOf(r), func(f field) bool { return f.column == column }) {
				t.Errorf("%s is in no record, so nothing binds it", name)
			}
		}
		if isBound && !regexp.MustCompile(`(?m)^//\t`+table+` +all`).Match(text) {
			t.Errorf("sealed.go does not say what is bound of table %s", table)
		}
	}
}
