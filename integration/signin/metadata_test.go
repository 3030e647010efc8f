package signin

// How a client without a token learns where to get one.

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream/client"
)

func TestChallengeNamesTheMetadata(t *testing.T) {
	harness.Waits(t)
	p, journal := guarded(t, trusting(authtest.Start(t)))
	c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, client.EraModern)
	for _, verb := range verbs {
		a := refusedTo(t, c, verb)
		wantRefused(t, verb, a, 401, noToken)
		if got := a.Header.Get("WWW-Authenticate"); got != toSignIn+`/mcp"` {
			t.Errorf("%s: the challenge is %s", verb, got)
		}
	}
	harness.WantUncalled(t, journal, "tools/call")
}

// TestNothingIsAnsweredWithoutAToken walks the paths that there are, and some that there
// are not, with every method: who shows no token gets nothing but the way to one.
func TestNothingIsAnsweredWithoutAToken(t *testing.T) {
	harness.Waits(t)
	p, journal := guarded(t, trusting(authtest.Start(t))+"endpoints: { web: {} }\n")
	for _, path := range []string{
		"/mcp", "/mcp/up", "/mcp/none", "/web/mcp", "/none/mcp", "/mcp/", "/mcp/up/", "/mcp/up/x", "/web/mcp/up", "/",
		"//mcp", "/mcp%2fup", "/./mcp", "/web/../mcp", "/MCP", "/sse", "/messages",
		"/healthz", "/readyz", "/doctor", "/metrics", "/account", "/oauth/token", "/oauth/authorize", "/oauth/register",
		"/.well-known/oauth-authorization-server", "/.well-known/x",
		"/.well-known/../mcp", "/.well-known/oauth-protected-resource",
	} {
		c := harness.NewClient(t, &harness.Endpoint{URL: p.Origin() + path}, client.EraModern)
		for _, verb := range append(slices.Clone(verbs), "OPTIONS", "PATCH", "TRACE") {
			a := refusedTo(t, c, verb)
			read := verb == "GET" || verb == "HEAD" || verb == "OPTIONS"
			switch documents := strings.HasPrefix(path, "/.well-known/"); {
			case documents && path == "/.well-known/oauth-protected-resource" && read && a.Status <= 204:
			case documents && (a.Status == 404 || a.Status == 405 || verb == "OPTIONS" && a.Status == 204):
			case a.Status == 401 &&
				strings.HasPrefix(a.Header.Get("WWW-Authenticate"), `Bearer realm="junction", scope="mcp", resource_metadata="`):
			case a.Status == 404 && a.Header.Get("Mcp-Session-Id") == "" && !bytes.Contains(a.Body, []byte(`"result"`)):
			default:
				t.Errorf("%s %s: %s, %v", verb, path, a, a.Header)
			}
		}
	}
	if n := callsIn(journal); n > 0 {
		t.Errorf("the upstream received %d calls", n)
	}
}

func TestProtectedResourceMetadata(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	p, _ := guarded(t, trusting(s))
	for path, resource := range map[string]string{"": publicMCP, "/mcp": publicMCP, "/mcp/up": publicMCP + "/up"} {
		status, header, text := mustGet(t, "GET", p.Origin()+"/.well-known/oauth-protected-resource"+path)
		want := `{"resource":"` + resource + `","authorization_servers":["` + s.URL +
			`"],"scopes_supported":["mcp"],"bearer_methods_supported":["header"],"resource_name":"Junction"}`
		if status != 200 || header.Get("Content-Type") != "application/json" || string(text) != want {
			t.Errorf("%s: %d, %s, %s", path, status, header.Get("Content-Type"), text)
		}
	}
}

func TestMetadataHasNothingOfTheRequest(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	p, _ := guarded(t, alsoHere(s, trusting(s)))
	spoofs := [][]harness.HeaderChange{
		{harness.With("Host", "evil.example")},
		{harness.With("X-Forwarded-Host", "evil.example"), harness.With("X-Forwarded-Proto", "http"),
			harness.With("X-Forwarded-Port", "1")},
		{harness.With("Forwarded", "host=evil.example;proto=http")},
		{harness.With("X-Original-Url", "/evil"), harness.With("X-Forwarded-Prefix", "/evil")},
	}
	for _, path := range []string{"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp",
		"/.well-known/oauth-authorization-server"} {
		status, _, want := mustGet(t, "GET", p.Origin()+path)
		if status != 200 || !bytes.Contains(want, []byte(`"`+publicOrigin)) {
			t.Errorf("%s: %d %s", path, status, want)
		}
		for _, changes := range spoofs {
			if _, _, got := mustGet(t, "GET", p.Origin()+path, changes...); !bytes.Equal(got, want) {
				t.Errorf("%s: %s\nwithout what is spoofed: %s", path, got, want)
			}
		}
	}
	c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, client.EraModern)
	for _, changes := range spoofs[1:] {
		if got := refusedTo(t, c, "POST", changes...).Header.Get("WWW-Authenticate"); got != toSignIn+`/mcp"` {
			t.Errorf("the challenge is %s", got)
		}
	}
}

func TestNoMetadataWithoutSignIn(t *testing.T) {
	harness.Waits(t)
	for name, section := range map[string]string{"local": "", "keys": authSection([]apiKey{newAPIKey(t, "ci")})} {
		t.Run(name, func(t *testing.T) {
			p, _ := guarded(t, section)
			for _, path := range []string{"oauth-protected-resource", "oauth-protected-resource/mcp",
				"oauth-authorization-server", "openid-configuration", ""} {
				wantNoDocument(t, p.Origin()+"/.well-known/"+path)
			}
			if name == "local" {
				harness.EachClientEra(t, func(t *testing.T, era client.Era) {
					harness.WantEcho(t, harness.MustClient(t, &harness.Endpoint{URL: p.URL}, era).Tool(t, "up__echo", `{}`))
				})
			}
		})
	}
}

func wantNoDocument(t *testing.T, url string) {
	t.Helper()
	status, header, text := mustGet(t, "GET", url)
	if status != 404 || header.Get("Content-Type") != "application/json" || !json.Valid(text) {
		t.Errorf("%s: %d, %s, %s; want 404 as JSON", url, status, header.Get("Content-Type"), text)
	}
}

func TestOtherWellKnownDocumentsAreAbsent(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	for name, section := range map[string]string{"others": trusting(s), "others and ours": alsoHere(s, trusting(s))} {
		t.Run(name, func(t *testing.T) {
			p, _ := guarded(t, section)
			for _, path := range []string{"openid-configuration", "openid-configuration/mcp", "oauth-protected-resource/other",
				"oauth-protected-resource/mcp/a/b", "nothing"} {
				wantNoDocument(t, p.Origin()+"/.well-known/"+path)
			}
			if name == "others" {
				wantNoDocument(t, p.Origin()+"/.well-known/oauth-authorization-server")
			}
		})
	}
}

func TestWebPagesMayReadMetadata(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	p, _ := guarded(t, alsoHere(s, trusting(s)))
	origin := harness.With("Origin", "https://page.example")
	for path, row := range map[string]struct {
		method string
		status int
	}{
		"/.well-known/oauth-protected-resource/mcp": {"GET", 200}, "/.well-known/oauth-protected-resource": {"GET", 200},
		"/.well-known/oauth-authorization-server": {"GET", 200},
		"/oauth/token": {"POST", 400}, "/oauth/register": {"POST", 400},
	} {
		status, header, _ := mustGet(t, "OPTIONS", p.Origin()+path, origin,
			harness.With("Access-Control-Request-Method", row.method),
			harness.With("Access-Control-Request-Headers", "content-type,mcp-protocol-version"))
		headers := strings.ToLower(header.Get("Access-Control-Allow-Headers"))
		if status != 204 || header.Get("Access-Control-Allow-Origin") != "*" ||
			!strings.Contains(header.Get("Access-Control-Allow-Methods"), row.method) ||
			!strings.Contains(headers, "mcp-protocol-version") || !strings.Contains(headers, "content-type") {
			t.Errorf("%s: the preflight gets %d, %v", path, status, header)
		}
		status, header, _ = mustGet(t, row.method, p.Origin()+path, origin)
		if status != row.status || header.Get("Access-Control-Allow-Origin") != "*" ||
			!strings.Contains(header.Get("Access-Control-Expose-Headers"), "WWW-Authenticate") ||
			header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: a page gets %d, %v", path, status, header)
		}
	}
	for _, path := range []string{"/oauth/authorize", "/account", "/"} {
		if _, header, _ := mustGet(t, "GET", p.Origin()+path, origin); header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: pages of other origins may read what people see: %v", path, header)
		}
	}
	_, header, _ := mustGet(t, "POST", p.URL, harness.With("Origin", publicOrigin))
	if got := header.Get("Access-Control-Expose-Headers"); !strings.Contains(got, "WWW-Authenticate") {
		t.Errorf("a page of an allowed origin may read %q of the challenge", got)
	}
}

// TestTokensOfBothKindsOfServers: people sign in at Junction or at another authorization server, and
// keys work beside that; each token is checked by the server that issued it.
func TestTokensOfBothKindsOfServers(t *testing.T) {
	harness.Waits(t)
	s, ci := authtest.Start(t), newAPIKey(t, "ci")
	p, journal := guarded(t,
		strings.Replace(alsoHere(s, trusting(s)), "auth: { ", "auth: { api_keys: ["+ci.entry+"], ", 1))
	_, _, text := mustGet(t, "GET", p.Origin()+"/.well-known/oauth-protected-resource")
	if want := `"authorization_servers":["` + publicOrigin + `","` + s.URL +
		`"],"scopes_supported":["mcp"]`; !bytes.Contains(text, []byte(want)) {
		t.Errorf("the metadata is %s\nwant %s", text, want)
	}
	wantTokenIn(t, p, s.Token(t, claimed(s, nil)))
	wantTokenIn(t, p, ci.key)
	wantTokenOut(t, p, journal, "jct_at_"+strings.Repeat("a", 43)+"."+strings.Repeat("b", 43), 401,
		`Bearer realm="junction", error="invalid_token"`)
	wantTokenOut(t, p, journal, "opaque", 401, refusedToken+"this server does not know it")
	wantTokenOut(t, p, journal, s.Token(t, claimed(s, map[string]any{"iss": publicOrigin})), 401,
		refusedToken+"its issuer is not configured")
}

func TestChallengeOfEachEra(t *testing.T) {
	harness.Waits(t)
	p, journal := guarded(t, trusting(authtest.Start(t)))
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, era)
		for _, a := range []harness.Answered{
			c.Call(t, "initialize", harness.InitializeParams("2025-11-25", "x")), c.Call(t, "tools/list", ""),
			c.Tool(t, "up__echo", `{}`), refusedTo(t, c, "GET"), refusedTo(t, c, "DELETE"),
		} {
			if got := a.Header.Get("WWW-Authenticate"); a.Status != 401 || got != toSignIn+`/mcp"` {
				t.Errorf("got %s, %s; want 401 and where to sign in", a, got)
			}
		}
	})
	harness.WantUncalled(t, journal, "tools/call")
}

func TestMetadataIsPublic(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	p, _ := guarded(t, trusting(s))
	for _, path := range []string{"/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"} {
		status, _, text := mustGet(t, "GET", p.Origin()+path)
		var got struct {
			Resource string
			Servers  []string `json:"authorization_servers"`
		}
		if err := json.Unmarshal(text, &got); err != nil || status != 200 || got.Resource != publicMCP ||
			!slices.Equal(got.Servers, []string{s.URL}) || bytes.Contains(text, []byte("offline_access")) {
			t.Errorf("%s: %d, %s, %v", path, status, text, err)
		}
	}
}

// TestForeignSlashAtTheEndOfAResource has clients show a token, and none, at an endpoint whose URL
// they write with a slash.
func TestForeignSlashAtTheEndOfAResource(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	p, _ := guarded(t, strings.Replace(trusting(s), "audiences: ["+publicMCP+"]",
		"audiences: ["+publicMCP+", "+publicMCP+"/up]", 1))
	for _, era := range harness.Eras {
		for path, resource := range map[string]string{"/mcp/": "/mcp", "/mcp/up/": "/mcp/up"} {
			tool := "up__echo"
			if resource != "/mcp" {
				tool = "echo"
			}
			token := s.Token(t, claimed(s, map[string]any{"aud": publicOrigin + resource}))
			harness.WantEcho(t, showing(t, p, era, token, path).Tool(t, tool, `{}`))
			a := refusedTo(t, showing(t, p, era, "", path), "POST")
			if got, want := a.Header.Get("WWW-Authenticate"), toSignIn+resource+`"`; a.Status != 401 || got != want {
				t.Errorf("%s: %d %s, want %s", path, a.Status, got, want)
			}
			document := getBody(t, strings.TrimSuffix(p.URL, "/mcp")+"/.well-known/oauth-protected-resource"+path)
			if got, want := harness.Text(t, document, "resource"), publicOrigin+resource; got != want {
				t.Errorf("the document of %s is of %s, want %s", path, got, want)
			}
		}
	}
}

// getBody returns the body of a document that must be there.
func getBody(t *testing.T, url string) []byte {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != 200 {
		t.Fatalf("%s: status %d, %v", url, answer.StatusCode, err)
	}
	return body
}
