package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/upstreamtest"
)

// ledger is a sign-in that a test watches. Like package oauth, it renews a token that is refused once, and
// ends with the second refusal.
type ledger struct {
	mu       sync.Mutex
	number   int  // of the token
	single   bool // there is no refresh token
	down     bool // the authorization server is
	ended    bool
	renewals int
}

func (l *ledger) Apply(_ context.Context, c Caller, refused ...string) (Credential, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, token := range refused {
		switch {
		case token != l.token() || l.ended:
		case len(refused) > 1:
			l.ended = true
		case l.down:
			return Credential{}, errors.New("no answer")
		case !l.single:
			l.number++
			l.renewals++
		}
	}
	switch {
	case l.ended && c.User != "":
		return Credential{}, &SignInError{Upstream: c.Upstream, Mode: c.Mode, Again: true}
	case l.ended:
		return Credential{}, &LackError{Upstream: c.Upstream, Mode: c.Mode, Again: true}
	}
	return Credential{Token: l.token()}, nil
}

func (l *ledger) token() string { return fmt.Sprint("canary-token-", l.number) }

// state returns whether the sign-in has ended, and how many tokens were renewed.
func (l *ledger) state() (ended bool, renewals int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended, l.renewals
}

// bouncer is in front of a server. It answers calls of the tool count with 401, whatever the token is, and
// after close everything.
type bouncer struct {
	challenge bool // 401 has one
	mu        sync.Mutex
	closed    bool
	only      string // the only token that is accepted; "" for each
	lists     int    // requests for a list
}

func (b *bouncer) before(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		m, _ := jsonrpc.Parse(body, 100)
		name, _ := m.Body.String("name")
		b.mu.Lock()
		refuse := b.closed || m.Method == "tools/call" && name == "count" ||
			b.only != "" && r.Header.Get("Authorization") != "Bearer "+b.only
		if m.Method == "tools/list" {
			b.lists++
		}
		b.mu.Unlock()
		if !refuse {
			h.ServeHTTP(w, r)
			return
		}
		if b.challenge {
			w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		}
		w.WriteHeader(http.StatusUnauthorized)
	})
}

func (b *bouncer) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// accept makes it accept one token only.
func (b *bouncer) accept(token string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.only = token
}

// asked returns how many requests for a list there were since it was last called.
func (b *bouncer) asked() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.lists
	b.lists = 0
	return n
}

// eachSignIn runs a story with a sign-in of each owner, in both eras and on both wires.
func eachSignIn(t *testing.T, story func(t *testing.T, r *rig, b *bouncer, l *ledger), change ...func(*ledger)) {
	for _, wire := range []struct {
		name   string
		script upstreamtest.Script
		sse    bool
	}{
		{"modern", upstreamtest.Script{Era: "modern", NoListChanged: true}, false},
		{"legacy", legacyQuiet, false},
		{"legacy without a session", upstreamtest.Script{Era: "legacy", NoListChanged: true, NoSession: true}, false},
		{"HTTP+SSE", legacyQuiet, true},
	} {
		for user, mode := range map[string]AuthMode{"": AuthOAuth, "user:ann": AuthOAuthUser} {
			for _, challenge := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, challenge %v", wire.name, mode, challenge), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						b, l := &bouncer{challenge: challenge}, &ledger{}
						for _, f := range change {
							f(l)
						}
						c := Config{Auth: Auth{Mode: mode}, Concurrency: 2000}
						front := func(s *upstreamtest.Server) http.Handler { return b.before(s.Handler()) }
						if wire.sse {
							c.Transport = client.TransportSSE
							front = func(s *upstreamtest.Server) http.Handler { return b.before(s.SSEHandler()) }
						}
						r := newRigOf(t, user, front, wire.script, c, func(o *Options) { o.Credentials = l })
						settle(time.Second)
						if state := r.Status().State; state != StateReady {
							t.Fatalf("the state is %v: %s", state, r.Status().Err)
						}
						b.asked()
						story(t, r, b, l)
					})
				})
			}
		}
	}
}

// TestOneToolEndsNoSignIn: a tool answers each call with 401. The caller gets the error, and the sign-in
// lives, because the server still answers a list. However many calls fail, they cause few control questions,
// few renewals and no session.
func TestOneToolEndsNoSignIn(t *testing.T) {
	eachSignIn(t, func(t *testing.T, r *rig, b *bouncer, l *ledger) {
		res := <-begun(r.Upstream, toolCall("count", `{}`))
		if got := mustFail(t, res, client.KindInvalid); !strings.Contains(got, "401") || !strings.Contains(got, "; if each call fails so, ") {
			t.Errorf("Call = %q, want the 401 and advice", got)
		}
		mustCall(t, r.Upstream, toolCall("echo", `{}`))
		if ended, renewals := l.state(); ended || renewals != 1 {
			t.Errorf("ended %v after %d renewals, want the sign-in to live after one", ended, renewals)
		}
		if n := b.asked(); n != 1 {
			t.Errorf("%d control questions, want 1", n)
		}
		var calls []<-chan result
		for range 1000 {
			calls = append(calls, begun(r.Upstream, toolCall("count", `{}`)))
		}
		for _, call := range calls {
			mustFail(t, <-call, client.KindInvalid)
		}
		for range 60 {
			mustFail(t, <-begun(r.Upstream, toolCall("count", `{}`)), client.KindInvalid)
			settle(time.Second)
		}
		if n := b.asked(); n > 13 {
			t.Errorf("%d control questions in a minute", n)
		}
		if ended, renewals := l.state(); ended || renewals > 4 {
			t.Errorf("ended %v after %d renewals in a minute", ended, renewals)
		}
		if n := r.count("initialize") + r.count("server/discover"); n > 2 {
			t.Errorf("%d handshakes", n)
		}
		mustCall(t, r.Upstream, toolCall("echo", `{}`))
		if s := r.Status(); s.State != StateReady {
			t.Errorf("the state is %v: %s", s.State, s.Err)
		}
	})
}

// TestEndedSignInIsFound: the server refuses each token from now on. The first call finds it out with one
// control question, and says who has to sign in.
func TestEndedSignInIsFound(t *testing.T) {
	eachSignIn(t, mustFindTheEnd)
}

func mustFindTheEnd(t *testing.T, r *rig, b *bouncer, l *ledger) {
	b.close()
	res := <-begun(r.Upstream, toolCall("echo", `{}`))
	if !signIn(res.err) {
		t.Errorf("Call = %v, want that somebody has to sign in", res.err)
	}
	if ended, renewals := l.state(); !ended || renewals > 2 {
		t.Errorf("ended %v after %d renewals", ended, renewals)
	}
	for _, later := range []time.Duration{0, time.Minute} {
		if settle(later); r.Status().State != StateSignIn {
			t.Errorf("%v later the state is %v: %s", later, r.Status().State, r.Status().Err)
		}
	}
	if n := b.asked(); n > 3 { // with each token
		t.Errorf("%d requests for a list", n)
	}
}

// TestTokenThatCannotBeRenewed: the authorization server gave no refresh token. A tool that answers 401 does
// not end the sign-in, and the end of the sign-in is found.
func TestTokenThatCannotBeRenewed(t *testing.T) {
	eachSignIn(t, func(t *testing.T, r *rig, b *bouncer, l *ledger) {
		mustFail(t, <-begun(r.Upstream, toolCall("count", `{}`)), client.KindInvalid)
		mustCall(t, r.Upstream, toolCall("echo", `{}`))
		if ended, _ := l.state(); ended {
			t.Error("the sign-in has ended")
		}
		settle(time.Minute)
		b.asked()
		mustFindTheEnd(t, r, b, l)
	}, func(l *ledger) { l.single = true })
}

// TestRenewalsOfOneSignInAreFew: two principals have connections of their own, and one sign-in. They take
// turns in calling a tool that answers 401. A token that was renewed for one is not renewed for the other.
func TestRenewalsOfOneSignInAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := &bouncer{}, &ledger{}
		r := newRigOf(t, "", func(s *upstreamtest.Server) http.Handler { return b.before(s.Handler()) }, legacyQuiet,
			Config{Auth: Auth{Mode: AuthOAuth}, Isolation: IsolationPrincipal}, func(o *Options) { o.Credentials = l })
		settle(time.Second)
		for range 25 {
			for _, principal := range []string{"ann", "bob"} {
				mustFail(t, <-begun(r.Upstream, toolCall("count", `{}`, of(principal))), client.KindInvalid)
			}
			settle(time.Second)
		}
		if ended, renewals := l.state(); ended || renewals != 1 {
			t.Errorf("ended %v after %d renewals in 25 seconds, want one", ended, renewals)
		}
	})
}

// TestTokenThatIsRevokedTwice: a token is revoked, and the next one within half a minute. Without a session, the
// control question renews that one, and the call is sent again. If no token can be had, the call says why.
func TestTokenThatIsRevokedTwice(t *testing.T) {
	eachSignIn(t, func(t *testing.T, r *rig, b *bouncer, l *ledger) {
		b.accept("canary-token-1")
		mustCall(t, r.Upstream, toolCall("echo", `{}`))
		b.accept("canary-token-2")
		res := <-begun(r.Upstream, toolCall("echo", `{}`))
		if session := sessions(r); (res.err != nil) != session {
			t.Errorf("Call = %v with a session: %v", res.err, session)
		}
		settle(time.Minute)
		mustCall(t, r.Upstream, toolCall("echo", `{}`))
		if ended, renewals := l.state(); ended || renewals != 2 {
			t.Errorf("ended %v after %d renewals, want two", ended, renewals)
		}
		if sessions(r) {
			return
		}
		settle(time.Minute)
		b.accept("canary-token-3")
		mustCall(t, r.Upstream, toolCall("echo", `{}`))
		settle(controlPause)
		b.accept("canary-token-4")
		l.mu.Lock()
		l.down = true
		l.mu.Unlock()
		if got := mustFail(t, <-begun(r.Upstream, toolCall("echo", `{}`)), client.KindUnavailable); !strings.Contains(got, "sign-in service cannot be asked") {
			t.Errorf("Call = %q, want that no token can be had", got)
		}
	})
}

// sessions reports whether the server of a rig keeps sessions.
func sessions(r *rig) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.links[r.reading()].current().Info().Session
}

// TestCallsWithAnOldTokenGetTheNewOne: the token of 100 calls has just been revoked. It is renewed once, and
// all calls succeed.
func TestCallsWithAnOldTokenGetTheNewOne(t *testing.T) {
	eachSignIn(t, func(t *testing.T, r *rig, b *bouncer, l *ledger) {
		b.accept("canary-token-1")
		for range 2 { // the second time, less than half a minute later
			var calls []<-chan result
			for range 100 {
				calls = append(calls, begun(r.Upstream, toolCall("echo", `{}`)))
			}
			for _, call := range calls {
				if res := <-call; res.err != nil {
					t.Fatalf("Call = %v", res.err)
				}
			}
		}
		if ended, renewals := l.state(); ended || renewals != 1 {
			t.Errorf("ended %v after %d renewals, want one", ended, renewals)
		}
	})
}
