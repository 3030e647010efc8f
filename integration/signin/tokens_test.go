package signin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// The tests of this file are the numbered assertions about tokens of other authorization servers.
// The program is real, and so are the tokens; the server that signs them is ours, since it must be
// able to misbehave.

const (
	publicOrigin = "https://mcp.example.com"
	publicMCP    = publicOrigin + "/mcp"
	metadataURL  = publicOrigin + "/.well-known/oauth-protected-resource"
	toSignIn     = `Bearer realm="junction", scope="mcp", resource_metadata="` + metadataURL
	refusedToken = `Bearer realm="junction", error="invalid_token", error_description="the token is not valid: `
)

// trusting is the file's sections for a server whose tokens need the scope mcp; more are further
// members of its entry.
func trusting(s *authtest.Server, more ...string) string {
	members := append([]string{"issuer: " + s.URL, "audiences: [" + publicMCP + "]", "required_scopes: [mcp]"}, more...)
	return "public_url: " + publicOrigin + "\nauth: { jwt: [{ " + strings.Join(members, ", ") + " }] }\n"
}

// alsoHere is the section of trusting, where people sign in here as well, with that server as their
// provider.
func alsoHere(s *authtest.Server, section string) string {
	return strings.Replace(section, "auth: { ",
		"auth: { oauth: { identity_providers: [{ id: sso, name: SSO, issuer: "+s.URL+
			", client_id: x, client_secret: canary-y }] }, ", 1)
}

// inquiring is the file's sections for a server that is asked about tokens.
func inquiring(s *authtest.Server) string {
	return fmt.Sprintf(
		"public_url: %s\nauth: { introspection: { issuer: %s, endpoint: %s, client_id: %s, client_secret: %q, audiences: "+
			"[%s] } }\n",
		publicOrigin, s.URL, s.URL+authtest.Introspect, authtest.ClientID, authtest.ClientSecret, publicMCP)
}

// claimed are the claims of a good token with the scope mcp, some of them changed.
func claimed(s *authtest.Server, change map[string]any) map[string]any {
	c := s.Claims(publicMCP, map[string]any{"scope": "mcp"})
	for name, v := range change {
		if c[name] = v; v == nil {
			delete(c, name)
		}
	}
	return c
}

// showing is a client that shows a token, on an endpoint of the program.
func showing(t *testing.T, p *harness.Program, era client.Era, token, path string) *harness.Client {
	t.Helper()
	c := harness.NewClient(t, &harness.Endpoint{URL: strings.TrimSuffix(p.URL, "/mcp") + path}, era)
	if c.Key = token; token != "" && era == client.EraLegacy {
		c.MustInitialize(t, "2025-11-25")
	}
	return c
}

// wantTokenIn wants clients of both eras to be let in, and to reach the upstream.
func wantTokenIn(t *testing.T, p *harness.Program, token string) {
	t.Helper()
	for _, era := range harness.Eras {
		harness.WantEcho(t, showing(t, p, era, token, "/mcp").Tool(t, "up__echo", `{}`))
	}
}

// wantTokenOut wants a token to be refused with every method, and nothing to be done.
func wantTokenOut(t *testing.T, p *harness.Program, journal *upstreamtest.Journal, token string, status int,
	challenge string) {
	t.Helper()
	c := showing(t, p, client.EraModern, "", "/mcp")
	c.Key = token
	before := callsIn(journal)
	for _, verb := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		a := refusedTo(t, c, verb)
		if got := a.Header.Get("WWW-Authenticate"); a.Status != status || !strings.HasPrefix(got, challenge) ||
			(challenge == "") != (got == "") || a.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: got %s, %v\nwant %d, %s…", verb, a, a.Header, status, challenge)
		}
		if status == 503 && a.Header.Get("Retry-After") == "" {
			t.Errorf("%s: 503 without Retry-After", verb)
		}
	}
	if n := callsIn(journal); n != before {
		t.Errorf("the upstream received %d calls", n-before)
	}
}

// callsIn counts the calls that an upstream has received; what else it receives is ours.
func callsIn(journal *upstreamtest.Journal) int {
	return len(slices.DeleteFunc(journal.Received(),
		func(r upstreamtest.Record) bool { return !upstreamtest.Method("tools/call")(r) }))
}

// mustGet is a request for a document.
func mustGet(t *testing.T, method, url string, changes ...harness.HeaderChange) (int, http.Header, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(harness.Patient(t), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, ch := range changes {
		ch(r.Header)
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return resp.StatusCode, resp.Header, text
}

// issuersOf returns what /readyz says of authorization servers.
func issuersOf(t *testing.T, p *harness.Program) string {
	t.Helper()
	_, _, text := mustGet(t, "GET", p.Admin+"/readyz")
	v, err := raw.Get(text, "issuers")
	if err != nil {
		t.Fatalf("/readyz has no issuers: %s", text)
	}
	var b bytes.Buffer
	json.Compact(&b, v)
	return b.String()
}

func TestTokenIsForItsEndpoint(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	p, journal := guarded(t,
		strings.Replace(trusting(s), "audiences: ["+publicMCP,
			"audiences: ["+strings.Join([]string{publicMCP, publicOrigin + "/web/mcp", publicMCP + "/up", "api://junction"},
				", "), 1)+
			"endpoints: { web: {} }\n")
	paths := []string{"/mcp", "/web/mcp", "/mcp/up"}
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		for _, at := range paths {
			token := s.Token(t, claimed(s, map[string]any{"aud": publicOrigin + at}))
			for _, path := range paths {
				if path == at {
					if a := showing(t, p, era, token, path).Call(t, "tools/list", ""); a.Status != 200 || a.Message.Error != nil {
						t.Errorf("a token for %s there: %s", at, a)
					}
					continue
				}
				c := showing(t, p, client.EraModern, "", path)
				c.Key = token
				a := refusedTo(t, c, "POST")
				got := a.Header.Get("WWW-Authenticate")
				if a.Status != 401 ||
					!strings.HasPrefix(got, refusedToken+"its audience is "+publicOrigin+at+", but this is "+publicOrigin+path+`"`) ||
					!strings.HasSuffix(got, metadataURL+path+`"`) {
					t.Errorf("a token for %s at %s: %d, %s", at, path, a.Status, got)
				}
			}
			all := s.Token(t, claimed(s, map[string]any{"aud": "api://junction"}))
			if a := showing(t, p, era, all, at).Call(t, "tools/list", ""); a.Status != 200 {
				t.Errorf("a token for all at %s: %s", at, a)
			}
		}
	})
	harness.WantUncalled(t, journal, "tools/call")
}

func TestTokenInTheWrongPlaceIsRefused(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	p, journal := guarded(t, trusting(s))
	token := s.Token(t, claimed(s, nil))
	wantTokenIn(t, p, token)
	before := callsIn(journal)
	for name, row := range map[string]struct {
		query  string
		change harness.HeaderChange
		status int
	}{
		"query":            {"?access_token=" + token, harness.Without("X"), 400},
		"query and header": {"?access_token=" + token, harness.With("Authorization", "Bearer "+token), 400},
		"cookie":           {"", harness.With("Cookie", "access_token="+token), 401},
		"two headers":      {"", harness.With("Authorization", "Bearer "+token, "Bearer "+token), 400},
		"malformed":        {"", harness.With("Authorization", "Bearer "+token+" x"), 400},
	} {
		c := harness.NewClient(t, &harness.Endpoint{URL: p.URL + row.query}, client.EraModern)
		if a := refusedTo(t, c, "POST", row.change); a.Status != row.status {
			t.Errorf("%s: %s, want %d", name, a, row.status)
		}
	}
	if n := callsIn(journal); n != before {
		t.Errorf("the upstream received %d calls", n-before)
	}
}

// TestSignedTokensAreVerified: which tokens are valid. Package auth has many
// more of these.
func TestSignedTokensAreVerified(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	rsa, ec, es384 := authtest.NewKey(t, "rsa", jose.RS256), authtest.NewKey(t, "ec", jose.ES256), authtest.NewKey(t,
		"es384", jose.ES384)
	s.SetKeys(rsa, ec, es384)
	p, journal := guarded(t, trusting(s))
	now := time.Now().Unix()
	sign := func(change map[string]any) string { return rsa.Token(t, claimed(s, change)) }
	typed := func(typ any) string { return rsa.Token(t, claimed(s, nil), map[string]any{"typ": typ}) }
	for name, token := range map[string]string{
		"RS256":          sign(nil),
		"ES256":          ec.Token(t, claimed(s, nil)),
		"ours in a list": sign(map[string]any{"aud": []string{"https://other.example.com", publicMCP}}),
		"exp 30 s ago":   sign(map[string]any{"exp": now - 30}),
		"nbf in 30 s":    sign(map[string]any{"nbf": now + 30}),
		"typ JWT":        typed("JWT"),
		"no typ":         typed(nil),
		"scope list":     sign(map[string]any{"scope": []string{"mcp"}}),
		"scp":            sign(map[string]any{"scope": nil, "scp": "a mcp"}),
		"scp list":       sign(map[string]any{"scope": nil, "scp": []string{"a", "mcp"}}),
	} {
		t.Run(name, func(t *testing.T) { wantTokenIn(t, p, token) })
	}
	secret, err := json.Marshal(s.KeySet().Keys[0])
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: secret},
		new(jose.SignerOptions).WithHeader("kid", "rsa"))
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(claimed(s, nil))
	jws, err := signer.Sign(text)
	if err != nil {
		t.Fatal(err)
	}
	hs256, _ := jws.CompactSerialize()
	good := strings.Split(sign(nil), ".")
	const none = "eyJhbGciOiJub25lIn0" // {"alg":"none"}
	for name, row := range map[string]struct{ token, reason string }{
		"no audience": {sign(map[string]any{"aud": nil}), "it has no audience"},
		"other audience": {sign(map[string]any{"aud": "https://other.example.com"}),
			"its audience is https://other.example.com; this server accepts " + publicMCP},
		"empty audience":  {sign(map[string]any{"aud": ""}), "its audience is "},
		"other issuer":    {sign(map[string]any{"iss": "https://evil.example"}), "its issuer is not configured"},
		"a slash":         {sign(map[string]any{"iss": s.URL + "/"}), "its issuer is not configured"},
		"exp 90 s ago":    {sign(map[string]any{"exp": now - 90}), "it is expired"},
		"nbf in 90 s":     {sign(map[string]any{"nbf": now + 90}), "it is not valid yet"},
		"none":            {none + "." + good[1] + ".", "its signature algorithm"},
		"HS256":           {hs256, "its signature algorithm"},
		"not in the list": {es384.Token(t, claimed(s, nil)), "its signature algorithm"},
		"crit": {rsa.Token(t, claimed(s, nil), map[string]any{"crit": []string{"x"}, "x": 1}),
			"it has a critical header"},
		"ID token":         {sign(map[string]any{"nonce": "n", "at_hash": "h"}), "it is an ID token"},
		"logout+jwt":       {typed("logout+jwt"), "it is not an access token"},
		"oauth-id-jag+jwt": {typed("oauth-id-jag+jwt"), "it is not an access token"},
		"dpop+jwt":         {typed("dpop+jwt"), "it is not an access token"},
		"cnf": {sign(map[string]any{"cnf": map[string]any{"jkt": "x"}}),
			"sender-constrained tokens are not supported"},
	} {
		t.Run(name, func(t *testing.T) { wantTokenOut(t, p, journal, row.token, 401, refusedToken+row.reason) })
	}
	t.Run("no scope", func(t *testing.T) {
		wantTokenOut(t, p, journal, sign(map[string]any{"scope": "other"}), 403,
			`Bearer realm="junction", error="insufficient_scope", error_description="the token lacks a scope; needed are: `+
				`mcp", scope="mcp", resource_metadata="`+metadataURL)
	})
}

func TestIssuerReplacesItsKeys(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	p, journal := guarded(t, trusting(s))
	before := s.Token(t, claimed(s, nil))
	wantTokenIn(t, p, before)
	s.SetKeys(authtest.NewKey(t, "next", jose.ES256))
	wantTokenIn(t, p, s.Token(t, claimed(s, nil)))
	wantTokenOut(t, p, journal, before, 401, refusedToken+"it is not signed by a key of its issuer")
}

// TestUnknownKeysMakeFewRequests: a token is said to be invalid only if the keys were fetched for it. The
// others, which may have a new key of their issuer, are to be sent again.
func TestUnknownKeysMakeFewRequests(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	p, _ := guarded(t, trusting(s))
	key := authtest.NewKey(t, "", jose.ES256)
	c := showing(t, p, client.EraModern, "", "/mcp")
	statuses := map[int]int{}
	for i := range 1000 {
		key.ID = fmt.Sprint("unknown-", i)
		c.Key = key.Token(t, claimed(s, nil))
		a := refusedTo(t, c, "POST")
		if statuses[a.Status]++; a.Status != 401 && a.Status != 503 {
			t.Fatalf("an unknown key: %s", a)
		}
	}
	if n := s.Asked(authtest.Keys); n > 2 || statuses[401] == 0 || statuses[401] > n {
		t.Errorf("1000 unknown keys make %d requests, want 2 at most; by status there are %v tokens", n, statuses)
	}
}

func TestKeysOfAnUnreachableIssuer(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	p, journal := guarded(t, trusting(s))
	wantTokenIn(t, p, s.Token(t, claimed(s, nil)))
	s.SetDown(true)
	wantTokenIn(t, p, s.Token(t, claimed(s, map[string]any{"sub": "bob"})))
	wantTokenOut(t, p, journal, authtest.NewKey(t, "next", jose.ES256).Token(t, claimed(s, nil)), 503, "")
}

func TestIssuerDownAtTheStart(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	s.SetDown(true)
	p, journal := guarded(t, trusting(s))
	token := s.Token(t, claimed(s, nil))
	wantTokenOut(t, p, journal, token, 503, "")
	if got := issuersOf(t, p); !strings.Contains(got, `"usable":false,"error":"cannot fetch its metadata: `) {
		t.Errorf("/readyz says %s", got)
	}
	s.SetDown(false)
	c := showing(t, p, client.EraModern, "", "/mcp")
	c.Key = token
	for began := time.Now(); ; {
		a := c.Call(t, "tools/list", "")
		if a.Status == 200 {
			break
		}
		if a.Status != 503 || time.Since(began) > harness.Patience {
			t.Fatalf("it does not recover: %s", a)
		}
	}
	if got := issuersOf(t, p); got != `[{"issuer":"`+s.URL+`","usable":true}]` {
		t.Errorf("/readyz says %s", got)
	}
}

func TestMetadataOfAnotherIssuer(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	for _, path := range []string{authtest.Metadata, authtest.OAuth} {
		s.Answer(path, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"issuer":"https://evil.example","jwks_uri":"%s"}`, s.URL+authtest.Keys)
		})
	}
	p, journal := guarded(t, trusting(s))
	wantTokenOut(t, p, journal, s.Token(t, claimed(s, nil)), 503, "")
	if got := issuersOf(t, p); !strings.Contains(got,
		`"usable":false,"error":"its metadata names another issuer: \"https://evil.example\""`) {
		t.Errorf("/readyz says %s", got)
	}
	if n := s.Asked(authtest.Keys); n > 0 {
		t.Error("its keys were fetched")
	}
	out, _, err := harness.RunJunction(t, p.Owner(), "doctor", "--admin", p.Admin)
	if flat := strings.Join(strings.Fields(out), " "); err == nil ||
		!strings.Contains(flat, "tokens of "+s.URL+" cannot be verified as they should: its metadata names another issuer:") {
		t.Errorf("junction doctor: %v\n%s", err, out)
	}
}

// TestKeysOnAnotherHost: an issuer that the file names does not have us connect to whatever it
// likes.
func TestKeysOnAnotherHost(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	s.Answer(authtest.Metadata, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":"%s","jwks_uri":"%s"}`, s.URL,
			strings.Replace(s.URL, "127.0.0.1", "localhost", 1)+authtest.Keys)
	})
	p, journal := guarded(t, trusting(s))
	wantTokenOut(t, p, journal, s.Token(t, claimed(s, nil)), 503, "")
	if got := issuersOf(t, p); !strings.Contains(got, `"usable":false,"error":"cannot fetch its keys: `) ||
		s.Asked(authtest.Keys) != 0 {
		t.Errorf("/readyz says %s, and there were %d requests for keys", got, s.Asked(authtest.Keys))
	}
	p, _ = guarded(t, trusting(s)+"outbound: { allow_private: [127.0.0.0/8, '::1/128'] }\n")
	wantTokenIn(t, p, s.Token(t, claimed(s, nil)))
}

func TestEndlessKeysAreGivenUp(t *testing.T) {
	harness.Waits(t)
	for name, answer := range map[string]http.HandlerFunc{"50 MB": authtest.Large(50 << 20),
		"a byte a second": authtest.Dripping(time.Second)} {
		t.Run(name, func(t *testing.T) {
			harness.Waits(t)
			s := authtest.Start(t)
			s.Answer(authtest.Keys, answer)
			p, journal := guarded(t, trusting(s))
			began, before := time.Now(), p.Peak(t)
			wantTokenOut(t, p, journal, s.Token(t, claimed(s, nil)), 503, "")
			if grown := p.Peak(t) - before; grown > 16<<20 {
				t.Errorf("the program takes %d MB more", grown>>20)
			}
			if took := time.Since(began); took > 20*time.Second { // three requests, of which each may wait for one try
				t.Errorf("three requests took %v", took)
			}
		})
	}
}

func TestIntrospectedTokens(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	p, journal := guarded(t, inquiring(s))
	const canary = "opaque-canary-0123456789"
	s.Opaque(canary, s.Claims(publicMCP, nil))
	t.Run("asked once", func(t *testing.T) {
		wantTokenIn(t, p, canary)
		wantTokenIn(t, p, canary)
		if n := s.Asked(authtest.Introspect); n != 1 {
			t.Errorf("the server was asked %d times, want once", n)
		}
		wantTokenOut(t, p, journal, "opaque-canary-inactive", 401, refusedToken+"its issuer says that it is not active")
	})
	t.Run("other audience", func(t *testing.T) {
		s.Opaque("opaque-canary-other", s.Claims("https://other.example.com", nil))
		wantTokenOut(t, p, journal, "opaque-canary-other", 401, refusedToken+"its audience is https://other.example.com")
	})
	t.Run("server down", func(t *testing.T) {
		s.SetDown(true)
		defer s.SetDown(false)
		wantTokenIn(t, p, canary) // which is remembered
		wantTokenOut(t, p, journal, "opaque-canary-new", 503, "")
		if got := issuersOf(t, p); !strings.Contains(got, `"usable":false,"error":"introspection failed: `) {
			t.Errorf("/readyz says %s", got)
		}
	})
	t.Run("nothing shown", func(t *testing.T) {
		authtest.Secret("a client's secret", authtest.ClientSecret)
		if out := p.Stdout.String() + p.Stderr.String(); strings.Contains(out, "canary") {
			t.Errorf("what the program writes shows a token:\n%s", out)
		}
	})
}

// TestIntrospectionSeesARevocation takes a token back while calls and a stream go on with it.
func TestIntrospectionSeesARevocation(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	harness.Waits(t)
	s := authtest.Start(t)
	p, _ := guarded(t, inquiring(s))
	s.Opaque("taken-back", s.Claims(publicMCP, nil))
	c := showing(t, p, client.EraModern, "taken-back", "/mcp")
	stream := c.MustOpen(t)
	s.Opaque("taken-back", nil)
	began := time.Now()
	ended := make(chan time.Duration, 1)
	go func() {
		for {
			if _, err := stream.Reader.Next(); err != nil {
				ended <- time.Since(began)
				return
			}
		}
	}()
	last := began // when the last call began that was let in
	for asked := began; c.Call(t, "tools/list", "").Status == 200 && asked.Sub(began) < 2*time.Minute; asked = time.Now() {
		last = asked
		time.Sleep(100 * time.Millisecond)
	}
	if took := last.Sub(began); took > time.Minute+time.Second {
		t.Errorf("calls went on for %v, want a minute at most", took)
	}
	select {
	case took := <-ended:
		if took > 70*time.Second {
			t.Errorf("the stream went on for %v", took)
		}
	case <-time.After(harness.Patience):
		t.Error("the stream goes on")
	}
}

// TestStreamsEndWithTheirToken: what a token has opened ends with it. (The clock may be a minute off by
// default, which is a second here.)
func TestStreamsEndWithTheirToken(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	p, journal := guarded(t, trusting(s, "clock_skew: 1s"))
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		for life := 6 * time.Second; ; life *= 2 { // a slow machine may need longer to open the stream
			end := time.Now().Add(life).Truncate(time.Second)
			token := s.Token(t, claimed(s, map[string]any{"exp": end.Unix()}))
			c := showing(t, p, era, token, "/mcp")
			if time.Until(end) < life/2 && life < harness.Patience {
				continue
			}
			mustClose(t, c.MustOpen(t))
			if took := time.Since(end); took < 0 || took > harness.Promptly {
				t.Errorf("the stream ended %v after the token", took)
			}
			wantTokenOut(t, p, journal, token, 401, refusedToken+"it is expired")
			return
		}
	})
}

// TestSubscriptionsOutliveAToken: a session goes on with the next token of the same person,
// and hears of what it has subscribed to with the last one.
func TestSubscriptionsOutliveAToken(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	server, url := upstreamtest.Start(t,
		upstreamtest.Script{Era: string(client.EraLegacy),
			Resources: []json.RawMessage{[]byte(`{"uri":"file:///a","name":"a"}`)}})
	config := trusting(s, "clock_skew: 1s") + "upstreams: { up: { url: " + url + " } }\n"
	p := harness.MustProgram(t, config)
	p.MustReady(t, harness.Patience)
	look := func(n int) { // a reload looks whether everybody is still let in, as the program does every five seconds
		config += "#\n"
		p.MustConfigure(t, config)
		p.Stderr.MustMatch(t, regexp.MustCompile(`(?s)`+strings.Repeat("configuration reloaded.*", n)), harness.Patience,
			p.Done)
	}
	next := func(life time.Duration) string {
		return s.Token(t, claimed(s, map[string]any{"exp": time.Now().Add(life).Unix(), "jti": fmt.Sprint(life)}))
	}
	c := showing(t, p, client.EraLegacy, next(15*time.Second), "/mcp")
	stream := c.MustOpen(t)
	if a := c.Call(t, "resources/subscribe", `{"uri":"mcp://up/file:///a"}`); string(a.Message.Result) != "{}" {
		t.Fatalf("subscribe: %s", a)
	}
	harness.Await(t, &server.Journal, "OPEN", upstreamtest.Verb("OPEN"))
	mustClose(t, stream)
	look(1)
	server.Updated("file:///a")
	c.Key = next(time.Hour)
	stream = c.MustOpen(t)
	const want = `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mcp://up/file:///a"}}`
	if got := stream.Next(t); got != want {
		t.Errorf("heard %s, want what happened meanwhile", got)
	}
	look(2)
	server.Updated("file:///a")
	if got := stream.Next(t); got != want {
		t.Errorf("heard %s", got)
	}
	if slices.Contains(server.Methods(), "resources/unsubscribe") {
		t.Error("the subscription was given up meanwhile")
	}
}

// TestUpstreamsGetNoTokenOfAClient: no upstream sees what a client shows us, whatever kind of upstream and
// however it goes.
func TestUpstreamsGetNoTokenOfAClient(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	key := newAPIKey(t, "ci")
	opaque := "opaque-token-of-a-client"
	harness.EachPair(t, func(t *testing.T, m harness.Pair) {
		config, journal := m.Start(t, upstreamtest.Script{})
		up := "url: " + config.URL
		if config.URL == "" {
			up = fmt.Sprintf("command: %s, env: %s", mustYAML(t, config.Command), mustYAML(t, config.Env))
		} else if config.Transport != "" {
			up += ", transport: " + string(config.Transport)
		}
		section := strings.Replace(inquiring(s), "auth: { ",
			"auth: { jwt: [{ issuer: "+s.URL+", audiences: ["+publicMCP+"] }], api_keys: ["+key.entry+"], ", 1)
		p := harness.MustProgram(t, section+"log: { level: debug }\nupstreams: { up: { "+up+" } }\n")
		p.MustReady(t, harness.Patience)
		s.Opaque(opaque, s.Claims(publicMCP, nil))
		signed := s.Token(t, claimed(s, nil))
		for _, token := range []string{signed, opaque, key.key} {
			c := showing(t, p, m.Client, token, "/mcp")
			authtest.Secret("a cookie", "cookie-of-a-client")
			harness.WantEcho(t, c.Tool(t, "up__echo", `{}`, harness.With("Cookie", "session=cookie-of-a-client"),
				harness.With("Proxy-Authorization", "Bearer "+token)))
			c.Tool(t, "up__fail", `{}`)
		}
		seen := 0
		for _, r := range journal.Received() {
			text := fmt.Sprint(r.Header, string(r.Body))
			for _, secret := range []string{signed[len(signed)-40:], opaque, key.key[20:], "cookie-of-a-client"} {
				if strings.Contains(text, secret) {
					t.Errorf("the upstream received %s", text)
				}
			}
			for _, name := range []string{"Authorization", "Cookie", "Proxy-Authorization"} {
				if r.Header.Get(name) != "" {
					t.Errorf("the upstream received the header %s", name)
				}
			}
			seen++
		}
		if seen == 0 {
			t.Error("the upstream received nothing")
		}
	})
}

func mustYAML(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v) // which is YAML
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "${", "$${")
}

func TestBadTokensReachNobody(t *testing.T) {
	harness.Waits(t)
	s, other := authtest.Start(t), authtest.Start(t)
	p, journal := guarded(t, trusting(s))
	before := callsIn(journal)
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		for name, token := range map[string]string{
			"expired":  s.Token(t, claimed(s, map[string]any{"exp": time.Now().Unix() - 90})),
			"audience": s.Token(t, claimed(s, map[string]any{"aud": "https://other.example.com"})),
			"issuer":   other.Token(t, claimed(other, nil)), "signature": other.Token(t, claimed(s, nil)),
		} {
			c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, era)
			c.Key = token
			for _, a := range []harness.Answered{c.Call(t, "initialize", harness.InitializeParams("2025-11-25", "x")),
				c.Tool(t, "up__echo", `{}`), refusedTo(t, c, "GET")} {
				if a.Status != 401 || !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), refusedToken) {
					t.Errorf("%s: %s, %v", name, a, a.Header)
				}
			}
			c = harness.NewClient(t, &harness.Endpoint{URL: p.URL + "?access_token=" + s.Token(t, claimed(s, nil))}, era)
			if a := c.Tool(t, "up__echo", `{}`); a.Status != 400 {
				t.Errorf("in the query: %s", a)
			}
		}
	})
	if n := callsIn(journal); n != before {
		t.Errorf("the upstream received %d calls", n-before)
	}
}

// TestUpstreamsGetNoSessionOfAClient checks cookies, and session IDs: an upstream has a
// session of its own.
func TestUpstreamsGetNoSessionOfAClient(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	p, journal := guarded(t, trusting(s))
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		token := s.Token(t, claimed(s, nil))
		c := showing(t, p, era, token, "/mcp")
		harness.WantEcho(t, c.Tool(t, "up__echo", `{}`, harness.With("Cookie", "a=b")))
		for _, r := range journal.Received() {
			if r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" ||
				c.Session != "" && r.Header.Get("Mcp-Session-Id") == c.Session {
				t.Errorf("the upstream received %v", r.Header)
			}
		}
	})
}
