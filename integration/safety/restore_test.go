package safety

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/upstreamtest"
)

// removedMark is the mark of a text that can come back.
var removedMark = regexp.MustCompile(`\[redacted: [A-Za-z ]+ #[A-Z2-7]{16}\]`)

// TestRemovedTextComesBackToItsServer: a placeholder in a later argument reaches the server that sent
// the text as that text. The client, the user who approves the call, another server and another session
// never get it, and policy decides about the text.
func TestRemovedTextComesBackToItsServer(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "each process keeps the removed text of its own answers to modern clients")
	const token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	authtest.Secret("a token of GitHub", token)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s, o := p.Serve(t, upstreamtest.Script{}), p.Serve(t, upstreamtest.Script{})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config, "other": o.Config},
			Policy: harness.MustPolicy(t, `
- name: all
  redact: { patterns: [secrets, { name: ticket, re: "TCK-[0-9]+" }], restore: true }
  rules:
    - deny: { tools: up__echo, where: { text: "*TCK-666*" } }
    - ask: { tools: up__echo, where: { approve: "*" } }
    - allow: { upstreams: "*" }
`)})
		j.Offers(t, "up", "other")
		c := j.Talk(t)
		given := func(text string) (mark string) { // a server sends a text
			m := c.Call(t, "up__echo", `{"result":{"content":[{"type":"text","text":"`+text+`"}]}}`)
			if mark = removedMark.FindString(string(m.Append(nil))); mark == "" {
				t.Fatalf("the client reads %s, without a mark that can come back", m.Append(nil))
			}
			return mark
		}
		read := func(of *upstreamtest.Journal, text string) (n int) { // calls in which a server has read a text
			for _, r := range harness.CallsOf(t, of, 0) {
				if strings.Contains(string(r.Message.Params), text) {
					n++
				}
			}
			return n
		}
		mark, bad := given(token), given("TCK-666")
		m := c.Call(t, "up__echo", `{"text":"key `+mark+`"}`)
		calls := harness.CallsOf(t, s.Journal, 3)
		if last := string(calls[len(calls)-1].Message.Params); !strings.Contains(last, `"key `+token) {
			t.Errorf("the server reads %s, without the text", last)
		}
		if text := string(m.Append(nil)); strings.Contains(text, token) || m.Error != nil {
			t.Errorf("the client reads %s", text)
		}
		m, asked := c.Converse(t, harness.Called("up__echo", `{"approve":"`+mark+`"}`), approval("Allow once"))
		if len(asked) != 1 || !strings.Contains(harness.Text(t, asked[0].Params, "message"), mark) || m.Error != nil {
			t.Errorf("the user is asked %v, and the answer is %s", asked, m.Append(nil))
		}
		harness.CallsOf(t, s.Journal, 4)
		if n := read(s.Journal, token); n != 3 { // the first one made the server send the text
			t.Errorf("the server has read the text in %d calls, want 3", n)
		}
		if m := c.Call(t, "up__echo", `{"text":"`+bad+`"}`); m.Error == nil || !strings.Contains(m.Error.Message, "does not allow these arguments") {
			t.Errorf("a text that the policy denies is answered %s", m.Append(nil))
		}
		refused := func(m jsonrpc.Message, why string) {
			t.Helper()
			if text := string(m.Append(nil)); !strings.Contains(text, "was not called") || !strings.Contains(text, "Junction has no text for it") {
				t.Errorf("%s is answered %s", why, text)
			}
		}
		refused(c.Call(t, "other__echo", `{"text":"`+mark+`"}`), "the placeholder at another server")
		other := j.As(t, "", func(c *harness.Talker) { c.Name = "another program" })
		refused(other.Call(t, "up__echo", `{"text":"`+mark+`"}`), "the placeholder of another client")
		if p.Client == client.EraLegacy {
			refused(j.Talk(t).Call(t, "up__echo", `{"text":"`+mark+`"}`), "the placeholder of another session")
		}
		if read(o.Journal, token)+read(o.Journal, "redacted")+read(s.Journal, "redacted") > 0 {
			t.Error("a server has read a placeholder, or the text of another server")
		}
	})
}

// TestPlaceholdersAreNotSentLiterally: without restore, the server never gets a placeholder that a rule
// of the caller writes. Text that only looks like one passes.
func TestPlaceholdersAreNotSentLiterally(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		script := harness.Library("up")
		script.Prompts = append(script.Prompts, []byte(`{"name":"ask"}`))
		s := p.Serve(t, script)
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
			Policy: harness.MustPolicy(t, `
- name: all
  redact: [secrets, { name: ticket, re: "TCK-[0-9]+" }]
  rules: [ { allow: { upstreams: "*" } } ]
`)})
		j.Offers(t, "up")
		c := j.Talk(t)
		const why = `was not called: its arguments contain [redacted: ticket]`
		arguments := `{"a":{"b":["x [redacted: ticket]"]}}`
		var result struct {
			IsError bool
			Content []struct{ Text string }
		}
		json.Unmarshal(c.Succeed(t, "up__echo", arguments), &result)
		if !result.IsError || len(result.Content) != 1 || !strings.Contains(result.Content[0].Text, "up__echo "+why) {
			t.Errorf("a tool call is answered %+v", result)
		}
		if m := c.Ask(t, "prompts/get", `"name":"up__ask","arguments":{"a":"[redacted: ticket]"}`); m.Error == nil ||
			!strings.Contains(m.Error.Message, "up__ask "+why) {
			t.Errorf("a prompt is answered %s", m.Append(nil))
		}
		if n := len(harness.CallsOf(t, s.Journal, 0)); n != 0 {
			t.Fatalf("the server was called %d times", n)
		}
		c.Succeed(t, "up__echo", `{"text":"[redacted: NAME] [redacted: tickets] redacted: ticket]"}`)
		if n := len(harness.CallsOf(t, s.Journal, 1)); n != 1 {
			t.Errorf("the server was called %d times, want once", n)
		}
	})
}

// TestRemovedTextNeverComesBackToTheClient: a tool that returns its argument shows no removed text,
// however the client writes characters around the placeholder, and wherever the text is in a later
// answer.
func TestRemovedTextNeverComesBackToTheClient(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "each process keeps the removed text of its own answers to modern clients")
	const token = "ghp_0123456789abcdefghijABCDEFGHIJ678901"
	authtest.Secret("a token of GitHub", token)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
			Policy: harness.MustPolicy(t, `
- name: all
  redact: { patterns: [secrets, { name: card, re: "^4[0-9]{15}$" }], restore: true }
  rules: [ { allow: { upstreams: "*" } } ]
`)})
		j.Offers(t, "up")
		c := j.Talk(t)
		reads := func(content string) string { // the server sends it
			m := c.Call(t, "up__echo", `{"result":{"content":[`+content+`],"structuredContent":{"n":[4111111111111111]}}}`)
			text := string(m.Append(nil))
			if strings.Contains(text, token) || strings.Contains(text, "41111") || m.Error != nil {
				t.Errorf("the client reads %s", text)
			}
			return text
		}
		marks := removedMark.FindAllString(reads(`{"type":"text","text":"`+token+`"}`), -1)
		if len(marks) != 2 {
			t.Fatalf("the client reads %q, want two placeholders", marks)
		}
		mark, card := marks[0], marks[1]
		for _, text := range []string{"x" + mark, mark + "x", `\u0078` + mark, "card " + card, card + "0"} {
			m := c.Call(t, "up__echo", `{"text":"`+text+`"}`)
			if text := string(m.Append(nil)); !strings.Contains(text, "was not called") ||
				!strings.Contains(text, "only where the policy would remove it again") {
				t.Errorf("a placeholder in another place is answered %s", text)
			}
		}
		if n := len(harness.CallsOf(t, s.Journal, 1)); n != 1 {
			t.Errorf("the server was called %d times, want once", n)
		}
		// the server joins texts
		for _, text := range []string{"x" + token, token + "x", `\u0078\u0067` + token[1:], "card 4111111111111111"} {
			if got := reads(`{"type":"text","text":"` + text + `"}`); len(removedMark.FindAllString(got, -1)) != 2 {
				t.Errorf("%q is answered %s, want two placeholders", text, got)
			}
		}
		reads(`{"type":"resource","resource":{"uri":"file:///x` + token + `","text":""}}`)
		m := c.Call(t, "up__fail", `{"error":{"code":-32000,"message":"no x`+token+`","data":{"x`+token+`":1}}}`)
		if text := string(m.Append(nil)); strings.Contains(text, token) {
			t.Errorf("the client reads the error %s", text)
		}
		c.Succeed(t, "up__echo", `{"text":"`+mark+`"}`)
	})
}

// TestRemovedTextStaysAwayFromOtherMessages: text that Junction keeps for a session is in nothing else that
// the session reads: lists, errors of the connection, notifications and requests to the user. These have
// placeholders without a reference.
func TestRemovedTextStaysAwayFromOtherMessages(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "each process keeps the removed text of its own answers to modern clients")
	const token = "ghp_0123456789abcdefghijABCDEFGHIJ445566"
	authtest.Secret("a token of GitHub", token)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		about := `"description":"it has zz` + token + `"`
		var tools []json.RawMessage
		for _, name := range []string{"echo", "ask", "status", "progress"} {
			tools = append(tools, []byte(`{"name":"`+name+`","inputSchema":{"type":"object"},`+about+`}`))
		}
		s := p.Serve(t, upstreamtest.Script{Tools: tools, Prompts: []json.RawMessage{[]byte(`{"name":"p",` + about + `}`)},
			Resources: []json.RawMessage{[]byte(`{"uri":"file:///r","name":"r",` + about + `}`), []byte(`{"uri":"file:///zz` + token + `","name":"s"}`)},
			Templates: []json.RawMessage{[]byte(`{"uriTemplate":"file:///{a}","name":"t",` + about + `}`)}})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
			Policy: harness.MustPolicy(t, `
- { name: all, redact: { patterns: [secrets], restore: true }, rules: [ { allow: { upstreams: "*" } } ] }
`)})
		j.Offers(t, "up")
		c := j.Talk(t)
		lists := []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"}
		list := func(method string) string { return string(c.Must(t, method, "")) }
		for range 3 { // so that the pages are prepared for all callers
			for _, method := range lists {
				if text := list(method); !strings.Contains(text, "zz"+token) {
					t.Fatalf("%s is answered %s, so that this test shows nothing", method, text)
				}
			}
		}
		if mark := removedMark.FindString(string(c.Succeed(t, "up__echo", `{"result":{"content":[{"type":"text","text":"`+token+`"}]}}`))); mark == "" {
			t.Fatal("the text was not kept")
		}
		clean := func(text, of string) {
			t.Helper()
			if strings.Contains(text, token) || !strings.Contains(text, "[redacted: GitHub token]") {
				t.Errorf("%s: the client reads %s", of, text)
			}
		}
		for range 3 {
			for _, method := range lists {
				clean(list(method), method)
			}
		}
		other := j.As(t, "", func(c *harness.Talker) { c.Name = "another program" })
		if text := string(other.Must(t, "prompts/list", "")); !strings.Contains(text, "zz"+token) {
			t.Errorf("another session reads %s", text)
		}
		if p.Transport == "http" {
			m := c.Call(t, "up__status", `{"code":400,"body":"no zz`+token+`"}`)
			clean(string(m.Append(nil)), "an error of the connection")
		}
		q := harness.Called("up__progress", `{"n":1,"params":{"message":"at zz`+token+`"}}`)
		q.Meta = `"progressToken":1`
		notes, m := c.Begin(t, q).All(t)
		if len(notes) != 1 || m.Error != nil {
			t.Fatalf("the client gets %d notifications, and the answer %s", len(notes), m.Append(nil))
		}
		clean(string(notes[0].Params), "a notification")
		question := strings.Replace(harness.AskForm, "Name?", "Is it zz"+token+" or "+token+"?", 1)
		_, asked := c.Converse(t, harness.Asking(question), harness.AnswersTo)
		if len(asked) != 1 {
			t.Fatalf("the client is asked %q", asked)
		}
		clean(string(asked[0].Params), "a question")
		if strings.Contains(string(asked[0].Params), " #") {
			t.Errorf("a question has a reference: %s", asked[0].Params)
		}
	})
}

// TestRemovedTextStaysAwayFromSearch: search_tools answers without a text that Junction keeps for the session.
func TestRemovedTextStaysAwayFromSearch(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "each process keeps the removed text of its own answers to modern clients")
	const token = "ghp_0123456789abcdefghijABCDEFGHIJ778899"
	authtest.Secret("a token of GitHub", token)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{Tools: []json.RawMessage{
			[]byte(`{"name":"echo","inputSchema":{"type":"object"},"description":"it repeats zz` + token + `"}`)}})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
			Policy: harness.MustPolicy(t, `
- name: all
  catalog: search
  redact: { patterns: [secrets], restore: true }
  rules: [ { allow: { upstreams: "*" } } ]
`)})
		j.Offers(t, "up")
		c := j.Talk(t)
		found := func() string { return string(c.Succeed(t, "search_tools", `{"query":"repeats"}`)) }
		if text := found(); !strings.Contains(text, "zz"+token) {
			t.Fatalf("the search is answered %s, so that this test shows nothing", text)
		}
		c.Succeed(t, "up__echo", `{"result":{"content":[{"type":"text","text":"`+token+`"}]}}`)
		if text := found(); strings.Contains(text, token) || !strings.Contains(text, "repeats zz[redacted: GitHub token]") {
			t.Errorf("the search is answered %s", text)
		}
	})
}
