package upstream

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/client"
)

// askingLate is a call that asks on a stream that names no call, once the gate "ask" is open.
var askingLate = `{"gate":"ask",` + onListeningStream[1:]

// TestWindowKeepsItsQuestions: a question that names no call reaches the window whose call causes it, or none.
// A window is a session. Modern clients have none, so two of their calls may be of two windows, also if they
// are of one program.
func TestWindowKeepsItsQuestions(t *testing.T) {
	for name, row := range map[string]struct {
		first, second string // the sessions
		stateful      bool
		same          bool // the calls are of one window
	}{
		"one window":                 {"s", "s", false, true},
		"one window, stateful":       {"s", "s", true, true},
		"two windows":                {"s", "t", false, false},
		"two windows, stateful":      {"s", "t", true, false},
		"a modern window beside it":  {"s", "", false, false},
		"two modern calls":           {"", "", false, false},
		"two modern calls, stateful": {"", "", true, false},
	} {
		yes := row.stateful
		c := Config{Stateful: &yes, Timeout: time.Hour, MaxTimeout: time.Hour}
		t.Run(name+"/question first", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, legacyScript, c)
				synctest.Wait()
				home, p := sessionOf(t, r.Upstream), newThinking()
				call := begun(r.Upstream, toolCall("ask", onListeningStream, session(row.first), peer(p)))
				<-p.asked
				second := begun(r.Upstream, toolCall("whoami", `{}`, session(row.second)))
				synctest.Wait()
				var res result
				select {
				case res = <-second:
					if row.stateful && !row.same {
						t.Error("the call of another window does not wait for its turn")
					}
				default:
					if !row.stateful || row.same {
						t.Error("the call waits, though it can run")
					}
				}
				p.answer <- struct{}{}
				if asked := <-call; asked.err != nil || !strings.Contains(asked.text, "accept") {
					t.Errorf("the call that has asked = %s, %v", asked.text, asked.err)
				}
				if res.text == "" {
					res = <-second
				}
				if at := strings.Contains(res.text, home); res.err != nil || at != (row.same || row.stateful) {
					t.Errorf("the second call = %s, %v; the connection of the first is %s", res.text, res.err, home)
				}
			})
		})
		t.Run(name+"/call first", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, legacyScript, c)
				synctest.Wait()
				p, other := newThinking(), newThinking()
				begins := func() (asks, waits <-chan result) {
					waits = begun(r.Upstream, toolCall("gate", `{"gate":"end"}`, session(row.second), peer(other)))
					synctest.Wait()
					asks = begun(r.Upstream, toolCall("ask", askingLate, session(row.first), peer(p)))
					synctest.Wait()
					return asks, waits
				}
				asks, waits := begins()
				r.server.Release("ask")
				if !row.same {
					if res := <-asks; !strings.Contains(res.text, "several windows") {
						t.Errorf("a question that could be of two windows = %s, %v", res.text, res.err)
					}
					r.server.Release("end")
					<-waits
					// From now on a call of the tool has a connection for itself. With a state it waits for it.
					asks, waits = begins()
					if r.server.Release("ask"); row.stateful {
						synctest.Wait()
						r.server.Release("end")
						<-waits
						waits = nil
					}
				}
				<-p.asked
				p.answer <- struct{}{}
				if res := <-asks; res.err != nil || !strings.Contains(res.text, "accept") {
					t.Errorf("the call that asks = %s, %v", res.text, res.err)
				}
				if len(other.asked) > 0 {
					t.Error("the other call was asked")
				}
				if waits != nil {
					r.server.Release("end")
					<-waits
				}
			})
		})
	}
}

func peer(p client.Peer) func(*Call) { return func(c *Call) { c.Peer = p } }

// TestCallThatDoesNotAskBlocksNobody: a tool that is not known to ask runs beside others on one connection,
// however long it takes.
func TestCallThatDoesNotAskBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yes := true
		r := newRig(t, legacyScript, Config{Stateful: &yes, Timeout: time.Hour, MaxTimeout: time.Hour})
		synctest.Wait()
		home := sessionOf(t, r.Upstream)
		long := begun(r.Upstream, toolCall("gate", `{"gate":"end"}`))
		settle(10 * time.Minute)
		if res := <-begun(r.Upstream, toolCall("whoami", `{}`)); res.took > 0 || !strings.Contains(res.text, home) {
			t.Errorf("beside it a call = %s after %v", res.text, res.took)
		}
		r.server.Release("end")
		<-long
	})
}

// TestCallThatWaitsForItsTurnIsTold: the client hears after a second why its call waits.
func TestCallThatWaitsForItsTurnIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yes := true
		r, p, _, call := askingRig(t, Config{Stateful: &yes})
		heard := make(chan string, 1)
		second := begun(r.Upstream, toolCall("echo", `{}`, peer(hearing{newThinking(), heard})))
		settle(2 * time.Second)
		select {
		case text := <-heard:
			if !strings.Contains(text, "another call of up may ask a person") {
				t.Errorf("it hears %s", text)
			}
		default:
			t.Error("it hears nothing")
		}
		p.answer <- struct{}{}
		<-call
		<-second
	})
}

type hearing struct {
	*thinking
	heard chan string
}

func (h hearing) Notify(_ string, params []byte) { h.heard <- string(params) }

// TestAskersAreForgotten: a tool that has not asked for 20 calls, or for a week, or that has become another
// tool, is not held to ask any more. Each question counts anew.
func TestAskersAreForgotten(t *testing.T) {
	for name, row := range map[string]struct {
		then  func(t *testing.T, r *rig)
		known bool
	}{
		"at once":          {func(*testing.T, *rig) {}, true},
		"after 19 calls":   {func(_ *testing.T, r *rig) { quiet(r, mostSilent-1) }, true},
		"after 20 calls":   {func(_ *testing.T, r *rig) { quiet(r, mostSilent) }, false},
		"asked in between": {func(t *testing.T, r *rig) { quiet(r, 15); ask(t, r); quiet(r, 15) }, true},
		"after six days":   {func(*testing.T, *rig) { time.Sleep(6 * 24 * time.Hour) }, true},
		"after a week":     {func(*testing.T, *rig) { time.Sleep(silentFor) }, false},
		"another tool": {func(_ *testing.T, r *rig) {
			r.Upstream.askers.items[client.Item{Method: "tools/call", Name: "ask"}].definition[0]++
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, legacyScript, Config{Timeout: time.Hour, MaxTimeout: time.Hour})
				synctest.Wait()
				ask(t, r)
				if got := r.Status().Asks; len(got) != 1 || got[0] != "ask" {
					t.Fatalf("known to ask are %q", got)
				}
				row.then(t, r)
				if known := r.askers.ask(toolCall("ask", `{}`), r.Catalog()); known != row.known {
					t.Errorf("the tool is known to ask: %t, want %t", known, row.known)
				}
			})
		})
	}
}

// TestAskersAreBounded: neither many names nor long ones, which clients choose for resources, are kept.
func TestAskersAreBounded(t *testing.T) {
	var a askers
	a.learn([]client.Item{{Method: "resources/read", Name: strings.Repeat("x", mostAskerName+1)}}, &Catalog{})
	if n := len(a.names()); n != 0 {
		t.Errorf("%d names that are too long are kept", n)
	}
	for i := range 2 * mostAskers {
		a.learn([]client.Item{{Method: "resources/read", Name: strings.Repeat("x", i+1)}}, &Catalog{})
	}
	if n := len(a.names()); n != mostAskers {
		t.Errorf("%d names are kept, want %d", n, mostAskers)
	}
}

// ask has the tool ask once.
func ask(t *testing.T, r *rig) {
	t.Helper()
	p := newThinking()
	call := begun(r.Upstream, toolCall("ask", onListeningStream, peer(p)))
	<-p.asked
	p.answer <- struct{}{}
	if res := <-call; res.err != nil {
		t.Fatal(res.err)
	}
}

// quiet calls the tool n times without a question.
func quiet(r *rig, n int) {
	for range n {
		<-begun(r.Upstream, toolCall("ask", `{}`))
	}
}
