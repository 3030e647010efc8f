package deploy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/process"
)

// pretender is a process behind a reverse proxy that is ready, and handles requests as a test wants.
type pretender struct {
	member
	got atomic.Int64 // requests
}

// mustPretend returns a pretender. Without a handler it refuses connections.
func mustPretend(t *testing.T, handle http.HandlerFunc) *pretender {
	t.Helper()
	p := &pretender{}
	admin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(admin.Close)
	p.admin = admin.Listener.Addr().String()
	if handle == nil {
		p.listen = process.FreePort(t)
		return p
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err == nil && r.Method == http.MethodPost {
			p.got.Add(1)
		}
		handle(w, r)
	}))
	t.Cleanup(s.Close)
	p.listen = s.Listener.Addr().String()
	return p
}

// TestOperateRecipesExecuteNothingTwice sends POST requests to two processes, one of which fails. A
// request that was refused goes to the other process, or fails. One that may have been executed fails.
func TestOperateRecipesExecuteNothingTwice(t *testing.T) {
	harness.Waits(t)
	const repeated = 0 // no request fails, because the other process gets those that were refused
	for _, f := range fronts() {
		for _, test := range []struct {
			name   string
			handle http.HandlerFunc
			status int // of the requests that fail; 0 is a broken connection
			ran    bool
		}{
			{"refuses connections", nil, map[string]int{"HAProxy": repeated, "nginx": repeated, "Caddy": 502}[f.name], false},
			{"answers 503", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "1")
				http.Error(w, "not executed", http.StatusServiceUnavailable)
			}, map[string]int{"HAProxy": repeated, "nginx": repeated, "Caddy": 503}[f.name], false},
			{"breaks the connection", func(w http.ResponseWriter, _ *http.Request) {
				if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
					c.Close()
				}
			}, map[string]int{"HAProxy": 0, "nginx": 502, "Caddy": 502}[f.name], true},
		} {
			t.Run(f.name+" "+test.name, func(t *testing.T) {
				t.Parallel()
				bad, good := mustPretend(t, test.handle), mustPretend(t, func(http.ResponseWriter, *http.Request) {})
				s := mustFront(t, f, "https://"+host, []member{bad.member, good.member})
				const sent = 12
				failed := int64(0)
				for i := range sent {
					status := 0
					r, err := s.http.Post(s.public+"/mcp", "application/json", strings.NewReader(fmt.Sprintf("{%d}", i)))
					if err == nil {
						r.Body.Close()
						status = r.StatusCode
					}
					if status != http.StatusOK {
						failed++
					}
					if status != http.StatusOK && status != test.status {
						t.Errorf("request %d is answered with status %d (%v), want 200 or %d", i, status, err, test.status)
					}
				}
				executed, refused := good.got.Load(), failed
				if test.ran {
					executed, refused = executed+bad.got.Load(), 0
				}
				if executed != sent-refused || test.handle != nil && bad.got.Load() == 0 ||
					!test.ran && test.status == repeated && failed > 0 {
					t.Errorf("of %d requests, %d failed and %d were executed; the failing process got %d", sent, failed,
						executed, bad.got.Load())
				}
			})
		}
	}
}
