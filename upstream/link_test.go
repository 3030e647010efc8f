package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/pace"
	"junction/upstream/transport"
	"junction/upstream/upstreamtest"
)

var legacyScript = upstreamtest.Script{Era: "legacy"}

func status(method string, code, times int) upstreamtest.Rule {
	return upstreamtest.Rule{Method: method, Status: code, Times: times, Body: http.StatusText(code)}
}

// The rules of these tests count both handshakes of an attempt.

func TestLinkStates(t *testing.T) {
	for _, tt := range []struct {
		name   string
		script upstreamtest.Script
		config Config
		do     func(r *rig)
		want   string // a pattern of all that the listener heard
	}{
		{"ready", legacyScript, Config{}, func(r *rig) {}, "ready"},
		{"ready, modern", upstreamtest.Script{Era: "modern"}, Config{}, func(r *rig) {}, "ready"},
		{"failed, then ready", upstreamtest.Script{Rules: []upstreamtest.Rule{status("*", 500, 2)}}, Config{}, func(r *rig) {}, "retrying starting ready"},
		{"listing failed, then ready", upstreamtest.Script{Rules: []upstreamtest.Rule{status("tools/list", 500, 1)}}, Config{}, func(r *rig) {},
			"retrying starting ready"},
		{"blocked by 401, then ready", upstreamtest.Script{Rules: []upstreamtest.Rule{status("*", 401, 2)}}, Config{}, func(r *rig) {}, "blocked starting ready"},
		{"blocked by 403, then retrying, then ready", upstreamtest.Script{Rules: []upstreamtest.Rule{status("*", 403, 2), status("*", 502, 2)}}, Config{},
			func(r *rig) {}, "blocked starting retrying starting ready"},
		{"lost and found", legacyScript, Config{}, func(r *rig) { r.server.EndSessions() }, "ready retrying starting ready"},
		// the call and the end of the conn report the loss at once; the first report counts
		{"a call finds it lost", upstreamtest.Script{Era: "legacy", Rules: []upstreamtest.Rule{status("tools/call", 404, 1)}}, Config{},
			func(r *rig) { mustCall(r.t, r.Upstream, toolCall("echo", `{}`)) }, "ready (starting )?retrying starting ready"},
		{"idle", legacyScript, Config{IdleStop: time.Minute}, func(r *rig) {}, "ready idle"},
		{"idle, then used", legacyScript, Config{IdleStop: time.Minute}, func(r *rig) {
			settle(2 * time.Minute)
			mustCall(r.t, r.Upstream, toolCall("echo", `{}`))
		}, "ready idle starting ready idle"},
		// a caller is not notified of its own change
		{"closed while ready", legacyScript, Config{}, func(r *rig) { r.Upstream.Close() }, "ready"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, tt.script, tt.config)
				settle(time.Second)
				tt.do(r)
				settle(5 * time.Minute)
				if got := r.heard(); !regexp.MustCompile("^(" + tt.want + ")$").MatchString(got) {
					t.Errorf("the listener heard %q, want %q", got, tt.want)
				}
			})
		})
	}
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{Era: "legacy", Tools: tools("a", "b"), Rules: []upstreamtest.Rule{status("*", 401, 2)}}, Config{})
		synctest.Wait()
		s := r.Status()
		if s.Name != "up" || s.State != StateBlocked || !strings.Contains(s.Err, "401 Unauthorized") || s.Tools != 0 || s.Links != 1 {
			t.Errorf("Status = %+v, want blocked by 401, no tools, 1 link", s)
		}
		settle(2 * time.Minute)
		s = r.Status()
		if s.State != StateReady || s.Err != "" || s.Era != client.EraLegacy || s.Version != "2025-11-25" || s.Tools != 2 {
			t.Errorf("Status = %+v, want ready with 2 tools in 2025-11-25", s)
		}
		if since := time.Since(s.Since); since <= time.Minute || since >= 2*time.Minute {
			t.Errorf("ready since %v, want between 1m and 2m", since)
		}
	})
}

// TestCallOfAnAttemptThatFailsAtOnce: an attempt to connect that fails before its call waits for it is
// the attempt of the call. The call does not cause another one.
func TestCallOfAnAttemptThatFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{Rules: []upstreamtest.Rule{status("*", 500, 2)}}, Config{})
		l, failed, err := r.link(t.Context(), r.reading(), waiter{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the attempt fails
		if _, err := l.acquire(t.Context(), failed, nil); err == nil || !strings.Contains(err.Error(), "500") {
			t.Errorf("acquire = %v, want the error of the attempt", err)
		}
	})
}

// A server that is away for long is asked once a minute or so; a call does not wait for that.
func TestCallWakesLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, legacyScript, Config{Era: client.EraLegacy})
		settle(time.Second)
		r.Plug(false)
		settle(20 * time.Minute)
		if got := mustFail(t, <-begun(r.Upstream, toolCall("echo", `{}`)), client.KindUnavailable); !strings.Contains(got, "unplugged") {
			t.Errorf("Call = %q, want the reason of the attempt that it waited for", got)
		}
		settle(time.Hour)
		r.heard()
		r.Plug(true)
		res := <-begun(r.Upstream, toolCall("echo", `{"result":{"content":[],"n":1}}`))
		if res.err != nil || res.text != `{"content":[],"n":1}` {
			t.Errorf("Call = %s, %v", res.text, res.err)
		}
		if res.took > time.Second {
			t.Errorf("the call took %v, want it to wake the link", res.took)
		}
		r.mustHear("starting ready")
	})
}

func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{Rules: []upstreamtest.Rule{status("*", 500, 0)}}, Config{})
		settle(time.Hour)
		if n := strings.Count(r.heard(), "retrying"); n < 60 || n > 100 {
			t.Errorf("%d attempts in an hour, want about one a minute", n)
		}
		// Calls one after the other hurry it, but make no storm of it.
		start := time.Now()
		for range 100 {
			mustFail(t, <-begun(r.Upstream, toolCall("echo", `{}`)), client.KindUnavailable)
		}
		if took := time.Since(start); took < 99*pace.Woken {
			t.Errorf("100 attempts within %v, want at least %v between two", took, pace.Woken)
		}
	})
}

func TestCallWaitsForAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := upstreamtest.Rule{Method: "initialize", Hang: true, Times: 2}
		r := newRig(t, upstreamtest.Script{Era: "legacy", Rules: []upstreamtest.Rule{hang}}, Config{Era: client.EraLegacy, ConnectTimeout: 3 * time.Second})
		early := <-begun(r.Upstream, toolCall("echo", `{}`))
		if got := mustFail(t, early, client.KindUnavailable); !strings.Contains(got, "connect_timeout") || early.took != 3*time.Second {
			t.Errorf("Call = %q after %v, want the reason of the attempt after 3s", got, early.took)
		}
		settle(time.Second) // the second attempt is under way
		late := make(chan result, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() {
			_, err := r.Call(ctx, toolCall("echo", `{}`))
			late <- result{err: err}
		}()
		if got := mustFail(t, <-late, client.KindUnavailable); !strings.Contains(got, "still connecting; before that: no connection within 3s") {
			t.Errorf("Call = %q, want that it is still connecting, and the last reason", got)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := r.Call(cancelled, toolCall("echo", `{}`))
		mustFail(t, result{err: err}, client.KindCancelled)
		settle(time.Minute)
		mustCall(t, r.Upstream, toolCall("echo", `{}`))
	})
}

// slowly is a server whose attempts to connect take long, and then fail while it is broken.
type slowly struct {
	http.Handler
	takes  time.Duration
	broken atomic.Bool
}

func (s *slowly) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method, session := r.Header.Get("Mcp-Method"), r.Header.Get("Mcp-Session-Id")
	if method == "server/discover" || method == "" && session == "" && r.Method == http.MethodPost { // initialize
		select {
		case <-time.After(s.takes):
		case <-r.Context().Done():
		}
		if s.broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
	}
	s.Handler.ServeHTTP(w, r)
}

// TestCallOfADeadServer: a server that starts slowly is waited for: at first, and after it has worked. After
// a failed attempt, a call gets the reason soon, while the next attempt is in progress; that one is for the
// calls after it.
func TestCallOfADeadServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowly{takes: 9 * time.Second}
		r := newRigBehind(t, func(server *upstreamtest.Server) http.Handler {
			s.Handler = server.Handler()
			return s
		}, upstreamtest.Script{}, Config{Era: client.EraModern})
		if first := <-begun(r.Upstream, toolCall("echo", `{}`)); first.err != nil || first.took < 8*time.Second {
			t.Errorf("the first call ended after %v: %v", first.took, first.err)
		}
		l, _, err := r.link(t.Context(), r.reading(), waiter{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.release()
		l.fail(l.current(), transport.ErrClosed) // the server starts again
		if again := <-begun(r.Upstream, toolCall("echo", `{}`)); again.err != nil || again.took < 8*time.Second {
			t.Errorf("a call of a server that starts again ended after %v: %v", again.took, again.err)
		}
		s.broken.Store(true)
		l.fail(l.current(), transport.ErrClosed)
		mustFail(t, <-begun(r.Upstream, toolCall("echo", `{}`)), client.KindUnavailable) // it waits for the attempt
		dead := <-begun(r.Upstream, toolCall("echo", `{}`))
		if got := mustFail(t, dead, client.KindUnavailable); dead.took > deadPatience || !strings.Contains(got, "500") ||
			!strings.Contains(got, "the next attempt is in progress") {
			t.Errorf("a call of a dead server ended after %v: %s", dead.took, got)
		}
		s.broken.Store(false)
		settle(time.Minute)
		mustCall(t, r.Upstream, toolCall("echo", `{}`))
	})
}

// TestOwnConnectionToADeadServer: a call that needs a connection of its own gets the reason as soon, although this
// connection was not tried before.
func TestOwnConnectionToADeadServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowly{takes: 9 * time.Second}
		r := newRigBehind(t, func(server *upstreamtest.Server) http.Handler {
			s.Handler = server.Handler()
			return s
		}, legacyScript, Config{Era: client.EraLegacy, Isolation: IsolationPrincipal})
		own := func(c *Call) { c.Principal = "one" }
		if first := <-begun(r.Upstream, toolCall("echo", `{}`, own)); first.err != nil || first.took < 8*time.Second || r.Status().Links != 2 {
			t.Errorf("the first call ended after %v: %v", first.took, first.err)
		}
		settle(time.Minute) // the shared link has a connection, too
		s.broken.Store(true)
		r.mu.Lock()
		links := slices.Collect(maps.Values(r.links))
		r.mu.Unlock()
		for _, l := range links {
			l.fail(l.current(), transport.ErrClosed)
		}
		settle(time.Minute)
		dead := <-begun(r.Upstream, toolCall("echo", `{}`, own))
		if got := mustFail(t, dead, client.KindUnavailable); dead.took > deadPatience+time.Second || !strings.Contains(got, "500") {
			t.Errorf("a call of a dead server ended after %v: %s", dead.took, got)
		}
		s.broken.Store(false)
		settle(2 * time.Minute)
		if again := <-begun(r.Upstream, toolCall("echo", `{}`, own)); again.err != nil {
			t.Errorf("a call of the server that works again: %v", again.err)
		}
	})
}

// TestAReconnectOnRequestIsNoFailure: the upstream starts again, and is never in a state of failure.
func TestAReconnectOnRequestIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, legacyScript, Config{Era: client.EraLegacy})
		r.mustHear("ready")
		for range 2 {
			r.reconnect()
			r.mustHear("starting ready")
		}
		if n := r.count("initialize"); n != 3 {
			t.Errorf("the server was connected %d times, want 3", n)
		}
	})
}

// TestCallDuringTheFirstAttempt: a call whose time is over before there is a connection was never
// made, and is not said to be without an answer only.
func TestCallDuringTheFirstAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := upstreamtest.Rule{Method: "initialize", Hang: true, Times: 1}
		r := newRig(t, upstreamtest.Script{Era: "legacy", Rules: []upstreamtest.Rule{hang}}, Config{Era: client.EraLegacy, Timeout: time.Second, ConnectTimeout: 3 * time.Second})
		if got := mustFail(t, <-begun(r.Upstream, toolCall("echo", `{}`)), client.KindUnavailable); !strings.Contains(got, "still connecting: no answer and no progress for 1s") {
			t.Errorf("Call = %q, want that it is still connecting", got)
		}
		settle(time.Minute)
		mustCall(t, r.Upstream, toolCall("echo", `{}`))
	})
}

func TestBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{Rules: []upstreamtest.Rule{status("*", 401, 0)}}, Config{})
		synctest.Wait()
		res := <-begun(r.Upstream, toolCall("echo", `{}`))
		if got := mustFail(t, res, client.KindUnavailable); !strings.Contains(got, "401 Unauthorized") || res.took > time.Second {
			t.Errorf("Call = %q after %v, want 401 within a second", got, res.took)
		}
		r.mustHear("blocked") // the call got the known error
		settle(10 * time.Minute)
		if n := strings.Count(r.heard(), "blocked"); n < 8 || n > 15 {
			t.Errorf("%d attempts in 10 minutes, want about one a minute", n)
		}
		r.server.ClearRules() // the person has logged in
		settle(time.Minute)   // the next attempt comes without a call
		mustCall(t, r.Upstream, toolCall("echo", `{}`))
		r.mustHear("starting ready")
	})
}

func TestIdleStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{Era: "legacy"}, Config{IdleStop: time.Minute, Timeout: time.Hour, MaxTimeout: time.Hour})
		synctest.Wait()
		listed := r.Catalog()
		slow := begun(r.Upstream, toolCall("gate", `{"gate":"g"}`))
		settle(5 * time.Minute)
		r.mustHear("ready")
		if n := r.count("initialize"); n != 1 {
			t.Errorf("%d connections, want 1: a call in flight keeps the link", n)
		}
		r.server.Release("g")
		if res := <-slow; res.err != nil {
			t.Errorf("Call = %v", res.err)
		}
		settle(59 * time.Second)
		if s := r.Status(); s.State != StateReady {
			t.Errorf("after 59s the state is %v, want ready", s.State)
		}
		settle(2 * time.Second)
		if s := r.Status(); s.State != StateClosed || s.Links != 0 || s.Tools != len(listed.Tools) || s.Err != "" {
			t.Errorf("Status = %+v, want idle, no link, %d tools", s, len(listed.Tools))
		}
		settle(time.Hour)
		if r.Catalog() != listed || len(listed.Tools) == 0 {
			t.Error("the catalog has changed, want it to stay")
		}
		if rec, err := r.server.Await(t.Context(), upstreamtest.Verb("DELETE")); err != nil || rec.Header.Get("Mcp-Session-Id") == "" {
			t.Errorf("the session was not ended: %v", err)
		}
		mustCall(t, r.Upstream, toolCall("echo", `{}`))
		if n := r.count("initialize"); n != 2 {
			t.Errorf("%d connections, want 2", n)
		}
	})
}

func TestIsolation(t *testing.T) {
	who := func(session, principal, ui string) func(*Call) {
		return func(c *Call) {
			c.Session, c.Principal, c.Profile = session, principal, client.Profile{Form: true, UI: ui}
		}
	}
	calls := []func(*Call){who("s1", "p1", ""), who("s1", "p1", ""), who("s2", "p1", ""), who("s3", "p2", ""), who("s1", "p1", `{"x":1}`), who("", "p2", "")}
	for _, tt := range []struct {
		isolation Isolation
		questions Questions
		want      string // a letter for each call; equal ones mean the same connection
		links     int    // with the one that reads the catalog
	}{
		{IsolationShared, QuestionsOn, "aaaaaa", 1},
		{IsolationShared, QuestionsOff, "aaaaaa", 1},
		{IsolationShared, QuestionsExact, "aaaaba", 3},
		{IsolationSession, QuestionsOn, "aabcde", 6},
		{IsolationPrincipal, QuestionsOn, "aaabab", 3},
		{IsolationPrincipal, QuestionsExact, "aaabcb", 4},
	} {
		t.Run(fmt.Sprintf("%q %q", tt.isolation, tt.questions), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, legacyScript, Config{Isolation: tt.isolation, Questions: tt.questions})
				synctest.Wait()
				letters, got := map[string]byte{}, ""
				for _, c := range calls {
					s := sessionOf(t, r.Upstream, c)
					if s == "" {
						t.Fatal("whoami names no session")
					}
					if letters[s] == 0 {
						letters[s] = 'a' + byte(len(letters))
					}
					got += string(letters[s])
				}
				if got != tt.want {
					t.Errorf("connections are %s, want %s", got, tt.want)
				}
				if n := r.Status().Links; n != tt.links {
					t.Errorf("%d links, want %d", n, tt.links)
				}
				settle(20 * time.Minute) // spares are not kept for ever
				if n := r.Status().Links; n != 1 {
					t.Errorf("%d links after a while, want 1", n)
				}
			})
		})
	}
}

// TestPrincipalThatLeavesLosesItsConnection: the connection of a principal ends at once with its key, one with a call in
// flight with that call, and that of another principal stays.
func TestPrincipalThatLeavesLosesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, legacyScript, Config{Isolation: IsolationPrincipal, Timeout: time.Hour, MaxTimeout: time.Hour})
		synctest.Wait()
		of := func(principal string) func(*Call) {
			return func(c *Call) { c.Principal, c.Profile = principal, client.Profile{Form: true} }
		}
		mustCall(t, r.Upstream, toolCall("echo", `{}`, of("p1")))
		mustCall(t, r.Upstream, toolCall("echo", `{}`, of("p2")))
		before := r.Status().Links
		r.leave(func(principal string) bool { return principal == "p1" })
		synctest.Wait()
		if n := r.Status().Links; n != before-1 {
			t.Errorf("%d links after p1 has left, want %d", n, before-1)
		}
		slow := begun(r.Upstream, toolCall("gate", `{"gate":"g"}`, of("p2")))
		synctest.Wait()
		r.leave(func(string) bool { return true })
		r.server.Release("g")
		if res := <-slow; res.err != nil {
			t.Errorf("the call in flight ends with %v", res.err)
		}
		synctest.Wait()
		if n := r.Status().Links; n != before-2 {
			t.Errorf("%d links after the last call of p2, want %d", n, before-2)
		}
	})
}

// In the modern era a connection knows nothing of its client.
func TestModernSharesLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{Era: "modern"}, Config{})
		synctest.Wait()
		for _, p := range []string{"", `{"roots":{}}`, `{"sampling":{}}`} {
			mustCall(t, r.Upstream, toolCall("echo", `{}`, func(c *Call) { c.Profile = client.Profile{UI: p} }))
		}
		if n := r.Status().Links; n != 1 {
			t.Errorf("%d links, want 1", n)
		}
	})
}

func TestMaxLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, legacyScript, Config{Isolation: IsolationSession, MaxLinks: 3, Timeout: time.Minute})
		synctest.Wait()
		one := sessionOf(t, r.Upstream, session("1"))
		settle(time.Second)
		two := sessionOf(t, r.Upstream, session("2"))
		settle(time.Second)
		if again := sessionOf(t, r.Upstream, session("1")); again != one {
			t.Errorf("session 1 has the connection %s, want %s", again, one)
		}
		settle(time.Second)
		three := sessionOf(t, r.Upstream, session("3")) // in place of 2, which was unused for longest
		if again := sessionOf(t, r.Upstream, session("1")); again != one {
			t.Errorf("session 1 has the connection %s, want %s: it was used after 2", again, one)
		}
		if n := r.Status().Links; n != 3 {
			t.Errorf("%d links, want 3 (max_links)", n)
		}
		if two == one || two == three || one == three {
			t.Errorf("the sessions have the connections %s, %s, %s; want their own", one, two, three)
		}

		first := begun(r.Upstream, toolCall("gate", `{"gate":"g"}`, session("1")))
		third := begun(r.Upstream, toolCall("gate", `{"gate":"h"}`, session("3")))
		settle(10 * time.Second)
		waits := begun(r.Upstream, toolCall("echo", `{}`, session("4")))
		settle(10 * time.Second)
		r.server.Release("g")
		if res := <-first; res.err != nil {
			t.Errorf("Call = %v", res.err)
		}
		if res := <-waits; res.err != nil || res.took < 10*time.Second {
			t.Errorf("Call = %v after %v, want an answer once a link is free", res.err, res.took)
		}
		r.server.Release("h")
		<-third
	})
}

// TestCallOfBlocked: an upstream with a mistake in its entry is never connected, so that a call
// does not wait.
func TestCallOfBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, legacyScript, Config{Blocked: "the entry is wrong", Timeout: time.Minute})
		synctest.Wait()
		res := <-begun(r.Upstream, toolCall("echo", `{}`))
		if res.took > 0 || !strings.Contains(mustFail(t, res, client.KindUnavailable), "the entry is wrong") {
			t.Errorf("Call = %v after %v", res.err, res.took)
		}
	})
}

func TestMaxLinksBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, legacyScript, Config{Isolation: IsolationSession, MaxLinks: 2, Timeout: time.Minute})
		synctest.Wait()
		hang := begun(r.Upstream, toolCall("gate", `{"gate":"g"}`, session("1")))
		settle(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := r.Call(ctx, toolCall("echo", `{}`, session("2")))
		if got := mustFail(t, result{err: err}, client.KindBusy); !strings.Contains(got, "the limit of connections (max_links: 2) is reached") {
			t.Errorf("Call = %q, want max_links named", got)
		}
		r.server.Release("g")
		<-hang
	})
}

// Calls that need more links than the limit take turns; a link that is still connecting for another
// call is not taken away.
func TestMaxLinksTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := upstreamtest.New(legacyScript)
		t.Cleanup(s.Close)
		slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(50 * time.Millisecond)
			s.Handler().ServeHTTP(w, r)
		})
		_, rt := upstreamtest.NewCable(t, slow)
		u := startOver(rt, Config{URL: "http://server/mcp", Era: client.EraLegacy, Isolation: IsolationSession, MaxLinks: 2}, Options{Log: authtest.Log(t)})
		t.Cleanup(u.Close)
		settle(time.Second)
		var all []<-chan result
		for i := range 5 {
			all = append(all, begun(u, toolCall("echo", `{}`, session(fmt.Sprint(i)))))
		}
		for i, c := range all {
			if res := <-c; res.err != nil || res.took > 5*time.Second {
				t.Errorf("call %d: %v after %v", i, res.err, res.took)
			}
		}
		n := 0
		for _, m := range s.Methods() {
			if m == "initialize" {
				n++
			}
		}
		if n > 6 {
			t.Errorf("%d connections for 5 sessions and the catalog, want 6", n)
		}
	})
}

func TestConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, legacyScript, Config{Concurrency: 1, Timeout: 10 * time.Second})
		synctest.Wait()
		hang := begun(r.Upstream, toolCall("gate", `{"gate":"g"}`))
		settle(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := r.Call(ctx, toolCall("echo", `{}`))
		if got := mustFail(t, result{err: err}, client.KindBusy); !strings.Contains(got, "as many calls as it may get at once (concurrency: 1)") {
			t.Errorf("Call = %q, want concurrency named", got)
		}
		r.server.Release("g")
		if res := <-hang; res.err != nil {
			t.Errorf("Call = %v", res.err)
		}
		mustCall(t, r.Upstream, toolCall("echo", `{}`))
	})
}

// What is sent again, and how often.
func TestAgain(t *testing.T) {
	hint := func(times int) []upstreamtest.Rule {
		rule := upstreamtest.HeaderMismatch("tools/call")
		rule.Times = times
		return []upstreamtest.Rule{rule}
	}
	version := func(times int) []upstreamtest.Rule {
		rule := upstreamtest.UnsupportedVersion("tools/call", "2026-07-28")
		rule.Times = times
		return []upstreamtest.Rule{rule}
	}
	own := func(code int) []upstreamtest.Rule {
		return []upstreamtest.Rule{{Method: "tools/call", Error: fmt.Appendf(nil, `{"code":%d,"message":"my own"}`, code)}}
	}
	session := func(times int) []upstreamtest.Rule { return []upstreamtest.Rule{status("tools/call", 404, times)} }
	// a call is answered 400, and the control question after it with this status and text
	bad := func(control int, text string) []upstreamtest.Rule {
		list := upstreamtest.Rule{Method: "tools/list", Skip: 1, Times: 1, Status: control, Body: text}
		return []upstreamtest.Rule{{Method: "tools/call", Times: 1, Status: 400, Body: "no session"}, list}
	}
	for _, tt := range []struct {
		name        string
		era         string
		rules       []upstreamtest.Rule
		tool        string
		calls       int // that the server sees
		connections int // handshakes
		lists       int
		kind        client.Kind // of the failure; "" is none, or code
		code        int
	}{
		{"nothing wrong", "legacy", nil, "echo", 1, 1, 1, "", 0},
		{"session gone", "legacy", session(1), "echo", 2, 2, 2, "", 0},
		{"session gone for good", "legacy", session(0), "echo", 2, 3, 3, client.KindUnavailable, 0},
		{"400 after a call that ran", "legacy", bad(400, "no session")[:1], "echo", 1, 1, 2, client.KindInvalid, 0},
		{"400 to the control question, too", "legacy", bad(400, "no session"), "echo", 2, 2, 4, "", 0},
		{"400 with another text", "legacy", bad(400, "no list"), "echo", 1, 2, 4, client.KindInvalid, 0},
		{"400, and another status with the same text", "legacy", bad(500, "no session"), "echo", 1, 2, 4, client.KindInvalid, 0},
		{"400, and the control question comes too often", "legacy", bad(429, "no session"), "echo", 1, 1, 2, client.KindInvalid, 0},
		{"400, modern", "modern", bad(400, "no session")[:1], "echo", 1, 1, 1, client.KindInvalid, 0},
		{"unsupported version", "modern", version(1), "echo", 2, 2, 2, "", 0},
		{"unsupported version for good", "modern", version(0), "echo", 2, 2, 2, "", -32022},
		{"header mismatch", "modern", hint(1), "echo", 2, 1, 2, "", 0},
		{"header mismatch for good", "modern", hint(0), "echo", 2, 1, 2, "", -32020},
		{"legacy, a code that means a header mismatch in the other era", "legacy", own(-32020), "echo", 1, 1, 2, "", -32020},
		{"legacy, a code that means an unsupported version there", "legacy", own(-32022), "echo", 1, 1, 2, "", -32022},
		{"cut off, legacy", "legacy", nil, "die", 1, 1, 1, client.KindLost, 0},
		{"cut off, modern", "modern", nil, "die", 1, 1, 1, client.KindLost, 0},
		{"500", "legacy", []upstreamtest.Rule{status("tools/call", 500, 1)}, "echo", 1, 1, 2, client.KindInvalid, 0},
		{"503, modern", "modern", []upstreamtest.Rule{status("tools/call", 503, 1)}, "echo", 1, 1, 1, client.KindInvalid, 0},
		{"the server's own error", "legacy", nil, "fail", 1, 1, 2, "", -32603},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, upstreamtest.Script{Era: tt.era, Rules: tt.rules, NoListChanged: true}, Config{Era: client.Era(tt.era)})
				settle(time.Second)
				res := <-begun(r.Upstream, toolCall(tt.tool, `{}`))
				switch {
				case tt.kind != "":
					mustFail(t, res, tt.kind)
				case tt.code != 0:
					mustRefuse(t, res, tt.code)
				case res.err != nil:
					t.Errorf("Call = %v", res.err)
				}
				settle(time.Minute)
				handshake := map[string]string{"legacy": "initialize", "modern": "server/discover"}[tt.era]
				if got, want := [3]int{r.count("tools/call"), r.count(handshake), r.count("tools/list")}, [3]int{tt.calls, tt.connections, tt.lists}; got != want {
					t.Errorf("calls, handshakes, lists: %v, want %v", got, want)
				}
			})
		})
	}
}

// TestControlQuestionsAreFew: many calls that are answered 400 at once cause one control question. Calls
// within five seconds cause no other one. No call is sent again, and the session stays.
func TestControlQuestionsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := []upstreamtest.Rule{{Method: "tools/call", Status: 400, Body: "boom"}}
		r := newRig(t, upstreamtest.Script{Era: "legacy", Rules: rules, NoListChanged: true}, Config{Era: "legacy"})
		settle(time.Second)
		calls := 0
		fail := func(n int) {
			t.Helper()
			var pending []<-chan result
			for range n {
				pending = append(pending, begun(r.Upstream, toolCall("echo", `{}`)))
			}
			for _, p := range pending {
				mustFail(t, <-p, client.KindInvalid)
			}
			calls += n
		}
		for _, step := range []struct {
			after time.Duration
			lists int // so far; the first one reads the catalog
		}{{0, 2}, {0, 2}, {4 * time.Second, 2}, {2 * time.Second, 3}} {
			settle(step.after)
			fail(20)
			if got, want := [3]int{r.count("tools/call"), r.count("initialize"), r.count("tools/list")}, [3]int{calls, 1, step.lists}; got != want {
				t.Errorf("calls, handshakes, lists: %v, want %v", got, want)
			}
		}
	})
}

// TestSessionsWithoutListsAreAskedToo: a session of one user, which has never read a list, is replaced if
// the server has lost it, and it is kept if only a call is answered 400.
func TestSessionsWithoutListsAreAskedToo(t *testing.T) {
	for _, lost := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, upstreamtest.Script{Era: "legacy", NoListChanged: true}, Config{Era: "legacy", Separate: true})
			settle(time.Second)
			one := func(c *Call) { c.Principal = "one" }
			mustCall(t, r.Upstream, toolCall("echo", `{}`, one))
			before := r.count("initialize")
			rule := upstreamtest.Rule{Method: "tools/call", Times: 1, Status: 400, Body: "no session"}
			r.server.AddRules(rule)
			if lost {
				rule.Method = "tools/list"
				r.server.AddRules(rule)
			}
			res := <-begun(r.Upstream, toolCall("echo", `{}`, one))
			if !lost {
				mustFail(t, res, client.KindInvalid)
			} else if res.err != nil {
				t.Errorf("a call in a session that the server has lost: %v", res.err)
			}
			if n := r.count("initialize") - before; (n == 1) != lost {
				t.Errorf("%d sessions were begun, lost: %v", n, lost)
			}
		})
	}
}

// TestHeadersThatAreRejectedForGood has many calls whose headers the server never accepts. The headers of
// a tool call depend on the lists, so calls share a reading of them, and are sent once more. Those of
// other requests do not.
func TestHeadersThatAreRejectedForGood(t *testing.T) {
	const callers = 20
	for _, tt := range []struct {
		method       string
		calls, lists int // the most that the server gets
	}{
		{"tools/call", 2 * callers, 3},
		{"resources/read", callers, 1},
	} {
		t.Run(tt.method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rule := upstreamtest.HeaderMismatch(tt.method)
				rule.Times = 0
				r := newRig(t, upstreamtest.Script{Era: "modern", Rules: []upstreamtest.Rule{rule}, NoListChanged: true}, Config{Era: "modern"})
				settle(time.Second)
				var calls []<-chan result
				for range callers {
					calls = append(calls, begun(r.Upstream, toolCall("echo", `{}`, func(c *Call) { c.Method = tt.method })))
				}
				for _, call := range calls {
					if res := <-call; res.took > askedPause {
						t.Errorf("the call took %v, want at most %v", res.took, askedPause)
					} else {
						mustRefuse(t, res, -32020)
					}
				}
				if calls, lists := r.count(tt.method), r.count("tools/list"); calls > tt.calls || lists > tt.lists {
					t.Errorf("%d calls and %d lists, want at most %d and %d", calls, lists, tt.calls, tt.lists)
				}
			})
		})
	}
}

func TestLostItemsStayForGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{Era: "legacy", Tools: tools("a")}, Config{}, func(o *Options) { o.Grace = time.Minute })
		settle(time.Second)
		r.Plug(false)
		mustFail(t, <-begun(r.Upstream, toolCall("a", `{}`)), client.KindUnavailable)
		settle(45 * time.Second)
		if n := len(r.Catalog().Tools); n != 1 {
			t.Errorf("%d tools before the grace is over, want 1", n)
		}
		settle(time.Minute)
		if n := len(r.Catalog().Tools); n != 0 || r.Catalog().Era != client.EraLegacy {
			t.Errorf("%d tools after the grace, want none, and the era still known", n)
		}
		r.Plug(true)
		settle(2 * time.Minute)
		if n := len(r.Catalog().Tools); n != 1 || r.catalogs != 3 {
			t.Errorf("%d tools, %d changes; want 1 and 3", n, r.catalogs)
		}
	})
}

func TestClose(t *testing.T) {
	for _, script := range []upstreamtest.Script{{Era: "legacy"}, {Era: "modern"}, {Rules: []upstreamtest.Rule{{Method: "*", Hang: true}}}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, script, Config{})
			synctest.Wait()
			hang := begun(r.Upstream, toolCall("hang", `{}`))
			synctest.Wait()
			r.Upstream.Close()
			res := <-hang
			if res.err == nil || res.took > 2*time.Second {
				t.Errorf("a call over the end: %v after %v, want an error at once", res.err, res.took)
			}
			if _, err := r.Call(t.Context(), toolCall("echo", `{}`)); err == nil {
				t.Error("a call after Close succeeded")
			}
			if n := r.Status().Links; n != 0 {
				t.Errorf("%d links are left", n)
			}
		})
	}
}

func TestStateAfter(t *testing.T) {
	const blocked, retrying = StateBlocked, StateRetrying
	for code, want := range map[int]State{401: blocked, 403: blocked, 400: retrying, 404: retrying, 407: retrying,
		429: retrying, 500: retrying} {
		if got := stateAfter(fmt.Errorf("wrapped: %w", &transport.StatusError{Status: code})); got != want {
			t.Errorf("stateAfter(%d) = %v, want %v", code, got, want)
		}
	}
	oauth := &transport.StatusError{Status: 401, Challenge: []string{`Bearer resource_metadata="https://a/b"`}}
	for _, err := range []error{oauth, &LackError{Upstream: "a", Mode: AuthOAuth}, &SignInError{Upstream: "a"}} {
		if got := stateAfter(fmt.Errorf("wrapped: %w", err)); got != StateSignIn {
			t.Errorf("stateAfter(%v) = %v, want %v", err, got, StateSignIn)
		}
	}
	if got := stateAfter(errors.New("401")); got != retrying {
		t.Errorf("stateAfter goes by the text of an error: %v", got)
	}
}

// TestListsThatAlwaysChange: a server whose list changes all the time changes the catalog only now and
// then, because each change ends the paging of all clients. A server that has calmed down is read at
// once again.
func TestListsThatAlwaysChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, legacyScript, Config{})
		settle(time.Second)
		for i := range 6000 {
			r.server.SetTools(tools(fmt.Sprint("t", i)))
			settle(100 * time.Millisecond)
		}
		r.hear.Lock()
		many := r.catalogs
		r.hear.Unlock()
		if many > 100 || many < 60 {
			t.Errorf("the catalog has changed %d times in ten minutes, want about 20, and one in 10s", many)
		}
		settle(10 * time.Minute)
		r.server.SetTools(tools("last"))
		settle(time.Second)
		if r.Catalog().Tool("last") == nil {
			t.Errorf("after ten minutes of rest, a change is not read at once")
		}
	})
}
