package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/pace"
	"junction/upstream/upstreamtest"
)

// TestCallsOutliveTheirSession: the session of a call in flight is replaced, because another call has found
// out that it is lost. The call still gets its result. Then the session is deleted.
func TestCallsOutliveTheirSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrave()
		r := newRigBehind(t, g.over, legacyQuiet, Config{})
		settle(time.Second)
		first := sessionOf(t, r.Upstream)
		slow := begun(r.Upstream, toolCall("gate", `{"gate":"g"}`))
		settle(time.Second)
		g.lose(first, reply{500, "", nil})
		<-begun(r.Upstream, toolCall("echo", `{}`))
		settle(time.Second)
		if got := sessionOf(t, r.Upstream); got == first {
			t.Errorf("the session is still %s", got)
		}
		r.server.Release("g")
		if res := <-slow; res.err != nil {
			t.Errorf("the call in flight = %v", res.err)
		}
		settle(time.Second)
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.gone) != 1 || g.gone[0] != first {
			t.Errorf("the sessions %q were deleted, want the lost one", g.gone)
		}
	})
}

// TestCallsInFlightOutliveTheListeningStream: the listening stream finds out that the session is gone while a call is on
// its way. The link connects again, the call gets its own 404 later, and is sent again, once.
func TestCallsInFlightOutliveTheListeningStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, arrived := make(chan struct{}), make(chan struct{})
		front := func(s *upstreamtest.Server) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				if m, _ := jsonrpc.Parse(body, 100); err == nil && m.Method == "tools/call" && !pace.IsClosed(arrived) {
					close(arrived)
					<-held
				}
				s.Handler().ServeHTTP(w, r)
			})
		}
		r := newRigBehind(t, front, legacyQuiet, Config{})
		settle(time.Second)
		call := begun(r.Upstream, toolCall("count", `{}`))
		<-arrived
		r.server.EndSessions()
		settle(10 * time.Second) // the stream is asked for again
		if n := r.count("initialize"); n != 2 {
			t.Errorf("%d sessions were opened, want 2", n)
		}
		close(held)
		if res := <-call; res.err != nil || !strings.Contains(res.text, `1`) {
			t.Errorf("the call in flight = %s, %v", res.text, res.err)
		}
		if n := r.count("tools/call"); n != 2 {
			t.Errorf("the call was sent %d times, want once to each session", n)
		}
	})
}

// TestServerWithoutSessionsGetsNoOther: a server that keeps no session answers all requests 500 for a while.
// The status says so, and no handshake is made.
func TestServerWithoutSessionsGetsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrave()
		r := newRigBehind(t, g.over, upstreamtest.Script{Era: "legacy", NoListChanged: true, NoSession: true}, Config{})
		settle(time.Second)
		g.always(&reply{500, "", nil})
		<-begun(r.Upstream, toolCall("echo", `{}`))
		settle(time.Minute)
		r.mustHear("ready degraded")
		if n := g.inLost("initialize"); n != 0 {
			t.Errorf("%d handshakes were made", n)
		}
		g.always(nil)
		settle(pause10)
		r.mustHear("ready")
		mustCall(t, r.Upstream, toolCall("echo", `{}`))
	})
}

// TestRefusedStreamKeepsTheSession: a server without a listening stream answers GET with 404, as some
// routers do, and its sessions live.
func TestRefusedStreamKeepsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{Era: "legacy", NoListChanged: true, Rules: []upstreamtest.Rule{{Method: "GET", Status: 404}}}, Config{})
		settle(time.Minute)
		mustCall(t, r.Upstream, toolCall("echo", `{}`))
		r.mustHear("ready")
		if n := r.count("initialize"); n != 1 {
			t.Errorf("%d sessions were opened, want 1", n)
		}
	})
}

// TestDoctorAsksOverTheConnectionInUse: nothing has failed yet. The check of the operator finds out that the
// session in use is lost, although a new connection would work; or that another era does not answer.
func TestDoctorAsksOverTheConnectionInUse(t *testing.T) {
	for _, row := range []struct{ era, state string }{{"legacy", "degraded"}, {"modern", "ready"}} {
		synctest.Test(t, func(t *testing.T) {
			g := newGrave()
			r := newRigBehind(t, g.over, upstreamtest.Script{Era: row.era, NoListChanged: true}, Config{})
			settle(time.Second)
			r.mustHear("ready")
			if err := r.askInUse(t.Context()); err != nil {
				t.Errorf("a connection that works: %v", err)
			}
			settle(time.Minute)
			g.always(&reply{410, "", nil})
			err := r.askInUse(t.Context())
			if s := r.Status(); s.State.String() != row.state || (err != nil) != (row.era == "modern") {
				t.Errorf("%s: %v, and the status is %+v", row.era, err, s)
			}
		})
	}
}

// TestModernEraAsksNothing: the same errors cause no control question, because there is no session to
// lose.
func TestModernEraAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{Era: "modern", NoListChanged: true}, Config{})
		settle(time.Second)
		for range 10 {
			mustRefuse(t, <-begun(r.Upstream, toolCall("fail", `{}`)), -32603)
			settle(time.Second)
		}
		if n := r.count("tools/list"); n != 1 {
			t.Errorf("the lists were read %d times", n)
		}
		r.mustHear("ready")
	})
}

// TestSuspiciousPingIsDoubt: a call is silent, and the ping that asks whether the server lives is answered
// as in a lost session.
func TestSuspiciousPingIsDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{Era: "legacy", NoListChanged: true, Rules: []upstreamtest.Rule{{Method: "ping",
			Error: []byte(`{"code":-32600,"message":"Session not found"}`)}}}, Config{})
		settle(time.Second)
		call := begun(r.Upstream, quietCall("slow", `{"ms":40000}`))
		if res := <-call; res.err != nil {
			t.Errorf("the call = %v", res.err)
		}
		if n := r.count("tools/list"); n != 2 {
			t.Errorf("%d control questions, want one", n-1)
		}
		r.mustHear("ready")
	})
}

// TestLostSessionOverSSE: the same holds for HTTP+SSE, where the POST is answered so.
func TestLostSessionOverSSE(t *testing.T) {
	for _, death := range []reply{{400, "no session", nil}, {401, "Session not found", nil}, {410, "", nil}, {500, "", nil}} {
		t.Run(death.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGrave()
				r := newRigBehind(t, g.overSSE, legacyQuiet, Config{Transport: client.TransportSSE})
				settle(time.Second)
				first := sessionOf(t, r.Upstream)
				g.lose(first, death)
				<-begun(r.Upstream, toolCall("echo", `{}`))
				synctest.Wait()
				r.mustHear("ready degraded ready")
				if got := sessionOf(t, r.Upstream); got == first {
					t.Errorf("calls still use the session %s", got)
				}
			})
		})
	}
}

// renewals are the tokens of a sign-in that can be renewed. Two refusals of one request end it.
type renewals struct {
	mu     sync.Mutex
	number int
	ended  bool
}

func (o *renewals) Apply(_ context.Context, c Caller, refused ...string) (Credential, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended = o.ended || len(refused) > 1; o.ended {
		return Credential{}, &LackError{Upstream: c.Upstream, Mode: c.Mode, Again: true}
	}
	o.number += len(refused)
	return Credential{Token: fmt.Sprint("canary-token-", o.number)}, nil
}

// TestLostSessionKeepsTheSignIn: a server answers 401 with a challenge in a session that it has lost. The
// token is renewed once, and the sign-in stays. If the server refuses the renewed token for another
// session, too, the sign-in is over, and the call says so.
func TestLostSessionKeepsTheSignIn(t *testing.T) {
	for _, row := range []struct {
		lost bool
		over client.Transport
	}{{true, client.TransportHTTP}, {false, client.TransportHTTP}, {true, client.TransportSSE}, {false, client.TransportSSE}} {
		synctest.Test(t, func(t *testing.T) {
			g, tokens, lost := newGrave(), &renewals{}, row.lost
			front := g.over
			if row.over == client.TransportSSE {
				front = g.overSSE
			}
			r := newRigBehind(t, front, legacyQuiet, Config{Auth: Auth{Mode: AuthOAuth}, Transport: row.over},
				func(o *Options) { o.Credentials = tokens })
			settle(time.Second)
			r.mustHear("ready")
			first := sessionOf(t, r.Upstream)
			death := reply{401, "", http.Header{"Www-Authenticate": {`Bearer error="invalid_token"`}}}
			if g.lose(first, death); !lost {
				g.always(&death)
			}
			res := <-begun(r.Upstream, toolCall("echo", `{}`))
			synctest.Wait()
			tokens.mu.Lock()
			defer tokens.mu.Unlock()
			if !lost {
				if !needsLogin(res.err) || !tokens.ended {
					t.Errorf("the call = %v, the sign-in ended: %v; want both", res.err, tokens.ended)
				}
				if s := r.Status(); s.State != StateSignIn {
					t.Errorf("the status is %+v", s)
				}
				return
			}
			r.mustHear("degraded ready")
			if res.err == nil || tokens.ended || tokens.number != 1 {
				t.Errorf("the call = %v, with %d renewals, the sign-in ended: %v; want one, and no end", res.err,
					tokens.number, tokens.ended)
			}
		})
	}
}

// TestSessionIDsAreSecret: a server repeats the id of the session that it does not know any more. Callers, the
// status and the log do not show it.
func TestSessionIDsAreSecret(t *testing.T) {
	for _, body := range []string{"no session $SESSION",
		`{"jsonrpc":"2.0","id":$ID,"error":{"code":-32600,"message":"no session $SESSION","data":"$SESSION"}}`} {
		for _, code := range []int{200, 400, 401} {
			for _, sse := range []bool{false, true} {
				if sse && code == 200 { // the server of the test answers a POST so, and not on the stream
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					g, c := newGrave(), Config{}
					front := g.over
					if sse {
						c.Transport, front = client.TransportSSE, g.overSSE
					}
					var log strings.Builder
					r := newRigBehind(t, front, legacyQuiet, c, func(o *Options) { o.Log = authtest.Log(t, &log) })
					settle(time.Second)
					id := sessionOf(t, r.Upstream)
					g.lose(id, reply{code, body, nil})
					r.server.AddRules(upstreamtest.Rule{Method: "initialize", Status: 500})
					res := <-begun(r.Upstream, toolCall("echo", `{}`))
					settle(time.Minute)
					s := r.Status()
					r.Close()
					for what, text := range map[string]string{"the caller": fmt.Sprint(res.err), "the status": s.Err, "the log": log.String()} {
						if strings.Contains(text, id) {
							t.Errorf("%s gets %d with the id of the session: %s", what, code, text)
						}
					}
					if res.err == nil || s.State != StateDegraded && code != 200 && !sse {
						t.Errorf("the call = %v, and the state is %v", res.err, s.State)
					}
				})
			}
		}
	}
}
