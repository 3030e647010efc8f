package safety

import (
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// The answers that cover more than one call, by era.
func wider(era client.Era) (tool, server string) {
	lasts := " for one hour"
	if era == client.EraLegacy {
		lasts = " until this session ends"
	}
	return "Allow any call of this tool" + lasts, "Allow any call of any tool of this server" + lasts
}

const spans = `
- name: all
  rules:
    - { ask: { tools: up__echo, where: { text: "rm*" } }, remember: call }
    - { ask: { tools: up__echo }, remember: tool }
    - { ask: { tools: up__echo, where: { text: "one*" } }, remember: once }
    - { ask: { upstreams: rest, resources: "*" }, remember: call }
    - { ask: { upstreams: rest, tools: "*" }, remember: server }
    - allow: { upstreams: "*" }
`

// TestApprovalCoversWhatTheFormSays has a user allow a tool, and then a server: no other call is made
// without a question, and no rule that permits less is lifted.
func TestApprovalCoversWhatTheFormSays(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "a remembered approval of a modern client holds in one process")
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s, rest := p.Serve(t, upstreamtest.Script{}), p.Serve(t, upstreamtest.Script{})
		guard, keys := harness.Keyring(t, "ann", "bob")
		setup := harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config, "rest": rest.Config},
			Guard: guard, Policy: harness.MustPolicy(t, spans)}
		j := harness.Start(t, p, setup)
		j.Offers(t, "up", "rest")
		tool, server := wider(p.Client)
		ann := j.As(t, keys["ann"])
		// asked returns the choices of the form, or none if the call was made without one.
		asked := func(c *harness.Talker, name, arguments, choice string) []string {
			t.Helper()
			m, questions := c.Converse(t, harness.Called(name, arguments), approval(choice))
			if m.Error != nil {
				t.Errorf("the call of %s is answered %s", name, m.Append(nil))
			}
			if len(questions) == 0 {
				return nil
			}
			var choices []string
			list, _ := raw.Parse(questions[0].Params)
			for _, name := range []string{"requestedSchema", "properties", "answer"} {
				list, _ = list.Object(name)
			}
			text, err := list.Get("enum")
			if err != nil {
				t.Fatal(err)
			}
			for choice := range strings.SplitSeq(strings.Trim(string(text), `[]"`), `","`) {
				choices = append(choices, choice)
			}
			return choices
		}
		const once, call, no = "Allow once", "Allow and remember for this exact call", "Do not allow"
		for _, step := range []struct {
			what, tool, arguments, choice string
			want                          []string
		}{
			{"a choice that is not offered", "up__echo", `{"text":"a"}`, server, []string{once, call, tool, no}},
			{"the tool", "up__echo", `{"text":"a"}`, tool, []string{once, call, tool, no}},
			{"another call of it", "up__echo", `{"text":"b"}`, no, nil},
			{"a call that a rule lets approve alone", "up__echo", `{"text":"rm x"}`, call, []string{once, call, no}},
			{"that call again", "up__echo", `{"text":"rm x"}`, no, nil},
			{"a similar call", "up__echo", `{"text":"rm y"}`, tool, []string{once, call, no}},
			{"the similar call again", "up__echo", `{"text":"rm y"}`, no, []string{once, call, no}},
			{"a call that is never remembered", "up__echo", `{"text":"one"}`, once, []string{once, no}},
			{"that call again", "up__echo", `{"text":"one"}`, call, []string{once, no}},
			{"a tool of the same name elsewhere", "rest__echo", `{"text":"a"}`, no, []string{once, call, tool, server, no}},
			{"the server", "rest__echo", `{"text":"a"}`, server, []string{once, call, tool, server, no}},
			{"another tool of it", "rest__progress", `{}`, no, nil},
		} {
			if got := asked(ann, step.tool, step.arguments, step.choice); !slices.Equal(got, step.want) {
				t.Errorf("%s: the form offers %q, want %q", step.what, got, step.want)
			}
		}
		// Another principal, another endpoint, and in the legacy era another session are asked.
		bob := j.As(t, keys["bob"])
		if got := asked(bob, "up__echo", `{"text":"a"}`, no); got == nil {
			t.Error("what ann has approved covers a call of bob")
		}
		if p.Client == client.EraLegacy {
			if got := asked(j.As(t, keys["ann"]), "up__echo", `{"text":"a"}`, no); got == nil {
				t.Error("what was approved in one session covers a call in another")
			}
		}
		// The operator takes it back by a rule that permits less.
		setup.Policy = harness.MustPolicy(t, strings.ReplaceAll(spans, "remember: tool", "remember: call"))
		j.Apply(setup)
		if got := asked(ann, "up__echo", `{"text":"c"}`, no); !slices.Equal(got, []string{once, call, no}) {
			t.Errorf("after the policy has changed the form offers %q", got)
		}
	})
}

// TestApprovalIsOfTheToolThatWasShown has a server change a tool while a user reads the form, who then
// allows any call of it: nothing is allowed of the tool as it is now.
func TestApprovalIsOfTheToolThatWasShown(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "a remembered approval of a modern client holds in one process")
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		s.Config.Isolation = upstream.IsolationShared // a second process would have the old tool
		guard, keys := harness.Keyring(t, "ann")
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard,
			Policy: harness.MustPolicy(t, spans)})
		j.Offers(t, "up")
		s.Listened(t, p)
		ann := j.As(t, keys["ann"])
		tool, _ := wider(p.Client)
		changed := false
		change := func(q harness.ServerRequest) string {
			if changed {
				return approval("Do not allow")(q)
			}
			s.Set(t, "tools/list", harness.ToolTexts(`{"name":"echo","description":"other","inputSchema":{"type":"object"}}`))
			j.Until(t, "the changed tool", func() bool {
				tools, _ := ann.List(t, "")
				changed = len(tools) == 1 && strings.Contains(string(tools[0]), "other")
				return changed
			})
			return approval(tool)(q)
		}
		if _, asked := ann.Converse(t, harness.Called("up__echo", `{"text":"a"}`), change); len(asked) == 0 || !changed {
			t.Fatalf("%d questions, changed: %t", len(asked), changed)
		}
		m, asked := ann.Converse(t, harness.Called("up__echo", `{"text":"b"}`), change)
		if len(asked) != 1 {
			t.Errorf("a call of the changed tool asks %d questions, and is answered %s; want one question", len(asked), m.Append(nil))
		}
	})
}

// TestApprovalOfACallIsForItsServerAndApp: "this exact call" is not remembered for another server that the
// file gives the name, nor, in the modern era, for another app of the same user.
func TestApprovalOfACallIsForItsServerAndApp(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "each process remembers its own approvals")
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		first, second := p.Serve(t, upstreamtest.Script{}), p.Serve(t, upstreamtest.Script{})
		if len(second.Config.Command) > 0 {
			second.Config.Dir = t.TempDir() // the command of both is this program
		}
		guard, keys := harness.Keyring(t, "ann")
		setup := harness.Setup{Upstreams: map[string]upstream.Config{"up": first.Config}, Guard: guard,
			Policy: harness.MustPolicy(t, "- { name: all, rules: [ { ask: { upstreams: up } }, { allow: { upstreams: \"*\" } } ] }\n")}
		j := harness.Start(t, p, setup)
		j.Offers(t, "up")
		ann := j.As(t, keys["ann"])
		asked := func(c *harness.Talker, choice string) int {
			_, questions := c.Converse(t, harness.Called("up__echo", `{"text":"a"}`), approval(choice))
			return len(questions)
		}
		if once, again := asked(ann, "Allow and remember for this exact call"), asked(ann, "Do not allow"); once != 1 || again != 0 {
			t.Fatalf("the user is asked %d times, and then %d times, want 1 and 0", once, again)
		}
		if p.Client == client.EraModern {
			other := j.As(t, keys["ann"])
			other.Name = "another-app"
			if asked(other, "Do not allow") != 1 {
				t.Error("the user is not asked about the call of another app")
			}
		}
		setup.Upstreams = map[string]upstream.Config{"up": second.Config}
		j.Apply(setup)
		j.Offers(t, "up")
		if asked(ann, "Do not allow") != 1 {
			t.Error("the user is not asked about the call to another server")
		}
		for _, r := range second.Received() {
			if r.Message.Method == "tools/call" {
				t.Errorf("the other server gets %s", r.Message.Params)
			}
		}
	})
}

// TestAnswerAboutAToolIsAcceptedAtEachReplica: the answer to a form that offers a whole tool ends the
// questions about the call, also if another replica has made the form.
func TestAnswerAboutAToolIsAcceptedAtEachReplica(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
			Policy: harness.MustPolicy(t, "- { name: all, rules: [ { ask: { upstreams: up }, remember: tool }, { allow: { upstreams: \"*\" } } ] }\n")})
		j.Offers(t, "up")
		tool, _ := wider(p.Client)
		m, questions := j.Talk(t).Converse(t, harness.Called("up__echo", `{"text":"a"}`), approval(tool))
		if m.Error != nil || len(questions) != 1 {
			t.Errorf("after %d questions the call is answered %s, want one question", len(questions), m.Append(nil))
		}
	})
}
