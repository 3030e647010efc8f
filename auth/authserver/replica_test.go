package authserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"junction/auth"
	"junction/auth/authtest"
	"junction/auth/seal"
	"junction/auth/store"
)

// second starts another replica of the stand: with the same URL and store, and a cache of its own.
func (s *stand) second(t *testing.T, o Options) *Server {
	t.Helper()
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// onPostgres returns a store in a new schema of Postgres.
func onPostgres(t *testing.T) *store.Store {
	t.Helper()
	ring, err := seal.ParseRing("k1:" + base64.StdEncoding.EncodeToString(seal.NewSecret()))
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(),
		store.Config{Driver: store.Postgres, DSN: authtest.Schema(t), Keys: ring, Log: authtest.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestRevokedGrantsAreFoundAtOnce: a user is disabled in the database, as a command does. A replica that is told
// so accepts nothing of the user from then on, and calls its streams to end. Another user stays signed in.
func TestRevokedGrantsAreFoundAtOnce(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) *store.Store{"sqlite": func(*testing.T) *store.Store { return nil },
		"postgres": onPostgres} {
		t.Run(name, func(t *testing.T) {
			var told atomic.Int64
			s := mustStand(t, func(o *Options) {
				if other := open(t); other != nil {
					o.Store = other
				}
				o.Ended = func() { told.Add(1) }
			})
			s.clock.stop() // known tokens stay known
			s.store = s.Server.store
			_, _, anns := s.signInAs(t, "ann", "s1")
			_, _, bens := s.signInAs(t, "ben", "s2")
			verify := func(tokens map[string]any) (*auth.Principal, error) {
				return s.Verify(t.Context(), fmt.Sprint(tokens["access_token"]), here)
			}
			ann, err := verify(anns)
			ben, other := verify(bens)
			if err != nil || other != nil {
				t.Fatal(err, other)
			}
			users, err := s.store.Users(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range users {
				if u.Subject == "ann" {
					if _, err := s.store.DisableUser(t.Context(), u.ID, "test"); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := s.FindRevoked(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := verify(anns); s.Still(ann) || !strings.Contains(fmt.Sprint(err), "revoked") {
				t.Errorf("ann is still there: %t, %v", s.Still(ann), err)
			}
			if _, err := verify(bens); !s.Still(ben) || err != nil {
				t.Errorf("ben is still there: %t, %v", s.Still(ben), err)
			}
			if n := told.Load(); n != 1 {
				t.Errorf("open streams were looked at %d times, want once", n)
			}
			if err := s.store.Close(); err != nil {
				t.Fatal(err)
			}
			if err := s.FindRevoked(t.Context()); err == nil {
				t.Error("a store that does not answer is no error")
			}
		})
	}
}

// TestSignInOverTwoReplicas spreads the requests of one sign-in over two replicas.
func TestSignInOverTwoReplicas(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) *store.Store{"sqlite": func(*testing.T) *store.Store { return nil }, "postgres": onPostgres} {
		t.Run(name, func(t *testing.T) {
			var options Options
			key, keys := mustClientKey(t)
			s, n := mustNet(t, func(o *Options) {
				if other := open(t); other != nil {
					o.Store = other
				}
				options = *o
			})
			s.store = options.Store
			one, other := s.Server, s.second(t, options)
			n.put(documentAt, describe(`,"token_endpoint_auth_method":"private_key_jwt","jwks":`+keys), nil)
			var turn atomic.Int64
			s.http.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if turn.Add(1)%2 == 0 {
					one.ServeHTTP(w, r)
					return
				}
				other.ServeHTTP(w, r)
			})
			a, b := s.mustApp(t), newBrowser(t)
			for range 2 { // so that each request comes to each
				m := a.mustSignIn(t, b)
				_, next := a.refresh(t, m["refresh_token"])
				if status, again := a.refresh(t, m["refresh_token"]); status != 200 ||
					again["access_token"] != next["access_token"] {
					t.Errorf("the same token at the other replica: %d %v, not %v", status, again, next)
				}
				token, _ := next["access_token"].(string)
				for _, f := range []*Server{one, other} {
					if _, err := f.Verify(t.Context(), token, here); err != nil {
						t.Error(err)
					}
				}
				if status, body := s.post(t, "/oauth/revoke", "application/x-www-form-urlencoded",
					url.Values{"token": {token}, "client_id": {a.id}}.Encode()); status != 200 {
					t.Error(status, body)
				}
				end := time.Now().Add(time.Minute)
				for _, f := range []*Server{one, other} {
					err := error(nil)
					for {
						if _, err = f.Verify(context.Background(), token, here); err != nil || time.Now().After(end) {
							break
						}
						s.clock.forward(time.Second) // what is believed for five seconds is over soon
					}
					if !errors.Is(err, auth.ErrInvalidToken) || !strings.Contains(err.Error(), "revoked") {
						t.Errorf("after the revocation: %v", err)
					}
				}
				turn.Add(1)
			}

			// 20 concurrent redemptions at both replicas give tokens once.
			code, redeemed := a.mustCode(t, b), make(chan int, 20)
			for range cap(redeemed) {
				go func() {
					status, _ := a.redeem(t, code)
					redeemed <- status
				}()
			}
			counts := map[int]int{}
			for range cap(redeemed) {
				counts[<-redeemed]++
			}
			if counts[200] != 1 || counts[400] != 19 {
				t.Errorf("one code at both replicas: %v", counts)
			}

			// 50 concurrent refreshes give one pair; once its successor was used, the
			// first token ends the grant at both.
			m := a.mustSignIn(t, b)
			pairs := make(chan string, 50)
			for range cap(pairs) {
				go func() {
					status, m := a.refresh(t, m["refresh_token"])
					pairs <- fmt.Sprint(status, m["access_token"], " ", m["refresh_token"])
				}()
			}
			first := <-pairs
			for range cap(pairs) - 1 {
				if next := <-pairs; next != first || !strings.HasPrefix(next, "200") {
					t.Errorf("one refresh token at both replicas gets %s and %s", first, next)
				}
			}
			_, second, _ := strings.Cut(first, " ")
			status, third := a.refresh(t, second)
			if status != 200 {
				t.Fatal(status, third)
			}
			turn.Add(1)
			if status, again := a.refresh(t, m["refresh_token"]); status != 400 || again["error"] != "invalid_grant" {
				t.Errorf("the first token at the other replica: %d %v", status, again)
			}
			turn.Add(1)
			if status, again := a.refresh(t, third["refresh_token"]); status != 400 ||
				again["error"] != "invalid_grant" {
				t.Errorf("the last token after that: %d %v", status, again)
			}
			s.clock.forward(10 * time.Second)
			for _, f := range []*Server{one, other} {
				if _, err := f.Verify(t.Context(), fmt.Sprint(third["access_token"]), here); !errors.Is(err,
					auth.ErrInvalidToken) {
					t.Errorf("its access token: %v", err)
				}
			}

			// An assertion that was used at one replica is rejected at the other.
			signs := app{s, documentAt, a.verifier, a.redirect}
			signs.mustCode(t, b) // assertions of a client that no user has allowed are not looked at
			once := s.mustAssert(t, "once", nil, jose.ES256, key)
			for i, want := range []int{400, 401, 401} { // nobody's token, and after that nobody's assertion
				if status, m := signs.refresh(t, "jct_rt_x.y", "client_assertion_type", assertionType,
					"client_assertion", once); status != want {
					t.Errorf("an assertion for the %dth time: %d %v", i+1, status, m)
				}
			}
		})
	}
}

// BenchmarkVerify measures the check of a token on the path of a call.
func BenchmarkVerify(b *testing.B) {
	s := mustStand(b, nil)
	grant := store.Grant{ClientID: "app", Resource: s.url + "/mcp", Scope: "mcp", Expires: time.Now().Add(time.Hour)}
	user, err := s.store.PutUser(b.Context(), store.User{Issuer: s.idp.URL, Subject: "ann"})
	if err != nil {
		b.Fatal(err)
	}
	session, err := s.store.AddIDPSession(b.Context(),
		store.IDPSession{User: user.ID, IDP: "sso", OKUntil: grant.Expires})
	if err != nil {
		b.Fatal(err)
	}
	grant.User, grant.IDPSession = user.ID, session.ID
	grant, err = s.store.AddGrant(b.Context(), grant)
	if err != nil {
		b.Fatal(err)
	}
	token, signature := s.minter.mint(accessPrefix, "")
	err = s.store.AddToken(b.Context(), store.Token{Signature: signature, Kind: store.AccessToken, Grant: grant.ID,
		RequestID: grant.ID, Request: []byte("{}"), Expires: grant.Expires})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Verify(b.Context(), token, here); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAProcessWhoseClockIsAMinuteOff: of two processes over one database, one has a clock that is a minute ahead or
// behind. The requests of a sign-in come to both in turn. Both accept its tokens, give new ones, and find out when
// it ends.
func TestAProcessWhoseClockIsAMinuteOff(t *testing.T) {
	for name, off := range map[string]time.Duration{"ahead": time.Minute, "behind": -time.Minute} {
		t.Run(name, func(t *testing.T) {
			dsn := authtest.Schema(t)
			var options Options
			open := func(o Options) *store.Store {
				db, err := store.Open(t.Context(), store.Config{Driver: store.Postgres, DSN: dsn, Keys: o.Keys, Now: o.Now,
					Log: authtest.Log(t)})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { db.Close() })
				return db
			}
			s := mustStand(t, func(o *Options) {
				o.Store = open(*o)
				options = *o
			})
			options.Now = func() time.Time { return s.clock.now().Add(off) }
			options.Store = open(options)
			both := []*Server{s.Server, s.second(t, options)}
			var turn atomic.Int64
			s.http.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				both[turn.Add(1)%2].ServeHTTP(w, r)
			})
			a, b := s.mustApp(t), newBrowser(t)
			for range 2 { // so that each request comes to each
				m := a.mustSignIn(t, b)
				for range 3 {
					status, next := a.refresh(t, m["refresh_token"])
					if status != http.StatusOK {
						t.Fatal(status, next)
					}
					for i, f := range both {
						if _, err := f.Verify(t.Context(), fmt.Sprint(next["access_token"]), here); err != nil {
							t.Errorf("the process %d: %v", i, err)
						}
					}
					m = next
				}
				if status, body := s.post(t, "/oauth/revoke", "application/x-www-form-urlencoded",
					url.Values{"token": {fmt.Sprint(m["refresh_token"])}, "client_id": {a.id}}.Encode()); status != http.StatusOK {
					t.Fatal(status, body)
				}
				for i, f := range both {
					if err := f.FindRevoked(t.Context()); err != nil {
						t.Fatal(err)
					}
					if _, err := f.Verify(t.Context(), fmt.Sprint(m["access_token"]), here); !errors.Is(err, auth.ErrInvalidToken) {
						t.Errorf("the process %d accepts a revoked token: %v", i, err)
					}
				}
				turn.Add(1)
			}
		})
	}
}
