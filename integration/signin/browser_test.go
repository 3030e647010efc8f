package signin

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/harness/needs"
	"junction/integration/harness/npm"
	"junction/integration/harness/process"
	"junction/upstream/upstreamtest"
)

// chromium is a real browser, with cookies, a policy for what a page may do, and a person who
// presses buttons.
type chromium struct{ *npm.Script }

// visited is what browser.mjs says.
type visited struct {
	Returned string
	Pages    []struct {
		Title, URL, Text string
		Links            []string
		Wide             bool
		Pale, Cut        []string
		Unnamed          int
	}
	Went             []struct{ Returned, Title string }
	Framed           string
	Error            string
	Console, Origins []string
}

// mustChromium starts a browser; a screenshot of each page is left where JUNCTION_SCREENSHOTS says.
func mustChromium(t *testing.T, name string) chromium {
	t.Helper()
	needs.Chromium.Require(t)
	path, err := needs.Browser()
	if err != nil {
		t.Fatal(err)
	}
	folder := os.Getenv("JUNCTION_SCREENSHOTS")
	if folder != "" {
		folder += "/" + t.Name() + "/" + url.PathEscape(name)
		if err := os.MkdirAll(folder, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return chromium{mustNode(t, "browser.mjs", path, name, folder)}
}

func (c chromium) visit(where string, keyboard bool, press ...string) visited {
	c.T.Helper()
	return c.do(map[string]any{"open": where, "press": press, "keyboard": keyboard})
}

func (c chromium) do(order map[string]any) visited {
	c.T.Helper()
	line, err := json.Marshal(order)
	if err != nil {
		c.T.Fatal(err)
	}
	c.MustWrite(string(line))
	var v visited
	c.MustRead(&v)
	if v.Error != "" {
		c.T.Errorf("the browser says %s after %+v", v.Error, v.Pages)
	}
	for _, p := range v.Pages {
		if p.Wide || p.Unnamed > 0 || len(p.Pale) > 0 || len(p.Cut) > 0 {
			c.T.Errorf("%s scrolls sideways: %v; %d things on it have no name; too pale: %q; cut off: %q", p.Title, p.Wide,
				p.Unnamed, p.Pale, p.Cut)
		}
	}
	return v
}

// mustEnd closes the browser: no page may have logged an error, or have connected to other origins.
func (c chromium) mustEnd(origins ...string) {
	c.T.Helper()
	if err := c.In.Close(); err != nil {
		c.T.Fatal(err)
	}
	var v visited
	c.MustRead(&v)
	v.Console = slices.DeleteFunc(v.Console, func(s string) bool {
		return strings.Contains(s, "favicon.ico") || strings.Contains(s, "status of 4") ||
			strings.Contains(s, "status of 503") || strings.HasPrefix(s, "verbose:") ||
			strings.Contains(s, "net::ERR_NAME_NOT_RESOLVED")
	})
	if len(v.Console) > 0 {
		c.T.Errorf("pages complain: %q", v.Console)
	}
	for _, o := range v.Origins {
		if !slices.Contains(origins, o) {
			c.T.Errorf("a page talks to %s", o)
		}
	}
}

func (v visited) titles() string {
	var all []string
	for _, p := range v.Pages {
		all = append(all, p.Title)
	}
	return strings.Join(all, " | ")
}

// codes counts those that the program has given out so far.
func (c *company) codes() int { return strings.Count(c.Stderr.String(), "event=code_issued") }

func TestSignInOfAppsInABrowser(t *testing.T) {
	harness.WithoutShort(t)
	defer harness.Computes(t)()
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "")
	client, b := mustNode(t, "sign-in.mjs", "v2", c.origin+"/mcp"), mustChromium(t, "ann")
	said := mustSay(client)
	v := b.visit(said.Authorize, false, "Continue with", "Allow")
	if !strings.HasPrefix(v.Returned, "http://localhost:61802/callback?code=") {
		t.Fatalf("it ends at %q after %+v", v.Returned, v.Pages)
	}
	client.MustWrite(v.Returned)
	said = mustSay(client)
	if !slices.Contains(said.Tools, "up__echo") {
		t.Fatalf("signed in the client says %+v", said)
	}
	// Signed in by now, with the keyboard alone, and to an app with a scheme of its own.
	app := mustRegister(t, c, "cursor://anysphere.cursor-mcp/oauth/callback")
	v = b.visit(app.authorize(), true, "Allow")
	last := v.Pages[len(v.Pages)-1]
	if !strings.HasPrefix(v.Returned, "cursor://anysphere.cursor-mcp/oauth/callback?code=") ||
		!strings.Contains(last.Title, "Connected as ann@acme.example") || !slices.Contains(last.Links, v.Returned) {
		t.Errorf("with a private scheme it ends at %q after %s; the last page has the links %q", v.Returned, v.titles(),
			last.Links)
	}
	app = mustRegister(t, c, "https://app.example.com/cb")
	// One agreement is one code, whatever else is done with the pages; and one that is none is
	// none.
	for name, row := range map[string]struct {
		more     map[string]any
		press    string
		returned string
		codes    int
	}{
		"at once":       {nil, "Allow", "https://app.example.com/cb?code=", 1},
		"clicked twice": {map[string]any{"double": true}, "Allow", "https://app.example.com/cb?code=", 1},
		"back and again": {map[string]any{"then": []string{"back", "reload", "back", "reload"}}, "Allow",
			"https://app.example.com/cb?code=", 1},
		"opened again": {map[string]any{"then": []string{"again", "reload"}}, "Allow", "https://app.example.com/cb?code=", 1},
		"reloaded": {map[string]any{"reload": true, "then": []string{"reload"}}, "Allow",
			"https://app.example.com/cb?code=", 1},
		"cancelled": {map[string]any{"then": []string{"back", "reload"}}, "Cancel",
			"https://app.example.com/cb?error=access_denied", 0},
	} {
		before := c.codes()
		order := map[string]any{"open": app.authorize(), "press": []string{row.press}}
		maps.Copy(order, row.more)
		v = b.do(order)
		if !strings.HasPrefix(v.Returned, row.returned) || len(v.Pages) != 1 {
			t.Errorf("%s it ends at %q after %s", name, v.Returned, v.titles())
		}
		if then := row.more["then"]; then != nil && len(v.Went) != len(then.([]string)) {
			t.Errorf("%s the browser went %+v", name, v.Went)
		}
		if n := c.codes() - before; n != row.codes {
			t.Errorf("%s the app is given %d codes, want %d; after that the browser went %+v", name, n, row.codes, v.Went)
		}
	}
	if v = b.visit(c.origin+"/account", false); len(v.Pages) != 1 || !strings.Contains(v.Pages[0].Text, "SDK v2") {
		t.Errorf("the account shows %+v", v.Pages)
	}
	b.visit(c.origin+"/", false)
	b.visit(strings.Replace(app.authorize(), "client_id=dcr_", "client_id=dcr_x", 1), false)
	if v = b.visit(c.origin+"/account", false, "Disconnect"); !strings.Contains(v.Pages[len(v.Pages)-1].Text, "None") {
		t.Errorf("after the last app is disconnected: %+v", v.Pages)
	}
	before := c.codes()
	v = b.do(map[string]any{"open": app.authorize(), "press": []string{"Allow", "Continue with"}, "blocked": true})
	if last := v.Pages[len(v.Pages)-1]; v.Returned != "" || len(v.Pages) != 2 ||
		!strings.Contains(last.Text, "Allow cookies for this server") || c.codes() != before {
		t.Errorf("without cookies it ends at %q after %s: %s", v.Returned, v.titles(), last.Text)
	}
	b.mustEnd(c.origin, c.issuer, "https://app.example.com", "cursor:")
}

// TestBlockedAppInABrowser has people see what the operator has done, to an app and to one of
// them.
func TestBlockedAppInABrowser(t *testing.T) {
	harness.WithoutShort(t)
	defer harness.Computes(t)()
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "")
	b, app := mustChromium(t, "ann"), mustRegister(t, c, "https://app.example.com/cb")
	if v := b.visit(app.authorize(), false, "Continue with"); !strings.HasPrefix(v.Returned,
		"https://app.example.com/cb?code=") {
		t.Fatalf("it ends at %q after %s", v.Returned, v.titles())
	}
	c.mustOperate(t, "clients", "block", "An app", "--reason", "phishing")
	v := b.visit(app.authorize(), false, "Continue with", "Allow")
	if len(v.Pages) != 1 || v.Returned != "" ||
		!strings.Contains(v.Pages[0].Text, "The operator of this server has blocked this app.") ||
		len(v.Pages[0].Links) != 0 {
		t.Errorf("it ends at %q after %+v", v.Returned, v.Pages)
	}
	c.mustOperate(t, "clients", "unblock", "An app")
	c.mustOperate(t, "users", "disable", "ann@acme.example")
	v = b.visit(app.authorize(), false, "Continue with", "Allow")
	if last := v.Pages[len(v.Pages)-1]; v.Returned != "" ||
		!strings.Contains(last.Text, "this account may not use this server") {
		t.Errorf("it ends at %q after %+v", v.Returned, v.Pages)
	}
	b.mustEnd(c.origin, c.issuer, "https://app.example.com")
}

// TestTwoProvidersInABrowser: people choose the provider at which they sign in; each provider makes them
// another user.
func TestTwoProvidersInABrowser(t *testing.T) {
	harness.WithoutShort(t)
	defer harness.Computes(t)()
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	address := process.FreePort(t)
	partner := mustProvider(t, "http://"+address+"/oauth/callback/partner")
	c := mustCompanyAt(t, address, up,
		`      - { id: partner, name: Partner login, issuer: "`+partner.issuer+
			`", client_id: junction, client_secret: canary-s3cret }`+"\n", "")
	app := mustRegister(t, c, "https://app.example.com/cb")
	for name, idp := range map[string]string{"Acme SSO": c.issuer, "Partner login": partner.issuer} {
		b := mustChromium(t, "ann")
		v := b.visit(app.authorize(), false, "Continue with "+name)
		if len(v.Pages) == 0 || !strings.Contains(v.Pages[0].Text, "Continue with Acme SSO") ||
			!strings.Contains(v.Pages[0].Text, "Continue with Partner login") {
			t.Errorf("there is no choice: %+v", v.Pages)
		}
		if !strings.HasPrefix(v.Returned, "https://app.example.com/cb?code=") {
			t.Errorf("with %s it ends at %q after %s", name, v.Returned, v.titles())
		}
		b.mustEnd(c.origin, idp, "https://app.example.com")
	}
	if n := strings.Count(c.Stderr.String(), "event=signed_in"); n != 2 {
		t.Errorf("%d have signed in", n)
	}
}

// TestPagesRefuseFramesInABrowser has another site show our pages in a frame: there is nothing in it.
func TestPagesRefuseFramesInABrowser(t *testing.T) {
	harness.WithoutShort(t)
	defer harness.Computes(t)()
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "")
	b, app := mustChromium(t, "ann"), mustRegister(t, c, "https://app.example.com/cb")
	another := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!doctype html><title>another site</title><body>")
	}))
	t.Cleanup(another.Close)
	for _, where := range []string{app.authorize(), c.origin + "/account", c.origin + "/",
		c.origin + "/oauth/callback/sso?state=x", c.origin + "/oauth/authorize?client_id=x"} {
		if v := b.do(map[string]any{"open": another.URL, "frame": where}); !strings.HasPrefix(v.Framed, "chrome-error://") {
			t.Errorf("%s is shown in a frame: %s", where, v.Framed)
		}
	}
	if v := b.do(map[string]any{"open": another.URL,
		"frame": c.origin + "/.well-known/oauth-authorization-server"}); !strings.Contains(v.Framed, "issuer") {
		t.Errorf("a frame shows nothing at all: %s", v.Framed)
	}
}

// TestRevocationInABrowser has somebody take an app's access back in their browser while the
// app is at work.
func TestRevocationInABrowser(t *testing.T) {
	harness.WithoutShort(t)
	defer harness.Computes(t)()
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "")
	b := mustChromium(t, "ann")
	gone, stays := mustRegister(t, c, "https://app.example.com/cb"), mustRegister(t, c, "https://other.example.com/cb")
	pairs := map[string]tokenPair{}
	for _, app := range []oauthApp{stays, gone} {
		v := b.visit(app.authorize(), false, "Continue with", "Allow")
		back, err := url.Parse(v.Returned)
		if err != nil || back.Query().Get("code") == "" {
			t.Fatalf("it ends at %q after %s", v.Returned, v.titles())
		}
		keep(v.Returned)
		status, p := app.token(t, "grant_type", "authorization_code", "code", back.Query().Get("code"), "code_verifier",
			appVerifier, "redirect_uri", app.redirect)
		if status != 200 {
			t.Fatal(status, p)
		}
		pairs[app.id] = p
	}
	type work struct {
		client *harness.Client
		stream *harness.EventStream
	}
	at := func(app oauthApp) (all []work) {
		for _, era := range harness.Eras {
			mcp := showing(t, c.Program, era, pairs[app.id].Access, "/mcp")
			harness.WantEcho(t, mcp.Tool(t, "up__echo", `{}`))
			all = append(all, work{mcp, mcp.MustOpen(t)})
		}
		return all
	}
	ending, going := at(gone), at(stays)
	v := b.do(map[string]any{"open": c.origin + "/account", "press": []string{"Disconnect"}, "once": true})
	account, left := v.Pages[0].Text, "other.example.com"
	// the first one is disconnected, and of two that were used in one second anyone is first
	if strings.Index(account, "app.example.com") > strings.Index(account, left) {
		gone, ending, going, left = stays, going, ending, "app.example.com"
	}
	began := time.Now()
	for _, w := range ending {
		mustClose(t, w.stream)
		wantRefused(t, "POST", refusedTo(t, w.client, "POST"), 401, refusedToken+"it was revoked")
	}
	if took := time.Since(began); took > harness.Promptly {
		t.Errorf("the streams went on for %v", took)
	}
	if status, again := gone.refresh(t, pairs[gone.id].Refresh); status != 400 || again.Error != "invalid_grant" {
		t.Errorf("refresh: %d %+v", status, again)
	}
	for _, w := range going {
		harness.WantEcho(t, w.client.Tool(t, "up__echo", `{}`))
	}
	if last := v.Pages[len(v.Pages)-1]; !strings.Contains(last.Text, left) ||
		strings.Count(last.Text, ".example.com") != 1 {
		t.Errorf("the account shows %s, want %s alone", last.Text, left)
	}
	b.mustEnd(c.origin, c.issuer, "https://app.example.com", "https://other.example.com")
}
