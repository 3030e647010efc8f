package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"junction/auth/authtest"
)

func (d database) config(t *testing.T) Config {
	return Config{Driver: d.driver, DSN: d.dsn, Keys: d.keys, Log: authtest.Log(t)}
}

// mustLoad returns the store of an older version, with its data.
func mustLoad(t *testing.T, schema int) database {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("schema%d.sql", schema)))
	want(t, "ReadFile", err, nil)
	d := database{SQLite, filepath.Join(t.TempDir(), "junction.db"), mustRing(t, "a")}
	db, err := sql.Open("sqlite", d.dsn)
	want(t, "Open", err, nil)
	_, err = db.Exec("BEGIN;\n" + string(text) + "\nCOMMIT;") // one commit, which waits for the disk
	want(t, "Exec", err, nil)
	want(t, "Close", db.Close(), nil)
	return d
}

// mustLoadPostgres is mustLoad for Postgres. The dumps are those of SQLite: the migrations make the
// tables, and the dump adds the rows.
func mustLoadPostgres(t *testing.T, schema int) database {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("schema%d.sql", schema)))
	want(t, "ReadFile", err, nil)
	d := database{Postgres, authtest.Schema(t), mustRing(t, "a")}
	s, err := connect(t.Context(), d.config(t))
	want(t, "connect", err, nil)
	for i, m := range steps()[:schema] {
		want(t, m.name, s.apply(t.Context(), m, i+1), nil)
	}
	_, err = s.write.Exec(`DELETE FROM schema_migrations`)
	want(t, "DELETE", err, nil)
	rows := []string{`SET session_replication_role = replica;`} // the rows are not in the order of their references
	for line := range strings.SplitSeq(string(text), "\n") {
		if strings.HasPrefix(line, "INSERT ") {
			rows = append(rows, regexp.MustCompile(`X'([0-9a-fA-F]*)'`).ReplaceAllString(line, `'\x$1'`))
		}
	}
	_, err = s.write.Exec(strings.Join(rows, "\n"))
	want(t, "Exec", err, nil)
	want(t, "Close", s.Close(), nil)
	return d
}

// left returns the files of a folder.
func left(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	want(t, "ReadDir", err, nil)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// TestBackupWhileInUse copies a store to which others write, and restores it on another machine with
// the same keys: all that was written before the backup is there, secrets included.
func TestBackupWhileInUse(t *testing.T) {
	ctx := t.Context()
	d := mustLoad(t, Latest())
	s := mustOpen(t, d, newClock().now)
	writing, stop := context.WithCancel(ctx)
	var writers sync.WaitGroup
	begun := make(chan struct{}, 100_000)
	for i := range 3 {
		writers.Go(func() {
			for n := 0; writing.Err() == nil; n++ {
				_, err := s.PutUser(ctx, User{Issuer: "https://idp.example", Subject: fmt.Sprint(i, ".", n)})
				want(t, "PutUser", err, nil)
				select {
				case begun <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 20 {
		<-begun
	}
	before, err := s.Users(ctx, "")
	want(t, "Users", err, nil)
	file := filepath.Join(t.TempDir(), "it's a backup.db")
	r, err := Backup(ctx, d.config(t), file)
	want(t, "Backup", err, nil)
	stop()
	writers.Wait()
	if r.Rows["users"] < len(before) || r.Secrets == 0 || r.Schema != Latest() {
		t.Errorf("the report is %+v, want at least %d users", r, len(before))
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 || left(t, filepath.Dir(file)) != "it's a backup.db" {
		t.Errorf("the backup is %v, %v, beside %s", info, err, left(t, filepath.Dir(file)))
	}
	_, _, err = Restore(ctx, d.config(t), file)
	want(t, "Restore of a store in use", err, ErrInUse)

	elsewhere := database{SQLite, filepath.Join(t.TempDir(), "junction.db"), mustRing(t, "a")}
	_, aside, err := Restore(ctx, elsewhere.config(t), file)
	if err != nil || aside != "" {
		t.Fatalf("Restore = %q, %v", aside, err)
	}
	there := mustOpen(t, elsewhere, newClock().now)
	after, err := there.Users(ctx, "")
	if err != nil || len(after) != r.Rows["users"] {
		t.Errorf("%d users were restored, %v, want %d", len(after), err, r.Rows["users"])
	}
	if c, err := there.Connection(ctx, "linear", "user:ann"); err != nil || c.Access != "access of ann" {
		t.Errorf("Connection = %+v, %v", c, err)
	}
}

// TestRestoreRefuses: a backup that is none, of other keys, of a newer version, or damaged changes
// nothing.
func TestRestoreRefuses(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	d := mustLoad(t, Latest())
	good, newer, damaged, none := filepath.Join(dir, "good"), filepath.Join(dir, "newer"), filepath.Join(dir, "damaged"),
		filepath.Join(dir, "none")
	_, err := Backup(ctx, d.config(t), good)
	want(t, "Backup", err, nil)
	text, err := os.ReadFile(good)
	want(t, "ReadFile", err, nil)
	half := append([]byte(nil), text...)
	for i := 4096; i < len(half)-100; i += 512 {
		copy(half[i:], "garbage garbage garbage garbage garbage garbage")
	}
	want(t, "WriteFile", os.WriteFile(damaged, half, 0o600), nil)
	want(t, "WriteFile", os.WriteFile(newer, text, 0o600), nil)
	want(t, "WriteFile", os.WriteFile(none, []byte(strings.Repeat("no database ", 1000)), 0o600), nil)
	db, err := sql.Open("sqlite", newer)
	want(t, "Open", err, nil)
	_, err = db.Exec(`INSERT INTO schema_migrations (version, at) VALUES ($1, 0), ($2, 0)`, Latest()+1, Latest()+2)
	want(t, "INSERT", errors.Join(err, db.Close()), nil)
	was, err := os.ReadFile(d.dsn)
	want(t, "ReadFile", err, nil)
	for _, tt := range []struct {
		name, file string
		keys       []string
		want       error // nil is any
	}{
		{"other keys", good, []string{"b"}, ErrKeys},
		{"a newer version", newer, []string{"a"}, ErrNewer},
		{"damaged", damaged, []string{"a"}, nil},
		{"no database", none, []string{"a"}, nil},
		{"an empty file", os.DevNull, []string{"a"}, nil},
		{"no file", filepath.Join(dir, "nothing"), []string{"a"}, os.ErrNotExist},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := d.config(t)
			c.Keys = mustRing(t, tt.keys...)
			_, _, err := Restore(ctx, c, tt.file)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("Restore = %v, want %v", err, tt.want)
			}
			if now, err := os.ReadFile(d.dsn); err != nil || string(now) != string(was) {
				t.Errorf("the store was changed (%v)", err)
			}
		})
	}
}

// TestRestoreSetsAside restores where a process has crashed: the store from before stays, with what
// was not in its main file yet, and nothing of that gets into the restored one.
func TestRestoreSetsAside(t *testing.T) {
	ctx := t.Context()
	d := mustLoad(t, Latest())
	file := filepath.Join(t.TempDir(), "backup.db")
	_, err := Backup(ctx, d.config(t), file)
	want(t, "Backup", err, nil)
	s, err := Open(ctx, d.config(t))
	want(t, "Open", err, nil)
	_, err = s.PutUser(ctx, User{Issuer: "https://idp.example", Subject: "late"})
	want(t, "PutUser", err, nil)
	crashed := filepath.Join(t.TempDir(), "junction.db")
	for _, side := range []string{"", "-wal"} {
		text, err := os.ReadFile(d.dsn + side)
		want(t, "ReadFile", err, nil)
		want(t, "WriteFile", os.WriteFile(crashed+side, text, 0o600), nil)
	}
	want(t, "Close", s.Close(), nil)
	d.dsn = crashed
	_, aside, err := Restore(ctx, d.config(t), file)
	want(t, "Restore", err, nil)
	count := func(file string) int {
		c := d.config(t)
		c.DSN = file
		r, err := Check(ctx, c)
		want(t, "Check", err, nil)
		return r.Rows["users"]
	}
	if now, before := count(d.dsn), count(aside); before != now+1 {
		t.Errorf("%d users are in the store, and %d in the one from before, want one more", now, before)
	}
	late := count(aside)
	_, again, err := Restore(ctx, d.config(t), aside)
	want(t, "Restore of the store from before", err, nil)
	if n := count(d.dsn); n != late || again == aside || count(aside) != late {
		t.Errorf("%d users were restored, want %d; the second store from before is %s, the first %s", n, late, again, aside)
	}
}

// TestBackupSpares: a backup replaces an older backup, but neither the store, nor its keys, nor the store
// of another Junction, nor anything else.
func TestBackupSpares(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	d := mustLoad(t, Latest())
	link, keys, empty, backup := filepath.Join(dir, "link"), filepath.Join(dir, "keys"), filepath.Join(dir, "empty"),
		filepath.Join(dir, "backup")
	want(t, "Symlink", os.Symlink(d.dsn, link), nil)
	want(t, "WriteFile", os.WriteFile(keys, []byte("canary-of-a-key\n"), 0o600), nil)
	want(t, "WriteFile", os.WriteFile(empty, nil, 0o600), nil)
	other := mustLoad(t, Latest())
	s, err := Open(ctx, other.config(t))
	want(t, "Open", err, nil)
	want(t, "Close", s.Close(), nil) // a store that is not open now is spared, too
	for _, file := range []string{d.dsn, link, keys, dir, os.DevNull, other.dsn} {
		was, err := os.Lstat(file)
		want(t, "Lstat", err, nil)
		_, err = Backup(ctx, d.config(t), file)
		want(t, "Backup to "+file, err, ErrBackup)
		if now, err := os.Lstat(file); err != nil || !os.SameFile(was, now) {
			t.Errorf("%s was replaced (%v)", file, err)
		}
	}
	for _, file := range []string{empty, backup, backup} {
		_, err := Backup(ctx, d.config(t), file)
		want(t, "Backup to "+file, err, nil)
	}
}

// TestCheck finds a secret that was moved to another row, which needs write access to the database.
func TestCheck(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s := mustOpen(t, d, nil)
		_, err := s.exec(t.Context(), `INSERT INTO upstream_clients (id, upstream, issuer, redirect_uri, client_id,
			secret_enc, auth_method, created_at) VALUES ('x', 'u', 'i', 'r', 'c', $1, 'm', 0)`,
			s.stored((&UpstreamClient{ClientID: "other", Secret: "canary-secret"}).secrets()[0].value))
		want(t, "INSERT", err, nil)
		r, err := Check(t.Context(), d.config(t))
		if err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "(row x)") || r.Secrets != 2 {
			t.Errorf("Check = %+v, %v; want one problem", r, err)
		}
		if d.driver == Postgres {
			_, err := Backup(t.Context(), d.config(t), filepath.Join(t.TempDir(), "x"))
			want(t, "Backup", err, ErrBackup)
		}
	})
}
