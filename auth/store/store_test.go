package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
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

// run runs a test with SQLite and, if JUNCTION_TEST_POSTGRES has a DSN, in a new schema of
// Postgres.
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

func (c *clock) now() time.Time       { return time.Unix(c.at.Load(), 0).UTC() }
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

func TestGrant(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpen(t, d, c.now), t.Context()
		g := mustGrant(t, s, "ann")
		want(t, "AddToken", s.AddToken(ctx, Token{Signature: "at", Kind: AccessToken, Grant: g.ID, RequestID: "r",
			Expires: c.now().Add(time.Hour)}), nil)
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
				inner, err := s.BeginTX(ctx)
				want(t, "BeginTX", err, nil)
				note(inner, "inner")
				return s.Commit(inner)
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
			inner, err := s.BeginTX(ctx)
			want(t, "BeginTX", err, nil)
			want(t, "Rollback", s.Rollback(inner), nil)
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
		begun, err := s.BeginTX(ctx)
		want(t, "BeginTX", err, nil)
		note(begun, "undone")
		cancel()
		if err := s.Commit(begun); err == nil {
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
		if s.Commit(t.Context()) == nil || s.Rollback(t.Context()) == nil {
			t.Error("something ended a transaction that nothing began")
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
		// T88: afterwards the token is valid again.
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
		_, err = s.exec(t.Context(),
			`INSERT INTO schema_migrations (version, at) SELECT max(version) + 1, 0 FROM schema_migrations`)
		want(t, "INSERT", err, nil)
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

func TestUsers(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpen(t, d, c.now), t.Context()
		u, err := s.PutUser(ctx, User{Issuer: "https://a.example", Subject: "1", Email: "old@example.com"})
		want(t, "PutUser", err, nil)
		c.pass(time.Hour)
		again, err := s.PutUser(ctx,
			User{Issuer: "https://a.example", Subject: "1", Email: "new@example.com", Claims: []byte(`{"groups":[]}`)})
		want(t, "PutUser", err, nil)
		if again.ID != u.ID || again.Email != "new@example.com" || !again.Created.Equal(u.Created) ||
			!again.Seen.Equal(c.now()) || string(again.Claims) != `{"groups":[]}` {
			t.Errorf("the same user again is %+v, was %+v", again, u)
		}
		other, err := s.PutUser(ctx, User{Issuer: "https://b.example", Subject: "1", Email: "new@example.com"})
		want(t, "PutUser", err, nil)
		if other.ID == u.ID {
			t.Error("a subject of another issuer is the same user")
		}
		i, err := s.AddIDPSession(ctx, IDPSession{User: u.ID})
		want(t, "AddIDPSession", err, nil)
		want(t, "AddWebSession", s.AddWebSession(ctx, "secret",
			WebSession{User: u.ID, IDPSession: i.ID, Expires: c.now().Add(time.Hour)}), nil)
		_, _, err = s.WebSession(ctx, "other secret")
		want(t, "another secret", err, ErrNotFound)
		if _, w, err := s.WebSession(ctx, "secret"); err != nil || w.ID != u.ID {
			t.Errorf("WebSession = %+v, %v", w, err)
		}
		g, err := s.AddGrant(ctx,
			Grant{User: u.ID, IDPSession: i.ID, ClientID: "client", Expires: c.now().Add(time.Hour)})
		want(t, "AddGrant", err, nil)
		shut := c.now()
		ended, err := s.DisableUser(ctx, u.ID, "test")
		if want := (Ended{Sessions: 1, Grants: []string{g.ID}}); err != nil || !reflect.DeepEqual(ended, want) {
			t.Errorf("DisableUser = %+v, %v; want %+v", ended, err, want)
		}
		_, err = s.IDPSession(ctx, i.ID)
		want(t, "what no grant can be made of any more", err, ErrRevoked)
		if again, err := s.PutUser(ctx, User{Issuer: "https://a.example", Subject: "1"}); err != nil ||
			again.Disabled.IsZero() {
			t.Errorf("who signs in again is let in again: %+v, %v", again, err)
		}
		_, _, err = s.WebSession(ctx, "secret")
		want(t, "the session of a disabled user", err, ErrNotFound)
		c.pass(time.Minute)
		if ended, err := s.DisableUser(ctx, u.ID, "test"); err != nil || ended.Sessions != 0 || ended.Grants != nil {
			t.Errorf("DisableUser again = %+v, %v; want nothing to end", ended, err)
		}
		if again, err := s.User(ctx, u.ID); err != nil || !again.Disabled.Equal(shut) {
			t.Errorf("disabled twice it is so since %v, %v; want %v", again.Disabled, err, shut)
		}
		want(t, "EnableUser", s.EnableUser(ctx, u.ID), nil)
		if again, err := s.User(ctx, u.ID); err != nil || !again.Disabled.IsZero() {
			t.Errorf("let in again it is %+v, %v", again, err)
		}
		want(t, "EnableUser again", s.EnableUser(ctx, u.ID), ErrNotFound)
		_, err = s.DisableUser(ctx, "nobody", "test")
		want(t, "DisableUser", err, ErrNotFound)
		want(t, "AddWebSession", s.AddWebSession(ctx, "secret2",
			WebSession{User: other.ID, IDPSession: i.ID, Expires: c.now().Add(time.Hour)}), nil)
		c.pass(time.Hour)
		_, _, err = s.WebSession(ctx, "secret2")
		want(t, "a session after its time", err, ErrExpired)
	})
}

func TestRequests(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpen(t, d, c.now), t.Context()
		add := func(id string) {
			t.Helper()
			want(t, "AddAuthRequest", s.AddAuthRequest(ctx, id, "binding", AuthRequest{Purpose: "authorize",
				Detail: []byte("1"), Request: []byte("q=1"), Expires: c.now().Add(10 * time.Minute)}), nil)
		}
		add("id")
		_, err := s.AuthRequest(ctx, "id", "another browser")
		want(t, "another browser", err, ErrNotFound)
		_, err = s.ApproveAuthRequest(ctx, "id", "another browser", Approval{IDP: "idp", State: "state"})
		want(t, "approved in another browser", err, ErrNotFound)
		_, err = s.ConsumeAuthRequest(ctx, "idp", "", "binding")
		want(t, "no state", err, ErrNotFound)
		a, err := s.ApproveAuthRequest(ctx, "id", "binding",
			Approval{IDP: "idp", State: "state", Nonce: "nonce", Verifier: "canary-verifier"})
		if err != nil || string(a.Detail) != "1" || string(a.Request) != "q=1" || a.Verifier != "canary-verifier" ||
			a.Nonce != "nonce" || a.Approved.IsZero() || a.RedirectURI != "" {
			t.Errorf("ApproveAuthRequest = %+v, %v", a, err)
		}
		_, err = s.ConsumeAuthRequest(ctx, "idp", "state", "another browser") // T68
		want(t, "consumed in another browser", err, ErrNotFound)
		_, err = s.ConsumeAuthRequest(ctx, "other idp", "state", "binding") // T70
		want(t, "consumed by another provider", err, ErrNotFound)
		_, err = s.ConsumeApproved(ctx, "id", "binding")
		want(t, "consumed without the provider", err, ErrNotFound)
		_, err = s.ConsumeAuthRequest(ctx, "idp", "state", "binding")
		want(t, "consumed", err, nil)
		_, err = s.ConsumeAuthRequest(ctx, "idp", "state", "binding") // T69
		want(t, "consumed again", err, ErrUsed)
		_, err = s.AuthRequest(ctx, "id", "binding")
		want(t, "looked at afterwards", err, ErrUsed)

		add("id2")
		_, err = s.ConsumeApproved(ctx, "id2", "binding") // T66
		want(t, "consumed before it was approved", err, ErrNotFound)
		_, err = s.ApproveAuthRequest(ctx, "id2", "binding", Approval{Detail: []byte("2")})
		want(t, "approved without a provider", err, nil)
		if a, err := s.ConsumeApproved(ctx, "id2", "binding"); err != nil || string(a.Detail) != "2" {
			t.Errorf("ConsumeApproved = %+v, %v", a, err)
		}
		add("id3")
		add("id4")
		_, err = s.ApproveAuthRequest(ctx, "id4", "binding", Approval{IDP: "idp", State: "state4"})
		want(t, "approved", err, nil)
		c.pass(10 * time.Minute)
		_, err = s.AuthRequest(ctx, "id3", "binding")
		want(t, "after its time", err, ErrExpired)
		_, err = s.ApproveAuthRequest(ctx, "id3", "binding", Approval{})
		want(t, "approved after its time", err, ErrExpired)
		_, err = s.ConsumeAuthRequest(ctx, "idp", "state4", "binding")
		want(t, "consumed after its time", err, ErrExpired)
	})
}

func TestSessions(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpen(t, d, c.now), t.Context()
		ann, bob := mustGrant(t, s, "ann"), mustGrant(t, s, "bob")
		i, err := s.ClaimIDPSession(ctx, ann.IDPSession, time.Minute)
		want(t, "ClaimIDPSession", err, nil)
		_, err = s.ClaimIDPSession(ctx, ann.IDPSession, time.Minute)
		want(t, "a second claim", err, ErrUsed)
		c.pass(time.Minute)
		_, err = s.ClaimIDPSession(ctx, ann.IDPSession, time.Minute)
		want(t, "a claim after one that nobody ended", err, nil)
		i.RefreshToken = "new"
		want(t, "UpdateIDPSession", s.UpdateIDPSession(ctx, i), nil)
		if i, err := s.ClaimIDPSession(ctx, ann.IDPSession, time.Minute); err != nil || i.RefreshToken != "new" {
			t.Errorf("ClaimIDPSession = %q, %v; want the new token", i.RefreshToken, err)
		}
		want(t, "AddWebSession", s.AddWebSession(ctx, "secret",
			WebSession{User: ann.User, IDPSession: ann.IDPSession, Expires: c.now().Add(time.Hour)}), nil)
		if ended, err := s.EndIDPSession(ctx, ann.IDPSession, "idp"); err != nil ||
			!slices.Equal(ended, []string{ann.ID}) {
			t.Errorf("EndIDPSession = %q, %v; want her grant", ended, err)
		}
		_, _, err = s.WebSession(ctx, "secret")
		want(t, "her browser", err, ErrNotFound)
		_, err = s.ClaimIDPSession(ctx, ann.IDPSession, time.Minute)
		want(t, "a claim after the end", err, ErrNotFound)
		want(t, "UpdateIDPSession after the end", s.UpdateIDPSession(ctx, i), ErrNotFound)
		if i, err := s.IDPSession(ctx, ann.IDPSession); err != ErrRevoked || i.RefreshToken != "" {
			t.Errorf("IDPSession after the end = %q, %v; want no token", i.RefreshToken, err)
		}
		_, err = s.Grant(ctx, bob.ID)
		want(t, "his grant", err, nil)
	})
}

// TestSignOut signs one of two users out, while a grant is made. The other user is not affected.
func TestSignOut(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c, ctx := newClock(), t.Context()
		s := mustOpen(t, d, c.now)
		ann, bob := mustGrant(t, s, "ann"), mustGrant(t, s, "bob")
		second, err := s.AddGrant(ctx, Grant{User: ann.User, IDPSession: mustGrant(t, s, "ann").IDPSession,
			ClientID: "other", Expires: c.now().Add(time.Hour)})
		want(t, "AddGrant", err, nil)
		for secret, g := range map[string]Grant{"hers": ann, "hers too": second, "his": bob} {
			want(t, "AddWebSession", s.AddWebSession(ctx, secret,
				WebSession{User: g.User, IDPSession: g.IDPSession, Expires: c.now().Add(time.Hour)}), nil)
		}
		if sessions, err := s.IDPSessions(ctx, ann.User); err != nil || len(sessions) != 2 ||
			sessions[0].RefreshToken != "" || sessions[0].IDP != "idp" || sessions[0].OKUntil.IsZero() {
			t.Errorf("IDPSessions = %+v, %v; want two, without their tokens", sessions, err)
		}
		if browsers, err := s.WebSessions(ctx, ""); err != nil || len(browsers) != 3 {
			t.Errorf("WebSessions = %+v, %v; want three", browsers, err)
		}
		ended, err := s.SignOut(ctx, ann.User, "test")
		if err != nil || ended.Sessions != 2 || len(ended.Grants) != 3 || slices.Contains(ended.Grants, bob.ID) {
			t.Errorf("SignOut = %+v, %v; want her two sessions and three grants", ended, err)
		}
		if again, err := s.SignOut(ctx, ann.User, "test"); err != nil || again.Sessions != 0 || len(again.Grants) != 0 {
			t.Errorf("SignOut again = %+v, %v; want nothing", again, err)
		}
		_, err = s.Grant(ctx, second.ID)
		want(t, "her grant", err, ErrRevoked)
		_, err = s.Grant(ctx, bob.ID)
		want(t, "his grant", err, nil)
		left, err := s.IDPSessions(ctx, "")
		if browsers, err2 := s.WebSessions(ctx, ""); err != nil || err2 != nil || len(left) != 1 ||
			left[0].User != bob.User || len(browsers) != 1 || browsers[0].User != bob.User {
			t.Errorf("left are %+v, %v, and %+v, %v; want his alone", left, err, browsers, err2)
		}
		c.pass(time.Hour)
		if browsers, err := s.WebSessions(ctx, bob.User); err != nil || len(browsers) != 0 {
			t.Errorf("WebSessions after their end = %+v, %v", browsers, err)
		}
	})
}

// TestLateGrant ends a session while a grant of it is made.
func TestLateGrant(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s, ctx := mustOpen(t, d, nil), t.Context()
		ann := mustGrant(t, s, "ann")
		tx, err := s.BeginTX(ctx)
		want(t, "BeginTX", err, nil)
		_, err = s.IDPSession(tx, ann.IDPSession)
		want(t, "IDPSession", err, nil)
		ended := make(chan []string)
		go func() {
			grants, err := s.EndIDPSession(ctx, ann.IDPSession, "test")
			want(t, "EndIDPSession", err, nil)
			ended <- grants
		}()
		late, err := s.AddGrant(tx,
			Grant{User: ann.User, IDPSession: ann.IDPSession, ClientID: "late", Expires: time.Now().Add(time.Hour)})
		want(t, "AddGrant", err, nil)
		if d.driver == Postgres { // until the other transaction waits for this one; SQLite's waits before it begins
			waits := func() (n int) {
				want(t, "pg_locks", s.get(ctx, func(row scanner) error { return row.Scan(&n) },
					`SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'`), nil)
				return n
			}
			for deadline := time.Now().Add(10 * time.Second); waits() == 0 && time.Now().Before(deadline); {
				runtime.Gosched()
			}
		}
		want(t, "Commit", s.Commit(tx), nil)
		if grants := <-ended; len(grants) != 2 {
			t.Errorf("%q have ended, want both", grants)
		}
		_, err = s.Grant(ctx, late.ID)
		want(t, "the grant that was made meanwhile", err, ErrRevoked)
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

func TestClients(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpen(t, d, c.now), t.Context()
		g := mustGrant(t, s, "ann")
		want(t, "AddCode", s.AddCode(ctx, Code{Signature: "code", Grant: g.ID, Expires: c.now().Add(time.Minute)}), nil)
		mustIssue(t, s, g, "rt0")
		want(t, "ClientBlocked", s.ClientBlocked(ctx, "client"), nil)
		block := func(reason string, ends ...string) {
			t.Helper()
			if ended, err := s.BlockClient(ctx, Block{ClientID: "client", ClientName: "A client",
				Reason: reason}); err != nil || !slices.Equal(ended, ends) {
				t.Errorf("BlockClient = %q, %v; want %q", ended, err, ends)
			}
		}
		since, another := c.now(), g
		another.ID, another.ClientID = "", "client2"
		_, err := s.AddGrant(ctx, another)
		want(t, "AddGrant", err, nil)
		block("spam", g.ID)
		c.pass(time.Minute)
		block("phishing")
		block("")
		want(t, "ClientBlocked", s.ClientBlocked(ctx, "client"), ErrRevoked)
		if ended, err := s.BlockClient(ctx, Block{Reason: "nobody in particular"}); err == nil || len(ended) > 0 {
			t.Errorf("BlockClient without a client = %q, %v", ended, err)
		}
		want(t, "ClientBlocked of another", s.ClientBlocked(ctx, "client2"), nil)
		if all, err := s.Blocks(ctx); err != nil ||
			!reflect.DeepEqual(all, []Block{{"client", "A client", "phishing", since}}) {
			t.Errorf("Blocks = %+v, %v", all, err)
		}
		_, err = s.Code(ctx, "code")
		want(t, "its code", err, ErrUsed)
		_, err = s.Token(ctx, RefreshToken, "sig-rt0")
		want(t, "its token", err, ErrRevoked)
		want(t, "UnblockClient", s.UnblockClient(ctx, "client"), nil)
		want(t, "UnblockClient again", s.UnblockClient(ctx, "client"), ErrNotFound)
		want(t, "ClientBlocked", s.ClientBlocked(ctx, "client"), nil)
		if all, err := s.Blocks(ctx); err != nil || len(all) != 0 {
			t.Errorf("Blocks = %+v, %v", all, err)
		}

		const url = "https://client.example/metadata.json"
		_, err = s.Document(ctx, url)
		want(t, "Document", err, ErrNotFound)
		want(t, "PutDocument", s.PutDocument(ctx,
			Document{URL: url, Failure: "DNS", Fetched: c.now(), FreshUntil: c.now().Add(time.Minute)}), nil)
		in := Document{URL: url, Body: []byte("{\"\x00\xff\"}"), Fetched: c.now(), FreshUntil: c.now().Add(time.Hour)}
		want(t, "PutDocument", s.PutDocument(ctx, in), nil)
		if out, err := s.Document(ctx, url); err != nil || !reflect.DeepEqual(out, in) {
			t.Errorf("Document = %+v, %v; want %+v", out, err, in)
		}
		want(t, "UseAssertion", s.UseAssertion(ctx, "a", "jti", c.now()), nil)
		want(t, "UseAssertion of another client", s.UseAssertion(ctx, "b", "jti", c.now()), nil)
	})
}

func TestGrants(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpen(t, d, c.now), t.Context()
		ann, bob := mustGrant(t, s, "ann"), mustGrant(t, s, "bob")
		c.pass(30 * time.Second)
		want(t, "TouchGrant", s.TouchGrant(ctx, ann.ID), nil)
		if g, err := s.Grant(ctx, ann.ID); err != nil || !g.Used.Equal(g.Created) {
			t.Errorf("used %v after 30 s, %v; want %v: a write a minute", g.Used, err, g.Created)
		}
		c.pass(30 * time.Second)
		want(t, "TouchGrant", s.TouchGrant(ctx, ann.ID), nil)
		ids := func(f GrantFilter) (ids []string) {
			t.Helper()
			all, err := s.Grants(ctx, f)
			want(t, "Grants", err, nil)
			for _, g := range all {
				ids = append(ids, g.ID)
			}
			return ids
		}
		if got := ids(GrantFilter{}); !slices.Equal(got, []string{ann.ID, bob.ID}) {
			t.Errorf("all = %q, want hers, used last, and his", got)
		}
		if got := ids(GrantFilter{User: bob.User, ClientID: "client", IDPSession: bob.IDPSession,
			Standing: true}); !slices.Equal(got, []string{bob.ID}) {
			t.Errorf("his = %q", got)
		}
		if stood, err := s.RevokeGrant(ctx, bob.ID, "test"); !stood || err != nil {
			t.Errorf("RevokeGrant = %v, %v", stood, err)
		}
		if stood, err := s.RevokeGrant(ctx, "none", "test"); stood || err != nil {
			t.Errorf("RevokeGrant of none = %v, %v", stood, err)
		}
		if got := ids(GrantFilter{Standing: true}); !slices.Equal(got, []string{ann.ID}) {
			t.Errorf("those that stand = %q, want hers", got)
		}
		if got, err := s.RevokeGrants(ctx, GrantFilter{}, "all"); err != nil || !slices.Equal(got, []string{ann.ID}) {
			t.Errorf("RevokeGrants = %q, %v; want hers alone", got, err)
		}
		if g, err := s.Grant(ctx, bob.ID); err != ErrRevoked || g.Reason != "test" {
			t.Errorf("the reason of the first revocation is %q, %v", g.Reason, err)
		}
	})
}

// TestSweep lets all rows expire.
func TestSweep(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpenUnswept(t, d, c.now), t.Context()
		count := func() (n int) {
			t.Helper()
			for _, what := range sweeps {
				m := 0
				want(t, what.table, s.get(ctx, func(row scanner) error { return row.Scan(&m) },
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
			tx, err := both[0].BeginTX(ctx)
			want(t, "BeginTX", err, nil)
			if mine, err := both[0].mineToSweep(tx); err != nil || !mine {
				t.Fatalf("nobody sweeps, and nobody may: %v", err)
			}
			c.pass(100 * 24 * time.Hour)
			sweep := func(s *Store) bool {
				_, err := s.sweep(ctx)
				want(t, "sweep", err, nil)
				return !old(s)
			}
			if sweep(both[1]) {
				t.Error("a replica sweeps too")
			}
			if !sweep(other) {
				t.Error("another schema is not swept")
			}
			want(t, "Rollback", both[0].Rollback(tx), nil)
			if !sweep(both[1]) {
				t.Error("after that the replica does not sweep")
			}
		})
	})
}

// TestAuthT115OlderSchemas migrates stores of older versions, and continues their sign-ins. Each
// schema has a file, including the latest one for the future.
func TestAuthT115OlderSchemas(t *testing.T) {
	steps, err := migrations.ReadDir("migrations")
	want(t, "ReadDir", err, nil)
	for i := range steps {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("schema%d.sql", i+1)))
			want(t, "ReadFile", err, nil)
			d := database{SQLite, filepath.Join(t.TempDir(), "junction.db"), mustRing(t, "a")}
			db, err := sql.Open("sqlite", d.dsn)
			want(t, "Open", err, nil)
			_, err = db.Exec(string(text))
			want(t, "Exec", err, nil)
			want(t, "Close", db.Close(), nil)

			c := newClock()
			c.pass(30 * time.Second)
			s, ctx := mustOpen(t, d, c.now), t.Context()
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
			if i == 0 {
				return // connections came with the second
			}
			if c, err := s.Connection(ctx, "linear", "user:ann"); err != nil || c.Access != "access of ann" ||
				c.Refresh != "refresh of ann" {
				t.Errorf("Connection = %+v, %v", c, err)
			}
			if c, err := s.UpstreamClient(ctx, "linear", "https://as.example", "https://us/cb"); err != nil ||
				c.Secret != "secret" {
				t.Errorf("UpstreamClient = %+v, %v", c, err)
			}
			if i == 1 {
				return // names of those who are shut out came with the third
			}
			if all, err := s.Blocks(ctx); err != nil || len(all) != 1 || all[0].ClientID != "spam" ||
				all[0].ClientName != "Spam" || all[0].Reason != "phishing" {
				t.Errorf("Blocks = %+v, %v", all, err)
			}
			if i == 2 {
				return // networks of requests came with the fourth
			}
			if r, err := s.ConsumeAuthRequest(ctx, "idp", "state", "binding"); !errors.Is(err, ErrUsed) ||
				r.Network != "203.0.113.9/32" {
				t.Errorf("the request is %+v, %v", r, err)
			}
		})
	}
}
