package upstream

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// thinking is a client whose person answers when the test lets them.
type thinking struct{ asked, answer chan struct{} }

func newThinking() *thinking { return &thinking{make(chan struct{}, 1), make(chan struct{})} }

func (p *thinking) Notify(string, []byte) {}

func (p *thinking) Ask(ctx context.Context, _ *client.ServerRequest) ([]byte, error) {
	p.asked <- struct{}{}
	select {
	case <-p.answer:
		return []byte(`{"action":"accept","content":{}}`), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

const onListeningStream = `{"on":"get","questions":[{"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}]}`

// askingRig has one call ask its person on a stream that does not name the call.
func askingRig(t *testing.T, c Config) (r *rig, p *thinking, first string, call <-chan result) {
	c.Timeout, c.MaxTimeout = time.Hour, time.Hour
	r = newRig(t, legacyScript, c)
	synctest.Wait()
	first, p = sessionOf(t, r.Upstream), newThinking()
	call = begun(r.Upstream, toolCall("ask", onListeningStream, func(c *Call) { c.Peer = p }))
	<-p.asked
	return r, p, first, call
}

// TestForeignTurnsSecondConnection: while a person is asked, another call gets a connection of its
// own. Afterwards the first one serves all again.
func TestForeignTurnsSecondConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p, first, call := askingRig(t, Config{})
		if second := sessionOf(t, r.Upstream); second == first {
			t.Error("the second call shares the connection of the one that asks")
		}
		p.answer <- struct{}{}
		if res := <-call; res.err != nil {
			t.Errorf("the call that has asked = %v", res.err)
		}
		if third := sessionOf(t, r.Upstream); third != first {
			t.Error("after the answer, a call does not use the first connection")
		}
		settle(10 * time.Minute)
		if n := r.Status().Links; n != 1 {
			t.Errorf("%d connections later, want 1", n)
		}
	})
}

// TestForeignTurnsOfAState: while a person is asked, another call to a server with a state waits, because a
// second connection would have another state.
func TestForeignTurnsOfAState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yes := true
		r, p, first, call := askingRig(t, Config{Stateful: &yes})
		second := make(chan string, 1)
		go func() { second <- sessionOf(t, r.Upstream) }()
		synctest.Wait()
		select {
		case <-second:
			t.Error("the second call does not wait")
		default:
		}
		p.answer <- struct{}{}
		if res := <-call; res.err != nil {
			t.Errorf("the call that has asked = %v", res.err)
		}
		if got := <-second; got != first {
			t.Error("the second call has another state")
		}
	})
}

// TestForeignTurns: a server that cannot be connected a second time, or hangs when it is, has calls
// take turns on the first connection.
func TestForeignTurns(t *testing.T) {
	for name, rule := range map[string]upstreamtest.Rule{
		"refuses": {Method: "initialize", Error: []byte(`{"code":-32603,"message":"the port is taken"}`)},
		"hangs":   {Method: "initialize", Hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, p, first, call := askingRig(t, Config{})
				r.server.AddRules(rule)
				waits := begun(r.Upstream, toolCall("whoami", `{}`))
				settle(5 * time.Second)
				select {
				case res := <-waits:
					t.Fatalf("the second call = %+v, want it to wait", res)
				default:
				}
				p.answer <- struct{}{}
				<-call
				if res := <-waits; res.err != nil || res.took > 6*time.Second {
					t.Errorf("the second call = %v after %v, want a result at once after the first", res.err, res.took)
				}
				if got := sessionOf(t, r.Upstream); got != first {
					t.Error("later calls do not use the first connection")
				}
			})
		})
	}
}

// TestForeignTurnsOneAttempt: a second connection that has failed is not tried for each call, but
// again after a minute.
func TestForeignTurnsOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p, _, call := askingRig(t, Config{})
		r.server.AddRules(upstreamtest.Rule{Method: "initialize", Error: []byte(`{"code":-32603,"message":"the port is taken"}`)})
		connecting := func() int { return r.count("initialize") }
		if res := <-begun(r.Upstream, toolCall("echo", `{}`)); res.err != nil {
			t.Fatal(res.err)
		}
		tried := connecting()
		<-begun(r.Upstream, toolCall("echo", `{}`))
		if n := connecting(); n != tried {
			t.Errorf("the second call tried to connect %d times more", n-tried)
		}
		settle(stayOneFor)
		<-begun(r.Upstream, toolCall("echo", `{}`))
		if connecting() == tried {
			t.Error("no connection is tried after a minute, so that a server that can run twice by then is never used")
		}
		p.answer <- struct{}{}
		<-call
	})
}

// TestForeignTurnsEnd: a call does not wait for ever for a person of another call who does not
// answer: neither where the server runs once, nor where all connections are in use.
func TestForeignTurnsEnd(t *testing.T) {
	for name, c := range map[string]Config{"runs once": {}, "max_links": {MaxLinks: 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, p, _, call := askingRig(t, c)
				r.server.AddRules(upstreamtest.Rule{Method: "initialize", Error: []byte(`{"code":-32603,"message":"taken"}`)})
				if res := <-begun(r.Upstream, toolCall("echo", `{}`)); res.err != nil || res.took > turnPatience+time.Second {
					t.Errorf("the second call = %v after %v, want a result after %v at most", res.err, res.took, turnPatience)
				}
				p.answer <- struct{}{}
				<-call
			})
		})
	}
}
