package serve

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestGuard: web pages, other hosts and large bodies are refused, and no client cancels the request of
// another client.
func TestGuard(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", "192.0.2.1:1", "example.com:80", ":8080", "x"} {
		if l, err := Listen(address); err == nil {
			l.Close()
			t.Errorf("listens on %s", address)
		}
	}
	reached := 0
	h := (&Server{}).guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	for _, test := range []struct {
		origin, session, body string
		want                  int
		passes                bool
	}{
		{"", "", `{"method":"ping"}`, 200, true},
		{"https://evil.example", "", `{"method":"ping"}`, 403, false},
		{"http://localhost:3000", "", `{"method":"ping"}`, 403, false},
		{"http://127.0.0.1", "", `{"method":"ping"}`, 200, true},
		{"https://127.0.0.1", "", `{"method":"ping"}`, 403, false},
		{"", "", `{"method":"notifications/cancelled","params":{"requestId":1}}`, 202, false},
		{"", "s", `{"method":"notifications/cancelled","params":{"requestId":1}}`, 200, true},
		{"", "", strings.Repeat("x", maxBody+1), 413, false},
	} {
		before := reached
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/mcp", strings.NewReader(test.body))
		if test.origin != "" {
			r.Header.Set("Origin", test.origin)
		}
		if test.session != "" {
			r.Header.Set("Mcp-Session-Id", test.session)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != test.want || reached > before != test.passes {
			t.Errorf("%.60s of %q: status %d, passed %v", test.body, test.origin, w.Code, reached > before)
		}
	}
}
