package authserver

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// mistakes are invalid requests, with the error of each.
func mistakes(s *stand) map[string]struct {
	changes []string
	code    string
} {
	return map[string]struct {
		changes []string
		code    string
	}{
		"no PKCE":        {[]string{"code_challenge", ""}, "invalid_request"},
		"token":          {[]string{"response_type", "token"}, "unsupported_response_type"},
		"request":        {[]string{"request", "e30.e30."}, "request_not_supported"},
		"request_uri":    {[]string{"request_uri", s.idp.URL + "/request"}, "request_uri_not_supported"},
		"prompt=none":    {[]string{"prompt", "none"}, "interaction_required"},
		"another server": {[]string{"resource", "https://other.example/mcp"}, "invalid_target"},
		"a long state":   {[]string{"state", strings.Repeat("long-", 500)}, "invalid_request"},
		"a long scope":   {[]string{"scope", strings.Repeat("long-", 1000)}, "invalid_request"},
	}
}

// told returns the URL that brings an error to the client, by redirect or by a click.
func (p page) told() string {
	if to := p.header.Get("Location"); to != "" {
		return to
	}
	_, link, _ := strings.Cut(p.body, `<a class="go quiet" href="`)
	link, _, _ = strings.Cut(link, `"`)
	return html.UnescapeString(link)
}

// mistake sends a browser with an invalid request, and reports whether it was redirected. The
// client receives the same error in both cases.
func (a app) mistake(t *testing.T, what, code string, changes ...string) (sentOn bool) {
	t.Helper()
	p := newBrowser(t).once(http.MethodGet, a.asks(changes...), nil)
	next, sentOn := p.told(), p.header.Get("Location") != ""
	u, err := url.Parse(next)
	if err != nil || u.Query().Get("error") != code || u.Query().Get("iss") != a.s.url ||
		u.Query().Get("code") != "" || !strings.HasPrefix(next, a.redirect) {
		t.Errorf("%s: the client is told %q, want %s at %s", what, next, code, a.redirect)
	}
	switch {
	case sentOn && p.status == http.StatusSeeOther && p.header.Get("Refresh") == "":
	case !sentOn && p.status == http.StatusBadRequest && p.next() == "" && strings.Contains(p.body, "("+code+")") &&
		strings.Contains(p.body, "You were not sent there, because any web page can send you here with such a request") &&
		strings.Contains(p.body, u.Host) && p.header.Get("Content-Security-Policy") != "" &&
		len(p.header["Set-Cookie"]) == 0:
	default:
		t.Errorf("%s: %d to %q\n%s", what, p.status, p.next(), p.body)
	}
	return sentOn
}

// TestInvalidRequestIsNoOpenRedirect registers clients and sends people with invalid requests. They are not
// redirected to a client that no user has allowed.
func TestInvalidRequestIsNoOpenRedirect(t *testing.T) {
	s, n := mustNet(t, nil)
	register := func(redirects ...string) string {
		t.Helper()
		_, body := s.post(t, "/oauth/register", "application/json",
			`{"client_name":"Claude Code","redirect_uris":["`+strings.Join(redirects, `","`)+`"]}`)
		return member(t, body, "client_id")
	}
	const evil = "https://evil.example/cb?x=1"
	n.put(documentAt, strings.Replace(describe(""), "http://localhost/callback", evil, 1), nil)
	verifier := strings.Repeat("v", 43)
	apps := map[string]app{
		"registered":            {s, register(evil), verifier, evil},
		"registered, this host": {s, register("http://localhost/callback"), verifier, clientAt},
		"registered, a scheme": {s, register("cursor://anysphere.cursor-mcp/oauth/callback"), verifier,
			"cursor://anysphere.cursor-mcp/oauth/callback"},
		"by document": {s, documentAt, verifier, evil},
	}
	for kind, a := range apps {
		for what, row := range mistakes(s) {
			if a.mistake(t, kind+", "+what, row.code, row.changes...) {
				t.Errorf("%s, %s: the browser is sent to %s", kind, what, a.redirect)
			}
		}
	}
}

// allow signs ann in, and returns the page that leads back to the client.
func (a app) allow(t *testing.T) page {
	t.Helper()
	b := newBrowser(t)
	return b.follow(b.press(b.once(http.MethodGet, a.asks(), nil), "idp:sso"))
}

// TestErrorsNeedAClick: a client gets its errors by redirect only if the operator has configured it. The
// consent of one user redirects no one else, since any web page can send a browser here.
func TestErrorsNeedAClick(t *testing.T) {
	s := mustStand(t, func(o *Options) {
		o.Config.Clients.Static = []StaticClient{{ID: "legacy", RedirectURIs: []string{"https://app.example.com/cb"}}}
	})
	verifier := strings.Repeat("v", 43)
	static := app{s, "legacy", verifier, "https://app.example.com/cb"}
	here := s.mustApp(t)
	here.mustSignIn(t, newBrowser(t))
	elsewhere := here
	elsewhere.redirect = "http://localhost:9/callback"
	register := func(redirect string) app {
		_, body := s.post(t, "/oauth/register", "application/json", `{"redirect_uris":["`+redirect+`"]}`)
		a := app{s, member(t, body, "client_id"), verifier, redirect}
		a.allow(t)
		return a
	}
	for name, a := range map[string]app{"static": static, "here": here, "at another port": elsewhere,
		"by a scheme": register("cursor://a/cb"), "on the web": register("https://evil.example/cb")} {
		for what, row := range mistakes(s) {
			if sent := a.mistake(t, name+", "+what, row.code, row.changes...); sent != (name == "static") {
				t.Errorf("%s, %s: redirected is %v", name, what, sent)
			}
		}
	}
	s.store.Close()
	p := newBrowser(t).once(http.MethodGet, here.asks("prompt", "none"), nil)
	if p.next() != "" {
		t.Errorf("without the store: %d to %q", p.status, p.next())
	}
}

// FuzzAuthorizeRedirects fuzzes the query of an authorization request of a client that no user has
// allowed: the answer is always a page without a redirect.
func FuzzAuthorizeRedirects(f *testing.F) {
	s := mustStand(f, nil)
	s.limits.begin.open()
	id, err := s.registrar.seal(sealedClient{Redirects: []string{"http://localhost/callback",
		"https://evil.example/cb?x=1", "cursor://a/b"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("redirect_uri=https://evil.example/cb?x%3D1&response_type=token&state=x")
	f.Add("redirect_uri=cursor://a/b&response_type=code&code_challenge_method=S256&code_challenge=" +
		strings.Repeat("c", 43))
	f.Add("redirect_uri=http://localhost:1/callback&response_type=code&prompt=none&scope=a&scope=b")
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequest(http.MethodGet, "/oauth/authorize", nil)
		r.URL.RawQuery = query + "&client_id=" + id
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		h := w.Header()
		if w.Code != 200 && w.Code != 400 || h.Get("Location") != "" || h.Get("Refresh") != "" ||
			h.Get("Content-Security-Policy") == "" {
			t.Errorf("%q is answered %d, %v", query, w.Code, h)
		}
		if body := w.Body.String(); strings.Contains(body, "<script") ||
			strings.Contains(body, fmt.Sprintf("href=%q", "javascript:")) {
			t.Errorf("%q: %s", query, body)
		}
	})
}
