package signin

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// The tests of this file have people connect a server that each of them signs in to (auth: { mode:
// oauth_user }).

func TestConnectLinkOfASimpleClient(t *testing.T) {
	defer harness.Computes(t)()
	l := mustLinear(t)
	c := mustLinearCompany(t, l, "", "")
	ann := mustWorker(t, c, "ann")
	plain := ann.talk(t, client.EraLegacy, `{}`)
	if tools := toolNames(t, plain); !slices.Equal(tools, []string{"linear__connect"}) {
		t.Fatalf("before she connects it she sees %q", tools)
	}
	link := connectURL(t, plain, "linear__connect")
	if !strings.HasPrefix(link, c.origin+"/connect/linear?t=") {
		t.Errorf("the link is %s", link)
	}
	heard := plain.Get(t)
	if g := ann.connect(link); g.title() != "linear is connected" {
		t.Fatalf("it ends at %s (%d):\n%s", g.url, g.status, g.body)
	}
	heard.WantNote(t, "notifications/tools/list_changed", "")
	if tools := toolNames(t, plain); !slices.Contains(tools, "linear__echo") || slices.Contains(tools, "linear__connect") {
		t.Errorf("connected she sees %q", tools)
	}
	plain.Succeed(t, "linear__echo", `{"say":"hers"}`)
	if got := l.accounts()["hers"]; !strings.HasPrefix(got, "Bearer canary-at-ann-linear-") {
		t.Errorf("the call was made with %q", got)
	}
}

func TestConnectInBothEras(t *testing.T) {
	defer harness.Computes(t)()
	l := mustLinear(t)
	c := mustLinearCompany(t, l, "", "")
	ann := mustWorker(t, c, "ann")
	const browser = `{"elicitation":{"form":{},"url":{}}}`
	legacy, modern, simple := ann.talk(t, client.EraLegacy, browser), ann.talk(t, client.EraModern,
		browser), ann.talk(t, client.EraModern, `{}`)

	// 2025-11-25: the error -32042.
	m := legacy.Call(t, "linear__connect", `{}`)
	harness.WantCode(t, m, -32042)
	if m.Error == nil {
		t.FailNow()
	}
	list, _ := raw.Get(m.Error.Data, "elicitations")
	items, _ := raw.Elements(list)
	if len(items) != 1 || harness.Text(t, items[0], "mode") != "url" || harness.Text(t, items[0], "elicitationId") == "" ||
		!strings.HasPrefix(harness.Text(t, items[0], "url"), c.origin+"/connect/linear?t=") {
		t.Errorf("elicitations = %s", list)
	}
	// A client of 2026-07-28 that cannot: words.
	if link := connectURL(t, simple, "linear__connect"); !strings.HasPrefix(link, c.origin+"/connect/linear?t=") {
		t.Errorf("the link is %s", link)
	}
	// 2026-07-28: input_required, and the call comes back when the page is open; it waits for the
	// person.
	q := harness.Called("linear__connect", `{}`)
	m = modern.Begin(t, q).Answer(t)
	open := harness.Requested(t, m)
	if len(open) != 1 || open[0].Method != "elicitation/create" || harness.Text(t, open[0].Params, "mode") != "url" {
		t.Fatalf("asked %+v, want one elicitation", open)
	}
	again := harness.Query{Method: q.Method,
		Params: harness.Retried(q.Params, m, string(raw.Quote(open[0].Key))+`:{"action":"accept"}`)}
	waiting := modern.Begin(t, again)
	if g := ann.connect(harness.Text(t, open[0].Params, "url")); g.title() != "linear is connected" {
		t.Fatalf("it ends at %s (%d):\n%s", g.url, g.status, g.body)
	}
	if m = waiting.Answer(t); !strings.Contains(string(m.Result), "linear is connected") {
		t.Errorf("the call that offered it ends with %s", m.Append(nil))
	}
	modern.Succeed(t, "linear__echo", `{}`)
	// The state is of that call, and of her.
	if bob := mustWorker(t, c, "bob").talk(t, client.EraModern,
		browser); bob.Begin(t, harness.Query{Method: again.Method, Params: again.Params}).Answer(t).Error == nil {
		t.Error("her state was taken from somebody else")
	}

	// What was there until she disconnected is offered anew when it is called, whatever list a
	// client has kept.
	if g := ann.disconnect(t, "linear"); strings.Contains(g.body, "linear is connected") {
		t.Fatalf("her account: %s", g.body)
	}
	connectURL(t, simple, "linear__echo")
	harness.WantCode(t, legacy.Call(t, "linear__echo", `{}`), -32042)
}

// TestConnectBesideAToolOfThatName has a server with a tool called connect: what came of our offer is
// not taken for a call of that.
func TestConnectBesideAToolOfThatName(t *testing.T) {
	defer harness.Computes(t)()
	l := mustLinear(t)
	l.SetTools([]json.RawMessage{[]byte(`{"name":"connect","inputSchema":{"type":"object"}}`)})
	c := mustLinearCompany(t, l, "", "")
	ann := mustWorker(t, c, "ann")
	hers := ann.talk(t, client.EraModern, `{"elicitation":{"url":{}}}`)
	q := harness.Called("linear__connect", `{}`)
	m := hers.Begin(t, q).Answer(t)
	q.Params = harness.Retried(q.Params, m, string(raw.Quote(harness.Requested(t, m)[0].Key))+`:{"action":"accept"}`)
	ann.mustConnect(t)
	if tools := toolNames(t, hers); !slices.Equal(tools, []string{"linear__connect"}) {
		t.Errorf("connected she sees %q", tools)
	}
	harness.WantCode(t, hers.Begin(t, q).Answer(t), -32602)
	if n := len(l.accounts()); n > 0 {
		t.Errorf("the server was called %d times", n)
	}
}

func TestConnectLinkOfAnotherUser(t *testing.T) {
	defer harness.Computes(t)()
	l := mustLinear(t)
	c := mustLinearCompany(t, l, "", "")
	ann, bob := mustWorker(t, c, "ann"), mustWorker(t, c, "bob")
	hers := ann.talk(t, client.EraLegacy, `{}`)
	link := connectURL(t, hers, "linear__connect")
	for _, where := range []string{link, link + "x", c.origin + "/connect/linear?t=x",
		strings.Replace(link, "/connect/linear?", "/connect/jira?", 1)} {
		g := bob.open(where)
		if g.status != 403 && g.status != 404 || strings.Contains(g.body, "<form") {
			t.Errorf("%s = %d:\n%s", where, g.status, g.body)
		}
	}
	if n := l.count("authorize"); n != 0 {
		t.Errorf("somebody was sent to the authorization server %d times", n)
	}
	// Nor does a page of his, sent from her browser, or the other way round.
	g := bob.open(c.origin + "/connect/linear")
	if form := htmlHidden.FindStringSubmatch(g.body); form == nil ||
		ann.do("POST", c.origin+"/connect/linear", url.Values{"csrf": {form[2]}}).status != 403 {
		t.Error("her browser sends a form of his page")
	}
	// He goes there, and she brings his answer back; then he does, twice.
	his := bob.press(g, nil)
	back := bob.do("POST", his.url.String(), url.Values{"login": {"bob"}}).header.Get("Location")
	if g := ann.open(back); g.status != 403 {
		t.Errorf("his answer in her browser = %d:\n%s", g.status, g.body)
	}
	if tools := toolNames(t, hers); !slices.Equal(tools, []string{"linear__connect"}) {
		t.Errorf("then she sees %q", tools)
	}
	if g := bob.open(back); g.title() != "linear is connected" {
		t.Errorf("his answer in his browser = %d:\n%s", g.status, g.body)
	}
	if g := bob.open(back); g.status != 403 || l.count("token authorization_code") != 1 {
		t.Errorf("his answer once more = %d:\n%s", g.status, g.body)
	}
	// Who signs in as somebody else on the way is not given what was asked for the first.
	cid := newPerson(t, "cid")
	g = cid.connectUntil("Connect linear?", c.origin+"/connect/linear")
	his = cid.press(g, nil)
	back = cid.do("POST", his.url.String(), url.Values{"login": {"cid"}}).header.Get("Location")
	cid.name = "dora"
	host := strings.TrimPrefix(c.origin, "http://")
	delete(cid.cookies[host], "__Host-junction_session")
	delete(cid.cookies, strings.TrimPrefix(c.issuer, "http://"))
	if g := cid.connectUntil("Your account", c.origin+"/account"); !strings.Contains(g.body, "dora@acme.example") {
		t.Fatalf("the account is %s", g.body)
	}
	if g := cid.open(back); g.title() != "You are signed in as another user" || g.status != 403 {
		t.Errorf("with another session = %d:\n%s", g.status, g.body)
	}
	if l.count("token authorization_code") != 1 {
		t.Error("the code was redeemed")
	}
}

// TestConnectKeepsToPolicies has one person who may use one tool of the server, and one who may use
// nothing of it.
func TestConnectKeepsToPolicies(t *testing.T) {
	defer harness.Computes(t)()
	l := mustLinear(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompanyOver(t, process.FreePort(t),
		fmt.Sprintf(`{ up: { url: %q }, linear: { url: %q, auth: { mode: oauth_user } } }`, up, l.url), "",
		`outbound: { allow_private: [127.0.0.0/8] }
endpoints: { web: { upstreams: [linear] }, rest: { upstreams: [up] } }
policies:
  - { name: engineers, match: { group: engineering }, rules: [{ allow: { tools: [linear__echo, up__echo] } }] }
  - { name: sales, match: { group: sales }, rules: [{ allow: { tools: up__echo } }] }
`)
	c.command("groups bob sales")
	ann, bob := mustWorker(t, c, "ann"), mustWorker(t, c, "bob")
	tokens := map[string]string{}
	at := func(w *worker, path string) *harness.Talker {
		if tokens[w.name+path] == "" { // which is for one endpoint
			app := w.app
			app.path = path
			tokens[w.name+path] = app.mustSignIn(t, w.person).Access
		}
		return (&harness.Talker{URL: c.origin + path, Era: client.EraModern, Capabilities: `{}`,
			Key: tokens[w.name+path]}).Start(t)
	}
	want := func(what string, w *worker, path string, names ...string) {
		t.Helper()
		if got := toolNames(t, at(w, path)); !slices.Equal(got, names) {
			t.Errorf("%s: %s sees %q at %s, want %q", what, w.name, got, path, names)
		}
	}
	want("before", ann, "/mcp", "linear__connect", "up__echo")
	want("before", ann, "/mcp/linear", "connect")
	want("before", ann, "/web/mcp", "linear__connect")
	want("before", ann, "/rest/mcp", "up__echo")
	want("before", bob, "/mcp", "up__echo")
	for _, row := range [][3]string{ // an operator knows people by their addresses
		{"ANN@acme.example", "up__echo", "with the groups engineering. ANN@acme.example sees the tool up__echo at /mcp."},
		{"bob@acme.example", "up__echo", "with the groups sales. bob@acme.example sees the tool up__echo"},
		{"bob@acme.example", "linear__echo", "No item named linear__echo on /mcp. → linear may have it: each user signs in there"},
		{"cid@acme.example", "up__echo", `no user with the address "cid@acme.example" has signed in; list them with junction users list`},
	} {
		stdout, stderr, _ := harness.RunJunction(t, c.Owner(), "why", "--admin", strings.TrimPrefix(c.Admin, "http://"), "--as", row[0], row[1])
		got := strings.Replace(strings.Join(strings.Fields(stdout+stderr), " "), "ann@acme", "ANN@acme", -1)
		if !strings.Contains(got, row[2]) {
			t.Errorf("why %q says %s", row, got)
		}
	}
	if g := bob.connect(c.origin + "/connect/linear"); g.status != 403 || g.title() != "No access to linear" ||
		l.count("metadata") > 0 {
		t.Errorf("he comes to %s (%d), and the server was asked %q", g.url, g.status, l.asked)
	}
	if g := bob.open(c.origin + "/account"); strings.Contains(g.body, "linear") {
		t.Errorf("his account shows %s", g.body)
	}
	for _, name := range []string{"linear__connect", "linear__echo"} {
		unknown, never := at(bob, "/mcp").Call(t, name, `{}`), at(bob, "/mcp").Call(t, "never__was", `{}`)
		if never.Error == nil || unknown.Error == nil ||
			strings.ReplaceAll(never.Error.Message, "never__was", name) != unknown.Error.Message {
			t.Errorf("%s = %s, want what a tool gets that is not there: %s", name, unknown.Append(nil), never.Append(nil))
		}
	}
	ann.mustConnect(t)
	want("connected", ann, "/mcp", "linear__echo", "up__echo")
	want("connected", ann, "/mcp/linear", "echo")
	want("connected", ann, "/web/mcp", "linear__echo")
	want("connected", bob, "/mcp", "up__echo")
	at(ann, "/mcp/linear").Succeed(t, "echo", `{"say":"bare"}`)
	if m := at(ann, "/mcp").Call(t, "linear__whoami", `{}`); m.Error == nil {
		t.Errorf("a tool that she may not use = %s", m.Append(nil))
	}
	// Her cursors, her URIs and her session are of no use to him, as ever; and the endpoint of the
	// server does not exist for him.
	his := bob.app
	his.path = "/mcp/linear"
	token := his.mustSignIn(t, bob.person).Access
	if status, _, _ := mustGet(t, "GET", c.origin+"/mcp/linear", harness.With("Authorization", "Bearer "+token),
		harness.With("Accept", "text/event-stream")); status != 404 {
		t.Errorf("the endpoint of the server = %d for him", status)
	}
}

// TestOperatorsSeeWhatPeopleConnect: the commands of an operator describe a server with an account
// for each user, as far as other people can see it.
func TestOperatorsSeeWhatPeopleConnect(t *testing.T) {
	defer harness.Computes(t)()
	l := mustLinear(t)
	key := newAPIKey(t, "ci")
	c := mustLinearCompany(t, l, ", client_id: us, issuer: \""+l.issuer+"\"", "", "  api_keys: ["+key.entry+"]")
	junction := func(args ...string) string {
		stdout, stderr, _ := harness.RunJunction(t, c.Owner(), args...) // how it ends is another test's
		return strings.Join(strings.Fields(stdout+stderr), " ")
	}
	admin := strings.TrimPrefix(c.Admin, "http://")
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"auth", "doctor", "--config", c.File()},
			[]string{"server linear, which each person signs in to",
				"people sign in at " + strings.TrimPrefix(l.issuer, "http://"), "asked for: read",
				c.origin + "/connect/linear/callback"}},
		{[]string{"doctor", "--admin", admin, "linear"}, []string{"each person signs in there themselves"}},
		{[]string{"doctor", "--config", c.File()}, []string{"each person signs in there themselves"}},
		{[]string{"why", "--admin", admin, "--as", "ci", "linear__echo"},
			[]string{"linear may have it: each user signs in there", "key:ci is not a user who can sign in there"}},
		{[]string{"why", "--admin", admin, "--as", "user:ann", "linear__echo"}, []string{"sees the tools of their own account"}},
	} {
		got := junction(test.args...)
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("%q says %s\nwithout %q", test.args, got, want)
			}
		}
	}
	if !strings.Contains(c.Stdout.String(), "linear") || !strings.Contains(c.Stdout.String(), "per user") {
		t.Errorf("the table at the start is %s", c.Stdout)
	}
	l.change(func() { l.metadata = set("issuer", "https://as.example.com") })
	if got := junction("auth", "doctor", "--config", c.File()); !strings.Contains(got, "WRONG") ||
		!strings.Contains(got, "the metadata of another server") {
		t.Errorf("of another issuer it says %s", got)
	}
}
