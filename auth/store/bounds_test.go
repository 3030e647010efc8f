package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestOldRequestsOfANetworkGoFirst adds more requests of a network than its limit. Its own
// oldest requests are deleted, finished ones first, and approved ones count separately. Other
// networks are not affected.
func TestOldRequestsOfANetworkGoFirst(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpenUnswept(t, d, c.now), t.Context()
		s.bounds.network = 3
		add := func(network string, ids ...string) {
			t.Helper()
			for _, id := range ids {
				c.pass(time.Second)
				want(t, "AddAuthRequest", s.AddAuthRequest(ctx, id, "binding", AuthRequest{Network: network,
					Expires: c.now().Add(10 * time.Minute)}), nil)
			}
		}
		approve := func(ids ...string) {
			t.Helper()
			for _, id := range ids {
				c.pass(time.Second)
				if a, err := s.ApproveAuthRequest(ctx, id, "binding", Approval{}); err != nil || a.Network == "" {
					t.Errorf("ApproveAuthRequest(%s) = %+v, %v", id, a, err)
				}
			}
		}
		there := func(when string, wanted ...string) {
			t.Helper()
			var got []string
			for _, id := range []string{"victim", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
				if _, err := s.AuthRequest(ctx, id, "binding"); err == nil || errors.Is(err, ErrUsed) ||
					errors.Is(err, ErrExpired) {
					got = append(got, id)
				} else if !errors.Is(err, ErrNotFound) {
					t.Fatal(err)
				}
			}
			if !slices.Equal(got, wanted) {
				t.Errorf("%s there are %q, want %q", when, got, wanted)
			}
		}
		add("203.0.113.9/32", "victim")
		add("198.51.100.7/32", "a", "b", "c", "d")
		there("after four", "victim", "b", "c", "d")
		approve("b", "c")
		add("198.51.100.7/32", "e", "f", "g")
		there("with two that are approved", "victim", "b", "c", "e", "f", "g")
		approve("e", "f")
		there("with four that are approved", "victim", "c", "e", "f", "g")
		_, err := s.ConsumeApproved(ctx, "f", "binding")
		want(t, "ConsumeApproved", err, nil)
		approve("g")
		there("with one that was used", "victim", "c", "e", "g")
		add("198.51.100.7/32", "h")
		c.pass(10 * time.Minute)
		add("198.51.100.7/32", "i", "j")
		there("while one is over", "victim", "c", "e", "g", "h", "i", "j")
		add("198.51.100.7/32", "x")
		there("after one more", "victim", "c", "e", "g", "i", "j")
	})
}

// TestTotalOfAuthRequestsIsShared adds more requests of many networks than the total
// limit. Networks with the most lose theirs, so that a person with one request keeps it.
func TestTotalOfAuthRequestsIsShared(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpenUnswept(t, d, c.now), t.Context()
		s.bounds.requests, s.bounds.look = 30, 2
		add := func(network, id string) {
			t.Helper()
			want(t, "AddAuthRequest", s.AddAuthRequest(ctx, id, "binding", AuthRequest{Network: network,
				Expires: c.now().Add(10 * time.Minute)}), nil)
		}
		add("203.0.113.9/32", "victim")
		for i := range 200 {
			c.pass(time.Second)
			add(fmt.Sprintf("198.51.100.%d/32", i%10), fmt.Sprint("attack", i))
			n := 0
			want(t, "count", s.get(ctx, []any{&n},
				`SELECT count(*) FROM auth_requests`), nil)
			if n > 31 {
				t.Fatalf("after %d requests there are %d", i, n)
			}
		}
		for _, id := range []string{"victim", "attack198", "attack199"} {
			_, err := s.AuthRequest(ctx, id, "binding")
			want(t, id, err, nil)
		}
		_, err := s.AuthRequest(ctx, "attack100", "binding")
		want(t, "an old one", err, ErrNotFound)
	})
}

// TestStoredDocumentsAreBounded fills the cache of documents. Documents of allowed clients stay,
// and failed fetches are deleted first.
func TestStoredDocumentsAreBounded(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpenUnswept(t, d, c.now), t.Context()
		s.bounds.documents = 10
		put := func(url, failure string) {
			t.Helper()
			c.pass(time.Second)
			want(t, "PutDocument", s.PutDocument(ctx, Document{URL: url, Body: []byte("{}"), Failure: failure,
				Fetched: c.now(), FreshUntil: c.now()}), nil)
		}
		u, err := s.PutUser(ctx, User{Issuer: "https://idp.example", Subject: "ann"})
		want(t, "PutUser", err, nil)
		i, err := s.AddIDPSession(ctx, IDPSession{User: u.ID, IDP: "idp"})
		want(t, "AddIDPSession", err, nil)
		_, err = s.AddGrant(ctx, Grant{User: u.ID, IDPSession: i.ID, ClientID: "https://allowed.example/c",
			Expires: c.now().Add(time.Hour)})
		want(t, "AddGrant", err, nil)
		put("https://allowed.example/c", "")
		put("https://known.example/c", "")
		for i := range 50 {
			put(fmt.Sprintf("https://evil.example/%d", i), "the name could not be resolved")
			n := 0
			want(t, "count", s.get(ctx, []any{&n},
				`SELECT count(*) FROM cimd_cache`), nil)
			if n > 10 {
				t.Fatalf("there are %d", n)
			}
		}
		_, err = s.Document(ctx, "https://known.example/c")
		want(t, "one that was read", err, nil)
		for i := range 50 {
			put(fmt.Sprintf("https://evil.example/%d", i), "")
		}
		_, err = s.Document(ctx, "https://known.example/c")
		want(t, "one that was read, after fifty others", err, ErrNotFound)
		_, err = s.Document(ctx, "https://allowed.example/c")
		want(t, "one that a user has allowed", err, nil)
	})
}

// TestEventsOfStrangersAreKeptAMonth: audit rows of unauthenticated requests are kept for a month, others
// for longer.
func TestEventsOfStrangersAreKeptAMonth(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpenUnswept(t, d, c.now), t.Context()
		for _, event := range append(Unproven(), "signed_in", "grant_revoked") {
			want(t, "Audit", s.Audit(ctx, Event{Event: event}), nil)
		}
		want(t, "Audit", s.Audit(ctx, Event{Event: "sign_in_refused", Principal: "who is disabled"}), nil)
		for _, row := range []struct{ days, events int }{{29, len(Unproven()) + 3}, {2, 3}, {368, 3}, {2, 0}} {
			c.pass(time.Duration(row.days) * 24 * time.Hour)
			_, err := s.sweep(ctx)
			want(t, "sweep", err, nil)
			if events, err := s.Events(ctx, 10); err != nil || len(events) != row.events {
				t.Errorf("after %d days more there are %d events, %v; want %d", row.days, len(events), err, row.events)
			}
		}
	})
}

// TestClientIsAllowedByAGrant: a client is known from the first grant on, also after its end.
func TestClientIsAllowedByAGrant(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpenUnswept(t, d, c.now), t.Context()
		u, err := s.PutUser(ctx, User{Issuer: "https://idp.example", Subject: "ann"})
		want(t, "PutUser", err, nil)
		i, err := s.AddIDPSession(ctx, IDPSession{User: u.ID, IDP: "idp"})
		want(t, "AddIDPSession", err, nil)
		add := func(client, host string) string {
			t.Helper()
			g, err := s.AddGrant(ctx, Grant{User: u.ID, IDPSession: i.ID, ClientID: client, RedirectHost: host,
				Expires: c.now().Add(time.Hour)})
			want(t, "AddGrant", err, nil)
			return g.ID
		}
		known := func(client string, wanted bool) {
			t.Helper()
			if got, err := s.ClientAllowed(ctx, client); err != nil || got != wanted {
				t.Errorf("a user has allowed %s: %v, %v", client, got, err)
			}
		}
		known("a", false)
		local := add("a", "localhost:1234")
		add("b", "a.example")
		known("a", true)
		known("b", true)
		known("c", false)
		_, err = s.RevokeGrant(ctx, local, "test")
		want(t, "RevokeGrant", err, nil)
		known("a", true)
		c.pass(time.Hour)
		known("b", true)
	})
}
