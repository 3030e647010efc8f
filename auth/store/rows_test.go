package store

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"
)

func TestGrant(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpen(t, d, c.now), t.Context()
		g := mustGrant(t, s, "ann")
		want(t, "AddToken", s.AddToken(ctx, Token{Signature: "at", Kind: AccessToken, Grant: g.ID, RequestID: "r",
			Expires: c.now().Add(time.Hour)}), nil)
		a, err := s.Access(ctx, "at")
		want(t, "Access", err, nil)
		if a.User.Subject != "ann" || a.Grant.ID != g.ID || a.Token.RequestID != "r" || a.Grant.Detail != nil {
			t.Errorf("Access = %+v", a)
		}
		i, err := s.IDPSession(ctx, g.IDPSession)
		want(t, "IDPSession", err, nil)
		if i.RefreshToken != "refresh token of ann" {
			t.Errorf("RefreshToken = %q", i.RefreshToken)
		}
		_, err = s.EndIDPSession(ctx, g.IDPSession, "test")
		want(t, "EndIDPSession", err, nil)
		_, err = s.Access(ctx, "at")
		want(t, "Access after the end", err, ErrRevoked)
	})
}

func TestUsers(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpen(t, d, c.now), t.Context()
		u, err := s.PutUser(ctx, User{Issuer: "https://a.example", Subject: "1", Email: "old@example.com"})
		want(t, "PutUser", err, nil)
		c.pass(time.Hour)
		again, err := s.PutUser(ctx,
			User{Issuer: "https://a.example", Subject: "1", Email: "new@example.com", Claims: []byte(`{"groups":[]}`)})
		want(t, "PutUser", err, nil)
		if again.ID != u.ID || again.Email != "new@example.com" || !again.Created.Equal(u.Created) ||
			!again.Seen.Equal(c.now()) || string(again.Claims) != `{"groups":[]}` {
			t.Errorf("the same user again is %+v, was %+v", again, u)
		}
		other, err := s.PutUser(ctx, User{Issuer: "https://b.example", Subject: "1", Email: "new@example.com"})
		want(t, "PutUser", err, nil)
		if other.ID == u.ID {
			t.Error("a subject of another issuer is the same user")
		}
		i, err := s.AddIDPSession(ctx, IDPSession{User: u.ID})
		want(t, "AddIDPSession", err, nil)
		want(t, "AddWebSession", s.AddWebSession(ctx, "secret",
			WebSession{User: u.ID, IDPSession: i.ID, Expires: c.now().Add(time.Hour)}), nil)
		_, _, err = s.WebSession(ctx, "other secret")
		want(t, "another secret", err, ErrNotFound)
		if _, w, err := s.WebSession(ctx, "secret"); err != nil || w.ID != u.ID {
			t.Errorf("WebSession = %+v, %v", w, err)
		}
		g, err := s.AddGrant(ctx,
			Grant{User: u.ID, IDPSession: i.ID, ClientID: "client", Expires: c.now().Add(time.Hour)})
		want(t, "AddGrant", err, nil)
		shut := c.now()
		_, err = s.AddIDPSession(ctx, IDPSession{User: u.ID}) // without a grant or a browser: it is not counted
		want(t, "AddIDPSession", err, nil)
		ended, err := s.DisableUser(ctx, u.ID, "test")
		if want := (Ended{Sessions: 1, Grants: []string{g.ID}}); err != nil || !reflect.DeepEqual(ended, want) {
			t.Errorf("DisableUser = %+v, %v; want %+v", ended, err, want)
		}
		_, err = s.IDPSession(ctx, i.ID)
		want(t, "what no grant can be made of any more", err, ErrRevoked)
		if again, err := s.PutUser(ctx, User{Issuer: "https://a.example", Subject: "1"}); err != nil ||
			again.Disabled.IsZero() {
			t.Errorf("who signs in again is let in again: %+v, %v", again, err)
		}
		_, _, err = s.WebSession(ctx, "secret")
		want(t, "the session of a disabled user", err, ErrNotFound)
		c.pass(time.Minute)
		if ended, err := s.DisableUser(ctx, u.ID, "test"); err != nil || ended.Sessions != 0 || ended.Grants != nil {
			t.Errorf("DisableUser again = %+v, %v; want nothing to end", ended, err)
		}
		if again, err := s.User(ctx, u.ID); err != nil || !again.Disabled.Equal(shut) {
			t.Errorf("disabled twice it is so since %v, %v; want %v", again.Disabled, err, shut)
		}
		want(t, "EnableUser", s.EnableUser(ctx, u.ID), nil)
		if again, err := s.User(ctx, u.ID); err != nil || !again.Disabled.IsZero() {
			t.Errorf("let in again it is %+v, %v", again, err)
		}
		want(t, "EnableUser again", s.EnableUser(ctx, u.ID), ErrNotFound)
		_, err = s.DisableUser(ctx, "nobody", "test")
		want(t, "DisableUser", err, ErrNotFound)
		want(t, "AddWebSession", s.AddWebSession(ctx, "secret2",
			WebSession{User: other.ID, IDPSession: i.ID, Expires: c.now().Add(time.Hour)}), nil)
		c.pass(time.Hour)
		_, _, err = s.WebSession(ctx, "secret2")
		want(t, "a session after its time", err, ErrExpired)
	})
}

func TestRequests(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpen(t, d, c.now), t.Context()
		add := func(id string) {
			t.Helper()
			want(t, "AddAuthRequest", s.AddAuthRequest(ctx, id, "binding", AuthRequest{Purpose: "authorize",
				Detail: []byte("1"), Request: []byte("q=1"), Expires: c.now().Add(10 * time.Minute)}), nil)
		}
		add("id")
		_, err := s.AuthRequest(ctx, "id", "another browser")
		want(t, "another browser", err, ErrNotFound)
		_, err = s.ApproveAuthRequest(ctx, "id", "another browser", Approval{IDP: "idp", State: "state"})
		want(t, "approved in another browser", err, ErrNotFound)
		_, err = s.ConsumeAuthRequest(ctx, "idp", "", "binding")
		want(t, "no state", err, ErrNotFound)
		a, err := s.ApproveAuthRequest(ctx, "id", "binding",
			Approval{IDP: "idp", State: "state", Nonce: "nonce", Verifier: "canary-verifier"})
		if err != nil || string(a.Detail) != "1" || string(a.Request) != "q=1" || a.Verifier != "canary-verifier" ||
			a.Nonce != "nonce" || a.Approved.IsZero() || a.RedirectURI != "" {
			t.Errorf("ApproveAuthRequest = %+v, %v", a, err)
		}
		_, err = s.ConsumeAuthRequest(ctx, "idp", "state", "another browser")
		want(t, "consumed in another browser", err, ErrNotFound)
		_, err = s.ConsumeAuthRequest(ctx, "other idp", "state", "binding")
		want(t, "consumed by another provider", err, ErrNotFound)
		_, err = s.ConsumeApproved(ctx, "id", "binding")
		want(t, "consumed without the provider", err, ErrNotFound)
		_, err = s.ConsumeAuthRequest(ctx, "idp", "state", "binding")
		want(t, "consumed", err, nil)
		_, err = s.ConsumeAuthRequest(ctx, "idp", "state", "binding")
		want(t, "consumed again", err, ErrUsed)
		_, err = s.AuthRequest(ctx, "id", "binding")
		want(t, "looked at afterwards", err, ErrUsed)

		add("id2")
		_, err = s.ConsumeApproved(ctx, "id2", "binding")
		want(t, "consumed before it was approved", err, ErrNotFound)
		_, err = s.ApproveAuthRequest(ctx, "id2", "binding", Approval{Detail: []byte("2")})
		want(t, "approved without a provider", err, nil)
		if a, err := s.ConsumeApproved(ctx, "id2", "binding"); err != nil || string(a.Detail) != "2" {
			t.Errorf("ConsumeApproved = %+v, %v", a, err)
		}
		add("id3")
		add("id4")
		_, err = s.ApproveAuthRequest(ctx, "id4", "binding", Approval{IDP: "idp", State: "state4"})
		want(t, "approved", err, nil)
		c.pass(10 * time.Minute)
		_, err = s.AuthRequest(ctx, "id3", "binding")
		want(t, "after its time", err, ErrExpired)
		_, err = s.ApproveAuthRequest(ctx, "id3", "binding", Approval{})
		want(t, "approved after its time", err, ErrExpired)
		_, err = s.ConsumeAuthRequest(ctx, "idp", "state4", "binding")
		want(t, "consumed after its time", err, ErrExpired)
	})
}

func TestSessions(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpen(t, d, c.now), t.Context()
		ann, bob := mustGrant(t, s, "ann"), mustGrant(t, s, "bob")
		i, err := s.ClaimIDPSession(ctx, ann.IDPSession, time.Minute)
		want(t, "ClaimIDPSession", err, nil)
		_, err = s.ClaimIDPSession(ctx, ann.IDPSession, time.Minute)
		want(t, "a second claim", err, ErrUsed)
		c.pass(time.Minute)
		_, err = s.ClaimIDPSession(ctx, ann.IDPSession, time.Minute)
		want(t, "a claim after one that nobody ended", err, nil)
		i.RefreshToken = "new"
		want(t, "UpdateIDPSession", s.UpdateIDPSession(ctx, i), nil)
		if i, err := s.ClaimIDPSession(ctx, ann.IDPSession, time.Minute); err != nil || i.RefreshToken != "new" {
			t.Errorf("ClaimIDPSession = %q, %v; want the new token", i.RefreshToken, err)
		}
		want(t, "AddWebSession", s.AddWebSession(ctx, "secret",
			WebSession{User: ann.User, IDPSession: ann.IDPSession, Expires: c.now().Add(time.Hour)}), nil)
		if ended, err := s.EndIDPSession(ctx, ann.IDPSession, "idp"); err != nil ||
			!slices.Equal(ended, []string{ann.ID}) {
			t.Errorf("EndIDPSession = %q, %v; want her grant", ended, err)
		}
		_, _, err = s.WebSession(ctx, "secret")
		want(t, "her browser", err, ErrNotFound)
		_, err = s.ClaimIDPSession(ctx, ann.IDPSession, time.Minute)
		want(t, "a claim after the end", err, ErrNotFound)
		want(t, "UpdateIDPSession after the end", s.UpdateIDPSession(ctx, i), ErrNotFound)
		if i, err := s.IDPSession(ctx, ann.IDPSession); err != ErrRevoked || i.RefreshToken != "" {
			t.Errorf("IDPSession after the end = %q, %v; want no token", i.RefreshToken, err)
		}
		_, err = s.Grant(ctx, bob.ID)
		want(t, "his grant", err, nil)
	})
}

// TestEndAtProvider: a provider ends all sessions of a person, or one of them. Sessions at other providers
// and of other people stay. A token is used once, unless the transaction has failed.
func TestEndAtProvider(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c, ctx := newClock(), t.Context()
		s := mustOpen(t, d, c.now)
		u := mustGrant(t, s, "ann").User
		session := func(idp, sub, sid string) string {
			t.Helper()
			i, err := s.AddIDPSession(ctx, IDPSession{User: u, IDP: idp, Sub: sub, SID: sid})
			want(t, "AddIDPSession", err, nil)
			return i.ID
		}
		laptop, phone, bob := session("a", "ann", "1"), session("a", "ann", "2"), session("a", "bob", "3")
		elsewhere, unknown := session("b", "ann", "1"), session("a", "", "")
		for n, test := range []struct {
			sub, sid string
			ends     []string
		}{
			{"bob", "1", nil}, {"carl", "", nil}, {"", "4", nil}, {"ann", "1", []string{laptop}},
			{"ann", "", []string{phone}}, {"", "3", []string{bob}},
		} {
			l := ProviderLogout{IDP: "a", Sub: test.sub, SID: test.sid, JTI: string(rune('a' + n)), Expires: c.now().Add(time.Hour)}
			broken := errors.New("broken")
			err := s.WithTx(ctx, func(ctx context.Context) error {
				_, _, err := s.EndAtProvider(ctx, l, "test")
				want(t, "EndAtProvider", err, nil)
				return broken
			})
			want(t, "WithTx", err, broken)
			var ends []string
			ended, _, err := s.EndAtProvider(ctx, l, "test")
			want(t, "EndAtProvider", err, nil)
			for _, i := range ended {
				ends = append(ends, i.ID)
			}
			if !slices.Equal(ends, test.ends) {
				t.Errorf("%q %q ends %q, want %q", test.sub, test.sid, ends, test.ends)
			}
			_, _, err = s.EndAtProvider(ctx, l, "test")
			want(t, "the same token again", err, ErrUsed)
		}
		_, _, err := s.EndAtProvider(ctx, ProviderLogout{IDP: "a", JTI: "x", Expires: c.now().Add(time.Hour)}, "test")
		want(t, "a token of nobody", err, ErrNotFound)
		for _, id := range []string{elsewhere, unknown} {
			_, err := s.IDPSession(ctx, id)
			want(t, "another session", err, nil)
		}
	})
}

// TestSignOut signs one of two users out, while a grant is made. The other user is not affected.
func TestSignOut(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c, ctx := newClock(), t.Context()
		s := mustOpen(t, d, c.now)
		ann, bob := mustGrant(t, s, "ann"), mustGrant(t, s, "bob")
		second, err := s.AddGrant(ctx, Grant{User: ann.User, IDPSession: mustGrant(t, s, "ann").IDPSession,
			ClientID: "other", Expires: c.now().Add(time.Hour)})
		want(t, "AddGrant", err, nil)
		for secret, g := range map[string]Grant{"hers": ann, "hers too": second, "his": bob} {
			want(t, "AddWebSession", s.AddWebSession(ctx, secret,
				WebSession{User: g.User, IDPSession: g.IDPSession, Expires: c.now().Add(time.Hour)}), nil)
		}
		if sessions, err := s.IDPSessions(ctx, ann.User); err != nil || len(sessions) != 2 ||
			sessions[0].RefreshToken != "" || sessions[0].IDP != "idp" || sessions[0].OKUntil.IsZero() {
			t.Errorf("IDPSessions = %+v, %v; want two, without their tokens", sessions, err)
		}
		if browsers, err := s.WebSessions(ctx, ""); err != nil || len(browsers) != 3 {
			t.Errorf("WebSessions = %+v, %v; want three", browsers, err)
		}
		ended, err := s.SignOut(ctx, ann.User, "test")
		if err != nil || ended.Sessions != 2 || len(ended.Grants) != 3 || slices.Contains(ended.Grants, bob.ID) {
			t.Errorf("SignOut = %+v, %v; want her two sessions and three grants", ended, err)
		}
		if again, err := s.SignOut(ctx, ann.User, "test"); err != nil || again.Sessions != 0 || len(again.Grants) != 0 {
			t.Errorf("SignOut again = %+v, %v; want nothing", again, err)
		}
		_, err = s.Grant(ctx, second.ID)
		want(t, "her grant", err, ErrRevoked)
		_, err = s.Grant(ctx, bob.ID)
		want(t, "his grant", err, nil)
		left, err := s.IDPSessions(ctx, "")
		if browsers, err2 := s.WebSessions(ctx, ""); err != nil || err2 != nil || len(left) != 1 ||
			left[0].User != bob.User || len(browsers) != 1 || browsers[0].User != bob.User {
			t.Errorf("left are %+v, %v, and %+v, %v; want his alone", left, err, browsers, err2)
		}
		c.pass(time.Hour)
		if browsers, err := s.WebSessions(ctx, bob.User); err != nil || len(browsers) != 0 {
			t.Errorf("WebSessions after their end = %+v, %v", browsers, err)
		}
	})
}

// TestLateGrant ends a session while a grant of it is made.
func TestLateGrant(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s, ctx := mustOpen(t, d, nil), t.Context()
		ann := mustGrant(t, s, "ann")
		ended := make(chan []string)
		var late Grant
		err := s.WithTx(ctx, func(tx context.Context) error {
			_, err := s.IDPSession(tx, ann.IDPSession)
			want(t, "IDPSession", err, nil)
			go func() {
				grants, err := s.EndIDPSession(ctx, ann.IDPSession, "test")
				want(t, "EndIDPSession", err, nil)
				ended <- grants
			}()
			late, err = s.AddGrant(tx,
				Grant{User: ann.User, IDPSession: ann.IDPSession, ClientID: "late", Expires: time.Now().Add(time.Hour)})
			want(t, "AddGrant", err, nil)
			if d.driver == Postgres { // until the other transaction waits for this one; SQLite's waits before it begins
				waits := func() (n int) {
					want(t, "pg_locks", s.get(ctx, []any{&n},
						`SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'`), nil)
					return n
				}
				for deadline := time.Now().Add(10 * time.Second); waits() == 0 && time.Now().Before(deadline); {
					runtime.Gosched()
				}
			}
			return nil
		})
		want(t, "WithTx", err, nil)
		if grants := <-ended; len(grants) != 2 {
			t.Errorf("%q have ended, want both", grants)
		}
		_, err = s.Grant(ctx, late.ID)
		want(t, "the grant that was made meanwhile", err, ErrRevoked)
	})
}

func TestClients(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpen(t, d, c.now), t.Context()
		g := mustGrant(t, s, "ann")
		want(t, "AddCode", s.AddCode(ctx, Code{Signature: "code", Grant: g.ID, Expires: c.now().Add(time.Minute)}), nil)
		mustIssue(t, s, g, "rt0")
		want(t, "ClientBlocked", s.ClientBlocked(ctx, "client"), nil)
		block := func(reason string, ends ...string) {
			t.Helper()
			if ended, err := s.BlockClient(ctx, Block{ClientID: "client", ClientName: "A client",
				Reason: reason}); err != nil || !slices.Equal(ended, ends) {
				t.Errorf("BlockClient = %q, %v; want %q", ended, err, ends)
			}
		}
		since, another := c.now(), g
		another.ID, another.ClientID = "", "client2"
		_, err := s.AddGrant(ctx, another)
		want(t, "AddGrant", err, nil)
		block("spam", g.ID)
		c.pass(time.Minute)
		block("phishing")
		block("")
		want(t, "ClientBlocked", s.ClientBlocked(ctx, "client"), ErrRevoked)
		if ended, err := s.BlockClient(ctx, Block{Reason: "nobody in particular"}); err == nil || len(ended) > 0 {
			t.Errorf("BlockClient without a client = %q, %v", ended, err)
		}
		want(t, "ClientBlocked of another", s.ClientBlocked(ctx, "client2"), nil)
		if all, err := s.Blocks(ctx); err != nil ||
			!reflect.DeepEqual(all, []Block{{"client", "A client", "phishing", since}}) {
			t.Errorf("Blocks = %+v, %v", all, err)
		}
		_, err = s.Code(ctx, "code")
		want(t, "its code", err, ErrUsed)
		_, err = s.Token(ctx, RefreshToken, "sig-rt0")
		want(t, "its token", err, ErrRevoked)
		want(t, "UnblockClient", s.UnblockClient(ctx, "client"), nil)
		want(t, "UnblockClient again", s.UnblockClient(ctx, "client"), ErrNotFound)
		want(t, "ClientBlocked", s.ClientBlocked(ctx, "client"), nil)
		if all, err := s.Blocks(ctx); err != nil || len(all) != 0 {
			t.Errorf("Blocks = %+v, %v", all, err)
		}

		const url = "https://client.example/metadata.json"
		_, err = s.Document(ctx, url)
		want(t, "Document", err, ErrNotFound)
		want(t, "PutDocument", s.PutDocument(ctx,
			Document{URL: url, Failure: "DNS", Fetched: c.now(), FreshUntil: c.now().Add(time.Minute)}), nil)
		in := Document{URL: url, Body: []byte("{\"\x00\xff\"}"), Fetched: c.now(), FreshUntil: c.now().Add(time.Hour)}
		want(t, "PutDocument", s.PutDocument(ctx, in), nil)
		if out, err := s.Document(ctx, url); err != nil || !reflect.DeepEqual(out, in) {
			t.Errorf("Document = %+v, %v; want %+v", out, err, in)
		}
		want(t, "UseAssertion", s.UseAssertion(ctx, "a", "jti", c.now()), nil)
		want(t, "UseAssertion of another client", s.UseAssertion(ctx, "b", "jti", c.now()), nil)
	})
}

func TestGrants(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpen(t, d, c.now), t.Context()
		ann, bob := mustGrant(t, s, "ann"), mustGrant(t, s, "bob")
		c.pass(30 * time.Second)
		want(t, "TouchGrant", s.TouchGrant(ctx, ann.ID), nil)
		if g, err := s.Grant(ctx, ann.ID); err != nil || !g.Used.Equal(g.Created) {
			t.Errorf("used %v after 30 s, %v; want %v: a write a minute", g.Used, err, g.Created)
		}
		c.pass(30 * time.Second)
		want(t, "TouchGrant", s.TouchGrant(ctx, ann.ID), nil)
		ids := func(f GrantFilter) (ids []string) {
			t.Helper()
			all, err := s.Grants(ctx, f)
			want(t, "Grants", err, nil)
			for _, g := range all {
				ids = append(ids, g.ID)
			}
			return ids
		}
		if got := ids(GrantFilter{}); !slices.Equal(got, []string{ann.ID, bob.ID}) {
			t.Errorf("all = %q, want hers, used last, and his", got)
		}
		if got := ids(GrantFilter{User: bob.User, ClientID: "client", IDPSession: bob.IDPSession,
			Standing: true}); !slices.Equal(got, []string{bob.ID}) {
			t.Errorf("his = %q", got)
		}
		if stood, err := s.RevokeGrant(ctx, bob.ID, "test"); !stood || err != nil {
			t.Errorf("RevokeGrant = %v, %v", stood, err)
		}
		if stood, err := s.RevokeGrant(ctx, "none", "test"); stood || err != nil {
			t.Errorf("RevokeGrant of none = %v, %v", stood, err)
		}
		if got := ids(GrantFilter{Standing: true}); !slices.Equal(got, []string{ann.ID}) {
			t.Errorf("those that stand = %q, want hers", got)
		}
		if got, err := s.RevokeGrants(ctx, GrantFilter{}, "all"); err != nil || !slices.Equal(got, []string{ann.ID}) {
			t.Errorf("RevokeGrants = %q, %v; want hers alone", got, err)
		}
		if g, err := s.Grant(ctx, bob.ID); err != ErrRevoked || g.Reason != "test" {
			t.Errorf("the reason of the first revocation is %q, %v", g.Reason, err)
		}
	})
}

// TestListsHaveNoSecrets: a list leaves secrets sealed, which a single row has.
func TestListsHaveNoSecrets(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s, ctx := mustOpen(t, d, nil), t.Context()
		ann := mustGrant(t, s, "ann")
		want(t, "PutConnection", s.PutConnection(ctx, Connection{Upstream: "linear", User: ann.User, Principal: "p",
			Access: "canary-access", Refresh: "canary-refresh", Expires: s.now().Add(time.Hour)}), nil)
		session, err := s.IDPSession(ctx, ann.IDPSession)
		connection, err2 := s.Connection(ctx, "linear", "p")
		if err != nil || err2 != nil || session.RefreshToken == "" || connection.Access != "canary-access" ||
			connection.Refresh != "canary-refresh" {
			t.Fatalf("single rows are %+v, %v and %+v, %v", session, err, connection, err2)
		}
		sessions, err := s.IDPSessions(ctx, "")
		connections, err2 := s.Connections(ctx, ann.User)
		if err != nil || err2 != nil || len(sessions) != 1 || len(connections) != 1 ||
			sessions[0].RefreshToken+connections[0].Access+connections[0].Refresh != "" {
			t.Errorf("lists are %+v, %v and %+v, %v", sessions, err, connections, err2)
		}
	})
}
