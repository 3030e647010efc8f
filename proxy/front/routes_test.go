package front

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"junction/auth"
	"junction/policy"
	"junction/proxy/scope"
)

// TestTheShortWayIsTheRoute: what is not routed because nearly all requests want it is answered as
// the route would answer it, whatever was allowed just before.
func TestTheShortWayIsTheRoute(t *testing.T) {
	s := mustServer(t)
	ask := func(h http.Handler, method string, target *url.URL, host string, origin []string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "/", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		r.URL, r.Host = target, host
		r.Header = http.Header{"Content-Type": {"application/json"}, "Origin": origin}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for _, target := range []string{"/mcp", "/%6dcp", "/mcp/", "//mcp", "/mcp?x=1", "/MCP", "/mcp%2f", "http://evil.example/mcp", "/mcp/../mcp"} {
		for _, method := range []string{"POST", "GET", "HEAD", "OPTIONS", "DELETE", "PUT", "PATCH", "TRACE", "CONNECT"} {
			for _, host := range []string{"evil.example", "127.0.0.1:8420", "evil.example", "127.0.0.1:8420", "127.0.0.1:8420.evil.example", "LOCALHOST", "ours.example", ""} {
				for _, origin := range [][]string{nil, {"http://localhost:3000"}, {"http://evil.example"}, {"http://localhost", "http://localhost"}} {
					u, err := url.Parse(target)
					if err != nil {
						t.Fatal(err)
					}
					got, want := ask(s, method, u, host, origin), ask(s.routes, method, u, host, origin)
					if got.Code != want.Code || got.Body.String() != want.Body.String() || !reflect.DeepEqual(got.Header(), want.Header()) {
						t.Errorf("%s %s at %s from %s: %d %v %s, want %d %v %s", method, target, host, origin, got.Code, got.Header(), got.Body, want.Code, want.Header(), want.Body)
					}
				}
			}
		}
	}
}

// TestHostsAreRemembered: of a host that was allowed nothing is left in a world that does not allow
// it, and looking it up takes no memory.
func TestHostsAreRemembered(t *testing.T) {
	s := mustServer(t)
	allows := func(host string, want bool) {
		t.Helper()
		for range 2 {
			if got := s.hostAllowed(s.Snapshot(), host); got != want {
				t.Errorf("%s is allowed: %v", host, got)
			}
		}
	}
	s.ApplyBackends(scope.Config{Guard: &auth.Guard{}, Policy: policy.Open(), AllowedHosts: []string{"a.example", "b.example:8420"}}, nil)
	allows("A.example:1234", true)
	allows("b.example:8421", false)
	allows("b.example:8420", true)
	allows("b.example", false)
	allows("a.example", true)
	s.ApplyBackends(scope.Config{Guard: &auth.Guard{}, Policy: policy.Open(), AllowedHosts: []string{"b.example"}}, nil)
	allows("a.example", false)
	allows("A.example:1234", false)
	allows("b.example", true)
	w := s.Snapshot()
	if n := testing.AllocsPerRun(100, func() { s.hostAllowed(w, "b.example") }); n > 0 {
		t.Errorf("a host that was allowed before takes %v pieces of memory", n)
	}
}
