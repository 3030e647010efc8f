package authserver

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"junction/auth/store"
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

// mistake sends a browser with an invalid request, and reports whether it was redirected. The
// client receives the same error in both cases.
func (a app) mistake(t *testing.T, what, code string, changes ...string) (sentOn bool) {
	t.Helper()
	p := newBrowser(t).once(http.MethodGet, a.asks(changes...), nil)
	next := p.header.Get("Location")
	if next == "" {
		_, link, _ := strings.Cut(p.body, `<a class="go quiet" href="`)
		link, _, _ = strings.Cut(link, `"`)
		next = html.UnescapeString(link)
	} else {
		sentOn = true
	}
	u, err := url.Parse(next)
	if err != nil || u.Query().Get("error") != code || u.Query().Get("iss") != a.s.url ||
		u.Query().Get("code") != "" || !strings.HasPrefix(next, a.redirect) {
		t.Errorf("%s: the client is told %q, want %s at %s", what, next, code, a.redirect)
	}
	switch {
	case sentOn && p.status == http.StatusSeeOther && p.header.Get("Refresh") == "":
	case !sentOn && p.status == http.StatusBadRequest && p.next() == "" && strings.Contains(p.body, "("+code+")") &&
		strings.Contains(p.body, "You were not sent there, because no user has allowed this app yet") &&
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
	const evil, good = "https://evil.example/cb?x=1", "https://good.example/cb"
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
	// A user's consent for one redirect URI does not cover another one.
	const port = "https://good.example:8443/cb"
	two := app{s, register(good, evil, port), verifier, good}
	if p := newBrowser(t).follow(two.allow(t)); p.url.Host != "good.example" || p.url.Query().Get("code") == "" {
		t.Fatalf("it ends at %s", p.url)
	}
	other, third := two, two
	other.redirect, third.redirect = evil, port
	for what, row := range mistakes(s) {
		if !two.mistake(t, what, row.code, row.changes...) ||
			other.mistake(t, what+", elsewhere", row.code, row.changes...) ||
			third.mistake(t, what+", at another port", row.code, row.changes...) {
			t.Errorf("%s: the place that was allowed is not the only one that people are sent to", what)
		}
	}
}

// allow signs ann in, and returns the page that leads back to the client.
func (a app) allow(t *testing.T) page {
	t.Helper()
	b := newBrowser(t)
	return b.follow(b.press(b.once(http.MethodGet, a.asks(), nil), "idp:sso"))
}

// TestAllowedClientsGetErrorsByRedirect: an allowed or configured client receives errors by redirect, at
// every loopback port, until its last user disconnects it.
func TestAllowedClientsGetErrorsByRedirect(t *testing.T) {
	s := mustStand(t, func(o *Options) {
		o.Config.Clients.Static = []StaticClient{{ID: "legacy", RedirectURIs: []string{"https://app.example.com/cb"}}}
	})
	verifier := strings.Repeat("v", 43)
	static := app{s, "legacy", verifier, "https://app.example.com/cb"}
	here := s.mustApp(t)
	here.mustSignIn(t, newBrowser(t))
	elsewhere := here
	elsewhere.redirect = "http://localhost:9/callback"
	_, body := s.post(t, "/oauth/register", "application/json", `{"redirect_uris":["cursor://a/cb"]}`)
	scheme := app{s, member(t, body, "client_id"), verifier, "cursor://a/cb"}
	scheme.allow(t)
	for name, a := range map[string]app{"static": static, "here": here, "at another port": elsewhere,
		"by a scheme": scheme} {
		for what, row := range mistakes(s) {
			if !a.mistake(t, name+", "+what, row.code, row.changes...) {
				t.Errorf("%s, %s: the client is not told", name, what)
			}
		}
	}
	grants, err := s.store.Grants(t.Context(), store.GrantFilter{ClientID: here.id})
	if err != nil || len(grants) != 1 {
		t.Fatal(grants, err)
	}
	if _, err := s.store.RevokeGrant(t.Context(), grants[0].ID, "test"); err != nil {
		t.Fatal(err)
	}
	if here.mistake(t, "taken back", "invalid_target", "resource", "https://other.example/mcp") {
		t.Error("after the user has taken it back people are sent there")
	}
	here.mustSignIn(t, newBrowser(t))
	s.clock.forward(2160*time.Hour + time.Minute)
	if here.mistake(t, "over", "invalid_target", "resource", "https://other.example/mcp") {
		t.Error("after the time of the sign-in people are sent there")
	}
	s.store.Close()
	p := newBrowser(t).once(http.MethodGet, here.asks("prompt", "none"), nil)
	if p.status != 503 || p.next() != "" {
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
