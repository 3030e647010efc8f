package store

import (
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/auth/seal"
)

// mustConnect stores a user's connection to linear; its tokens contain the user's name.
func mustConnect(t testing.TB, s *Store, subject string) Connection {
	t.Helper()
	g := mustGrant(t, s, subject)
	authtest.Secret("an access token of an upstream", "access of "+subject)
	authtest.Secret("a refresh token of an upstream", "refresh of "+subject)
	want(t, "PutConnection", s.PutConnection(t.Context(),
		Connection{Upstream: "linear", User: g.User, Principal: "user:" + subject, Access: "access of " + subject,
			Refresh: "refresh of " + subject, Issuer: "https://as.example", Resource: "https://linear.example/mcp",
			ClientID: "us", Expires: s.now().Add(time.Hour)}), nil)
	c, err := s.Connection(t.Context(), "linear", "user:"+subject)
	want(t, "Connection", err, nil)
	if c.Access != "access of "+subject || c.Refresh != "refresh of "+subject || c.Broken ||
		!c.Expires.Equal(s.now().Add(time.Hour)) {
		t.Fatalf("Connection = %+v", c)
	}
	return c
}

func TestConnections(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		clock := newClock()
		stores, ctx := replicas(t, d, clock.now), t.Context()
		s, other := stores[0], stores[1]
		ann := mustConnect(t, s, "ann")
		bob := mustConnect(t, s, "bob")
		_, err := s.Connection(ctx, "jira", "user:ann")
		want(t, "another upstream's", err, ErrNotFound)

		// One of many callers renews, and the others get ErrUsed, also on another replica, until
		// the claim expires.
		if n := parallel(t, 20, ErrUsed,
			func(i int) error { return stores[i%2].ClaimConnection(ctx, ann, 15*time.Second) }); n != 1 {
			t.Errorf("%d claim the tokens at once, want 1", n)
		}
		clock.pass(20 * time.Second)
		want(t, "a claim that is over", other.ClaimConnection(ctx, ann, 15*time.Second), nil)
		want(t, "ReleaseConnection", other.ReleaseConnection(ctx, ann), nil)
		want(t, "a claim that was given back", s.ClaimConnection(ctx, ann, 15*time.Second), nil)
		ann.Access, ann.Refresh = "second", "second refresh"
		want(t, "RenewConnection", s.RenewConnection(ctx, ann), nil)
		want(t, "in place of tokens that are not there any more", s.RenewConnection(ctx, ann), ErrNotFound)
		want(t, "the same", other.ClaimConnection(ctx, ann, 15*time.Second), ErrNotFound)
		want(t, "BreakConnection of what is renewed", s.BreakConnection(ctx, ann), nil)
		if c, err := other.Connection(ctx, "linear", "user:ann"); err != nil || c.Access != "second" ||
			c.Refresh != "second refresh" || c.Broken {
			t.Errorf("Connection = %+v, %v; want what it was renewed to", c, err)
		} else {
			want(t, "BreakConnection", s.BreakConnection(ctx, c), nil)
		}
		if c, err := s.Connection(ctx, "linear", "user:ann"); err != nil || !c.Broken || c.Access != "" ||
			c.Refresh != "" {
			t.Errorf("Connection = %+v, %v; want it broken, without tokens", c, err)
		}
		if all, err := s.Connections(ctx, ann.User); err != nil || len(all) != 1 || !all[0].Broken ||
			all[0].Upstream != "linear" {
			t.Errorf("Connections = %+v, %v", all, err)
		}

		// A user who reconnects or disconnects during a renewal keeps that result.
		old, err := s.Connection(ctx, "linear", "user:bob")
		want(t, "Connection", err, nil)
		mustPut := bob
		mustPut.Access = "bob's second account"
		want(t, "PutConnection", s.PutConnection(ctx, mustPut), nil)
		old.Access = "late"
		want(t, "RenewConnection", s.RenewConnection(ctx, old), ErrNotFound)
		if c, err := s.DeleteConnection(ctx, "linear", bob.User); err != nil || c.Access != "bob's second account" {
			t.Errorf("DeleteConnection = %+v, %v; want the new tokens", c, err)
		}
		_, err = s.DeleteConnection(ctx, "linear", bob.User)
		want(t, "DeleteConnection again", err, ErrNotFound)

		// A disabled user has no connections, also after being enabled again.
		cid := mustConnect(t, s, "cid")
		_, err = s.DisableUser(ctx, cid.User, "test")
		want(t, "DisableUser", err, nil)
		want(t, "what an upstream answers them after that", s.PutConnection(ctx, cid), ErrRevoked)
		want(t, "EnableUser", s.EnableUser(ctx, cid.User), nil)
		_, err = s.Connection(ctx, "linear", "user:cid")
		want(t, "a connection of somebody who was shut out", err, ErrNotFound)
	})
}

func TestSwappedConnectionTokensAreRejected(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s, ctx := mustOpen(t, d, newClock().now), t.Context()
		ann, bob := mustConnect(t, s, "ann"), mustConnect(t, s, "bob")
		swap := func(from, column string) {
			_, err := s.exec(ctx, `UPDATE upstream_tokens SET `+column+
				` = (SELECT access_enc FROM upstream_tokens WHERE id = $1) WHERE id = $2`, from, bob.row())
			want(t, "UPDATE", err, nil)
			c, err := s.Connection(ctx, "linear", "user:bob")
			want(t, "a token that was moved", err, seal.ErrInvalid)
			if strings.Contains(c.Access+c.Refresh, "ann") {
				t.Errorf("it opened: %+v", c)
			}
			want(t, "PutConnection", s.PutConnection(ctx, bob), nil)
		}
		swap(ann.row(), "access_enc")
		swap(bob.row(), "refresh_enc")
		elsewhere := ann
		elsewhere.Upstream, elsewhere.Access = "jira", "access of ann"
		want(t, "PutConnection", s.PutConnection(ctx, elsewhere), nil)
		_, err := s.exec(ctx,
			`UPDATE upstream_tokens SET access_enc = (SELECT access_enc FROM upstream_tokens WHERE id = $1) WHERE id = $2`, ann.row(), elsewhere.row())
		want(t, "UPDATE", err, nil)
		_, err = s.Connection(ctx, "jira", "user:ann")
		want(t, "her own token of another upstream", err, seal.ErrInvalid)
	})
}

func TestUpstreamClientIsRegisteredOnce(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s, ctx := mustOpen(t, d, nil), t.Context()
		c := UpstreamClient{Upstream: "linear", Issuer: "https://as.example", RedirectURI: "https://us/cb",
			ClientID: "one", Secret: "canary-secret", AuthMethod: "client_secret_basic"}
		got, err := s.AddUpstreamClient(ctx, c)
		if c.Created = got.Created; err != nil || got != c || c.Created.IsZero() {
			t.Errorf("AddUpstreamClient = %+v, %v", got, err)
		}
		second := c
		second.ClientID, second.Secret = "two", ""
		if got, err = s.AddUpstreamClient(ctx, second); err != nil || got != c {
			t.Errorf("a second registration = %+v, %v; want the first", got, err)
		}
		_, err = s.UpstreamClient(ctx, "linear", "https://other.example", "https://us/cb")
		want(t, "at another issuer", err, ErrNotFound)
		want(t, "DropUpstreamClient of another id", s.DropUpstreamClient(ctx, second), nil)
		_, err = s.UpstreamClient(ctx, "linear", "https://as.example", "https://us/cb")
		want(t, "it stays", err, nil)
		want(t, "DropUpstreamClient", s.DropUpstreamClient(ctx, c), nil)
		_, err = s.UpstreamClient(ctx, "linear", "https://as.example", "https://us/cb")
		want(t, "it is gone", err, ErrNotFound)
	})
}

// TestSupersededClientIsKept: a registration that replaces another one keeps it under another issuer, in
// place of an earlier one. Of two processes that replace the same registration, the first one wins.
func TestSupersededClientIsKept(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s, ctx := mustOpen(t, d, nil), t.Context()
		register := func(id string) UpstreamClient {
			return UpstreamClient{Upstream: "linear", Issuer: "https://as.example", RedirectURI: "https://us/cb", ClientID: id,
				Secret: "canary-secret-of-" + id, AuthMethod: "client_secret_basic", Created: time.Unix(1_800_000_000, 0).UTC(),
				SecretExpires: time.Unix(1_900_000_000, 0).UTC()}
		}
		one, err := s.AddUpstreamClient(ctx, register("one"))
		if err != nil || one != register("one") {
			t.Fatalf("AddUpstreamClient = %+v, %v", one, err)
		}
		supersede := func(old UpstreamClient, next string) UpstreamClient {
			t.Helper()
			kept := old
			kept.Issuer += " earlier"
			stored, err := s.SupersedeUpstreamClient(ctx, old, kept, register(next))
			want(t, "SupersedeUpstreamClient", err, nil)
			return stored
		}
		two := supersede(one, "two")
		if other := supersede(one, "other"); two != register("two") || other != two {
			t.Errorf("the registrations are %+v and %+v, want the first", two, other)
		}
		for _, kept := range []UpstreamClient{one, two} {
			got, err := s.UpstreamClient(ctx, "linear", "https://as.example earlier", "https://us/cb")
			if err != nil || got.ClientID != kept.ClientID || got.Secret != kept.Secret || got.SecretExpires != kept.SecretExpires {
				t.Errorf("the registration before is %+v, %v, want %s", got, err, kept.ClientID)
			}
			supersede(two, "three")
		}
		if n := problems(t, d); n > 0 {
			t.Errorf("Check finds %d problems", n)
		}
	})
}
