package signin

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/upstream/client"
)

// TestNoAccidentalOpening sends what a reverse proxy and a browser send. Without
// authentication neither gets through, because everybody who does can use every tool.
func TestNoAccidentalOpening(t *testing.T) {
	harness.Waits(t)
	const inspector = "http://localhost:6274"
	ci := newAPIKey(t, "ci")
	for name, row := range map[string]struct {
		section                 string
		proxied, other, allowed int // HTTP status of a request through a proxy, from another port, from app.example.com
	}{
		"nothing is said":       {"", 403, 403, 403},
		"none is stated":        {"auth: { none: true }\n", 200, 403, 403},
		"another port is named": {"allowed_origins: ['" + inspector + "', 'https://app.example.com']\n", 403, 200, 200},
		"keys":                  {authSection([]apiKey{ci}), 200, 200, 403},
		"public without keys":   {"public_url: https://app.example.com\nauth: { none: true }\n", 200, 403, 200},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := guarded(t, row.section)
			port := p.URL[strings.LastIndex(p.URL, ":")+1 : len(p.URL)-len("/mcp")]
			harness.EachClientEra(t, func(t *testing.T, era client.Era) {
				c := keyed(t, p, era, ci.key)
				want := func(status int, text string, ch harness.HeaderChange) {
					t.Helper()
					a := c.Call(t, "tools/list", "", ch)
					if a.Status != status || status == 403 && !strings.Contains(a.String(), text) {
						t.Errorf("%s, want %d and %q", a, status, text)
					}
				}
				want(200, "", harness.Without("Origin"))
				for _, header := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Prefix", "X-Forwarded",
					"Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "Cf-Ray",
					"Ngrok-Auth-User-Email", "Tailscale-User-Login", "Fly-Client-Ip"} {
					want(row.proxied, "This request came through a proxy (it has the header "+header+
						"), and Junction has no authentication. Configure api_keys",
						harness.With(header, "1.1 nginx"))
				}
				for _, own := range []string{"http://localhost:", "http://127.0.0.1:", "http://[::1]:"} {
					want(200, "", harness.With("Origin", own+port))
				}
				want(row.other, `add allowed_origins: ["`+inspector+`"]`, harness.With("Origin", inspector))
				want(row.allowed, "This origin may not use the endpoint (allowed_origins).",
					harness.With("Origin", "https://app.example.com"))
				if ci := row.other == 200 && row.allowed == 403; !ci { // every loopback origin may be used with a key
					for _, origin := range []string{"https://localhost:" + port, "http://localhost", "http://127.0.0.2:" + port,
						"http://localhost:0" + port, "http://x@localhost:" + port} {
						want(403, "(allowed_origins)", harness.With("Origin", origin))
					}
				}
				for _, origin := range []string{"null", "http://localhost.evil.example:" + port} {
					want(403, "(allowed_origins)", harness.With("Origin", origin))
				}
			})
		})
	}
}

// TestOldHTTPShowsAProxy: without authentication, a request of HTTP/1.0 gets 403 at each path of
// clients, because nginx sends that version. Probes of the admin address may use it.
func TestOldHTTPShowsAProxy(t *testing.T) {
	harness.Waits(t)
	ci := newAPIKey(t, "ci")
	for name, row := range map[string]struct {
		section string
		refused bool
	}{
		"nothing is said": {"", true},
		"none is stated":  {"auth: { none: true }\n", false},
		"keys":            {authSection([]apiKey{ci}), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := guarded(t, row.section)
			for _, path := range []string{"/mcp", "/mcp/up", "/", "/nothing"} {
				const want = "This request came through a proxy (it has the version HTTP/1.0)"
				status, text := oldRequest(t, p.Origin(), path)
				if refused := status == 403 && strings.Contains(text, want) && strings.Contains(text, "{ none: true }"); refused != row.refused {
					t.Errorf("GET %s answers %d %q; refused %v, want %v", path, status, text, refused, row.refused)
				}
			}
			for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
				if status, text := oldRequest(t, p.Admin, path); status != 200 {
					t.Errorf("GET %s of the admin address answers %d %q", path, status, text)
				}
			}
		})
	}
}

// oldRequest sends a GET of HTTP/1.0 with the Host of the address, as nginx does.
func oldRequest(t *testing.T, url, path string) (status int, text string) {
	t.Helper()
	address := strings.TrimPrefix(url, "http://")
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(harness.Patience))
	fmt.Fprintf(c, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", path, address)
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}
