package authserver

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// TestMethods: each path answers the methods that it has. For another method, a path for programs
// names those that it has, and a page does not exist.
func TestMethods(t *testing.T) {
	s := mustStand(t, nil)
	for _, test := range []struct {
		methods, path string
		status        int
		allow, kind   string
	}{
		{"GET HEAD", "/", 200, "", "text/html"},
		{"GET HEAD", "/account", 200, "", "text/html"},
		{"GET HEAD POST", "/oauth/authorize", 400, "", "text/html"},
		{"GET HEAD", "/.well-known/oauth-authorization-server", 200, "", "application/json"},
		{"GET HEAD", "/.well-known/oauth-authorization-server/mcp", 200, "", "application/json"},
		{"OPTIONS", "/oauth/register", 204, "", ""},
		{"POST PUT", "/.well-known/oauth-authorization-server", 405, "GET, HEAD, OPTIONS", "application/json"},
		{"GET DELETE", "/oauth/register", 405, "POST, OPTIONS", "application/json"},
		{"GET PATCH", "/oauth/token", 400, "POST, OPTIONS", "application/json"},
		{"PUT DELETE", "/account", 404, "", "text/html"},
		{"GET HEAD", "/account/logout", 404, "", "text/html"},
		{"GET HEAD PUT", "/oauth/consent", 404, "", "text/html"},
		{"GET PUT", "/oauth/backchannel-logout/sso", 405, "POST", "application/json"},
		{"POST", "/oauth/backchannel-logout/", 404, "", "application/json"},
		{"GET POST", "/oauth/x", 404, "", "application/json"},
		{"GET POST", "/oauth//token", 404, "", "application/json"},
		{"GET POST", "/x/../account", 404, "", "application/json"},
	} {
		for method := range strings.FieldsSeq(test.methods) {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+test.path, nil)
			s.Server.ServeHTTP(w, r)
			h := w.Header()
			kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
			if w.Code != test.status || h.Get("Allow") != test.allow || kind != test.kind {
				t.Errorf("%s %s: %d %q %q, want %d %q %q", method, test.path, w.Code, h.Get("Allow"), kind, test.status, test.allow, test.kind)
			}
		}
	}
}
