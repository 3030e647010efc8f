package main

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

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
				if want := strings.ReplaceAll(row.want, "URL", r.url()); !strings.Contains(text, want) {
					t.Errorf("%s does not have %s:\n%s", path, want, text)
				}
				for _, secret := range []string{row.not, "canary", "fine"} {
					if strings.Contains(text, secret) {
						t.Errorf("%s contains %s", path, secret)
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
	req, err := http.NewRequestWithContext(t.Context(), method, strings.TrimSuffix(r.url(), "/mcp")+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
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
	public := r.publicHandler()
	session := func() string {
		t.Helper()
		req := httptest.NewRequest(http.MethodPost, r.url(), strings.NewReader(
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
			req := httptest.NewRequest(row.method, strings.TrimSuffix(r.url(), "/mcp")+row.path, nil)
			req.Header = row.header.Clone()
			if req.Header == nil {
				req.Header = http.Header{}
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			w.Header().Del("X-Request-Id")
			return w
		}
		got, want := ask(public), ask(r.server)
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
