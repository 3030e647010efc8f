package authserver

import (
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/auth/authserver/provider"
	"junction/auth/authtest"
	"junction/auth/seal"
	"junction/auth/store"
)

// issued is a Server over a copy of testdata/issued.sql, a store of schema 1. had contains the codes
// and tokens that its server issued, by their names in issued.json. The clock stands five seconds
// later.
type issued struct {
	*Server
	had  map[string]string
	file string // of the store
}

// mustIssued opens the store. keys, if any, precede the key of that store.
func mustIssued(t *testing.T, keys ...string) issued {
	t.Helper()
	i := issued{file: filepath.Join(t.TempDir(), "junction.db")}
	text, err := os.ReadFile("testdata/issued.json")
	if err == nil {
		err = json.Unmarshal(text, &i.had)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range i.had {
		if name != "now" && name != "keys" {
			authtest.Secret("issued earlier: "+name, value)
		}
	}
	if text, err = os.ReadFile("testdata/issued.sql"); err != nil {
		t.Fatal(err)
	}
	i.sql(t, "BEGIN;\n"+string(text)+"\nCOMMIT;") // one commit, which waits for the disk
	at, err := time.Parse(time.RFC3339, i.had["now"])
	if err != nil {
		t.Fatal(err)
	}
	ring, err := seal.ParseRing(strings.Join(append(keys, i.had["keys"]), ","))
	if err != nil {
		t.Fatal(err)
	}
	now, log := func() time.Time { return at.Add(5 * time.Second) }, authtest.Log(t)
	st, err := store.Open(t.Context(), store.Config{DSN: i.file, Keys: ring, Now: now, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	i.Server, err = New(Options{URL: "https://junction.example", Store: st, Keys: ring, Now: now, Log: log,
		Config: Config{
			IdentityProviders: []provider.Config{{ID: "sso", Issuer: "https://idp.example", ClientID: "junction"}},
			Clients:           Clients{Static: []StaticClient{{ID: "app", RedirectURIs: []string{clientAt}}}},
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	return i
}

func (i issued) sql(t *testing.T, text string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+i.file+"?_pragma=busy_timeout(10000)")
	if err == nil {
		_, err = db.Exec(text)
	}
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// setChallenge replaces the challenge of a code.
func (i issued) setChallenge(t *testing.T, code, challenge string) {
	t.Helper()
	signature, ok := i.minter.signature(i.had[code], codePrefix)
	if !ok {
		t.Fatalf("%s is no code", code)
	}
	_, err := i.store.TakePKCE(t.Context(), signature)
	if err == nil {
		err = i.store.AddPKCE(t.Context(), signature, []byte(challenge), i.now().Add(time.Minute))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// ask calls the token endpoint; a parameter without a value is left out.
func (i issued) ask(t *testing.T, parameters ...string) (int, map[string]any) {
	t.Helper()
	q := url.Values{"client_id": {"app"}}
	for n := 0; n < len(parameters); n += 2 {
		if q.Set(parameters[n], parameters[n+1]); parameters[n+1] == "" {
			q.Del(parameters[n])
		}
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/oauth/token", strings.NewReader(q.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	i.ServeHTTP(w, r)
	var m map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	return w.Code, m
}

func (i issued) redeem(t *testing.T, code string, changes ...string) (int, map[string]any) {
	t.Helper()
	return i.ask(t, append([]string{
		"grant_type", "authorization_code", "code", i.had[code], "code_verifier", i.had["verifier"], "redirect_uri",
		clientAt,
	}, changes...)...)
}

func (i issued) refresh(t *testing.T, token any, changes ...string) (int, map[string]any) {
	t.Helper()
	return i.ask(t, append([]string{"grant_type", "refresh_token", "refresh_token", fmt.Sprint(token)}, changes...)...)
}

func (i issued) mustVerify(t *testing.T, token any) {
	t.Helper()
	p, err := i.Verify(t.Context(), fmt.Sprint(token), here)
	if err != nil {
		t.Error(err)
		return
	}
	if p.User != "ann" || !slices.Equal(p.Scopes, []string{"mcp", "offline_access"}) ||
		!slices.Equal(p.Resources, []string{"https://junction.example/mcp"}) {
		t.Errorf("the principal is %+v", p)
	}
}

func (i issued) mustNotVerify(t *testing.T, token any) {
	t.Helper()
	if p, err := i.Verify(t.Context(), fmt.Sprint(token), here); err == nil {
		t.Errorf("the token is good for %+v", p)
	}
}

// refused checks an error answer of the token endpoint.
func refused(t *testing.T, what string, status int, m map[string]any, code string) {
	t.Helper()
	if status != http.StatusBadRequest || m["error"] != code || m["access_token"] != nil || m["refresh_token"] != nil {
		t.Errorf("%s: %d %v, want %s", what, status, m, code)
	}
}

func challengeOf(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// TestTokensOfAnEarlierVersion uses stored codes and tokens, with their key and after a rotation.
func TestTokensOfAnEarlierVersion(t *testing.T) {
	newer := "k2:" + base64.StdEncoding.EncodeToString(seal.NewSecret())
	for name, keys := range map[string][]string{"one key": nil, "rotated": {newer}} {
		t.Run(name, func(t *testing.T) {
			i := mustIssued(t, keys...)
			i.mustVerify(t, i.had["access"])
			status, m := i.refresh(t, i.had["refresh"])
			if status != http.StatusOK || m["scope"] != "mcp offline_access" || m["refresh_token"] == i.had["refresh"] {
				t.Fatal(status, m)
			}
			i.mustVerify(t, m["access_token"])
			if status, m = i.refresh(t, m["refresh_token"]); status != http.StatusOK {
				t.Error(status, m)
			}
			if status, m = i.refresh(t, i.had["rotated"]); status != http.StatusOK ||
				m["refresh_token"] != i.had["successor"] {
				t.Errorf("a client that did not get the answer gets %d %v", status, m)
			}
			if status, m = i.redeem(t, "pending"); status != http.StatusOK || m["scope"] != "mcp offline_access" {
				t.Fatal(status, m)
			}
			i.mustVerify(t, m["access_token"])
			if status, m = i.refresh(t, m["refresh_token"]); status != http.StatusOK {
				t.Error(status, m)
			}
		})
	}
}

// TestTokensOfAnEarlierVersionReused presents used codes and tokens again: their grants end.
func TestTokensOfAnEarlierVersionReused(t *testing.T) {
	i := mustIssued(t)
	i.mustVerify(t, i.had["access"])
	status, m := i.redeem(t, "used")
	refused(t, "a used code", status, m, "invalid_grant")
	i.mustNotVerify(t, i.had["access"])
	status, m = i.refresh(t, i.had["refresh"])
	refused(t, "the refresh token of a code that was used twice", status, m, "invalid_grant")
	status, m = i.refresh(t, i.had["twice_rotated"])
	refused(t, "a refresh token whose successor was used", status, m, "invalid_grant")
	status, m = i.refresh(t, i.had["last"])
	refused(t, "the last of its family", status, m, "invalid_grant")
	if status, m = i.redeem(t, "pending"); status != http.StatusOK {
		t.Errorf("another grant: %d %v", status, m)
	}
}

// TestTokensWithoutTheKey opens the store with another secret for tokens.
func TestTokensWithoutTheKey(t *testing.T) {
	i := mustIssued(t)
	i.minter = minter{[][]byte{seal.NewSecret()}}
	i.mustNotVerify(t, i.had["access"])
	status, m := i.refresh(t, i.had["refresh"])
	refused(t, "a refresh token", status, m, "invalid_grant")
	status, m = i.redeem(t, "pending")
	refused(t, "a code", status, m, "invalid_grant")
}

// TestTokensRowsKeepTheirForm compares rows of an earlier version with rows that are written now. A refresh token
// also has its interval now, which that version does not read.
func TestTokensRowsKeepTheirForm(t *testing.T) {
	i := mustIssued(t)
	before := i.forms(t)
	i.sql(t, "DELETE FROM oauth_tokens")
	if status, m := i.redeem(t, "pending"); status != http.StatusOK {
		t.Fatal(status, m)
	}
	i.sql(t, "DELETE FROM oauth_codes; DELETE FROM oauth_pkce")
	grants, err := i.store.Grants(t.Context(), store.GrantFilter{})
	if err != nil || len(grants) == 0 {
		t.Fatal(grants, err)
	}
	g := grants[0]
	g.ID = ""
	if _, err = i.issueCode(t.Context(), store.AuthRequest{
		RedirectURI: clientAt, State: []byte("x"), CodeChallenge: challengeOf(i.had["verifier"]),
		Request: []byte(explicitRedirect),
	}, g); err != nil {
		t.Fatal(err)
	}
	before["rt"] = strings.TrimSuffix(before["rt"], "}") + `,"reuse_interval":60000000000}`
	after := i.forms(t)
	if len(before) != 4 || !maps.Equal(before, after) {
		t.Errorf("the rows were\n%v\nand are\n%v", before, after)
	}
}

// forms returns the members of the JSON that each kind of row has, and the length of its signature.
func (i issued) forms(t *testing.T) map[string]string {
	t.Helper()
	db, err := sql.Open("sqlite", i.file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(`SELECT kind, signature, request FROM oauth_tokens
		UNION ALL SELECT 'code', signature, request FROM oauth_codes
		UNION ALL SELECT 'pkce', signature, request FROM oauth_pkce`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	forms := map[string]string{}
	for rows.Next() {
		var kind, signature string
		var text []byte
		if err := rows.Scan(&kind, &signature, &text); err != nil {
			t.Fatal(err)
		}
		form := fmt.Sprint(len(signature), " ", len(text))
		if kind != "pkce" { // the challenge as it is
			form = fmt.Sprint(len(signature), " ", string(text))
		}
		if kind == "at" || kind == "rt" { // those of a refresh are those of a code
			if old := forms[kind]; old != "" && old != form {
				t.Errorf("two forms of %s: %s and %s", kind, old, form)
			}
		}
		forms[kind] = form
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return forms
}
