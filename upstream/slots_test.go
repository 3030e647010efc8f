package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// of makes a call that of a principal.
func of(principal string) func(*Call) {
	return func(c *Call) { c.Principal, c.Account = principal, principal }
}

// gated begins n calls of a principal that the server answers when the gate opens.
func gated(r *rig, principal, gate string, n int) (calls []<-chan result) {
	for range n {
		calls = append(calls, begun(r.Upstream, toolCall("gate", `{"gate":"`+gate+`"}`, of(principal))))
		synctest.Wait()
	}
	return calls
}

// eachScript runs a test with a server of either era.
func eachScript(t *testing.T, f func(t *testing.T, script upstreamtest.Script)) {
	for name, script := range map[string]upstreamtest.Script{"legacy": legacyScript, "modern": {Era: "modern"}} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, script) }) })
	}
}

// TestSlotsAreShared: one principal makes as many calls as it likes, and the server
// answers none of them. It uses half of the slots, and others call meanwhile, each with half of
// what is left.
func TestSlotsAreShared(t *testing.T) {
	eachScript(t, func(t *testing.T, script upstreamtest.Script) {
		r := newRig(t, script, Config{Separate: true, Concurrency: 8})
		synctest.Wait()
		hog := gated(r, "hog", "g", 20)
		if n := r.count("tools/call"); n != 4 {
			t.Errorf("%d calls of one principal are with the server, want half of 8", n)
		}
		mustCall(t, r.Upstream, toolCall("echo", `{}`, of("other")))
		other := gated(r, "other", "g", 5)
		if n := r.count("tools/call") - 5; n != 2 { // 4 and the echo are there
			t.Errorf("%d calls of a second principal are with the server, want half of the other 4", n)
		}
		mustCall(t, r.Upstream, toolCall("echo", `{}`, of("third")))
		for range len(hog) + len(other) {
			r.server.Release("g")
			synctest.Wait()
		}
		for _, call := range append(hog, other...) {
			if res := <-call; res.err != nil {
				t.Errorf("a call that waited for its turn = %v", res.err)
			}
		}
	})
}

// TestWaitingCallsTakeTurns: a server takes one call at once. One principal has ten calls wait
// when two others send one each: these are next but one.
func TestWaitingCallsTakeTurns(t *testing.T) {
	eachScript(t, func(t *testing.T, script upstreamtest.Script) {
		r := newRig(t, script, Config{Separate: true, Concurrency: 1, Timeout: time.Hour})
		synctest.Wait()
		hog := gated(r, "hog", "g", 11)
		second, third := gated(r, "second", "g", 1)[0], gated(r, "third", "g", 1)[0]
		for range 4 {
			r.server.Release("g")
			synctest.Wait()
		}
		for name, call := range map[string]<-chan result{"second": second, "third": third} {
			select {
			case res := <-call:
				if res.err != nil {
					t.Errorf("the call of the %s = %v", name, res.err)
				}
			default:
				t.Errorf("four calls were answered, and that of the %s is not among them", name)
			}
		}
		for range 9 {
			r.server.Release("g")
			synctest.Wait()
		}
		for _, call := range hog {
			if res := <-call; res.err != nil {
				t.Errorf("a call that waited for its turn = %v", res.err)
			}
		}
	})
}

// TestWaitingCallKeepsItsTimeout: a call that has waited for its turn has all of its time, since the
// server did not know of it.
func TestWaitingCallKeepsItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, legacyScript, Config{Separate: true, Concurrency: 1, Timeout: 10 * time.Second})
		synctest.Wait()
		first := gated(r, "hog", "g", 1)[0]
		second := begun(r.Upstream, toolCall("slow", `{"ms":8000}`, of("other")))
		settle(6 * time.Second)
		r.server.Release("g")
		if a, b := <-first, <-second; a.err != nil || b.err != nil {
			t.Errorf("the calls = %v, %v", a.err, b.err)
		}
	})
}

// TestOnlyUserHasAllSlots: where there is one principal, or none, nothing is held back for
// others.
func TestOnlyUserHasAllSlots(t *testing.T) {
	for name, change := range map[string]func(*Call){"a program of the local user": func(c *Call) { c.Account = "local (a program)" }, "the only key": of("key:me")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, legacyScript, Config{Concurrency: 4})
				synctest.Wait()
				var calls []<-chan result
				for range 4 {
					calls = append(calls, begun(r.Upstream, toolCall("gate", `{"gate":"g"}`, change)))
				}
				synctest.Wait()
				if n := r.count("tools/call"); n != 4 {
					t.Errorf("%d calls are with the server, want 4", n)
				}
				for _, call := range calls {
					r.server.Release("g")
					<-call
				}
			})
		})
	}
}

// TestAbandonedCallsCount: a client that begins calls and gives them up has no more of them with
// the server than one that waits, until their time is over.
func TestAbandonedCallsCount(t *testing.T) {
	eachScript(t, func(t *testing.T, script upstreamtest.Script) {
		r := newRig(t, script, Config{Separate: true, Concurrency: 16, Timeout: time.Minute})
		synctest.Wait()
		try := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := r.Call(ctx, toolCall("hang", `{}`, of("hog")))
			return err
		}
		for range 30 {
			if err := try(); err == nil {
				t.Fatal("a call that was given up has an answer")
			}
		}
		if n := r.count("tools/call"); n != 8 {
			t.Errorf("30 calls were given up, and %d of them reached the server, want 8", n)
		}
		if got := try().Error(); !strings.Contains(got, "its whole share of the 16 calls") {
			t.Errorf("one more = %s, want the share named", got)
		}
		mustCall(t, r.Upstream, toolCall("echo", `{}`, of("other")))
		settle(time.Minute)
		mustCall(t, r.Upstream, toolCall("echo", `{}`, of("hog")))
		if used, n := r.slots.Load(); n != 0 || used != 0 {
			t.Errorf("%d calls wait and %d slots are used at the end", n, used)
		}
	})
}

// TestFewAbandonedCallsHarmNobody: a person who gives up a call can make the next one at
// once, also where the server takes one at a time.
func TestFewAbandonedCallsHarmNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, legacyScript, Config{Separate: true, Concurrency: 1, Timeout: time.Minute})
		synctest.Wait()
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := r.Call(ctx, toolCall("hang", `{}`, of("me"))); err == nil {
				t.Error("a call that was given up has an answer")
			}
			cancel()
			if res := <-begun(r.Upstream, toolCall("echo", `{}`, of("me"))); res.err != nil || res.took > time.Second {
				t.Errorf("the next call = %v after %v, want an answer at once", res.err, res.took)
			}
		}
	})
}

// frugal is a client that has so much memory for answers.
type frugal struct {
	left, asked int64
}

func (f *frugal) Notify(string, []byte) {}
func (f *frugal) Ask(context.Context, *client.ServerRequest) ([]byte, error) {
	return nil, errors.New("it is asked nothing")
}
func (f *frugal) Reserve(n int64) error {
	if f.asked += n; f.asked > f.left {
		return errNoMemory
	}
	return nil
}

var errNoMemory = errors.New("there is no memory for it")

// TestAnswersNeedMemory: a large answer is read only as far as its client has memory for it,
// also where the server does not say how large it is, or sends an event.
func TestAnswersNeedMemory(t *testing.T) {
	eachScript(t, func(t *testing.T, script upstreamtest.Script) {
		for _, events := range []bool{false, true} {
			script.JSONAnswers, script.Resumable = !events, events
			r := newRig(t, script, Config{})
			synctest.Wait()
			call := func(f *frugal, size int) result {
				return <-begun(r.Upstream, toolCall("big", fmt.Sprintf(`{"n":%d}`, size), func(c *Call) { c.Peer = f }))
			}
			small, enough, little := &frugal{}, &frugal{left: 8 << 20}, &frugal{left: 1 << 20}
			if res := call(small, 1000); res.err != nil || small.asked != 0 {
				t.Errorf("events %t: a small answer = %v, and asks for %d bytes", events, res.err, small.asked)
			}
			if res := call(enough, 2<<20); res.err != nil || enough.asked < 2<<20 {
				t.Errorf("events %t: an answer of 2 MiB = %v, and asks for %d bytes", events, res.err, enough.asked)
			}
			others := gated(r, "other", "g", 2)
			synctest.Wait()
			res := call(little, 4<<20)
			if mustFail(t, res, client.KindBusy); !errors.Is(res.err, errNoMemory) {
				t.Errorf("events %t: an answer of 4 MiB where there is memory for 1 = %v", events, res.err)
			}
			mustCall(t, r.Upstream, toolCall("echo", `{}`))
			for _, other := range others {
				r.server.Release("g")
				if res := <-other; res.err != nil {
					t.Errorf("events %t: a call of another caller ends with an answer that has no memory: %v", events, res.err)
				}
			}
		}
	})
}
