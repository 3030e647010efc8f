package store

import (
	"bufio"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// inventedSteps are the steps of an invented next version: the first one lacks columns of each type and
// a table of this program, and the second one adds them.
func inventedSteps() []step {
	const table = `CREATE TABLE upstream_clients \([^;]*;\n`
	first := steps()[0]
	added := regexp.MustCompile(table).FindString(first.text)
	first.text = strings.NewReplacer(added, "", "\tredirect_host TEXT NOT NULL,\n", "",
		"\tdisabled_at BIGINT NOT NULL,\n", "", "\tclient_state BLOB,\n", "").Replace(first.text)
	return []step{first, {"0002_invented.sql", `-- Columns with an empty default, and tables.
ALTER TABLE users ADD COLUMN disabled_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE auth_requests ADD COLUMN client_state BLOB;
ALTER TABLE grants ADD COLUMN redirect_host TEXT NOT NULL DEFAULT '';
` + added + steps()[1].text + steps()[2].text + `CREATE TABLE invented (id TEXT PRIMARY KEY, body BLOB, at BIGINT NOT NULL DEFAULT 0);
CREATE INDEX invented_new ON invented (id) WHERE at = 0;
`}}
}

// mustLoadOlder returns a store with the schema of the first of inventedSteps, with sign-ins.
func mustLoadOlder(t *testing.T, driver string) database {
	t.Helper()
	load, name := mustLoad, "sqlite"
	if driver == Postgres {
		load, name = mustLoadPostgres, "pgx"
	}
	d := load(t, 1)
	db, err := sql.Open(name, d.dsn)
	want(t, "Open", err, nil)
	_, err = db.Exec(`ALTER TABLE grants DROP COLUMN redirect_host; ALTER TABLE users DROP COLUMN disabled_at;
		ALTER TABLE auth_requests DROP COLUMN client_state; DROP TABLE upstream_clients`)
	want(t, "Exec", errors.Join(err, db.Close()), nil)
	return d
}

// invented is the configuration of a program whose schema the steps make.
func (d database) invented(t *testing.T, steps []step) Config {
	c := d.config(t)
	c.steps, c.Now = steps, later
	return c
}

// later is a time at which the sign-ins of the dumps are valid.
func later() time.Time { return newClock().now().Add(30 * time.Second) }

// eachDriver runs a test with a store of the older schema in each database.
func eachDriver(t *testing.T, f func(t *testing.T, d database)) {
	for _, driver := range []string{SQLite, Postgres} {
		t.Run(driver, func(t *testing.T) { f(t, mustLoadOlder(t, driver)) })
	}
}

// TestDumpsOfEachSchema opens stores that each released schema has written, and continues their
// sign-ins. A new schema needs a new dump, including the latest one for the future.
func TestDumpsOfEachSchema(t *testing.T) {
	for schema := 1; schema <= Latest(); schema++ {
		on := func(driver string, load func(t *testing.T, schema int) database) {
			t.Run(fmt.Sprint(schema, " ", driver), func(t *testing.T) {
				s := mustOpen(t, load(t, schema), later)
				continueSignIns(t, s)
				c, err := s.UpstreamClient(t.Context(), "linear", "https://as.example", "https://us/cb")
				if err != nil || c.SecretExpires.IsZero() != (schema < 2) {
					t.Errorf("UpstreamClient = %+v, %v", c, err)
				}
			})
		}
		on(SQLite, mustLoad)
		on(Postgres, mustLoadPostgres)
	}
}

// released are the digests of all migrations. A line is added with each new file, and never changes.
var released = []string{
	"0001_schema.sql efd2afb18a523017d8cea332011ca3af2f43a8f368ff3e5971b66a321c3512a0",
	"0002_client_secrets.sql 2c41e4afd29a04fefbebc7507045020d48ad7e0d795f506002db7cea3148b3b9",
	"0003_configurations.sql 548a192cc7a50e3514aa17bd16aed03ebb4b5a89061f5c5b1e878f5635f357a5",
}

// TestMigrationsAreOnlyAdded: a store that has run a migration never runs it again, so a migration never
// changes. A new schema is a new file.
func TestMigrationsAreOnlyAdded(t *testing.T) {
	var found []string
	for _, m := range steps() {
		found = append(found, fmt.Sprintf("%s %x", m.name, sha256.Sum256([]byte(m.text))))
	}
	for i, line := range released {
		if i >= len(found) || found[i] != line {
			t.Fatalf("migration %d was changed: want %s; add a file instead, in %s", i+1, line, found)
		}
	}
	if len(found) > len(released) {
		t.Errorf("add to released: %q", found[len(released):])
	}
}

// TestMigrationKeepsSignIns: a store of an older schema can be checked as it is. Commands leave it
// alone. The server migrates it, and the sign-ins continue. The older program works with the result, except
// for what rewrites all rows.
func TestMigrationKeepsSignIns(t *testing.T) {
	eachDriver(t, func(t *testing.T, d database) {
		ctx, c := t.Context(), d.invented(t, inventedSteps())
		mustBeAt(t, c, 1)
		attached := c
		attached.Attach = true
		if _, err := Open(ctx, attached); err == nil || !strings.Contains(err.Error(), " first, w") {
			t.Errorf("a command opens the store: %v", err)
		}
		mustBeAt(t, c, 1)

		s, err := Open(ctx, c)
		want(t, "Open", err, nil)
		continueSignIns(t, s)
		want(t, "Close", s.Close(), nil)
		mustBeAt(t, c, 2)
		before, err := Open(ctx, d.invented(t, inventedSteps()[:1]))
		want(t, "Open by the older program", err, nil)
		_, err = before.Reencrypt(ctx)
		want(t, "Reencrypt by the older program", err, ErrNewer)
		want(t, "Close", before.Close(), nil)
		mustBeAt(t, c, 2)
		s, err = Open(ctx, attached)
		want(t, "Open by a command", err, nil)
		want(t, "Close", s.Close(), nil)
	})
}

// TestBackupOfAnOlderSchema: such a backup can be made, restored and migrated. A changed row is found
// before the migration.
func TestBackupOfAnOlderSchema(t *testing.T) {
	ctx, d := t.Context(), mustLoadOlder(t, SQLite)
	c, file := d.invented(t, inventedSteps()), filepath.Join(t.TempDir(), "backup.db")
	r, err := Backup(ctx, c, file)
	if err != nil || r.Schema != 1 || r.Rows["users"] != 1 || r.Rows["upstream_tokens"] != 1 {
		t.Fatalf("Backup = %+v, %v", r, err)
	}
	c.DSN = filepath.Join(t.TempDir(), "junction.db")
	_, _, err = Restore(ctx, c, file)
	want(t, "Restore", err, nil)
	mustBeAt(t, c, 1)
	s, err := Open(ctx, c)
	want(t, "Open", err, nil)
	continueSignIns(t, s)
	want(t, "Close", s.Close(), nil)
	mustBeAt(t, c, 2)

	db, err := sql.Open("sqlite", file)
	want(t, "Open", err, nil)
	_, err = db.Exec(`UPDATE upstream_tokens SET principal = 'user:mallory'`)
	want(t, "UPDATE", errors.Join(err, db.Close()), nil)
	_, _, err = Restore(ctx, c, file)
	want(t, "Restore of a changed backup", err, ErrBackup)
}

// TestFailedMigrationChangesNothing: the error of a later statement undoes the earlier statements
// and steps.
func TestFailedMigrationChangesNothing(t *testing.T) {
	eachDriver(t, func(t *testing.T, d database) {
		good := inventedSteps()
		for name, bad := range map[string]step{
			"a statement fails": {"0003_bad.sql", "CREATE TABLE third (id TEXT);\nDROP TABLE nothing;\n"},
			"a wrong number":    {"0004_bad.sql", "CREATE TABLE third (id TEXT);\n"},
		} {
			_, err := Open(t.Context(), d.invented(t, append(inventedSteps(), bad)))
			if err == nil || !strings.Contains(err.Error(), bad.name) {
				t.Errorf("%s: Open = %v, want an error that names %s", name, err, bad.name)
			}
			mustBeAt(t, d.invented(t, good), 1)
		}
		continueSignIns(t, mustOpenConfig(t, d.invented(t, good)))
	})
}

// TestKilledMigrationChangesNothing kills a process that has run the statements of a step.
func TestKilledMigrationChangesNothing(t *testing.T) {
	eachDriver(t, func(t *testing.T, d database) {
		p := mustObey(t, order{Driver: d.driver, DSN: d.dsn, Keys: ringText("a"), Invented: true})
		p.mustSay(t, "migrating")
		want(t, "Kill", p.Process.Kill(), nil)
		_ = p.Wait()
		mustBeAt(t, d.invented(t, inventedSteps()), 1)
		continueSignIns(t, mustOpenConfig(t, d.invented(t, inventedSteps())))
	})
}

// hang is the clock of a process that a test kills: migrate asks for the time when the statements of
// a step have run.
func hang() time.Time {
	fmt.Println("migrating")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return time.Now()
}

// TestReplicasMigrateOnce starts several replicas over one database of an older schema.
func TestReplicasMigrateOnce(t *testing.T) {
	d := mustLoadOlder(t, Postgres)
	if n := parallel(t, 5, nil, func(int) error {
		s, err := Open(t.Context(), d.invented(t, inventedSteps()))
		if err == nil {
			err = s.Close()
		}
		return err
	}); n != 5 {
		t.Errorf("%d of 5 opened", n)
	}
	mustBeAt(t, d.invented(t, inventedSteps()), 2)
}

func mustOpenConfig(t *testing.T, c Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), c)
	want(t, "Open", err, nil)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// mustBeAt checks a store with its sign-ins, and the version of its schema.
func mustBeAt(t *testing.T, c Config, version int) {
	t.Helper()
	r, err := Check(t.Context(), c)
	if err != nil || r.Schema != version || r.Latest != len(c.steps) || len(r.Problems) > 0 ||
		r.Rows["users"] != 1 || r.Rows["upstream_tokens"] != 1 {
		t.Fatalf("Check = %+v, %v; want the schema %d", r, err, version)
	}
}

// continueSignIns uses the sign-ins of a dump.
func continueSignIns(t *testing.T, s *Store) {
	t.Helper()
	ctx := t.Context()
	if all, err := s.Blocks(ctx); err != nil || len(all) != 1 || all[0].ClientID != "spam" ||
		all[0].ClientName != "Spam" || all[0].Reason != "phishing" {
		t.Errorf("Blocks = %+v, %v", all, err)
	}
	var filed []FiledEvent
	done, err := s.FileEvents(ctx, func(e FiledEvent) { filed = append(filed, e) })
	if err != nil || !done || len(filed) != 1 || filed[0].ID != "18a1-x" || filed[0].User.Email == "" {
		t.Errorf("FileEvents = %v, %v, %+v", done, err, filed)
	}
	if answer, err := exchange(ctx, s, "client", "rt0", "x"); err != nil || answer != "answer with rt1" {
		t.Errorf("a token that was exchanged before: %q, %v; want the same answer", answer, err)
	}
	_, err = exchange(ctx, s, "client", "rt1", "rt2")
	want(t, "its successor", err, nil)
	a, err := s.Access(ctx, "sig-at-rt1")
	want(t, "Access", err, nil)
	if i, err := s.IDPSession(ctx, a.Grant.IDPSession); err != nil || i.RefreshToken != "refresh token of ann" {
		t.Errorf("IDPSession = %q, %v", i.RefreshToken, err)
	}
	if r, err := s.ConsumeAuthRequest(ctx, "idp", "state", "binding"); err != nil || r.Verifier != "verifier" {
		t.Errorf("ConsumeAuthRequest = %+v, %v", r, err)
	}
	if r, err := s.ConsumeAuthRequest(ctx, "idp", "state", "binding"); !errors.Is(err, ErrUsed) ||
		r.Network != "203.0.113.9/32" {
		t.Errorf("the request is %+v, %v", r, err)
	}
	if c, err := s.Connection(ctx, "linear", "user:ann"); err != nil || c.Access != "access of ann" ||
		c.Refresh != "refresh of ann" {
		t.Errorf("Connection = %+v, %v", c, err)
	}
	if c, err := s.UpstreamClient(ctx, "linear", "https://as.example", "https://us/cb"); err == nil &&
		c.Secret != "secret" || err != nil && !errors.Is(err, ErrNotFound) { // the older schema has no such table
		t.Errorf("UpstreamClient = %+v, %v", c, err)
	}
}

// TestMigrationBelowMembers: while processes of the version before use a Postgres, the start of a program
// does not migrate it. Migrate does, and both versions work with the result. Migrate refuses a schema that
// the older processes do not know.
func TestMigrationBelowMembers(t *testing.T) {
	ctx, d := t.Context(), mustLoadOlder(t, Postgres)
	c, older := d.invented(t, inventedSteps()), mustOpenConfig(t, d.invented(t, inventedSteps()[:1]))
	lease := func(ends string) {
		t.Helper()
		_, err := older.exec(ctx, `DELETE FROM members`)
		want(t, "DELETE", err, nil)
		_, err = older.exec(ctx, `INSERT INTO members VALUES ('a', '10.0.0.7:8422', '', '~schema=1 auth=00', '', 0, `+
			`(extract(epoch FROM statement_timestamp() + interval '`+ends+`') * 1000000)::bigint)`)
		want(t, "INSERT", err, nil)
	}
	lease("1 hour")
	_, err := Open(ctx, c)
	want(t, "Open", err, ErrMembers)
	if text := err.Error(); !strings.Contains(text, "10.0.0.7:8422") || !strings.Contains(text, "junction storage migrate") {
		t.Errorf("Open = %s", text)
	}
	mustBeAt(t, c, 1)
	far := d.invented(t, append(inventedSteps(), step{"0003_far.sql", "CREATE TABLE far (id TEXT PRIMARY KEY);\n"}))
	_, _, err = Migrate(ctx, far)
	want(t, "Migrate by two steps", err, ErrMembers)
	mustBeAt(t, c, 1)
	for _, was := range []int{1, 2} {
		before, now, err := Migrate(ctx, c)
		if err != nil || before != was || now != 2 {
			t.Fatalf("Migrate = %d, %d, %v", before, now, err)
		}
	}
	continueSignIns(t, older)
	want(t, "Close", mustOpenConfig(t, c).Close(), nil)
	_, err = Open(ctx, far)
	want(t, "Open by the version after the next", err, ErrMembers)
	_, _, err = Migrate(ctx, far)
	want(t, "Migrate one step more while a process of the first version lives", err, ErrMembers)
	mustBeAt(t, far, 2)
	lease("-1 second")
	want(t, "Close", mustOpenConfig(t, far).Close(), nil)
	mustBeAt(t, far, 3)
	_, err = Open(ctx, d.invented(t, inventedSteps()[:1]))
	want(t, "Open by the first version", err, ErrNewer)
}

// TestMigrationWaitsForAJoiningMember: a migration waits for a process that joins, and then refuses, because
// the row of the process does not name a schema.
func TestMigrationWaitsForAJoiningMember(t *testing.T) {
	ctx, d := t.Context(), mustLoadOlder(t, Postgres)
	c, older := d.invented(t, inventedSteps()), mustOpenConfig(t, d.invented(t, inventedSteps()[:1]))
	joining := mustHoldJoining(t, older)
	result := make(chan error, 1)
	go func() {
		_, _, err := Migrate(ctx, c)
		result <- err
	}()
	mustWaitForJoining(t, joining, result)
	_, err := joining.Exec(`INSERT INTO members VALUES ('a', '10.0.0.7:8422', '', 'auth=00', '', 0,
		(extract(epoch FROM statement_timestamp() + interval '1 hour') * 1000000)::bigint)`)
	want(t, "INSERT", err, nil)
	want(t, "Commit", joining.Commit(), nil)
	want(t, "Migrate", <-result, ErrMembers)
	mustBeAt(t, c, 1)
}

// mustHoldJoining returns a transaction with the lock of a process that joins.
func mustHoldJoining(t *testing.T, s *Store) *sql.Tx {
	t.Helper()
	joining, err := s.write.BeginTx(t.Context(), nil)
	want(t, "BeginTx", err, nil)
	t.Cleanup(func() { _ = joining.Rollback() })
	_, err = joining.Exec(`SELECT pg_advisory_xact_lock($1 + 'members'::regclass::oid::bigint)`, int64(JoinLock))
	want(t, "lock", err, nil)
	return joining
}

// mustWaitForJoining waits until another transaction waits for the lock. result is that of the other one.
func mustWaitForJoining(t *testing.T, joining *sql.Tx, result chan error) {
	t.Helper()
	for waits := false; !waits; {
		select {
		case err := <-result:
			t.Fatalf("the other has ended while a process joins: %v", err)
		default:
		}
		err := joining.QueryRow(`SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'advisory'
			AND (classid::bigint << 32) + objid::bigint = $1 + 'members'::regclass::oid::bigint)`,
			int64(JoinLock)).Scan(&waits)
		want(t, "SELECT", err, nil)
	}
}

// TestReleaseBeforeWorksWithTheLatestStep: a process of the release before works with a database that the
// last step has migrated: in Postgres beside a newer process, with a SQLite file after it. Its registration of a
// client has the default of a new column.
func TestReleaseBeforeWorksWithTheLatestStep(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		ctx := t.Context()
		c := d.config(t)
		c.Now = later
		s, err := Open(ctx, c)
		want(t, "Open", err, nil)
		if d.driver == SQLite {
			want(t, "Close", s.Close(), nil)
		}
		older, err := Open(ctx, d.invented(t, steps()[:Latest()-1]))
		want(t, "Open by the release before", err, nil)
		linear := UpstreamClient{Upstream: "linear", Issuer: "https://as.example", RedirectURI: "https://us/cb", ClientID: "us",
			Secret: "canary-secret", AuthMethod: "client_secret_basic"}
		_, err = older.exec(ctx, `INSERT INTO upstream_clients (id, upstream, issuer, redirect_uri, client_id, secret_enc,
			auth_method, created_at, mac) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`, linear.row(), linear.Upstream,
			linear.Issuer, linear.RedirectURI, linear.ClientID, older.stored(linear.secrets()[0].value), linear.AuthMethod,
			seconds(older.now()), older.sign(&linear))
		want(t, "INSERT", err, nil)
		want(t, "Close", older.Close(), nil)
		if d.driver == SQLite {
			s, err = Open(ctx, c)
			want(t, "Open", err, nil)
		}
		got, err := s.UpstreamClient(ctx, linear.Upstream, linear.Issuer, linear.RedirectURI)
		if err != nil || got.Secret != linear.Secret || !got.SecretExpires.IsZero() {
			t.Errorf("UpstreamClient = %+v, %v", got, err)
		}
		want(t, "Close", s.Close(), nil)
	})
}

// TestSchemaOfTheNextVersion: a program accepts what the next version adds to its tables, if that runs no
// code and leaves its rows valid.
func TestSchemaOfTheNextVersion(t *testing.T) {
	both := map[string]bool{
		`ALTER TABLE users ADD COLUMN more TEXT`:                                     true,
		`ALTER TABLE users ADD COLUMN more BIGINT NOT NULL DEFAULT 0`:                true,
		`ALTER TABLE members ADD COLUMN more TEXT NOT NULL DEFAULT ''`:               true,
		`ALTER TABLE users ADD COLUMN a TEXT; ALTER TABLE users ADD COLUMN b BIGINT`: true,
		`CREATE INDEX more ON users (subject, email)`:                                true,
		`CREATE TABLE more (id TEXT PRIMARY KEY); CREATE INDEX m ON more (id)`:       true,
		`CREATE INDEX more ON users (lower(email))`:                                  false,
		`CREATE UNIQUE INDEX more ON users (email)`:                                  false,
		`ALTER TABLE users DROP COLUMN email`:                                        false,
		`ALTER TABLE users ADD COLUMN more TEXT CHECK (more <> email)`:               false,
	}
	for driver, own := range map[string]map[string]bool{
		Postgres: {
			`ALTER TABLE users ADD COLUMN more TEXT DEFAULT current_user`:                                      false,
			`ALTER TABLE users ADD COLUMN more BIGINT GENERATED ALWAYS AS IDENTITY`:                            false,
			`ALTER TABLE users ADD CONSTRAINT more CHECK (email <> '')`:                                        false,
			`CREATE TRIGGER more BEFORE INSERT ON users EXECUTE FUNCTION suppress_redundant_updates_trigger()`: false,
		},
		SQLite: {
			`ALTER TABLE users ADD COLUMN more TEXT COLLATE NOCASE`:                                            false,
			`ALTER TABLE users ADD COLUMN more TEXT AS (lower(email))`:                                         false,
			`CREATE TABLE more (id TEXT REFERENCES users (id) ON DELETE RESTRICT)`:                             false,
			`CREATE VIEW more AS SELECT * FROM users`:                                                          false,
			`CREATE TRIGGER more AFTER INSERT ON users BEGIN DELETE FROM grants; END`:                          false,
			`CREATE TABLE more (id TEXT); CREATE TRIGGER t AFTER INSERT ON more BEGIN DELETE FROM grants; END`: false,
		},
	} {
		load, name := mustLoad, "sqlite"
		if driver == Postgres {
			load, name = mustLoadPostgres, "pgx"
		}
		maps.Copy(own, both)
		for statement, good := range own {
			t.Run(driver+"/"+statement, func(t *testing.T) {
				d := load(t, Latest())
				db, err := sql.Open(name, d.dsn)
				want(t, "Open", err, nil)
				_, err = db.Exec(statement)
				want(t, statement, err, nil)
				_, err = db.Exec(`INSERT INTO schema_migrations VALUES ($1, 0)`, Latest()+1)
				want(t, "INSERT", errors.Join(err, db.Close()), nil)
				var reason error
				if !good {
					reason = ErrSchema
				}
				other, err := Open(t.Context(), d.config(t))
				if want(t, statement, err, reason); err == nil {
					want(t, "Close", other.Close(), nil)
				}
			})
		}
	}
}

// TestTwoOperatorsAtOnce: two operators migrate a Postgres of the release before, and two rotate its master key, all at
// the same time. Each command ends well, and the sign-ins are in the new schema, with the new key.
func TestTwoOperatorsAtOnce(t *testing.T) {
	ctx, c := t.Context(), mustLoadPostgres(t, Latest()-1).config(t)
	c.Keys, c.Now = mustRing(t, "b", "a"), later
	if n := parallel(t, 4, nil, func(i int) error {
		if i < 2 {
			_, _, err := Migrate(ctx, c)
			return err
		}
		s, err := Open(ctx, c)
		if err == nil {
			_, err = s.Reencrypt(ctx)
			err = errors.Join(err, s.Close())
		}
		return err
	}); n != 4 {
		t.Errorf("%d of 4 commands ended well", n)
	}
	c.Keys = mustRing(t, "b")
	r, err := Check(ctx, c)
	if err != nil || r.Schema != Latest() || len(r.Problems) > 0 || r.Secrets == 0 {
		t.Errorf("Check = %+v, %v", r, err)
	}
	continueSignIns(t, mustOpenConfig(t, c))
}
