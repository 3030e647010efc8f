package auth_test

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth"
	"junction/auth/authtest"

	"github.com/go-jose/go-jose/v4"
)

const (
	publicURL = "https://mcp.example.com"
	resource  = publicURL + "/mcp"
)

// entry is the configuration of a server.
func entry(s *authtest.Server, change ...func(*auth.Issuer)) auth.Issuer {
	i := auth.Issuer{TokenRules: auth.TokenRules{Issuer: s.URL, Audiences: []string{resource}}}
	for _, f := range change {
		f(&i)
	}
	return i
}

// signIn is a guard for the tokens of servers in memory.
func signIn(t *testing.T, s *authtest.Server, c *auth.Config) *auth.Guard {
	t.Helper()
	if problems := c.Validate(); problems != nil {
		t.Fatalf("the configuration is wrong: %v", problems)
	}
	log := authtest.Log(t)
	p := auth.NewProviders(s.Client())
	t.Cleanup(p.Close)
	g := c.Guard(p, publicURL, nil)
	g.Log = log
	return g
}

// server is a server in memory, with its guard.
func server(t *testing.T, change ...func(*auth.Issuer)) (*authtest.Server, *auth.Guard) {
	t.Helper()
	s := authtest.New(t)
	return s, signIn(t, s, &auth.Config{JWT: []auth.Issuer{entry(s, change...)}})
}

func bearerOf(token string) http.Header { return authorization("Bearer " + token) }

// wantIn checks that a token is accepted.
func wantIn(t *testing.T, g *auth.Guard, token string) *auth.Principal {
	t.Helper()
	p, resp := ask(t, g, "POST", "/mcp", bearerOf(token))
	if p == nil {
		t.Fatalf("refused with %d: %s", resp.StatusCode, resp.Header.Get("WWW-Authenticate"))
	}
	return p
}

// wantOut checks that a token is rejected, with a reason if it is the token's fault.
func wantOut(t *testing.T, g *auth.Guard, token string, status int, reason string) {
	t.Helper()
	p, resp := ask(t, g, "POST", "/mcp", bearerOf(token))
	got := resp.Header.Get("WWW-Authenticate")
	switch {
	case p != nil:
		t.Fatalf("let in as %+v", p)
	case resp.StatusCode != status, !strings.Contains(got, reason):
		t.Errorf("got %d, %s\nwant %d, …%s…", resp.StatusCode, got, status, reason)
	case status == 401 && !strings.Contains(got, `error="invalid_token"`), status == 503 &&
		(got != "" || resp.Header.Get("Retry-After") == ""):
		t.Errorf("%d with %v", status, resp.Header)
	}
	mustSay(t, resp)
}

func TestJWT(t *testing.T) {
	s, g := server(t)
	p := wantIn(t, g, s.Token(t, s.Claims(resource, map[string]any{"groups": []string{"a", "b"}, "scope": "x mcp",
		"email": "ann@example.com", "email_verified": true, "sid": "s1"})))
	end := time.Until(p.Expires)
	if p.Kind != auth.KindUser || p.User != "ann" || p.Issuer != s.URL || p.Email != "ann@example.com" ||
		!slices.Equal(p.Groups, []string{"a", "b"}) ||
		!slices.Equal(p.Scopes, []string{"mcp", "x"}) || p.OAuthClient != "app" || p.Grant != "s1" || end < time.Hour ||
		end > time.Hour+time.Minute || p.Address.String() != "127.0.0.1" {
		t.Errorf("got %+v", p)
	}
	if !strings.HasPrefix(p.ID, "user:") || !strings.HasSuffix(p.ID, ":ann") ||
		len(p.ID) != len("user:0123456789abcdef:ann") {
		t.Errorf("the ID is %s", p.ID)
	}
	if !g.Still(p) {
		t.Error("it is over at once")
	}
	if q := wantIn(t, g, s.Token(t, s.Claims(resource, map[string]any{"sub": "app"}))); q.Kind != auth.KindService ||
		!strings.HasPrefix(q.ID, "service:") {
		t.Errorf("a program that signed in as itself is %+v", q)
	}
}

// TestJWTKeys: each default algorithm, with and without key ids.
func TestJWTKeys(t *testing.T) {
	s := authtest.New(t)
	rsa, ec := authtest.NewKey(t, "", jose.RS256), authtest.NewKey(t, "", jose.ES256)
	pss := &authtest.Key{Algorithm: jose.PS256, Private: rsa.Private}
	rsaNamed, ecNamed := *rsa, *ec
	rsaNamed.ID, ecNamed.ID = "a", "b"
	s.SetKeys(rsa, ec, pss, &rsaNamed, &ecNamed)
	g := signIn(t, s, &auth.Config{JWT: []auth.Issuer{entry(s)}})
	for name, key := range map[string]*authtest.Key{"RS256": rsa, "ES256": ec, "PS256": pss, "RS256 named": &rsaNamed,
		"ES256 named": &ecNamed} {
		t.Run(name, func(t *testing.T) { wantIn(t, g, key.Token(t, s.Claims(resource, nil))) })
	}
}

func TestJWTRefused(t *testing.T) {
	s := authtest.New(t)
	rsa := authtest.NewKey(t, "rsa", jose.RS256)
	other := authtest.NewKey(t, "rsa", jose.RS256)
	ec384 := authtest.NewKey(t, "ec", jose.ES384)
	s.SetKeys(rsa, ec384)
	g := signIn(t, s, &auth.Config{JWT: []auth.Issuer{entry(s,
		func(i *auth.Issuer) { i.Audiences = append(i.Audiences, "api://junction") })}})
	now := time.Now().Unix()
	claims := func(change map[string]any) string { return rsa.Token(t, s.Claims(resource, change)) }
	header := func(h map[string]any) string { return rsa.Token(t, s.Claims(resource, nil), h) }
	const idToken, noAccess = "it is an ID token", "it is not an access token"
	good := claims(nil)
	parts := strings.Split(good, ".")
	for _, row := range []struct{ name, token, reason string }{
		{"no audience", claims(map[string]any{"aud": nil}),
			"it has no audience; this server accepts " + resource},
		{"empty audience", claims(map[string]any{"aud": ""}), "this server accepts " + resource},
		{"empty list", claims(map[string]any{"aud": []string{}}), "it has no audience"},
		{"other audience", claims(map[string]any{"aud": "https://other.example.com/mcp"}),
			"its audience is https://other.example.com/mcp; this server accepts " + resource},
		{"audience of another kind, nearly", claims(map[string]any{"aud": "api://Junction/"}),
			"its audience is api://Junction/"},
		{"audience is a number", claims(map[string]any{"aud": 5}), "is not a string|it is malformed"},
		{"other issuer", claims(map[string]any{"iss": "https://evil.example.com"}), "its issuer is not configured"},
		{"issuer with a slash", claims(map[string]any{"iss": s.URL + "/"}), "its issuer is not configured"},
		{"issuer in upper case", claims(map[string]any{"iss": strings.ToUpper(s.URL)}), "its issuer is not configured"},
		{"no issuer", claims(map[string]any{"iss": nil}), "this server does not know it"},
		{"expired", claims(map[string]any{"exp": now - 90}), "it is expired"},
		{"no end", claims(map[string]any{"exp": nil}), "no expiry"},
		{"end null", claims(map[string]any{"exp": json.RawMessage("null")}), "is not a time|is malformed"},
		{"not yet", claims(map[string]any{"nbf": now + 90}), "not valid yet"},
		{"not before the year 9999", claims(map[string]any{"nbf": 253402300799}), "not valid yet"},
		{"no subject", claims(map[string]any{"sub": nil, "client_id": nil}), "no valid subject"},
		{"odd subject", claims(map[string]any{"sub": "a\nb"}), "no valid subject"},
		{"two subjects", claims(map[string]any{"sub": []string{"a", "b"}}), "no valid subject|is malformed"},
		{"nonce", claims(map[string]any{"nonce": "n"}), idToken},
		{"at_hash", claims(map[string]any{"at_hash": "n"}), idToken},
		{"c_hash", claims(map[string]any{"c_hash": "n"}), idToken},
		{"bound to a key", claims(map[string]any{"cnf": map[string]any{"jkt": "x"}}), "sender-constrained tokens " +
			"are not supported"},
		{"logout", header(map[string]any{"typ": "logout+jwt"}), noAccess},
		{"ID-JAG", header(map[string]any{"typ": "oauth-id-jag+jwt"}), noAccess},
		{"DPoP", header(map[string]any{"typ": "dpop+jwt"}), noAccess},
		{"typ is no text", header(map[string]any{"typ": 5}), noAccess},
		{"critical", header(map[string]any{"crit": []string{"exp"}, "exp": now}), "critical header"},
		{"another algorithm", ec384.Token(t, s.Claims(resource, nil)), "algorithm is not accepted"},
		{"none", unsigned(t, map[string]any{"alg": "none"}, s.Claims(resource, nil)) + ".",
			"algorithm is not accepted"},
		{"none in capitals", unsigned(t, map[string]any{"alg": "NONE"}, s.Claims(resource, nil)) + ".",
			"algorithm is not accepted"},
		{"HS256 with the public key", hs256(t, rsa, s.Claims(resource, nil)),
			"algorithm is not accepted"},
		{"foreign key of that name", other.Token(t, s.Claims(resource, nil)), "not signed by a key of its issuer"},
		{"key in the header", withOwnKey(t, other, s.Claims(resource, map[string]any{"iat": now - 3600})), "not signed by a key of its issuer"},
		{"other claims under the signature", parts[0] + "." + strings.Split(claims(map[string]any{"sub": "eve"}),
			".")[1] + "." + parts[2], "not signed by a key of its issuer"},
		{"without signature", parts[0] + "." + parts[1] + ".", "not signed by a key of its issuer|is malformed"},
		{"two parts", parts[0] + "." + parts[1], "this server does not know it"},
		{"four parts", good + ".x", "this server does not know it"},
		{"groups are a number", claims(map[string]any{"groups": 5}), "its claim groups is not a string"},
		{"groups are numbers", claims(map[string]any{"groups": []any{"a", 5}}), "its claim groups is not a string"},
		{"scope is a number", claims(map[string]any{"scope": 5}), "its claim scope is not a string"},
		{"opaque", "abc", "this server does not know it"},
		{"ours, which nobody hands out", "jct_at_abc", "this server does not know it"},
		{"a key, of which there are none", auth.NewKey(), "this server does not know the key"},
	} {
		t.Run(row.name, func(t *testing.T) {
			for range 2 { // nothing that is refused is remembered as good
				_, resp := ask(t, g, "POST", "/mcp", bearerOf(row.token))
				got := resp.Header.Get("WWW-Authenticate")
				if resp.StatusCode != 401 || !slices.ContainsFunc(strings.Split(row.reason, "|"),
					func(r string) bool { return strings.Contains(got, r) }) {
					t.Errorf("got %d, %s\nwant %s", resp.StatusCode, got, row.reason)
				}
			}
		})
	}
	wantIn(t, g, good)
}

// unsigned returns the first two parts of an unsigned token.
func unsigned(t *testing.T, header, claims map[string]any) string {
	t.Helper()
	var parts []string
	for _, v := range []any{header, claims} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, base64.RawURLEncoding.EncodeToString(text))
	}
	return strings.Join(parts, ".")
}

// hs256 signs with the public part of a key.
func hs256(t *testing.T, k *authtest.Key, claims map[string]any) string {
	t.Helper()
	secret, err := json.Marshal(jose.JSONWebKey{Key: k.Private.Public(), KeyID: k.ID})
	if err != nil {
		t.Fatal(err)
	}
	return signed(t, jose.SigningKey{Algorithm: jose.HS256, Key: secret}, claims,
		new(jose.SignerOptions).WithHeader("kid", k.ID))
}

// withOwnKey is a token that contains its own verification key.
func withOwnKey(t *testing.T, k *authtest.Key, claims map[string]any) string {
	return signed(t, jose.SigningKey{Algorithm: k.Algorithm, Key: k.Private}, claims,
		&jose.SignerOptions{EmbedJWK: true})
}

func signed(t *testing.T, key jose.SigningKey, claims map[string]any, o *jose.SignerOptions) string {
	t.Helper()
	signer, err := jose.NewSigner(key, o)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(claims)
	jws, err := signer.Sign(text)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jws.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestJWTAccepted(t *testing.T) {
	s, g := server(t)
	now := time.Now().Unix()
	for name, claims := range map[string]map[string]any{
		"audience in a list":      {"aud": []string{"https://other.example.com", resource}},
		"audience with a slash":   {"aud": resource + "/"},
		"audience in upper case":  {"aud": "HTTPS://MCP.example.com:443/mcp"},
		"expired within the skew": {"exp": now - 30},
		"not yet within the skew": {"nbf": now + 30},
		"end with a fraction":     {"exp": float64(now) + 100.5},
		"end of the year 9999":    {"exp": 253402300799},
		"no client":               {"client_id": nil},
		"no scopes":               {"scope": nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := wantIn(t, g, s.Token(t, s.Claims(resource, claims)))
			if !slices.Equal(p.Resources, []string{resource}) || !time.Now().Before(p.Expires) {
				t.Errorf("got %+v", p)
			}
		})
	}
	for name, header := range map[string]map[string]any{"no typ": {"typ": nil}, "JWT": {"typ": "JWT"},
		"the long one": {"typ": "application/at+jwt"}, "AT+JWT": {"typ": "AT+JWT"}} {
		t.Run(name, func(t *testing.T) { wantIn(t, g, s.Token(t, s.Claims(resource, nil), header)) })
	}
}

// TestJWTEntry: the settings of an entry.
func TestJWTEntry(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*auth.Issuer)
		claims map[string]any
		header map[string]any
		status int
		reason string
	}{
		{"only at+jwt", func(i *auth.Issuer) { i.RequireATJWT = true }, nil, nil, 0, ""},
		{"only at+jwt, and it is JWT", func(i *auth.Issuer) { i.RequireATJWT = true }, nil,
			map[string]any{"typ": "JWT"}, 401, "not an access token"},
		{"only at+jwt, and it does not say", func(i *auth.Issuer) { i.RequireATJWT = true }, nil,
			map[string]any{"typ": nil}, 401, "not an access token"},
		{"other algorithms", func(i *auth.Issuer) { i.Algorithms = []string{"ES256"} }, nil, nil, 401,
			"algorithm is not accepted"},
		{"other skew", func(i *auth.Issuer) { i.ClockSkew = time.Second },
			map[string]any{"exp": time.Now().Unix() - 30}, nil, 401, "expired"},
		{"tenant", func(i *auth.Issuer) { i.RequiredClaims = map[string]string{"tid": "acme"} },
			map[string]any{"tid": "acme"}, nil, 0, ""},
		{"tenant among others", func(i *auth.Issuer) { i.RequiredClaims = map[string]string{"tid": "acme"} },
			map[string]any{"tid": []string{"x", "acme"}}, nil, 0, ""},
		{"another tenant", func(i *auth.Issuer) { i.RequiredClaims = map[string]string{"tid": "acme"} },
			map[string]any{"tid": "evil"}, nil, 401, "its claim tid does not"},
		{"no tenant", func(i *auth.Issuer) { i.RequiredClaims = map[string]string{"tid": "acme"} }, nil, nil, 401,
			"its claim tid does not"},
		{"a number", func(i *auth.Issuer) { i.RequiredClaims = map[string]string{"level": "2", "ok": "true"} },
			map[string]any{"level": 2, "ok": true}, nil, 0, ""},
		{"scope", func(i *auth.Issuer) { i.RequiredScopes = []string{"mcp"} }, map[string]any{"scope": "a mcp"}, nil, 0,
			""},
		{"no scope", func(i *auth.Issuer) { i.RequiredScopes = []string{"mcp", "x"} }, map[string]any{"scope": "mcp"},
			nil, 403,
			`error="insufficient_scope", error_description="the token lacks a scope; needed are: mcp x", scope="mcp x", resource_metadata="` + publicURL + `/.well-known/oauth-protected-resource/mcp"`},
		{"client_id is the audience", func(i *auth.Issuer) {
			i.AudienceClaim, i.Audiences = "client_id",
				[]string{"app"}
		}, map[string]any{"aud": nil}, nil, 0, ""},
		{"client_id is another", func(i *auth.Issuer) { i.AudienceClaim, i.Audiences = "client_id", []string{"ours"} },
			map[string]any{"aud": "ours"}, nil, 401, "its audience is app"},
		{"subject elsewhere", func(i *auth.Issuer) { i.Claims.Subject = []string{"oid"} },
			map[string]any{"oid": "ann", "sub": "pairwise"}, nil, 0, ""},
		{"two subjects elsewhere", func(i *auth.Issuer) { i.Claims.Subject = []string{"oid"} },
			map[string]any{"oid": []string{"ann", "bob"}}, nil, 401, "no valid subject"},
		{"keys at a fixed place", func(i *auth.Issuer) { i.JWKSURL = i.Issuer + authtest.Keys }, nil, nil, 0, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, g := server(t, row.change)
			token := s.Token(t, s.Claims(resource, row.claims), row.header)
			if row.status != 0 {
				wantOut(t, g, token, row.status, row.reason)
				return
			}
			if p := wantIn(t, g, token); p.User != "ann" {
				t.Errorf("got %+v", p)
			}
			if i := entry(s, row.change); i.JWKSURL != "" && s.Asked(authtest.Metadata) > 0 {
				t.Error("its metadata was fetched")
			}
		})
	}
}

func TestJWTClaims(t *testing.T) {
	for _, row := range []struct {
		name          string
		path          []string
		claims        map[string]any
		groups, email string
	}{
		{"nested", []string{"realm_access", "roles"},
			map[string]any{"realm_access": map[string]any{"roles": []string{"a", "b"}}}, "a b", ""},
		{"dots and slashes", []string{"https://acme.example/groups"},
			map[string]any{"https://acme.example/groups": []string{"a"}}, "a", ""},
		{"one text", []string{"groups"}, map[string]any{"groups": "a b"}, "a b", ""},
		{"none", []string{"realm_access", "roles"}, nil, "", ""},
		{"half of it", []string{"realm_access", "roles"}, map[string]any{"realm_access": map[string]any{}}, "", ""},
		{"in another case", []string{"groups"}, map[string]any{"Groups": []string{"a"}}, "", ""},
		{"verified", nil, map[string]any{"email": "a@example.com", "email_verified": true}, "", "a@example.com"},
		{"verified, as a text", nil, map[string]any{"email": "a@example.com", "email_verified": "true"}, "",
			"a@example.com"},
		{"not verified", nil, map[string]any{"email": "a@example.com", "email_verified": false}, "", ""},
		{"nobody says", nil, map[string]any{"email": "a@example.com"}, "", ""},
		{"in another way", nil, map[string]any{"email": "a@example.com", "email_verified": 1}, "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, g := server(t, func(i *auth.Issuer) { i.Claims.Groups = row.path })
			p := wantIn(t, g, s.Token(t, s.Claims(resource, row.claims)))
			if strings.Join(p.Groups, " ") != row.groups || p.Email != row.email {
				t.Errorf("groups %q and email %q, want %q and %q", p.Groups, p.Email, row.groups, row.email)
			}
		})
	}
	for name, claims := range map[string]map[string]any{
		"scope": {"scope": "b a"}, "scope list": {"scope": []string{"a", "b"}}, "scp": {"scp": "a b"},
		"scp list": {"scp": []string{"a", "b"}}, "both": {"scope": "a", "scp": []string{"b", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, g := server(t)
			if p := wantIn(t, g, s.Token(t, s.Claims(resource, claims))); !slices.Equal(p.Scopes, []string{"a", "b"}) {
				t.Errorf("scopes %q, want a and b", p.Scopes)
			}
		})
	}
}

// TestTokenEnds: a cached token ends at its expiry, and with its configuration entry.
func TestTokenEnds(t *testing.T) {
	s := authtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		p := auth.NewProviders(s.Client())
		defer p.Close()
		c := &auth.Config{JWT: []auth.Issuer{entry(s)}}
		g := c.Guard(p, publicURL, nil)
		token := s.Token(t, s.Claims(resource, nil))
		who := wantIn(t, g, token)
		changed := &auth.Config{JWT: []auth.Issuer{entry(s,
			func(i *auth.Issuer) { i.RequiredScopes = []string{"mcp"} })}}
		for name, row := range map[string]struct {
			g    *auth.Guard
			want bool
		}{
			"unchanged": {c.Guard(p, publicURL, nil), true}, "another entry": {changed.Guard(p, publicURL, nil), false},
			"nobody": {&auth.Guard{}, false},
			"keys":   {&auth.Guard{Verifier: auth.Keys(nil, nil)}, false},
		} {
			if got := row.g.Still(who); got != row.want {
				t.Errorf("%s: still let in: %v, want %v", name, got, row.want)
			}
		}
		time.Sleep(time.Until(who.Expires) - 1)
		wantIn(t, g, token)
		if !g.Still(who) {
			t.Error("it is over too early")
		}
		time.Sleep(time.Nanosecond)
		wantOut(t, g, token, 401, "it is expired")
		if g.Still(who) {
			t.Error("it goes on for ever")
		}
	})
}

func TestAddressOfARememberedToken(t *testing.T) {
	s, g := server(t)
	r := httptest.NewRequest("POST", "/mcp", nil)
	r.Header = bearerOf(s.Token(t, s.Claims(resource, nil)))
	for _, from := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.1"} {
		r.RemoteAddr = from + ":99"
		if p := g.Authenticate(httptest.NewRecorder(), r); p == nil || p.Address.String() != from {
			t.Errorf("from %s: %+v", from, p)
		}
	}
}

// FuzzToken: only tokens that the server has signed are accepted.
func FuzzToken(f *testing.F) {
	s := authtest.New(f)
	p := auth.NewProviders(s.Client())
	f.Cleanup(p.Close)
	g := (&auth.Config{JWT: []auth.Issuer{entry(s)}}).Guard(p, publicURL, nil)
	good := s.Token(f, s.Claims(resource, nil))
	parts := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
	for _, seed := range []string{good, parts[0] + "." + parts[1] + ".", none + "." + parts[1] + ".", "", "..", "a.b.c",
		good + "=", "{}", parts[0] + ".e30." + parts[2]} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		r := httptest.NewRequest("POST", "/mcp", nil)
		r.Header["Authorization"] = []string{"Bearer " + token}
		w := httptest.NewRecorder()
		who := g.Authenticate(w, r)
		if who != nil && strings.Trim(token, " ") != good {
			// Base64 leaves bits unused at the end of a part; what they say is not signed and not
			// read.
			other := strings.Split(strings.Trim(token, " "), ".")
			if len(other) != 3 || other[0] != parts[0] || other[1] != parts[1] {
				t.Errorf("%q was let in", token)
			}
		}
		if who == nil && w.Code != 400 && w.Code != 401 {
			t.Errorf("%q was answered with %d", token, w.Code)
		}
	})
}

func BenchmarkJWT(b *testing.B) {
	s := authtest.New(b)
	p := auth.NewProviders(s.Client())
	b.Cleanup(p.Close)
	g := (&auth.Config{JWT: []auth.Issuer{entry(s)}}).Guard(p, publicURL, nil)
	r := httptest.NewRequest("POST", "/mcp", nil)
	r.RemoteAddr = "127.0.0.1:1234"
	big := maps.Clone(s.Claims(resource, nil))
	big["groups"] = strings.Split(strings.Repeat("some-group,", 50), ",")
	r.Header = bearerOf(s.Token(b, big))
	b.Run("remembered", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if g.Authenticate(nil, r) == nil {
				b.Fatal("not let in")
			}
		}
	})
}
