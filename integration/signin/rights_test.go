package signin

// What a key or a token gives access to.

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// speaking is a client of the program that shows a key and calls itself name.
func speaking(t *testing.T, p *harness.Program, era client.Era, key, name string) *harness.Talker {
	t.Helper()
	return (&harness.Talker{URL: p.URL, Era: era, Version: "2025-11-25", Capabilities: harness.AllCapabilities, Key: key,
		Name: name}).Start(t)
}

// fewAndAll starts the program with a key that may use one tool and one that may use all.
func fewAndAll(t *testing.T) (few, all apiKey, p *harness.Program, journal *upstreamtest.Journal) {
	t.Helper()
	few, all = newAPIKey(t, "few"), newAPIKey(t, "all")
	p, journal = guarded(t, authSection([]apiKey{few, all})+`policies:
  - { name: few, match: { key: few }, rules: [{ allow: { tools: up__echo } }] }
  - { name: all, match: { key: all }, rules: [{ allow: { upstreams: up } }] }
`)
	return few, all, p, journal
}

func TestKeySeesOnlyWhatItMayUse(t *testing.T) {
	harness.Waits(t)
	few, all, p, journal := fewAndAll(t)
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		little, everything := speaking(t, p, era, few.key, ""), speaking(t, p, era, all.key, "")
		if got := little.Names(t); !slices.Equal(got, []string{"up__echo"}) {
			t.Errorf("few sees %q, want up__echo alone", got)
		}
		if got := everything.Names(t); !slices.Contains(got, "up__fail") || !slices.Contains(got, "up__echo") {
			t.Errorf("all sees %q, want all tools", got)
		}
		little.Succeed(t, "up__echo", `{}`)
		if m := little.Call(t, "up__fail", `{}`); m.Error == nil || m.Error.Code != -32602 ||
			m.Error.Message != "Unknown tool: up__fail" {
			t.Errorf("a call of what few may not use is answered %s", m.Append(nil))
		}
	})
	wantUncalledTool(t, journal, "fail")
	speaking(t, p, client.EraModern, all.key, "").Call(t, "up__fail", `{}`) // which reaches it
	harness.CallsOf(t, journal, 3)
}

func TestHiddenToolIsUnknown(t *testing.T) {
	harness.Waits(t)
	few, _, p, journal := fewAndAll(t)
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		c := speaking(t, p, era, few.key, "")
		for _, arguments := range []string{`{}`, `{"x":1}`, `7`, `{"a":1,"a":2}`} {
			hidden, none := c.Begin(t, harness.Called("up__fail", arguments)), c.Begin(t, harness.Called("up__none", arguments))
			if got, want := harness.WithoutName(hidden.Answer(t), "up__fail"), harness.WithoutName(none.Answer(t),
				"up__none"); got != want || hidden.Status != none.Status {
				t.Errorf("the hidden tool: %d %s\none that there is not: %d %s", hidden.Status, got, none.Status, want)
			}
			for name, values := range none.Header {
				if got := hidden.Header[name]; name != "Date" && name != "X-Request-Id" && !slices.Equal(got, values) ||
					len(hidden.Header) != len(none.Header) {
					t.Errorf("the headers differ: %v and %v", hidden.Header, none.Header)
				}
			}
		}
	})
	wantUncalledTool(t, journal, "fail")
}

// wantUncalledTool wants no call of the tool to have reached the server yet.
func wantUncalledTool(t *testing.T, j *upstreamtest.Journal, name string) {
	t.Helper()
	for _, r := range j.Received() {
		if upstreamtest.Method("tools/call")(r) && harness.Member(r.Message.Params, "name") == `"`+name+`"` {
			t.Errorf("the upstream received %s", r.Body)
		}
	}
}

// wantNoAccess wants the answer to a caller that is known and may use nothing: a text that says so, and
// no challenge.
func wantNoAccess(t *testing.T, verb string, a harness.Answered, who string) {
	t.Helper()
	want := `{"error":"access_denied","error_description":"` + who +
		`; no policy grants access (policies)","request_id":"` + a.Header.Get("X-Request-Id") + `"}`
	if a.Status != 403 || a.Header.Get("WWW-Authenticate") != "" || a.Header.Get("X-Request-Id") == "" ||
		verb != "HEAD" && string(a.Body) != want {
		t.Errorf("%s: got %s, %v\nwant 403, %s and no challenge", verb, a, a.Header, want)
	}
}

// TestKeyWithoutAPolicyIsRefused: no sign-in would help, so nothing asks for one.
func TestKeyWithoutAPolicyIsRefused(t *testing.T) {
	harness.Waits(t)
	nobody, some := newAPIKey(t, "nobody"), newAPIKey(t, "some")
	p, journal := guarded(t,
		authSection([]apiKey{nobody, some})+
			"policies: [{ name: some, match: { key: some }, rules: [{ allow: { upstreams: up } }] }]\n")
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		for _, path := range []string{"", "/up"} {
			c := harness.NewClient(t, &harness.Endpoint{URL: p.URL + path}, era)
			c.Key = nobody.key
			for _, verb := range verbs {
				a := refusedTo(t, c, verb)
				wantNoAccess(t, verb, a, "connected as key:nobody")
			}
			if a := c.Tool(t, "up__echo", `{}`); a.Status != 403 || a.Header.Get("WWW-Authenticate") != "" {
				t.Errorf("tools/call: got %s, want 403", a)
			}
		}
		harness.WantUncalled(t, journal, "tools/call")
		if got := speaking(t, p, era, some.key, "").Names(t); len(got) == 0 {
			t.Error("who has a policy sees nothing")
		}
	})
	// A client of ours makes one attempt, and says what it was told.
	_, stderr, err := harness.RunJunction(t, []string{"JUNCTION_KEY=" + nobody.key}, "tools", "--url", p.URL)
	if err == nil || !strings.Contains(stderr, "403 Forbidden: connected as key:nobody; no policy grants access") {
		t.Errorf("junction tools: %v\n%s", err, stderr)
	}
	if stdout, stderr, err := harness.RunJunction(t, nil, "call", "--url", p.URL, "up__echo", "--key",
		some.key); err != nil || !strings.Contains(stdout, "{}") {
		t.Errorf("junction call: %v\n%s%s", err, stdout, stderr)
	}
}

func TestDenyBeatsAllowInAnyOrder(t *testing.T) {
	harness.Waits(t)
	ci, other := newAPIKey(t, "ci"), newAPIKey(t, "other")
	lines := []string{
		"{ name: team, match: { kind: key }, rules: [{ allow: { upstreams: up } }] }",
		"{ name: ci, match: { key: ci }, rules: [{ deny: { tools: up__fail } }] }",
		"{ name: careful, match: { key: [ci, other] }, rules: [{ ask: { tools: up__gate } }, { allow: { tools: up__gate } " +
			"}] }",
	}
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			section := authSection([]apiKey{ci, other}) + "policies:\n"
			for _, i := range order {
				section += "  - " + lines[i] + "\n"
			}
			p, journal := guarded(t, section)
			harness.EachClientEra(t, func(t *testing.T, era client.Era) {
				denied, allowed := speaking(t, p, era, ci.key, ""), speaking(t, p, era, other.key, "")
				if got := denied.Names(t); slices.Contains(got, "up__fail") || !slices.Contains(got, "up__echo") {
					t.Errorf("ci sees %q, want all but up__fail", got)
				}
				if m := denied.Call(t, "up__fail", `{}`); m.Error == nil || m.Error.Message != "Unknown tool: up__fail" {
					t.Errorf("a call of what is denied: %s", m.Append(nil))
				}
				if got := allowed.Names(t); !slices.Contains(got, "up__fail") {
					t.Errorf("other sees %q, want up__fail too", got)
				}
				m, asked := allowed.Converse(t, harness.Called("up__gate", `{"gate":"open"}`),
					func(harness.ServerRequest) string { return `"result":{"action":"decline"}` })
				if len(asked) != 1 || m.Error == nil && harness.Member(m.Result, "isError") != "true" {
					t.Errorf("what one policy allows and another asks about was asked %d times, and then %s", len(asked),
						m.Append(nil))
				}
			})
			harness.WantUncalled(t, journal, "tools/call")
		})
	}
}

// TestNamesOfClientsGrantNothing has clients call themselves what others are called.
func TestNamesOfClientsGrantNothing(t *testing.T) {
	harness.Waits(t)
	ci, root := newAPIKey(t, "ci"), newAPIKey(t, "root")
	p, journal := guarded(t, authSection([]apiKey{ci, root})+`policies:
  - { name: ci, match: { key: ci }, rules: [{ allow: { tools: up__gate } }] }
  - { name: root, match: { key: root }, rules: [{ allow: { upstreams: up } }] }
`)
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		if got := speaking(t, p, era, root.key, "").Names(t); !slices.Contains(got, "up__echo") {
			t.Fatalf("root sees %q, want up__echo among them", got)
		}
		for _, name := range []string{"root", "key:root", "local", "junction", "junction-cli", "claude-code", "root\\u0000",
			"{\\\"key\\\":\\\"root\\\"}"} {
			c := speaking(t, p, era, ci.key, name)
			if got := c.Names(t); !slices.Equal(got, []string{"up__gate"}) {
				t.Errorf("a client that calls itself %s sees %q, want up__gate alone", name, got)
			}
			q := harness.Called("up__echo", `{}`)
			q.Params += `,"principal":"key:root","key":"root"`
			q.Meta = `"principal":"key:root","io.modelcontextprotocol/clientName":"root"`
			q.Header = http.Header{"X-User": {"root"}, "X-Forwarded-User": {"root"}, "User-Agent": {"root"},
				"Forwarded": {"for=root"}}
			if m := c.Begin(t, q).Answer(t); m.Error == nil || m.Error.Message != "Unknown tool: up__echo" {
				t.Errorf("a client that calls itself %s gets %s", name, m.Append(nil))
			}
		}
	})
	harness.WantUncalled(t, journal, "tools/call")
}

// TestStateOfAnotherPrincipalIsUnknown has one principal come with what another was given: for
// it there is no such session, state, task or cursor.
func TestStateOfAnotherPrincipalIsUnknown(t *testing.T) {
	harness.Waits(t)
	a, b := newAPIKey(t, "a"), newAPIKey(t, "b")
	server, url := upstreamtest.Start(t, upstreamtest.Script{Tasks: true})
	p := harness.MustProgram(t, authSection([]apiKey{a, b})+"limits: { page: 1 }\nupstreams: { up: { url: "+url+" } }\n")
	p.MustReady(t, harness.Patience)
	as := func(t *testing.T, era client.Era, k apiKey) *harness.Talker {
		return (&harness.Talker{URL: p.URL, Era: era, Version: "2025-11-25", Capabilities: harness.WithTasks,
			Key: k.key}).Start(t)
	}
	t.Run("session", func(t *testing.T) {
		owner := keyed(t, p, client.EraLegacy, a.key)
		stream := owner.MustOpen(t)
		thief := *owner
		thief.Key = b.key
		unknown := thief
		unknown.Session = "AAAA" + owner.Session[4:]
		for _, verb := range []string{"GET", "DELETE"} {
			if got, want := refusedTo(t, &thief, verb), refusedTo(t, &unknown, verb); got.Status != 404 ||
				got.String() != want.String() {
				t.Errorf("%s with the session of another: %s\nwith one that there is not: %s", verb, got, want)
			}
		}
		for name, body := range map[string]string{
			"request":      `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"up__echo","arguments":{}}}`,
			"notification": `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
			"answer":       `{"jsonrpc":"2.0","id":1,"result":{}}`,
			"initialized":  `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		} {
			if got, want := thief.Post(t, body), unknown.Post(t, body); got.Status != 404 || got.String() != want.String() {
				t.Errorf("%s in the session of another: %s\nin one that there is not: %s", name, got, want)
			}
		}
		harness.WantUncalled(t, &server.Journal, "tools/call")
		harness.WantEcho(t, owner.Tool(t, "up__echo", `{}`))
		if status := owner.MustDo(t, "DELETE"); status != 200 && status != 204 {
			t.Errorf("the owner ends its session: %d", status)
		}
		mustClose(t, stream) // with its session
	})
	t.Run("answer", func(t *testing.T) {
		owner := as(t, client.EraLegacy, a)
		call := owner.Begin(t, harness.Asking(harness.AskForm))
		question, ok := call.Next(t)
		if !ok || !question.IsRequest() {
			t.Fatalf("got %s, want a question", question.Append(nil))
		}
		thief := *owner
		thief.Key = b.key
		if status := thief.Post(t,
			fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, question.ID, `"result":{"action":"decline"}`)); status != 404 {
			t.Errorf("another's answer to the question: %d, want 404", status)
		}
		owner.Respond(t, question.ID, harness.Accepted)
		if got, want := harness.AnswersOf(t, call.Answer(t)), `[{`+harness.Accepted+`}]`; got != want {
			t.Errorf("answers = %s, want %s", got, want)
		}
	})
	t.Run("requestState", func(t *testing.T) {
		owner, thief := as(t, client.EraModern, a), as(t, client.EraModern, b)
		q := harness.Asking(harness.AskForm)
		m := owner.Begin(t, q).Answer(t)
		q.Params = harness.Retried(q.Params, m,
			string(raw.Quote(harness.Requested(t, m)[0].Key))+`:`+strings.TrimPrefix(harness.Accepted, `"result":`))
		calls := len(harness.CallsOf(t, &server.Journal, 1))
		harness.WantCode(t, thief.Begin(t, q).Answer(t), -32602)
		if n := len(harness.CallsOf(t, &server.Journal, 1)); n != calls {
			t.Errorf("the upstream was called %d times more", n-calls)
		}
		if got, want := harness.AnswersOf(t, owner.Begin(t, q).Answer(t)), `[{`+harness.Accepted+`}]`; got != want {
			t.Errorf("answers = %s, want %s", got, want)
		}
	})
	t.Run("task", func(t *testing.T) {
		owner, thief := as(t, client.EraModern, a), as(t, client.EraModern, b)
		id := `"taskId":` + string(raw.Quote(harness.BeginTask(t, owner, harness.Called("up__task", `{"gate":"never"}`))))
		made := `"taskId":"made up"`
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			got, want := thief.Ask(t, method, id+`,"inputResponses":{}`), thief.Ask(t, method, made+`,"inputResponses":{}`)
			harness.WantCode(t, got, -32602)
			if got.Error != nil && want.Error != nil && got.Error.Message != want.Error.Message {
				t.Errorf("%s of another's task: %s, of one that there is not: %s", method, got.Error.Message, want.Error.Message)
			}
		}
		if got := owner.Must(t, "tasks/get", id); harness.Text(t, got, "status") != "working" {
			t.Errorf("the task is none the worse: %s", got)
		}
	})
	t.Run("cursor", func(t *testing.T) {
		harness.EachClientEra(t, func(t *testing.T, era client.Era) {
			owner, thief := as(t, era, a), as(t, era, b)
			cursor := `"cursor":` + harness.Member(owner.Must(t, "tools/list", ""), "nextCursor")
			harness.WantCode(t, thief.Ask(t, "tools/list", cursor), -32602)
			owner.Must(t, "tools/list", cursor)
			thief.Must(t, "tools/list", `"cursor":`+harness.Member(thief.Must(t, "tools/list", ""), "nextCursor"))
		})
	})
}

func TestClaimsMatchPolicies(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	for name, row := range map[string]struct {
		path   string
		claims map[string]any
		match  string
		want   bool
	}{
		"nested": {"[realm_access, roles]",
			map[string]any{"realm_access": map[string]any{"roles": []string{"dev"}}}, "group: dev", true},
		"dots and slashes": {`["https://acme.example/groups"]`,
			map[string]any{"https://acme.example/groups": []string{"dev"}}, "group: dev", true},
		"not there": {"[realm_access, roles]", map[string]any{"roles": []string{"dev"}}, "group: dev", false},
		"verified": {"[groups]", map[string]any{"email": "ann@acme.example", "email_verified": true},
			"email_domain: acme.example", true},
		"not verified": {"[groups]", map[string]any{"email": "ann@acme.example", "email_verified": false},
			"email_domain: acme.example", false},
		"nobody says": {"[groups]", map[string]any{"email": "ann@acme.example"}, "email: ann@acme.example", false},
		"user": {"[groups]", nil,
			"{ user: ann, issuer: '" + s.URL + "', kind: user, oauth_client: app, scope: mcp }", true},
		"user of another": {"[groups]", nil, "{ user: ann, issuer: 'https://other.example' }", false},
	} {
		t.Run(name, func(t *testing.T) {
			match := row.match
			if match[0] != '{' {
				match = "{ " + match + " }"
			}
			p, _ := guarded(t, trusting(s, "claims: { groups: "+row.path+" }")+"policies: [{ name: them, match: "+match+
				", rules: [{ allow: { upstreams: up } }] }]\n")
			token := s.Token(t, claimed(s, row.claims))
			if row.want {
				wantTokenIn(t, p, token)
				return
			}
			c := showing(t, p, client.EraModern, "", "/mcp")
			c.Key = token
			if a := c.Tool(t, "up__echo", `{}`); a.Status != 403 || a.Header.Get("WWW-Authenticate") != "" {
				t.Errorf("got %s, %v; want 403 without a challenge, since no sign-in helps", a, a.Header)
			}
		})
	}
}

// TestUserWithoutAPolicyIsRefused: who signed in and may do nothing is told so, and is not sent to
// sign in again.
func TestUserWithoutAPolicyIsRefused(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	p, journal := guarded(t,
		trusting(s)+"policies: [{ name: others, match: { user: bob }, rules: [{ allow: { upstreams: up } }] }]\n")
	token := s.Token(t, claimed(s, map[string]any{"email": "ann@acme.example", "email_verified": true}))
	c := showing(t, p, client.EraModern, "", "/mcp")
	c.Key = token
	for _, verb := range verbs {
		wantNoAccess(t, verb, refusedTo(t, c, verb), "signed in as ann@acme.example")
	}
	harness.WantUncalled(t, journal, "tools/call")
	_, stderr, err := harness.RunJunction(t, []string{"JUNCTION_KEY=" + token}, "tools", "--url", p.URL)
	if err == nil || !strings.Contains(stderr, "403 Forbidden: signed in as ann@acme.example; no policy grants access") {
		t.Errorf("junction tools: %v\n%s", err, stderr)
	}
}

// TestStepUpNamesTheScope: a tool that only the scopes of a token withhold is listed, and a call of it
// names the scope to request.
func TestStepUpNamesTheScope(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	section := strings.Replace(trusting(s), "auth: { ",
		`auth: { scope_capabilities: { "mcp:read": [web], "mcp:write": [web, danger] }, `, 1)
	stepUp := func(scopes string) string {
		return `Bearer realm="junction", error="insufficient_scope", error_description="the token lacks a scope; needed are: ` + scopes + `", scope="` + scopes + `", resource_metadata="` + metadataURL + `/mcp"`
	}
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		server, url := upstreamtest.Start(t, upstreamtest.Script{})
		p := harness.MustProgram(t, section+`policies:
  - { name: everybody, match: { kind: user }, capabilities: [web, danger, secret], rules: [{ allow: { upstreams: up } }] }
upstreams: { up: { url: `+url+
			`, capabilities: [web], tools: { fail: { capabilities: [danger] }, gate: { capabilities: [secret] } } } }
`)
		p.MustReady(t, harness.Patience)
		read := showing(t, p, era, s.Token(t, claimed(s, map[string]any{"scope": "mcp mcp:read"})), "/mcp")
		list := read.Call(t, "tools/list", "").Body
		if !bytes.Contains(list, []byte(`"up__echo"`)) || !bytes.Contains(list, []byte(`"up__fail"`)) ||
			bytes.Contains(list, []byte(`"up__gate"`)) {
			t.Errorf("listed are %s; want what is within reach, and not what no scope gives", list)
		}
		harness.WantEcho(t, read.Tool(t, "up__echo", `{}`))
		if a := read.Tool(t, "up__fail", `{}`); a.Status != 403 ||
			a.Header.Get("WWW-Authenticate") != stepUp("mcp mcp:read mcp:write") || a.Message.Error == nil {
			t.Errorf("a call that needs another scope: %s, %v", a, a.Header)
		}
		if a := read.Tool(t, "up__gate", `{}`); a.Header.Get("WWW-Authenticate") != "" ||
			!bytes.Contains(a.Body, []byte("Unknown tool: up__gate")) {
			t.Errorf("a call that no scope helps with: %s, %v", a, a.Header)
		}
		bare := showing(t, p, era, s.Token(t, claimed(s, nil)), "/mcp")
		if a := bare.Tool(t, "up__echo", `{}`); a.Status != 403 ||
			a.Header.Get("WWW-Authenticate") != stepUp("mcp mcp:read") {
			t.Errorf("a call without any scope of use: %s, %v", a, a.Header)
		}
		if a := bare.Call(t, "resources/read", `{"uri":"mcp://up/none"}`); a.Header.Get("WWW-Authenticate") == "" &&
			a.Message.Error == nil {
			t.Errorf("a read without any scope of use: %s, %v", a, a.Header)
		}
		wantUncalledTool(t, &server.Journal, "fail")
		stdout, stderr, err := harness.RunJunction(t, p.Owner(), "why", "up__fail", "--as", "user:ann", "--scope", "mcp:read",
			"--admin", p.Admin)
		if !strings.Contains(stdout, "the token lacks a scope; needed are: mcp:read mcp:write") {
			t.Errorf("junction why: %v\n%s%s", err, stdout, stderr)
		}
		write := showing(t, p, era, s.Token(t, claimed(s, map[string]any{"scope": "mcp mcp:write"})), "/mcp")
		if a := write.Tool(t, "up__fail", `{}`); a.Status != 200 || bytes.Contains(a.Body, []byte("Unknown tool")) {
			t.Errorf("after the step up: %s", a)
		}
	})
}

// TestSubjectsOfTwoIssuersDiffer: one subject of two issuers is two people, and neither has the
// other's session.
func TestSubjectsOfTwoIssuersDiffer(t *testing.T) {
	harness.Waits(t)
	s, other := authtest.Start(t), authtest.Start(t)
	p, _ := guarded(t, "public_url: "+publicOrigin+"\nauth: { jwt: [{ issuer: "+s.URL+", audiences: ["+publicMCP+
		"] }, { issuer: "+other.URL+", audiences: ["+publicMCP+"] }] }\n")
	c := showing(t, p, client.EraLegacy, s.Token(t, claimed(s, nil)), "/mcp")
	thief := *c
	for name, token := range map[string]string{
		"the same subject of another issuer": other.Token(t, claimed(other, nil)),
		"another subject":                    s.Token(t, claimed(s, map[string]any{"sub": "eve"})),
		"a program of that name":             s.Token(t, claimed(s, map[string]any{"client_id": "ann"})),
	} {
		thief.Key = token
		if a := thief.Tool(t, "up__echo", `{}`); a.Status != 404 {
			t.Errorf("%s: %s, want 404", name, a)
		}
		for _, verb := range []string{http.MethodGet, http.MethodDelete} {
			if a := refusedTo(t, &thief, verb); a.Status != 404 {
				t.Errorf("%s: %s: %s, want 404", name, verb, a)
			}
		}
	}
	harness.WantEcho(t, c.Tool(t, "up__echo", `{}`))
	again := *c
	again.Key = s.Token(t, claimed(s, map[string]any{"exp": time.Now().Unix() + 7200}))
	harness.WantEcho(t, again.Tool(t, "up__echo", `{}`)) // a new token of the same person
}
