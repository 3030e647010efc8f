//go:build linux

package agents

import "testing"

// guarded starts Junction with a tool that a person must approve, and one that needs no approval.
func guarded(t *testing.T) (*upstream, *program) {
	t.Helper()
	u := startUpstream(t, "up", 0, "echo", "guarded")
	p := newProgram(t, configOf(t, u)+
		"policies: [{ name: people, rules: [{ ask: { tools: up__guarded } }, { allow: { upstreams: [up] } }] }]\n")
	p.mustServe()
	p.mustBeReady()
	return u, p
}

// TestForeignAgentsApproval has each agent call a tool that a person must approve, without a person
// at a terminal. Claude Code has a hook that answers in place of a person. The model of any other
// agent reads why the call was not made.
func TestForeignAgentsApproval(t *testing.T) {
	each(t, func(t *testing.T, a agent) {
		u, p := guarded(t)
		r := startAgent(t, a, t.TempDir(), p)
		turn := r.next()
		turn.call("up__guarded", "approved")
		turn = r.next()
		if a.refusal == "" {
			turn.expect("guarded returns approved")
			u.ran(t, "guarded", 1)
		} else {
			turn.expect(a.refusal)
			u.ran(t, "guarded", 0)
		}
		turn.call("up__echo", "unguarded")
		turn = r.next()
		turn.expect("echo returns unguarded")
		r.finish(turn)
	})
}

// TestForeignAgentsApprovalAtATerminal has a person at a terminal approve a call. The person reads
// Junction's question on the screen and chooses the first answer.
func TestForeignAgentsApprovalAtATerminal(t *testing.T) {
	each(t, func(t *testing.T, a agent) {
		if a.questions == nil {
			t.Skip(a.unasked)
		}
		u, p := guarded(t)
		m := startModel(t, a.wire)
		term := startTerminal(t, a, newMachine(t, t.TempDir(), m, p))
		turn := m.next(t, nil)
		turn.call("up__guarded", "approved")
		for _, question := range a.questions {
			term.mustAnswer(question)
		}
		turn = m.next(t, nil)
		turn.expect("guarded returns approved")
		u.ran(t, "guarded", 1)
		turn.say("All calls are made.")
		term.mustShow("All calls are made.")
	})
}
