package store

import (
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"junction/auth/seal"
)

// database is an empty database, of one of the two kinds.
type database struct {
	driver, dsn string
	keys        *seal.Ring
}

// run runs a test against SQLite and, where JUNCTION_TEST_POSTGRES has a DSN, in a schema of its own there.
func run(t *testing.T, f func(t *testing.T, d database)) {
	keys := mustRing(t, "a")
	t.Run(SQLite, func(t *testing.T) { f(t, database{SQLite, filepath.Join(t.TempDir(), "junction ?#%.db"), keys}) })
	dsn := os.Getenv("JUNCTION_TEST_POSTGRES")
	if dsn == "" {
		return
	}
	t.Run(Postgres, func(t *testing.T) {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			t.Fatal(err)
		}
		schema := "t" + fmt.Sprintf("%x", seal.NewSecret()[:8])
		if _, err := db.Exec(`CREATE SCHEMA ` + schema); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := db.Exec(`DROP SCHEMA ` + schema + ` CASCADE`); err != nil {
				t.Error(err)
			}
			db.Close()
		})
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set("search_path", schema)
		u.RawQuery = q.Encode()
		f(t, database{Postgres, u.String(), keys})
	})
}

// ringText is a ring of keys that their ids make.
func ringText(ids ...string) string {
	text := ""
	for _, id := range ids {
		secret := make([]byte, seal.SecretSize)
		copy(secret, "the secret of the key "+id)
		text += id + ":" + base64.StdEncoding.EncodeToString(secret) + ","
	}
	return text
}

func mustRing(t *testing.T, ids ...string) *seal.Ring {
	t.Helper()
	ring, err := seal.ParseRing(ringText(ids...))
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// clock is a time that tests set.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.at.Store(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC).Unix())
	return c
}

func (c *clock) now() time.Time       { return time.Unix(c.at.Load(), 0).UTC() }
func (c *clock) pass(d time.Duration) { c.at.Add(int64(d / time.Second)) }

func mustOpen(t *testing.T, d database, now func() time.Time) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Driver: d.driver, DSN: d.dsn, Keys: d.keys, Now: now})
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
func mustGrant(t *testing.T, s *Store, subject string) Grant {
	t.Helper()
	u, err := s.PutUser(t.Context(), User{Issuer: "https://idp.example", Subject: subject, Email: subject + "@example.com"})
	if err != nil {
		t.Fatal(err)
	}
	i, err := s.AddIDPSession(t.Context(), IDPSession{User: u.ID, IDP: "idp", RefreshToken: "refresh token of " + subject, Checked: s.now(), OKUntil: s.now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.AddGrant(t.Context(), Grant{User: u.ID, IDPSession: i.ID, ClientID: "client", Expires: s.now().Add(90 * 24 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// replicas are two stores over one database, which of SQLite are one.
func replicas(t *testing.T, d database, now func() time.Time) [2]*Store {
	t.Helper()
	s := mustOpen(t, d, now)
	if d.driver == SQLite {
		return [2]*Store{s, s}
	}
	return [2]*Store{s, mustOpen(t, d, now)}
}

// parallel calls f n times at once, and returns how many calls returned nil. All others must return the error.
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

func want(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

func TestGrant(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpen(t, d, c.now), t.Context()
		g := mustGrant(t, s, "ann")
		want(t, "AddToken", s.AddToken(ctx, Token{Signature: "at", Kind: AccessToken, Grant: g.ID, RequestID: "r", Expires: c.now().Add(time.Hour)}), nil)
		a, err := s.Access(ctx, "at")
		want(t, "Access", err, nil)
		if a.User.Subject != "ann" || a.Grant.ID != g.ID || a.Token.RequestID != "r" || a.Grant.Detail != nil {
			t.Errorf("Access = %+v", a)
		}
		i, err := s.IDPSession(ctx, g.IDPSession)
		want(t, "IDPSession", err, nil)
		if i.RefreshToken != "refresh token of ann" {
			t.Errorf("RefreshToken = %q", i.RefreshToken)
		}
		_, err = s.EndIDPSession(ctx, g.IDPSession, "test")
		want(t, "EndIDPSession", err, nil)
		_, err = s.Access(ctx, "at")
		want(t, "Access after the end", err, ErrRevoked)
	})
}
