package safety

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// Policies as clients meet them: what is denied, and calls that a user has to approve.

func TestDeniedIsUnknown(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		script := harness.Library("up")
		script.Prompts = append(script.Prompts, []byte(`{"name":"ask"}`))
		script.Templates = append(script.Templates, []byte(`{"uriTemplate":"file:///secret/{x}","name":"s"}`))
		script.Completions = map[string]json.RawMessage{"p": []byte(`{"values":["x"]}`)}
		s := p.Serve(t, script)
		guard, keys := harness.Keyring(t, "one", "two")
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard, Policy: harness.MustPolicy(t, `
- name: everybody
  rules: [ { allow: { upstreams: "*" } } ]
- name: not-one
  match: { key: one }
  rules:
    - deny: { tools: up__echo, prompts: up__ask, resources: "file:///secret*" }
    - allow: { upstreams: "*" }
`)})
		j.Offers(t, "up")
		s.Listened(t, p)
		one, two := j.As(t, keys["one"]), j.As(t, keys["two"])
		if !slices.Contains(two.Names(t), "up__echo") || slices.Contains(one.Names(t), "up__echo") {
			t.Fatalf("two sees %q, one %q; want echo with two alone", two.Names(t), one.Names(t))
		}
		two.Succeed(t, "up__echo", `{}`)
		for _, q := range []struct{ method, denied, params string }{
			{"tools/call", "up__echo", `"name":"%s","arguments":{}`},
			{"tools/call", "echo", `"name":"%s","arguments":{}`}, // the upstream's own name is as good, where it is one
			{"prompts/get", "up__ask", `"name":"%s"`},
			{"resources/read", "mcp://up/file:///secret/a", `"uri":"%s"`},
			{"completion/complete", "up__ask", `"ref":{"type":"ref/prompt","name":"%s"},"argument":{"name":"x","value":""}`},
			{"completion/complete", "mcp://up/file:///secret/{x}",
				`"ref":{"type":"ref/resource","uri":"%s"},"argument":{"name":"x","value":""}`},
		} {
			unknown := "up__nothing"
			if strings.HasPrefix(q.denied, "mcp:") {
				unknown = "mcp://nobody/x"
			}
			denied := one.Ask(t, q.method, fmt.Sprintf(q.params, q.denied))
			none := one.Ask(t, q.method, fmt.Sprintf(q.params, unknown))
			if got, want := harness.WithoutName(denied, q.denied), harness.WithoutName(none, unknown); got != want ||
				denied.Error == nil {
				t.Errorf("%s of what is denied is answered %s\nof what does not exist   %s", q.method, got, want)
			}
		}
		changes := func(c *harness.Talker) *harness.Answering {
			if p.Client == client.EraLegacy {
				return c.Get(t)
			}
			a, _ := harness.Subscribe(t, c, `"s"`, `{"toolsListChanged":true}`)
			return a
		}
		hiding, seeing := changes(one), changes(two)
		list := harness.Definitions("gate", "open")
		s.Set(t, "tools/list",
			append([]json.RawMessage{[]byte(`{"name":"echo","description":"another","inputSchema":{"type":"object"}}`)},
				list...))
		harness.WantNotes(t, seeing, "tools/list_changed")
		harness.WantNotes(t, hiding, "tools/list_changed") // other tools went
		s.Set(t, "tools/list",
			append([]json.RawMessage{[]byte(`{"name":"echo","description":"once more","inputSchema":{"type":"object"}}`)},
				list...))
		harness.WantNotes(t, seeing, "tools/list_changed")
		harness.WantSilentEnd(t, j, hiding)
		for _, r := range s.Received() {
			if r.Message.Method == "tools/call" && harness.Member(r.Message.Params, "name") == `"echo"` {
				if n := len(harness.CallsOf(t, s.Journal, 1)); n != 1 {
					t.Fatalf("the upstream was called %d times, want once, by two", n)
				}
			}
		}
	})
}

func TestClientNameGrantsNothing(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		guard, keys := harness.Keyring(t, "ci", "root")
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard, Policy: harness.MustPolicy(t, `
- { name: ci, match: { key: ci }, rules: [ { allow: { tools: [up__echo, up__gate] } } ] }
- { name: root, match: { key: root }, rules: [ { allow: { upstreams: "*" } } ] }
`)})
		j.Offers(t, "up")
		var first []byte
		for _, name := range []string{"talker", "root", "key:root", "junction", "", "claude-code"} {
			c := j.As(t, keys["ci"], func(c *harness.Talker) { c.Name = name })
			_, result := c.List(t, "")
			if first == nil {
				first = result
			}
			if string(result) != string(first) || len(c.Names(t)) != 2 {
				t.Errorf("a client that calls itself %q sees %s, want %s", name, result, first)
			}
		}
	})
}

func TestDeniedFeaturesAreNotAdvertised(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		rich := harness.Library("rich")
		rich.Logging, rich.Completions = true, map[string]json.RawMessage{"p": []byte(`{"values":["x"]}`)}
		plain := upstreamtest.Script{Capabilities: []byte(`{"tools":{}}`)}
		a, b := p.Serve(t, rich), p.Serve(t, plain)
		guard, keys := harness.Keyring(t, "all", "few")
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"rich": a.Config, "plain": b.Config}, Guard: guard,
				Policy: harness.MustPolicy(t, `
- { name: all, match: { key: all }, rules: [ { allow: { upstreams: "*" } } ] }
- { name: few, match: { key: few }, rules: [ { allow: { upstreams: plain } } ] }
`)})
		j.Offers(t, "rich", "plain")
		all, few := j.As(t, keys["all"]), j.As(t, keys["few"])
		requests := map[string]string{
			"completion/complete": `"ref":{"type":"ref/prompt","name":"rich__p"},"argument":{"name":"x","value":""}`}
		if p.Client == client.EraLegacy {
			requests["logging/setLevel"] = `"level":"info"`
			requests["resources/subscribe"] = `"uri":"mcp://rich/file:///dir"`
		}
		for method, params := range requests {
			if m := all.Ask(t, method, params); m.Error != nil && m.Error.Code == -32601 {
				t.Errorf("%s of who may use it is answered %s", method, m.Append(nil))
			}
			a, code := few.Begin(t, harness.Query{Method: method, Params: params}), int64(-32601)
			if p.Client == client.EraLegacy && p.Upstream == client.EraLegacy { // plain may have what it does not declare
				code = cmp.Or(map[string]int64{"completion/complete": -32602, "resources/subscribe": -32002}[method], code)
			}
			harness.WantCode(t, a.Answer(t), code)
			if want := map[client.Era]int{client.EraLegacy: http.StatusOK,
				client.EraModern: http.StatusNotFound}[p.Client]; a.Status != want {
				t.Errorf("%s has the status %d, want %d", method, a.Status, want)
			}
		}
		declared := func(c *harness.Talker) string {
			if p.Client == client.EraModern {
				return harness.Member(c.Must(t, "server/discover", ""), "capabilities")
			}
			m := c.Begin(t, harness.Query{Method: "initialize",
				Params: `"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}`}).Answer(t)
			return harness.Member(m.Result, "capabilities")
		}
		if got := declared(few); strings.Contains(got, "completions") || strings.Contains(got, "logging") ||
			strings.Contains(got, "subscribe") {
			t.Errorf("who may use tools alone is told of %s", got)
		}
		if got := declared(all); !strings.Contains(got, "completions") {
			t.Errorf("who may use everything is told of %s", got)
		}
		// The endpoint of an upstream that one may use nothing of does not exist.
		r, err := http.NewRequestWithContext(t.Context(), "POST", j.URL+"/rich", strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		few.Own(r.Header)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusNotFound {
			t.Errorf("/mcp/rich has the status %d, want 404", answer.StatusCode)
		}
	})
}

// approving is the policy of the tests of approvals.
const approving = `
- name: careful
  rules:
    - ask: { tools: [up__echo, up__ask], resources: "file:*", prompts: "up__*" }
    - allow: { upstreams: "*" }
`

// approval answers our question, and that of upstreams as AnswersTo does.
func approval(choice string) func(harness.ServerRequest) string {
	return func(q harness.ServerRequest) string {
		if strings.Contains(string(q.Params), "needs your approval") {
			return `"result":{"action":"accept","content":{"answer":"` + choice + `"}}`
		}
		return harness.AnswersTo(q)
	}
}

// forgotten is how often a client may be asked about a call whose approval is remembered: another
// process asks a modern client again.
func forgotten(p harness.Pair) int {
	if p.Client == client.EraModern && harness.Processes() > 1 {
		return 1
	}
	return 0
}

func TestApprovalIsAskedFor(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Policy: harness.MustPolicy(t, approving)})
		j.Offers(t, "up")
		c := j.Talk(t)
		odd := `{"text":"\u202egnp.exe","n":1.0}`
		m, asked := c.Converse(t, harness.Called("up__echo", odd), approval("Allow once"))
		if m.Error != nil || len(asked) != 1 || asked[0].Method != "elicitation/create" {
			t.Fatalf("after %d questions %s, want one and the result", len(asked), m.Append(nil))
		}
		message := harness.Text(t, asked[0].Params, "message")
		for _, want := range []string{"Server: up\n", "Tool: echo\n", "Arguments:\n  n: 1.0\n" + `  text: "\u202egnp.exe"`} {
			if !strings.Contains(message, want) {
				t.Errorf("the person reads %q, which has no %q", message, want)
			}
		}
		if got := harness.Member(harness.CallsOf(t, s.Journal, 1)[0].Message.Params, "arguments"); got != odd {
			t.Errorf("the upstream got %s, want %s", got, odd)
		}
		// once was once; another argument is another call
		for _, q := range []harness.Query{harness.Called("up__echo", odd),
			harness.Called("up__echo", `{"text":"\u202egnp.exe","n":1}`)} {
			if _, asked = c.Converse(t, q, approval("Do not allow")); len(asked) != 1 {
				t.Errorf("asked %d questions, want one", len(asked))
			}
		}
		for _, answer := range []string{`"result":{"action":"decline"}`, `"result":{"action":"cancel"}`,
			`"result":{"action":"accept","content":{}}`,
			`"result":{"action":"accept","content":{"answer":"no"}}`, `"result":{"action":"accept"}`} {
			m, _ := c.Converse(t, harness.Called("up__echo", odd), func(harness.ServerRequest) string { return answer })
			if m.Error != nil || harness.Member(m.Result, "isError") != "true" ||
				!strings.Contains(string(m.Result), "did not approve") {
				t.Errorf("after %s the call is answered %s", answer, m.Append(nil))
			}
		}
		if n := len(harness.CallsOf(t, s.Journal, 1)); n != 1 {
			t.Errorf("the upstream was called %d times, want once", n)
		}
		// For this session, and exactly this call.
		c.Converse(t, harness.Called("up__echo", `{"a":1}`), approval("Allow and remember for this exact call"))
		if _, asked = c.Converse(t, harness.Called("up__echo", `{"a":1}`), approval("Do not allow")); len(asked) > forgotten(p) {
			t.Errorf("asked %d questions about what was approved for good", len(asked))
		}
		if _, asked = c.Converse(t, harness.Called("up__echo", `{"a":2}`), approval("Do not allow")); len(asked) != 1 {
			t.Errorf("asked %d questions about another argument, want one", len(asked))
		}
	})
}

// TestApprovalAndQuestions has an upstream ask its own question in the course of a call that had to
// be approved: the person is asked for approval once.
func TestApprovalAndQuestions(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": harness.Exact(s.Config)},
				Policy: harness.MustPolicy(t, approving)})
		j.Offers(t, "up")
		m, asked := j.Talk(t).Converse(t, harness.Asking(harness.AskForm, harness.AskRoots), approval("Allow once"))
		if len(asked) != 3 || harness.AnswersOf(t, m) != `[{`+harness.Accepted+`},{`+harness.Rooted+`}]` {
			t.Errorf("%d questions and %s", len(asked), m.Append(nil))
		}
	})
}

// TestApprovalOfOthers has prompts and resources asked for, and clients that cannot be asked.
func TestApprovalOfOthers(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, harness.Library("up"))
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Policy: harness.MustPolicy(t, approving)})
		j.Offers(t, "up")
		c, mute := j.Talk(t), harness.TalkAs(t, j.URL, p.Client, "2025-11-25", `{}`)
		for _, q := range []harness.Query{{Method: "resources/read", Params: `"uri":"mcp://up/file:///dir"`},
			harness.Called("up__echo", `{}`)} {
			if m, asked := c.Converse(t, q, approval("Allow once")); m.Error != nil || len(asked) != 1 {
				t.Errorf("%s: after %d questions %s", q.Method, len(asked), m.Append(nil))
			}
			m := mute.Begin(t, q).Answer(t)
			if got := string(m.Append(nil)); !strings.Contains(got, "needs the approval of a person") ||
				!strings.Contains(got, "ask the operator of Junction") {
				t.Errorf("a client that cannot be asked reads %s", got)
			}
			if q.Method == "resources/read" && harness.Member(m.Error.Data, "junction", "kind") != `"approval"` {
				t.Errorf("the error is %s, want one of ours", m.Append(nil))
			}
		}
	})
}

// TestApprovalIsOfTheClientThatShowedIt has another client of the same user return the answer to a form, and an
// approved call that its server has asked a question about. Both are refused with the reason, and the client
// that has shown the form can still go on.
func TestApprovalIsOfTheClientThatShowedIt(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, upstreamtest.Script{})
			guard, keys := harness.Keyring(t, "a")
			j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard,
				Policy: harness.MustPolicy(t, "- { name: all, rules: [ { ask: { upstreams: up } } ] }")})
			j.Offers(t, "up")
			shows, other := j.As(t, keys["a"]), j.As(t, keys["a"])
			other.Name = "another-app"
			q := harness.Called("up__echo", `{"n":1}`)
			base := q.Params
			m := shows.Begin(t, q).Answer(t)
			yes := string(raw.Quote(harness.Requested(t, m)[0].Key)) + `:{"action":"accept","content":{"answer":"Allow once"}}`
			q.Params = harness.Retried(base, m, yes)
			refused := other.Begin(t, q).Answer(t)
			harness.WantCode(t, refused, -32602)
			if text := string(refused.Append(nil)); !strings.Contains(text, "another client has shown the form for the approval of "+
				"this call, and only that client can return the answer; make the request without requestState") {
				t.Errorf("the other client reads %s", text)
			}
			if n := len(harness.CallsOf(t, s.Journal, 0)); n != 0 {
				t.Errorf("the upstream was called %d times", n)
			}
			if m := shows.Begin(t, q).Answer(t); m.Error != nil || harness.Member(m.Result, "resultType") != `"complete"` {
				t.Errorf("the client that showed the form is answered %s", m.Append(nil))
			}
			if p.Upstream != client.EraModern {
				return // its question is part of a call that was made
			}
			q = harness.Asking(harness.AskForm)
			base = q.Params
			m = shows.Begin(t, q).Answer(t)
			q.Params = harness.Retried(base, m, yes)
			m = shows.Begin(t, q).Answer(t) // the question of the server
			asked := harness.Requested(t, m)
			q.Params = harness.Retried(base, m, string(raw.Quote(asked[0].Key))+`:{"action":"accept","content":{"answer":"x"}}`)
			harness.WantCode(t, other.Begin(t, q).Answer(t), -32602)
			if m := shows.Begin(t, q).Answer(t); m.Error != nil || harness.Member(m.Result, "resultType") != `"complete"` {
				t.Errorf("the client that was asked is answered %s", m.Append(nil))
			}
		})
	}
}

// TestApprovalIsGoodOnce has a modern client use its answer twice, alter its request, and give its
// state to another one.
func TestApprovalIsGoodOnce(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.RunPair(t, client.EraModern, up, "http", func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, upstreamtest.Script{})
			guard, keys := harness.Keyring(t, "a", "b")
			j := harness.Start(t, p,
				harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard,
					Policy: harness.MustPolicy(t, approving)})
			j.Offers(t, "up")
			a, b := j.As(t, keys["a"]), j.As(t, keys["b"])
			q := harness.Called("up__echo", `{"n":1}`)
			base := q.Params
			m := a.Begin(t, q).Answer(t)
			yes := string(raw.Quote(harness.Requested(t, m)[0].Key)) + `:{"action":"accept","content":{"answer":"Allow once"}}`
			other := q
			other.Params = harness.Retried(strings.Replace(base, `"n":1`, `"n":2`, 1), m, yes)
			harness.WantCode(t, a.Begin(t, other).Answer(t), -32602)
			q.Params = harness.Retried(base, m, yes)
			harness.WantCode(t, b.Begin(t, q).Answer(t), -32602)
			if m := a.Begin(t, q).Answer(t); m.Error != nil || harness.Member(m.Result, "resultType") != `"complete"` {
				t.Fatalf("the approved call is answered %s", m.Append(nil))
			}
			harness.WantCode(t, a.Begin(t, q).Answer(t), -32602)
			if n := len(harness.CallsOf(t, s.Journal, 1)); n != 1 {
				t.Errorf("the upstream was called %d times, want once", n)
			}
			// Nobody is asked for what a client merely claims to have been told.
			q.Params = base + `,"inputResponses":{` + yes + `}`
			harness.Requested(t, a.Begin(t, q).Answer(t))
		})
	}
}

// TestGuardsOnContent shows what policies can want of arguments and results: those of one key,
// while another has none of it.
func TestGuardsOnContent(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{Tools: []json.RawMessage{
			[]byte(
				`{"name":"echo","inputSchema":{"type":"object","properties":{"n":{"type":"integer"},"result":{}},"required":["n"]}}`),
			harness.Definitions("progress")[0], harness.Definitions("fail")[0]}})
		guard, keys := harness.Keyring(t, "guarded", "free")
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard, Policy: harness.MustPolicy(t, `
- { name: all, rules: [ { allow: { upstreams: "*" } } ] }
- { name: guarded, match: { key: guarded }, validate: true, redact: [ secrets, { name: ticket, re: "TCK-[0-9]+" } ] }
`)})
		j.Offers(t, "up")
		guarded, free := j.As(t, keys["guarded"]), j.As(t, keys["free"])
		const token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
		authtest.Secret("a token of GitHub", token)
		said := `{"n":1,"result":{"content":[{"type":"text","text":"see TCK-\u0034711 and ` + token +
			`"},{"type":"image","mimeType":"image/png","data":"TCK4711AAAA"}],"structuredContent":{"TCK-1":"TCK-1"}}}`
		if got := string(free.Succeed(t, "up__echo", said)); !strings.Contains(got, token) ||
			strings.Contains(got, "redacted") {
			t.Errorf("without a guard the result is %s", got)
		}
		got := string(guarded.Succeed(t, "up__echo", said))
		for _, want := range []string{`see [redacted: ticket] and [redacted: GitHub token]`, `"data":"TCK4711AAAA"`,
			`{"[redacted: ticket]":"[redacted: ticket]"}`} {
			if !strings.Contains(got, want) {
				t.Errorf("the result is %s, without %s", got, want)
			}
		}
		m := guarded.Call(t, "up__fail", `{"error":{"code":7,"message":"no TCK-1","data":{"x":"TCK-2"}}}`)
		if m.Error == nil || m.Error.Message != "no [redacted: ticket]" ||
			string(m.Error.Data) != `{"x":"[redacted: ticket]"}` {
			t.Errorf("the error is %s", m.Append(nil))
		}
		notes, _ := guarded.Begin(t,
			harness.Query{Method: "tools/call", Params: `"name":"up__progress","arguments":{"n":1,"params":{"note":"TCK-3"}}`,
				Meta: `"progressToken":"TCK-4"`}).All(t)
		if len(notes) != 1 || harness.Member(notes[0].Params, "note") != `"[redacted: ticket]"` ||
			harness.Member(notes[0].Params, "progressToken") != `"TCK-4"` {
			t.Errorf("%d notifications, %s", len(notes), notes[0].Append(nil))
		}
		calls := len(harness.CallsOf(t, s.Journal, 4))
		wrong := guarded.Call(t, "up__echo", `{"n":"one"}`)
		if wrong.Error != nil || harness.Member(wrong.Result, "isError") != "true" ||
			!strings.Contains(string(wrong.Result), "n: ") {
			t.Errorf("arguments that do not fit are answered %s", wrong.Append(nil))
		}
		free.Succeed(t, "up__echo", `{"n":"one"}`)
		if n := len(harness.CallsOf(t, s.Journal, calls+1)); n != calls+1 {
			t.Errorf("the upstream was called %d times more, want once", n-calls)
		}
	})
}

// TestLimitsOfAPrincipal has a policy limit how often one may call, and how much at once.
func TestLimitsOfAPrincipal(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		guard, keys := harness.Keyring(t, "slow", "narrow", "free")
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard, Policy: harness.MustPolicy(t, `
- { name: all, rules: [ { allow: { upstreams: "*" } } ] }
- { name: slow, match: { key: slow }, limits: { rate: 1/h, burst: 2 } }
- { name: narrow, match: { key: narrow }, limits: { concurrent: 1 } }
`)})
		j.Offers(t, "up")
		slow, narrow, free := j.As(t, keys["slow"]), j.As(t, keys["narrow"]), j.As(t, keys["free"])
		slow.Succeed(t, "up__echo", `{}`)
		slow.Succeed(t, "up__echo", `{}`)
		slow.Names(t) // lists are no calls
		a := slow.Begin(t, harness.Called("up__echo", `{}`))
		m := a.Answer(t)
		if m.Error == nil || harness.Member(m.Error.Data, "junction", "kind") != `"limited"` ||
			len(harness.Member(m.Error.Data, "junction", "retryAfterMs")) != len("3600000") ||
			a.Header.Get("Retry-After") == "" || !strings.Contains(m.Error.Message, "the next is possible in 3") {
			t.Errorf("the third call is answered %s, Retry-After %q", m.Append(nil), a.Header.Get("Retry-After"))
		}
		held := narrow.Begin(t, harness.Called("up__gate", `{"gate":"g"}`))
		harness.Await(t, s.Journal, "the call",
			func(r upstreamtest.Record) bool { return harness.Member(r.Message.Params, "name") == `"gate"` })
		m = narrow.Call(t, "up__echo", `{}`)
		if m.Error == nil || harness.Member(m.Error.Data, "junction", "kind") != `"limited"` {
			t.Errorf("a second call at once is answered %s", m.Append(nil))
		}
		free.Succeed(t, "up__echo", `{}`)
		s.OpenGate(t, "g")
		held.Answer(t)
		narrow.Succeed(t, "up__echo", `{}`)
	})
}

// TestPolicyReadsWhatIsForwarded has a rule read arguments that other readers may read
// in another way: nothing of it reaches the upstream.
func TestPolicyReadsWhatIsForwarded(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Policy: harness.MustPolicy(t, `
- name: careful
  rules:
    - deny: { tools: up__echo, where: { command: "rm *", /more/0: "rm *" } }
    - deny: { tools: up__echo, where: { command: "rm *" } }
    - allow: { upstreams: "*" }
`)})
		j.Offers(t, "up")
		c := j.Talk(t)
		for _, arguments := range []string{
			`{"command":"rm -rf /"}`, `{"command":"\u0072m -rf /"}`, `{"comm\u0061nd":"rm -rf /"}`,
			`{"command":"ls","command":"rm -rf /"}`, `{"command":"rm -rf /","command":"ls"}`,
			`{"command":"ls","Command":"rm -rf /"}`, `{"COMMAND":"rm -rf /","command":"ls"}`, `["rm -rf /"]`,
			`"{\"command\":\"rm -rf /\"}"`, `1`, `true`,
			`{"command":["rm","-rf","/"]}`, `{"command":{"rm":"-rf /"}}`, `{"command":"rm \u0000"}`,
		} {
			if m := c.Call(t, "up__echo", arguments); m.Error == nil {
				t.Errorf("%s is answered %s", arguments, m.Result)
			}
		}
		// The client sees the tool, so the answer says that the arguments are denied, without the rule.
		m := c.Call(t, "up__echo", `{"command":"rm -rf /"}`)
		wantDenied(t, m, "up__echo")
		if strings.Contains(string(m.Append(nil)), "rm") || strings.Contains(string(m.Append(nil)), "careful") {
			t.Errorf("the answer tells the value or the policy: %s", m.Append(nil))
		}
		c.Succeed(t, "up__echo", `{"command":"ls","other":{"x":1,"X":2}}`)
		if n := len(harness.CallsOf(t, s.Journal, 1)); n != 1 {
			t.Errorf("the upstream was called %d times, want once", n)
		}
	})
}

// TestListsOfAPrincipalArePrivate: what an upstream says is the same for everybody is so for the
// one local user, and not where some see other things than others.
func TestListsOfAPrincipalArePrivate(t *testing.T) {
	harness.Waits(t)
	p := harness.Pair{Client: client.EraModern, Upstream: client.EraModern, Transport: "http"}
	s := p.Serve(t, upstreamtest.Script{TTLMs: 60_000, CacheScope: "public"})
	guard, keys := harness.Keyring(t, "ci")
	for _, row := range []struct {
		name   string
		world  harness.Setup
		key    string
		public bool
	}{
		{"local", harness.Setup{}, "", true},
		{"a key", harness.Setup{Guard: guard}, keys["ci"], false},
		{"local, with a policy",
			harness.Setup{Policy: harness.MustPolicy(t, `[ { name: a, rules: [ { allow: { tools: up__echo } } ] } ]`)}, "",
			false},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.world.Upstreams = map[string]upstream.Config{"up": s.Config}
			j := harness.Start(t, p, row.world)
			j.Offers(t, "up")
			c := j.As(t, row.key)
			for _, method := range []string{"tools/list", "server/discover"} {
				if got := harness.Member(c.Must(t, method, ""), "cacheScope") == `"public"`; got != row.public {
					t.Errorf("%s is public: %t, want %t", method, got, row.public)
				}
			}
		})
	}
}

// wantDenied wants the error of a tool that the client sees, and whose arguments the policy denies.
func wantDenied(t *testing.T, m jsonrpc.Message, name string) {
	t.Helper()
	if m.Error == nil || m.Error.Code != -32602 ||
		m.Error.Message != "The policy does not allow these arguments for the tool "+name {
		t.Errorf("got %s, want that the arguments are denied", m.Append(nil))
	}
}
