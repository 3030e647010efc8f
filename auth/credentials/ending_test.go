package credentials

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/auth/fetch"
	"junction/auth/oauth"
	"junction/auth/seal"
	"junction/auth/store"
	"junction/upstream"
)

// TestReasonOfAnEndedSignIn: the operator reads in the state that the client secret of a sign-in expires, in
// advance. When the sign-in has ended because of that, the error of a call has the reason and the command, or
// the page.
func TestReasonOfAnEndedSignIn(t *testing.T) {
	ctx, now := t.Context(), time.Unix(1_800_000_000, 0).UTC()
	clock := func() time.Time { return now }
	ring, err := seal.ParseRing("a:" + strings.Repeat("A", 43))
	if err != nil {
		t.Fatal(err)
	}
	log := authtest.Log(t)
	db, err := store.Open(ctx, store.Config{DSN: filepath.Join(t.TempDir(), "junction.db"), Keys: ring, Now: clock, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	client := oauth.New(oauth.Options{Store: db, URL: "https://junction.example", Name: "Acme", Fetch: &fetch.Fetcher{}, Now: clock,
		Log: log})
	defer client.Close()
	operator, err := db.Operator(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ann, err := db.PutUser(ctx, store.User{Issuer: "https://idp.example", Subject: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	const issuer, token, server = "https://as.example", "https://as.example/token", "https://mcp.example/mcp"
	s := New(Options{OAuth: func() *oauth.Client { return client }, ConnectURL: func(string, string, ...string) string { return "https://junction.example/connect" }})
	defer s.Close()
	s.Use(map[string]upstream.Config{"shared": {URL: server, Auth: upstream.Auth{Mode: upstream.AuthOAuth}},
		"own": {URL: server, Auth: upstream.Auth{Mode: upstream.AuthOAuthUser}}})
	callers := []upstream.Caller{{Upstream: "shared", Mode: upstream.AuthOAuth},
		{Upstream: "own", Mode: upstream.AuthOAuthUser, User: "user:ann"}}
	var connections []store.Connection
	for i, c := range callers {
		redirect := []string{"http://127.0.0.1/connect/shared/callback", "https://junction.example/connect/own/callback"}[i]
		_, err := db.AddUpstreamClient(ctx, store.UpstreamClient{Upstream: c.Upstream, Issuer: issuer, RedirectURI: redirect,
			ClientID: "us", Secret: "canary-secret", AuthMethod: "client_secret_basic", SecretExpires: now.Add(30 * 24 * time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		k := store.Connection{Upstream: c.Upstream, User: []string{operator.ID, ann.ID}[i],
			Principal: []string{oauth.Operator, "user:ann"}[i], Access: "canary-access", Refresh: "canary-refresh", Issuer: issuer,
			TokenEndpoint: token, Resource: server, ClientID: "us"}
		if err := db.PutConnection(ctx, k); err != nil {
			t.Fatal(err)
		}
		stored, err := db.Connection(ctx, k.Upstream, k.Principal)
		if err != nil {
			t.Fatal(err)
		}
		connections = append(connections, stored)
	}
	notes := func() string { return s.State(ctx, "shared", "").Notes }
	if got := notes(); got != "" {
		t.Errorf("at first the state has the note %q", got)
	}
	now = now.Add(24 * 24 * time.Hour)
	if got := notes(); !strings.Contains(got, "expires on 2027-02-14") || !strings.HasSuffix(got, "; sign in again: junction login shared") {
		t.Errorf("six days before, the state has the note %q", got)
	}
	now = now.Add(7 * 24 * time.Hour)
	for i, c := range callers {
		if err := db.BreakConnection(ctx, connections[i]); err != nil {
			t.Fatal(err)
		}
		_, err := s.Apply(ctx, c)
		const reason = "the client secret of this sign-in, from as.example, expired on 2027-02-14"
		switch e := err.(type) {
		case *upstream.LackError:
			if want := reason + "; the sign-in has ended; run: junction login shared"; e.Error() != want {
				t.Errorf("the error is %q, want %q", e, want)
			}
		case *upstream.SignInError:
			if e.Reason != reason || e.URL == "" || !e.Again {
				t.Errorf("the error is %+v", e)
			}
		default:
			t.Errorf("the error is %v", err)
		}
	}
}
