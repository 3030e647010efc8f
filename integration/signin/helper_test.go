package signin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/npm"
	"junction/integration/harness/process"
)

// This file signs people in: the real program, a provider that others wrote (npm/idp.mjs), and a
// browser of a few lines.

// mustNode starts a script. It ends with the test.
func mustNode(t testing.TB, args ...string) *npm.Script {
	t.Helper()
	return npm.MustTalk(t, args[0], func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "node", args...)
		cmd.Dir = npm.MustFolder(t)
		cmd.SysProcAttr = process.ChildAttr(syscall.SIGKILL)
		cmd.WaitDelay = 5 * time.Second
		return cmd
	})
}

// company is the program with a provider in front of which people sign in.
type company struct {
	*harness.Program
	*provider
	origin string // of the program
}

// mustCompany starts the program over the upstream at url; oauth are further lines of auth.oauth,
// with four spaces before each, config further sections, and auth further lines of that section,
// with two spaces.
func mustCompany(t testing.TB, upstream, oauth, config string, auth ...string) *company {
	t.Helper()
	return mustCompanyAt(t, process.FreePort(t), upstream, oauth, config, auth...)
}

// mustCompanyAt is mustCompany on an address of the caller's choice.
func mustCompanyAt(t testing.TB, address, upstream, oauth, config string, auth ...string) *company {
	t.Helper()
	return mustCompanyOver(t, address, fmt.Sprintf(`{ up: { url: "%s" } }`, upstream), oauth, config, auth...)
}

// mustCompanyOver is mustCompanyAt for a whole section of upstreams.
func mustCompanyOver(t testing.TB, address, upstreams, oauth, config string, auth ...string) *company {
	t.Helper()
	c := &company{Program: harness.NewProgram(t), origin: "http://" + address}
	c.provider = mustProvider(t, c.origin+"/oauth/callback/sso")
	authtest.Secret("our secret at the provider", "canary-s3cret")
	c.MustConfigure(t, fmt.Sprintf(`public_url: %s
auth:
  oauth:
    identity_providers:
      - { id: sso, name: Acme SSO, issuer: %q, client_id: junction, client_secret: canary-s3cret }
%s%s
log: { level: debug }
upstreams: %s
%s`, c.origin, c.issuer, oauth, strings.Join(auth, "\n"), upstreams, config))
	c.MustServe(t, "--listen", address)
	c.MustReady(t, harness.Patience)
	return c
}

// person is a browser and who sits in front of it. It presses what leads to the app.
type person struct {
	t       testing.TB
	name    string
	cookies map[string]map[string]string // by host
	seen    []string                     // the titles of pages
}

func newPerson(t testing.TB, name string) *person {
	return &person{t: t, name: name, cookies: map[string]map[string]string{}}
}

// page is where a browser is; of an app's own address only the URL.
type page struct {
	status int
	header http.Header
	url    *url.URL
	body   string
}

func (p *person) do(method, where string, form url.Values) page {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, where, strings.NewReader(form.Encode()))
	if err != nil {
		p.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", r.URL.Scheme+"://"+r.URL.Host)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for name, value := range p.cookies[r.URL.Host] {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	authtest.Secret("the token of a form", form.Get("csrf"))
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	keep(resp.Header.Get("Location"))
	for _, c := range resp.Cookies() { // also those for https alone, since this machine is as good
		if p.cookies[r.URL.Host] == nil {
			p.cookies[r.URL.Host] = map[string]string{}
		}
		authtest.Secret("a cookie", c.Value)
		if p.cookies[r.URL.Host][c.Name] = c.Value; c.MaxAge < 0 || c.Value == "" {
			delete(p.cookies[r.URL.Host], c.Name)
		}
	}
	return page{resp.StatusCode, resp.Header, r.URL, string(body)}
}

// keep has no log show what is in a URL for the eyes of who is sent there.
func keep(where string) {
	if u, err := url.Parse(where); err == nil {
		authtest.Secret("a code", u.Query().Get("code"))
		if state := u.Query().Get("state"); len(state) > 20 { // others are of clients, which have no secret in it
			authtest.Secret("the state of a sign-in", state)
		}
		authtest.Secret("a nonce", u.Query().Get("nonce"))
	}
}

// next is where a page leads by itself, "" if it waits for somebody.
func (g page) next() string {
	where := g.header.Get("Location")
	if _, after, ok := strings.Cut(g.header.Get("Refresh"), "url="); ok {
		where = after
	}
	if where == "" {
		return ""
	}
	keep(where)
	to, err := g.url.Parse(where)
	if err != nil {
		return ""
	}
	return to.String()
}

var (
	htmlTitle  = regexp.MustCompile(`<title>([^<]*)</title>`)
	htmlForm   = regexp.MustCompile(`(?s)<form[^>]*action="([^"]*)"[^>]*>(.*?)</form>`)
	htmlHidden = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`)
	htmlButton = regexp.MustCompile(`<button[^>]* name="action" value="([^"]*)"`)
)

// open opens a URL and follows where it leads.
func (p *person) open(where string) page {
	p.t.Helper()
	return p.follow(p.do(http.MethodGet, where, nil))
}

// follow goes on as far as pages lead by themselves: to one that waits for somebody, or to an
// address that is no page of ours or the provider's.
func (p *person) follow(g page) page {
	p.t.Helper()
	for range 20 {
		if m := htmlTitle.FindStringSubmatch(g.body); m != nil {
			p.seen = append(p.seen, html.UnescapeString(m[1]))
		}
		where := g.next()
		if where == "" {
			return g
		}
		if to, err := url.Parse(where); err != nil || !strings.HasPrefix(to.Host, "127.0.0.1:") {
			return page{g.status, g.header, to, g.body}
		}
		g = p.do(http.MethodGet, where, nil)
	}
	p.t.Fatalf("the pages go round in circles: %q", p.seen)
	return g
}

// press sends the form of a page, with the fields and what it hides.
func (p *person) press(g page, fields url.Values) page {
	p.t.Helper()
	m := htmlForm.FindStringSubmatch(g.body)
	if m == nil {
		p.t.Fatalf("there is nothing to press on %s:\n%s", g.url, g.body)
	}
	form := url.Values{}
	for _, h := range htmlHidden.FindAllStringSubmatch(m[2], -1) {
		form.Set(h[1], html.UnescapeString(h[2]))
	}
	for name, values := range fields {
		form[name] = values
	}
	to, err := g.url.Parse(html.UnescapeString(m[1]))
	if err != nil {
		p.t.Fatal(err)
	}
	return p.follow(p.do(http.MethodPost, to.String(), form))
}

// mustAllow opens what an app has a browser open, agrees to everything, signs in at the provider,
// and returns where the app was answered.
func (p *person) mustAllow(where string) *url.URL {
	p.t.Helper()
	g := p.through(where)
	if strings.Contains(g.url.Path, "/oauth/") && strings.HasPrefix(g.url.Host, "127.0.0.1:") {
		p.t.Fatalf("it ends at %s (%d):\n%s", g.url, g.status, g.body)
	}
	return g.url
}

// through is mustAllow as far as it goes: to the app, or to a page that there is no way on from.
func (p *person) through(where string) page {
	p.t.Helper()
	g := p.open(where)
	for range 10 {
		switch {
		case !strings.HasPrefix(g.url.Host, "127.0.0.1:"),
			g.url.Query().Has("code") && !strings.Contains(g.url.Path, "/oauth/"):
			return g
		case strings.Contains(g.url.Path, "/oauth/"):
			m := htmlButton.FindStringSubmatch(g.body)
			if m == nil {
				return g
			}
			g = p.press(g, url.Values{"action": {m[1]}})
		case strings.Contains(g.body, `name="login"`):
			g = p.press(g, url.Values{"login": {p.name}, "password": {"anything"}})
		default:
			g = p.press(g, nil)
		}
	}
	p.t.Fatalf("it does not end: %q", p.seen)
	return g
}

// oauthApp is a client that registered, and goes no further than the browser.
type oauthApp struct {
	c            *company
	id, redirect string
	scope        string
	path         string // of the endpoint; "" is /mcp
}

const appVerifier = "verifier-of-an-app-0123456789abcdefghijklmn"

// keep has no log show the tokens, and returns them.
func (p tokenPair) keep() tokenPair {
	authtest.Secret("an access token", p.Access)
	authtest.Secret("a refresh token", p.Refresh)
	return p
}

// mustRegister registers a client with redirect URIs, of which it uses the first.
func mustRegister(t testing.TB, c *company, redirects ...string) oauthApp {
	t.Helper()
	return mustRegisterAs(t, c, "An app", redirects...)
}

// mustRegisterAs is mustRegister for a client with a name.
func mustRegisterAs(t testing.TB, c *company, name string, redirects ...string) oauthApp {
	t.Helper()
	body, err := json.Marshal(map[string]any{"client_name": name, "redirect_uris": redirects})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(c.origin+"/oauth/register", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var m struct {
		ID string `json:"client_id"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatal(resp.Status, err)
	}
	return oauthApp{c: c, id: m.ID, redirect: redirects[0]}
}

// authorize is where the app has a browser go.
func (a oauthApp) authorize() string {
	authtest.Secret("a verifier", appVerifier)
	sum := sha256.Sum256([]byte(appVerifier))
	q := url.Values{
		"response_type": {"code"}, "client_id": {a.id}, "redirect_uri": {a.redirect}, "state": {"a state"},
		"resource":       {a.c.origin + cmp.Or(a.path, "/mcp")},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}
	if a.scope != "" {
		q.Set("scope", a.scope)
	}
	return a.c.origin + "/oauth/authorize?" + q.Encode()
}
