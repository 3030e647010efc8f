package pages

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream/upstreamtest"
)

// mustSignInServer starts an MCP server and its authorization server, which asks the person whether
// to allow the access.
func mustSignInServer(t *testing.T) string {
	t.Helper()
	const access, refresh = "canary-access-of-the-page", "canary-refresh-of-the-page"
	authtest.Secret("access token", access)
	authtest.Secret("refresh token", refresh)
	mcp := upstreamtest.New(upstreamtest.Script{Era: "modern", Tools: []json.RawMessage{[]byte(`{"name":"find","inputSchema":{"type":"object"}}`)}})
	t.Cleanup(mcp.Close)
	handler := mcp.Handler()
	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	document := func(pattern, text string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if strings.HasSuffix(pattern, "/register") {
				w.WriteHeader(http.StatusCreated)
			}
			fmt.Fprint(w, text)
		})
	}
	document("/place", fmt.Sprintf(`{"resource":"%[1]s/mcp","authorization_servers":[%[1]q]}`, s.URL))
	document("/.well-known/oauth-authorization-server", fmt.Sprintf(`{"issuer":%[1]q,"authorization_endpoint":"%[1]s/authorize",`+
		`"token_endpoint":"%[1]s/token","registration_endpoint":"%[1]s/register","code_challenge_methods_supported":["S256"],`+
		`"token_endpoint_auth_methods_supported":["none"]}`, s.URL))
	document("POST /register", `{"client_id":"us"}`)
	document("POST /token", `{"access_token":"`+access+`","refresh_token":"`+refresh+`","token_type":"Bearer","expires_in":3600}`)
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+access {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+s.URL+`/place"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		back := q.Get("redirect_uri") + "?state=" + q.Get("state")
		fmt.Fprintf(w, `<!doctype html><html lang="en"><link rel="icon" href="data:,"><title>Linear</title><p>Allow Junction?</p>`+
			`<a href="%s">Allow</a> <a href="%s">Deny</a>`, html.EscapeString(back+"&code=c"), html.EscapeString(back+"&error=access_denied"))
	})
	return s.URL + "/mcp"
}

// mustBegin starts a sign-in as the owner, whose secret is beside the run file, and returns where the
// browser goes.
func mustBegin(t *testing.T, p *harness.Program, upstream string) string {
	t.Helper()
	status, text := p.MustOwn(t, "/signin?upstream="+upstream)
	link := regexp.MustCompile(`href="([^"]*/authorize\?[^"]*)"`).FindStringSubmatch(text)
	if link == nil {
		t.Fatalf("the sign-in is answered with %d %s", status, text)
	}
	return html.UnescapeString(link[1])
}

// TestSignInInABrowser has the owner start a sign-in, deny it once in a browser, and allow it.
func TestSignInInABrowser(t *testing.T) {
	harness.WithoutShort(t)
	defer harness.Computes(t)()
	linear := mustSignInServer(t)
	p := harness.NewProgram(t)
	p.MustConfigure(t, fmt.Sprintf("storage: { dsn: %[1]s/junction.db, key_file: %[1]s/master.key }\n"+
		"upstreams:\n  linear: { url: %[2]q, auth: { mode: oauth } }\n", p.Dir, linear))
	p.MustServe(t)
	w := mustWindow(t)
	s := w.do(order{Open: p.Admin, Wait: "needs sign-in", Then: "offers 0 tools", Shot: "needs"})
	if !strings.Contains(s.Text, "run: junction login linear") {
		t.Errorf("the page is:\n%s", s.Text)
	}
	w.do(order{Open: mustBegin(t, p, "linear"), Then: "Allow Junction?"})
	if s = w.do(order{Click: "Deny", Then: "The sign-in to linear failed", Shot: "denied"}); s.Title != "Not signed in" {
		t.Errorf("after a refusal the page is %q:\n%s", s.Title, s.Text)
	}
	w.do(order{Click: "Back to the first page", Then: "needs sign-in"})
	w.do(order{Open: mustBegin(t, p, "linear"), Then: "Allow Junction?"})
	w.do(order{Click: "Allow", Then: "Last hour"})
	if s = w.do(order{Wait: "offers 1 tool.", Shot: "ready"}); strings.Contains(s.Text, "junction login") || !strings.Contains(s.URL, "#upstream-linear") {
		t.Errorf("at the end the page %s is:\n%s", s.URL, s.Text)
	}
	// Without scripts the page works, too.
	if s = w.do(order{Open: p.Admin, Plain: true, Then: "offers 1 tool."}); strings.Contains(s.Text, "needs sign-in") {
		t.Errorf("without scripts the page is:\n%s", s.Text)
	}
}
