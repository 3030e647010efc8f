package authserver

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authserver/provider"
	"junction/auth/authtest"

	"github.com/go-jose/go-jose/v4"
)

// TestCheckProviders has the provider fail before and after it was reached for the first time.
func TestCheckProviders(t *testing.T) {
	s := mustStand(t, nil)
	check := func(when string, ok bool) {
		t.Helper()
		s.clock.forward(5 * time.Second)
		if err := s.CheckProviders(t.Context()); (err == nil) != ok || !ok && !strings.Contains(err.Error(), "Acme SSO: ") {
			t.Errorf("%s: %v", when, err)
		}
	}
	s.idp.SetDown(true)
	check("down from the start", false)
	s.idp.SetDown(false)
	check("up", true)
	check("still up", true)
	s.idp.SetDown(true)
	check("down later", false)
	s.idp.SetDown(false)
	check("up again", true)
}

// metadataWith serves the metadata that the provider of the stand has, with changes.
func (s *stand) metadataWith(changes map[string]any) http.HandlerFunc {
	m := map[string]any{"issuer": s.idp.URL, "jwks_uri": s.idp.URL + authtest.Keys,
		"authorization_endpoint": s.idp.URL + "/authorize", "token_endpoint": s.idp.URL + "/token"}
	maps.Copy(m, changes)
	return func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, m) }
}

// TestChangedMetadataAreNoticed: a provider moves its token endpoint and its keys, and adds back-channel
// logout. The next check notices that, without a restart.
func TestChangedMetadataAreNoticed(t *testing.T) {
	log := new(authtest.Text)
	s := mustStand(t, func(o *Options) { o.Log = authtest.Log(t, log) })
	s.idp.Answer(authtest.Metadata, s.metadataWith(nil))
	a := s.mustApp(t)
	a.mustSignIn(t, newBrowser(t))
	if status, body := s.logout(t, s.idp.LogoutToken(t, "junction", nil)); status != 400 {
		t.Errorf("a logout that is not offered: %d %s", status, body)
	}

	s.idp.Answer("/token", http.NotFound)
	s.idp.Answer(authtest.Keys, http.NotFound)
	s.idp.Answer("/v2/token", s.idp.token)
	s.idp.Answer("/v2/keys", func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, s.idp.KeySet()) })
	s.idp.SetKeys(authtest.NewKey(t, "next", jose.RS256))
	s.idp.Answer(authtest.Metadata, s.metadataWith(map[string]any{"token_endpoint": s.idp.URL + "/v2/token",
		"jwks_uri": s.idp.URL + "/v2/keys", "backchannel_logout_supported": true}))
	b := newBrowser(t)
	if p := b.follow(b.press(b.once(http.MethodGet, a.asks(), nil), "idp:sso")); p.status != 403 ||
		!strings.Contains(p.body, "status 404") {
		t.Errorf("before the check: %d %s", p.status, p.body)
	}
	for range 2 { // the second one finds no change
		if err := s.CheckProviders(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	a.mustSignIn(t, newBrowser(t))
	if status, body := s.logout(t, s.idp.LogoutToken(t, "junction", nil)); status != 200 {
		t.Errorf("a logout: %d %s", status, body)
	}
	if text := log.String(); strings.Count(text, "have changed") != 1 ||
		!strings.Contains(text, `provider=sso changed="backchannel_logout_supported, jwks_uri, token_endpoint"`) {
		t.Errorf("the log has\n%s", text)
	}
}

// TestUselessMetadataChangeNothing: metadata of another issuer, without an endpoint, or that cannot be read
// are an error of the check. Sign-ins use the last good ones, with the keys that are known, also while a
// check waits for its answer.
func TestUselessMetadataChangeNothing(t *testing.T) {
	s := mustStand(t, nil)
	a := s.mustApp(t)
	a.mustSignIn(t, newBrowser(t))
	evil := map[string]any{"token_endpoint": "http://127.0.0.1:1/token", "jwks_uri": "http://127.0.0.1:1/keys"}
	for name, answer := range map[string]http.HandlerFunc{
		"another issuer": s.metadataWith(map[string]any{"issuer": "https://evil.example", "token_endpoint": evil["token_endpoint"]}),
		"no endpoint":    s.metadataWith(map[string]any{"authorization_endpoint": "", "jwks_uri": evil["jwks_uri"]}),
		"no JSON":        func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"endless":        authtest.Large(64 << 20),
		"down":           func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
	} {
		s.idp.Answer(authtest.Metadata, answer)
		err := s.CheckProviders(t.Context())
		if err == nil || (name == "endless") != strings.Contains(err.Error(), "the body is too large") {
			t.Errorf("%s: %v", name, err)
		}
		a.mustSignIn(t, newBrowser(t))
	}
	asked, answer := make(chan struct{}), make(chan struct{})
	s.idp.Answer(authtest.Metadata, func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-answer
		s.metadataWith(nil)(w, r)
	})
	checked := make(chan error)
	go func() { checked <- s.CheckProviders(t.Context()) }()
	<-asked
	a.mustSignIn(t, newBrowser(t))
	close(answer)
	if err := <-checked; err != nil {
		t.Error(err)
	}
	a.mustSignIn(t, newBrowser(t))
	if n := s.idp.Asked(authtest.Keys); n != 1 {
		t.Errorf("the provider was asked %d times for its keys, want once", n)
	}
}

// TestKeysThatCannotBeFetchedAreAnOutage: if the keys endpoint of a provider answers with anything but keys,
// the user, the provider that logs a user out and the client are told to try again. The answer of the provider is
// not called invalid, and the log names the endpoint.
func TestKeysThatCannotBeFetchedAreAnOutage(t *testing.T) {
	for name, answer := range map[string]struct {
		status     int
		kind, text string
	}{
		"an error":                 {502, "text/html", "<html>Bad Gateway</html>"},
		"a page":                   {200, "text/html", "<!doctype html><title>Maintenance</title>"},
		"a page as JSON":           {200, "application/json", "<!doctype html>"},
		"nothing":                  {200, "application/json", ""},
		"an object without keys":   {200, "application/json", `{"error":"maintenance"}`},
		"null for keys":            {200, "application/json", `{"keys":null}`},
		"another type of keys":     {200, "application/json", `{"keys":"soon"}`},
		"half a set":               {200, "application/json", `{"keys":[{"kty":"RSA",`},
		"keys that are unusable":   {200, "application/json", `{"keys":[{"kty":"RSA"},"x",null]}`},
		"more than a set may have": {200, "application/json", `{"keys":[` + strings.Repeat(" ", 2<<20) + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			log := new(authtest.Text)
			s := mustStand(t, func(o *Options) { o.Log = authtest.Log(t, log) })
			s.clock.stop()
			a := s.mustApp(t)
			s.idp.Answer(authtest.Keys, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", answer.kind)
				w.WriteHeader(answer.status)
				fmt.Fprint(w, answer.text)
			})
			advises := func(at string) {
				t.Helper()
				want := "open " + s.idp.URL + authtest.Keys + " (jwks_uri), which must return a JSON Web Key Set"
				if got := log.Take(); !strings.Contains(got, want) || strings.Contains(got, "client_id") {
					t.Errorf("%s: the log has not %q alone:\n%s", at, want, got)
				}
			}
			log.Take()
			b := newBrowser(t)
			p := b.follow(b.press(b.once(http.MethodGet, a.asks(), nil), "idp:sso"))
			if p.status != 503 || !strings.Contains(p.body, "Acme SSO cannot be reached") ||
				!strings.Contains(p.body, "Go back to your app, and connect again in a moment.") {
				t.Errorf("%d %s", p.status, p.body)
			}
			advises("a sign-in")
			p = b.follow(b.press(b.once(http.MethodGet, s.url+"/account", nil), "idp:sso"))
			if p.status != 503 || !strings.Contains(p.body, "Sign in again") {
				t.Errorf("at the account: %d %s", p.status, p.body)
			}
			token := s.idp.LogoutToken(t, "junction", nil)
			for range 2 { // the second time without a request
				log.Take()
				if status, body := s.logout(t, token); status != 503 || !strings.Contains(body, "temporarily_unavailable") {
					t.Errorf("a logout: %d %s", status, body)
				}
				advises("a logout")
			}
			s.idp.Answer(authtest.Keys, nil)
			a.mustSignIn(t, newBrowser(t))
			s.clock.forward(5 * time.Second)
			if status, body := s.logout(t, token); status != 200 {
				t.Errorf("the logout again: %d %s", status, body)
			}
		})
	}
}

// TestOneUnusableKeyOfAProviderHarmsNoOther: users sign in with the other keys of the set.
func TestOneUnusableKeyOfAProviderHarmsNoOther(t *testing.T) {
	s := mustStand(t, nil)
	good, err := json.Marshal(s.idp.KeySet().Keys[0])
	if err != nil {
		t.Fatal(err)
	}
	s.idp.Answer(authtest.Keys, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"keys":[{"kty":"RSA"},{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA"},%s]}`, good)
	})
	s.mustApp(t).mustSignIn(t, newBrowser(t))
}

func TestInvalidAnswersOfTheProviderAreRejected(t *testing.T) {
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

func TestRequiredClaimsDecideWhoSignsIn(t *testing.T) {
	for name, row := range map[string]struct {
		claims map[string]any
		change func(p *provider.Config)
		in     bool
	}{
		"right tenant": {map[string]any{"tid": "acme"},
			func(p *provider.Config) { p.RequiredClaims = map[string]provider.OneOf{"tid": {"acme"}} }, true},
		"wrong tenant": {map[string]any{"tid": "evil"},
			func(p *provider.Config) { p.RequiredClaims = map[string]provider.OneOf{"tid": {"acme"}} }, false},
		"no tenant": {nil, func(p *provider.Config) { p.RequiredClaims = map[string]provider.OneOf{"tid": {"acme"}} },
			false},
		"right hosted domain": {map[string]any{"hd": "acme.example"},
			func(p *provider.Config) { p.RequiredClaims = map[string]provider.OneOf{"hd": {"acme.example"}} }, true},
		"wrong hosted domain": {map[string]any{"hd": "gmail.example"},
			func(p *provider.Config) { p.RequiredClaims = map[string]provider.OneOf{"hd": {"acme.example"}} }, false},
		"no hosted domain": {nil,
			func(p *provider.Config) { p.RequiredClaims = map[string]provider.OneOf{"hd": {"acme.example"}} }, false},
		"right domain": {nil, func(p *provider.Config) { p.EmailDomains = []string{"ACME.example"} }, true},
		"wrong domain": {map[string]any{"email": "ann@acme.example.evil.example"},
			func(p *provider.Config) { p.EmailDomains = []string{"acme.example"} }, false},
		"unverified": {map[string]any{"email_verified": false},
			func(p *provider.Config) { p.EmailDomains = []string{"acme.example"} }, false},
		"verified, as text": {map[string]any{"email_verified": "true"},
			func(p *provider.Config) { p.EmailDomains = []string{"acme.example"} }, true},
		"no subject":         {nil, func(p *provider.Config) { p.SubjectClaims = []string{"oid"} }, false},
		"groups of a number": {map[string]any{"groups": []any{1}}, func(*provider.Config) {}, false},
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

func TestRefreshAsksTheProvider(t *testing.T) {
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

func TestRefreshReadsGroupsAgain(t *testing.T) {
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

func TestNotGranted(t *testing.T) {
	s := mustStand(t, nil)
	s.granted = func(*auth.Principal) bool { return false }
	a, b := s.mustApp(t), newBrowser(t)
	p := b.follow(b.press(b.once(http.MethodGet, a.asks(), nil), "idp:sso"))
	if p.status != 403 || !strings.Contains(p.body, "ann@acme.example") ||
		!strings.Contains(p.body, "error=access_denied") || strings.Contains(p.body, "code=") {
		t.Errorf("%d %s", p.status, p.body)
	}
	events, err := s.store.Events(t.Context(), 1)
	if err != nil || len(events) != 1 || events[0].Event != "not_granted" ||
		!strings.Contains(string(events[0].Detail), `app \"`) ||
		!strings.Contains(string(events[0].Detail), ", groups: ") {
		t.Errorf("the audit has %+v, %v; want the app and the groups", events, err)
	}
	groups := append([]string{"\x1b[31m" + strings.Repeat("g", 1000)}, slices.Repeat([]string{"other"}, 1000)...)
	got := notGranted(`a "name"`+strings.Repeat("n", 1000), groups)
	if !strings.HasPrefix(got, `app "a \"name\"nn`) || !strings.HasSuffix(got, "…, other, other, other, other, and 996 more") ||
		len(got) > 300 || strings.Contains(got, "\x1b") {
		t.Errorf("the detail is %q", got)
	}
	if got := notGranted("an app", nil); got != `app "an app", groups: none` {
		t.Errorf("without groups: %q", got)
	}
}

// TestSubjectsOfTwoProvidersDiffer: users choose a provider, and the same subject at two providers is two
// users.
func TestSubjectsOfTwoProvidersDiffer(t *testing.T) {
	partner := mustIDP(t)
	s := mustStand(t, func(o *Options) {
		o.Config.IdentityProviders = append(o.Config.IdentityProviders,
			provider.Config{ID: "partner", Name: "Partner login", Issuer: partner.URL, ClientID: "junction",
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
