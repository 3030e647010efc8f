package store

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
)

// TestSweep lets all rows expire.
func TestSweep(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpenUnswept(t, d, c.now), t.Context()
		count := func() (n int) {
			t.Helper()
			for _, what := range sweeps {
				m := 0
				want(t, what.table, s.get(ctx, []any{&m},
					`SELECT count(*) FROM `+what.table), nil)
				n += m
			}
			return n
		}
		soon := c.now().Add(time.Minute)
		live(t, s, "canary")
		g := mustGrant(t, s, "ann")
		mustIssue(t, s, g, "rt0")
		want(t, "AddCode", s.AddCode(ctx, Code{Signature: "code", Grant: g.ID, Expires: soon}), nil)
		want(t, "AddPKCE", s.AddPKCE(ctx, "code", nil, soon), nil)
		ended := mustGrant(t, s, "cid") // its token outlives it
		want(t, "AddToken", s.AddToken(ctx, Token{Signature: "long", Kind: RefreshToken, Grant: ended.ID,
			Expires: c.now().Add(200 * 24 * time.Hour)}), nil)
		_, err := s.RevokeGrant(ctx, ended.ID, "test")
		want(t, "RevokeGrant", err, nil)
		want(t, "PutDocument", s.PutDocument(ctx, Document{URL: "u", FreshUntil: soon}), nil)
		want(t, "Audit", s.Audit(ctx, Event{Event: "e"}), nil)
		want(t, "UseAssertion", s.WithTx(ctx, func(ctx context.Context) error {
			for i := range sweepBatch + 10 {
				if err := s.UseAssertion(ctx, "a", fmt.Sprint(i), soon); err != nil {
					return err
				}
			}
			return nil
		}), nil)
		all := count()
		if n, err := s.sweep(ctx); err != nil || n != 0 || count() != all {
			t.Errorf("sweep of what is fresh = %d, %v", n, err)
		}
		c.pass(25 * time.Hour)
		if _, err := s.sweep(ctx); err != nil {
			t.Error(err)
		}
		// Her session, grant and tokens stand; the grant of the other sign-in is kept for a while.
		if _, err := s.Access(ctx, "sig-at-rt0"); err != nil {
			t.Errorf("what stands was swept: %v", err)
		}
		c.pass(100 * 24 * time.Hour)
		if _, err := s.sweep(ctx); err != nil {
			t.Error(err)
		}
		if _, err := s.Grant(ctx, ended.ID); err != ErrRevoked {
			t.Errorf("a grant of a token that is kept: %v, want it kept too", err)
		}
		c.pass(1000 * 24 * time.Hour)
		if _, err := s.sweep(ctx); err != nil || count() != 0 {
			t.Errorf("after years there are %d rows of %d left, %v; want none", count(), all, err)
		}
		if users, err := s.Users(ctx, ""); err != nil || len(users) != 3 {
			t.Errorf("Users = %+v, %v; want all three", users, err)
		}
	})
}

// lines receives the lines of a log, up to its capacity.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}

// TestOpenSweeps opens a store with an expired row, and waits for the log line about its deletion.
func TestOpenSweeps(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		made, err := open(t.Context(),
			Config{Driver: d.driver, DSN: d.dsn, Keys: d.keys, Now: c.now, Log: authtest.Log(t)})
		want(t, "open", err, nil)
		want(t, "PutDocument", made.PutDocument(t.Context(), Document{URL: "u", FreshUntil: c.now()}), nil)
		want(t, "Close", made.Close(), nil)
		c.pass(100 * 24 * time.Hour)
		log := make(lines, 1)
		s, err := Open(t.Context(),
			Config{Driver: d.driver, DSN: d.dsn, Keys: d.keys, Now: c.now, Log: authtest.Log(t, log)})
		want(t, "Open", err, nil)
		select {
		case line := <-log:
			if !strings.Contains(line, "expired entries deleted") {
				t.Errorf("the log has %s", line)
			}
		case <-time.After(time.Minute):
			t.Error("nothing was swept")
		}
		_, err = s.Document(t.Context(), "u")
		want(t, "what has grown old", err, ErrNotFound)
		want(t, "Close", s.Close(), nil)
	})
}

// TestSweepAtOnce: of two replicas one sweeps, and two schemas of one database are independent.
func TestSweepAtOnce(t *testing.T) {
	run(t, func(t *testing.T, here database) {
		if here.driver != Postgres {
			return
		}
		run(t, func(t *testing.T, there database) {
			if there.driver != Postgres {
				return
			}
			c, ctx := newClock(), t.Context()
			both, other := [...]*Store{mustOpenUnswept(t, here, c.now),
				mustOpenUnswept(t, here, c.now)}, mustOpenUnswept(t, there, c.now)
			old := func(s *Store) bool {
				_, err := s.Document(ctx, "u")
				return err == nil
			}
			for _, s := range []*Store{both[0], other} {
				want(t, "PutDocument", s.PutDocument(ctx, Document{URL: "u", FreshUntil: c.now()}), nil)
			}
			c.pass(100 * 24 * time.Hour)
			sweep := func(s *Store) bool {
				_, err := s.sweep(ctx)
				want(t, "sweep", err, nil)
				return !old(s)
			}
			err := both[0].WithTx(ctx, func(tx context.Context) error {
				if locked, err := both[0].lockSweep(tx); err != nil || !locked {
					t.Fatalf("no process sweeps, and none may: %v", err)
				}
				if sweep(both[1]) {
					t.Error("a replica sweeps too")
				}
				if !sweep(other) {
					t.Error("another schema is not swept")
				}
				return nil
			})
			want(t, "WithTx", err, nil)
			if !sweep(both[1]) {
				t.Error("after that the replica does not sweep")
			}
		})
	})
}

// TestSweepOfKeysWithoutAnUpstream: the keys of an upstream that no member has in its file go after 90 days, and not
// before. One member that has the upstream keeps them, and they work again when it returns. A process that does not know
// the file deletes nothing.
func TestSweepOfKeysWithoutAnUpstream(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c, ctx := newClock(), t.Context()
		s := mustOpenUnswept(t, d, c.now)
		u, err := s.PutUser(ctx, User{Issuer: "https://idp.example.com", Subject: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		authtest.Secret("the key of a user", "canary-user-key")
		for _, name := range []string{"kept", "gone"} {
			want(t, "PutConnection", s.PutConnection(ctx, Connection{Upstream: name, User: u.ID, Principal: "user:ann",
				Access: "canary-user-key", Issuer: KeyIssuer, Resource: "https://" + name + ".example.com"}), nil)
		}
		want(t, "PutConnection", s.PutConnection(ctx, Connection{Upstream: "signed-in", User: u.ID, Principal: "user:ann",
			Access: "canary-token", Issuer: "https://as.example.com"}), nil)
		sweep := func(deleted int64, names ...string) {
			t.Helper()
			s.upstreams = func() []string { return names }
			if n, err := s.sweepKeys(ctx); n != deleted || err != nil {
				t.Errorf("sweepKeys with %q = %d, %v, want %d", names, n, err, deleted)
			}
		}
		has := func(name string, expires bool) {
			t.Helper()
			k, err := s.Connection(ctx, name, "user:ann")
			if err != nil || k.Access == "" || k.Expires.IsZero() == expires {
				t.Errorf("the key for %s: expires at %v, %v", name, k.Expires, err)
			}
		}
		sweep(0, "kept")
		has("gone", true)
		has("kept", false)
		c.pass(89 * 24 * time.Hour)
		sweep(0, "kept")
		sweep(0, "kept", "gone") // another member, or the file with its mistake corrected
		has("gone", false)
		sweep(0, "kept")
		c.pass(89 * 24 * time.Hour)
		sweep(0, "kept")
		has("gone", true)
		s.upstreams = nil
		c.pass(2 * 24 * time.Hour)
		if n, err := s.sweepKeys(ctx); n != 0 || err != nil {
			t.Errorf("sweepKeys without a file = %d, %v", n, err)
		}
		sweep(1, "kept")
		if _, err := s.Connection(ctx, "gone", "user:ann"); err != ErrNotFound {
			t.Errorf("the key of an upstream that is missing for 90 days: %v", err)
		}
		sweep(0, "kept")
		has("kept", false)
		if _, err := s.Connection(ctx, "signed-in", "user:ann"); err != nil {
			t.Errorf("a sign-in was swept: %v", err)
		}
	})
}
