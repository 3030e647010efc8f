package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"junction/upstream"
	"junction/upstream/upstreamtest"
)

// The tests of this file have people sign in to the real program, with a provider that others wrote, and look at what becomes of that: calls, streams, the account, what
// is written down.

// pair is what a client is given.
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
	status, p := a.token(t, "grant_type", "authorization_code", "code", back.Query().Get("code"), "code_verifier", appVerifier, "redirect_uri", a.redirect)
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

func TestAuthT93StreamsEndWithTheSignIn(t *testing.T) {
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
	} {
		t.Run(name, func(t *testing.T) {
			runClients(t, func(t *testing.T, era upstream.Era) {
				p := a.mustSignIn(t, ann)
				mcp := showing(t, c.program, era, p.Access, "/mcp")
				stream := mcp.mustOpen(t)
				if got := mcp.call(t, "tools/list", ""); got.status != 200 {
					t.Fatalf("signed in: %s", got)
				}
				began := time.Now()
				end(p)
				mustClose(t, stream)
				if took := time.Since(began); took > 10*time.Second {
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

func TestAuthT08T95TokensAndSessionsDoNotCross(t *testing.T) {
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "endpoints: { web: { upstreams: [up] } }\n")
	a, ann, ben := mustRegister(t, c, appRedirect), newPerson(t, "ann"), newPerson(t, "ben")
	one, other := a.mustSignIn(t, ann), a.mustSignIn(t, ben)
	mine := showing(t, c.program, upstream.EraLegacy, one.Access, "/mcp")
	foreign := newClient(t, &endpoint{URL: c.origin + "/web/mcp"}, upstream.EraModern)
	foreign.key = one.Access
	wantRefused(t, "POST", refusedTo(t, foreign, "POST"), 401, refusedToken+"it is for "+c.origin+"/mcp, and this is "+c.origin+"/web/mcp")
	if got := mine.call(t, "tools/list", "", with("Authorization", "Bearer "+other.Access)); got.status != 404 {
		t.Errorf("POST by another person: %s, want 404", got)
	}
	for _, verb := range []string{http.MethodGet, http.MethodDelete} {
		if status := mine.mustDo(t, verb, with("Authorization", "Bearer "+other.Access)); status != 404 {
			t.Errorf("%s by another person: %d, want 404", verb, status)
		}
	}
	if got := mine.call(t, "tools/list", ""); got.status != 200 {
		t.Errorf("after that it is not the session of its own any more: %s", got)
	}
}

func TestAuthT91T92PeopleWhoLeave(t *testing.T) {
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "policies: [{ name: engineers, match: { group: engineering }, rules: [{ allow: { upstreams: [up] } }] }]\n")
	a, ann := mustRegister(t, c, appRedirect), newPerson(t, "ann")
	p := a.mustSignIn(t, ann)
	mcp := showing(t, c.program, upstream.EraModern, p.Access, "/mcp")
	if got := mcp.call(t, "tools/list", ""); got.status != 200 || !strings.Contains(string(got.body), "up__echo") {
		t.Fatalf("an engineer sees %s", got)
	}
	c.command("groups ben sales")
	ben := newPerson(t, "ben")
	if back := ben.open(a.authorize()); back.status != 200 {
		t.Fatal(back.status)
	}
	g := ben.open(a.authorize())
	for range 4 { // up to the page that says that there is nothing for ben
		switch {
		case strings.Contains(g.body, `name="login"`):
			g = ben.press(g, url.Values{"login": {"ben"}, "password": {"x"}})
		case strings.Contains(g.body, `value="idp:sso"`):
			g = ben.press(g, url.Values{"action": {"idp:sso"}})
		case strings.Contains(g.url.Path, "/interaction/"):
			g = ben.press(g, nil)
		}
	}
	if g.status != 403 || !strings.Contains(g.body, "ben@acme.example") || !strings.Contains(g.body, "error=access_denied") {
		t.Errorf("ben is told %d at %s: %s", g.status, g.url, g.body)
	}
}

// TestAuthT89T111T116 kills the program in the middle of refreshes, and then looks for secrets where none may be.
func TestAuthT89T111T116CrashesAndSecrets(t *testing.T) {
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "")
	a, ann := mustRegister(t, c, appRedirect), newPerson(t, "ann")
	p := a.mustSignIn(t, ann)
	secrets := []string{p.Access, p.Refresh}
	for range 5 {
		late := p
		answered := make(chan tokenPair, 1)
		go func() {
			if resp, err := http.PostForm(c.origin+"/oauth/token", url.Values{"client_id": {a.id}, "grant_type": {"refresh_token"}, "refresh_token": {late.Refresh}}); err == nil {
				defer resp.Body.Close()
				var p tokenPair
				_ = json.NewDecoder(resp.Body).Decode(&p)
				answered <- p.keep()
			}
			close(answered)
		}()
		if err := c.cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-c.done
		heard := <-answered
		c.mustStart(t, exec.Command(junctionBinary(t), "--config", c.file(), "--listen", strings.TrimPrefix(c.origin, "http://")))
		status, next := a.refresh(t, late.Refresh)
		if status != 200 || heard.Access != "" && heard != next {
			t.Fatalf("after the crash: %d %+v; before it the client has heard %+v", status, next, heard)
		}
		p, secrets = next, append(secrets, next.Access, next.Refresh)
	}
	c.mustReady(t, patience)
	if got := showing(t, c.program, upstream.EraModern, p.Access, "/mcp").call(t, "tools/list", ""); got.status != 200 {
		t.Errorf("after five crashes: %s", got)
	}
	for host, cookies := range ann.cookies {
		if strings.HasPrefix(c.origin, "http://"+host) {
			for _, value := range cookies {
				secrets = append(secrets, value)
			}
		}
	}
	secrets = append(secrets, "s3cret")
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
	files, err := filepath.Glob(filepath.Join(c.dir, "junction", "junction.db*"))
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

// TestAuthT47 registers often: nothing grows by it.
func TestAuthT47RegistrationsKeepNothing(t *testing.T) {
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "")
	size := func() (n int64) {
		files, err := filepath.Glob(filepath.Join(c.dir, "junction", "junction.db*"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			n += info.Size()
		}
		return n
	}
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
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up+`", capabilities: [danger], era: "modern`, "",
		"policies: [{ name: all, capabilities: [danger], rules: [{ allow: { upstreams: [up] } }] }]\n", `  scope_capabilities: { mcp: [], "mcp:danger": [danger] }`)
	a, ann := mustRegister(t, c, appRedirect), newPerson(t, "ann")
	p := a.mustSignIn(t, ann)
	got := showing(t, c.program, upstream.EraModern, p.Access, "/mcp").tool(t, "up__echo", `{}`)
	if got.status != 403 || !strings.Contains(got.header.Get("WWW-Authenticate"), `scope="mcp mcp:danger"`) {
		t.Fatalf("without the scope: %s %v", got, got.header)
	}
	a.scope = "mcp mcp:danger"
	p = a.mustSignIn(t, ann)
	if got := showing(t, c.program, upstream.EraModern, p.Access, "/mcp").tool(t, "up__echo", `{}`); got.status != 200 {
		t.Errorf("with it: %s", got)
	}
}

// TestAuthT117SDKDoesNotSignInAgain takes away what somebody may use while their client is signed in: the client tells them so, and opens no browser for it.
func TestAuthT117SDKDoesNotSignInAgain(t *testing.T) {
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	for _, version := range []string{"v1", "v2"} {
		t.Run(version, func(t *testing.T) {
			const theirs = "policies: [{ name: them, match: { group: engineering }, rules: [{ allow: { upstreams: [up] } }] }]\n"
			c := mustCompany(t, up, "", theirs)
			client, ann := mustNode(t, "sign-in.mjs", version, c.origin+"/mcp"), newPerson(t, "ann")
			said := client.mustSay()
			client.mustWrite(ann.mustAllow(said.Authorize).String())
			if said = client.mustSay(); len(said.Tools) == 0 {
				t.Fatalf("signed in it says %+v", said)
			}
			c.mustReload(t, "group: engineering", "group: nobody")
			client.mustWrite("again")
			if said = client.mustSay(); said.Authorize != "" || !strings.Contains(said.Error, "signed in as ann@acme.example; no policy grants access") {
				t.Errorf("it says %+v, want what there is to know and no browser", said)
			}
		})
	}
}

// TestEveryAnswerHasAnID: it is in the header of whatever is answered, on the page, in the log and in the audit.
func TestEveryAnswerHasAnID(t *testing.T) {
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "policies: [{ name: them, match: { group: engineering }, rules: [{ allow: { upstreams: [up] } }] }]\naudit: { file: stderr }\n")
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
		"/mcp", "/mcp/none", "/x", "/", "/account", "/account/x", "/oauth/authorize", "/oauth/token", "/oauth/x", "/.well-known/oauth-authorization-server",
		"/.well-known/oauth-protected-resource", "/.well-known/x",
	} {
		for _, verb := range []string{"GET", "HEAD", "POST", "OPTIONS", "PUT"} {
			status, header, body := mustGet(t, verb, c.origin+path)
			id := keep(fmt.Sprint(verb, " ", path, " ", status), header)
			if strings.HasPrefix(header.Get("Content-Type"), "text/html") && status >= 400 && !bytes.Contains(body, []byte(id)) && verb != "HEAD" {
				t.Errorf("%s %s: the page does not show %s:\n%s", verb, path, id, body)
			}
		}
	}
	runClients(t, func(t *testing.T, era upstream.Era) {
		mcp := showing(t, c.program, era, p.Access, "/mcp")
		got := mcp.tool(t, "up__echo", `{}`)
		wantEcho(t, got)
		id := keep("a call", got.header)
		c.Stderr.mustMatch(t, regexp.MustCompile(`msg=call .*name=up__echo .* request_id=`+id+` `), patience, c.done)
		c.Stderr.mustMatch(t, regexp.MustCompile(`"request_id":"`+id+`","principal":"user:.*"outcome":"ok"`), patience, c.done)
		stream := mcp.mustOpen(t)
		keep("a stream", stream.header)
	})
	c.mustReload(t, "group: engineering", "group: nobody")
	mcp := showing(t, c.program, upstream.EraModern, "", "/mcp")
	mcp.key = p.Access
	got := refusedTo(t, mcp, "POST")
	wantNoAccess(t, "POST", got, "signed in as ann@acme.example")
	c.Stderr.mustMatch(t, regexp.MustCompile(`"request_id":"`+keep("no access", got.header)+`".*"verdict":"deny","outcome":"refused"`), patience, c.done)
}
