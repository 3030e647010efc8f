package credentials

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/auth/fetch"
	"junction/auth/oauth"
	"junction/auth/seal"
	"junction/auth/store"
	"junction/upstream"
)

// mustStore returns an empty store.
func mustStore(t *testing.T) *store.Store {
	t.Helper()
	ring, err := seal.ParseRing("a:" + strings.Repeat("A", 43))
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), store.Config{DSN: filepath.Join(t.TempDir(), "junction.db"), Keys: ring,
		Log: authtest.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// keyed is an entry with keys of callers.
func keyed(url string) upstream.Config {
	return upstream.Config{URL: url, Auth: upstream.Auth{Mode: upstream.AuthUserKey}}
}

// mustUsers stores users, and returns their IDs and principals.
func mustUsers(t *testing.T, db *store.Store, names ...string) (ids, principals []string) {
	t.Helper()
	for _, name := range names {
		u, err := db.PutUser(t.Context(), store.User{Issuer: "https://idp.example.com", Subject: name})
		if err != nil {
			t.Fatal(err)
		}
		ids, principals = append(ids, u.ID), append(principals, auth.UserID(u.Issuer, u.Subject))
	}
	return ids, principals
}

// TestKeyOfACommandIsOfItsWords: a key for a command is of the program, each argument and the folder. Its identity shows
// the program alone, and no key is for an entry without the mode.
func TestKeyOfACommandIsOfItsWords(t *testing.T) {
	mode := upstream.Auth{Mode: upstream.AuthUserKey}
	seen := map[string]bool{}
	for _, c := range []upstream.Config{{Command: []string{"npx", "a"}}, {Command: []string{"npx", "a"}, Dir: "/d"}, {Command: []string{"npx", "a", ""}},
		{Command: []string{"npx", "b c"}}, {Command: []string{"npx", "b", "c"}}} {
		if at := KeyOrigin(c); at != "" {
			t.Errorf("without the mode: %q", at)
		}
		c.Auth = mode
		at := KeyOrigin(c)
		if place, runs := store.KeyPlace(at); seen[at] || place != "npx" || !runs || strings.Contains(at, "/d") {
			t.Errorf("%q: %q, which is %q, %v", c.Command, at, place, runs)
		}
		seen[at] = true
	}
	if place, runs := store.KeyPlace(KeyOrigin(keyed("https://X.example.com/mcp"))); place != "x.example.com" || runs {
		t.Errorf("a URL is %q, %v", place, runs)
	}
}

// TestKeysOfUsersNeverCross: each caller gets the key that was stored for them, for this upstream and the origin
// of its URL only. All others get the way to give one, and a link is only for the user.
func TestKeysOfUsersNeverCross(t *testing.T) {
	ctx, db := t.Context(), mustStore(t)
	var changed []string
	s := New(Options{Store: func() *store.Store { return db },
		Changed:    func(name, principal string) { changed = append(changed, name+" "+principal) },
		ConnectURL: func(name, user string, _ ...string) string { return "https://j/connect/" + name + "?" + user }})
	defer s.Close()
	s.Use(map[string]upstream.Config{"x": keyed("https://x.example.com/mcp"), "y": keyed("https://x.example.com/mcp")})
	ids, who := mustUsers(t, db, "ann", "bob", "cid")
	keys := s.UserKeys()
	const at = "https://x.example.com"
	for i, key := range []string{"canary-ann", " canary-bob\n"} {
		if err := keys.Give(ctx, "x", at, key, ids[i], who[i]); err != nil {
			t.Fatal(err)
		}
	}
	robot, err := db.Holder(ctx, "key:ci")
	if err == nil {
		err = db.PutConnection(ctx, Connection("x", at, "canary-ci", robot.ID, "key:ci"))
	}
	if err != nil || len(changed) != 2 {
		t.Fatalf("%v; changed are %q", err, changed)
	}
	token := func(name, user string, mode upstream.AuthMode) string {
		t.Helper()
		got, err := s.Apply(ctx, upstream.Caller{Upstream: name, Mode: mode, User: user})
		need, _ := errors.AsType[*upstream.SignInError](err)
		switch {
		case got.Token != "" && err == nil:
			return got.Token
		case got.Token == "" && need != nil && need.URL == "":
			return "no link"
		case got.Token == "" && need != nil && strings.HasSuffix(need.URL, name+"?"+user):
			return "link"
		}
		return fmt.Sprint(got, err)
	}
	mode := upstream.AuthUserKey
	for _, test := range []struct{ name, user, want string }{
		{"x", who[0], "canary-ann"}, {"x", who[1], "canary-bob"}, {"x", "key:ci", "canary-ci"},
		{"x", who[2], "link"}, {"x", "key:other", "no link"}, {"x", "", "no link"}, {"x", "operator", "no link"},
		{"y", who[0], "link"}, {"z", who[0], "link"},
	} {
		if got := token(test.name, test.user, mode); got != test.want {
			t.Errorf("%s gets %q for %s, want %q", test.user, got, test.name, test.want)
		}
	}
	s.Use(map[string]upstream.Config{"x": keyed("https://x.example.com:444/mcp")})
	if got := token("x", who[0], mode); got != "link" {
		t.Errorf("another origin gets %q", got)
	}
	if err := keys.Give(ctx, "x", at, "canary-late", ids[2], who[2]); err == nil {
		t.Error("a key is stored for an origin that the user has not seen")
	}
	s.Use(map[string]upstream.Config{"x": keyed("https://x.example.com/other")})
	if got := token("x", who[0], mode); got != "canary-ann" {
		t.Errorf("another path of the origin gets %q", got)
	}
	if err := keys.Forget(ctx, "x", ids[0]); err != nil || token("x", who[0], mode) != "link" ||
		token("x", who[1], mode) != "canary-bob" {
		t.Errorf("after ann has deleted her key: %v", err)
	}
	if _, err := db.DisableUser(ctx, ids[1], "x"); err != nil || token("x", who[1], mode) != "link" {
		t.Errorf("a disabled user: %v", err)
	}
	if err := db.EnableUser(ctx, ids[1]); err != nil || token("x", who[1], mode) != "link" {
		t.Errorf("a user who was disabled still has the key: %v", err)
	}
}

// TestKeyIsNoTokenOfASignIn: the key of a user is not sent, renewed or revoked as a token of a sign-in, after the
// mode of the upstream has changed; and a token is no key.
func TestKeyIsNoTokenOfASignIn(t *testing.T) {
	ctx, db := t.Context(), mustStore(t)
	client := oauth.New(oauth.Options{Store: db, URL: "https://j.example.com", Fetch: nowhere, HTTP: refusing{t}, Log: authtest.Log(t)})
	defer client.Close()
	s := New(Options{Store: func() *store.Store { return db }, OAuth: func() *oauth.Client { return client }})
	defer s.Close()
	ids, who := mustUsers(t, db, "ann", "bob")
	const at = "https://x.example.com"
	s.Use(map[string]upstream.Config{"x": keyed(at + "/mcp")})
	if err := s.UserKeys().Give(ctx, "x", at, "canary-key", ids[0], who[0]); err != nil {
		t.Fatal(err)
	}
	if err := db.PutConnection(ctx, store.Connection{Upstream: "x", User: ids[1], Principal: who[1], Access: "canary-token",
		Issuer: "https://as.example.com", Resource: at + "/mcp"}); err != nil {
		t.Fatal(err)
	}
	got, err := s.Apply(ctx, upstream.Caller{Upstream: "x", Mode: upstream.AuthUserKey, User: who[1]})
	if got.Token != "" || err == nil {
		t.Errorf("a token is used as a key: %v", err)
	}
	s.Use(map[string]upstream.Config{"x": {URL: at + "/mcp", Auth: upstream.Auth{Mode: upstream.AuthOAuthUser}}})
	got, err = s.Apply(ctx, upstream.Caller{Upstream: "x", Mode: upstream.AuthOAuthUser, User: who[0]})
	if got.Token != "" || err == nil {
		t.Errorf("a key is used as a token: %v", err)
	}
	if err := client.Disconnect(ctx, "x", ids[0]); err != nil { // it would ask an authorization server to revoke the key
		t.Error(err)
	}
}

// TestRefusedKeyRests: a key that the server has refused twice is not sent for a minute, and the user has the way
// to give another one, which is used at once. The same refusal concerns no other user.
func TestRefusedKeyRests(t *testing.T) {
	db := mustStore(t)
	ids, who := mustUsers(t, db, "ann", "bob")
	s := New(Options{Store: func() *store.Store { return db }})
	now := time.Now()
	s.UserKeys().now = func() time.Time { return now }
	s.Use(map[string]upstream.Config{"x": keyed("https://x.example.com/mcp")})
	give := func(i int, key string) {
		t.Helper()
		if err := s.UserKeys().Give(t.Context(), "x", "https://x.example.com", key, ids[i], who[i]); err != nil {
			t.Fatal(err)
		}
	}
	want := func(i int, want string, refused ...string) {
		t.Helper()
		got, err := s.Apply(t.Context(), upstream.Caller{Upstream: "x", Mode: upstream.AuthUserKey, User: who[i]}, refused...)
		need, _ := errors.AsType[*upstream.SignInError](err)
		if got.Token != want || (want == "") != (need != nil && need.Again) {
			t.Errorf("%q, %v; want %q", got.Token, err, want)
		}
	}
	give(0, "canary-one")
	give(1, "canary-bob")
	want(0, "canary-one", "canary-one") // one refusal may concern the request
	want(0, "", "canary-one", "canary-one")
	want(0, "")
	want(1, "canary-bob")
	now = now.Add(refusedKeyPause + time.Second)
	want(0, "canary-one")
	want(0, "", "canary-one", "canary-one")
	give(0, "canary-two")
	want(0, "canary-two")
}

// TestPastedKeys: a key that cannot be one of the server is refused with a reason that does not show it.
func TestPastedKeys(t *testing.T) {
	for text, want := range map[string]string{
		"": "no key", " \n": "no key", "canary-a\ncanary-b": "no spaces", "Bearer canary": "without a word",
		"canary-ü": "special letters", "canary\x00": "special letters", strings.Repeat("canary", 1<<18): "at most 4096 bytes",
		"jct_key_canary": "a key of Junction itself", "jct_at_canary": "a key of Junction itself",
	} {
		if key, err := CheckKey(text); key != "" || err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "canary") {
			t.Errorf("%.20q: %q, %v; want %q", text, key, err, want)
		}
	}
	if key, err := CheckKey("  sk-live/a+b=\r\n"); key != "sk-live/a+b=" || err != nil {
		t.Errorf("%q, %v", key, err)
	}
}

// nowhere fetches nothing.
var nowhere = &fetch.Fetcher{}

// refusing fails the test for each request.
type refusing struct{ t *testing.T }

func (r refusing) RoundTrip(q *http.Request) (*http.Response, error) {
	r.t.Errorf("%s %s was requested", q.Method, q.URL)
	return nil, errors.New("no")
}
