package agents

import "testing"

// TestForeignAgentsApproval has each agent call a tool that a policy lets a person approve first.
// Claude Code has a hook that answers in place of a person. The model of any other agent reads why
// the call was not made.
func TestForeignAgentsApproval(t *testing.T) {
	each(t, func(t *testing.T, a agent) {
		u := startUpstream(t, "up", 0, "echo", "guarded")
		p := newProgram(t, configOf(t, u)+
			"policies: [{ name: people, rules: [{ ask: { tools: up__guarded } }, { allow: { upstreams: [up] } }] }]\n")
		p.start()
		p.mustBeReady()
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
