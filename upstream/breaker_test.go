package upstream

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// frozen are the rules of a server that answers none of n pings, and no call.
func frozen(pings int) []upstreamtest.Rule {
	return []upstreamtest.Rule{
		{Method: "ping", Hang: true, Times: pings},
		// the first one is the handshake
		{Method: "server/discover", Skip: 1, Hang: true, Times: pings},
	}
}

// TestFrozenServerIsDegraded: a server takes connections and answers nothing. After a call has timed
// out and a ping has, too, calls fail at once, until the server answers a ping.
func TestFrozenServerIsDegraded(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, upstreamtest.Script{Era: era, JSONAnswers: true, Rules: frozen(3)}, Config{Timeout: 10 * time.Second})
				settle(time.Second)
				r.mustHear("ready")
				mustFail(t, <-begun(r.Upstream, toolCall("hang", `{}`, of("ann"))), client.KindTimeout)
				settle(pingPatience - time.Millisecond)
				if s := r.Status(); s.State != StateReady || s.Degraded != 0 {
					t.Errorf("before the ping is given up, the status is %+v", s)
				}
				settle(2 * time.Millisecond)
				s := r.Status()
				if s.State != StateDegraded || s.Degraded != 1 || s.Retry.Before(time.Now()) || s.Advice == "" ||
					!strings.HasPrefix(s.Err, "the server does not answer: a call and pings since ") {
					t.Errorf("after the ping was given up, the status is %+v", s)
				}
				if s.Tools == 0 {
					t.Error("the tools are not listed any more")
				}
				before := r.count("tools/call")
				a := <-begun(r.Upstream, toolCall("echo", `{}`, of("bob")))
				text := mustFail(t, a, client.KindUnavailable)
				if a.took != 0 || !strings.Contains(text, "the server does not answer") || !strings.Contains(text, "the next ping is sent in ") {
					t.Errorf("a call failed after %v with %q, want it at once, with the reason and the time", a.took, text)
				}
				settle(30 * time.Second)
				if n := r.count("tools/call"); n != before {
					t.Errorf("%d calls were sent to find out whether the server answers", n-before)
				}
				if s := r.Status(); s.State != StateReady || s.Degraded != 0 || s.Err != "" || s.Advice != "" || !s.Retry.IsZero() {
					t.Errorf("after a ping was answered, the status is %+v", s)
				}
				r.mustHear("degraded ready")
				mustCall(t, r.Upstream, toolCall("echo", `{}`, of("bob")))
			})
		})
	}
}

// TestWaitingCallsOfAFrozenServerFail: calls wait for a slot of a server that does not answer any more.
// They fail as soon as the server is found out, and not when their turn comes.
func TestWaitingCallsOfAFrozenServerFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{Era: "legacy", JSONAnswers: true, Rules: frozen(0)}, Config{Concurrency: 1,
			Tools: Rules{{Glob: "hang", Rule: Rule{Timeout: 10 * time.Second}}, {Glob: "gate", Rule: Rule{Timeout: time.Hour}}}})
		settle(time.Second)
		mustFail(t, <-begun(r.Upstream, toolCall("hang", `{}`, of("ann"))), client.KindTimeout)
		gated(r, "bob", "g", 1) // it has the only slot, and gets no answer
		waiting := gated(r, "cid", "g", 2)
		settle(pingPatience + time.Millisecond)
		for _, call := range waiting {
			select {
			case res := <-call:
				if text := mustFail(t, res, client.KindUnavailable); !strings.Contains(text, "the server does not answer") {
					t.Errorf("the call that waited = %q, want the reason", text)
				}
			default:
				t.Error("a call still waits for its turn")
			}
		}
		if calls, waits := r.Load(); calls != 1 || waits != 0 {
			t.Errorf("%d calls have a slot and %d wait, want 1 and 0", calls, waits)
		}
		r.server.Release("g")
	})
}

// TestSlowToolClosesNothing: all calls of one tool time out, and the server answers pings. Calls of
// others go on, and the pings are few.
func TestSlowToolClosesNothing(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, upstreamtest.Script{Era: era, JSONAnswers: true}, Config{Timeout: 2 * time.Second})
				settle(time.Second)
				r.mustHear("ready")
				before := r.count("server/discover")
				for range 5 {
					one, two := begun(r.Upstream, toolCall("hang", `{}`, of("ann"))), begun(r.Upstream, toolCall("hang", `{}`, of("bob")))
					mustFail(t, <-one, client.KindTimeout)
					mustFail(t, <-two, client.KindTimeout)
					settle(20 * time.Millisecond)
					mustCall(t, r.Upstream, toolCall("echo", `{}`, of("cid")))
				}
				r.mustHear("")
				if n := r.count("ping") + r.count("server/discover") - before; n != 5 {
					t.Errorf("the server received %d pings after five rounds of two calls that timed out, want 5", n)
				}
			})
		})
	}
}

// TestTwoCallersFreezeSooner: calls of two users in a row leave less time to the ping than two calls of
// one user.
func TestTwoCallersFreezeSooner(t *testing.T) {
	for _, tt := range []struct {
		second string
		after  time.Duration
	}{{"ann", pingPatience}, {"bob", pingHurry}} {
		t.Run(tt.second, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, upstreamtest.Script{Era: "legacy", JSONAnswers: true, Rules: frozen(0)}, Config{Timeout: 10 * time.Second})
				settle(time.Second)
				one, two := begun(r.Upstream, toolCall("hang", `{}`, of("ann"))), begun(r.Upstream, toolCall("hang", `{}`, of(tt.second)))
				mustFail(t, <-one, client.KindTimeout)
				mustFail(t, <-two, client.KindTimeout)
				settle(tt.after - time.Millisecond)
				if s := r.Status(); s.State != StateReady {
					t.Errorf("the status is %+v before %v", s, tt.after)
				}
				settle(2 * time.Millisecond)
				if s := r.Status(); s.State != StateDegraded || !strings.Contains(s.Err, "2 calls in a row") {
					t.Errorf("the status is %+v after %v", s, tt.after)
				}
			})
		})
	}
}

// TestAnswerOfACallEndsDegraded: the server answers a call that was in flight, and no ping.
func TestAnswerOfACallEndsDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{Era: "legacy", JSONAnswers: true, Rules: frozen(0)},
			Config{Tools: Rules{{Glob: "hang", Rule: Rule{Timeout: 10 * time.Second}}}})
		settle(time.Second)
		slow := begun(r.Upstream, toolCall("slow", `{"ms":40000}`, of("bob")))
		mustFail(t, <-begun(r.Upstream, toolCall("hang", `{}`, of("ann"))), client.KindTimeout)
		settle(pingPatience + time.Millisecond)
		r.mustHear("ready degraded")
		if a := <-slow; a.err != nil {
			t.Errorf("the call in flight = %v", a.err)
		}
		r.mustHear("ready")
	})
}

// TestFrozenSessionIsOfOneUser: the session of one user is frozen. Only the calls of this user are
// rejected, because the session that lists the tools answers.
func TestFrozenSessionIsOfOneUser(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole server %v", whole), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rules := frozen(1) // the ping of ann's session; the next one is of the session that lists the tools
				if whole {
					rules = frozen(0)
				}
				r := newRig(t, upstreamtest.Script{Era: "legacy", JSONAnswers: true, Rules: rules},
					Config{Timeout: 10 * time.Second, Isolation: IsolationPrincipal})
				settle(time.Second)
				mustCall(t, r.Upstream, toolCall("echo", `{}`, of("bob")))
				mustFail(t, <-begun(r.Upstream, toolCall("hang", `{}`, of("ann"))), client.KindTimeout)
				synctest.Wait()
				settle(pingPatience + time.Millisecond)
				if !whole {
					mustCall(t, r.Upstream, toolCall("echo", `{}`, of("bob")))
					r.mustHear("ready")
					return
				}
				if s := r.Status(); s.State != StateReady || s.Degraded != 1 {
					t.Errorf("the status is %+v, want one degraded connection", s)
				}
				settle(pingPatience)
				a := <-begun(r.Upstream, toolCall("echo", `{}`, of("bob")))
				mustFail(t, a, client.KindUnavailable)
				if a.took != 0 || r.Status().Degraded != 2 {
					t.Errorf("another user's call took %v; the status is %+v", a.took, r.Status())
				}
				r.mustHear("ready degraded")
			})
		})
	}
}

// TestUnusedFrozenServerIsDegraded: a server without calls does not answer when its lists are
// read again.
func TestUnusedFrozenServerIsDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := append(frozen(0), upstreamtest.Rule{Method: "tools/list", Skip: 1, Hang: true})
		r := newRig(t, upstreamtest.Script{Era: "legacy", Rules: rules, NoListChanged: true}, Config{})
		settle(time.Second)
		r.mustHear("ready")
		settle(6 * time.Minute)
		r.mustHear("degraded")
		if s := r.Status(); !strings.HasPrefix(s.Err, "the server does not answer: pings since ") {
			t.Errorf("the status is %+v", s)
		}
	})
}

// givenUp makes a call that its client cancels after a time.
func givenUp(r *rig, after time.Duration, c *Call) result {
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan result, 1)
	go func() {
		answer, err := r.Call(ctx, c)
		done <- result{text: string(answer.Text()), err: err}
	}()
	settle(after)
	cancel()
	defer synctest.Wait()
	return <-done
}

// questions returns how many requests the server received which find out whether it answers.
func (r *rig) questions() int { return r.count("ping") + r.count("server/discover") }

// TestCancelledCallsFindAFrozenServer: clients cancel their calls before the timeout. The server is asked at
// once, and is degraded when it would be if the call had timed out.
func TestCancelledCallsFindAFrozenServer(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, upstreamtest.Script{Era: era, JSONAnswers: true, Rules: frozen(0)}, Config{Timeout: time.Minute})
				settle(time.Second)
				r.mustHear("ready")
				for i := range 2 {
					before := r.questions()
					mustFail(t, givenUp(r, 25*time.Second, toolCall("hang", `{}`, of("ann"))), client.KindCancelled)
					if n := r.questions() - before; n != 1-i {
						t.Errorf("cancelled call %d caused %d pings, want one for all calls", i, n)
					}
				}
				settle(10*time.Second + pingPatience - time.Millisecond)
				// the first call was cancelled after 25 of 60 seconds, the second one after 25 more
				due := time.Now().Add(time.Millisecond)
				if s := r.Status(); s.State != StateReady || s.Degraded != 0 || s.Awaited != (Awaited{due.Add(-35*time.Second - pingPatience), due}) {
					t.Errorf("before the ping is given up, the status is %+v", s)
				}
				settle(2 * time.Millisecond)
				if s := r.Status(); !s.Awaited.Since.IsZero() {
					t.Errorf("a degraded server has %+v", s.Awaited)
				}
				if s := r.Status(); s.State != StateDegraded || s.Degraded != 1 ||
					!strings.HasPrefix(s.Err, "the server does not answer: 2 calls in a row and pings since ") {
					t.Errorf("after the ping was given up, the status is %+v", s)
				}
			})
		})
	}
}

// TestCancelledCallsOfASlowTool: clients cancel calls of a slow tool, and the server answers pings. It stays
// ready. A call that is cancelled early causes no ping.
func TestCancelledCallsOfASlowTool(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, upstreamtest.Script{Era: era, JSONAnswers: true}, Config{Timeout: time.Minute})
				settle(time.Second)
				r.mustHear("ready")
				for range 3 {
					for after, want := range map[time.Duration]int{giveUpAfter - time.Millisecond: 0, giveUpAfter: 1} {
						before := r.questions()
						mustFail(t, givenUp(r, after, toolCall("hang", `{}`, of("ann"))), client.KindCancelled)
						if n := r.questions() - before; n != want {
							t.Errorf("a call cancelled after %v caused %d pings, want %d", after, n, want)
						}
						settle(2 * time.Minute)
						mustCall(t, r.Upstream, toolCall("echo", `{}`, of("bob")))
					}
				}
				r.mustHear("")
			})
		})
	}
}

// TestCancelledCallOfABusyServer: a server answers no ping while it works on a call that its client has
// cancelled. It stays ready for as long as it would without that, and an answer ends the matter.
func TestCancelledCallOfABusyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{Era: "legacy", JSONAnswers: true, Rules: frozen(0)}, Config{Timeout: time.Minute})
		settle(time.Second)
		r.mustHear("ready")
		waiting := begun(r.Upstream, toolCall("slow", `{"ms":58000}`, of("bob")))
		mustFail(t, givenUp(r, 10*time.Second, toolCall("hang", `{}`, of("ann"))), client.KindCancelled)
		if a := <-waiting; a.err != nil {
			t.Errorf("the call behind the cancelled one = %v", a.err)
		}
		if s := r.Status(); !s.Awaited.Since.IsZero() {
			t.Errorf("a server that has answered has %+v", s.Awaited)
		}
		settle(2 * time.Minute)
		r.mustHear("")
	})
}
