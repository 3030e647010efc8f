package signin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// The tests of this file have people sign in to the real program, with a provider that others
// wrote, and look at what becomes of that: calls, streams, the account, what is written down.

// tokenPair is what a client is given.
type tokenPair struct {
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
	Error   string
}

// token asks the token endpoint.
func (a oauthApp) token(t testing.TB, more ...string) (int, tokenPair) {
	t.Helper()
	form := url.Values{"client_id": {a.id}}
	for i := 0; i < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	resp, err := http.PostForm(a.c.origin+"/oauth/token", form)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var p tokenPair
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		t.Fatal(resp.Status, err)
	}
	return resp.StatusCode, p.keep()
}

func (a oauthApp) refresh(t testing.TB, token string) (int, tokenPair) {
	t.Helper()
	return a.token(t, "grant_type", "refresh_token", "refresh_token", token)
}

// mustSignIn has a person let the app in.
func (a oauthApp) mustSignIn(t testing.TB, who *person) tokenPair {
	t.Helper()
	back := who.mustAllow(a.authorize())
	status, p := a.token(t, "grant_type", "authorization_code", "code", back.Query().Get("code"), "code_verifier",
		appVerifier, "redirect_uri", a.redirect)
	if status != 200 || p.Access == "" || p.Refresh == "" {
		t.Fatalf("%d %+v after %s", status, p, back)
	}
	return p
}

// revoke gives a token up.
func (a oauthApp) revoke(t testing.TB, token string) {
	t.Helper()
	resp, err := http.PostForm(a.c.origin+"/oauth/revoke", url.Values{"client_id": {a.id}, "token": {token}})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("revoke: %s", resp.Status)
	}
}

const appRedirect = "http://localhost:7/cb"

func TestStreamsEndWithTheSignIn(t *testing.T) {
	harness.Waits(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "")
	a, ann := mustRegister(t, c, appRedirect), newPerson(t, "ann")
	for name, end := range map[string]func(p tokenPair){
		"access token":  func(p tokenPair) { a.revoke(t, p.Access) },
		"refresh token": func(p tokenPair) { a.revoke(t, p.Refresh) },
		"account": func(tokenPair) {
			account := ann.open(c.origin + "/account")
			if g := ann.press(account, nil); g.status != 200 || strings.Contains(g.body, "Disconnect<") {
				t.Errorf("disconnected: %d %s", g.status, g.body)
			}
		},
		"provider": func(tokenPair) { c.command("logout ann") },
		"session at the provider": func(tokenPair) {
			ann.press(ann.open(c.issuer+"/session/end"), url.Values{"logout": {"yes"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			harness.EachClientEra(t, func(t *testing.T, era client.Era) {
				p := a.mustSignIn(t, ann)
				mcp := showing(t, c.Program, era, p.Access, "/mcp")
				stream := mcp.MustOpen(t)
				if got := mcp.Call(t, "tools/list", ""); got.Status != 200 {
					t.Fatalf("signed in: %s", got)
				}
				end(p)
				began := time.Now()
				mustClose(t, stream)
				if took := time.Since(began); took > harness.Promptly {
					t.Errorf("the stream went on for %v", took)
				}
				wantRefused(t, "POST", refusedTo(t, mcp, "POST"), 401, refusedToken+"it was revoked")
				if status, again := a.refresh(t, p.Refresh); status != 400 || again.Error != "invalid_grant" {
					t.Errorf("refresh: %d %+v", status, again)
				}
			})
		})
	}
}

func TestTokensAndSessionsDoNotCross(t *testing.T) {
	harness.Waits(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "endpoints: { web: { upstreams: [up] } }\n")
	a, ann, ben := mustRegister(t, c, appRedirect), newPerson(t, "ann"), newPerson(t, "ben")
	one, other := a.mustSignIn(t, ann), a.mustSignIn(t, ben)
	mine := showing(t, c.Program, client.EraLegacy, one.Access, "/mcp")
	foreign := harness.NewClient(t, &harness.Endpoint{URL: c.origin + "/web/mcp"}, client.EraModern)
	foreign.Key = one.Access
	wantRefused(t, "POST", refusedTo(t, foreign, "POST"), 401,
		refusedToken+"its audience is "+c.origin+"/mcp, but this is "+c.origin+"/web/mcp")
	if got := mine.Call(t, "tools/list", "", harness.With("Authorization", "Bearer "+other.Access)); got.Status != 404 {
		t.Errorf("POST by another person: %s, want 404", got)
	}
	for _, verb := range []string{http.MethodGet, http.MethodDelete} {
		if status := mine.MustDo(t, verb, harness.With("Authorization", "Bearer "+other.Access)); status != 404 {
			t.Errorf("%s by another person: %d, want 404", verb, status)
		}
	}
	if got := mine.Call(t, "tools/list", ""); got.Status != 200 {
		t.Errorf("after that it is not the session of its own any more: %s", got)
	}
}

// TestUserWhoLeavesLosesAccess takes a minute: for so long Junction believes the provider's last answer
// about a user.
func TestUserWhoLeavesLosesAccess(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	harness.Waits(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "",
		"policies: [{ name: engineers, match: { group: engineering }, rules: [{ allow: { upstreams: [up] } }] }]\n")
	a := mustRegister(t, c, appRedirect)
	leaves, moves := a.mustSignIn(t, newPerson(t, "ann")), a.mustSignIn(t, newPerson(t, "cid"))
	list := func(p tokenPair) harness.Answered {
		mcp := showing(t, c.Program, client.EraModern, "", "/mcp")
		mcp.Key = p.Access
		return refusedTo(t, mcp, "POST")
	}
	for _, p := range []tokenPair{leaves, moves} {
		if got := list(p); got.Status != 200 || !strings.Contains(string(got.Body), "up__echo") {
			t.Fatalf("an engineer sees %s", got)
		}
	}
	c.command("disable ann")
	c.command("groups cid sales")
	gone, moved := false, false
	for began := time.Now(); !gone || !moved; time.Sleep(time.Second) {
		if time.Since(began) > 100*time.Second {
			t.Fatalf("a minute and more later it is known that one has left: %v, that the other has moved: %v", gone, moved)
		}
		if status, next := a.refresh(t, leaves.Refresh); status == 200 {
			leaves = next
		} else if gone = true; status != 400 || next.Error != "invalid_grant" {
			t.Fatalf("who has left refreshes: %d %+v", status, next)
		}
		status, next := a.refresh(t, moves.Refresh)
		if status != 200 {
			t.Fatalf("who has moved refreshes: %d %+v", status, next)
		}
		moves = next
		moved = list(moves).Status != 200
	}
	wantRefused(t, "POST", list(leaves), 401, refusedToken+"it was revoked")
	wantNoAccess(t, "POST", list(moves), "signed in as cid@acme.example")
}

// TestSignInWithoutAPolicyIsExplained: who may use nothing is told so where they sign in, and the app
// too.
func TestSignInWithoutAPolicyIsExplained(t *testing.T) {
	harness.Waits(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "",
		"policies: [{ name: engineers, match: { group: engineering }, rules: [{ allow: { upstreams: [up] } }] }]\n")
	a := mustRegister(t, c, appRedirect)
	c.command("groups ben sales")
	g := newPerson(t, "ben").through(a.authorize())
	if g.status != 403 || !strings.Contains(g.body, "ben@acme.example") ||
		!strings.Contains(g.body, "error=access_denied") || strings.Contains(g.body, "code=") {
		t.Errorf("ben is told %d at %s: %s", g.status, g.url, g.body)
	}
}

// TestCompanyExampleIsSafe runs the example of the README for a company, at other addresses: a
// group gets what its policy allows, and users of other groups get nothing.
func TestCompanyExampleIsSafe(t *testing.T) {
	defer harness.Computes(t)()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(readme), "\nA company with single sign-on")
	_, text, found2 := strings.Cut(text, "```yaml\n")
	text, _, found3 := strings.Cut(text, "```\n")
	if !found || !found2 || !found3 {
		t.Fatal("the README has no example of a company")
	}
	var tools []json.RawMessage
	for _, name := range []string{"get_issue", "create_issue"} {
		tools = append(tools, fmt.Appendf(nil, `{"name":%q,"inputSchema":{"type":"object"}}`, name))
	}
	l, address := mustLinear(t, tools...), process.FreePort(t)
	c := &company{Program: harness.NewProgram(t), origin: "http://" + address}
	c.provider = mustProvider(t, c.origin+"/oauth/callback/sso")
	for _, place := range [][2]string{{"listen: 0.0.0.0:8420", "outbound: { allow_private: [127.0.0.0/8] }"},
		{"https://mcp.example.com", c.origin}, {"https://login.example.com/realms/main", c.issuer},
		{"${IDP_SECRET}", "canary-s3cret"}, {"https://mcp.linear.app/mcp", l.url}} {
		if !strings.Contains(text, place[0]) {
			t.Fatalf("the example has no %s:\n%s", place[0], text)
		}
		text = strings.Replace(text, place[0], place[1], 1)
	}
	c.MustConfigure(t, text)
	c.MustServe(t, "--listen", address)
	c.MustReady(t, harness.Patience)
	c.command("groups ben support")
	c.command("groups cid sales")
	c.command("groups dan support,engineering")
	for name, want := range map[string][]string{
		"ann": {"linear__create_issue", "linear__get_issue"},
		"ben": {"linear__get_issue"},
		"dan": {"linear__create_issue", "linear__get_issue"},
	} {
		w := mustWorker(t, c, name)
		w.connect(c.origin + "/connect/linear")
		at := w.talk(t, client.EraModern, `{}`)
		if got := toolNames(t, at); !slices.Equal(got, want) {
			t.Errorf("%s sees %q, want %q", name, got, want)
		}
		at.Call(t, "linear__get_issue", `{"for":"`+name+`"}`)
		if !slices.ContainsFunc(l.Received(), func(r upstreamtest.Record) bool {
			return bytes.Contains(r.Body, []byte(`"get_issue"`)) && bytes.Contains(r.Body, []byte(`"for":"`+name+`"`))
		}) {
			t.Errorf("the server did not receive the call of %s", name)
		}
		m := at.Call(t, "linear__create_issue", `{"by":"`+name+`"}`)
		if denied := bytes.Contains(m.Append(nil), []byte("Unknown tool")); denied != (name == "ben") {
			t.Errorf("%s creates: %s", name, m.Append(nil))
		}
	}
	for _, r := range l.Received() {
		if bytes.Contains(r.Body, []byte(`"by":"ben"`)) {
			t.Errorf("the server received %s", r.Body)
		}
	}
	g := newPerson(t, "cid").through(mustRegister(t, c, appRedirect).authorize())
	if g.status != 403 || !strings.Contains(g.body, "cid@acme.example") || !strings.Contains(g.body, "sales") ||
		strings.Contains(g.body, "code=") {
		t.Errorf("cid is told %d at %s: %s", g.status, g.url, g.body)
	}
}

// TestAppNamesGrantNothing: an app may call itself what it likes; what policy goes by is
// its id.
func TestAppNamesGrantNothing(t *testing.T) {
	harness.Waits(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "",
		"policies: [{ name: apps, match: { oauth_client: An app }, rules: [{ allow: { upstreams: [up] } }] }]\n")
	a, ann := mustRegister(t, c, appRedirect), newPerson(t, "ann") // which calls itself "An app"
	if g := ann.through(a.authorize()); g.status != 403 || !strings.Contains(g.body, "error=access_denied") {
		t.Errorf("by the name of an app ann gets %d at %s: %s", g.status, g.url, g.body)
	}
	c.MustReload(t, "oauth_client: An app", "oauth_client: "+a.id)
	p := a.mustSignIn(t, ann)
	harness.WantEcho(t, showing(t, c.Program, client.EraModern, p.Access, "/mcp").Tool(t, "up__echo", `{}`))
	other := mustRegister(t, c, "http://localhost:8/cb")
	if g := ann.through(other.authorize()); g.status != 403 {
		t.Errorf("another app of that name gets %d at %s", g.status, g.url)
	}
}

// TestRequestStateOfAnotherUser has ben come with the state of a request of ann's, and ann with
// one that is not what she was given, or too late.
func TestRequestStateOfAnotherUser(t *testing.T) {
	harness.Waits(t)
	const lasts = 20 * time.Second
	relays, relaying := upstreamtest.Start(t, upstreamtest.Script{Era: string(client.EraModern)})
	parks, parking := upstreamtest.Start(t, upstreamtest.Script{Era: string(client.EraLegacy)})
	c := mustCompany(t, relaying+`" }, old: { url: "`+parking, "", "limits: { patience: "+lasts.String()+" }\n")
	a := mustRegister(t, c, appRedirect)
	as := func(name string) *harness.Talker {
		p := a.mustSignIn(t, newPerson(t, name))
		return (&harness.Talker{URL: c.URL, Era: client.EraModern, Capabilities: harness.AllCapabilities,
			Key: p.Access}).Start(t)
	}
	ann, ben := as("ann"), as("ben")
	late := map[string]harness.Query{}
	servers := map[string]*upstreamtest.Server{"up__ask": relays, "old__ask": parks}
	for tool, server := range servers {
		t.Run(tool, func(t *testing.T) {
			q := harness.Asking(harness.AskForm)
			q.Params = strings.Replace(q.Params, "up__ask", tool, 1)
			again := func(m jsonrpc.Message) (q2 harness.Query, state string) {
				q2 = q
				q2.Params = harness.Retried(q.Params, m,
					string(raw.Quote(harness.Requested(t, m)[0].Key))+`:`+strings.TrimPrefix(harness.Accepted, `"result":`))
				return q2, harness.Text(t, m.Result, "requestState")
			}
			good, state := again(ann.Begin(t, q).Answer(t))
			calls := callsIn(&server.Journal)
			harness.WantCode(t, ben.Begin(t, good).Answer(t), -32602)
			for i := range 20 {
				at := i * (len(state) - 1) / 19
				other := byte('A')
				if state[at] == other {
					other = 'B'
				}
				altered := good
				if altered.Params = strings.Replace(good.Params, state, state[:at]+string(other)+state[at+1:], 1); i == 19 {
					// of the last letter not every bit counts
					altered.Params = strings.Replace(good.Params, state, state[:len(state)-2], 1)
				}
				harness.WantCode(t, ann.Begin(t, altered).Answer(t), -32602)
			}
			if n := callsIn(&server.Journal); n != calls {
				t.Errorf("the upstream was called %d times more", n-calls)
			}
			if got, want := harness.AnswersOf(t, ann.Begin(t, good).Answer(t)), `[{`+harness.Accepted+`}]`; got != want {
				t.Errorf("answers = %s, want %s", got, want)
			}
			late[tool], _ = again(ann.Begin(t, q).Answer(t))
		})
	}
	<-time.After(lasts + 2*time.Second) // it has whole seconds
	for tool, q := range late {
		calls := callsIn(&servers[tool].Journal)
		era := map[string]client.Era{"up__ask": client.EraModern, "old__ask": client.EraLegacy}[tool]
		harness.WantLateAnswer(t, era, ann.Begin(t, q).Answer(t))
		if n := callsIn(&servers[tool].Journal); n != calls {
			t.Errorf("%s was called %d times more", tool, n-calls)
		}
	}
}

// TestCrashesDuringRefreshes kills the program in the middle of refreshes, and then looks
// for secrets where none may be.
func TestCrashesDuringRefreshes(t *testing.T) {
	harness.Waits(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "")
	a, ann := mustRegister(t, c, appRedirect), newPerson(t, "ann")
	p := a.mustSignIn(t, ann)
	secrets := []string{p.Access, p.Refresh}
	kills, lost := 0, 0
	for i := range 200 {
		late := p
		if i%20 != 10 {
			status, next := a.refresh(t, late.Refresh)
			if status != 200 {
				t.Fatalf("refresh %d: %d %+v", i, status, next)
			}
			p, secrets = next, append(secrets, next.Access, next.Refresh)
			continue
		}
		answered := make(chan tokenPair, 1)
		go func() {
			if resp, err := http.PostForm(c.origin+"/oauth/token",
				url.Values{"client_id": {a.id}, "grant_type": {"refresh_token"}, "refresh_token": {late.Refresh}}); err == nil {
				defer resp.Body.Close()
				var p tokenPair
				_ = json.NewDecoder(resp.Body).Decode(&p)
				answered <- p.keep()
			}
			close(answered)
		}()
		<-time.After(time.Duration(rand.IntN(5000)) * time.Microsecond) // any moment of the exchange
		if err := c.Cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-c.Done
		heard := <-answered
		if kills++; heard.Access == "" {
			lost++
		}
		c.MustServe(t, "--listen", strings.TrimPrefix(c.origin, "http://"))
		status, next := a.refresh(t, late.Refresh)
		if status != 200 || heard.Access != "" && heard != next {
			t.Fatalf("after the crash: %d %+v; before it the client has heard %+v", status, next, heard)
		}
		p, secrets = next, append(secrets, next.Access, next.Refresh)
	}
	c.MustReady(t, harness.Patience)
	if got := showing(t, c.Program, client.EraModern, p.Access, "/mcp").Call(t, "tools/list", ""); got.Status != 200 {
		t.Errorf("after %d crashes: %s", kills, got)
	}
	t.Logf("of %d answers %d were lost", kills, lost)
	secrets = append(secrets, a.mustEnter(t, "ben").Get("code")) // which nobody redeems
	for host, cookies := range ann.cookies {
		if strings.HasPrefix(c.origin, "http://"+host) {
			for _, value := range cookies {
				secrets = append(secrets, value)
			}
		}
	}
	secrets = append(secrets, "canary-s3cret")
	check := func(name string, text []byte) {
		for _, s := range secrets {
			if bytes.Contains(text, []byte(s)) {
				t.Errorf("%s shows a secret: %.12s…", name, s)
			}
			if _, half, ok := strings.Cut(s, "."); ok && name == "the log" && bytes.Contains(text, []byte(half)) {
				t.Errorf("%s shows half of a secret: %.12s…", name, half)
			}
		}
	}
	check("the log", []byte(c.Stdout.String()+c.Stderr.String()))
	files, err := filepath.Glob(filepath.Join(c.Dir, "junction", "junction.db*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		check(filepath.Base(file), text)
	}
}

// TestRegistrationsStoreNothing registers often: nothing grows by it.
func TestRegistrationsStoreNothing(t *testing.T) {
	harness.Waits(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "")
	size := func() int64 { return authtest.Size(t, filepath.Join(c.Dir, "junction", "junction.db*")) }
	before := size()
	for range 200 { // as many as the ceiling lets through at once
		mustRegister(t, c, appRedirect)
	}
	if after := size(); after != before {
		t.Errorf("the store grows from %d to %d bytes", before, after)
	}
}

// TestStepUpAtHome has a client that lacks a scope be told which one, and get it by asking.
func TestStepUpAtHome(t *testing.T) {
	harness.Waits(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up+`", capabilities: [danger], era: "modern`, "",
		"policies: [{ name: all, capabilities: [danger], rules: [{ allow: { upstreams: [up] } }] }]\n",
		`  scope_capabilities: { mcp: [], "mcp:danger": [danger] }`)
	a, ann := mustRegister(t, c, appRedirect), newPerson(t, "ann")
	p := a.mustSignIn(t, ann)
	got := showing(t, c.Program, client.EraModern, p.Access, "/mcp").Tool(t, "up__echo", `{}`)
	if got.Status != 403 || !strings.Contains(got.Header.Get("WWW-Authenticate"), `scope="mcp mcp:danger"`) {
		t.Fatalf("without the scope: %s %v", got, got.Header)
	}
	a.scope = "mcp mcp:danger"
	p = a.mustSignIn(t, ann)
	if got := showing(t, c.Program, client.EraModern, p.Access, "/mcp").Tool(t, "up__echo", `{}`); got.Status != 200 {
		t.Errorf("with it: %s", got)
	}
}

// TestSDKDoesNotSignInAgain takes away what somebody may use while their client is signed
// in: the client tells them so, and opens no browser for it.
func TestSDKDoesNotSignInAgain(t *testing.T) {
	harness.WithoutShort(t)
	defer harness.Computes(t)()
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	for _, version := range []string{"v1", "v2"} {
		t.Run(version, func(t *testing.T) {
			const theirs = "policies: [{ name: them, match: { group: engineering }, rules: [{ allow: { upstreams: [up] } }] }]\n"
			c := mustCompany(t, up, "", theirs)
			client, ann := mustNode(t, "sign-in.mjs", version, c.origin+"/mcp"), newPerson(t, "ann")
			said := mustSay(client)
			client.MustWrite(ann.mustAllow(said.Authorize).String())
			if said = mustSay(client); len(said.Tools) == 0 {
				t.Fatalf("signed in it says %+v", said)
			}
			c.MustReload(t, "group: engineering", "group: nobody")
			client.MustWrite("again")
			if said = mustSay(client); said.Authorize != "" ||
				!strings.Contains(said.Error, "signed in as ann@acme.example; no policy grants access") {
				t.Errorf("it says %+v, want what there is to know and no browser", said)
			}
		})
	}
}

// TestEveryAnswerHasAnID: it is in the header of whatever is answered, on the page, in the log and
// in the audit.
func TestEveryAnswerHasAnID(t *testing.T) {
	harness.Waits(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	ci := newAPIKey(t, "ci")
	c := mustCompany(t, up, "", `policies:
  - { name: them, match: { group: engineering }, rules: [{ allow: { upstreams: [up] } }] }
  - { name: keys, match: { kind: key }, rules: [{ allow: { upstreams: [up] } }] }
audit: { file: stderr }
`, "  api_keys: ["+ci.entry+"]")
	a, ann := mustRegister(t, c, appRedirect), newPerson(t, "ann")
	p := a.mustSignIn(t, ann)
	seen := map[string]string{}
	keep := func(what string, h http.Header) string {
		t.Helper()
		id := h.Get("X-Request-Id")
		if id == "" || seen[id] != "" || len(h.Values("X-Request-Id")) != 1 {
			t.Errorf("%s has the id %q, that of %q", what, id, seen[id])
		}
		seen[id] = what
		return id
	}
	for _, path := range []string{
		"/mcp", "/mcp/none", "/x", "/", "/account", "/account/x", "/oauth/authorize", "/oauth/token", "/oauth/x",
		"/.well-known/oauth-authorization-server",
		"/.well-known/oauth-protected-resource", "/.well-known/x",
	} {
		for _, verb := range []string{"GET", "HEAD", "POST", "OPTIONS", "PUT"} {
			status, header, body := mustGet(t, verb, c.origin+path)
			id := keep(fmt.Sprint(verb, " ", path, " ", status), header)
			if strings.HasPrefix(header.Get("Content-Type"), "text/html") && status >= 400 &&
				!bytes.Contains(body, []byte(id)) && verb != "HEAD" {
				t.Errorf("%s %s: the page does not show %s:\n%s", verb, path, id, body)
			}
		}
	}
	// Of those that show something which is no good, one in a minute is in the audit, and none that
	// show nothing.
	mcp := showing(t, c.Program, client.EraModern, "", "/mcp")
	mcp.Key = "jct_at_" + strings.Repeat("a", 43) + "." + strings.Repeat("b", 43)
	first := keep("a bad token", refusedTo(t, mcp, "POST").Header)
	for range 20 {
		keep("a bad token", refusedTo(t, mcp, "POST").Header)
	}
	c.Stderr.MustMatch(t,
		regexp.MustCompile(`"request_id":"`+first+
			`","address":"127.0.0.1","path":"/mcp","event":"request_refused","outcome":"denied","status":401,"error":"invalid_token"`), harness.Patience,
		c.Done)
	got := refusedTo(t, showing(t, c.Program, client.EraModern, ci.key, "/mcp/none"), "POST")
	c.Stderr.MustMatch(t,
		regexp.MustCompile(`"request_id":"`+keep("no endpoint", got.Header)+
			`","principal":"key:ci".*"endpoint":"none","method":"tools/list","outcome":"invalid"`), harness.Patience, c.Done)
	if n := strings.Count(c.Stderr.String(), `"status":401`); n != 1 {
		t.Errorf("the audit has %d lines of bad tokens, want one", n)
	}
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		mcp := showing(t, c.Program, era, p.Access, "/mcp")
		got := mcp.Tool(t, "up__echo", `{}`)
		harness.WantEcho(t, got)
		id := keep("a call", got.Header)
		c.Stderr.MustMatch(t, regexp.MustCompile(`msg=call .*name=up__echo .* request_id=`+id+` `), harness.Patience, c.Done)
		c.Stderr.MustMatch(t, regexp.MustCompile(`"request_id":"`+id+`","principal":"user:.*"outcome":"ok"`),
			harness.Patience, c.Done)
		stream := mcp.MustOpen(t)
		keep("a stream", stream.Header)
	})
	c.MustReload(t, "group: engineering", "group: nobody")
	mcp.Key = p.Access
	got = refusedTo(t, mcp, "POST")
	wantNoAccess(t, "POST", got, "signed in as ann@acme.example")
	c.Stderr.MustMatch(t,
		regexp.MustCompile(`"request_id":"`+keep("no access", got.Header)+`".*"verdict":"deny","outcome":"denied"`),
		harness.Patience, c.Done)
}

// TestSignInsAreWrittenDownWithTheirAddress: it is the one that policies and keys go by, also after
// the proxies in front are others.
func TestSignInsAreWrittenDownWithTheirAddress(t *testing.T) {
	harness.Waits(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "", "  trusted_proxies: [127.0.0.1/32]")
	asks := func(address string) {
		t.Helper()
		_, header, _ := mustGet(t, "GET", c.origin+"/oauth/authorize?client_id=x",
			harness.With("X-Forwarded-For", "203.0.113.9"))
		c.Stderr.MustMatch(t,
			regexp.MustCompile(`msg=sign-in event=authorize_refused .* address=`+address+` request_id=`+
				header.Get("X-Request-Id")+`\n`), harness.Patience, c.Done)
	}
	asks("203.0.113.9")
	c.MustReload(t, "trusted_proxies: [127.0.0.1/32]", "trusted_proxies: [10.0.0.0/8]")
	asks("127.0.0.1")
}

// TestUsersOfAChangedProviderStayOut: after a reload that is refused in part, the users of an identity provider
// whose entry differs in what decides are rejected, also on open streams, until a file is in force as a whole.
func TestUsersOfAChangedProviderStayOut(t *testing.T) {
	harness.Waits(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	ci := newAPIKey(t, "ci")
	c := mustCompany(t, up, "", "", "  api_keys: ["+ci.entry+"]")
	p := mustRegister(t, c, appRedirect).mustSignIn(t, newPerson(t, "ann"))
	good, err := os.ReadFile(c.File())
	if err != nil {
		t.Fatal(err)
	}
	refused := func(n int, change ...string) {
		t.Helper()
		c.MustWrite(t, strings.NewReplacer(change...).Replace(string(good))+"\naudit: { file: stderr, otlp: true }\n")
		c.Stderr.MustMatch(t, regexp.MustCompile(`(?s)`+strings.Repeat(`configuration not reloaded as a whole.*`, n)),
			harness.Patience, c.Done)
	}
	key := showing(t, c.Program, client.EraModern, ci.key, "/mcp")
	refused(1, "name: Acme SSO", "name: Other SSO")
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		harness.WantEcho(t, showing(t, c.Program, era, p.Access, "/mcp").Tool(t, "up__echo", `{}`))
	})
	ann := showing(t, c.Program, client.EraLegacy, p.Access, "/mcp")
	stream := ann.MustOpen(t)
	refused(2, "client_secret: canary-s3cret", "client_secret: canary-s3cret, email_domains: [acme.example]")
	for _, era := range []client.Era{client.EraLegacy, client.EraModern} {
		c := harness.NewClient(t, &harness.Endpoint{URL: c.URL}, era)
		c.Key = p.Access
		if a := c.Call(t, "tools/list", ""); a.Status != http.StatusUnauthorized ||
			!strings.Contains(a.String(), "the identity provider of the user has changed in the configuration") {
			t.Errorf("a %s client of ann gets %s", era, a)
		}
	}
	if t.Failed() {
		t.FailNow() // the stream would not end
	}
	for err = nil; err == nil; {
		_, err = stream.Read() // the stream of a user who is no longer accepted ends
	}
	harness.WantEcho(t, key.Tool(t, "up__echo", `{}`))
	c.MustWrite(t, string(good))
	c.Stderr.MustMatch(t, regexp.MustCompile(`msg="configuration reloaded"`), harness.Patience, c.Done)
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		harness.WantEcho(t, showing(t, c.Program, era, p.Access, "/mcp").Tool(t, "up__echo", `{}`))
	})
}
