package upstream

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// TestDeadServerIsNotReady: a server with a URL ends. The upstream is not ready any more once a call of any
// connection, or the listening stream, finds that. The next call after the return of the server works at once.
func TestDeadServerIsNotReady(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		for _, row := range []struct {
			name   string
			config Config
			calls  bool
		}{
			{"one connection", Config{}, true},
			{"a connection for each caller", Config{Isolation: IsolationPrincipal}, true},
			{"no call", Config{}, false},
		} {
			t.Run(era+"/"+row.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, upstreamtest.Script{Era: era, JSONAnswers: true}, row.config)
					settle(time.Second)
					mustCall(t, r.Upstream, toolCall("echo", `{}`, of("ann")))
					r.mustHear("ready")
					before := len(r.server.Methods())
					mustCall(t, r.Upstream, toolCall("echo", `{}`, of("ann")))
					if n := len(r.server.Methods()) - before; n != 1 {
						t.Errorf("a call sent %d requests, want 1", n)
					}
					r.Plug(false)
					if row.calls {
						mustFail(t, <-begun(r.Upstream, toolCall("echo", `{}`, of("ann"))), client.KindUnavailable)
						settle(time.Millisecond)
					} else {
						settle(5 * time.Second)
					}
					if s := r.Status(); s.State != StateRetrying || !strings.Contains(s.Err, "unplugged") {
						t.Errorf("the status of a dead server is %+v", s)
					}
					settle(10 * time.Minute)
					if s := r.Status(); s.State != StateRetrying {
						t.Errorf("after ten minutes, the status of a dead server is %+v", s)
					}
					r.Plug(true)
					mustCall(t, r.Upstream, toolCall("echo", `{}`, of("ann")))
					settle(time.Second)
					if s := r.Status(); s.State != StateReady || s.Err != "" {
						t.Errorf("the status is %+v after the server has returned", s)
					}
				})
			})
		}
	}
}

// TestServerThatRefusesConnectionsIsDegraded: a server accepts no connection any more, and keeps one open. Calls
// are sent, and the first one that succeeds makes the upstream ready.
func TestServerThatRefusesConnectionsIsDegraded(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, upstreamtest.Script{Era: era, JSONAnswers: true}, Config{})
				settle(time.Second)
				r.mustHear("ready")
				open := gated(r, "ann", "g", 4) // no connection is idle
				r.Refuse(true)
				mustFail(t, <-begun(r.Upstream, toolCall("echo", `{}`, of("bob"))), client.KindUnavailable)
				settle(6 * time.Second)
				s := r.Status()
				if s.State != StateDegraded || !strings.Contains(s.Err, "connection refused") ||
					!strings.Contains(s.Advice, "start it") {
					t.Errorf("the status is %+v", s)
				}
				r.mustHear("degraded")
				r.Refuse(false)
				mustCall(t, r.Upstream, toolCall("echo", `{}`, of("bob")))
				settle(time.Millisecond)
				if s := r.Status(); s.State != StateReady || s.Err != "" {
					t.Errorf("after a call was answered, the status is %+v", s)
				}
				r.server.Release("g")
				if res := <-open[0]; res.err != nil {
					t.Errorf("the call that was in flight: %v", res.err)
				}
			})
		})
	}
}

// TestCallsThatFailInARowDegrade: a server answers each call, and each ping, with 502. The third call in a row
// causes a ping; the upstream is degraded until the server answers one. Few pings are sent.
func TestCallsThatFailInARowDegrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{Era: "modern", JSONAnswers: true, Rules: []upstreamtest.Rule{
			{Method: "tools/call", Status: 502, Times: 40}, {Method: "server/discover", Skip: 1, Status: 502, Times: 3}}}, Config{})
		settle(time.Second)
		r.mustHear("ready")
		for i := range 40 {
			mustFail(t, <-begun(r.Upstream, toolCall("echo", `{}`, of("ann"))), client.KindInvalid)
			synctest.Wait()
			if s, want := r.Status(), i >= failuresInRow-1; (s.State == StateDegraded) != want {
				t.Fatalf("after %d calls that failed, the status is %+v", i+1, s)
			}
		}
		if s := r.Status(); !strings.Contains(s.Err, "calls in a row failed") || !strings.Contains(s.Err, "502") {
			t.Errorf("the status is %+v", s)
		}
		if n := r.count("server/discover"); n != 2 {
			t.Errorf("the server received %d pings and handshakes, want 2", n)
		}
		settle(time.Minute)
		if s := r.Status(); s.State != StateReady || s.Err != "" {
			t.Errorf("after a ping was answered, the status is %+v", s)
		}
		r.mustHear("degraded ready")
	})
}
