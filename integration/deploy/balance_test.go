package deploy

import (
	"bytes"
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
		body, err := io.ReadAll(r.Body)
		if err == nil && r.Method == http.MethodPost {
			p.got.Add(1)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		handle(w, r)
	}))
	t.Cleanup(s.Close)
	p.listen = s.Listener.Addr().String()
	return p
}

// sizes are the sizes of the bodies that each recipe passes on in both directions, and sends again.
func sizes() []int { return []int{100, 20_000, 250_000, 1_000_000} }

// haproxyKeeps is the size up to which HAProxy sends a request again (tune.bufsize).
const haproxyKeeps = 256 << 10

// TestOperateRecipesExecuteNothingTwice sends POST requests of several sizes to two processes, one of which
// fails. A request that was refused goes to the other process, or fails. One that may have been executed
// fails. The answer of the other process is as large as the request, and complete.
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
				for _, size := range sizes() {
					status := test.status
					if f.name == "HAProxy" && test.name == "answers 503" && size > haproxyKeeps {
						status = http.StatusServiceUnavailable
					}
					mustExecuteOnce(t, f, test.handle, size, status, test.ran)
				}
			})
		}
	}
}

// mustExecuteOnce sends requests of a size to a process that fails and to one that answers with the body
// of the request. status is that of requests that fail; 0 is a broken connection, or that none may fail.
// ran says that the process that fails has executed its requests.
func mustExecuteOnce(t *testing.T, f front, fails http.HandlerFunc, size, status int, ran bool) {
	t.Helper()
	bad := mustPretend(t, fails)
	good := mustPretend(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	s := mustFront(t, f, "https://"+host, []member{bad.member, good.member})
	const sent = 12
	failed := int64(0)
	for i := range sent {
		body := fmt.Sprintf("{%d%s}", i, strings.Repeat("x", size))
		got, answer := 0, []byte(nil)
		r, err := s.http.Post(s.public+"/mcp", "application/json", strings.NewReader(body))
		if err == nil {
			answer, err = io.ReadAll(r.Body)
			r.Body.Close()
			got = r.StatusCode
		}
		switch {
		case got == http.StatusOK && (err != nil || string(answer) != body):
			t.Errorf("the answer to %d bytes has %d (%v)", len(body), len(answer), err)
		case got == http.StatusOK:
		case got == status:
			failed++
		default:
			t.Errorf("a request of %d bytes is answered with status %d (%v), want 200 or %d", size, got, err, status)
		}
	}
	executed, refused := good.got.Load(), failed
	if ran {
		executed, refused = executed+bad.got.Load(), 0
	}
	if executed != sent-refused || fails != nil && bad.got.Load() == 0 || !ran && status == 0 && failed > 0 {
		t.Errorf("of %d requests of %d bytes, %d failed and %d were executed; the failing process got %d", sent, size,
			failed, executed, bad.got.Load())
	}
}
