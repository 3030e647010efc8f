package agents

import (
	"syscall"
	"testing"
)

// each runs a story with every agent.
func each(t *testing.T, play func(t *testing.T, a agent)) {
	mustOptIn(t)
	for _, a := range agents() {
		t.Run(a.name, func(t *testing.T) { play(t, a) })
	}
}

// begin starts Junction with one ready upstream, and an agent.
func begin(t *testing.T, a agent, tools ...string) (*upstream, *program, *run) {
	t.Helper()
	u := startUpstream(t, 0, tools...)
	p := newProgram(t, "upstreams: { "+u.config(t)+" }\n")
	p.start()
	p.mustBeReady()
	return u, p, startAgent(t, a, t.TempDir(), p.url())
}

// TestForeignAgentsCall has each agent call a tool.
func TestForeignAgentsCall(t *testing.T) {
	each(t, func(t *testing.T, a agent) {
		u, _, r := begin(t, a, "echo")
		turn := r.next()
		turn.call("echo", "one")
		turn = r.next()
		turn.expect("echo returns one")
		r.finish(turn)
		if n := u.called("echo"); n != 1 {
			t.Errorf("the tool ran %d times, want once", n)
		}
	})
}

// TestForeignAgentsRestart restarts Junction between two model turns; the next call succeeds.
func TestForeignAgentsRestart(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, a agent) {
				u, p, r := begin(t, a, "echo")
				turn := r.next()
				turn.call("echo", "before")
				turn = r.next()
				turn.expect("echo returns before")
				p.stop(signal)
				p.start()
				turn.call("echo", "after")
				turn = r.next()
				turn.expect("echo returns after")
				r.finish(turn)
				if n := u.called("echo"); n != 2 {
					t.Errorf("the tool ran %d times, want twice", n)
				}
			})
		})
	}
}

// TestForeignAgentsServerDies kills the stdio server before a call; the call succeeds.
func TestForeignAgentsServerDies(t *testing.T) {
	each(t, func(t *testing.T, a agent) {
		u, _, r := begin(t, a, "echo")
		turn := r.next()
		turn.call("echo", "before")
		turn = r.next()
		turn.expect("echo returns before")
		u.mustKill(t)
		turn.call("echo", "after")
		turn = r.next()
		turn.expect("echo returns after")
		r.finish(turn)
		if n := u.called("echo"); n != 2 {
			t.Errorf("the tool ran %d times, want twice", n)
		}
	})
}
