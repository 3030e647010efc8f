package authserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/auth/store"
)

// onBoth runs f over each database. run is a program that can write to the database, and has no master key.
func onBoth(
	t *testing.T, f func(t *testing.T, s *stand, run func(statement string)), change ...func(*Options),
) {
	for _, driver := range []string{store.SQLite, store.Postgres} {
		t.Run(driver, func(t *testing.T) {
			kind, dsn := "sqlite", ""
			s := mustStand(t, func(o *Options) {
				for _, f := range change {
					f(o)
				}
				if driver == store.SQLite {
					return
				}
				kind, dsn = "pgx", authtest.Schema(t)
				var err error
				if o.Store, err = store.Open(t.Context(),
					store.Config{Driver: driver, DSN: dsn, Keys: o.Keys, Now: o.Now, Log: o.Log}); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { o.Store.Close() })
			})
			s.store = s.Server.store
			if driver == store.SQLite {
				dsn = filepath.Join(s.dir, "junction.db") + "?_pragma=busy_timeout(10000)"
			}
			db, err := sql.Open(kind, dsn)
			if err != nil {
				t.Fatal(err)
			}
			db.SetMaxOpenConns(1)
			t.Cleanup(func() { db.Close() })
			if driver == store.Postgres { // it disregards references between tables
				if _, err := db.ExecContext(t.Context(), `SET session_replication_role = replica`); err != nil {
					t.Fatal(err)
				}
			}
			f(t, s, func(statement string) {
				t.Helper()
				result, err := db.ExecContext(t.Context(), statement)
				if err != nil {
					t.Fatal(err)
				}
				if n, err := result.RowsAffected(); err != nil || n == 0 {
					t.Fatalf("%s has changed %d rows, %v", statement, n, err)
				}
			})
		})
	}
}

// TestNoWriterOfTheDatabaseKeepsAUserWhoHasLeft: the provider has disabled a user, and another program changes
// or deletes the session, so that Junction would not ask the provider. The user gets no more tokens.
func TestNoWriterOfTheDatabaseKeepsAUserWhoHasLeft(t *testing.T) {
	onBoth(t, func(t *testing.T, s *stand, run func(string)) {
		for _, tt := range []struct {
			statement string
			status    int
			code      string
		}{
			{`UPDATE idp_sessions SET claimed_until = 99999999999`, 503, "temporarily_unavailable"},
			{`UPDATE idp_sessions SET ended_at = 1, refresh_token_enc = NULL, mac = NULL`, 400, "invalid_grant"},
			{`DELETE FROM idp_sessions`, 400, "invalid_grant"},
		} {
			s.idp.set(func() { s.idp.refresh = "refresh-token-of-the-provider" })
			a, b := s.mustApp(t), newBrowser(t)
			m := a.mustSignIn(t, b)
			s.idp.set(func() { s.idp.refresh = "" })
			s.clock.forward(61 * time.Second)
			run(tt.statement)
			for range 2 {
				if status, n := a.refresh(t, m["refresh_token"]); status != tt.status || n["error"] != tt.code {
					t.Errorf("%s: %d %v, want %d", tt.statement, status, n, tt.status)
				}
			}
			if page := b.follow(b.press(b.once(http.MethodGet, a.asks(), nil), "allow")); strings.Contains(page.url.RawQuery, "code=") {
				t.Errorf("%s: the user connects an app at %s", tt.statement, page.url)
			}
			if tt.status != 400 {
				continue
			}
			s.mustNotVerify(t, m["access_token"], "it was revoked")
			events, err := s.store.Events(t.Context(), 10)
			if err != nil || !strings.Contains(eventsText(events), "idp_session_ended") {
				t.Errorf("%s: the audit has %s, %v", tt.statement, eventsText(events), err)
			}
		}
	})
}

func eventsText(events []store.Event) string {
	var names []string
	for _, e := range events {
		names = append(names, e.Event+" "+string(e.Detail))
	}
	return strings.Join(names, "\n")
}

// allowIn opens the page of an app in a browser that is signed in, and allows the app.
func (a app) allowIn(t *testing.T, b *browser) page {
	t.Helper()
	p := b.once(http.MethodGet, a.asks(), nil)
	if !strings.Contains(p.body, `value="allow"`) {
		t.Fatalf("the page is %d %s", p.status, p.body)
	}
	return b.follow(b.press(p, "allow"))
}

// asked returns how often the provider has confirmed a user.
func (p *idp) asked() (n int) {
	p.set(func() { n = p.renewed })
	return n
}

// TestABrowserThatIsSignedInConnectsNoAppOfAUserWhoHasLeft: the provider has disabled a user whose browser is
// signed in at Junction. The provider is asked before an app gets a code: the apps of the user end, and the page
// asks for a sign-in at the provider, with which it goes on.
func TestABrowserThatIsSignedInConnectsNoAppOfAUserWhoHasLeft(t *testing.T) {
	onBoth(t, func(t *testing.T, s *stand, _ func(string)) {
		a, b := s.mustApp(t), newBrowser(t)
		m := a.mustSignIn(t, b)
		s.clock.forward(65 * time.Second)
		s.idp.set(func() { s.idp.refresh = "" })
		p := a.allowIn(t, b)
		if p.status != 200 || !strings.Contains(p.body, "Your session at the identity provider has ended.") ||
			!strings.Contains(p.body, "Continue with Acme SSO") || strings.Contains(p.body, `value="allow"`) {
			t.Errorf("it ends at %s with %d %s", p.url, p.status, p.body)
		}
		s.mustNotVerify(t, m["access_token"], "it was revoked")
		if account := b.once(http.MethodGet, s.url+"/account", nil); !strings.Contains(account.body, "Continue with Acme SSO") {
			t.Errorf("the browser is still signed in: %s", account.body)
		}
		s.idp.set(func() { s.idp.refresh = "refresh-token-of-the-provider" })
		p = b.follow(b.press(p, "idp:sso"))
		if status, n := a.redeem(t, p.url.Query().Get("code")); status != 200 || p.url.Query().Get("state") != "the state" {
			t.Errorf("after a sign-in at the provider: %s, %d %v", p.url, status, n)
		}
	})
}

// TestAnAppIsConnectedWithTheGroupsOfNow: the groups of a user who allows an app are a minute old at most, and
// the provider is asked no more often.
func TestAnAppIsConnectedWithTheGroupsOfNow(t *testing.T) {
	onBoth(t, func(t *testing.T, s *stand, _ func(string)) {
		s.clock.stop()
		a, b := s.mustApp(t), newBrowser(t)
		a.mustSignIn(t, b)
		s.granted = func(p *auth.Principal) bool { return slices.Contains(p.Groups, "engineering") }
		s.idp.set(func() { s.idp.claims = map[string]any{"groups": []string{"sales"}} })
		for _, tt := range []struct {
			after   time.Duration
			asked   int
			granted bool
		}{{59 * time.Second, 0, true}, {time.Second, 1, false}, {59 * time.Second, 1, false}, {time.Second, 2, false}} {
			s.clock.forward(tt.after)
			p := a.allowIn(t, b)
			if granted := p.url.Query().Get("code") != ""; granted != tt.granted || s.idp.asked() != tt.asked {
				t.Errorf("%s later: granted is %v, and the provider was asked %d times, want %v, %d", tt.after, granted,
					s.idp.asked(), tt.granted, tt.asked)
			}
		}
	})
}

// TestAnOutageOfTheProviderKeepsAnAppWaiting: an app is connected for as long as the outage may last. After
// that it is connected when the page is loaded again after the outage.
func TestAnOutageOfTheProviderKeepsAnAppWaiting(t *testing.T) {
	onBoth(t, func(t *testing.T, s *stand, _ func(string)) {
		s.tokens.IDPOutageGrace = time.Hour
		a, b := s.mustApp(t), newBrowser(t)
		a.mustSignIn(t, b)
		s.idp.set(func() { s.idp.status = 502 })
		s.clock.forward(59 * time.Minute)
		if p := a.allowIn(t, b); p.url.Query().Get("code") == "" {
			t.Errorf("within the grace it ends at %s with %d %s", p.url, p.status, p.body)
		}
		s.clock.forward(2 * time.Hour)
		p := a.allowIn(t, b)
		if p.status != 503 || p.header.Get("Retry-After") == "" || !strings.Contains(p.body, "Reload the page") {
			t.Errorf("after the grace it ends at %s with %d %s", p.url, p.status, p.body)
		}
		s.idp.set(func() { s.idp.status = 0 })
		if p := b.follow(b.once(http.MethodGet, p.url.String(), nil)); p.url.Query().Get("code") == "" {
			t.Errorf("after the outage it ends at %s with %d %s", p.url, p.status, p.body)
		}
	})
}

// TestAnErrorAboutTheUserEndsTheSession: what a provider answers to a refresh ends the session if it is about the
// user. An error of the operator, of a gateway or of the provider is an outage, and the log says what to do.
func TestAnErrorAboutTheUserEndsTheSession(t *testing.T) {
	for _, tt := range []struct {
		status int
		code   string
		ended  bool
		advice string
	}{
		{400, "invalid_grant", true, ""},
		{401, "unauthorized", true, ""},
		{403, "access_denied", true, ""},
		{400, "interaction_required", true, ""},
		{400, "login_required", true, ""},
		{400, "consent_required", true, ""},
		{400, "account_selection_required", true, ""},
		{403, "mfa_required", true, ""},
		{401, "invalid_client", false, "compare client_id and client_secret"},
		{400, "unauthorized_client", false, "compare client_id and client_secret"},
		{400, "invalid_request", false, "auth doctor"},
		{400, "unsupported_grant_type", false, "auth doctor"},
		{400, "invalid_scope", false, "remove the scopes"},
		{400, "temporarily_unavailable", false, "try again"},
		{400, "slow_down", false, "auth doctor"},
		{403, "Forbidden", false, "auth doctor"}, // a gateway
		{403, "", false, "auth doctor"},
		{408, "access_denied", false, ""},
		{429, "access_denied", false, ""},
		{503, "access_denied", false, ""},
	} {
		t.Run(fmt.Sprint(tt.status, " ", tt.code), func(t *testing.T) {
			log := new(authtest.Text)
			s := mustStand(t, func(o *Options) { o.Log = authtest.Log(t, log) })
			a, b := s.mustApp(t), newBrowser(t)
			m := a.mustSignIn(t, b)
			s.clock.forward(2 * time.Minute)
			s.idp.Answer("/token", func(w http.ResponseWriter, _ *http.Request) {
				body := map[string]string{"message": "no"}
				if tt.code != "" {
					body = map[string]string{"error": tt.code, "error_description": "what the provider says"}
				}
				reply(w, tt.status, body)
			})
			status, n := a.refresh(t, m["refresh_token"])
			if tt.ended {
				if status != 400 || n["error"] != "invalid_grant" {
					t.Errorf("the refresh is answered %d %v", status, n)
				}
				s.mustNotVerify(t, m["access_token"], "it was revoked")
				if !strings.Contains(log.String(), "event=idp_session_ended") {
					t.Errorf("the log has\n%s", log)
				}
				return
			}
			if status != 200 {
				t.Errorf("the refresh is answered %d %v", status, n)
			}
			if text := log.String(); !strings.Contains(text, "cannot ask the provider") || !strings.Contains(text, tt.advice) {
				t.Errorf("the log has not %q:\n%s", tt.advice, text)
			}
		})
	}
}

// TestDisabledUsersAreKnownWithoutAQuery: whom the operator has disabled, and enabled again, is known from memory
// after the first question, also while the store is away. Streams are looked at when a user is disabled.
func TestDisabledUsersAreKnownWithoutAQuery(t *testing.T) {
	var looked atomic.Int64
	onBoth(t, func(t *testing.T, s *stand, _ func(string)) {
		looked.Store(0)
		ann, err := s.store.PutUser(t.Context(), store.User{Issuer: s.idp.URL, Subject: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		who := auth.UserID(ann.Issuer, ann.Subject)
		wants := func(when string, want bool) {
			t.Helper()
			if got, err := s.Disabled(t.Context(), who); got != want || err != nil || s.KnownDisabled(who) != want {
				t.Errorf("%s: disabled is %v, %v", when, got, err)
			}
			if got, err := s.Disabled(t.Context(), auth.UserID("https://other.example", "ann")); got || err != nil {
				t.Errorf("%s: another user is disabled: %v, %v", when, got, err)
			}
		}
		change := func(f func(ctx context.Context) error) {
			t.Helper()
			if err := errors.Join(f(t.Context()), s.findDisabled(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		disable := func(ctx context.Context) error { _, err := s.store.DisableUser(ctx, ann.ID, "test"); return err }
		change(disable) // nobody has asked yet
		if s.disabled.known.Load() != nil {
			t.Error("the users are read although nobody has asked for one")
		}
		wants("disabled before", true)
		change(func(ctx context.Context) error { return s.store.EnableUser(ctx, ann.ID) })
		wants("enabled", false)
		change(disable)
		wants("disabled again", true)
		if n := looked.Load(); n != 2 {
			t.Errorf("streams were looked at %d times, want 2", n)
		}
		s.store.Close()
		if err := s.findDisabled(t.Context()); err == nil {
			t.Error("a store that is closed is no error")
		}
		wants("without the store", true)
	}, func(o *Options) { o.Ended = func() { looked.Add(1) } })
}
