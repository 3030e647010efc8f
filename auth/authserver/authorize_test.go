package authserver

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/store"
)

// The numbered tests of this file assert what must not happen between a client, a person and a
// provider. They use only HTTP.

func TestUnknownClientsGetNoRedirect(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	for name, changes := range map[string][]string{
		"no client":            {"client_id", ""},
		"an unknown client":    {"client_id", "somebody"},
		"an altered client":    {"client_id", a.id[:len(a.id)-2] + "xx"},
		"a foreign redirect":   {"redirect_uri", "https://evil.example/cb"},
		"another path":         {"redirect_uri", "http://localhost:61802/other"},
		"another host":         {"redirect_uri", "http://127.0.0.1:61802/callback"},
		"script":               {"redirect_uri", "javascript:alert(1)"},
		"a client of markup":   {"client_id", `"><script>alert(1)</script>`},
		"a redirect of markup": {"redirect_uri", `http://localhost/"><script>alert(1)</script>`},
	} {
		p := b.once(http.MethodGet, a.asks(changes...), nil)
		if p.status != 400 || p.next() != "" || strings.Contains(p.body, "<script") ||
			!strings.Contains(p.body, "What you can do") {
			t.Errorf("%s: %d, to %q\n%s", name, p.status, p.next(), p.body)
		}
	}
}

// TestBlockedClientLosesItsGrants blocks an app that one user has allowed, and that others are about to
// allow.
func TestBlockedClientLosesItsGrants(t *testing.T) {
	s, n := mustNet(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	document, other := a, a
	document.id = documentAt
	_, body := s.post(t, "/oauth/register", "application/json",
		`{"client_name":"Claude Code (other)","redirect_uris":["http://localhost:3118/callback"]}`)
	other.id = member(t, body, "client_id")
	for name, a := range map[string]app{"registered": a, "by document": document} {
		t.Run(name, func(t *testing.T) {
			m, code := a.mustSignIn(t, b), a.mustCode(t, b)
			if _, err := s.verify(m["access_token"]); err != nil {
				t.Fatal(err)
			}
			asked := b.once(http.MethodGet, a.asks(), nil) // who is asked now decides later
			if !strings.Contains(asked.body, `value="allow"`) {
				t.Fatalf("the page is %d %s", asked.status, asked.body)
			}
			ended, err := s.store.BlockClient(t.Context(), store.Block{ClientID: a.id, Reason: "the reason"})
			if err != nil || len(ended) != 2 {
				t.Fatalf("BlockClient = %q, %v; want two grants", ended, err)
			}
			for what, p := range map[string]page{"asks": b.once(http.MethodGet, a.asks(), nil),
				"was asking": b.follow(b.press(asked, "allow"))} {
				if p.status != 400 || p.next() != "" || !strings.Contains(p.body, "The operator of this server has "+
					"blocked this app.") || strings.Contains(p.body, "What you can do") ||
					!strings.Contains(p.body, clientAt) || strings.Contains(p.body, "the reason") {
					t.Errorf("the app %s: %d at %s, to %q\n%s", what, p.status, p.url, p.next(), p.body)
				}
			}
			// With invalid_client it would register again, and be allowed.
			for what, try := range map[string]func() (int, map[string]any){
				"its code":          func() (int, map[string]any) { return a.redeem(t, code) },
				"its refresh token": func() (int, map[string]any) { return a.refresh(t, m["refresh_token"]) },
			} {
				if status, m := try(); status != 400 || m["error"] != "invalid_grant" ||
					m["error_description"] != "The operator of this server has blocked this app." {
					t.Errorf("%s: %d %v", what, status, m)
				}
			}
			s.clock.forward(cacheTTL)
			s.mustNotVerify(t, m["access_token"], "it was revoked")
			other.mustSignIn(t, newBrowser(t))
			grants, err := s.store.Grants(t.Context(), store.GrantFilter{ClientID: a.id, Standing: true})
			if err != nil || len(grants) != 0 {
				t.Errorf("it has the grants %+v, %v", grants, err)
			}
			if err := s.store.UnblockClient(t.Context(), a.id); err != nil {
				t.Fatal(err)
			}
			a.mustSignIn(t, b)
		})
	}
	// Nothing is fetched for a blocked client.
	document.id = "https://evil.example/client.json"
	if _, err := s.store.BlockClient(t.Context(), store.Block{ClientID: document.id}); err != nil {
		t.Fatal(err)
	}
	before := n.asked.Load()
	if p := b.once(http.MethodGet, document.asks(), nil); p.status != 400 ||
		!strings.Contains(p.body, "has blocked this app") || n.asked.Load() != before {
		t.Errorf("%d, with %d fetches\n%s", p.status, n.asked.Load()-before, p.body)
	}
}

// TestBlockWhileACodeIsIssued blocks an app at the one moment between the check and the
// grant.
func TestBlockWhileACodeIsIssued(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) *store.Store{"sqlite": func(*testing.T) *store.Store { return nil }, "postgres": onPostgres} {
		t.Run(name, func(t *testing.T) {
			var options Options
			s := mustStand(t, func(o *Options) {
				if other := open(t); other != nil {
					o.Store = other
				}
				options = *o
			})
			s.store = options.Store
			a, b := s.mustApp(t), newBrowser(t)
			s.granted = func(*auth.Principal) bool {
				if _, err := s.store.BlockClient(t.Context(), store.Block{ClientID: a.id}); err != nil {
					t.Error(err)
				}
				return true
			}
			p := b.follow(b.press(b.once(http.MethodGet, a.asks(), nil), "idp:sso"))
			if p.status != 400 || p.next() != "" || !strings.Contains(p.body, "has blocked this app") {
				t.Errorf("%d at %s, to %q\n%s", p.status, p.url, p.next(), p.body)
			}
			if grants, err := s.store.Grants(t.Context(), store.GrantFilter{Standing: true}); err != nil ||
				len(grants) != 0 {
				t.Errorf("it has the grants %+v, %v", grants, err)
			}
		})
	}
}

func (p page) next() string { return p.header.Get("Location") + p.header.Get("Refresh") }

func TestRedirectPortsVaryOnlyOnLoopback(t *testing.T) {
	s := mustStand(t, nil)
	b := newBrowser(t)
	for redirect, uses := range map[string]map[string]bool{
		"http://localhost/cb": {"http://localhost:1234/cb": true, "http://127.0.0.1:1234/cb": false,
			"http://localhost:1234/cb?x": false, "https://localhost:1234/cb": false},
		"http://127.0.0.1:9/": {"http://127.0.0.1:1234/": true, "http://127.0.0.1:1234/x": false},
		"http://[::1]/cb":     {"http://[::1]:1234/cb": true, "http://localhost/cb": false},
		"https://a.example/cb?x=1": {"https://a.example/cb?x=1": true, "https://a.example:444/cb?x=1": false,
			"https://a.example/cb": false},
		"cursor://a/cb": {"cursor://a/cb": true, "cursor://a/cb/": false},
	} {
		_, body := s.post(t, "/oauth/register", "application/json", `{"redirect_uris":["`+redirect+`"]}`)
		a := app{s, member(t, body, "client_id"), strings.Repeat("v", 43), redirect}
		for used, want := range uses {
			p := b.once(http.MethodGet, a.asks("redirect_uri", used), nil)
			if got := p.status == 200 && strings.Contains(p.body, `value="idp:sso"`); got != want {
				t.Errorf("%s as %s: %d, want %v", redirect, used, p.status, want)
			}
		}
	}
}

func TestInvalidRequestsAreReportedToTheClient(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	for name, row := range map[string]struct {
		changes []string
		want    string
	}{
		"no PKCE":           {[]string{"code_challenge", ""}, "invalid_request"},
		"plain":             {[]string{"code_challenge_method", "plain"}, "invalid_request"},
		"no method":         {[]string{"code_challenge_method", ""}, "invalid_request"},
		"a short challenge": {[]string{"code_challenge", "x"}, "invalid_request"},
		"token":             {[]string{"response_type", "token"}, "unsupported_response_type"},
		"no response type":  {[]string{"response_type", ""}, "unsupported_response_type"},
		"fragment":          {[]string{"response_mode", "fragment"}, "invalid_request"},
		"request":           {[]string{"request", "e30.e30."}, "request_not_supported"},
		"request_uri":       {[]string{"request_uri", s.idp.URL + "/request"}, "request_uri_not_supported"},
		"prompt=none":       {[]string{"prompt", "none"}, "interaction_required"},
		"another server":    {[]string{"resource", "https://other.example/mcp"}, "invalid_target"},
		"another path":      {[]string{"resource", s.url + "/admin"}, "invalid_target"},
		"a fragment":        {[]string{"resource", s.url + "/mcp#x"}, "invalid_target"},
	} {
		p := b.once(http.MethodGet, a.asks(row.changes...), nil)
		u, err := url.Parse(p.told()) // after a click (TestErrorsNeedAClick)
		if err != nil || p.status != 400 || u.Host != "localhost:61802" || u.Query().Get("error") != row.want ||
			u.Query().Get("state") != "the state" ||
			u.Query().Get("iss") != s.url || u.Query().Get("code") != "" {
			t.Errorf("%s: %d to %s, want %s with state and iss", name, p.status, p.told(), row.want)
		}
	}
	if n := s.idp.Asked("/request"); n != 0 {
		t.Errorf("request_uri was asked %d times", n)
	}
	twice := a.asks() + "&resource=" + url.QueryEscape(s.url+"/web/mcp")
	if p := b.once(http.MethodGet, twice, nil); !strings.Contains(p.told(), "error=invalid_target") {
		t.Errorf("two resources: %s", p.next())
	}
	for _, resource := range []string{"", s.url, s.url + "/", s.url + "/mcp/", strings.ToUpper(s.url) + "/mcp"} {
		p := b.once(http.MethodGet, a.asks("resource", resource, "prompt", "consent"), nil)
		if p.status != 200 || !strings.Contains(p.body, "<b>"+s.url+"/mcp</b>") {
			t.Errorf("resource %q: %d %s", resource, p.status, p.body)
		}
		if b.cookies[p.url.Host][sessionCookie] != "" {
			p = b.press(p, "allow")
		} else {
			p = b.press(p, "idp:sso")
		}
		status, m := a.redeem(t, b.follow(p).url.Query().Get("code"), "resource", resource)
		if status != 200 {
			t.Fatalf("resource %q: %d %v", resource, status, m)
		}
		if got := s.mustVerify(t, m["access_token"]).Resources; !slices.Equal(got, []string{s.url + "/mcp"}) {
			t.Errorf("resource %q: the token is for %v", resource, got)
		}
	}
}

func TestConsentIsAskedEveryTime(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	for i := range 3 {
		p := b.once(http.MethodGet, a.asks(), nil)
		if p.status != 200 || p.next() != "" || strings.Contains(p.body, s.idp.URL) ||
			strings.Contains(p.body, "code=") || !strings.Contains(p.body, `value="cancel"`) {
			t.Fatalf("the %dth time: %d to %q\n%s", i, p.status, p.next(), p.body)
		}
		if signedIn := strings.Contains(p.body, `value="allow"`); signedIn != (i > 0) {
			t.Errorf("the %dth time there is allow: %v", i, signedIn)
		}
		if i > 0 && !strings.Contains(p.body, "ann@acme.example") {
			t.Errorf("it does not say who is signed in: %s", p.body)
		}
		a.mustCode(t, b)
	}
	if p := b.once(http.MethodGet, a.asks(), nil); !strings.Contains(p.body, "Access ends after 30 days of no use") {
		t.Errorf("it does not say for how long: %s", p.body)
	}
	if n := s.idp.Asked("/authorize"); n != 1 {
		t.Errorf("the provider was asked %d times", n)
	}
	// A request from another site gets the same consent page.
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		http.Redirect(w, r, a.asks(), http.StatusFound)
	}))
	t.Cleanup(elsewhere.Close)
	for _, site := range []string{"none", "cross-site", "same-origin"} {
		b.header = http.Header{"Sec-Fetch-Site": {site}, "Sec-Fetch-User": {"?1"}}
		p := b.follow(b.once(http.MethodGet, elsewhere.URL, nil))
		if p.status != 200 || p.url.Host == "localhost:61802" || !strings.Contains(p.body, `value="allow"`) ||
			!strings.Contains(p.body, `value="cancel"`) {
			t.Errorf("sent by another page, with Sec-Fetch-Site %s: %d at %s\n%s", site, p.status, p.url, p.body)
		}
	}
}

func TestForgedConsentIsRejected(t *testing.T) {
	s := mustStand(t, nil)
	a := s.mustApp(t)
	victim, attacker := newBrowser(t), newBrowser(t)
	a.mustCode(t, victim) // signed in
	mine := attacker.once(http.MethodGet, a.asks(), nil)
	his := victim.once(http.MethodGet, a.asks(), nil)
	consent := s.url + "/oauth/consent"
	denied := func(name string, p page) {
		t.Helper()
		if p.status != 403 || p.next() != "" || strings.Contains(p.body, "code=") {
			t.Errorf("%s: %d to %q\n%s", name, p.status, p.next(), p.body)
		}
	}
	for _, action := range []string{"allow", "idp:sso", "cancel"} {
		denied("the attacker's page in the victim's browser: "+action,
			victim.once(http.MethodPost, consent, fill(mine, action)))
		denied("no cookie: "+action, newBrowser(t).once(http.MethodPost, consent, fill(his, action)))
		form := fill(his, action)
		form.Del("csrf")
		denied("no token: "+action, victim.once(http.MethodPost, consent, form))
		form.Set("csrf", fill(mine, action).Get("csrf"))
		denied("another token: "+action, victim.once(http.MethodPost, consent, form))
		for name, header := range map[string]http.Header{
			"another origin": {"Origin": {"https://evil.example"}, "Sec-Fetch-Site": {"cross-site"}},
			"same site":      {"Origin": {"https://evil.example"}, "Sec-Fetch-Site": {"same-site"}},
			"a sandbox":      {"Origin": {"null"}, "Sec-Fetch-Site": {"cross-site"}},
			"an old browser": {"Origin": {"https://evil.example"}, "Sec-Fetch-Site": nil},
		} {
			victim.header = header
			denied(name+": "+action, victim.once(http.MethodPost, consent, fill(his, action)))
		}
		victim.header = http.Header{}
	}
	if p := victim.follow(victim.press(his, "allow")); p.url.Query().Get("code") == "" {
		t.Errorf("after all that the victim's own page does not work: %d %s", p.status, p.body)
	}
}

func TestSignInStaysInItsBrowser(t *testing.T) {
	s := mustStand(t, nil)
	a := s.mustApp(t)
	attacker, victim := newBrowser(t), newBrowser(t)
	going := attacker.press(attacker.once(http.MethodGet, a.asks(), nil), "idp:sso")
	_, where, _ := strings.Cut(going.header.Get("Refresh"), "url=")
	a.mustCode(t, victim) // has a cookie of its own
	for name, b := range map[string]*browser{"with a cookie": victim, "without": newBrowser(t)} {
		p := b.follow(b.once(http.MethodGet, where, nil))
		if p.status != 403 || p.url.Host == "localhost:61802" || strings.Contains(p.body, "code=") {
			t.Errorf("%s: %d at %s\n%s", name, p.status, p.url, p.body)
		}
	}
}

func TestCallbackWorksOnceAndInTime(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	callback := func() string { // the answer of the provider, not opened yet
		t.Helper()
		p := b.press(b.once(http.MethodGet, a.asks(), nil), "idp:sso")
		_, where, _ := strings.Cut(p.header.Get("Refresh"), "url=")
		return b.once(http.MethodGet, where, nil).header.Get("Location")
	}
	one, other := callback(), callback() // two tabs
	for _, where := range []string{one, other} {
		if p := b.follow(b.once(http.MethodGet, where, nil)); p.url.Query().Get("code") == "" {
			t.Errorf("a tab: %d %s", p.status, p.body)
		}
	}
	if p := b.once(http.MethodGet, one, nil); p.status != 403 || p.next() != "" {
		t.Errorf("a second time: %d to %q", p.status, p.next())
	}
	if p := b.once(http.MethodGet, s.url+"/oauth/callback/sso?code=x&state=unknown", nil); p.status != 403 {
		t.Errorf("unknown state: %d", p.status)
	}
	if p := b.once(http.MethodGet, s.url+"/oauth/callback/other?code=x&state=unknown", nil); p.status != 404 {
		t.Errorf("unknown provider: %d", p.status)
	}
	// The page is opened twice, and the button clicked twice.
	first := b.once(http.MethodGet, a.asks(), nil)
	b.once(http.MethodGet, a.asks(), nil)
	b.press(first, "allow")
	if p := b.follow(b.press(first, "allow")); p.url.Query().Get("code") == "" {
		t.Errorf("a double click: %d %s", p.status, p.body)
	}
	if p := b.follow(b.press(first, "allow")); p.status != 403 || p.url.Host == "localhost:61802" {
		t.Errorf("after the code: %d at %s", p.status, p.url)
	}
	late := callback()
	s.clock.forward(11 * time.Minute)
	if p := b.once(http.MethodGet, late, nil); p.status != 403 || !strings.Contains(p.body, "has expired") {
		t.Errorf("too late: %d %s", p.status, p.body)
	}
}

func TestCancelReturnsAccessDenied(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	first := b.once(http.MethodGet, a.asks(), nil)
	p := b.press(first, "cancel")
	if p.status != 200 || p.header.Get("Location") != "" {
		t.Errorf("a form is answered by %d to %s", p.status, p.header.Get("Location"))
	}
	p = b.follow(p)
	if q := p.url.Query(); p.url.Host != "localhost:61802" || q.Get("error") != "access_denied" ||
		q.Get("state") != "the state" || q.Get("iss") != s.url {
		t.Errorf("the client is told %s", p.url)
	}
	events, err := s.store.Events(t.Context(), 1)
	if err != nil || len(events) != 1 || events[0].Event != "consent_denied" ||
		!strings.Contains(string(events[0].Detail), `app \"`) {
		t.Errorf("the audit has %+v, %v; want the app", events, err)
	}
	if p := b.press(first, "idp:sso"); p.status != 403 {
		t.Errorf("after that it goes on: %d", p.status)
	}
	a.mustCode(t, b) // signed in by now
	if p := b.follow(b.press(b.once(http.MethodGet, a.asks(), nil),
		"cancel")); p.url.Query().Get("error") != "access_denied" || p.url.Query().Has("code") {
		t.Errorf("signed in, the client is told %s", p.url)
	}
	if grants, err := s.store.Grants(t.Context(), store.GrantFilter{}); err != nil || len(grants) != 1 {
		t.Errorf("there are %d grants, %v; want the one that was allowed", len(grants), err)
	}
}
