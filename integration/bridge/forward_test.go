package bridge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/upstreamtest"
)

// How calls are forwarded: arguments, results, headers, progress and time limits.

func TestArgumentsKeepTheirBytes(t *testing.T) {
	harness.Waits(t)
	const arguments = `{"big":9007199254740993,"bigger":123456789012345678901234567890,"float":1.0,"exp":1E+2,"neg":-0,` +
		`"text":"日本 \u00e9 \ud83d\ude00 😀","empty":{},"none":[],` +
		`"null":null,"a/b":{"":[{}]},"nested":{"deep":[1.50,{"x":0.10}]}}`
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		j.Talk(t).Succeed(t, "up__echo", arguments)
		if got := harness.Member(harness.CallsOf(t, s.Journal, 1)[0].Message.Params, "arguments"); got != arguments {
			t.Errorf("arguments = %s\nwant        %s", got, arguments)
		}
	})
}

func TestResultsKeepTheirBytes(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		c := j.Talk(t)
		for _, structured := range []string{`null`, `[1,{"a":1.0}]`, `9007199254740993`, `{}`, `"s"`} {
			if p.Client == client.EraLegacy && p.Upstream == client.EraModern && structured != `{}` {
				continue // such a client does not know it: TestStructuredContentThatIsNoObject
			}
			if p.Client == client.EraLegacy && structured == `null` {
				continue // such a client rejects it: TestResultsBetweenEras, in package proxy
			}
			want := `"content":[{"type":"hologram","x":{"y":[]}},{"type":"text","text":"ü\u2028",` +
				`"annotations":{"audience":["user"],"z":1.10},"_meta":{"k":null}}],` +
				`"structuredContent":` + structured + `,"isError":false,"unknown":{"kept":[1E2]}`
			own := `"_meta":{"com.example/x":{"a":1},"io.modelcontextprotocol/serverInfo":{"name":"up","version":"1"}},` +
				`"resultType":"complete"`
			result := string(c.Succeed(t, "up__echo", `{"result":{`+want+`,`+own+`}}`))
			if p.Client == client.EraLegacy && p.Upstream == client.EraModern { // it does not get them without Junction
				own = `"_meta":{"com.example/x":{"a":1}}`
			}
			if result != `{`+want+`,`+own+`}` {
				t.Errorf("result = %s\nwant     {%s,%s}", result, want, own)
			}
			// What a modern client is owed, and the upstream did not say, is added; nothing else
			// changes.
			result = string(c.Succeed(t, "up__echo", `{"result":{`+want+`}}`))
			if !strings.HasPrefix(result, `{`+want) || p.Client == client.EraLegacy && result != `{`+want+`}` {
				t.Errorf("result = %s\nwant     {%s}", result, want)
			}
			if p.Client == client.EraModern && harness.Text(t, []byte(result), "resultType") != "complete" {
				t.Errorf("resultType is missing in %s", result)
			}
		}
	})
}

func TestMetaReachesTheUpstream(t *testing.T) {
	harness.Waits(t)
	const trace = `"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		q := harness.Called("up__echo", `{}`)
		q.Meta = `"traceparent":` + trace + `,"com.example/key":{"n":1.0}`
		if m := j.Talk(t).Begin(t, q).Answer(t); m.Error != nil {
			t.Fatalf("error %v", m.Error)
		}
		params := harness.CallsOf(t, s.Journal, 1)[0].Message.Params
		if got := harness.Member(params, "_meta", "traceparent"); got != trace {
			t.Errorf("traceparent = %s, want %s", got, trace)
		}
		if got := harness.Member(params, "_meta", "com.example/key"); got != `{"n":1.0}` {
			t.Errorf("com.example/key = %s", got)
		}
	})
}

// eachClient runs f for clients of both eras before a modern upstream over HTTP.
func eachClient(t *testing.T, f func(*testing.T, harness.Pair)) {
	t.Helper()
	for _, clientEra := range harness.Eras {
		harness.RunPair(t, clientEra, client.EraModern, "http", f)
	}
}

func TestHeadersToModernUpstreams(t *testing.T) {
	harness.Waits(t)
	eachClient(t, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{Tools: harness.Definitions("plain", "näme with space")}, nil)
		c := j.Talk(t)
		ids := map[jsonrpc.ID]bool{}
		for i, name := range c.Names(t) {
			q := harness.Called(name, `{}`)
			q.ID = `"client"`
			if m := c.Begin(t, q).Answer(t); m.Error != nil || m.ID != `"client"` {
				t.Fatalf("%s = %s, want a result for \"client\"", name, m.Append(nil))
			}
			r := harness.CallsOf(t, s.Journal, i+1)[i]
			for header, want := range map[string]string{
				"Mcp-Method":           "tools/call",
				"Mcp-Protocol-Version": harness.Text(t, r.Message.Params, "_meta", "io.modelcontextprotocol/protocolVersion"),
				"Mcp-Name":             []string{"plain", "=?base64?bsOkbWUgd2l0aCBzcGFjZQ==?="}[i],
				"Content-Type":         "application/json", "Mcp-Session-Id": "",
			} {
				if got := r.Header.Get(header); got != want {
					t.Errorf("%s: %s = %q, want %q", name, header, got, want)
				}
			}
			if accept := r.Header.Get("Accept"); !strings.Contains(accept, "application/json") ||
				!strings.Contains(accept, "text/event-stream") {
				t.Errorf("Accept = %q, want both types", accept)
			}
			if r.Message.ID == `"client"` || ids[r.Message.ID] && harness.Processes() == 1 {
				t.Errorf("id = %s, want a fresh one", r.Message.ID)
			}
			ids[r.Message.ID] = true
		}
	})
}

// region is a tool whose argument of that type goes into Mcp-Param-Region.
func region(kind string) json.RawMessage {
	return harness.ToolWithProperties("tool", `{"region":{"type":"`+kind+`","x-mcp-header":"Region"}}`)
}

func TestParamHeadersToModernUpstreams(t *testing.T) {
	harness.Waits(t)
	eachClient(t, func(t *testing.T, p harness.Pair) {
		for _, test := range []struct{ kind, arguments, header string }{
			{"string", `{"region":"eu-west"}`, "eu-west"},
			{"string", `{"region":"Hello, 世界"}`, "=?base64?SGVsbG8sIOS4lueVjA==?="},
			{"string", `{"region":" x"}`, "=?base64?IHg=?="},
			{"integer", `{"region":42}`, "42"},
			{"boolean", `{"region":false}`, "false"},
			{"string", `{"region":null}`, ""},
			{"string", `{}`, ""},
		} {
			t.Run(test.arguments, func(t *testing.T) {
				s, j := harness.Over(t, p, upstreamtest.Script{Tools: []json.RawMessage{region(test.kind)}}, nil)
				q := harness.Called("up__tool", test.arguments)
				if test.header != "" && p.Client == client.EraModern {
					q.Header = http.Header{"Mcp-Param-Region": {test.header}}
				}
				if m := j.Talk(t).Begin(t, q).Answer(t); m.Error != nil {
					t.Fatalf("error %v", m.Error)
				}
				got := strings.Join(harness.CallsOf(t, s.Journal, 1)[0].Header["Mcp-Param-Region"], "|")
				if got != test.header {
					t.Errorf("Mcp-Param-Region = %q, want %q", got, test.header)
				}
			})
		}
	})
}

func TestFalseParamHeaderIsRefused(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras { // the check is our own, whatever the upstream speaks
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{Tools: []json.RawMessage{region("string")}}, nil)
			c := j.Talk(t)
			for what, header := range map[string]http.Header{
				"omitted": nil, "false": {"Mcp-Param-Region": {"us"}}, "twice": {"Mcp-Param-Region": {"eu", "eu"}},
				"bad Base64": {"Mcp-Param-Region": {"=?base64?%?="}},
			} {
				q := harness.Called("up__tool", `{"region":"eu"}`)
				q.Header = header
				a := c.Begin(t, q)
				if m := a.Answer(t); a.Status != http.StatusBadRequest || m.Error == nil || m.Error.Code != -32020 {
					t.Errorf("%s: status %d, %s, want 400 and -32020", what, a.Status, m.Append(nil))
				}
			}
			q := harness.Called("up__tool", `{}`)
			q.Header = http.Header{"Mcp-Param-Region": {"eu"}}
			if a := c.Begin(t, q); a.Answer(t).Error == nil || a.Status != http.StatusBadRequest {
				t.Errorf("a header without argument: status %d, want 400", a.Status)
			}
			if calls := harness.CallsOf(t, s.Journal, 0); len(calls) > 0 {
				t.Errorf("the upstream was called: %s", calls[0].Body)
			}
		})
	}
}

func TestUnknownParamHeaderIsForwarded(t *testing.T) {
	harness.Waits(t)
	p := harness.Pair{Client: client.EraModern, Upstream: client.EraModern, Transport: "http"}
	s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
	q := harness.Called("up__echo", `{}`)
	q.Header = http.Header{"Mcp-Param-Foo": {"bar"}}
	if m := j.Talk(t).Begin(t, q).Answer(t); m.Error != nil {
		t.Fatalf("error %v, want an unknown header to be none", m.Error)
	}
	if got := harness.CallsOf(t, s.Journal, 1)[0].Header.Get("Mcp-Param-Foo"); got != "bar" {
		t.Errorf("Mcp-Param-Foo = %q, want bar", got)
	}
}

// TestUnknownParamHeaderIsNotForwardedBeyondRules: a header that no tool declares is in no form of an
// approval, and no condition of a rule compares it. So a call that needs one of these is made without.
func TestUnknownParamHeaderIsNotForwardedBeyondRules(t *testing.T) {
	harness.Waits(t)
	p := harness.Pair{Client: client.EraModern, Upstream: client.EraModern, Transport: "http"}
	for rule, asked := range map[string]int{
		`ask: { tools: "up__echo" }`:                                                     1,
		`allow: { tools: "up__echo", where: { a: "x" } }`:                                0,
		`deny: { tools: "*", where: { tenant: root } } }, { allow: { tools: up__echo }`:  0,
		`ask: { tools: "*", where: { tenant: root } } }, { allow: { tools: "up__echo" }`: 0,
	} {
		s := p.Serve(t, upstreamtest.Script{})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
			Policy: harness.MustPolicy(t, "[{ name: p, rules: [{ "+rule+" }] }]")})
		j.Offers(t, "up")
		c := j.Talk(t)
		q := harness.Called("up__echo", `{"a":"x"}`)
		q.Header = http.Header{"Mcp-Param-Tenant": {"harmless"}}
		m := c.Begin(t, q).Answer(t)
		for range asked {
			// the user has read the form, and the client sends another header
			q.Header = http.Header{"Mcp-Param-Tenant": {"root"}}
			q.Params = harness.Retried(q.Params, m, fmt.Sprintf(
				`%q:{"action":"accept","content":{"answer":"Allow once"}}`, harness.Requested(t, m)[0].Key))
			m = c.Begin(t, q).Answer(t)
		}
		if m.Error != nil {
			t.Fatalf("%s: error %v", rule, m.Error)
		}
		if got := harness.CallsOf(t, s.Journal, 1)[0].Header["Mcp-Param-Tenant"]; len(got) > 0 {
			t.Errorf("%s: the upstream got Mcp-Param-Tenant %q", rule, got)
		}
	}
}

func TestHeaderMismatchIsRetriedOnce(t *testing.T) {
	harness.Waits(t)
	eachClient(t, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p,
			upstreamtest.Script{Tools: []json.RawMessage{region("string")}, NoListChanged: true,
				Rules: []upstreamtest.Rule{upstreamtest.HeaderMismatch("tools/call")}}, nil)
		c := j.Talk(t)
		// The schema changes behind our back: what was called Region is called Zone.
		if err := s.SetTools([]json.RawMessage{harness.ToolWithProperties("tool",
			`{"region":{"type":"string","x-mcp-header":"Zone"}}`)}); err != nil {
			t.Fatal(err)
		}
		q := harness.Called("up__tool", `{"region":"eu"}`)
		q.Header = http.Header{"Mcp-Param-Region": {"eu"}}
		if m := c.Begin(t, q).Answer(t); m.Error != nil {
			t.Fatalf("error %v, want success after a retry", m.Error)
		}
		var methods []string
		for _, m := range s.Methods() {
			if strings.HasPrefix(m, "tools/") {
				methods = append(methods, m)
			}
		}
		if got := methods[len(methods)-3:]; !slices.Equal(got, []string{"tools/call", "tools/list", "tools/call"}) {
			t.Errorf("the upstream got %q, want the call, the list and the call again at the end", methods)
		}
		calls := harness.CallsOf(t, s.Journal, 2)
		if got := calls[1].Header; got.Get("Mcp-Param-Zone") != "eu" || got.Get("Mcp-Param-Region") != "" {
			t.Errorf("headers of the second call: Zone %q, Region %q, want eu and none", got.Get("Mcp-Param-Zone"),
				got.Get("Mcp-Param-Region"))
		}

		s.Inside.AddRules(upstreamtest.HeaderMismatch("tools/call"), upstreamtest.HeaderMismatch("tools/call"))
		q = harness.Called("up__tool", `{}`)
		m := c.Begin(t, q).Answer(t)
		if m.Error == nil || m.Error.Code == -32020 || strings.Contains(string(m.Append(nil)), "-32020") {
			t.Errorf("after two mismatches: %s, want an error of ours that is not -32020", m.Append(nil))
		}
	})
}

func TestUnsupportedVersionIsRenegotiated(t *testing.T) {
	harness.Waits(t)
	eachClient(t, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p,
			upstreamtest.Script{Rules: []upstreamtest.Rule{upstreamtest.UnsupportedVersion("tools/call", "2026-07-28")}}, nil)
		m := j.Talk(t).Call(t, "up__echo", `{"x":1}`)
		if m.Error != nil {
			t.Fatalf("error %v, want success after a new negotiation", m.Error)
		}
		discovered := 0
		for _, m := range s.Methods() {
			if m == "server/discover" {
				discovered++
			}
		}
		if discovered != harness.Processes()+1 || len(harness.CallsOf(t, s.Journal, 2)) != 2 {
			t.Errorf("the upstream got %q, want one more server/discover and two calls", s.Methods())
		}
	})
}

func TestProgressTokensDoNotMix(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		var calls []*harness.Answering
		tokens := []string{`7`, `7`, `"7"`}
		for i, token := range tokens {
			q := harness.Called("up__progress", fmt.Sprintf(`{"n":%d,"gate":"go"}`, i+2))
			q.Meta = `"progressToken":` + token
			calls = append(calls, j.Talk(t).Begin(t, q))
		}
		for range 2 + 3 + 4 {
			if err := s.Release("go"); err != nil {
				t.Fatal(err)
			}
		}
		for i, call := range calls {
			notes, m := call.All(t)
			if m.Error != nil || len(notes) != i+2 {
				t.Errorf("call %d: %d notifications and %s, want %d and a result", i, len(notes), m.Append(nil), i+2)
			}
			for step, note := range notes {
				want := fmt.Sprintf(`"progress":%d,"total":%d`, step+1, i+2)
				if got := harness.Member(note.Params, "progressToken"); got != tokens[i] ||
					!strings.Contains(string(note.Params), want) {
					t.Errorf("call %d: progress %s, want the token %s and %s", i, note.Params, tokens[i], want)
				}
			}
		}
		seen := map[string]bool{}
		for _, r := range harness.CallsOf(t, s.Journal, 3) {
			token := harness.Member(r.Message.Params, "_meta", "progressToken")
			if token == "" || seen[token] && harness.Processes() == 1 { // unique for each process
				t.Errorf("the upstream got the token %q, want each call to have its own", token)
			}
			seen[token] = true
		}
	})
}

func TestUnaskedProgressIsDropped(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		notes, m := j.Talk(t).Begin(t, harness.Called("up__progress", `{"n":3,"unasked":true}`)).All(t)
		if m.Error != nil || len(notes) > 0 {
			t.Errorf("%d notifications and %s, want none and a result", len(notes), m.Append(nil))
		}
		if token := harness.Member(harness.CallsOf(t, s.Journal, 1)[0].Message.Params, "_meta",
			"progressToken"); token != "" {
			t.Errorf("the upstream got the token %s of a client that gave none", token)
		}
	})
}

func TestLateProgressIsDropped(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		c := j.Talk(t)
		for range 3 {
			q := harness.Called("up__progress", `{"n":1,"late":true}`)
			q.Meta = `"progressToken":"t"`
			// All fails when something follows the answer. Where one stream is for all calls, the
			// late one may be read while the answer is on its way to the client, and then comes
			// before it.
			notes, m := c.Begin(t, q).All(t)
			if m.Error != nil || len(notes) != 1 && (p.Transport == "http" || len(notes) != 2) {
				t.Errorf("%d notifications and %s, want one and a result", len(notes), m.Append(nil))
			}
			c.Succeed(t, "up__echo", `{}`) // the late one went before this answer where there is one stream for all
		}
	})
}

// TestProgressOfAnEndedCallIsDropped has the upstream tell of a call that was answered long
// ago, while another call of the same client, which gave the same token, is in progress.
func TestProgressOfAnEndedCallIsDropped(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		if p.Client == client.EraModern {
			harness.InMemory(t, "two processes may give two calls of a modern client the same progress token")
		}
		s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		c := j.Talk(t)
		withToken := func(q harness.Query) harness.Query {
			q.Meta = `"progressToken":"t"`
			return q
		}
		c.Begin(t, withToken(harness.Called("up__echo", `{}`))).Answer(t)
		token := harness.Member(harness.CallsOf(t, s.Journal, 1)[0].Message.Params, "_meta", "progressToken")
		if token == "" {
			t.Fatal("the upstream got no token")
		}
		for _, on := range []string{"call", "get"} {
			if on == "get" && p.Upstream == client.EraModern {
				continue // it has no stream beside
			}
			for _, late := range []string{token, `"t"`, `"nobody's"`, `null`} {
				tell := fmt.Sprintf(`{"on":%q,"method":"notifications/progress","params":{"progressToken":%s,"progress":9}}`, on,
					late)
				if notes, m := c.Begin(t, withToken(harness.Called("up__tell", tell))).All(t); len(notes) > 0 || m.Error != nil {
					t.Errorf("progress of %s: %d notifications and %s, want a result alone", late, len(notes), m.Append(nil))
				}
			}
		}
	})
}

func TestEqualIDsDoNotMix(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		one, two := j.Talk(t), j.Talk(t)
		var calls []*harness.Answering
		for i, c := range []*harness.Talker{one, two, one} {
			q := harness.Called("up__gate", fmt.Sprintf(`{"gate":"g%d"}`, i))
			q.ID = []string{`1`, `1`, `"1"`}[i]
			calls = append(calls, c.Begin(t, q))
			harness.Await(t, s.Journal, "call", func(r upstreamtest.Record) bool {
				return upstreamtest.Method("tools/call")(r) && strings.Contains(string(r.Body), fmt.Sprintf(`"g%d"`, i))
			})
		}
		for _, i := range []int{1, 2, 0} { // not in the order of the calls
			if err := s.Release(fmt.Sprintf("g%d", i)); err != nil {
				t.Fatal(err)
			}
			if m := calls[i].Answer(t); m.Error != nil || string(m.ID) != calls[i].ID {
				t.Errorf("call %d: %s, want a result for the id %s", i, m.Append(nil), calls[i].ID)
			}
		}
	})
}

// cancelled waits until the upstream has learned that the call of that record is over: by a
// notification with its id, or by the end of its stream.
func cancelled(t *testing.T, s *harness.Served, p harness.Pair, call upstreamtest.Record) {
	t.Helper()
	harness.Await(t, s.Journal, "cancellation", func(r upstreamtest.Record) bool {
		if p.Upstream == client.EraModern && p.Transport == "http" {
			return r.Verb == "CLOSE" && r.Message.ID == call.Message.ID
		}
		return r.Message.Method == "notifications/cancelled" &&
			harness.Member(r.Message.Params, "requestId") == string(call.Message.ID)
	})
}

func TestHungUpstreamTimesOut(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p,
			upstreamtest.Script{Rules: []upstreamtest.Rule{harness.SilentToPings}}, func(c *upstream.Config) {
				c.Tools = upstream.Rules{{Glob: "hang", Rule: upstream.Rule{Timeout: 100 * time.Millisecond}}}
			})
		c := j.Talk(t)
		c.Succeed(t, "up__echo", `{}`) // the connection of its calls is there
		harness.WantOwnError(t, c.Call(t, "up__hang", `{}`), "up", client.KindTimeout)
		cancelled(t, s, p, harness.CallsOf(t, s.Journal, 2)[1])
		c.Succeed(t, "up__echo", `{}`)
	})
}

// TestErrorsOfServersDoNotPoseAsJunction: an error of a server reaches the client without data.junction,
// which marks the errors of Junction, for each method and in each spelling. Other data keeps its bytes.
func TestErrorsOfServersDoNotPoseAsJunction(t *testing.T) {
	harness.Waits(t)
	const mark = `{"junction":{"upstream":"good","kind":"denied"}}`
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		script := harness.Library("up")
		script.Completions = map[string]json.RawMessage{"p": []byte(`{"values":[]}`)}
		for _, method := range []string{"prompts/get", "resources/read", "resources/subscribe", "completion/complete"} {
			script.Rules = append(script.Rules, upstreamtest.Rule{Method: method,
				Error: []byte(`{"code":-32000,"message":"m","data":` + mark + `}`)})
		}
		_, j := harness.Over(t, p, script, nil)
		c := j.Talk(t)
		for data, want := range map[string]string{
			mark: "{}",
			`{"a":1.0 , "junction":{"kind":"lost"},"b":[1.50]}`: `{"a":1.0 , "b":[1.50]}`,
			`{"\u006aunction":{"kind":"lost"},"b":1}`:           `{"b":1}`,
			`{"Junction":{"kind":"lost"}}`:                      "",
			`{"junction":1,"junction":{"kind":"lost"}}`:         "",
			`{ "a":{"junction":1} ,"a":2 }`:                     `{ "a":{"junction":1} ,"a":2 }`,
			`["junction"]`:                                      `["junction"]`,
		} {
			for _, code := range []int{-32000, -32602, -32021} {
				m := c.Call(t, "up__fail", fmt.Sprintf(`{"error":{"code":%d,"message":"m","data":%s}}`, code, data))
				if m.Error == nil || string(m.Error.Data) != want {
					t.Errorf("data %s of %d is %s, want %q", data, code, m.Append(nil), want)
				}
			}
		}
		queries := []harness.Query{
			{Method: "prompts/get", Params: `"name":"up__p"`},
			{Method: "resources/read", Params: `"uri":"file:///dir"`},
			{Method: "completion/complete",
				Params: `"ref":{"type":"ref/prompt","name":"up__p"},"argument":{"name":"a","value":""}`},
		}
		if p.Client == client.EraLegacy && p.Upstream == client.EraLegacy {
			queries = append(queries, harness.Query{Method: "resources/subscribe", Params: `"uri":"file:///dir"`})
		}
		for _, q := range queries {
			if m := c.Begin(t, q).Answer(t); m.Error == nil || harness.Member(m.Error.Data, "junction", "upstream") == `"good"` {
				t.Errorf("%s is answered %s", q.Method, m.Append(nil))
			}
		}
	})
}
