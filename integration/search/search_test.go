package search

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/proxy/scope"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// own are the names of Junction's tools.
var own = []string{"search_tools", "call_read_tool", "call_write_tool", "call_destructive_tool"}

// everywhere is the policy under which every client searches.
const everywhere = `
- name: all
  catalog: search
  rules: [ { allow: { upstreams: "*" } } ]
`

// definitions are tools of each class, with bytes that only a faithful proxy keeps.
func definitions() []json.RawMessage {
	tool := func(name, more string) json.RawMessage {
		return json.RawMessage(`{"name":"` + name + `","description":"Tool \u00e9 for ` + name +
			`","inputSchema":{"type":"object","properties":{"when":{"type":"number","default":1.0e2}}},"x":[1E2]` + more + `}`)
	}
	return []json.RawMessage{
		tool("listInvoices", `,"annotations":{"readOnlyHint":true}`),
		tool("create_invoice", `,"annotations":{"readOnlyHint":false,"destructiveHint":false}`),
		tool("delete-invoice", `,"annotations":{"destructiveHint":true}`),
		tool("ask", `,"annotations":{}`),
		tool("progress", ``), tool("hang", ``), tool("invoices", ``),
	}
}

// found is the answer of search_tools.
type found struct {
	Total       int
	Tools       []hit
	NotSearched []string `json:"not_searched"`
}

type hit struct {
	CallWith   string `json:"call_with"`
	Definition json.RawMessage
}

func (f found) names(t *testing.T) (names []string) {
	t.Helper()
	for _, h := range f.Tools {
		names = append(names, harness.Text(t, h.Definition, "name"))
	}
	return names
}

// search calls search_tools.
func search(t *testing.T, c *harness.Talker, arguments string) (f found) {
	t.Helper()
	content, err := raw.Elements([]byte(harness.Member(c.Succeed(t, "search_tools", arguments), "content")))
	if err != nil || len(content) != 1 {
		t.Fatalf("search_tools(%s) has the content %s", arguments, content)
	}
	if err := json.Unmarshal([]byte(harness.Text(t, content[0], "text")), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// inside returns the arguments of a call tool.
func inside(name, arguments string) string {
	return `{"name":` + string(raw.Quote(name)) + `,"arguments":` + arguments + `}`
}

// TestSearchFindsAndCalls has a client find tools of each class and call them, by the call tool of
// their class, by that of another, and by their real names.
func TestSearchFindsAndCalls(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{Tools: definitions()})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
			Endpoints: map[string]scope.EndpointConfig{"few": {Catalog: "search", Always: []string{"*__ask"}}}})
		j.Offers(t, "up")
		full, _ := j.Talk(t).List(t, "")
		c := harness.Talk(t, strings.TrimSuffix(j.URL, "/mcp")+"/few/mcp", p.Client)
		if got, want := c.Names(t), append(slices.Clone(own), "up__ask"); !slices.Equal(got, want) {
			t.Fatalf("listed are %q, want %q", got, want)
		}
		f := search(t, c, `{"query":"invoices","limit":50}`)
		if got := f.names(t); f.Total != 4 || got[0] != "up__invoices" || len(got) != 4 {
			t.Fatalf("found are %d: %q", f.Total, got)
		}
		if f := search(t, c, `{"query":"up list inv"}`); f.names(t)[0] != "up__listInvoices" {
			t.Errorf("the beginning of a name finds %q first", f.names(t))
		}
		if f := search(t, c, `{"query":"invoice","limit":2}`); f.Total != 4 || len(f.Tools) != 2 {
			t.Errorf("a limit of 2 gives %d of %d", len(f.Tools), f.Total)
		}
		if f := search(t, c, `{"query":"xylophone"}`); f.Total != 0 || f.Tools == nil || len(f.Tools) != 0 {
			t.Errorf("words of no tool find %+v", f)
		}
		classes := map[string]string{"up__listInvoices": own[1], "up__create_invoice": own[2],
			"up__delete-invoice": own[3], "up__invoices": own[3]}
		for _, h := range f.Tools {
			name := harness.Text(t, h.Definition, "name")
			if !slices.ContainsFunc(full, func(d []byte) bool { return string(d) == string(h.Definition) }) {
				t.Errorf("the definition %s is not one of tools/list", h.Definition)
			}
			for _, tool := range own[1:] {
				m := c.Call(t, tool, inside(name, `{"x":1.0}`))
				text := string(m.Append(nil))
				if tool == classes[name] {
					if h.CallWith != tool || !strings.Contains(text, `{\"x\":1.0}`) || strings.Contains(text, "isError") {
						t.Errorf("%s(%s), found with %s, is answered %s", tool, name, h.CallWith, text)
					}
				} else if harness.Member(m.Result, "isError") != "true" || !strings.Contains(text, "with "+classes[name]+" instead") {
					t.Errorf("%s(%s) is answered %s, want a rejection that names %s", tool, name, text, classes[name])
				}
			}
			c.Succeed(t, name, `{}`)
		}
		if n := len(harness.CallsOf(t, s.Journal, 8)); n != 8 {
			t.Errorf("the upstream was called %d times, want 8", n)
		}
	})
}

// TestSearchCallsAreTheInnerCalls compares what an upstream receives and a client gets of a direct
// call and of one through a call tool: with questions, progress, an error, and _meta.
func TestSearchCallsAreTheInnerCalls(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		tools := append(definitions(), harness.Definitions("fail", "echo")...)
		s := p.Serve(t, upstreamtest.Script{Tools: tools})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
			Policy: harness.MustPolicy(t, everywhere)})
		j.Offers(t, "up")
		c := j.Talk(t)
		calls := 0
		for i, test := range []struct{ name, arguments, meta string }{
			{"echo", `{"\u00e9":1.0,"b":[ 1 ]}`, `"vendor":{"k":1.0}`},
			{"fail", `{"error":{"code":-32001,"message":"no","data":{"d":1E1}}}`, ""},
			{"progress", `{"n":2,"result":{"content":[]}}`, `"progressToken":"p1"`},
			{"ask", `{"questions":[` + harness.AskForm + `,` + harness.AskSampling + `]}`, ""},
			{"ask", `{"together":true,"questions":[` + harness.AskForm + `,` + harness.AskSampling + `]}`, ""},
		} {
			type outcome struct{ answer, asked, notes, received string }
			try := func(q harness.Query) (o outcome) {
				before := calls
				calls++
				if test.name == "ask" && p.Upstream == client.EraModern { // it is called again with the answers
					calls += 2
					if strings.Contains(test.arguments, "together") {
						calls--
					}
				}
				q.Meta = test.meta
				var m jsonrpc.Message
				if test.name == "progress" {
					var notes []jsonrpc.Message
					notes, m = c.Begin(t, q).All(t)
					for _, n := range notes {
						o.notes += string(n.Params) + "\n"
					}
				} else {
					var asked []harness.ServerRequest
					m, asked = c.Converse(t, q, harness.AnswersTo)
					var texts []string // in any order, if they are asked together
					for _, a := range asked {
						texts = append(texts, a.Method+string(harness.ObjectText(a.Params)))
					}
					slices.Sort(texts)
					o.asked = strings.Join(texts, "\n")
				}
				o.answer = harness.WithoutName(m, "none")
				if e := harness.Member(m.Result, "structuredContent", "executions"); e != "" {
					o.answer = harness.Member(m.Result, "structuredContent", "answers") // it counts the calls before
				}
				for _, r := range harness.CallsOf(t, s.Journal, calls)[before:] {
					o.received += harness.Member(r.Message.Params, "name") + harness.Member(r.Message.Params, "arguments") +
						harness.Member(r.Message.Params, "inputResponses") + harness.Member(r.Message.Params, "_meta", "vendor") +
						r.Header.Get("Mcp-Name") + "\n"
				}
				return o
			}
			direct := try(harness.Called("up__"+test.name, test.arguments))
			wrapped := try(harness.Called("call_destructive_tool", inside("up__"+test.name, test.arguments)))
			if direct != wrapped {
				t.Errorf("%d: a call of %s differs:\n%+v\nthrough the call tool:\n%+v", i, test.name, direct, wrapped)
			}
			if direct.received == "" || direct.answer == "" || test.name == "ask" && direct.asked == "" ||
				test.name == "progress" && direct.notes == "" {
				t.Errorf("%d: the call of %s shows nothing: %+v", i, test.name, direct)
			}
		}
	})
}

// TestSearchCallIsCancelled cancels a call that was made with a call tool.
func TestSearchCallIsCancelled(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{Tools: definitions()})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
			Policy: harness.MustPolicy(t, everywhere)})
		j.Offers(t, "up")
		c := j.Talk(t)
		a := c.Begin(t, harness.Called("call_destructive_tool", inside("up__hang", `{}`)))
		harness.CallsOf(t, s.Journal, 1)
		if p.Client == client.EraLegacy {
			c.Notify(t, "notifications/cancelled", `"requestId":`+a.ID)
		} else {
			a.Drop()
		}
		harness.Await(t, s.Journal, "cancellation", func(r upstreamtest.Record) bool {
			return r.Verb == "CLOSE" || r.Message.Method == "notifications/cancelled"
		})
	})
}

// TestSearchFindsWholeNames: a word of a tool's own name finds it, also where clients see the name cut
// off before the word.
func TestSearchFindsWholeNames(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		name := "orgs_set-permissions-for-all-members-of-quarantined-repositories"
		tool := json.RawMessage(`{"name":"` + name + `","inputSchema":{"type":"object"}}`)
		s := p.Serve(t, upstreamtest.Script{Tools: append(definitions(), tool)})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
			Policy: harness.MustPolicy(t, everywhere)})
		j.Offers(t, "up")
		f := search(t, j.Talk(t), `{"query":"quarantined things"}`)
		if got := f.names(t); len(got) != 1 || strings.Contains(got[0], "quarantined") {
			t.Errorf("found are %q, want the tool under a name that is cut off", got)
		}
	})
}

// TestSearchBadInput calls the tools with arguments that make no sense. The error says what to do,
// and nothing reaches the upstream.
func TestSearchBadInput(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{Tools: definitions()})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
			Policy: harness.MustPolicy(t, everywhere)})
		j.Offers(t, "up")
		c := j.Talk(t)
		for _, test := range []struct{ tool, arguments, words string }{
			{"search_tools", `{}`, "needs a query"},
			{"search_tools", `{"query":"  ?! "}`, "needs a query"},
			{"search_tools", `{"query":["x"]}`, "needs a query"},
			{"search_tools", `{"query":"x","query":"y"}`, "ambiguous"},
			{"search_tools", `{"query":"x","limit":0}`, "1 to 50"},
			{"search_tools", `{"query":"x","limit":51}`, "1 to 50"},
			{"search_tools", `{"query":"x","limit":"5"}`, "1 to 50"},
			{"search_tools", `{"query":"x","filter":1}`, `no argument "filter"`},
			{"search_tools", `[]`, "no object"},
			{"call_read_tool", `{}`, "needs a name"},
			{"call_read_tool", `{"name":7}`, "needs a name"},
			{"call_read_tool", `{"name":"up__listInvoices","arguments":"{}"}`, "not their text"},
			{"call_read_tool", `{"name":"up__listInvoices","when":1}`, "into arguments"},
			{"call_read_tool", `{"name":"up__listInvoices","Name":"up__ask"}`, "ambiguous"},
			{"call_read_tool", `{"name":"search_tools","arguments":{"query":"x"}}`, "Unknown tool"},
			{"call_read_tool", `{"name":"call_read_tool","arguments":{"name":"up__listInvoices"}}`, "Unknown tool"},
			{"call_destructive_tool", `{"name":"up__none"}`, "Unknown tool"},
		} {
			m := c.Call(t, test.tool, test.arguments)
			if m.Error == nil || m.Error.Code != -32602 || !strings.Contains(m.Error.Message, test.words) {
				t.Errorf("%s(%s) is answered %s, want %q", test.tool, test.arguments, m.Append(nil), test.words)
			}
		}
		c.Succeed(t, "call_read_tool", `{"name":"up__listInvoices"}`)
		if calls := harness.CallsOf(t, s.Journal, 1); len(calls) != 1 {
			t.Errorf("the upstream was called %d times, want once", len(calls))
		}
	})
}

// TestSafetySearchHidesDenied compares a caller who is denied tools with a caller of a server that
// does not have them: every answer is the same, to the byte.
func TestSafetySearchHidesDenied(t *testing.T) {
	harness.Waits(t)
	const policies = `
- name: some
  catalog: search
  rules:
    - deny: { tools: ["up__delete*", "*__hang", "up__invoices"] }
    - ask: { tools: up__create_invoice }
    - deny: { tools: "up__listInvoices", where: { when: "never*" } }
    - allow: { upstreams: "*" }
`
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		answers := func(tools []json.RawMessage) (all []string) {
			s := p.Serve(t, upstreamtest.Script{Tools: tools})
			j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
				Policy: harness.MustPolicy(t, policies)})
			j.Offers(t, "up")
			c := j.Talk(t)
			type call struct {
				name   string
				answer *harness.Answering
			}
			var calls []call
			begin := func(name, tool, arguments string) {
				calls = append(calls, call{name, c.Begin(t, harness.Called(tool, arguments))})
			}
			for _, query := range []string{"invoices", "invoice", "delete invoice", "up__delete-invoice", "hang", "tool up", "é"} {
				begin("none", "search_tools", `{"query":"`+query+`","limit":50}`)
			}
			// Each name that a server lacks waits for the next reading of its lists, at most one a second.
			for _, name := range []string{"up__delete-invoice", "delete-invoice", "up__hang", "hang", "up__invoices"} {
				for _, tool := range own[1:] {
					begin(name, tool, inside(name, `{}`))
				}
				begin(name, name, `{}`)
			}
			for _, tool := range own[1:] { // denied by its arguments
				begin("up__listInvoices", tool, inside("up__listInvoices", `{"when":"never again"}`))
			}
			for _, call := range calls {
				all = append(all, harness.WithoutName(call.answer.Answer(t), call.name))
			}
			m, asked := c.Converse(t, harness.Called(own[2], inside("up__create_invoice", `{"when":7}`)),
				func(harness.ServerRequest) string { return `"result":{"action":"decline"}` })
			if len(asked) != 1 || !strings.Contains(string(asked[0].Params), "create_invoice") ||
				!strings.Contains(string(asked[0].Params), "when") {
				t.Errorf("the approval of the inner call is asked for with %v", asked)
			}
			if n := len(harness.CallsOf(t, s.Journal, 0)); n > 0 {
				t.Errorf("the upstream was called %d times", n)
			}
			return append(all, harness.WithoutName(m, "none"))
		}
		tools := definitions()
		with := answers(tools)
		without := answers(slices.DeleteFunc(tools, func(d json.RawMessage) bool {
			return slices.Contains([]string{`"delete-invoice"`, `"hang"`, `"invoices"`}, harness.Member(d, "name"))
		}))
		for i := range with {
			if with[i] != without[i] {
				t.Errorf("answer %d of a caller who is denied tools is\n%s\nwant that of a caller without them:\n%s", i, with[i],
					without[i])
			}
		}
	})
}

// TestSearchListStays changes the tools of a server. Only changes of listed tools are told, and
// Junction's own tools stay the same.
func TestSearchListStays(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{Tools: harness.Definitions("settools", "pinned", "old")})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
			Policy: harness.MustPolicy(t, `
- name: all
  catalog: search
  always: "up__pinned*"
  rules: [ { allow: { upstreams: "*" } } ]
`)})
		j.Offers(t, "up")
		c := j.Talk(t)
		stream := c.HearTools(t)
		s.Listened(t, p)
		before, _ := c.List(t, "")
		change := func(names ...string) {
			if err := s.SetTools(harness.Definitions(names...)); err != nil {
				t.Fatal(err)
			}
			last := "up__" + names[len(names)-1]
			j.Until(t, last, func() bool {
				return search(t, c, `{"query":"`+last+`","limit":1}`).names(t)[0] == last
			})
		}
		change("settools", "pinned", "new1")
		change("settools", "pinned", "new2")
		if after, _ := c.List(t, ""); fmt.Sprintf("%s", after) != fmt.Sprintf("%s", before) {
			t.Errorf("the list has changed to %s", after)
		}
		change("settools", "pinned", "pinned_too")
		harness.ListChanges(t, stream, 1)
		if got, want := c.Names(t), append(slices.Clone(own), "up__pinned", "up__pinned_too"); !slices.Equal(got, want) {
			t.Errorf("listed are %q, want %q", got, want)
		}
		harness.WantSilentEnd(t, j, stream)
	})
}

// TestSearchShadowsNames has a server with tools that are called like those of Junction. The list has
// Junction's, a problem tells of the others, and the call tools call them.
func TestSearchShadowsNames(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{Tools: append(harness.Definitions("search_tools", "call_read_tool"), definitions()...)})
		bare := ""
		s.Config.Prefix = &bare
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
			Endpoints: map[string]scope.EndpointConfig{"few": {Catalog: "search"}}})
		j.Offers(t, "up")
		c := harness.Talk(t, strings.TrimSuffix(j.URL, "/mcp")+"/few/mcp", p.Client)
		if got := c.Names(t); !slices.Equal(got, own) {
			t.Errorf("listed are %q", got)
		}
		if f := search(t, c, `{"query":"search_tools"}`); f.names(t)[0] != "search_tools" || f.Tools[0].CallWith != own[3] {
			t.Errorf("the server's search_tools is found as %+v", f)
		}
		if got := c.Succeed(t, own[3], inside("search_tools", `{"x":1.0}`)); !strings.Contains(string(got), `{\"x\":1.0}`) {
			t.Errorf("the server's search_tools answers %s", got)
		}
		var problems []string
		for _, problem := range j.Server.Snapshot().Problems() {
			problems = append(problems, problem.Endpoint+" "+problem.Name)
		}
		if want := []string{"few/ search_tools", "few/ call_read_tool"}; !slices.Equal(problems, want) {
			t.Errorf("the problems are of %q, want %q", problems, want)
		}
	})
}

// TestSearchCallHasNoHeaders calls a tool whose argument goes into a header. A client of a call tool
// does not know that; the upstream gets the header all the same.
func TestSearchCallHasNoHeaders(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		tool := harness.ToolWithProperties("regional", `{"region":{"type":"string","x-mcp-header":"Region"}}`)
		bad := harness.ToolWithProperties("odd", `{"region":{"type":"string","x-mcp-header":"Bad Header"}}`)
		s := p.Serve(t, upstreamtest.Script{Tools: []json.RawMessage{tool, bad}})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
			Policy: harness.MustPolicy(t, everywhere)})
		j.Offers(t, "up")
		j.Talk(t).Succeed(t, "call_destructive_tool", inside("up__regional", `{"region":"eu"}`))
		r := harness.CallsOf(t, s.Journal, 1)[0]
		if got := r.Header.Get("Mcp-Param-Region"); p.Upstream == client.EraModern && p.Transport == "http" && got != "eu" {
			t.Errorf("the upstream got the region %q in its header", got)
		}
		want := 2 // clients of 2026-07-28 over HTTP, of which Junction is one, must not use the other one
		if p.Client == client.EraModern || p.Upstream == client.EraModern && p.Transport == "http" {
			want = 1
		}
		if f := search(t, j.Talk(t), `{"query":"region"}`); f.Total != want {
			t.Errorf("found are %q of %d, want %d", f.names(t), f.Total, want)
		}
	})
}
