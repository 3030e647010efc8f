package bridge

import (
	"fmt"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/upstreamtest"
)

// unsent is the failure of a tool of the Python SDK that asks by a request in the modern era.
const unsent = "Cannot send 'elicitation/create': this transport context has no back-channel for server-initiated requests."

// failUnsent calls a tool that fails with this text, as an error or as the result of the tool, and
// returns the answer.
func failUnsent(t *testing.T, c *harness.Talker, text string, asResult bool) string {
	t.Helper()
	m := jsonrpc.Message{}
	if asResult {
		m = c.Call(t, "up__echo", fmt.Sprintf(`{"result":{"content":[{"type":"text","text":%q}],"isError":true}}`, text))
	} else {
		m = c.Call(t, "up__fail", fmt.Sprintf(`{"error":{"code":-32600,"message":%q}}`, text))
	}
	return string(m.Append(nil))
}

// TestACommandLearnsToRunTwice: a tool fails because it cannot ask a legacy client. The call is not
// repeated. The next one goes to a second process, which asks. Modern clients stay on the first.
func TestACommandLearnsToRunTwice(t *testing.T) {
	harness.Waits(t)
	for _, asResult := range []bool{false, true} {
		t.Run(fmt.Sprint("as a result: ", asResult), func(t *testing.T) {
			harness.RunPair(t, client.EraLegacy, client.EraBoth, "stdio", func(t *testing.T, p harness.Pair) {
				s, j := harness.Over(t, p, bothEras, nil)
				c := j.TalkToEach(t)[0] // each process of Junction learns by itself
				modern := harness.Talk(t, c.URL, client.EraModern)
				if got := versionOf(t, c); got != harness.ModernVersion {
					t.Fatalf("before, a call reaches the server in %s", got)
				}
				calls := len(s.RequestsOf(t, "tools/call", 1))
				said := failUnsent(t, c, unsent, asResult)
				if !strings.Contains(said, unsent) || !strings.Contains(said, "second process") ||
					!strings.Contains(said, "none of the state of the first") {
					t.Errorf("the failure is %s", said)
				}
				if n := len(s.RequestsOf(t, "tools/call", calls+1)) - calls; n != 1 {
					t.Errorf("the call was made %d times", n)
				}
				if n := len(s.RequestsOf(t, "initialize", 0)); n != 0 {
					t.Errorf("the failure itself has started %d processes", n)
				}
				m, asked := c.Converse(t, harness.Asking(harness.AskForm), harness.AnswersTo)
				wantQuestions(t, asked, harness.AskForm)
				if got := harness.AnswersOf(t, m); got != `[{`+harness.Accepted+`}]` {
					t.Errorf("the upstream was answered %s", got)
				}
				if got := versionOf(t, c); got != harness.LegacyVersion {
					t.Errorf("afterwards, a call reaches the server in %s", got)
				}
				if got := versionOf(t, modern); got != harness.ModernVersion {
					t.Errorf("a call of a modern client reaches the server in %s", got)
				}
				if n := len(s.RequestsOf(t, "initialize", 1)); n != 1 {
					t.Errorf("%d second processes", n)
				}
				if got := j.Status("up").Unasked; got != "" && harness.Processes() == 1 {
					t.Errorf("the state names the line %q, although Junction has learned", got)
				}
			})
		})
	}
}

// TestACommandThatRunsOnlyOnce: the second process does not start. The calls go to the first one,
// and the error of the next failure names the line for one process that can ask.
func TestACommandThatRunsOnlyOnce(t *testing.T) {
	harness.Waits(t)
	harness.RunPair(t, client.EraLegacy, client.EraBoth, "stdio", func(t *testing.T, p harness.Pair) {
		script := bothEras
		script.Rules = append([]upstreamtest.Rule{{Method: "initialize", Die: true}}, script.Rules...)
		_, j := harness.Over(t, p, script, nil)
		c := j.TalkToEach(t)[0]
		failUnsent(t, c, unsent, false)
		if got := versionOf(t, c); got != harness.ModernVersion {
			t.Errorf("the call reaches the server in %s", got)
		}
		if said := failUnsent(t, c, unsent, false); !strings.Contains(said, "era: legacy") ||
			strings.Contains(said, "second process") {
			t.Errorf("the failure is %s, want one that names the line for one process", said)
		}
	})
}
