package serve

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"junction/cmd/junction/ops/diagnose"
	"junction/upstream/upstreamtest"
)

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// TestConnectPage has a browser open the listener of clients, without authentication and with it.
func TestConnectPage(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{Tools: fine("canary")})
	keys := "api_keys: [{ name: ci, hash: 'sha256:" + strings.Repeat("0a", 32) + "' }]"
	upstreams := "upstreams: { canary: { url: " + url + " } }\n"
	for name, row := range map[string]struct{ config, want, not string }{
		"open":   {"", `claude mcp add --scope user --transport http junction URL<`, "JUNCTION_KEY"},
		"keys":   {"auth: { " + keys + " }\n", "--bearer-token-env-var JUNCTION_KEY<", "0a0a"},
		"public": {"public_url: https://mcp.example.com\nauth: { " + keys + " }\n", "https://mcp.example.com/mcp --bearer", "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := mustServe(t, row.config+upstreams)
			r.stderr.mustSay(t, "state=ready", 1)
			for _, path := range []string{"/", "/mcp", "/mcp/"} {
				resp, text := r.mustOpen(t, http.MethodGet, path, http.Header{"Accept": {browser}})
				if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/html; charset=utf-8" {
					t.Fatalf("%s: %d %s", path, resp.StatusCode, text)
				}
				if want := strings.ReplaceAll(row.want, "URL", r.listening.url()); !strings.Contains(text, want) {
					t.Errorf("%s does not have %s:\n%s", path, want, text)
				}
				for _, secret := range []string{row.not, "canary", "fine"} {
					if strings.Contains(text, secret) {
						t.Errorf("%s contains %s", path, secret)
					}
				}
				_, desktop, _ := strings.Cut(text, "<summary>Claude Desktop</summary>")
				desktop, _, _ = strings.Cut(desktop, "</details>")
				if file := strings.Contains(desktop, "&#34;--key-file&#34;"); file != (name != "open") {
					t.Errorf("%s has for Claude Desktop:\n%s", path, desktop)
				}
				for _, way := range []string{"asks for your key", "before you start Codex", "before you start Gemini CLI",
					"Cursor does not see the environment variables", "Zed does not see the environment variables",
					"junction connect zed --url ", "Or add this to <code>~/.cursor/mcp.json</code>"} {
					if strings.Contains(text, way) != (name != "open") {
						t.Errorf("%s: %q is wrong there:\n%s", path, way, text)
					}
				}
				for _, need := range []string{"a private CA has signed it", "Ask the operator for it"} {
					if strings.Contains(text, need) != (name == "public") { // other machines use the page
						t.Errorf("%s: %q is wrong there", path, need)
					}
				}
				policy := resp.Header.Get("Content-Security-Policy")
				if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") || strings.Contains(policy, "unsafe") {
					t.Errorf("%s has the policy %s", path, policy)
				}
			}
		})
	}
}

// mustOpen sends a request without a body to the listener of clients.
func (r *running) mustOpen(t *testing.T, method, path string, header http.Header) (*http.Response, string) {
	t.Helper()
	return mustRequest(t, method, strings.TrimSuffix(r.listening.url(), "/mcp")+path, header)
}

// mustRequest sends a request without a body, and returns the response with its text.
func mustRequest(t *testing.T, method, url string, header http.Header) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	if host := header.Get("Host"); host != "" {
		req.Host = host
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// TestConnectPageIsForBrowsers has MCP clients of both eras, and other programs, send requests that
// look like those of browsers. They get what the endpoint answers.
func TestConnectPageIsForBrowsers(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{Tools: fine("a")})
	r := mustServe(t, "upstreams: { a: { url: "+url+" } }\n")
	public := r.serving.publicHandler()
	session := func() string {
		t.Helper()
		req := httptest.NewRequest(http.MethodPost, r.listening.url(), strings.NewReader(
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`))
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {browser + ", application/json, text/event-stream"}}
		w := httptest.NewRecorder()
		public.ServeHTTP(w, req)
		if w.Code != http.StatusOK || w.Header().Get("Mcp-Session-Id") == "" {
			t.Fatalf("initialize: %d %s", w.Code, w.Body)
		}
		return w.Header().Get("Mcp-Session-Id")
	}()
	const both = "application/json, text/event-stream"
	rows := map[string]struct {
		method, path string
		header       http.Header
	}{
		"legacy, without a session":  {"GET", "/mcp", http.Header{"Accept": {"text/event-stream"}}},
		"legacy, both types":         {"GET", "/mcp", http.Header{"Accept": {both}}},
		"legacy, unknown session":    {"GET", "/mcp", http.Header{"Accept": {browser}, "Mcp-Session-Id": {"x"}}},
		"legacy, no stream accepted": {"GET", "/mcp", http.Header{"Accept": {browser[:9]}, "Mcp-Session-Id": {session}}},
		"legacy, comes back":         {"GET", "/mcp", http.Header{"Accept": {browser}, "Last-Event-Id": {"1"}}},
		"legacy, every type":         {"GET", "/mcp", http.Header{"Accept": {browser + ", text/event-stream"}}},
		"modern":                     {"GET", "/mcp", http.Header{"Accept": {browser}, "Mcp-Protocol-Version": {"2026-07-28"}}},
		"with a token":               {"GET", "/mcp", http.Header{"Accept": {browser}, "Authorization": {"Bearer x"}}},
		"curl":                       {"GET", "/mcp", http.Header{"Accept": {"*/*"}}},
		"curl at the root":           {"GET", "/", http.Header{"Accept": {"*/*"}}},
		"nothing accepted":           {"GET", "/mcp", nil},
		"HEAD":                       {"HEAD", "/mcp", http.Header{"Accept": {browser}}},
		"POST":                       {"POST", "/mcp", http.Header{"Accept": {browser}}},
		"DELETE":                     {"DELETE", "/mcp", http.Header{"Accept": {browser}}},
		"OPTIONS":                    {"OPTIONS", "/mcp", http.Header{"Accept": {browser}}},
		"POST to the root":           {"POST", "/", http.Header{"Accept": {browser}}},
		"another path":               {"GET", "/mcp/none", http.Header{"Accept": {browser}}},
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		row := rows[name]
		ask := func(h http.Handler) *httptest.ResponseRecorder {
			req := httptest.NewRequest(row.method, strings.TrimSuffix(r.listening.url(), "/mcp")+row.path, nil)
			req.Header = row.header.Clone()
			if req.Header == nil {
				req.Header = http.Header{}
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			w.Header().Del("X-Request-Id")
			return w
		}
		got, want := ask(public), ask(r.serving.server)
		if got.Code != want.Code || !bytes.Equal(got.Body.Bytes(), want.Body.Bytes()) || !maps.EqualFunc(got.Header(), want.Header(), slices.Equal) {
			t.Errorf("%s: %d %v %s, want %d %v %s", name, got.Code, got.Header(), got.Body, want.Code, want.Header(), want.Body)
		}
		if strings.Contains(got.Header().Get("Content-Type"), "html") {
			t.Errorf("%s gets a page", name)
		}
	}
	// A page whose host name leads to us reads nothing.
	req := httptest.NewRequest(http.MethodGet, "http://evil.example/", nil)
	req.Header.Set("Accept", browser)
	w := httptest.NewRecorder()
	if public.ServeHTTP(w, req); w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "<") {
		t.Errorf("for another host: %d %s", w.Code, w.Body)
	}
}

// TestMissingPage has a browser open a path that has no page: it gets one with the way to the endpoint,
// and programs get text.
func TestMissingPage(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	r := mustServe(t, "upstreams: { canary: { url: "+url+" } }\n")
	for path, want := range map[string]string{
		"/few": "The URL of an endpoint called few ends in /few/mcp.", "/a/<b>": "Nothing is here; the MCP endpoint is /mcp.<"} {
		resp, text := r.mustOpen(t, http.MethodGet, path, http.Header{"Accept": {browser}})
		if resp.StatusCode != http.StatusNotFound || !strings.Contains(text, want) || !strings.Contains(text, `href="/"`) ||
			!strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'; ") {
			t.Errorf("%s: %d %s", path, resp.StatusCode, text)
		}
		if resp, text = r.mustOpen(t, http.MethodGet, path, nil); resp.StatusCode != http.StatusNotFound || strings.Contains(text, "<p>") {
			t.Errorf("%s, for a program: %d %s", path, resp.StatusCode, text)
		}
	}
	for _, path := range []string{"/mcp/nothing", "/few/mcp"} { // an MCP endpoint answers for itself
		if _, text := r.mustOpen(t, http.MethodGet, path, http.Header{"Accept": {browser}}); strings.Contains(text, "<p>") {
			t.Errorf("%s: %s", path, text)
		}
	}
}

// TestStatusPage has a person look at the status of upstreams, one of which fails with hostile
// words, and connect the other one again.
func TestStatusPage(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{Tools: fine("echo")})
	r := mustServe(t, "upstreams:\n  good: { url: "+url+" }\n"+
		"  bad: { command: [sh, -c, 'echo \"<img src=x onerror=alert(1)>\" >&2; exit 3'] }\n"+
		"  z_off: { url: "+url+", enabled: false }\n")
	r.stderr.mustSay(t, "upstream=good state=ready", 1)
	r.stderr.mustSay(t, "upstream=bad state=retrying", 1)
	admin := "http://" + r.listening.admin.Addr().String()
	call := httptest.NewRequest(http.MethodPost, r.listening.url(), strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"<b>canary</b>","arguments":{"secret":"canary-argument"},`+
			`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"<i>x</i>","version":"1"},`+
			`"io.modelcontextprotocol/clientCapabilities":{}}}}`))
	call.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"<b>canary</b>"}}
	r.serving.publicHandler().ServeHTTP(httptest.NewRecorder(), call)
	resp, page := mustRequest(t, http.MethodGet, admin+"/", http.Header{"Accept": {browser}})
	if resp.StatusCode != http.StatusOK || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'; ") {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	for _, want := range []string{`href="/servers/good">good</a> <span class="state ready">`, "<b>z_off</b> disabled",
		"1 of 2 servers works, 1 ", "&lt;img src=x onerror=alert(1)&gt;", "To do: ", `<h2>Look at these first</h2>`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %s:\n%s", want, page)
		}
	}
	if bad, good := strings.Index(page, ">bad</a>"), strings.Index(page, ">good</a>"); bad < 0 || bad > good {
		t.Errorf("the working server is before the broken one:\n%s", page)
	}
	if strings.Contains(page, "There are no problems") {
		t.Errorf("a page with a broken server has no problems:\n%s", page)
	}
	for _, path := range []string{"/servers", "/servers/good", "/servers/bad", "/calls"} {
		_, text := mustRequest(t, http.MethodGet, admin+path, http.Header{"Accept": {browser}})
		page += text
	}
	for _, not := range []string{"<img", "<b>canary", "<i>", "canary-argument"} {
		if strings.Contains(page, not) {
			t.Errorf("the page has %s", not)
		}
	}
	for _, not := range []string{`method="post"`, `name="token"`, string(r.pages.place.owner)} {
		if strings.Contains(page, not) {
			t.Errorf("the page has %s, and everybody on this machine can open it", not)
		}
	}
	if command := "<code>junction reconnect good --config " + r.file + "</code>"; !strings.Contains(page, command) {
		t.Errorf("the page does not have %s:\n%s", command, page)
	}
	for name, row := range map[string]struct {
		path   string
		header http.Header
	}{
		"another host":       {"/", http.Header{"Host": {"evil.example"}}},
		"another site reads": {"/events", http.Header{"Sec-Fetch-Site": {"cross-site"}}},
	} {
		if resp, text := mustRequest(t, http.MethodGet, admin+row.path, row.header); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d %s, want 403", name, resp.StatusCode, text)
		}
	}
}

// TestOnlyTheOwnerChangesSomething: another user of the machine, who can read the status page, cannot
// connect an upstream again, start a sign-in, have the database read, or start the check of doctor, which
// starts processes.
func TestOnlyTheOwnerChangesSomething(t *testing.T) {
	s, url := upstreamtest.Start(t, upstreamtest.Script{Era: "modern", Tools: fine("echo")})
	r := mustServe(t, "upstreams:\n  good: { url: "+url+" }\n")
	r.stderr.mustSay(t, "upstream=good state=ready", 1)
	admin := "http://" + r.listening.admin.Addr().String()
	handshakes := func() (n int) {
		for _, one := range s.Received() {
			if one.Message.Method == "server/discover" {
				n++
			}
		}
		return n
	}
	before := handshakes()
	secret := string(r.pages.place.owner)
	for name, header := range map[string]http.Header{
		"nothing":      {},
		"the page":     {"Origin": {admin}},
		"another":      {diagnose.OwnerHeader: {secret + "x"}},
		"the first":    {diagnose.OwnerHeader: {secret[:1]}},
		"nothing sent": {diagnose.OwnerHeader: {""}},
		"two of them":  {diagnose.OwnerHeader: {secret, secret}},
	} {
		for path, method := range map[string]string{"/reconnect?upstream=good": "POST", "/signin?upstream=good": "POST",
			"/revoked": "POST", "/doctor": "GET", "/doctor?upstream=good": "HEAD"} {
			resp, text := mustRequest(t, method, admin+path, header)
			if resp.StatusCode != http.StatusForbidden || method != "HEAD" && !strings.Contains(text, "Only the user who runs Junction may do this") {
				t.Errorf("%s %s with %s: %d %s, want 403", method, path, name, resp.StatusCode, text)
			}
		}
	}
	if n := handshakes(); n != before {
		t.Errorf("the server had %d handshakes, want %d", n, before)
	}
	for _, origin := range []string{"https://evil.example", "http://127.0.0.1:1", "null"} { // not even with the secret
		header := r.owned()
		header.Set("Origin", origin)
		if resp, _ := mustRequest(t, "POST", admin+"/reconnect?upstream=good", header); resp.StatusCode != http.StatusForbidden {
			t.Errorf("a page of %s: %d, want 403", origin, resp.StatusCode)
		}
	}
	if resp, text := mustRequest(t, "POST", admin+"/reconnect?upstream=none", r.owned()); resp.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown upstream: %d %s", resp.StatusCode, text)
	}
	// The command of another user, who has another folder for state, does not find the secret.
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for _, command := range []string{"reconnect", "doctor"} {
		if _, said := mustRun(t, 1, command, "good", "--admin", admin); !strings.Contains(said, "Only the user who runs Junction may do this") {
			t.Errorf("junction %s of another user: %s", command, said)
		}
	}
	r.own(t)
	if out, _ := mustRun(t, 0, "reconnect", "good", "--config", r.file); out != "good is being connected again; its state: junction status good --config "+r.file+"\n" {
		t.Errorf("junction reconnect prints %q", out)
	}
	r.stderr.mustSay(t, "upstream=good state=ready", 2)
	mustRun(t, 0, "doctor", "good", "--admin", admin)
	if resp, text := mustRequest(t, "POST", admin+"/revoked", r.owned()); resp.StatusCode != 200 ||
		!strings.Contains(text, `"missed": []`) {
		t.Errorf("/revoked of the owner: %d %s", resp.StatusCode, text)
	}
}
