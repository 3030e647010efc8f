package authserver

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"junction/auth"
	"junction/auth/authtest"
	"junction/auth/store"
)

// The numbered tests of this file assert what must not happen between a client, a person and a
// provider. They use only HTTP.

func TestAuthT59UnknownClientsAreNeverRedirectedTo(t *testing.T) {
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

// TestAuthT59BlockedClients blocks an app that one user has allowed, and that others are about to
// allow.
func TestAuthT59BlockedClients(t *testing.T) {
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

// TestAuthT59BlockedWhileACodeIsMade blocks an app at the one moment between the check and the
// grant.
func TestAuthT59BlockedWhileACodeIsMade(t *testing.T) {
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

func TestAuthT60PortsAreFlexibleOnThisMachineAlone(t *testing.T) {
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

func TestAuthT61T62T63T64RequestsThatTheClientIsToldAbout(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	a.mustSignIn(t, b) // a client that no user has allowed is told nothing (TestSafety5)
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
		u, err := url.Parse(p.header.Get("Location"))
		if err != nil || p.status != 303 || u.Host != "localhost:61802" || u.Query().Get("error") != row.want ||
			u.Query().Get("state") != "the state" ||
			u.Query().Get("iss") != s.url || u.Query().Get("code") != "" {
			t.Errorf("%s: %d to %s, want %s with state and iss", name, p.status, p.header.Get("Location"), row.want)
		}
	}
	if n := s.idp.Asked("/request"); n != 0 {
		t.Errorf("request_uri was asked %d times", n)
	}
	twice := a.asks() + "&resource=" + url.QueryEscape(s.url+"/web/mcp")
	if p := b.once(http.MethodGet, twice, nil); !strings.Contains(p.header.Get("Location"), "error=invalid_target") {
		t.Errorf("two resources: %s", p.next())
	}
	for _, resource := range []string{"", s.url, s.url + "/", s.url + "/mcp/", strings.ToUpper(s.url) + "/mcp"} {
		p := b.once(http.MethodGet, a.asks("resource", resource, "prompt", "consent"), nil)
		if p.status != 200 || !strings.Contains(p.body, "<b class=\"wrap\">"+s.url+"/mcp</b>") {
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

func TestAuthT65T66ConsentEveryTimeAndNothingBefore(t *testing.T) {
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

func TestAuthT67ForgedApprovals(t *testing.T) {
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

func TestAuthT68ApprovedInOneBrowserSignedInInAnother(t *testing.T) {
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

func TestAuthT69OnceAndInTime(t *testing.T) {
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

func TestAuthT70AnswersOfTheProvider(t *testing.T) {
	s := mustStand(t, func(o *Options) {
		second := o.Config.IdentityProviders[0]
		second.ID, second.Name = "other", "Other"
		o.Config.IdentityProviders = append(o.Config.IdentityProviders, second)
	})
	a := s.mustApp(t)
	foreign := authtest.NewKey(t, "rsa", "RS256")
	try := func(name string, want string) {
		t.Helper()
		b := newBrowser(t)
		p := b.follow(b.press(b.once(http.MethodGet, a.asks(), nil), "idp:sso"))
		if p.status != 403 || p.url.Host == "localhost:61802" || !strings.Contains(p.body, want) ||
			!strings.Contains(p.body, "error=access_denied") {
			t.Errorf("%s: %d at %s\n%s\nwant %q", name, p.status, p.url, p.body, want)
		}
	}
	for name, claims := range map[string]map[string]any{
		"another audience": {"aud": "somebody"}, "another issuer": {"iss": "https://evil.example"},
		"another nonce": {"nonce": "x"}, "no nonce": {"nonce": ""},
		"expired": {"exp": time.Now().Add(-time.Hour).Unix()},
	} {
		s.idp.set(func() { s.idp.claims = claims })
		try(name, "invalid_id_token")
	}
	s.idp.set(func() { s.idp.claims = map[string]any{} })
	for name, answer := range map[string]url.Values{"another iss": {"iss": {"https://evil.example"}},
		"two iss": {"iss": {s.idp.URL, s.idp.URL}}} {
		s.idp.set(func() { s.idp.answer = answer })
		try(name, "wrong_iss")
	}
	s.idp.set(func() { s.idp.answer = url.Values{"code": nil, "error": {`login_required"><script>`}} })
	try("an error", "login_required")
	s.idp.set(func() { s.idp.answer = url.Values{"code": {"stolen"}} })
	try("another code", "invalid_grant")
	s.idp.set(func() { s.idp.answer = nil })

	// ID tokens with another algorithm, or without a signature.
	for name, sign := range map[string]func(claims map[string]any) string{
		"an algorithm that nobody has named": func(claims map[string]any) string {
			key := authtest.NewKey(t, "es384", jose.ES384)
			keys := s.idp.Keys()
			s.idp.SetKeys(append(keys, key)...)
			t.Cleanup(func() { s.idp.SetKeys(keys...) })
			return key.Token(t, claims, map[string]any{"typ": "JWT"})
		},
		"our secret": func(claims map[string]any) string { return mustMAC(t, []byte("canary-s3cret"), claims) },
		"the public key as a secret": func(claims map[string]any) string {
			public, err := x509.MarshalPKIXPublicKey(s.idp.Keys()[0].Private.Public())
			if err != nil {
				t.Fatal(err)
			}
			return mustMAC(t, public, claims)
		},
		"nothing": func(claims map[string]any) string {
			text, err := json.Marshal(claims)
			if err != nil {
				t.Fatal(err)
			}
			encode := base64.RawURLEncoding.EncodeToString
			return encode([]byte(`{"alg":"none"}`)) + "." + encode(text) + "."
		},
	} {
		s.idp.set(func() { s.idp.sign = sign })
		try("signed with "+name, "invalid_id_token")
	}
	s.idp.set(func() { s.idp.sign = nil })

	// The answer of one provider is rejected at the callback of another.
	b := newBrowser(t)
	going := b.press(b.once(http.MethodGet, a.asks(), nil), "idp:other")
	_, where, _ := strings.Cut(going.header.Get("Refresh"), "url=")
	back := strings.Replace(b.once(http.MethodGet, where, nil).header.Get("Location"), "/callback/other",
		"/callback/sso", 1)
	if p := b.once(http.MethodGet, back, nil); p.status != 403 || p.next() != "" {
		t.Errorf("at the other's callback: %d to %q", p.status, p.next())
	}
	// An ID token signed by another key.
	ours := s.idp.KeySet()
	s.idp.SetKeys(foreign)
	s.idp.Answer(authtest.Keys, func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, ours) })
	try("another key", "invalid_id_token")
}

// mustMAC signs claims with a secret.
func mustMAC(t *testing.T, secret []byte, claims map[string]any) string {
	t.Helper()
	head := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`))
	text, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	head += "." + base64.RawURLEncoding.EncodeToString(text)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(head))
	return head + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func TestAuthT71WhoMayNotSignIn(t *testing.T) {
	for name, row := range map[string]struct {
		claims map[string]any
		change func(p *IdentityProvider)
		in     bool
	}{
		"right tenant": {map[string]any{"tid": "acme"},
			func(p *IdentityProvider) { p.RequiredClaims = map[string]OneOf{"tid": {"acme"}} }, true},
		"wrong tenant": {map[string]any{"tid": "evil"},
			func(p *IdentityProvider) { p.RequiredClaims = map[string]OneOf{"tid": {"acme"}} }, false},
		"no tenant": {nil, func(p *IdentityProvider) { p.RequiredClaims = map[string]OneOf{"tid": {"acme"}} },
			false},
		"right hosted domain": {map[string]any{"hd": "acme.example"},
			func(p *IdentityProvider) { p.RequiredClaims = map[string]OneOf{"hd": {"acme.example"}} }, true},
		"wrong hosted domain": {map[string]any{"hd": "gmail.example"},
			func(p *IdentityProvider) { p.RequiredClaims = map[string]OneOf{"hd": {"acme.example"}} }, false},
		"no hosted domain": {nil,
			func(p *IdentityProvider) { p.RequiredClaims = map[string]OneOf{"hd": {"acme.example"}} }, false},
		"right domain": {nil, func(p *IdentityProvider) { p.EmailDomains = []string{"ACME.example"} }, true},
		"wrong domain": {map[string]any{"email": "ann@acme.example.evil.example"},
			func(p *IdentityProvider) { p.EmailDomains = []string{"acme.example"} }, false},
		"unverified": {map[string]any{"email_verified": false},
			func(p *IdentityProvider) { p.EmailDomains = []string{"acme.example"} }, false},
		"verified, as text": {map[string]any{"email_verified": "true"},
			func(p *IdentityProvider) { p.EmailDomains = []string{"acme.example"} }, true},
		"no subject":         {nil, func(p *IdentityProvider) { p.SubjectClaims = []string{"oid"} }, false},
		"groups of a number": {map[string]any{"groups": []any{1}}, func(*IdentityProvider) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustStand(t, func(o *Options) { row.change(&o.Config.IdentityProviders[0]) })
			s.idp.set(func() { s.idp.claims = row.claims })
			a, b := s.mustApp(t), newBrowser(t)
			p := b.follow(b.press(b.once(http.MethodGet, a.asks(), nil), "idp:sso"))
			if in := p.url.Host == "localhost:61802"; in != row.in {
				t.Fatalf("in is %v: %d\n%s", in, p.status, p.body)
			}
			if !row.in && (!strings.Contains(p.body, "may not use this server") ||
				!strings.Contains(p.body, "error=access_denied")) {
				t.Errorf("it says %s", p.body)
			}
			if users, err := s.store.Users(t.Context(), ""); err != nil || (len(users) > 0) != row.in {
				t.Errorf("%d users are stored, %v", len(users), err)
			}
		})
	}
}

func TestAuthT72Cancel(t *testing.T) {
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

func TestAuthT73T74Pages(t *testing.T) {
	s := mustStand(t, nil)
	const evil = `</title></style><script>alert(1)</script><img src=x onerror=alert(1)>"'&`
	_, body := s.post(t, "/oauth/register", "application/json",
		`{"client_name":`+fmt.Sprintf("%q", evil)+`,"redirect_uris":["http://localhost/callback"]}`)
	a, b := app{s, member(t, body, "client_id"), strings.Repeat("v", 43), clientAt}, newBrowser(t)
	for name, p := range map[string]page{
		"consent":  b.once(http.MethodGet, a.asks("state", evil), nil),
		"going":    b.press(b.once(http.MethodGet, a.asks("state", evil), nil), "idp:sso"),
		"error":    b.once(http.MethodGet, s.url+"/oauth/callback/sso?error="+url.QueryEscape(evil)+"&state=x", nil),
		"client":   b.once(http.MethodGet, a.asks("redirect_uri", evil), nil),
		"login":    b.once(http.MethodGet, s.url+"/account", nil),
		"connect":  b.once(http.MethodGet, s.url+"/", nil),
		"nowhere":  b.once(http.MethodGet, s.url+"/account/x", nil),
		"canceled": b.press(b.once(http.MethodGet, a.asks("state", evil), nil), "cancel"),
		"refused": func() page {
			s.idp.set(func() {
				s.idp.answer = url.Values{"code": nil, "error": {evil}, "error_description": {evil},
					"error_uri": {"javascript:alert(1)"}}
			})
			defer s.idp.set(func() { s.idp.answer = nil })
			return b.follow(b.press(b.once(http.MethodGet, a.asks("state", evil), nil), "idp:sso"))
		}(),
	} {
		h := p.header
		if strings.Contains(p.body, "<script") || strings.Contains(p.body, "<img") ||
			strings.Contains(p.body, "onerror=alert(1)>") || strings.Contains(p.body, "javascript:") {
			t.Errorf("%s: markup of a stranger:\n%s", name, p.body)
		}
		csp := h.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none'; style-src 'sha256-") ||
			!strings.Contains(csp, "frame-ancestors 'none'") || !strings.Contains(csp, "form-action 'self'") ||
			!strings.Contains(csp, "base-uri 'none'") || h.Get("Cache-Control") != "no-store" ||
			h.Get("Referrer-Policy") != "no-referrer" ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" ||
			h.Get("X-Request-Id") == "" || !strings.Contains(p.body, h.Get("X-Request-Id")) {
			t.Errorf("%s: headers %v", name, h)
		}
	}
	p := b.follow(b.press(b.once(http.MethodGet, a.asks("state", evil), nil), "idp:sso"))
	if p.url.Query().Get("state") != evil || strings.Contains(p.body, "<script") {
		t.Errorf("the state comes back as %q\n%s", p.url.Query().Get("state"), p.body)
	}
}

func TestAuthT75CodesOnce(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	code := a.mustCode(t, b)
	results := make(chan map[string]any, 20)
	for range 20 {
		go func() {
			status, m := a.redeem(t, code)
			m["status"] = status
			results <- m
		}()
	}
	good := 0
	var tokens map[string]any
	for range 20 {
		if m := <-results; m["status"] == 200 {
			good++
			tokens = m
		}
	}
	if good != 1 {
		t.Fatalf("%d redemptions succeed", good)
	}
	s.mustNotVerify(t, tokens["access_token"], "it was revoked")
	if status, _ := a.refresh(t, tokens["refresh_token"]); status != 400 {
		t.Errorf("its refresh token is good: %d", status)
	}
}

func TestAuthT79FormsOfTheTokenEndpoint(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	good := url.Values{"grant_type": {"authorization_code"}, "code": {a.mustCode(t, b)}, "client_id": {a.id},
		"code_verifier": {a.verifier}, "redirect_uri": {a.redirect}}.Encode()
	const form = "application/x-www-form-urlencoded"
	for name, row := range map[string]struct{ path, media, body string }{
		"JSON":           {"/oauth/token", "application/json", `{"grant_type":"authorization_code"}`},
		"no type":        {"/oauth/token", "", good},
		"a second code":  {"/oauth/token", form, good + "&code=x"},
		"in the URL":     {"/oauth/token?" + good, form, "x=y"},
		"both":           {"/oauth/token?x=y", form, good},
		"nothing":        {"/oauth/token", form, ""},
		"no grant":       {"/oauth/token", form, "client_id=" + a.id},
		"password":       {"/oauth/token", form, "client_id=" + a.id + "&grant_type=password&username=a&password=b"},
		"too large":      {"/oauth/token", form, good + "&x=" + strings.Repeat("x", 70<<10)},
		"with a secret":  {"/oauth/token", form, good + "&client_secret=x"},
		"unknown client": {"/oauth/token", form, strings.Replace(good, a.id, "somebody", 1)},
	} {
		status, body := s.post(t, row.path, row.media, row.body)
		if status != 400 && status != 401 || member(t, body, "error") == "" ||
			(status == 401) != (member(t, body, "error") == "invalid_client") {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	resp, err := http.Get(s.url + "/oauth/token?" + good)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 400 || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("GET: %d, %v", resp.StatusCode, resp.Header)
	}
	if status, body := s.post(t, "/oauth/token", form, good); status != 200 {
		t.Errorf("after all that the code is not good: %d %s", status, body)
	}
}

func TestAuthT82FiftyAtOnce(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	m := a.mustSignIn(t, b)
	answers := make(chan string, 50)
	for range 50 {
		go func() {
			status, m := a.refresh(t, m["refresh_token"])
			answers <- fmt.Sprint(status, m["access_token"], m["refresh_token"])
		}()
	}
	first := <-answers
	for range 49 {
		if next := <-answers; next != first || !strings.HasPrefix(next, "200") {
			t.Errorf("%s and %s", first, next)
		}
	}
}

func TestAuthT83TooLate(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	m := a.mustSignIn(t, b)
	_, second := a.refresh(t, m["refresh_token"])
	s.clock.forward(61 * time.Second)
	if status, n := a.refresh(t, m["refresh_token"]); status != 400 || n["error"] != "invalid_grant" {
		t.Errorf("after 61 s: %d %v", status, n)
	}
	s.mustNotVerify(t, second["access_token"], "it was revoked")
	events, err := s.store.Events(t.Context(), 3)
	if err != nil || len(events) == 0 || events[0].Event != "refresh_reuse" {
		t.Errorf("the audit has %v, %v", events, err)
	}
}

func TestAuthT85AnotherClientsRefreshToken(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	m := a.mustSignIn(t, b)
	_, body := s.post(t, "/oauth/register", "application/json",
		`{"client_name":"other","redirect_uris":["http://localhost/callback"]}`)
	other := app{s, member(t, body, "client_id"), a.verifier, a.redirect}
	if status, n := other.refresh(t, m["refresh_token"]); status != 400 || n["error"] != "invalid_grant" {
		t.Errorf("%d %v", status, n)
	}
	if status, n := a.refresh(t, m["refresh_token"]); status != 200 {
		t.Errorf("its owner: %d %v", status, n)
	}
}

func TestAuthT87NothingOutlivesTheGrant(t *testing.T) {
	s := mustStand(t, func(o *Options) {
		o.Config.Tokens = Tokens{RefreshTTL: 24 * time.Hour,
			AbsoluteTTL: 48 * time.Hour}
	})
	a, b := s.mustApp(t), newBrowser(t)
	m := a.mustSignIn(t, b)
	for range 4 {
		s.clock.forward(11*time.Hour + 50*time.Minute)
		var status int
		if status, m = a.refresh(t, m["refresh_token"]); status != 200 {
			t.Fatal(status, m)
		}
	}
	if m["expires_in"].(float64) > 3600*0.7 {
		t.Errorf("forty minutes before the end an access token is good for %v s", m["expires_in"])
	}
	s.clock.forward(41 * time.Minute)
	if status, n := a.refresh(t, m["refresh_token"]); status != 400 || n["error"] != "invalid_grant" {
		t.Errorf("after the end: %d %v", status, n)
	}
}

func TestAuthT88StoreAway(t *testing.T) {
	var options Options
	s := mustStand(t, func(o *Options) { options = *o })
	a, b := s.mustApp(t), newBrowser(t)
	m := a.mustSignIn(t, b)
	s.store.Close()
	if status, n := a.refresh(t, m["refresh_token"]); status != 503 || n["error"] != "temporarily_unavailable" {
		t.Errorf("refresh: %d %v", status, n)
	}
	if p, err := s.verify(m["access_token"]); p != nil || err == nil || strings.Contains(err.Error(), "not valid") {
		t.Errorf("verify: %v, %v", p, err)
	}
	for _, where := range []string{a.asks(), s.url + "/account", s.url + "/oauth/callback/sso?state=x&code=y"} {
		if p := b.once(http.MethodGet, where, nil); p.status != 503 || p.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d", where, p.status)
		}
	}
	var err error
	if options.Store, err = store.Open(t.Context(), store.Config{DSN: filepath.Join(s.dir, "junction.db"),
		Keys: options.Keys, Now: s.clock.now, Log: options.Log}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { options.Store.Close() })
	s.Server = s.second(t, options)
	s.mustVerify(t, m["access_token"])
	if status, n := a.refresh(t, m["refresh_token"]); status != 200 {
		t.Errorf("it is back, and the same token is answered %d %v", status, n)
	}
}

// TestAuthT88PartOfTheStoreAway fails the store half-way through a refresh. Such a failure must not
// end a sign-in.
func TestAuthT88PartOfTheStoreAway(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	m := a.mustSignIn(t, b)
	db, err := sql.Open("sqlite", filepath.Join(s.dir, "junction.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rename := func(from, to string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), "ALTER TABLE "+from+" RENAME TO "+to); err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range []string{"client_blocks", "oauth_tokens", "grants", "idp_sessions", "users"} {
		rename(table, "away")
		s.clock.forward(6 * time.Second) // a token is not looked up each time
		if status, n := a.refresh(t, m["refresh_token"]); status != 503 || n["error"] != "temporarily_unavailable" {
			t.Errorf("without %s, refresh: %d %v", table, status, n)
		}
		if p, err := s.verify(m["access_token"]); errors.Is(err, auth.ErrInvalidToken) || p == nil && err == nil {
			t.Errorf("without %s, verify: %v", table, err)
		}
		rename("away", table)
	}
	s.mustVerify(t, m["access_token"])
	if status, n := a.refresh(t, m["refresh_token"]); status != 200 {
		t.Errorf("all is back, and the same token is answered %d %v", status, n)
	}
}

func TestAuthT91TheProviderAsksNoMore(t *testing.T) {
	t.Run("disabled", func(t *testing.T) {
		s := mustStand(t, nil)
		a, b := s.mustApp(t), newBrowser(t)
		m := a.mustSignIn(t, b)
		s.clock.forward(2 * time.Minute)
		s.idp.set(func() { s.idp.refresh = "" })
		if status, n := a.refresh(t, m["refresh_token"]); status != 400 || n["error"] != "invalid_grant" {
			t.Errorf("%d %v", status, n)
		}
		s.mustNotVerify(t, m["access_token"], "it was revoked")
		if p := b.once(http.MethodGet, a.asks(), nil); strings.Contains(p.body, `value="allow"`) {
			t.Error("the browser is still signed in")
		}
	})
	t.Run("somebody else", func(t *testing.T) {
		s := mustStand(t, nil)
		a, b := s.mustApp(t), newBrowser(t)
		m := a.mustSignIn(t, b)
		s.clock.forward(2 * time.Minute)
		s.idp.set(func() { s.idp.claims = map[string]any{"sub": "ben"} })
		if status, n := a.refresh(t, m["refresh_token"]); status != 400 || n["error"] != "invalid_grant" {
			t.Errorf("%d %v", status, n)
		}
	})
	t.Run("away", func(t *testing.T) {
		s := mustStand(t, nil)
		a, b := s.mustApp(t), newBrowser(t)
		m := a.mustSignIn(t, b)
		s.clock.forward(2 * time.Hour)
		s.idp.set(func() { s.idp.status = 502 })
		status, m := a.refresh(t, m["refresh_token"])
		if status != 200 {
			t.Fatalf("within the grace: %d %v", status, m)
		}
		s.clock.forward(23 * time.Hour)
		if status, n := a.refresh(t, m["refresh_token"]); status != 503 || n["error"] != "temporarily_unavailable" {
			t.Errorf("after it: %d %v", status, n)
		}
		s.idp.set(func() { s.idp.status = 0 })
		if status, n := a.refresh(t, m["refresh_token"]); status != 200 {
			t.Errorf("back again: %d %v", status, n)
		}
	})
	t.Run("cannot be asked", func(t *testing.T) {
		s := mustStand(t, nil)
		s.idp.set(func() { s.idp.refresh = "" })
		a, b := s.mustApp(t), newBrowser(t)
		m := a.mustSignIn(t, b)
		s.clock.forward(23 * time.Hour)
		status, m := a.refresh(t, m["refresh_token"])
		if status != 200 {
			t.Fatal(status, m)
		}
		s.clock.forward(2 * time.Hour)
		if status, n := a.refresh(t, m["refresh_token"]); status != 400 || n["error"] != "invalid_grant" {
			t.Errorf("after a day: %d %v", status, n)
		}
	})
}

func TestAuthT92GroupsAreReadAgain(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	m := a.mustSignIn(t, b)
	s.mustVerify(t, m["access_token"])
	s.idp.set(func() { s.idp.claims = map[string]any{"groups": []string{"sales"}} })
	s.clock.forward(2 * time.Minute)
	_, m = a.refresh(t, m["refresh_token"])
	if p := s.mustVerify(t, m["access_token"]); fmt.Sprint(p.Groups) != "[sales]" {
		t.Errorf("the groups are %v", p.Groups)
	}
}

func TestAuthT93T94Revocation(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	for _, which := range []string{"access_token", "refresh_token"} {
		m := a.mustSignIn(t, b)
		p := s.mustVerify(t, m["access_token"])
		if !s.Still(p) {
			t.Error("before that it is not still let in")
		}
		const form = "application/x-www-form-urlencoded"
		if status, body := s.post(t, "/oauth/revoke", form,
			url.Values{"token": {fmt.Sprint(m[which])}, "client_id": {"dcr_x"}}.Encode()); status != 401 {
			t.Errorf("by an unknown client: %d %s", status, body)
		}
		s.mustVerify(t, m["access_token"])
		if status, body := s.post(t, "/oauth/revoke", form,
			url.Values{"token": {fmt.Sprint(m[which])}, "client_id": {a.id}}.Encode()); status != 200 {
			t.Errorf("%d %s", status, body)
		}
		s.mustNotVerify(t, m["access_token"], "it was revoked")
		if s.Still(p) {
			t.Error("it is still let in")
		}
		if status, _ := a.refresh(t, m["refresh_token"]); status != 400 {
			t.Errorf("it can be refreshed: %d", status)
		}
		if status, body := s.post(t, "/oauth/revoke", form,
			url.Values{"token": {"unknown"}, "client_id": {a.id}}.Encode()); status != 200 {
			t.Errorf("an unknown token: %d %s", status, body)
		}
	}
	m := a.mustSignIn(t, b)
	other := newBrowser(t)
	s.idp.set(func() { s.idp.claims = map[string]any{"sub": "ben", "email": "ben@acme.example"} })
	a.mustCode(t, other) // ben
	account := b.once(http.MethodGet, s.url+"/account", nil)
	action := s.url + "/account/grants/" + s.mustVerify(t, m["access_token"]).Grant + "/revoke"
	if !strings.Contains(account.body, strings.TrimPrefix(action, s.url)) ||
		!strings.Contains(account.body, "Claude Code (junction)") {
		t.Fatalf("the account shows %s", account.body)
	}
	if p := other.once(http.MethodPost, action,
		fill(other.once(http.MethodGet, s.url+"/account", nil), "")); p.status != 404 {
		t.Errorf("by ben: %d", p.status)
	}
	if p := b.once(http.MethodPost, action, url.Values{"csrf": {"x"}}); p.status != 403 {
		t.Errorf("without the token: %d", p.status)
	}
	s.mustVerify(t, m["access_token"])
	if p := b.once(http.MethodPost, action, fill(account, "")); p.status != 303 {
		t.Errorf("%d %s", p.status, p.body)
	}
	s.mustNotVerify(t, m["access_token"], "it was revoked")
	if status, _ := a.refresh(t, m["refresh_token"]); status != 400 {
		t.Errorf("it can be refreshed: %d", status)
	}
	if p := b.once(http.MethodPost, s.url+"/account/logout", fill(account, "")); p.status != 200 {
		t.Errorf("sign out: %d", p.status)
	}
	if p := b.once(http.MethodGet, s.url+"/account", nil); !strings.Contains(p.body, "Continue with Acme SSO") {
		t.Errorf("after that the account shows %s", p.body)
	}
}

func TestNotGranted(t *testing.T) {
	s := mustStand(t, nil)
	s.granted = func(*auth.Principal) bool { return false }
	a, b := s.mustApp(t), newBrowser(t)
	p := b.follow(b.press(b.once(http.MethodGet, a.asks(), nil), "idp:sso"))
	if p.status != 403 || !strings.Contains(p.body, "ann@acme.example") ||
		!strings.Contains(p.body, "error=access_denied") || strings.Contains(p.body, "code=") {
		t.Errorf("%d %s", p.status, p.body)
	}
}

// TestWhoAgreedIsWhoGoesOn: an approval does not carry over to another user who signs in in the
// same browser in between.
func TestWhoAgreedIsWhoGoesOn(t *testing.T) {
	for name, between := range map[string]func(s *stand, a app, b *browser){
		"nobody": func(*stand, app, *browser) {},
		"signed out": func(s *stand, _ app, b *browser) {
			delete(b.cookies[strings.TrimPrefix(s.url, "http://")], sessionCookie)
		},
		"somebody else": func(s *stand, a app, b *browser) {
			s.idp.set(func() { s.idp.claims = map[string]any{"sub": "ben"} })
			b.follow(b.press(b.once(http.MethodGet, a.asks(), nil), "idp:sso"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustStand(t, nil)
			a, b := s.mustApp(t), newBrowser(t)
			a.mustCode(t, b)
			allowed := b.press(b.once(http.MethodGet, a.asks(), nil), "allow")
			between(s, a, b)
			if p := b.follow(allowed); (p.url.Host == "localhost:61802") != (name == "nobody") {
				t.Errorf("it ends at %s with %d", p.url, p.status)
			}
		})
	}
}

// TestFloods: a flood of endpoints without credentials does not stop clients with tokens.
func TestFloods(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	m := a.mustSignIn(t, b)
	status := 201
	for i := 0; i < 2000 && status == 201; i++ {
		status, _ = s.post(t, "/oauth/register", "application/json", `{"redirect_uris":["http://localhost/callback"]}`)
	}
	if status != 429 {
		t.Errorf("a flood is answered %d", status)
	}
	if status, m := a.refresh(t, m["refresh_token"]); status != 200 {
		t.Errorf("after it: %d %v", status, m)
	}
}

// TestStrangersFillNothing: rejected requests fill neither the audit nor the log, and the actions
// of users are still recorded.
func TestStrangersFillNothing(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	for range 300 {
		s.clock.forward(250 * time.Millisecond) // slow enough for one address
		if p := b.once(http.MethodGet, a.asks("redirect_uri", "https://evil.example/cb"), nil); p.status != 400 {
			t.Fatal(p.status)
		}
	}
	a.mustSignIn(t, b)
	events, err := s.store.Events(t.Context(), 1000)
	counts := map[string]int{}
	for _, e := range events {
		counts[e.Event]++
	}
	if n := counts["authorize_refused"]; err != nil || n < 10 || n > 65 || counts["signed_in"] != 1 ||
		counts["code_issued"] != 1 {
		t.Errorf("the audit has %v, %v", counts, err)
	}
}

// TestAuthT132TwoProviders: users choose a provider, and the same subject at two providers is two
// users.
func TestAuthT132TwoProviders(t *testing.T) {
	partner := mustIDP(t)
	s := mustStand(t, func(o *Options) {
		o.Config.IdentityProviders = append(o.Config.IdentityProviders,
			IdentityProvider{ID: "partner", Name: "Partner login", Issuer: partner.URL, ClientID: "junction",
				ClientSecret: "canary-s3cret"})
	})
	partner.now = s.clock.now
	a := s.mustApp(t)
	ids := map[string]bool{}
	for _, idp := range []string{"sso", "partner"} {
		b := newBrowser(t)
		p := b.once(http.MethodGet, a.asks(), nil)
		if !strings.Contains(p.body, "Continue with Acme SSO") ||
			!strings.Contains(p.body, "Continue with Partner login") {
			t.Fatalf("there is no choice: %s", p.body)
		}
		p = b.follow(b.press(p, "idp:"+idp))
		status, m := a.redeem(t, p.url.Query().Get("code"))
		if status != 200 {
			t.Fatal(status, m)
		}
		who := s.mustVerify(t, m["access_token"])
		ids[who.ID] = true
		if who.User != "ann" {
			t.Errorf("%s: %+v", idp, *who)
		}
	}
	if len(ids) != 2 {
		t.Errorf("they are %v", ids)
	}
	partner.SetDown(true)
	b := newBrowser(t)
	if p := b.follow(b.press(b.once(http.MethodGet, a.asks(), nil), "idp:sso")); p.url.Query().Get("code") == "" {
		t.Errorf("one is down, and the other does not work: %d %s", p.status, p.body)
	}
}

// TestAuthT135CookiesBlocked: without cookies a clear page is shown, and no redirect loop occurs.
func TestAuthT135CookiesBlocked(t *testing.T) {
	s := mustStand(t, nil)
	a := s.mustApp(t)
	b := newBrowser(t)
	p := b.once(http.MethodGet, a.asks(), nil)
	clear(b.cookies)
	if p = b.press(p, "idp:sso"); p.status != 403 || p.next() != "" ||
		!strings.Contains(p.body, "Allow cookies for this server") {
		t.Errorf("%d to %q: %s", p.status, p.next(), p.body)
	}
}

// TestProviderDownAtFirst: the server starts while a provider is down, and discovers it later.
func TestProviderDownAtFirst(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	s.idp.SetDown(true)
	first := b.once(http.MethodGet, a.asks(), nil)
	if p := b.press(first, "idp:sso"); p.status != 503 || p.header.Get("Retry-After") == "" ||
		!strings.Contains(p.body, "cannot be reached") {
		t.Errorf("%d %s", p.status, p.body)
	}
	s.idp.SetDown(false)
	s.clock.forward(6 * time.Second)
	if p := b.follow(b.press(first, "idp:sso")); p.url.Query().Get("code") == "" {
		t.Errorf("the same page, later: %d %s", p.status, p.body)
	}
}

// TestAuthT83WhatHappensIsWrittenDownWithItsAddress has ann and a thief come through a trusted
// proxy.
func TestAuthT83WhatHappensIsWrittenDownWithItsAddress(t *testing.T) {
	guard := &auth.Guard{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Log: authtest.Log(t)}
	s := mustStand(t, func(o *Options) { o.Address = guard.Address })
	a, b := s.mustApp(t), newBrowser(t)
	const ann, thief = "203.0.113.9", "2001:db8::1"
	b.header.Set("X-Forwarded-For", ann)
	steals := func(path string, form url.Values) (int, string) {
		t.Helper()
		form.Set("client_id", a.id)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Forwarded-For", "["+thief+"]:1234")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode, resp.Header.Get("X-Request-Id")
	}
	want := func(what, address, request string) {
		t.Helper()
		events, err := s.store.Events(t.Context(), 1)
		if err != nil || len(events) != 1 {
			t.Fatal(events, err)
		}
		if e := events[0]; e.Event != what || e.Address != address || e.RequestID == "" || request != "" &&
			e.RequestID != request {
			t.Errorf("the audit has %+v, want %s from %s in the request %s", e, what, address, request)
		}
	}
	m := a.mustSignIn(t, b)
	want("code_issued", ann, "")
	if status, _ := a.refresh(t, m["refresh_token"]); status != 200 {
		t.Fatal(status)
	}
	s.clock.forward(2 * time.Minute)
	_, request := steals("/oauth/token",
		url.Values{"grant_type": {"refresh_token"}, "refresh_token": {fmt.Sprint(m["refresh_token"])}})
	want("refresh_reuse", thief, request)

	code := a.mustCode(t, b)
	status, m := a.redeem(t, code)
	if status != 200 {
		t.Fatal(status, m)
	}
	_, request = steals("/oauth/token", url.Values{"grant_type": {"authorization_code"}, "code": {code},
		"code_verifier": {a.verifier}, "redirect_uri": {a.redirect}})
	want("code_reuse", thief, request)

	m = a.mustSignIn(t, b)
	_, request = steals("/oauth/revoke", url.Values{"token": {fmt.Sprint(m["access_token"])}})
	want("grant_revoked", thief, request)

	m = a.mustSignIn(t, b)
	s.idp.set(func() { s.idp.refresh = "" })
	s.clock.forward(2 * time.Minute)
	_, request = steals("/oauth/token",
		url.Values{"grant_type": {"refresh_token"}, "refresh_token": {fmt.Sprint(m["refresh_token"])}})
	want("idp_session_ended", thief, request)
}
