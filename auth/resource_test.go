package auth_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"junction/auth"
	"junction/auth/authtest"
)

func lookUp(h http.Handler, method, path string, header http.Header) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	r.Host = "spoofed.example"
	for name, values := range header {
		r.Header[name] = values
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

const metadata = "/.well-known/oauth-protected-resource"

func TestMetadata(t *testing.T) {
	r := auth.NewResources("https://MCP.example.com:443/",
		[]string{"https://login.example.com", "https://as.example.com"}, []string{"mcp", "offline_access"})
	for path, endpoint := range map[string]string{
		metadata: "/mcp", metadata + "/": "/mcp", metadata + "/mcp": "/mcp", metadata + "/mcp/": "/mcp", metadata +
			"/mcp/files": "/mcp/files", metadata + "/web/mcp": "/web/mcp",
		metadata + "/mcp/mcp": "/mcp/mcp", metadata + "/mcp/a.b-c_d": "/mcp/a.b-c_d",
	} {
		resp := lookUp(r, "GET", path, http.Header{"X-Forwarded-Host": {"evil.example"}, "X-Forwarded-Proto": {"http"},
			"Forwarded": {"host=evil.example"}})
		var got map[string]any
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %d, %v", path, resp.StatusCode, err)
		}
		want := map[string]any{"resource": publicURL + endpoint,
			"authorization_servers":    []any{"https://login.example.com", "https://as.example.com"},
			"scopes_supported":         []any{"mcp"},
			"bearer_methods_supported": []any{"header"}, "resource_name": "Junction"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got  %v\nwant %v", path, got, want)
		}
		if h := resp.Header; h.Get("Access-Control-Allow-Origin") != "*" ||
			h.Get("Content-Type") != "application/json" ||
			h.Get("Access-Control-Expose-Headers") != "WWW-Authenticate, X-Request-Id" {
			t.Errorf("%s: the header is %v", path, h)
		}
	}
	for _, path := range []string{
		"/.well-known/openid-configuration", "/.well-known/", "/.well-known/oauth-authorization-server",
		metadata + "/other", metadata + "/mcp/a/b", metadata + "/a/b/mcp", metadata + "mcp",
		metadata + "/mcp//", metadata + "/mcp/%22", metadata + "//mcp", metadata + "/mcp/" + strings.Repeat("a", 65),
	} {
		wantNotFound(t, r, path)
	}
	for _, path := range []string{metadata, metadata + "/mcp"} {
		wantNotFound(t, (*auth.Resources)(nil), path)
	}
	resp := lookUp(r, "OPTIONS", metadata,
		http.Header{"Origin": {"https://page.example"}, "Access-Control-Request-Headers": {"mcp-protocol-version"}})
	if h := resp.Header; resp.StatusCode != 204 || h.Get("Access-Control-Allow-Origin") != "*" ||
		h.Get("Access-Control-Allow-Headers") != "mcp-protocol-version" {
		t.Errorf("a preflight gets %d and %v", resp.StatusCode, h)
	}
	if resp := lookUp(r, "POST", metadata, nil); resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST gets %d", resp.StatusCode)
	}
	if auth.NewResources(publicURL, nil, []string{"mcp"}) != nil {
		t.Error("there are resources without anybody to sign in at")
	}
}

func wantNotFound(t *testing.T, h http.Handler, path string) {
	t.Helper()
	resp := lookUp(h, "GET", path, nil)
	var body map[string]string
	if err := json.NewDecoder(resp.Body).Decode(&body); resp.StatusCode != 404 || err != nil || body["error"] == "" ||
		resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s: got %d, %v, %v; want 404 as JSON", path, resp.StatusCode, body, err)
	}
}

func TestCanonical(t *testing.T) {
	r := auth.NewResources(publicURL, []string{"x"}, nil)
	for s, want := range map[string]string{
		publicURL + "/mcp": "/mcp", publicURL + "/mcp/": "/mcp", "HTTPS://MCP.Example.COM/mcp": "/mcp",
		"https://mcp.example.com:443/mcp": "/mcp", publicURL: "/mcp", publicURL + "/": "/mcp",
		publicURL + "/web/mcp": "/web/mcp", publicURL + "/mcp/files": "/mcp/files",
		publicURL + "/mcp//": "", publicURL + "/MCP": "", publicURL + "/mcp?x": "", publicURL + "/mcp#": "", publicURL +
			"/mcp#x": "", "https://u@mcp.example.com/mcp": "",
		"https://mcp.example.com:8443/mcp": "", "http://mcp.example.com/mcp": "",
		"https://mcp.example.com.evil.example/mcp": "", "": "", "/mcp": "", publicURL + "/other": "", "mcp": "",
		publicURL + "/mcp/../mcp": "", publicURL + "/%6dcp": "",
	} {
		if want != "" {
			want = publicURL + want
		}
		if got := r.Canonical(s); got != want {
			t.Errorf("Canonical(%s) = %q, want %q", s, got, want)
		}
	}
	var none *auth.Resources
	if none.Canonical(publicURL+"/mcp") != "" || none.Of("/mcp") != "" {
		t.Error("nobody's endpoint has a name")
	}
}

// TestChallenge: the challenges of each endpoint.
func TestChallenge(t *testing.T) {
	s := authtest.New(t)
	g := signIn(t, s, &auth.Config{JWT: []auth.Issuer{entry(s,
		func(i *auth.Issuer) { i.RequiredScopes = []string{"mcp", "tools"} })}})
	for _, method := range []string{"POST", "GET", "HEAD", "DELETE"} {
		for path, suffix := range map[string]string{"/mcp": "/mcp", "/mcp/files": "/mcp/files", "/web/mcp": "/web/mcp",
			`/mcp/"x`: "", "/a/b/mcp": ""} {
			p, resp := ask(t, g, method, strings.ReplaceAll(path, `"`, "%22"), nil)
			want := `Bearer realm="junction", scope="mcp tools", resource_metadata="` + publicURL + metadata + suffix +
				`"`
			if got := resp.Header.Get("WWW-Authenticate"); p != nil || resp.StatusCode != 401 || got != want {
				t.Errorf("%s %s: %d\ngot  %s\nwant %s", method, path, resp.StatusCode, got, want)
			}
			mustSay(t, resp)
		}
	}
	_, resp := ask(t, g, "POST", "/mcp", bearerOf("abc"))
	want := `Bearer realm="junction", error="invalid_token", error_description="the token is not valid: this server does not know it", scope="mcp tools", resource_metadata="` + publicURL + metadata + `/mcp"`
	if got := resp.Header.Get("WWW-Authenticate"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	const stepUp = `Bearer realm="junction", error="insufficient_scope", error_description="the token lacks a scope; needed are: admin mcp tools", scope="admin mcp tools", resource_metadata="` +
		publicURL + metadata + `/mcp"`
	if got := g.Resources.StepUp("/mcp", []string{"admin", "mcp"}); got != stepUp {
		t.Errorf("got  %s\nwant %s", got, stepUp)
	}
}

// TestAdmit: a token for one endpoint is not valid at another.
func TestAdmit(t *testing.T) {
	s := authtest.New(t)
	g := signIn(t, s, &auth.Config{JWT: []auth.Issuer{entry(s, func(i *auth.Issuer) {
		i.Audiences = []string{publicURL + "/mcp", publicURL + "/web/mcp/", publicURL + "/mcp/files", "api://junction",
			publicURL}
	})}})
	all := []string{"/mcp", "/mcp/files", "/web/mcp", "/chat/mcp"}
	for _, row := range []struct {
		audience any
		at       []string
	}{
		{publicURL + "/mcp", []string{"/mcp"}},
		{publicURL, []string{"/mcp"}},
		{publicURL + "/web/mcp", []string{"/web/mcp"}},
		{publicURL + "/mcp/files", []string{"/mcp/files"}},
		{[]string{publicURL + "/mcp/files", publicURL + "/mcp"}, []string{"/mcp", "/mcp/files"}},
		{"api://junction", all},
		// an audience that is not configured is valid nowhere
		{[]string{publicURL + "/chat/mcp", publicURL + "/mcp"}, []string{"/mcp"}},
	} {
		token := s.Token(t, s.Claims(row.audience, nil))
		for _, path := range all {
			p, resp := ask(t, g, "POST", path, bearerOf(token))
			if want := slices.Contains(row.at, path); (p != nil) != want {
				t.Errorf("a token for %v at %s: let in %v, want %v", row.audience, path, p != nil, want)
			}
			if got := resp.Header.Get("WWW-Authenticate"); p == nil &&
				(resp.StatusCode != 401 || !strings.Contains(got, "but this is "+publicURL+path)) {
				t.Errorf("a token for %v at %s: %d, %s", row.audience, path, resp.StatusCode, got)
			}
		}
	}
}

// TestOwnTokens: our tokens go to our own verifier, and are valid for its resources.
func TestOwnTokens(t *testing.T) {
	own := verify(func(token string, from netip.Addr) (*auth.Principal, error) {
		p := &auth.Principal{Kind: auth.KindUser, ID: "user:x:ann", Address: from}
		switch token {
		case "jct_at_mcp":
			p.Resources = []string{publicURL + "/mcp"}
		case "jct_at_none":
		default:
			return nil, auth.ErrInvalidToken
		}
		return p, nil
	})
	key := auth.NewKey()
	g := (&auth.Config{APIKeys: []auth.Key{{Name: "ci", Hash: mustHash(t, key)}}}).Guard(auth.NewProviders(nil), publicURL, own)
	for _, row := range []struct {
		token, path string
		status      int
	}{
		{"jct_at_mcp", "/mcp", 200}, {"jct_at_mcp", "/mcp/files", 401}, {"jct_at_none", "/mcp", 401},
		{"jct_at_other", "/mcp", 401}, {"jct_rt_mcp", "/mcp", 401},
		{key, "/mcp", 200}, {key, "/mcp/files", 200}, {auth.NewKey(), "/mcp", 401}, {"abc", "/mcp", 401},
	} {
		p, resp := ask(t, g, "POST", row.path, bearerOf(row.token))
		if (p != nil) != (row.status == 200) || p == nil && resp.StatusCode != row.status {
			t.Errorf("%s at %s: %+v, %d, want %d", row.token, row.path, p, resp.StatusCode, row.status)
		}
		if p != nil && p.Kind == auth.KindKey && !g.Still(p) {
			t.Error("the key is over at once")
		}
	}
	var document struct{ Authorization_Servers, Scopes_Supported []string }
	resp := lookUp(g.Resources, "GET", metadata, nil)
	if json.NewDecoder(resp.Body).Decode(&document); !slices.Equal(document.Authorization_Servers,
		[]string{publicURL}) || !slices.Equal(document.Scopes_Supported, []string{"mcp"}) {
		t.Errorf("the document says %+v", document)
	}
	_, err := g.Verifier.Verify(context.Background(), "jct_at_mcp", netip.Addr{})
	if err != nil {
		t.Error(err)
	}
	lost := &auth.Guard{Verifier: own}
	if p, resp := ask(t, lost, "POST", "/mcp", bearerOf("jct_at_mcp")); p != nil || resp.StatusCode != 401 {
		t.Errorf("a user is let in where nobody has said what the endpoint is: %+v, %d", p, resp.StatusCode)
	}
}
