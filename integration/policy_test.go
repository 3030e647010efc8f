package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"junction/auth"
	"junction/auth/authtest"
	"junction/policy"
	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// Who may do what, as clients meet it: T37, T38 and T41 of protocol.md, and calls that a person has
// to approve.

// mustPolicy compiles a policies section.
func mustPolicy(t *testing.T, text string) *policy.Policy {
	t.Helper()
	var c policy.Config
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// keyring makes a key for each name, and the guard that knows them.
func keyring(t *testing.T, names ...string) (*auth.Guard, map[string]string) {
	t.Helper()
	keys := map[string]string{}
	var config auth.Config
	for _, name := range names {
		keys[name] = auth.NewKey()
		hash, err := auth.HashKey(keys[name])
		if err != nil {
			t.Fatal(err)
		}
		config.APIKeys = append(config.APIKeys, auth.Key{Name: name, Hash: hash})
	}
	return config.Guard(nil, "", nil), keys
}

// as returns a client that shows a key.
func (j *junction) as(t *testing.T, key string, change ...func(*talker)) *talker {
	t.Helper()
	c := &talker{url: j.url, era: j.pair.client, version: "2025-11-25", capabilities: allCapabilities, key: key}
	for _, f := range change {
		f(c)
	}
	return c.start(t)
}

// same is what a client reads of an answer, without the id and with one name in place of another.
func same(m jsonrpc.Message, name string) string {
	m.ID = "0"
	return strings.ReplaceAll(string(m.Append(nil)), name, "NAME")
}

func TestProtocolT37DeniedIsUnknown(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		script := library("up")
		script.Prompts = append(script.Prompts, []byte(`{"name":"ask"}`))
		script.Templates = append(script.Templates, []byte(`{"uriTemplate":"file:///secret/{x}","name":"s"}`))
		script.Completions = map[string]json.RawMessage{"p": []byte(`{"values":["x"]}`)}
		s := p.serve(t, script)
		guard, keys := keyring(t, "one", "two")
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, guard: guard, policy: mustPolicy(t, `
- name: everybody
  rules: [ { allow: { upstreams: "*" } } ]
- name: not-one
  match: { key: one }
  rules:
    - deny: { tools: up__echo, prompts: up__ask, resources: "file:///secret*" }
    - allow: { upstreams: "*" }
`)})
		j.offers(t, "up")
		s.listened(t, p)
		one, two := j.as(t, keys["one"]), j.as(t, keys["two"])
		if !slices.Contains(two.names(t), "up__echo") || slices.Contains(one.names(t), "up__echo") {
			t.Fatalf("two sees %q, one %q; want echo with two alone", two.names(t), one.names(t))
		}
		two.succeed(t, "up__echo", `{}`)
		for _, q := range []struct{ method, denied, params string }{
			{"tools/call", "up__echo", `"name":"%s","arguments":{}`},
			{"tools/call", "echo", `"name":"%s","arguments":{}`}, // the upstream's own name is as good, where it is one
			{"prompts/get", "up__ask", `"name":"%s"`},
			{"resources/read", "mcp://up/file:///secret/a", `"uri":"%s"`},
			{"completion/complete", "up__ask", `"ref":{"type":"ref/prompt","name":"%s"},"argument":{"name":"x","value":""}`},
			{"completion/complete", "mcp://up/file:///secret/{x}", `"ref":{"type":"ref/resource","uri":"%s"},"argument":{"name":"x","value":""}`},
		} {
			unknown := "up__nothing"
			if strings.HasPrefix(q.denied, "mcp:") {
				unknown = "mcp://nobody/x"
			}
			denied := one.ask(t, q.method, fmt.Sprintf(q.params, q.denied))
			none := one.ask(t, q.method, fmt.Sprintf(q.params, unknown))
			if got, want := same(denied, q.denied), same(none, unknown); got != want || denied.Error == nil {
				t.Errorf("%s of what is denied is answered %s\nof what does not exist   %s", q.method, got, want)
			}
		}
		changes := func(c *talker) *answering {
			if p.client == upstream.EraLegacy {
				return c.get(t)
			}
			a, _ := subscribe(t, c, `"s"`, `{"toolsListChanged":true}`)
			return a
		}
		hiding, seeing := changes(one), changes(two)
		list := definitions("gate", "open")
		s.set(t, "tools/list", append([]json.RawMessage{[]byte(`{"name":"echo","description":"another","inputSchema":{"type":"object"}}`)}, list...))
		hears(t, seeing, "tools/list_changed")
		hears(t, hiding, "tools/list_changed") // other tools went
		s.set(t, "tools/list", append([]json.RawMessage{[]byte(`{"name":"echo","description":"once more","inputSchema":{"type":"object"}}`)}, list...))
		hears(t, seeing, "tools/list_changed")
		silent(t, j, hiding)
		for _, r := range s.Received() {
			if r.Message.Method == "tools/call" && member(r.Message.Params, "name") == `"echo"` {
				if n := len(callsOf(t, s.Journal, 1)); n != 1 {
					t.Fatalf("the upstream was called %d times, want once, by two", n)
				}
			}
		}
	})
}

func TestProtocolT38WhatAClientSaysOfItselfGrantsNothing(t *testing.T) {
	eachEra(t, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{})
		guard, keys := keyring(t, "ci", "root")
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, guard: guard, policy: mustPolicy(t, `
- { name: ci, match: { key: ci }, rules: [ { allow: { tools: [up__echo, up__gate] } } ] }
- { name: root, match: { key: root }, rules: [ { allow: { upstreams: "*" } } ] }
`)})
		j.offers(t, "up")
		var first []byte
		for _, name := range []string{"talker", "root", "key:root", "junction", "", "claude-code"} {
			c := j.as(t, keys["ci"], func(c *talker) { c.name = name })
			_, result := c.list(t, "")
			if first == nil {
				first = result
			}
			if string(result) != string(first) || len(c.names(t)) != 2 {
				t.Errorf("a client that calls itself %q sees %s, want %s", name, result, first)
			}
		}
	})
}

func TestProtocolT41WhatIsNotAdvertisedDoesNotExist(t *testing.T) {
	eachEra(t, func(t *testing.T, p pair) {
		rich := library("rich")
		rich.Logging, rich.Completions = true, map[string]json.RawMessage{"p": []byte(`{"values":["x"]}`)}
		plain := upstreamtest.Script{Capabilities: []byte(`{"tools":{}}`)}
		a, b := p.serve(t, rich), p.serve(t, plain)
		guard, keys := keyring(t, "all", "few")
		j := start(t, p, world{upstreams: map[string]upstream.Config{"rich": a.config, "plain": b.config}, guard: guard, policy: mustPolicy(t, `
- { name: all, match: { key: all }, rules: [ { allow: { upstreams: "*" } } ] }
- { name: few, match: { key: few }, rules: [ { allow: { upstreams: plain } } ] }
`)})
		j.offers(t, "rich", "plain")
		all, few := j.as(t, keys["all"]), j.as(t, keys["few"])
		requests := map[string]string{"completion/complete": `"ref":{"type":"ref/prompt","name":"rich__p"},"argument":{"name":"x","value":""}`}
		if p.client == upstream.EraLegacy {
			requests["logging/setLevel"] = `"level":"info"`
			requests["resources/subscribe"] = `"uri":"mcp://rich/file:///dir"`
		}
		for method, params := range requests {
			if m := all.ask(t, method, params); m.Error != nil && m.Error.Code == -32601 {
				t.Errorf("%s of who may use it is answered %s", method, m.Append(nil))
			}
			a := few.begin(t, query{method: method, params: params})
			wantCode(t, a.answer(t), -32601)
			if want := map[upstream.Era]int{upstream.EraLegacy: http.StatusOK, upstream.EraModern: http.StatusNotFound}[p.client]; a.status != want {
				t.Errorf("%s has the status %d, want %d", method, a.status, want)
			}
		}
		declared := func(c *talker) string {
			if p.client == upstream.EraModern {
				return member(c.must(t, "server/discover", ""), "capabilities")
			}
			m := c.begin(t, query{method: "initialize", params: `"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}`}).answer(t)
			return member(m.Result, "capabilities")
		}
		if got := declared(few); strings.Contains(got, "completions") || strings.Contains(got, "logging") || strings.Contains(got, "subscribe") {
			t.Errorf("who may use tools alone is told of %s", got)
		}
		if got := declared(all); !strings.Contains(got, "completions") {
			t.Errorf("who may use everything is told of %s", got)
		}
		// The endpoint of an upstream that one may use nothing of does not exist.
		r, err := http.NewRequestWithContext(t.Context(), "POST", j.url+"/rich", strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		few.own(r.Header)
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

// approval answers our question, and that of upstreams as answersTo does.
func approval(choice string) func(put) string {
	return func(q put) string {
		if strings.Contains(string(q.params), "needs your approval") {
			return `"result":{"action":"accept","content":{"answer":"` + choice + `"}}`
		}
		return answersTo(q)
	}
}

func TestApprovalIsAskedFor(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{})
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, policy: mustPolicy(t, approving)})
		j.offers(t, "up")
		c := j.talk(t)
		odd := `{"text":"\u202egnp.exe","n":1.0}`
		m, asked := c.converse(t, called("up__echo", odd), approval("yes, once"))
		if m.Error != nil || len(asked) != 1 || asked[0].method != "elicitation/create" {
			t.Fatalf("after %d questions %s, want one and the result", len(asked), m.Append(nil))
		}
		message := text(t, asked[0].params, "message")
		for _, want := range []string{"Server: up\n", "Tool: echo\n", `Arguments: {"text":"\u202egnp.exe","n":1.0}`} {
			if !strings.Contains(message, want) {
				t.Errorf("the person reads %q, which has no %q", message, want)
			}
		}
		if got := member(callsOf(t, s.Journal, 1)[0].Message.Params, "arguments"); got != odd {
			t.Errorf("the upstream got %s, want %s", got, odd)
		}
		// once was once; another argument is another call
		for _, q := range []query{called("up__echo", odd), called("up__echo", `{"text":"\u202egnp.exe","n":1}`)} {
			if _, asked = c.converse(t, q, approval("no")); len(asked) != 1 {
				t.Errorf("asked %d questions, want one", len(asked))
			}
		}
		for _, answer := range []string{`"result":{"action":"decline"}`, `"result":{"action":"cancel"}`, `"result":{"action":"accept","content":{}}`,
			`"result":{"action":"accept","content":{"answer":"no"}}`, `"result":{"action":"accept"}`} {
			m, _ := c.converse(t, called("up__echo", odd), func(put) string { return answer })
			if m.Error != nil || member(m.Result, "isError") != "true" || !strings.Contains(string(m.Result), "did not approve") {
				t.Errorf("after %s the call is answered %s", answer, m.Append(nil))
			}
		}
		if n := len(callsOf(t, s.Journal, 1)); n != 1 {
			t.Errorf("the upstream was called %d times, want once", n)
		}
		// For this session, and exactly this call.
		c.converse(t, called("up__echo", `{"a":1}`), approval("yes, and do not ask again for exactly this call"))
		if _, asked = c.converse(t, called("up__echo", `{"a":1}`), approval("no")); len(asked) != 0 {
			t.Errorf("asked %d questions about what was approved for good", len(asked))
		}
		if _, asked = c.converse(t, called("up__echo", `{"a":2}`), approval("no")); len(asked) != 1 {
			t.Errorf("asked %d questions about another argument, want one", len(asked))
		}
	})
}

// TestApprovalAndQuestions has an upstream ask its own question in the course of a call that had to
// be approved: the person is asked for approval once.
func TestApprovalAndQuestions(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{})
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": exact(s.config)}, policy: mustPolicy(t, approving)})
		j.offers(t, "up")
		m, asked := j.talk(t).converse(t, asking(askForm, askRoots), approval("yes, once"))
		if len(asked) != 3 || answersOf(t, m) != `[{`+accepted+`},{`+rooted+`}]` {
			t.Errorf("%d questions and %s", len(asked), m.Append(nil))
		}
	})
}

// TestApprovalOfOthers has prompts and resources asked for, and clients that cannot be asked.
func TestApprovalOfOthers(t *testing.T) {
	eachEra(t, func(t *testing.T, p pair) {
		s := p.serve(t, library("up"))
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, policy: mustPolicy(t, approving)})
		j.offers(t, "up")
		c, mute := j.talk(t), talkAs(t, j.url, p.client, "2025-11-25", `{}`)
		for _, q := range []query{{method: "resources/read", params: `"uri":"mcp://up/file:///dir"`}, called("up__echo", `{}`)} {
			if m, asked := c.converse(t, q, approval("yes, once")); m.Error != nil || len(asked) != 1 {
				t.Errorf("%s: after %d questions %s", q.method, len(asked), m.Append(nil))
			}
			m := mute.begin(t, q).answer(t)
			if got := string(m.Append(nil)); !strings.Contains(got, "needs the approval of a person") || !strings.Contains(got, "policy careful, before rules[0]") {
				t.Errorf("a client that cannot be asked reads %s", got)
			}
			if q.method == "resources/read" && member(m.Error.Data, "junction", "kind") != `"approval"` {
				t.Errorf("the error is %s, want one of ours", m.Append(nil))
			}
		}
	})
}

// TestApprovalIsGoodOnce has a modern client use its answer twice, alter its request, and give its
// state to another one.
func TestApprovalIsGoodOnce(t *testing.T) {
	for _, up := range eras {
		runPair(t, pair{upstream.EraModern, up, "http"}, func(t *testing.T, p pair) {
			s := p.serve(t, upstreamtest.Script{})
			guard, keys := keyring(t, "a", "b")
			j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, guard: guard, policy: mustPolicy(t, approving)})
			j.offers(t, "up")
			a, b := j.as(t, keys["a"]), j.as(t, keys["b"])
			q := called("up__echo", `{"n":1}`)
			base := q.params
			m := a.begin(t, q).answer(t)
			yes := string(raw.Quote(requested(t, m)[0].key)) + `:{"action":"accept","content":{"answer":"yes, once"}}`
			other := q
			other.params = retried(strings.Replace(base, `"n":1`, `"n":2`, 1), m, yes)
			wantCode(t, a.begin(t, other).answer(t), -32602)
			q.params = retried(base, m, yes)
			wantCode(t, b.begin(t, q).answer(t), -32602)
			if m := a.begin(t, q).answer(t); m.Error != nil || member(m.Result, "resultType") != `"complete"` {
				t.Fatalf("the approved call is answered %s", m.Append(nil))
			}
			wantCode(t, a.begin(t, q).answer(t), -32602)
			if n := len(callsOf(t, s.Journal, 1)); n != 1 {
				t.Errorf("the upstream was called %d times, want once", n)
			}
			// Nobody is asked for what a client merely claims to have been told.
			q.params = base + `,"inputResponses":{` + yes + `}`
			requested(t, a.begin(t, q).answer(t))
		})
	}
}

// TestGuardsOnContent shows what policies can want of arguments and results: those of one key,
// while another has none of it.
func TestGuardsOnContent(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{Tools: []json.RawMessage{
			[]byte(`{"name":"echo","inputSchema":{"type":"object","properties":{"n":{"type":"integer"},"result":{}},"required":["n"]}}`), definitions("progress")[0], definitions("fail")[0]}})
		guard, keys := keyring(t, "guarded", "free")
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, guard: guard, policy: mustPolicy(t, `
- { name: all, rules: [ { allow: { upstreams: "*" } } ] }
- { name: guarded, match: { key: guarded }, validate: true, redact: [ secrets, { name: ticket, re: "TCK-[0-9]+" } ] }
`)})
		j.offers(t, "up")
		guarded, free := j.as(t, keys["guarded"]), j.as(t, keys["free"])
		const token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
		authtest.Secret("a token of GitHub", token)
		said := `{"n":1,"result":{"content":[{"type":"text","text":"see TCK-\u0034711 and ` + token + `"},{"type":"image","mimeType":"image/png","data":"TCK4711AAAA"}],"structuredContent":{"TCK-1":"TCK-1"}}}`
		if got := string(free.succeed(t, "up__echo", said)); !strings.Contains(got, token) || strings.Contains(got, "redacted") {
			t.Errorf("without a guard the result is %s", got)
		}
		got := string(guarded.succeed(t, "up__echo", said))
		for _, want := range []string{`see [redacted: ticket] and [redacted: GitHub token]`, `"data":"TCK4711AAAA"`, `{"TCK-1":"[redacted: ticket]"}`} {
			if !strings.Contains(got, want) {
				t.Errorf("the result is %s, without %s", got, want)
			}
		}
		m := guarded.call(t, "up__fail", `{"error":{"code":7,"message":"no TCK-1","data":{"x":"TCK-2"}}}`)
		if m.Error == nil || m.Error.Message != "no [redacted: ticket]" || string(m.Error.Data) != `{"x":"[redacted: ticket]"}` {
			t.Errorf("the error is %s", m.Append(nil))
		}
		notes, _ := guarded.begin(t, query{method: "tools/call", params: `"name":"up__progress","arguments":{"n":1,"params":{"note":"TCK-3"}}`, meta: `"progressToken":"TCK-4"`}).all(t)
		if len(notes) != 1 || member(notes[0].Params, "note") != `"[redacted: ticket]"` || member(notes[0].Params, "progressToken") != `"TCK-4"` {
			t.Errorf("%d notifications, %s", len(notes), notes[0].Append(nil))
		}
		calls := len(callsOf(t, s.Journal, 4))
		wrong := guarded.call(t, "up__echo", `{"n":"one"}`)
		if wrong.Error != nil || member(wrong.Result, "isError") != "true" || !strings.Contains(string(wrong.Result), "n: ") {
			t.Errorf("arguments that do not fit are answered %s", wrong.Append(nil))
		}
		free.succeed(t, "up__echo", `{"n":"one"}`)
		if n := len(callsOf(t, s.Journal, calls+1)); n != calls+1 {
			t.Errorf("the upstream was called %d times more, want once", n-calls)
		}
	})
}

// TestLimitsOfAPrincipal has a policy limit how often one may call, and how much at once.
func TestLimitsOfAPrincipal(t *testing.T) {
	eachEra(t, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{})
		guard, keys := keyring(t, "slow", "narrow", "free")
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, guard: guard, policy: mustPolicy(t, `
- { name: all, rules: [ { allow: { upstreams: "*" } } ] }
- { name: slow, match: { key: slow }, limits: { rate: 1/h, burst: 2 } }
- { name: narrow, match: { key: narrow }, limits: { concurrent: 1 } }
`)})
		j.offers(t, "up")
		slow, narrow, free := j.as(t, keys["slow"]), j.as(t, keys["narrow"]), j.as(t, keys["free"])
		slow.succeed(t, "up__echo", `{}`)
		slow.succeed(t, "up__echo", `{}`)
		slow.names(t) // lists are no calls
		a := slow.begin(t, called("up__echo", `{}`))
		m := a.answer(t)
		if m.Error == nil || member(m.Error.Data, "junction", "kind") != `"limited"` || len(member(m.Error.Data, "junction", "retryAfterMs")) != len("3600000") ||
			a.header.Get("Retry-After") == "" || !strings.Contains(m.Error.Message, "the next is possible in 3") {
			t.Errorf("the third call is answered %s, Retry-After %q", m.Append(nil), a.header.Get("Retry-After"))
		}
		held := narrow.begin(t, called("up__gate", `{"gate":"g"}`))
		await(t, s.Journal, "the call", func(r upstreamtest.Record) bool { return member(r.Message.Params, "name") == `"gate"` })
		m = narrow.call(t, "up__echo", `{}`)
		if m.Error == nil || member(m.Error.Data, "junction", "kind") != `"limited"` {
			t.Errorf("a second call at once is answered %s", m.Append(nil))
		}
		free.succeed(t, "up__echo", `{}`)
		s.openGate(t, "g")
		held.answer(t)
		narrow.succeed(t, "up__echo", `{}`)
	})
}

// TestProtocolT20PolicyReadsWhatIsForwarded has a rule read arguments that other readers may read
// in another way: nothing of it reaches the upstream.
func TestProtocolT20PolicyReadsWhatIsForwarded(t *testing.T) {
	eachEra(t, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{})
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, policy: mustPolicy(t, `
- name: careful
  rules:
    - deny: { tools: up__echo, where: { command: "rm *", /more/0: "rm *" } }
    - deny: { tools: up__echo, where: { command: "rm *" } }
    - allow: { upstreams: "*" }
`)})
		j.offers(t, "up")
		c := j.talk(t)
		for _, arguments := range []string{
			`{"command":"rm -rf /"}`, `{"command":"\u0072m -rf /"}`, `{"comm\u0061nd":"rm -rf /"}`, `{"command":"ls","command":"rm -rf /"}`, `{"command":"rm -rf /","command":"ls"}`,
			`{"command":"ls","Command":"rm -rf /"}`, `{"COMMAND":"rm -rf /","command":"ls"}`, `["rm -rf /"]`, `"{\"command\":\"rm -rf /\"}"`, `1`, `true`,
			`{"command":["rm","-rf","/"]}`, `{"command":{"rm":"-rf /"}}`, `{"command":"rm \u0000"}`,
		} {
			if m := c.call(t, "up__echo", arguments); m.Error == nil {
				t.Errorf("%s is answered %s", arguments, m.Result)
			}
		}
		c.succeed(t, "up__echo", `{"command":"ls","other":{"x":1,"X":2}}`)
		if n := len(callsOf(t, s.Journal, 1)); n != 1 {
			t.Errorf("the upstream was called %d times, want once", n)
		}
	})
}

// TestListsOfAPrincipalArePrivate: what an upstream says is the same for everybody is so for the
// one local user, and not where some see other things than others.
func TestListsOfAPrincipalArePrivate(t *testing.T) {
	p := pair{upstream.EraModern, upstream.EraModern, "http"}
	s := p.serve(t, upstreamtest.Script{TTLMs: 60_000, CacheScope: "public"})
	guard, keys := keyring(t, "ci")
	for _, row := range []struct {
		name   string
		world  world
		key    string
		public bool
	}{
		{"local", world{}, "", true},
		{"a key", world{guard: guard}, keys["ci"], false},
		{"local, with a policy", world{policy: mustPolicy(t, `[ { name: a, rules: [ { allow: { tools: up__echo } } ] } ]`)}, "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.world.upstreams = map[string]upstream.Config{"up": s.config}
			j := start(t, p, row.world)
			j.offers(t, "up")
			c := j.as(t, row.key)
			for _, method := range []string{"tools/list", "server/discover"} {
				if got := member(c.must(t, method, ""), "cacheScope") == `"public"`; got != row.public {
					t.Errorf("%s is public: %t, want %t", method, got, row.public)
				}
			}
		})
	}
}
