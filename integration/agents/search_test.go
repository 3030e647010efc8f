//go:build linux

package agents

import (
	"fmt"
	"testing"

	"junction/proxy/search"
)

// TestForeignAgentsSearch has each agent work with catalog: search. The agent offers Junction's four
// tools to its model and none of the server. The model finds a tool and calls it; then a tool that
// the server has added meanwhile, which works also with agents that ignore list_changed; then one
// that a person must approve.
func TestForeignAgentsSearch(t *testing.T) {
	each(t, func(t *testing.T, a agent) {
		var tools []string
		for i := range 60 {
			tools = append(tools, fmt.Sprintf("other_%d", i))
		}
		u := startUpstream(t, "up", 0, append(tools, "echo", "guarded")...)
		p := newProgram(t, configOf(t, u)+"policies: [{ name: all, catalog: search, "+
			"rules: [{ ask: { tools: up__guarded } }, { allow: { upstreams: [up] } }] }]\n")
		p.mustServe()
		p.mustBeReady()
		r := startAgent(t, a, t.TempDir(), p)
		turn := r.next()
		for _, name := range search.OwnNames() {
			if !turn.offers(name) {
				t.Errorf("the agent does not offer %s to its model: %q", name, turn.tools)
			}
		}
		if turn.offers("up__echo") {
			t.Errorf("the agent offers a tool that is not listed: %q", turn.tools)
		}
		find := func(tool string) {
			t.Helper()
			turn.callWith(search.ToolName, fmt.Sprintf(`{"query":%q}`, tool))
			turn = r.next()
			turn.expect("up__"+tool, search.Destructive.Tool())
		}
		call := func(tool, text, want string) {
			t.Helper()
			turn.callWith(search.Destructive.Tool(), fmt.Sprintf(`{"name":"up__%s","arguments":{"text":%q}}`, tool, text))
			turn = r.next()
			turn.expect(want)
		}
		find("echo")
		call("echo", "found", "echo returns found")
		u.setTools(append(tools, "echo", "guarded", "arriving")...)
		p.mustOffer(63)
		find("arriving")
		call("arriving", "new", "arriving returns new")
		want, ran := a.refusal, 0
		if want == "" {
			want, ran = "guarded returns approved", 1
		}
		call("guarded", "approved", want)
		r.finish(turn)
		u.ran(t, "arriving", 1)
		u.ran(t, "guarded", ran)
	})
}
