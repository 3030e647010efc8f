package credentials

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/auth/fetch"
	"junction/auth/oauth"
	"junction/auth/seal"
	"junction/auth/store"
	"junction/upstream"
)

// A world is what a source of credentials needs: a database, and an authorization server that may be down.
type world struct {
	url    string
	down   atomic.Bool
	issued atomic.Int32 // tokens
	passed atomic.Int64 // seconds
	db     *store.Store
	client *oauth.Client
}

// ServeHTTP answers as the authorization server.
func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	switch {
	case w.down.Load():
		out.WriteHeader(http.StatusServiceUnavailable)
	case r.URL.Path == "/.well-known/oauth-authorization-server":
		_ = json.NewEncoder(out).Encode(map[string]any{"issuer": w.url, "token_endpoint": w.url + "/token",
			"authorization_endpoint": w.url + "/authorize", "code_challenge_methods_supported": []string{"S256"}})
	case r.URL.Path == "/token":
		fmt.Fprintf(out, `{"access_token":"canary-new-%d","token_type":"Bearer","expires_in":600}`, w.issued.Add(1))
	default:
		out.WriteHeader(http.StatusNotFound)
	}
}

// now returns the time of the world, which a test sets forward.
func (w *world) now() time.Time { return time.Unix(1_800_000_000+w.passed.Load(), 0).UTC() }

// newWorld returns a world that ends with the test.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.url = server.URL
	ring, err := seal.ParseRing("a:" + strings.Repeat("A", 43))
	if err != nil {
		t.Fatal(err)
	}
	log := authtest.Log(t)
	w.db, err = store.Open(t.Context(), store.Config{DSN: filepath.Join(t.TempDir(), "junction.db"), Keys: ring, Now: w.now, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.db.Close() })
	w.client = oauth.New(oauth.Options{Store: w.db, URL: "https://junction.example", HTTP: http.DefaultTransport, Now: w.now, Log: log,
		Fetch: &fetch.Fetcher{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}})
	t.Cleanup(w.client.Close)
	return w
}

// signedIn stores a sign-in at the upstream x, with the client that redirect belongs to.
func (w *world) signedIn(t *testing.T, user, principal, redirect string) {
	t.Helper()
	_, err := w.db.AddUpstreamClient(t.Context(), store.UpstreamClient{Upstream: "x", Issuer: w.url, RedirectURI: redirect,
		ClientID: "us", Secret: "canary-secret", AuthMethod: "client_secret_basic"})
	if err != nil {
		t.Fatal(err)
	}
	err = w.db.PutConnection(t.Context(), store.Connection{Upstream: "x", User: user, Principal: principal,
		Access: "canary-of-" + principal, Refresh: "canary-refresh-" + principal, Issuer: w.url, TokenEndpoint: w.url + "/token",
		Resource: w.url + "/mcp", ClientID: "us"})
	if err != nil {
		t.Fatal(err)
	}
}

// prepared has for each mode what gives its owner a credential for the upstream x, and returns the keys of auth. A
// mode of subjects has one for the users user:ann and user:bob.
var prepared = map[upstream.AuthMode]func(*testing.T, *world) upstream.Auth{
	upstream.AuthOAuth: func(t *testing.T, w *world) upstream.Auth {
		operator, err := w.db.Operator(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.signedIn(t, operator.ID, oauth.Operator, "http://127.0.0.1/connect/x/callback")
		return upstream.Auth{}
	},
	upstream.AuthOAuthUser: func(t *testing.T, w *world) upstream.Auth {
		for _, name := range []string{"ann", "bob"} {
			user, err := w.db.PutUser(t.Context(), store.User{Issuer: "https://idp.example", Subject: name})
			if err != nil {
				t.Fatal(err)
			}
			w.signedIn(t, user.ID, "user:"+name, "https://junction.example/connect/x/callback")
		}
		return upstream.Auth{}
	},
	upstream.AuthUserKey: func(t *testing.T, w *world) upstream.Auth {
		for _, name := range []string{"ann", "bob"} {
			user, err := w.db.PutUser(t.Context(), store.User{Issuer: "https://idp.example", Subject: name})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.db.PutConnection(t.Context(), Connection("x", w.url, "canary-of-"+name, user.ID, "user:"+name)); err != nil {
				t.Fatal(err)
			}
		}
		return upstream.Auth{}
	},
	upstream.AuthClient: func(_ *testing.T, w *world) upstream.Auth {
		return upstream.Auth{Issuer: w.url, ClientID: "us", ClientSecret: "canary-secret"}
	},
}

// TestSourcesKeepTheContract: for each mode, a token that the server refuses once is no reason for its owner to act,
// one that it refuses twice is. An outage of the authorization server changes nothing, and no user gets the token of
// another one.
func TestSourcesKeepTheContract(t *testing.T) {
	for mode := range makers {
		t.Run(mode.String(), func(t *testing.T) {
			prepare := prepared[mode]
			if prepare == nil {
				t.Fatal("this test has no credential of the mode: add it to prepared")
			}
			w := newWorld(t)
			auth := prepare(t, w)
			auth.Mode = mode
			s := New(Options{OAuth: func() *oauth.Client { return w.client }, Store: func() *store.Store { return w.db }})
			defer s.Close()
			s.Use(map[string]upstream.Config{"x": {URL: w.url + "/mcp", Auth: auth}})
			c := upstream.Caller{Upstream: "x", Mode: mode}
			if subject := mode.Row().Owner == upstream.OwnerSubject; subject {
				c.User = "user:ann"
			}
			get := func(c upstream.Caller, refused ...string) string {
				t.Helper()
				got, err := s.Apply(t.Context(), c, refused...)
				if err != nil || got.Token == "" {
					t.Fatalf("after %q refused tokens, the credential is %q, %v", refused, got.Token, err)
				}
				return got.Token
			}
			first := get(c)
			if c.User != "" {
				bob, eve := c, c
				bob.User, eve.User = "user:bob", "user:eve"
				if get(bob) == first {
					t.Error("two users have one token")
				}
				if got, err := s.Apply(t.Context(), eve); got.Token != "" || !mustAct(err) {
					t.Errorf("a user without a credential gets %q, %v", got.Token, err)
				}
			}
			w.passed.Add(60) // a token that is younger than 30 seconds is not replaced
			w.down.Store(true)
			if _, err := s.Apply(t.Context(), c, first); mustAct(err) {
				t.Errorf("in an outage, the owner has to act: %v", err)
			}
			w.down.Store(false)
			w.passed.Add(60) // the pause after a failure
			second := get(c, first)
			if got, err := s.Apply(t.Context(), c, first, second); got.Token != "" || !mustAct(err) {
				t.Errorf("after two refused tokens, the credential is %q, %v", got.Token, err)
			}
		})
	}
}

// mustAct reports whether an error asks the owner of a credential to act.
func mustAct(err error) bool {
	return errors.As(err, new(*upstream.LackError)) || errors.As(err, new(*upstream.SignInError))
}
