package facade

import (
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"junction/auth/seal"
	"junction/auth/store"
)

// TestWriteFixture writes testdata/issued.sql and testdata/issued.json with the code of this
// commit. It is for the commit that still has fosite, and goes with it.
func TestWriteFixture(t *testing.T) {
	if os.Getenv("WRITE_ISSUED") == "" {
		t.Skip("it writes testdata")
	}
	keys := "k1:" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", seal.SecretSize)))
	ring, err := seal.ParseRing(keys)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Truncate(time.Second)
	now := func() time.Time { return at }
	file := filepath.Join(t.TempDir(), "junction.db")
	st, err := store.Open(t.Context(), store.Config{DSN: file, Keys: ring, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(Options{URL: "https://junction.example", Store: st, Keys: ring, Now: now, Config: Config{
		IdentityProviders: []IdentityProvider{{ID: "sso", Issuer: "https://idp.example", ClientID: "junction"}},
		Clients:           Clients{Static: []StaticClient{{ID: "app", RedirectURIs: []string{clientAt}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	user, err := st.PutUser(t.Context(), store.User{Issuer: "https://idp.example", Subject: "ann", Email: "ann@acme.example"})
	if err != nil {
		t.Fatal(err)
	}
	session, err := st.AddIDPSession(t.Context(), store.IDPSession{User: user.ID, IDP: "sso", OKUntil: at.Add(90 * 24 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	const verifier = "a-verifier.of_the~old-code-0123456789-0123456789"
	code := func() string {
		redirect, err := f.core.IssueCode(t.Context(), AuthRequest{
			RedirectURI: clientAt, State: "the state", Challenge: challengeOf(verifier), ExplicitRedirect: true,
		}, store.Grant{
			User: user.ID, IDPSession: session.ID, ClientID: "app", ClientKind: string(kindStatic), ClientName: "app", RedirectHost: "localhost",
			Resource: "https://junction.example/mcp", Scope: "mcp offline_access", Expires: at.Add(90 * 24 * time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(redirect)
		if err != nil {
			t.Fatal(err)
		}
		return u.Query().Get("code")
	}
	ask := func(q url.Values) (access, refresh string) {
		q.Set("client_id", "app")
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/oauth/token", strings.NewReader(q.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		f.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatal(w.Code, w.Body)
		}
		return member(t, w.Body.String(), "access_token"), member(t, w.Body.String(), "refresh_token")
	}
	redeem := func(code string) (access, refresh string) {
		return ask(url.Values{"grant_type": {"authorization_code"}, "code": {code}, "code_verifier": {verifier}, "redirect_uri": {clientAt}})
	}
	renew := func(token string) (access, refresh string) {
		return ask(url.Values{"grant_type": {"refresh_token"}, "refresh_token": {token}})
	}
	out := map[string]string{"keys": keys, "now": at.UTC().Format(time.RFC3339), "verifier": verifier, "pending": code(), "used": code()}
	out["access"], out["refresh"] = redeem(out["used"])
	_, out["rotated"] = redeem(code())
	_, out["successor"] = renew(out["rotated"])
	_, out["twice_rotated"] = redeem(code())
	_, next := renew(out["twice_rotated"])
	_, out["last"] = renew(next)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(out, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("testdata/issued.json", append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	dump := "-- A store in which the authorization server on ory/fosite v0.49.0 has issued codes and tokens,\n-- which issued.json has. SQLite's dump.\n" + mustDump(t, file)
	if err := os.WriteFile("testdata/issued.sql", []byte(dump), 0o644); err != nil {
		t.Fatal(err)
	}
}

func mustDump(t *testing.T, file string) string {
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	all := func(query string) (rows [][]string) {
		r, err := db.Query(query)
		if err != nil {
			t.Fatal(query, err)
		}
		defer r.Close()
		cols, _ := r.Columns()
		for r.Next() {
			row, to := make([]string, len(cols)), make([]any, len(cols))
			for i := range row {
				to[i] = &row[i]
			}
			if err := r.Scan(to...); err != nil {
				t.Fatal(query, err)
			}
			rows = append(rows, row)
		}
		return rows
	}
	var b strings.Builder
	for _, x := range all(`SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type = 'index', name`) {
		fmt.Fprintf(&b, "%s;\n", x[2])
		if x[0] != "table" {
			continue
		}
		var values []string
		for _, c := range all(`SELECT name FROM pragma_table_info('` + x[1] + `')`) {
			values = append(values, "quote("+c[0]+")")
		}
		for _, row := range all(`SELECT ` + strings.Join(values, " || ',' || ") + ` FROM ` + x[1]) {
			fmt.Fprintf(&b, "INSERT INTO %s VALUES(%s);\n", x[1], row[0])
		}
	}
	for _, p := range []string{"user_version", "application_id"} {
		fmt.Fprintf(&b, "PRAGMA %s = %s;\n", p, all("PRAGMA " + p)[0][0])
	}
	return b.String()
}
