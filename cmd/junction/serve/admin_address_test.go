package serve

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"junction/cmd/junction/ops/diagnose"
	"junction/upstream/upstreamtest"
)

// TestAdminAddressRefusesPagesOfOtherSites has web pages, a person, curl, a probe and a monitor ask the
// admin address. Pages of other sites, and of other ports of this machine, get nothing but
// /healthz.
func TestAdminAddressRefusesPagesOfOtherSites(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{Tools: fine("a")})
	r := mustServe(t, "upstreams: { a: { url: "+url+" } }\n")
	r.stderr.mustSay(t, "state=ready", 1)
	const refused = "A web page of another site has sent this request (Sec-Fetch-Site, Origin). " +
		"Open this address in a new tab, or use curl.\n"
	own := "http://" + r.listening.admin.Addr().String()
	ask := func(path string, header http.Header) (int, string) {
		t.Helper()
		header = header.Clone()
		header.Set(diagnose.OwnerHeader, string(r.pages.place.owner)) // not even then
		resp, text := mustRequest(t, http.MethodGet, own+path, header)
		return resp.StatusCode, text
	}
	for _, path := range []string{"/pins", "/readyz", "/why?name=a__a&as=local", "/doctor", "/healthz"} {
		for who, header := range map[string]http.Header{
			"curl":             {"User-Agent": {"curl/8.5.0"}, "Accept": {"*/*"}},
			"Kubernetes":       {"User-Agent": {"kube-probe/1.34"}, "Connection": {"close"}},
			"Prometheus":       {"User-Agent": {"Prometheus/3.1.0"}, "Accept": {"application/json"}},
			"a person":         {"Sec-Fetch-Site": {"none"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-User": {"?1"}},
			"a person reloads": {"Sec-Fetch-Site": {"same-origin"}, "Origin": {own}},
		} {
			if status, text := ask(path, header); status != http.StatusOK || text == "" {
				t.Errorf("%s asks for %s: %d %s", who, path, status, text)
			}
		}
		for who, header := range map[string]http.Header{
			"another site": {"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"no-cors"}},
			"a link of that site": {"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"},
				"Sec-Fetch-User": {"?1"}},
			"another port": {"Sec-Fetch-Site": {"same-site"}, "Sec-Fetch-Mode": {"cors"},
				"Origin": {"http://127.0.0.1:1"}},
			"an old browser":  {"Origin": {"https://evil.example"}},
			"a sandbox":       {"Origin": {"null"}},
			"two of them":     {"Sec-Fetch-Site": {"same-origin", "cross-site"}},
			"two origins":     {"Origin": {own, "https://evil.example"}},
			"the same by TLS": {"Origin": {strings.Replace(own, "http:", "https:", 1)}},
		} {
			status, text := ask(path, header)
			if path == "/healthz" {
				if status != http.StatusOK || text != "ok\n" {
					t.Errorf("%s asks for %s: %d %s", who, path, status, text)
				}
				continue
			}
			if status != http.StatusForbidden || text != refused {
				t.Errorf("%s asks for %s: %d %s", who, path, status, text)
			}
		}
	}
}

// TestAdminMethods: each path of the admin address answers the methods that it has, and names them for
// another method.
func TestAdminMethods(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{Tools: fine("a")})
	r := mustServe(t, "upstreams: { a: { url: "+url+" } }\n")
	r.stderr.mustSay(t, "state=ready", 1)
	for _, test := range []struct {
		methods, path string
		status        int
		allow         string
	}{
		{"GET HEAD", "/", 200, ""},
		{"GET HEAD", "/healthz", 200, ""},
		{"GET HEAD", "/readyz", 200, ""},
		{"GET HEAD", "/status", 200, ""},
		{"GET HEAD", "/metrics", 200, ""},
		{"GET HEAD", "/connect/a/callback", 400, ""},
		{"POST DELETE FOO", "/healthz", 405, "GET, HEAD"},
		{"POST OPTIONS", "/events", 405, "GET, HEAD"},
		{"GET HEAD PUT", "/reconnect", 405, "POST"},
		{"GET", "/signin", 405, "POST"},
		{"GET POST FOO", "/none", 404, ""},
		{"GET", "//healthz", 404, ""},
		{"GET", "/healthz/", 404, ""},
	} {
		for method := range strings.FieldsSeq(test.methods) {
			resp, text := mustRequest(t, method, "http://"+r.listening.admin.Addr().String()+test.path, nil)
			if allow := resp.Header.Get("Allow"); resp.StatusCode != test.status || allow != test.allow {
				t.Errorf("%s %s: %d %q %.60q, want %d %q", method, test.path, resp.StatusCode, allow, text, test.status, test.allow)
			}
		}
	}
}

// TestCheckWarnsAboutUnnamedProxies: behind a proxy that the file does not name all people have one
// address, and one limit. check says so where there has to be a proxy, and nowhere else.
func TestCheckWarnsAboutUnnamedProxies(t *testing.T) {
	const section = "  oauth: { identity_providers: [{ id: sso, issuer: https://a.example, client_id: junction }] }\n"
	const warning = ": auth.oauth: there are no trusted_proxies, so that all people have the address of the proxy in front"
	for text, warned := range map[string]bool{
		"public_url: https://mcp.example.com\nauth:\n" + section:                                               true,
		"public_url: https://mcp.example.com\nauth:\n  trusted_proxies: [10.1.2.3/32]\n" + section:             false,
		"public_url: http://localhost:8420\nauth:\n" + section:                                                 false,
		"public_url: https://mcp.example.com\nauth:\n  jwt: [{ issuer: https://a.example, audiences: [x] }]\n": false,
	} {
		file := filepath.Join(t.TempDir(), "c.yaml")
		mustWrite(t, file, text+"upstreams: { a: { command: [junction, demo] } }\n")
		out, _ := mustRun(t, 0, "check", "--config", file)
		if got := strings.Contains(out, warning); got != warned {
			t.Errorf("%s\nwarned is %v:\n%s", text, got, out)
		}
	}
}
