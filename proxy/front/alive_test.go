package front

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/proxy/budget"
	"junction/proxy/proxytest"
	"junction/upstream"
	"junction/upstream/client"
)

// paper is a ResponseWriter whose text can be read while it is written.
type paper struct {
	mu     sync.Mutex
	header http.Header
	status int
	text   strings.Builder
}

func (w *paper) Header() http.Header              { return w.header }
func (w *paper) Flush()                           {}
func (w *paper) SetReadDeadline(time.Time) error  { return nil }
func (w *paper) SetWriteDeadline(time.Time) error { return nil }

func (w *paper) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status = status
}

func (w *paper) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

// take returns what was written since it was called last.
func (w *paper) take() string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.text.Reset()
	return w.text.String()
}

// late is a backend that takes its time.
type late struct {
	proxytest.Backend
	after time.Duration
}

func (b *late) Call(ctx context.Context, c *upstream.Call) (client.Result, error) {
	time.Sleep(b.after)
	return b.Backend.Call(ctx, c)
}

// open makes a request, which goes on until end is called.
func open(t *testing.T, s *Server, verb, body string, header map[string]string) (w *paper, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, verb, "http://127.0.0.1/mcp", strings.NewReader(body))
	r.Header.Set("Accept", "application/json, text/event-stream")
	if verb == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w = &paper{header: http.Header{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.ServeHTTP(w, r)
	}()
	return w, func() { cancel(); <-done }
}

// TestQuietStreamsGetComments has streams on which nothing happens: each has a
// comment now and then, which is no message, and nothing else.
func TestQuietStreamsGetComments(t *testing.T) {
	for _, test := range []struct {
		name   string
		stream func(*testing.T, *Server) (*paper, func())
		first  string // begins what is written at once
	}{
		{"subscriptions/listen", func(t *testing.T, s *Server) (*paper, func()) {
			return open(t, s, http.MethodPost, `{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},`+modernMeta+`}}`,
				map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"})
		}, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\""},
		{"GET", func(t *testing.T, s *Server) (*paper, func()) {
			w, end := open(t, s, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, nil)
			w.take()
			end()
			return open(t, s, http.MethodGet, "", map[string]string{"Mcp-Session-Id": w.header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version": "2025-11-25"})
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := mustServer(t)
				defer s.Kill()
				w, end := test.stream(t, s)
				defer end()
				if got := w.take(); !strings.HasPrefix(got, test.first) || strings.Count(got, "data:") > 1 {
					t.Fatalf("the stream begins with %q, want %q", got, test.first)
				}
				if w.status != 200 || w.header.Get("X-Accel-Buffering") != "no" {
					t.Errorf("status %d, header %v, want a stream that proxies do not buffer", w.status, w.header)
				}
				for range 4 {
					time.Sleep(quiet)
					if got := w.take(); !strings.HasPrefix(got, ":") || !strings.HasSuffix(got, "\n\n") || strings.Contains(got, "\ndata") {
						t.Errorf("after %v of silence %q, want a comment", quiet, got)
					}
				}
			})
		})
	}
}

// TestLongCallGetsComments: a long call stays open, because comments on its stream keep proxies from
// closing the connection.
func TestLongCallGetsComments(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := mustServer(t, &late{*proxytest.NewBackend(t, 1, 1), 3*quiet + time.Second})
				defer s.Kill()
				header, meta := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "up__tool0"}, ","+modernMeta
				if era == "legacy" {
					id, _ := s.sessions.create("2025-06-18", "t", budget.Account{Principal: "local"}, client.Profile{})
					header, meta = map[string]string{"Mcp-Session-Id": id}, ""
				}
				w, end := open(t, s, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__tool0","arguments":{}`+meta+`}}`, header)
				defer end()
				if got := w.take(); got != "" {
					t.Errorf("at once came %q, want nothing yet: it could still be an error with a status of its own", got)
				}
				time.Sleep(3 * quiet)
				if got := w.take(); w.status != 200 || w.header.Get("Content-Type") != "text/event-stream" || !strings.HasPrefix(got, ":") || strings.Contains(got, "data") {
					t.Errorf("status %d and %q after %v, want a stream with comments", w.status, got, 3*quiet)
				}
				time.Sleep(time.Second)
				if got := w.take(); !strings.Contains(got, `data: {"jsonrpc":"2.0","id":1,"result":{`) {
					t.Errorf("at the end came %q, want the answer", got)
				}
			})
		})
	}
}
