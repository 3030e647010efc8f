package store

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"junction/auth/authtest"
)

// mustOpenCounted opens a store that counts its statements and commits.
func mustOpenCounted(t *testing.T, d database) (s *Store, statements *atomic.Int64) {
	t.Helper()
	statements = new(atomic.Int64)
	s, err := open(t.Context(), Config{Driver: d.driver, DSN: d.dsn, Keys: d.keys, Log: authtest.Log(t),
		Took: func(string, time.Duration, bool) { statements.Add(1) }})
	want(t, "open", err, nil)
	t.Cleanup(func() { want(t, "Close", s.Close(), nil) })
	return s, statements
}

// mustGrants stores a user with a session at a provider and some grants of one client, each with two
// tokens and a code. name is the user, the client and the session, and begins the names of the tokens.
func mustGrants(t *testing.T, s *Store, name string, n int) (grants []Grant) {
	t.Helper()
	ctx, hour := t.Context(), s.now().Add(time.Hour)
	u, err := s.PutUser(ctx, User{Issuer: "https://idp.example", Subject: name})
	want(t, "PutUser", err, nil)
	i, err := s.AddIDPSession(ctx, IDPSession{User: u.ID, IDP: "idp", SID: name, Checked: s.now(), OKUntil: hour})
	want(t, "AddIDPSession", err, nil)
	for k := range n {
		g, err := s.AddGrant(ctx, Grant{User: u.ID, IDPSession: i.ID, ClientID: name, Expires: hour})
		want(t, "AddGrant", err, nil)
		mustIssue(t, s, g, fmt.Sprint(name, k))
		want(t, "AddCode", s.AddCode(ctx, Code{Signature: fmt.Sprint(name, k), Grant: g.ID, Expires: hour}), nil)
		grants = append(grants, g)
	}
	return grants
}

// TestManyGrantsEndInAsManyStatementsAsOne ends the grants of users who have one and ten, in each
// way. The number of statements must not grow: a transaction of Postgres has a time limit.
func TestManyGrantsEndInAsManyStatementsAsOne(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s, statements := mustOpenCounted(t, d)
		ctx := t.Context()
		for way, end := range map[string]func(g Grant) (ended int, err error){
			"disable": func(g Grant) (int, error) {
				ended, err := s.DisableUser(ctx, g.User, "test")
				return len(ended.Grants), err
			},
			"sign out": func(g Grant) (int, error) {
				ended, err := s.SignOut(ctx, g.User, "test")
				return len(ended.Grants), err
			},
			"block": func(g Grant) (int, error) {
				ended, err := s.BlockClient(ctx, Block{ClientID: g.ClientID})
				return len(ended), err
			},
			"end at the provider": func(g Grant) (int, error) {
				_, ended, err := s.EndAtProvider(ctx,
					ProviderLogout{IDP: "idp", SID: g.ClientID, JTI: g.ID, Expires: g.Expires}, "test")
				return len(ended), err
			},
		} {
			t.Run(way, func(t *testing.T) {
				needed := map[int]int64{}
				for _, n := range []int{1, 10} {
					name := fmt.Sprint(way, n, "-")
					grants := mustGrants(t, s, name, n)
					before := statements.Load()
					ended, err := end(grants[0])
					if needed[n] = statements.Load() - before; err != nil || ended != n {
						t.Errorf("%d of %d grants have ended, %v", ended, n, err)
					}
					for k, g := range grants {
						_, err := s.Grant(ctx, g.ID)
						want(t, "the grant", err, ErrRevoked)
						_, err = s.Access(ctx, fmt.Sprint("sig-at-", name, k))
						want(t, "the access token", err, ErrRevoked)
						_, err = s.Token(ctx, RefreshToken, fmt.Sprint("sig-", name, k))
						want(t, "the refresh token", err, ErrRevoked)
						_, err = s.Code(ctx, fmt.Sprint(name, k))
						want(t, "the code", err, ErrUsed)
					}
					if allowed, err := s.ClientAllowed(ctx, name); !allowed || err != nil {
						t.Errorf("ClientAllowed = %v, %v; the codes of ended grants must be right", allowed, err)
					}
				}
				if needed[1] != needed[10] {
					t.Errorf("one grant needs %d statements, and ten grants need %d", needed[1], needed[10])
				}
			})
		}
		if n := changed(t, s); n > 0 {
			t.Errorf("Check finds %d problems", n)
		}
	})
}

// TestManySessionsEndInAsManyStatementsAsOne: a user has one session at the provider for each browser and
// month. The sessions end, with their browsers and grants, in as many statements as one session.
func TestManySessionsEndInAsManyStatementsAsOne(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s, statements := mustOpenCounted(t, d)
		ctx, hour := t.Context(), s.now().Add(time.Hour)
		bob := mustGrants(t, s, "bob", 1)[0]
		for way, end := range map[string]func(user, name string) (sessions, grants int, err error){
			"disable": func(user, _ string) (int, int, error) {
				ended, err := s.DisableUser(ctx, user, "test")
				return ended.Sessions, len(ended.Grants), err
			},
			"sign out": func(user, _ string) (int, int, error) {
				ended, err := s.SignOut(ctx, user, "test")
				return ended.Sessions, len(ended.Grants), err
			},
			"end at the provider": func(_, name string) (int, int, error) {
				sessions, ended, err := s.EndAtProvider(ctx,
					ProviderLogout{IDP: "idp", Sub: name, JTI: name, Expires: hour}, "test")
				return len(sessions), len(ended), err
			},
		} {
			t.Run(way, func(t *testing.T) {
				needed := map[int]int64{}
				for _, n := range []int{1, 10} {
					name := fmt.Sprint(way, n)
					u, err := s.PutUser(ctx, User{Issuer: "https://idp.example", Subject: name})
					want(t, "PutUser", err, nil)
					var sessions, grants []string
					for k := range n {
						i, err := s.AddIDPSession(ctx, IDPSession{User: u.ID, IDP: "idp", Sub: name, OKUntil: hour})
						want(t, "AddIDPSession", err, nil)
						want(t, "AddWebSession", s.AddWebSession(ctx, fmt.Sprint(name, k),
							WebSession{User: u.ID, IDPSession: i.ID, Expires: hour}), nil)
						g, err := s.AddGrant(ctx, Grant{User: u.ID, IDPSession: i.ID, ClientID: "client", Expires: hour})
						want(t, "AddGrant", err, nil)
						sessions, grants = append(sessions, i.ID), append(grants, g.ID)
					}
					before := statements.Load()
					ended, over, err := end(u.ID, name)
					if needed[n] = statements.Load() - before; err != nil || ended != n || over != n {
						t.Errorf("of %d sessions, %d and %d grants have ended, %v", n, ended, over, err)
					}
					for k := range n {
						_, err = s.IDPSession(ctx, sessions[k])
						want(t, "the session", err, ErrRevoked)
						_, err = s.Grant(ctx, grants[k])
						want(t, "the grant", err, ErrRevoked)
						_, _, err = s.WebSession(ctx, fmt.Sprint(name, k))
						want(t, "the browser", err, ErrNotFound)
					}
				}
				if needed[1] != needed[10] {
					t.Errorf("one session needs %d statements, and ten sessions need %d", needed[1], needed[10])
				}
			})
		}
		_, err := s.IDPSession(ctx, bob.IDPSession)
		want(t, "the session of another user", err, nil)
		_, err = s.Grant(ctx, bob.ID)
		want(t, "the grant of another user", err, nil)
		if n := changed(t, s); n > 0 {
			t.Errorf("Check finds %d problems", n)
		}
	})
}

// TestTheGrantsUnusedForLongestEnd adds two grants to those of a user who has as many as may stand. The
// two that were not used again end.
func TestTheGrantsUnusedForLongestEnd(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpenUnswept(t, d, c.now), t.Context()
		grants, bob := mustGrants(t, s, "ann", MaxGrants), mustGrants(t, s, "bob", 1)[0]
		ann := grants[0].User
		ended, err := s.RevokeUnused(ctx, ann, grants[0].ID, "test")
		if err != nil || len(ended) != 0 {
			t.Errorf("within the limit, %q have ended, %v", ended, err)
		}
		c.pass(2 * time.Minute)
		for _, g := range grants[2:] {
			want(t, "TouchGrant", s.TouchGrant(ctx, g.ID), nil)
		}
		newest := grants[2]
		for range 2 {
			newest.ID = ""
			newest, err = s.AddGrant(ctx, newest)
			want(t, "AddGrant", err, nil)
		}
		ended, err = s.RevokeUnused(ctx, ann, newest.ID, "test")
		unused := []string{grants[0].ID, grants[1].ID}
		slices.Sort(unused)
		if err != nil || !slices.Equal(ended, unused) {
			t.Errorf("%q have ended, %v; want %q", ended, err, unused)
		}
		_, err = s.Grant(ctx, bob.ID)
		want(t, "the grant of another user", err, nil)
	})
}
