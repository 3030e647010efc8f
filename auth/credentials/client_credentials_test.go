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

// TestClientCredentialsForPeople: the probe gets a token and shows its scopes and expiry; a failure is in
// the probe, in the error of a call and in the state, without the secret. An upstream that rejects new tokens
// gives the error with the keys to compare, and users with credentials of their own are not concerned.
func TestClientCredentialsForPeople(t *testing.T) {
	ctx := t.Context()
	var down atomic.Bool
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/.well-known/oauth-authorization-server":
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": server.URL, "token_endpoint": server.URL + "/token"})
		case "/token":
			if down.Load() {
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprint(w, `{"error":"unauthorized_client"}`)
				return
			}
			fmt.Fprint(w, `{"access_token":"canary-own","token_type":"Bearer","expires_in":60,"scope":"read run"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	ring, err := seal.ParseRing("a:" + strings.Repeat("A", 43))
	if err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return time.Unix(1_800_000_000, 0).UTC() }
	log := authtest.Log(t)
	db, err := store.Open(ctx, store.Config{DSN: filepath.Join(t.TempDir(), "junction.db"), Keys: ring, Now: now, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	client := oauth.New(oauth.Options{Store: db, Fetch: &fetch.Fetcher{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		HTTP: http.DefaultTransport, Now: now, Log: log})
	defer client.Close()
	s := New(Options{OAuth: func() *oauth.Client { return client }})
	defer s.Close()
	mode := upstream.AuthClient
	entry := upstream.Config{URL: server.URL + "/mcp", Auth: upstream.Auth{Mode: mode, Issuer: server.URL, ClientID: "us",
		ClientSecret: "canary-secret"}}
	s.Use(map[string]upstream.Config{"x": entry, "own": {URL: server.URL, Auth: upstream.Auth{Mode: upstream.AuthOAuthUser}}})
	c := upstream.Caller{Upstream: "x", Mode: mode}
	want := func(text string, level Level) {
		t.Helper()
		if found := s.Probe(ctx, "x"); len(found) != 1 || found[0].Level != level || !strings.Contains(found[0].Text, text) ||
			strings.Contains(found[0].Text, "canary") {
			t.Errorf("the probe finds %v, want %q", found, text)
		}
	}
	want("expires at 2027-01-15T08:01:00Z, with the scopes: read run", Good)
	down.Store(true)
	want("it answered 400 unauthorized_client", Wrong)
	if state := s.State(ctx, "x", ""); state.Notes != "" {
		t.Errorf("a probe changes the state: %+v", state)
	}
	if got, err := s.Apply(ctx, c); got.Token != "" || err == nil || !strings.Contains(err.Error(), "unauthorized_client") {
		t.Errorf("the credential is %v, %v", got, err)
	}
	notes := s.State(ctx, "x", "").Notes
	if !strings.Contains(notes, "requests for a token fail (1 in a row)") || strings.Contains(notes, "canary") {
		t.Errorf("the state is %q", notes)
	}
	down.Store(false)
	s.Use(map[string]upstream.Config{"x": {URL: entry.URL, Auth: upstream.Auth{Mode: mode, Issuer: server.URL, ClientID: "us",
		ClientSecret: "canary-other"}}}) // a new configuration ends the pause
	if got, err := s.Apply(ctx, c); got.Token != "canary-own" || err != nil {
		t.Fatalf("the credential is %v, %v", got, err)
	}
	_, err = s.Apply(ctx, c, "canary-own", "canary-own")
	if lack, ok := errors.AsType[*upstream.LackError](err); !ok || !lack.Again || !strings.Contains(err.Error(), "auth.audience") {
		t.Errorf("an upstream that rejects each token: %v", err)
	}
	figures := s.Renewals()
	if f := figures["x"]; f.Renewals != 1 || f.Failures != 1 || len(figures) != 1 {
		t.Errorf("after a failure and a token, the figures are %+v", figures)
	}
	if _, err = s.Apply(ctx, c); err != nil || !s.Renewals()["x"].Expires.Equal(now().Add(time.Minute)) {
		t.Errorf("the token is known to expire at %v, %v", s.Renewals()["x"].Expires, err)
	}
	// A connection of the configuration before has another mode, and perhaps another server.
	for _, c := range []upstream.Caller{{Upstream: "x", Mode: upstream.AuthOAuth},
		{Upstream: "x", Mode: upstream.AuthOAuthUser, User: "user:ann"}, {Upstream: "own", Mode: mode}} {
		if got, err := s.Apply(ctx, c); got.Token != "" || err == nil {
			t.Errorf("%+v gets the token of another mode: %v, %v", c, got, err)
		}
	}
}
