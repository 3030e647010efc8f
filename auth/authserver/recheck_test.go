package authserver

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/auth/store"
)

// onBoth runs f over each database. run is a program that can write to the database, and has no master key.
func onBoth(t *testing.T, f func(t *testing.T, s *stand, run func(statement string))) {
	for _, driver := range []string{store.SQLite, store.Postgres} {
		t.Run(driver, func(t *testing.T) {
			kind, dsn := "sqlite", ""
			s := mustStand(t, func(o *Options) {
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
			if page := b.follow(b.press(b.once("GET", a.asks(), nil), "allow")); strings.Contains(page.url.RawQuery, "code=") {
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
