package foreign

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/npm"
)

// asked is what the command ask of a foreign client prints.
type asked struct {
	Era       string
	Questions []question
	Result    npm.ToolResult
}

// question is a question that a foreign client was asked.
type question struct {
	Method string
	Params struct {
		Mode    string          `json:"mode"`
		Message string          `json:"message"`
		URL     string          `json:"url"`
		Schema  json.RawMessage `json:"requestedSchema"`
		System  string          `json:"systemPrompt"`
		Samples json.RawMessage `json:"messages"`
	}
}

// mustAsk has a client that can be asked everything call a tool.
func mustAsk(t testing.TB, c npm.Client, url, tool, arguments string) asked {
	t.Helper()
	var a asked
	if err := c.Run(t, &a, url, "ask", tool, arguments); err != nil {
		t.Fatal(err)
	}
	return a
}

// check compares what a client was asked and got with what a client of the server itself is asked
// and gets. Only the message that a person reads may be longer: it says which upstream asks.
func (got asked) check(t *testing.T, upstream string, want asked) {
	t.Helper()
	if got.Result.IsError != want.Result.IsError || got.Result.Text() != want.Result.Text() {
		t.Errorf("the result is %q (isError %v), want %q (%v)", got.Result.Text(), got.Result.IsError, want.Result.Text(),
			want.Result.IsError)
	}
	if len(got.Questions) != len(want.Questions) {
		t.Fatalf("it was asked %d questions, want %d: %+v", len(got.Questions), len(want.Questions), got.Questions)
	}
	// Questions that are asked together come in any order.
	byMethod := func(a, b question) int { return strings.Compare(a.Method, b.Method) }
	slices.SortStableFunc(got.Questions, byMethod)
	for i, w := range slices.SortedStableFunc(slices.Values(want.Questions), byMethod) {
		g := got.Questions[i]
		if g.Method != w.Method || g.Params.URL != w.Params.URL || g.Params.System != w.Params.System ||
			(g.Params.Mode == "url") != (w.Params.Mode == "url") {
			t.Errorf("question %d is %+v, want %+v", i, g, w)
		}
		if m := g.Params.Message; !strings.Contains(m, w.Params.Message) ||
			w.Params.Message != "" && !strings.Contains(m, upstream) {
			t.Errorf("the message of question %d is %q, want %q and the name %s", i, m, w.Params.Message, upstream)
		}
		for what, pair := range map[string][2]json.RawMessage{"schema": {g.Params.Schema, w.Params.Schema},
			"messages": {g.Params.Samples, w.Params.Samples}} {
			if (pair[0] == nil) != (pair[1] == nil) || pair[0] != nil && !harness.SameJSON(t, pair[0], pair[1]) {
				t.Errorf("the %s of question %d is\n%s\nwant\n%s", what, i, pair[0], pair[1])
			}
		}
	}
}

// TestForeignQuestions has clients that others wrote, of both eras, answer what servers that others
// wrote ask, of both eras and over every wire.
func TestForeignQuestions(t *testing.T) {
	defer harness.Computes(t)()
	npm.MustFolder(t)
	reference := mustBuildReference(t)
	everything, modern := npm.MustServe(t, "streamableHttp"), mustServeReference(t)
	p := harness.MustProgram(t, fmt.Sprintf(`upstreams:
  every-http: {url: %q, questions: exact}
  every-sse: {transport: sse, url: %q, questions: exact}
  every-stdio: {%s, questions: exact}
  ref-http: {url: %q, era: modern}
  ref-stdio: {command: [%q], era: modern}
`, everything, npm.MustServe(t, "sse"), node(t, "server-everything", "stdio"), modern, reference))
	for _, u := range p.MustReady(t, harness.Patience).Upstreams {
		if want := map[bool]string{true: "legacy", false: "modern"}[strings.HasPrefix(u.Name, "every-")]; u.Era != want {
			t.Fatalf("upstream %+v, want the %s era", u, want)
		}
	}
	clients := sdkClients(t)
	legacy, newest := clients[0].Kept(t), clients[len(clients)-1].Kept(t)
	if legacy.Modern || !newest.Modern {
		t.Fatalf("the clients are %+v, want a legacy one first and a modern one last", clients)
	}
	servers := []struct {
		upstreams []string
		direct    npm.Client // speaks to the server itself
		url       string
		calls     [][2]string
	}{
		{[]string{"every-http", "every-sse", "every-stdio"}, legacy, everything, [][2]string{
			{"get-roots-list", `{}`}, // first: it asks once in a connection, and soon after the beginning without being called
			{"trigger-elicitation-request", `{}`},
			{"trigger-url-elicitation", `{"url":"https://example.com/sign-in","elicitationId":"e1"}`},
			{"trigger-sampling-request", `{"prompt":"What is the capital of France?"}`},
		}},
		{[]string{"ref-http", "ref-stdio"}, newest, modern, [][2]string{
			{"test_input_required_result_elicitation", `{}`},
			{"test_input_required_result_sampling", `{}`},
			{"test_input_required_result_list_roots", `{}`},
			{"test_input_required_result_multiple_inputs", `{}`},
			{"test_input_required_result_multi_round", `{}`},
			{"test_input_required_result_request_state", `{}`},
		}},
	}
	for _, s := range servers {
		ask := func(t *testing.T, c npm.Client, url string, call [2]string) asked {
			t.Helper()
			a := mustAsk(t, c, url, call[0], call[1])
			if s.url == everything { // it also asks for roots uncalled, which falls into a call that takes long enough
				called := call[0] == "get-roots-list"
				a.Questions = slices.DeleteFunc(a.Questions, func(q question) bool {
					first := called
					if q.Method == "roots/list" {
						called = false
					}
					return q.Method == "roots/list" && !first
				})
			}
			return a
		}
		want := map[string]asked{}
		for _, call := range s.calls {
			a := ask(t, s.direct, s.url, call)
			if len(a.Questions) == 0 {
				t.Fatalf("%s asks %s nothing when it is called directly: %+v", call[0], s.direct.Name, a.Result)
			}
			want[call[0]] = a
		}
		for _, up := range s.upstreams {
			t.Run(up, func(t *testing.T) {
				defer harness.Computes(t)()
				for _, call := range s.calls {
					for _, c := range []npm.Client{legacy, newest} {
						// one after the other: a question during two calls may be refused
						t.Run(call[0]+"/"+c.Name, func(t *testing.T) {
							got := ask(t, c, p.URL+"/"+up, call)
							if got.Era != c.Era() {
								t.Errorf("the client speaks the %s era, want %s", got.Era, c.Era())
							}
							got.check(t, up, want[call[0]])
						})
					}
				}
			})
		}
	}
}

// TestForeignRootsOfASession: server-everything offers get-roots-list to clients with roots. With
// isolation: session, a client sees it in its first list, and the server gets the roots of that client.
func TestForeignRootsOfASession(t *testing.T) {
	defer harness.Computes(t)()
	p := harness.MustProgram(t, fmt.Sprintf("catalog: {first_wait: 20s}\nupstreams:\n  stdio: {%s, isolation: session}\n  http: {url: %q, isolation: session}\n",
		node(t, "server-everything", "stdio"), npm.MustServe(t, "streamableHttp")))
	p.MustReady(t, harness.Patience)
	for _, up := range []string{"stdio", "http"} {
		var used struct {
			Tools   []string
			Results []struct {
				Result npm.ToolResult
			}
		}
		c := sdkClients(t)[0]
		if err := c.Run(t, &used, p.URL+"/"+up, "use", `[{"name":"get-roots-list","arguments":{}}]`); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(used.Tools, "get-roots-list") {
			t.Errorf("%s: %q has no get-roots-list", up, used.Tools)
		}
		if len(used.Results) != 1 || !strings.Contains(used.Results[0].Result.Text(), "file://") {
			t.Errorf("%s: the results are %+v, want the roots of the client", up, used.Results)
		}
	}
}
