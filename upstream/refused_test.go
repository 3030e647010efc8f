package upstream

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// gatekeeper rejects requests whose bearer token is not good, and counts the attempts to connect.
type gatekeeper struct {
	http.Handler
	status int

	mu       sync.Mutex
	good     string
	attempts int
}

func (g *gatekeeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	ok := g.good != "" && r.Header.Get("Authorization") == "Bearer "+g.good
	if !ok && r.Header.Get("Mcp-Method") == "server/discover" {
		g.attempts++
	}
	g.mu.Unlock()
	if !ok {
		w.WriteHeader(g.status)
		return
	}
	g.Handler.ServeHTTP(w, r)
}

func (g *gatekeeper) admit(token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.good = token
}

func (g *gatekeeper) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.attempts
}

// guarded starts an upstream in a bubble whose server rejects all tokens at first.
func guarded(t *testing.T, code int, c Config, o Options) (*gatekeeper, *Upstream) {
	s := upstreamtest.New(upstreamtest.Script{})
	t.Cleanup(s.Close)
	g := &gatekeeper{Handler: s.Handler(), status: code}
	_, conns := upstreamtest.NewCable(t, g)
	c.URL, o.Log = "http://server/mcp", authtest.Log(t)
	u := startOver(conns, c, o)
	t.Cleanup(u.Close)
	return g, u
}

// manyCalls makes calls of one connection, one a second.
func manyCalls(t *testing.T, u *Upstream, n int, want string, change ...func(*Call)) {
	t.Helper()
	for range n {
		r := <-begun(u, toolCall("echo", `{}`, change...))
		if got := mustFail(t, r, client.KindUnavailable); !strings.Contains(got, want) || r.took != 0 {
			t.Errorf("Call = %q after %v, want the known error with %q at once", got, r.took, want)
		}
		settle(time.Second)
	}
}

// TestCallsOfARefusedConnectionCauseNoAttempts: after 401 or 403 to an attempt to connect, calls get
// the known error, and an attempt comes at most once in 30 seconds. So a wrong password is not tried
// until the server locks the account.
func TestCallsOfARefusedConnectionCauseNoAttempts(t *testing.T) {
	for code, want := range map[int]string{401: "401 Unauthorized", 403: "403 Forbidden"} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, u := guarded(t, code, Config{Headers: map[string]string{"Authorization": "Bearer canary-wrong"}}, Options{Log: authtest.Log(t)})
				synctest.Wait()
				manyCalls(t, u, 20, want)
				if n := g.count(); n != 1 {
					t.Errorf("20 calls caused %d attempts, want the first one alone", n)
				}
				settle(refusedPause - 20*time.Second)
				mustFail(t, <-begun(u, toolCall("echo", `{}`)), client.KindUnavailable)
				if n := g.count(); n != 2 {
					t.Errorf("a call after %v: %d attempts in all, want 2", refusedPause, n)
				}
				g.admit("canary-wrong")
				manyCalls(t, u, 10, want)
				settle(refusedPause)
				mustCall(t, u, toolCall("echo", `{}`))
			})
		})
	}
}

// TestOneUsersRefusalStopsNoOther: the connections of two users are refused and tried apart.
func TestOneUsersRefusalStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := upstreamtest.New(upstreamtest.Script{Era: "legacy"})
		t.Cleanup(s.Close)
		var mu sync.Mutex
		closed, refusals := false, 0
		_, conns := upstreamtest.NewCable(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			refuse := closed && r.Header.Get("Mcp-Session-Id") == ""
			if refuse {
				refusals++
			}
			mu.Unlock()
			if refuse {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			s.Handler().ServeHTTP(w, r)
		}))
		u := startOver(conns, Config{URL: "http://server/mcp", Isolation: IsolationPrincipal, Separate: true},
			Options{Log: authtest.Log(t)})
		t.Cleanup(u.Close)
		synctest.Wait()
		as := func(user string) func(*Call) { return func(c *Call) { c.Principal = user } }
		set := func(to bool) { mu.Lock(); defer mu.Unlock(); closed = to }
		set(true)
		manyCalls(t, u, 1, "403", as("ann"))
		before := refusals
		manyCalls(t, u, 10, "403", as("ann"))
		if refusals != before {
			t.Errorf("10 more calls of one user caused %d requests", refusals-before)
		}
		set(false)
		mustCall(t, u, toolCall("echo", `{}`, as("bob")))
		manyCalls(t, u, 1, "403", as("ann"))
		settle(refusedPause)
		mustCall(t, u, toolCall("echo", `{}`, as("ann")))
	})
}

// TestMakingRoomEndsNoRefusal: with max_links, the connection of one user makes room for that of another. The
// pause after the refusal goes on all the same.
func TestMakingRoomEndsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := upstreamtest.New(upstreamtest.Script{Era: "legacy"})
		t.Cleanup(s.Close)
		var mu sync.Mutex
		closed, refusals := false, 0
		_, conns := upstreamtest.NewCable(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			refuse := closed && r.Header.Get("Mcp-Session-Id") == ""
			if refuse {
				refusals++
			}
			mu.Unlock()
			if refuse {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			s.Handler().ServeHTTP(w, r)
		}))
		u := startOver(conns, Config{URL: "http://server/mcp", Isolation: IsolationPrincipal, Separate: true, MaxLinks: 2},
			Options{Log: authtest.Log(t)})
		t.Cleanup(u.Close)
		synctest.Wait()
		as := func(user string) func(*Call) { return func(c *Call) { c.Principal = user } }
		set := func(to bool) { mu.Lock(); defer mu.Unlock(); closed = to }
		count := func() int { mu.Lock(); defer mu.Unlock(); return refusals }
		set(true)
		for range 5 { // each of the two needs the only place beside the connection that reads the catalog
			manyCalls(t, u, 1, "403", as("ann"))
			manyCalls(t, u, 1, "403", as("bob"))
		}
		if n := count(); n != 2 {
			t.Errorf("10 calls of two users caused %d requests, want those of one attempt each", n)
		}
		set(false)
		manyCalls(t, u, 1, "403", as("ann"))
		settle(refusedPause)
		mustCall(t, u, toolCall("echo", `{}`, as("ann")))
		mustCall(t, u, toolCall("echo", `{}`, as("bob")))
	})
}

// wallet is a source of tokens that a test changes.
type wallet struct {
	mu    sync.Mutex
	token string
}

func (w *wallet) Apply(context.Context, Caller, ...string) (Credential, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Credential{Token: w.token}, nil
}

// TestOtherCredentialsEndARefusal: a new sign-in is used within seconds, and without a call.
func TestOtherCredentialsEndARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wallet{token: "canary-first"}
		g, u := guarded(t, http.StatusForbidden, Config{Auth: Auth{Mode: AuthOAuth}}, Options{Credentials: w, Log: authtest.Log(t)})
		g.admit("canary-second")
		synctest.Wait()
		settle(2 * lookEvery)
		if n := g.count(); n != 1 || u.Status().State != StateBlocked {
			t.Fatalf("%d attempts, and the state is %v; want 1, blocked", n, u.Status().State)
		}
		w.mu.Lock()
		w.token = "canary-second"
		w.mu.Unlock()
		settle(lookEvery)
		if state := u.Status().State; state != StateReady {
			t.Errorf("the state after another sign-in is %v, want ready", state)
		}
	})
}

// TestOperatorEndsARefusal: Reconnect on the status page makes an attempt at once.
func TestOperatorEndsARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, u := guarded(t, http.StatusUnauthorized, Config{Headers: map[string]string{"Authorization": "Bearer canary-1"}}, Options{Log: authtest.Log(t)})
		synctest.Wait()
		g.admit("canary-1")
		u.reconnect()
		settle(time.Second)
		if state := u.Status().State; state != StateReady {
			t.Errorf("the state is %v, want ready", state)
		}
	})
}

// TestRetryAfterOfARefusalPasses: after 429 or 503 with Retry-After, no attempt comes before that time, however
// many calls there are, and whatever the body is. A time of days is bounded. Without Retry-After, a call causes
// an attempt.
func TestRetryAfterOfARefusalPasses(t *testing.T) {
	for _, tt := range []struct {
		name, after, body string
		code              int
		era               client.Era
		want              time.Duration // without attempts
	}{
		{"429", "120", "", 429, client.EraAuto, 2 * time.Minute},
		{"429 with an error of JSON-RPC", "120", `{"jsonrpc":"2.0","error":{"code":-32000,"message":"slow down"}}`, 429, client.EraAuto, 2 * time.Minute},
		{"429 to a legacy client", "120", `{"jsonrpc":"2.0","error":{"code":-32000,"message":"slow down"}}`, 429, client.EraLegacy, 2 * time.Minute},
		{"503", "120", "", 503, client.EraModern, 2 * time.Minute},
		{"days", "864000", "", 429, client.EraModern, mostRetryAfter},
		{"no time", "", "", 429, client.EraModern, 0},
		{"another status", "120", "", 500, client.EraModern, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				attempts := 0
				_, conns := upstreamtest.NewCable(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					attempts++
					mu.Unlock()
					if tt.after != "" {
						w.Header().Set("Retry-After", tt.after)
					}
					if tt.body != "" {
						w.Header().Set("Content-Type", "application/json")
					}
					w.WriteHeader(tt.code)
					io.WriteString(w, tt.body)
				}))
				u := startOver(conns, Config{URL: "http://server/mcp", Era: tt.era}, Options{Log: authtest.Log(t)})
				t.Cleanup(u.Close)
				count := func() int { mu.Lock(); defer mu.Unlock(); return attempts }
				settle(20 * time.Second)
				first := count()
				mustFail(t, <-begun(u, toolCall("echo", `{}`)), client.KindUnavailable)
				settle(time.Second)
				if n := count(); (n == first) != (tt.want > 0) {
					t.Errorf("a call caused %d requests", n-first)
				}
				if tt.want == 0 {
					return
				}
				settle(tt.want - 22*time.Second)
				if n := count(); n != first {
					t.Errorf("%d requests came before the time", n-first)
				}
				settle(2 * time.Second)
				mustFail(t, <-begun(u, toolCall("echo", `{}`)), client.KindUnavailable)
				if n := count(); n == first {
					t.Error("no request came after the time")
				}
			})
		})
	}
}

// fixedToken is a source without a sign-in: it has one token, also after the server has refused it.
type fixedToken struct{ wallet }

func (f *fixedToken) Apply(_ context.Context, c Caller, refused ...string) (Credential, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.token == "" || len(refused) > 0 {
		return Credential{}, &LackError{Upstream: c.Upstream, Again: f.token != ""} // of a mode without a sign-in
	}
	return Credential{Token: f.token}, nil
}

// TestRefusedTokenOfAModeWithoutASignIn: a source that returns its token again after a LackError does not
// send the token to the server every few seconds, or with each call. Another token is used within seconds.
func TestRefusedTokenOfAModeWithoutASignIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fixedToken{wallet{token: "canary-fixed"}}
		g, u := guarded(t, 401, Config{Auth: Auth{Mode: AuthOAuth}}, Options{Credentials: source, Log: authtest.Log(t)})
		synctest.Wait()
		for range 300 {
			mustFail(t, <-begun(u, toolCall("echo", `{}`)), client.KindUnavailable)
			settle(time.Second)
		}
		if n := g.count(); n > 11 {
			t.Errorf("the refused token was sent %d times in 5 minutes with calls, want at most once in 30 seconds", n)
		}
		settle(2 * time.Minute)
		before := g.count()
		settle(5 * time.Minute)
		if n := g.count() - before; n > 7 {
			t.Errorf("the refused token was sent %d times in 5 minutes without calls, want about once a minute", n)
		}
		g.admit("canary-other")
		source.mu.Lock()
		source.token = "canary-other"
		source.mu.Unlock()
		settle(lookEvery + time.Second)
		mustCall(t, u, toolCall("echo", `{}`))
	})
}
