//go:build linux

package agents

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// each runs a story with every agent.
func each(t *testing.T, play func(t *testing.T, a agent)) {
	t.Helper()
	mustOptIn(t)
	for _, a := range agents() {
		t.Run(a.name, func(t *testing.T) { play(t, a) })
	}
}

// configOf is a configuration with upstreams.
func configOf(t *testing.T, upstreams ...*upstream) string {
	t.Helper()
	var entries []string
	for _, u := range upstreams {
		entries = append(entries, u.config(t))
	}
	return "upstreams: { " + strings.Join(entries, ", ") + " }\n"
}

// begin starts Junction with one ready upstream, and an agent.
func begin(t *testing.T, a agent, tools ...string) (*upstream, *program, *run) {
	t.Helper()
	u := startUpstream(t, "up", 0, tools...)
	p := newProgram(t, configOf(t, u))
	p.mustServe()
	p.mustBeReady()
	return u, p, startAgent(t, a, t.TempDir(), p)
}

// ran checks how often a tool was executed. The server reports each call beside its answer, so that the
// report may come after what the agent does with the answer.
func (u *upstream) ran(t *testing.T, tool string, want int) {
	t.Helper()
	for end := time.Now().Add(patience); u.called(tool) < want && time.Now().Before(end); {
		runtime.Gosched()
	}
	if n := u.called(tool); n != want {
		t.Errorf("%s ran %d times, want %d", tool, n, want)
	}
}

// TestForeignAgentsCall has each agent call a tool.
func TestForeignAgentsCall(t *testing.T) {
	each(t, func(t *testing.T, a agent) {
		u, _, r := begin(t, a, "echo")
		turn := r.next()
		turn.call("up__echo", "one")
		turn = r.next()
		turn.expect("echo returns one")
		r.finish(turn)
		u.ran(t, "echo", 1)
	})
}

// changeTurns is how many model requests may pass until an agent has read a changed list. The
// result of a call and the list arrive at the agent at the same time, so the next one may be early.
const changeTurns = 3

// TestForeignAgentsToolsChange adds and removes tools between two model turns. The next model
// requests list the new ones and not the old one; a call of the old one is answered clearly.
func TestForeignAgentsToolsChange(t *testing.T) {
	each(t, func(t *testing.T, a agent) {
		u, p, r := begin(t, a, "echo", "leaving")
		turn := r.next()
		if !turn.offers("up__leaving") {
			t.Fatalf("the agent does not offer the first tools to its model: %q", turn.tools)
		}
		u.setTools("echo", "arriving", "another")
		p.mustOffer(3)
		changed := func() bool {
			return turn.offers("up__arriving") && turn.offers("up__another") && (a.keepsRemoved || !turn.offers("up__leaving"))
		}
		n := 0
		for ; n < changeTurns && !changed(); n++ {
			turn.call("up__echo", "again")
			turn = r.next()
			turn.expect("echo returns again")
		}
		if a.ignoresChanges {
			if changed() {
				t.Errorf("%s reads a changed list now: correct the table of agents", a.name)
			}
			r.finish(turn)
			t.Skip("the agent ignores notifications/tools/list_changed")
		}
		if !changed() {
			t.Fatalf("%d model requests after the change the agent offers %q", n, turn.tools)
		}
		t.Logf("the change is in model request %d after it", n)
		turn.call("up__arriving", "new")
		turn = r.next()
		turn.expect("arriving returns new")
		if a.keepsRemoved {
			if !turn.offers("up__leaving") {
				t.Errorf("%s takes out removed tools now: correct the table of agents", a.name)
			}
			turn.call("up__leaving", "gone")
			turn = r.next()
			turn.expect("No such tool available")
			u.ran(t, "leaving", 0)
		}
		r.finish(turn)
		u.ran(t, "arriving", 1)
	})
}

// TestForeignAgentsRestart restarts Junction between two model turns; the next call succeeds.
// The call arrives after the server has listed its tools, or before.
func TestForeignAgentsRestart(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		for _, delay := range []time.Duration{0, time.Second} {
			name := map[syscall.Signal]string{syscall.SIGTERM: "SIGTERM", syscall.SIGKILL: "SIGKILL"}[signal]
			t.Run(fmt.Sprintf("%s, server needs %v", name, delay), func(t *testing.T) {
				each(t, func(t *testing.T, a agent) { restart(t, a, signal, delay) })
			})
		}
	}
}

func restart(t *testing.T, a agent, signal syscall.Signal, delay time.Duration) {
	u, p, r := begin(t, a, "echo")
	turn := r.next()
	turn.call("up__echo", "before")
	turn = r.next()
	turn.expect("echo returns before")
	u.setDelay(delay)
	p.stop(signal)
	p.mustServe()
	if delay == 0 {
		p.mustBeReady()
	}
	turn.call("up__echo", "after")
	turn = r.next()
	turn.expect("echo returns after")
	r.finish(turn)
	u.ran(t, "echo", 2)
}

// TestForeignAgentsServerDies kills the stdio server before a call; the call succeeds.
func TestForeignAgentsServerDies(t *testing.T) {
	each(t, func(t *testing.T, a agent) {
		u, _, r := begin(t, a, "echo")
		turn := r.next()
		turn.call("up__echo", "before")
		turn = r.next()
		turn.expect("echo returns before")
		u.mustKill(t)
		turn.call("up__echo", "after")
		turn = r.next()
		turn.expect("echo returns after")
		r.finish(turn)
		u.ran(t, "echo", 2)
	})
}

// TestForeignAgentsSlowStart starts an agent together with Junction while a server needs 9 s to
// start. The agent sees every tool within its run: at once if Junction has a stored catalog of an
// earlier start, otherwise after the server has listed.
func TestForeignAgentsSlowStart(t *testing.T) {
	for _, stored := range []bool{false, true} {
		t.Run(map[bool]string{false: "first start", true: "stored catalog"}[stored], func(t *testing.T) {
			each(t, func(t *testing.T, a agent) { slowStart(t, a, stored) })
		})
	}
}

func slowStart(t *testing.T, a agent, stored bool) {
	const slow = 9 * time.Second
	up, quick := startUpstream(t, "up", 0, "echo"), startUpstream(t, "quick", 0, "echo")
	p := newProgram(t, configOf(t, up, quick))
	home := t.TempDir()
	if stored {
		p.mustServe()
		p.mustBeReady()
		p.stop(syscall.SIGTERM)
	}
	up.setDelay(slow)
	begun := time.Now()
	p.mustServe()
	r := startAgent(t, a, home, p)
	turn := r.next()
	t.Logf("the first model request comes %.1f s after the start of Junction; it offers the slow server's tool: %t; "+
		"the tool of a quick server: %t", time.Since(begun).Seconds(), turn.offers("up__echo"), turn.offers("quick__echo"))
	if stored && !turn.offers("up__echo") {
		t.Errorf("Junction has a stored catalog, and the first model request offers %q", turn.tools)
	}
	if !turn.offers("up__echo") {
		p.mustBeReady()
	}
	n := 0
	for ; n < changeTurns && !turn.offers("up__echo"); n++ {
		turn.pass()
		turn = r.next()
	}
	t.Logf("model request %d after the server has listed offers its tool: %t; the tool of a quick server: %t",
		n, turn.offers("up__echo"), turn.offers("quick__echo"))
	if !turn.offers("up__echo") {
		if a.ignoresChanges && !stored {
			r.finish(turn)
			t.Skipf("the server needs longer than catalog.first_wait, and the agent ignores notifications/tools/list_changed")
		}
		t.Fatalf("%d model requests after the server has listed, the agent offers %q", n, turn.tools)
	}
	turn.call("up__echo", "slowly")
	turn = r.next()
	turn.expect("echo returns slowly")
	r.finish(turn)
	up.ran(t, "echo", 1)
}
