package authserver

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"junction/auth/authtest"
	"junction/auth/seal"
)

func TestServerMetadata(t *testing.T) {
	s, _ := mustNet(t, nil)
	var plain string
	for _, path := range []string{"/.well-known/oauth-authorization-server",
		"/.well-known/oauth-authorization-server/mcp"} {
		r, err := http.NewRequest(http.MethodGet, s.http.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "evil.example"
		r.Header.Set("X-Forwarded-Host", "evil.example")
		r.Header.Set("X-Forwarded-Proto", "https")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		var d document
		if err != nil || json.Unmarshal(body, &d) != nil || resp.StatusCode != 200 ||
			resp.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Fatalf("%s %s %v", resp.Status, body, err)
		}
		if d.Issuer != s.url || !slices.Equal(d.CodeChallengeMethodsSupported, []string{"S256"}) ||
			!d.IssParameterSupported || !d.ClientIDMetadataDocumentSupported ||
			!slices.Equal(d.TokenEndpointAuthMethodsSupported, []string{"none", "private_key_jwt"}) ||
			!slices.Equal(d.ScopesSupported, []string{"mcp", "offline_access"}) ||
			d.RegistrationEndpoint != s.url+"/oauth/register" || d.TokenEndpoint != s.url+"/oauth/token" ||
			strings.Contains(string(body), "evil") {
			t.Errorf("%s: %s", path, body)
		}
		if plain = cmpString(plain, string(body)); plain != string(body) {
			t.Errorf("the two differ:\n%s\n%s", plain, body)
		}
	}
}

func cmpString(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func TestRegistrationsOfRealClients(t *testing.T) {
	s := mustStand(t, nil)
	for name, row := range map[string]struct {
		body string
		want []string // the redirect URIs that are left; nil: refused
	}{
		"Claude Code": {`{"client_name":"Claude Code (junction)","redirect_uris":["http://localhost:61802/callback"],"grant_types":["authorization_code","refresh_token"],
			"response_types":["code"],"token_endpoint_auth_method":"none","scope":"mcp"}`, []string{"http://localhost:61802/callback"}},
		"Codex": {`{"client_name":"Codex","redirect_uris":["http://127.0.0.1:38031/callback"],"application_type":"native","scope":"mcp offline_access",
			"grant_types":["authorization_code","refresh_token"],"token_endpoint_auth_method":"none","response_types":["code"]}`, []string{"http://127.0.0.1:38031/callback"}},
		"VS Code": {`{"client_name":"Visual Studio Code","client_uri":"https://code.visualstudio.com","grant_types":["authorization_code","refresh_token",
			"urn:ietf:params:oauth:grant-type:device_code"],"response_types":["code"],"redirect_uris":["https://insiders.vscode.dev/redirect","https://vscode.dev/redirect",
			"http://127.0.0.1/","http://127.0.0.1:33418/"],"token_endpoint_auth_method":"none","application_type":"native"}`,
			[]string{"https://insiders.vscode.dev/redirect", "https://vscode.dev/redirect", "http://127.0.0.1/",
				"http://127.0.0.1:33418/"}},
		"Cursor": {`{"client_name":"Cursor","application_type":"web","redirect_uris":["cursor://anysphere.cursor-mcp/oauth/callback",
			"https://www.cursor.com/agents/mcp/oauth/callback","http://localhost:8787/callback"]}`,
			[]string{"cursor://anysphere.cursor-mcp/oauth/callback", "https://www.cursor.com/agents/mcp/oauth/callback",
				"http://localhost:8787/callback"}},
		"OpenCode":   {`{"client_name":"OpenCode","redirect_uris":["http://127.0.0.1:19876/mcp/oauth/callback"],"token_endpoint_auth_method":"none"}`, []string{"http://127.0.0.1:19876/mcp/oauth/callback"}},
		"mcp-remote": {`{"client_name":"MCP CLI Proxy","redirect_uris":["http://localhost:3334/oauth/callback"],"software_id":"2e6dc280","software_version":"0.15.1"}`, []string{"http://localhost:3334/oauth/callback"}},
		"ChatGPT":    {`{"client_name":"ChatGPT","redirect_uris":["https://chatgpt.com/connector/oauth/abc"],"token_endpoint_auth_method":"client_secret_post"}`, []string{"https://chatgpt.com/connector/oauth/abc"}},
		"mixed": {`{"redirect_uris":["javascript:alert(1)","http://evil.example/","https://a.example/cb"]}`,
			[]string{"https://a.example/cb"}},
		"all bad": {`{"redirect_uris":["javascript:alert(1)","http://localhost.evil.com/cb"]}`, nil},
		"none":    {`{"redirect_uris":[]}`, nil},
		"nothing": {`{}`, nil},
	} {
		status, body := s.post(t, "/oauth/register", "application/json; charset=utf-8", row.body)
		var got registered
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		if row.want == nil {
			if status != 400 || member(t, body, "error") != "invalid_redirect_uri" {
				t.Errorf("%s: %d %s", name, status, body)
			}
			continue
		}
		if status != 201 || !slices.Equal(got.RedirectURIs, row.want) || got.TokenEndpointAuthMethod != "none" ||
			!slices.Equal(got.GrantTypes, grantTypes) ||
			!strings.HasPrefix(got.ClientID, "dcr_") || len(got.ClientID) > 400 ||
			strings.Contains(body, "client_secret") {
			t.Errorf("%s: %d %s", name, status, body)
		}
		if c, err := s.clientOf(t.Context(), got.ClientID); err != nil || !slices.Equal(c.Redirects, row.want) {
			t.Errorf("%s: the id is of %+v, %v", name, c, err)
		}
	}
}

func TestRegistrationsAreBounded(t *testing.T) {
	s := mustStand(t, nil)
	long := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"https://a.example/%d"`, i))
		}
		return `{"redirect_uris":[` + strings.Join(all, ",") + `]}`
	}
	for name, row := range map[string]struct {
		media, body string
		want        int
	}{
		"16 KB and one": {"application/json",
			`{"redirect_uris":["https://a.example/"],"x":"` + strings.Repeat("x", 16<<10) + `"}`, 413},
		"11 URIs": {"application/json", long(11), 400},
		"10 URIs": {"application/json", long(10), 201},
		"deep": {"application/json", `{"redirect_uris":["https://a.example/"],"x":` + strings.Repeat("[",
			7000) + strings.Repeat("]", 7000) + `}`, 201},
		"10,000 deep": {"application/json", `{"redirect_uris":["https://a.example/"],"x":` + strings.Repeat("[",
			10000) + strings.Repeat("]", 10000) + `}`, 413},
		"very deep": {"application/json",
			`{"redirect_uris":["https://a.example/"],"x":` + strings.Repeat("[", 12000), 400},
		"no JSON":  {"application/json", `redirect_uris=x`, 400},
		"a form":   {"application/x-www-form-urlencoded", `redirect_uris=x`, 400},
		"a number": {"application/json", `{"redirect_uris":[1]}`, 400},
		"too much to say": {"application/json", `{"redirect_uris":["https://a.example/` +
			base64.RawURLEncoding.EncodeToString(append(seal.NewSecret(), []byte(random(900))...))[:1000] + `"]}`, 400},
	} {
		began := time.Now()
		if status, body := s.post(t, "/oauth/register", row.media, row.body); status != row.want {
			t.Errorf("%s: %d %.300s, want %d", name, status, body, row.want)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
	}
}

func random(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.Write(seal.NewSecret())
	}
	return b.String()[:n]
}

// TestRegistrationsStoreNothing registers a hundred thousand clients, and checks the store.
func TestRegistrationsStoreNothing(t *testing.T) {
	s := mustStand(t, nil)
	s.limits.register.open()
	size := func() int64 { return authtest.Size(t, filepath.Join(s.dir, "*")) }
	before := size()
	for i := range 1000 {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/oauth/register",
			strings.NewReader(fmt.Sprintf(`{"client_name":"app %d","redirect_uris":["http://localhost:%d/callback"]}`,
				i, i%60000+1)))
		r.Header.Set("Content-Type", "application/json")
		if s.ServeHTTP(w, r); w.Code != http.StatusCreated {
			t.Fatalf("the %dth registration: %d %s", i, w.Code, w.Body)
		}
	}
	if after := size(); after != before {
		t.Errorf("the store grows from %d to %d bytes", before, after)
	}
}

// TestClientIDsOutliveRestarts: an altered id is invalid; an unaltered one is valid after a restart, at
// another replica, and with a new key in front.
func TestClientIDsOutliveRestarts(t *testing.T) {
	var options Options
	s := mustStand(t, func(o *Options) { options = *o })
	a, b := s.mustApp(t), newBrowser(t)
	known := func() bool {
		t.Helper()
		p := b.once(http.MethodGet, a.asks(), nil)
		if p.next() != "" || p.status != 200 && p.status != 400 {
			t.Errorf("%d to %q: %s", p.status, p.next(), p.body)
		}
		return p.status == 200
	}
	if !known() {
		t.Error("it is not good")
	}
	good := a.id
	for i := len(registeredPrefix); i < len(good); i += 7 {
		if a.id = good[:i] + string(good[i]^1) + good[i+1:]; known() {
			t.Errorf("it is good with another letter %d", i)
		}
		if a.id = good[:i]; known() {
			t.Errorf("it is good without its end from %d on", i)
		}
	}
	a.id = good
	first := s.Server
	for name, keys := range map[string]string{"another replica": s.keys,
		"another key in front": "k2:" + base64.StdEncoding.EncodeToString(seal.NewSecret()) + "," + s.keys} {
		ring, err := seal.ParseRing(keys)
		if err != nil {
			t.Fatal(err)
		}
		options.Keys = ring
		if s.Server = s.second(t, options); !known() {
			t.Errorf("%s does not know it", name)
		}
		later := s.mustApp(t)
		if s.Server = first; name == "another replica" {
			if p := b.once(http.MethodGet, later.asks(), nil); p.status != 200 {
				t.Errorf("%s gives out what the first does not know: %d", name, p.status)
			}
		}
	}
	ring, err := seal.ParseRing("k2:" + base64.StdEncoding.EncodeToString(seal.NewSecret()))
	if err != nil {
		t.Fatal(err)
	}
	options.Keys = ring
	if s.Server = s.second(t, options); known() {
		t.Error("it is good without its key")
	}
}

func TestAlteredClientIDsAreInvalid(t *testing.T) {
	s := mustStand(t, nil)
	a := s.mustApp(t)
	if _, err := s.registrar.open(a.id); err != nil {
		t.Fatal(err)
	}
	for i := range a.id {
		c := byte('A')
		if a.id[i] == c {
			c = 'B'
		}
		if c, err := s.registrar.open(a.id[:i] + string(c) + a.id[i+1:]); err == nil {
			t.Errorf("with another letter %d it is of %+v", i, c)
		}
		if c, err := s.registrar.open(a.id[:i]); err == nil {
			t.Errorf("cut after %d letters it is of %+v", i, c)
		}
	}
	// New ids use the new key, and old ones stay valid.
	next := newRegistrar(seal.NewSecret(), s.registrar.keys[0])
	if c, err := next.open(a.id); err != nil || c.Redirects[0] != "http://localhost:3118/callback" {
		t.Errorf("after the rotation: %+v, %v", c, err)
	}
	if _, err := newRegistrar(seal.NewSecret()).open(a.id); err == nil {
		t.Error("it is good without its key")
	}
}

func TestClientNamesAreCleaned(t *testing.T) {
	s := mustStand(t, nil)
	for name, want := range map[string]string{
		"Claude\u202e edoC":            "Claude edoC",
		"Claude\u200b\u200d\ufeff":     "Claude",
		"Cla\nude\t\x00\x1b[31m":       "Claude[31m",
		"  a   b ":                     "a b",
		"\u3164\u2800\u115f":           "",
		strings.Repeat("ä", 200):       strings.Repeat("ä", 80),
		"Ünïcödé 日本語":                  "Ünïcödé 日本語",
		"a\u2066b\u2069c\u061cd\u00ad": "abcd",
		"\xff\xfe":                     "",
		"<b>x</b>":                     "<b>x</b>",
	} {
		if got := cleanName(name); got != want {
			t.Errorf("%q is shown as %q, want %q", name, got, want)
		}
		text, err := json.Marshal(map[string]any{"client_name": name,
			"redirect_uris": []string{"http://localhost/callback"}})
		if err != nil {
			t.Fatal(err)
		}
		_, body := s.post(t, "/oauth/register", "application/json", string(text))
		p := newBrowser(t).once(http.MethodGet,
			app{s, member(t, body, "client_id"), strings.Repeat("v", 43), clientAt}.asks(), nil)
		_, shown, _ := strings.Cut(p.body, "The app calls itself <b>")
		shown, _, _ = strings.Cut(shown, "</b>. This name is not verified.")
		if want == "" {
			want = "Unnamed app"
		}
		if got := html.UnescapeString(shown); name != "\xff\xfe" && got != want ||
			strings.ContainsFunc(p.body, func(r rune) bool { return r != '\n' && unicode.Is(unicode.C, r) }) {
			t.Errorf("the page calls %q %q, want %q, and nothing that cannot be seen", name, got, want)
		}
	}
}

// FuzzRegister fuzzes the body of a registration: an accepted one can be read back, and is allowed.
func FuzzRegister(f *testing.F) {
	f.Add(`{"client_name":"x","redirect_uris":["http://localhost/callback","cursor://a/b"]}`)
	f.Add(`{"redirect_uris":["https://a.example/cb?x=1"]}`)
	r := newRegistrar(seal.NewSecret())
	f.Fuzz(func(t *testing.T, body string) {
		var asked registration
		if json.Unmarshal([]byte(body), &asked) != nil {
			return
		}
		m := sealedClient{Name: cleanName(asked.ClientName)}
		for _, uri := range asked.RedirectURIs {
			if checkRedirect(uri, defaultSchemes) == nil {
				m.Redirects = append(m.Redirects, uri)
				if !matchRedirect([]string{uri}, uri) {
					t.Errorf("%q does not match itself", uri)
				}
			}
		}
		id, err := r.seal(m)
		if err != nil {
			return
		}
		c, err := r.open(id)
		if err != nil || c.Name != m.Name || !slices.Equal(c.Redirects, m.Redirects) {
			t.Errorf("%+v is read back as %+v, %v", m, c, err)
		}
	})
}

// FuzzDocument fuzzes a client metadata document.
func FuzzDocument(f *testing.F) {
	f.Add(describe(""))
	f.Add(describe(`,"jwks":{"keys":[{"kty":"EC"}]}`))
	f.Add(describe(`,"token_endpoint_auth_method":"private_key_jwt","jwks_uri":"https://client.example/keys"`))
	d := &documents{srv: &Server{config: Config{Clients: Clients{AllowedSchemes: defaultSchemes}}}}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := d.parse(documentAt, []byte(text))
		if err != nil {
			return
		}
		for _, uri := range c.Redirects {
			if checkRedirect(uri, defaultSchemes) != nil {
				t.Errorf("%q is let in", uri)
			}
		}
		if cleanName(c.Name) != c.Name {
			t.Errorf("the name %q is let in", c.Name)
		}
		if c.Keys != nil && c.Keys.URI != "" && !strings.HasPrefix(c.Keys.URI, "https://client.example/") {
			t.Errorf("keys are fetched from %q", c.Keys.URI)
		}
	})
}

// FuzzAuthorize fuzzes the query of an authorization request: redirects only go to registered URIs,
// and a valid request is for an endpoint of this server.
func FuzzAuthorize(f *testing.F) {
	s := mustStand(f, nil)
	redirects := []string{"http://localhost/callback", "https://a.example/cb?x=1", "cursor://a/b"}
	id, err := s.registrar.seal(sealedClient{Redirects: redirects})
	if err != nil {
		f.Fatal(err)
	}
	challenge := strings.Repeat("c", 43)
	f.Add("redirect_uri=http://localhost:1/callback&response_type=code&code_challenge=" + challenge +
		"&code_challenge_method=S256&state=x&resource=" + s.url + "/mcp")
	f.Add("redirect_uri=https://a.example/cb?x%3D1&response_type=token&state=x")
	f.Add("client_id=dcr_x&redirect_uri=cursor://a/b&redirect_uri=cursor://a/b")
	f.Fuzz(func(t *testing.T, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		if !q.Has("client_id") {
			q.Set("client_id", id)
		}
		_, request, err := s.checkAuthorization(t.Context(), q)
		where := request.RedirectURI
		if wrong, ok := errors.AsType[*redirectError](err); ok {
			where = wrong.redirect
		} else if _, shown := errors.AsType[*pageError](err); err != nil && !shown {
			t.Fatalf("%q: %v", query, err)
		}
		if where != "" && !matchRedirect(redirects, where) {
			t.Errorf("%q leads to %q", query, where)
		}
		if err == nil && (!strings.HasPrefix(request.Resource, s.url+"/") ||
			!challengeForm.MatchString(request.CodeChallenge) || !strings.Contains(request.Scope, scopeMCP)) {
			t.Errorf("%q is let through as %+v", query, request)
		}
		if len(request.State) > maxState || len(request.RedirectURI) > maxParam ||
			len(request.Resource) > maxParam || len(request.Scope) > 100 {
			t.Errorf("%q has too much stored: %+v", query, request)
		}
	})
}

// FuzzOpen fuzzes client ids.
func FuzzOpen(f *testing.F) {
	r := newRegistrar(seal.NewSecret())
	id, err := r.seal(sealedClient{Name: "x", Redirects: []string{"https://a.example/cb"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(id)
	f.Fuzz(func(t *testing.T, other string) {
		if c, err := r.open(other); err == nil && other != id {
			t.Errorf("%q is of %+v", other, c)
		}
	})
}
