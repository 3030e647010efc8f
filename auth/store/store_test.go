package store

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/auth/seal"
)

// database is an empty database of one of the two kinds.
type database struct {
	driver, dsn string
	keys        *seal.Ring
}

// run runs a test with SQLite, and in a new schema of Postgres.
func run(t *testing.T, f func(t *testing.T, d database)) {
	keys := mustRing(t, "a")
	t.Run(SQLite, func(t *testing.T) { f(t, database{SQLite, filepath.Join(t.TempDir(), "junction ?#%.db"), keys}) })
	t.Run(Postgres, func(t *testing.T) { f(t, database{Postgres, authtest.Schema(t), keys}) })
}

// ringText is a ring of keys derived from their ids.
func ringText(ids ...string) string {
	text := ""
	for _, id := range ids {
		secret := make([]byte, seal.SecretSize)
		copy(secret, "the secret of the key "+id)
		text += id + ":" + base64.StdEncoding.EncodeToString(secret) + ","
	}
	return text
}

func mustRing(t testing.TB, ids ...string) *seal.Ring {
	t.Helper()
	ring, err := seal.ParseRing(ringText(ids...))
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// clock is a clock for tests to set.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.at.Store(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC).Unix())
	return c
}

func (c *clock) now() time.Time { return time.Unix(c.at.Load(), 0).UTC() }

func (c *clock) pass(d time.Duration) { c.at.Add(int64(d / time.Second)) }

func mustOpen(t testing.TB, d database, now func() time.Time) *Store {
	t.Helper()
	return mustOpenBy(t, Open, d, now)
}

// mustOpenUnswept is mustOpen without a sweeper, for a test that sweeps itself.
func mustOpenUnswept(t testing.TB, d database, now func() time.Time) *Store {
	t.Helper()
	return mustOpenBy(t, open, d, now)
}

func mustOpenBy(
	t testing.TB, open func(context.Context, Config) (*Store, error), d database, now func() time.Time,
) *Store {
	t.Helper()
	s, err := open(t.Context(), Config{Driver: d.driver, DSN: d.dsn, Keys: d.keys, Now: now, Log: authtest.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// mustGrant stores a user, a session and a grant.
func mustGrant(t testing.TB, s *Store, subject string) Grant {
	t.Helper()
	u, err := s.PutUser(t.Context(),
		User{Issuer: "https://idp.example", Subject: subject, Email: subject + "@example.com"})
	if err != nil {
		t.Fatal(err)
	}
	authtest.Secret("a refresh token of a provider", "refresh token of "+subject)
	i, err := s.AddIDPSession(t.Context(), IDPSession{User: u.ID, IDP: "idp",
		RefreshToken: "refresh token of " + subject, Checked: s.now(), OKUntil: s.now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.AddGrant(t.Context(),
		Grant{User: u.ID, IDPSession: i.ID, ClientID: "client", Expires: s.now().Add(90 * 24 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// replicas are two stores over one database; for SQLite they are the same store.
func replicas(t *testing.T, d database, now func() time.Time) [2]*Store {
	t.Helper()
	s := mustOpen(t, d, now)
	if d.driver == SQLite {
		return [2]*Store{s, s}
	}
	return [2]*Store{s, mustOpen(t, d, now)}
}

// parallel calls f n times at once, and returns how many calls returned nil. All others must return
// the error.
func parallel(t *testing.T, n int, other error, f func(i int) error) (succeeded int) {
	t.Helper()
	results, begin := make(chan error), make(chan struct{})
	for i := range n {
		go func() {
			<-begin
			results <- f(i)
		}()
	}
	close(begin)
	for range n {
		switch err := <-results; {
		case err == nil:
			succeeded++
		case !errors.Is(err, other):
			t.Errorf("one of %d at once: %v, want %v", n, err, other)
		}
	}
	return succeeded
}

func want(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

// TestTransactions nests transactions.
func TestTransactions(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s, broken := mustOpen(t, d, nil), errors.New("broken")
		note := func(ctx context.Context, event string) {
			t.Helper()
			want(t, "Audit", s.Audit(ctx, Event{Event: event}), nil)
		}
		err := s.WithTx(t.Context(), func(ctx context.Context) error {
			note(ctx, "outer")
			return s.WithTx(ctx, func(ctx context.Context) error {
				return s.WithTx(ctx, func(ctx context.Context) error { note(ctx, "inner"); return nil })
			})
		})
		want(t, "all commit", err, nil)
		err = s.WithTx(t.Context(), func(ctx context.Context) error {
			want(t, "within", s.WithTx(ctx, func(ctx context.Context) error { note(ctx, "undone"); return nil }), nil)
			return broken
		})
		want(t, "the outer one fails", err, broken)
		err = s.WithTx(t.Context(), func(ctx context.Context) error {
			note(ctx, "undone")
			want(t, "within", s.WithTx(ctx, func(context.Context) error { return broken }), broken)
			return nil // it does not know
		})
		want(t, "an inner one is undone", err, errDoomed)
		err = s.WithTx(t.Context(), func(ctx context.Context) error {
			err := s.WithTx(ctx, func(ctx context.Context) error { note(ctx, "kept"); return Keep(broken) })
			want(t, "within", err, broken)
			return fmt.Errorf("with words: %w", err)
		})
		if err != broken {
			t.Errorf("a kept error comes as %v, want it as it was", err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = s.WithTx(t.Context(), func(ctx context.Context) error { note(ctx, "undone"); panic("test") })
		}()
		ctx, cancel := context.WithCancel(t.Context())
		err = s.WithTx(ctx, func(ctx context.Context) error {
			note(ctx, "undone")
			cancel()
			return nil
		})
		if err == nil {
			t.Error("a transaction was committed after its context's end")
		}
		var got []string
		events, err := s.Events(t.Context(), 10)
		want(t, "Events", err, nil)
		for _, e := range events {
			got = append(got, e.Event)
		}
		if want := []string{"kept", "inner", "outer"}; !slices.Equal(got, want) {
			t.Errorf("what was written: %q, want %q", got, want)
		}
	})
}

// TestAway: an unreachable database is none of the errors that end a sign-in.
func TestAway(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s, err := Open(t.Context(), Config{Driver: d.driver, DSN: d.dsn, Keys: d.keys, Log: authtest.Log(t)})
		want(t, "Open", err, nil)
		g := mustGrant(t, s, "ann")
		mustIssue(t, s, g, "rt0")
		want(t, "Close", s.Close(), nil)
		_, access := s.Access(t.Context(), "sig-at-rt0")
		_, refresh := exchange(t.Context(), s, "client", "rt0", "rt1")
		_, token := s.Token(t.Context(), RefreshToken, "sig-rt0")
		_, grant := s.Grant(t.Context(), g.ID)
		_, session := s.IDPSession(t.Context(), g.IDPSession)
		_, code := s.Code(t.Context(), "code")
		for _, err := range []error{access, refresh, token, grant, session, code, s.ClientBlocked(t.Context(),
			"client"), s.UseCode(t.Context(), "code"), s.UseAssertion(t.Context(), "a", "b", time.Now())} {
			if err == nil {
				t.Error("a store that is closed answers")
			}
			for _, over := range []error{ErrNotFound, ErrExpired, ErrUsed, ErrRevoked, ErrReused, ErrText} {
				if errors.Is(err, over) {
					t.Errorf("without a database: %v", err)
				}
			}
		}
		// Afterwards the token is valid again.
		s = mustOpen(t, d, nil)
		_, err = exchange(t.Context(), s, "client", "rt0", "rt1")
		want(t, "the same token", err, nil)
	})
}

// TestOpenAtOnce starts several replicas over an empty database.
func TestOpenAtOnce(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		if d.driver == SQLite {
			return // it has one process
		}
		if n := parallel(t, 5, nil, func(int) error {
			s, err := Open(t.Context(), Config{Driver: d.driver, DSN: d.dsn, Keys: d.keys, Log: authtest.Log(t)})
			if err == nil {
				err = s.Close()
			}
			return err
		}); n != 5 {
			t.Errorf("%d of 5 opened", n)
		}
	})
}

func TestNewerSchema(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s, err := Open(t.Context(), Config{Driver: d.driver, DSN: d.dsn, Keys: d.keys, Log: authtest.Log(t)})
		want(t, "Open", err, nil)
		for range 2 { // a store may be one version ahead
			_, err = s.exec(t.Context(),
				`INSERT INTO schema_migrations (version, at) SELECT max(version) + 1, 0 FROM schema_migrations`)
			want(t, "INSERT", err, nil)
		}
		want(t, "Close", s.Close(), nil)
		_, err = Open(t.Context(), Config{Driver: d.driver, DSN: d.dsn, Keys: d.keys, Log: authtest.Log(t)})
		want(t, "Open", err, ErrNewer)
	})
}

func TestConfig(t *testing.T) {
	keys := mustRing(t, "a")
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.db")
	if err := os.WriteFile(garbage, bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Config{
		"no keys":        {DSN: filepath.Join(dir, "a.db")},
		"no file":        {Keys: keys},
		"no folder":      {DSN: filepath.Join(dir, "none", "a.db"), Keys: keys},
		"a folder":       {DSN: dir, Keys: keys},
		"in memory":      {DSN: ":memory:", Keys: keys},
		"a URL":          {DSN: "file:" + filepath.Join(dir, "a.db") + "?mode=memory", Keys: keys},
		"no database":    {DSN: garbage, Keys: keys},
		"another driver": {Driver: "mysql", DSN: "x", Keys: keys},
		"Postgres elsewhere": {Driver: Postgres, DSN: "postgres://user:canary-hunter2@127.0.0.1:1/x?sslmode=disable",
			Keys: keys},
		"no DSN of Postgres": {Driver: Postgres, DSN: "postgres://user:canary-hunter2@:x/", Keys: keys},
	} {
		t.Run(name, func(t *testing.T) {
			c.Log = authtest.Log(t)
			s, err := Open(t.Context(), c)
			if err == nil {
				_ = s.Close()
				t.Fatal("it was opened")
			}
			if strings.Contains(err.Error(), "canary-hunter2") {
				t.Errorf("the error %q tells the password", err)
			}
		})
	}
}

// TestTexts: both databases reject the same texts.
func TestTexts(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s := mustOpen(t, d, nil)
		for _, text := range []string{"a\x00b", "a\xffb"} {
			_, err := s.PutUser(t.Context(), User{Issuer: "https://idp.example", Subject: text})
			want(t, "PutUser", err, ErrText)
			_, err = s.Document(t.Context(), "https://client.example/"+text)
			want(t, "Document", err, ErrText)
			_, _, err = s.WebSession(t.Context(), text)
			want(t, "WebSession", err, ErrNotFound) // it is hashed
		}
		u, err := s.PutUser(t.Context(),
			User{Issuer: "https://idp.example", Subject: "Ω'\"; DROP TABLE users; --", Email: "Ann@Example.com"})
		want(t, "PutUser", err, nil)
		if all, err := s.Users(t.Context(), "ann@example.COM"); err != nil || len(all) != 1 || all[0].ID != u.ID ||
			all[0].Subject != "Ω'\"; DROP TABLE users; --" {
			t.Errorf("Users = %+v, %v", all, err)
		}
	})
}

// TestIDs: no id looks like a flag of a command.
func TestIDs(t *testing.T) {
	for range 1000 {
		if id := NewID(); len(id) != 22 || id[0] == '-' {
			t.Fatalf("an id is %q", id)
		}
	}
}
