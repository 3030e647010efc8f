package front

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/auth/seal"
	"junction/policy"
	"junction/proxy/budget"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream/client"
)

// These benchmarks measure what the proxy itself costs: without sockets, and without an upstream.

// nowhere is a ResponseWriter that counts.
type nowhere struct {
	header http.Header
	n      int
}

func (w *nowhere) Header() http.Header                { return w.header }
func (w *nowhere) WriteHeader(int)                    {}
func (w *nowhere) Write(b []byte) (int, error)        { w.n += len(b); return len(b), nil }
func (w *nowhere) SetReadDeadline(time.Time) error    { return nil }
func (w *nowhere) SetWriteDeadline(t time.Time) error { return nil }

func mustServer(tb testing.TB, backends ...view.Backend) *Server {
	tb.Helper()
	return serverWith(tb, Options{Log: authtest.Log(tb)}, backends...)
}

// serverWith is a server with options, which need no key.
func serverWith(tb testing.TB, o Options, backends ...view.Backend) *Server {
	tb.Helper()
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		tb.Fatal(err)
	}
	o.Key, o.Version = key, "test"
	s := New(o)
	s.ApplyBackends(scope.Config{Guard: &auth.Guard{}, Policy: policy.Open()}, backends)
	return s
}

// repeat serves one request again and again.
func repeat(b *testing.B, s *Server, header http.Header, body string) {
	r := &http.Request{Method: "POST", URL: &url.URL{Path: "/mcp"}, Host: "127.0.0.1:8420", Header: header, ContentLength: int64(len(body))}
	header["Content-Type"] = []string{"application/json"}
	header["Accept"] = []string{"application/json, text/event-stream"}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r = r.WithContext(ctx)
	reader := bytes.NewReader(nil)
	w := &nowhere{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		reader.Reset([]byte(body))
		r.Body = io.NopCloser(reader)
		w.n = 0
		s.ServeHTTP(w, r)
	}
	if w.n < 50 {
		b.Fatalf("an answer has %d bytes; it is none", w.n)
	}
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

func modernHeader(method, name string) http.Header {
	h := http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {method}}
	if name != "" {
		h["Mcp-Name"] = []string{name}
	}
	return h
}

func BenchmarkCall(b *testing.B) {
	for _, size := range []int{100, 10_000, 1_000_000} {
		s := mustServer(b, proxytest.NewBackend(b, 10, size))
		b.Run(fmt.Sprintf("legacy/%d", size), func(b *testing.B) {
			id, _ := s.sessions.create("2025-11-25", "bench", budget.Account{Principal: "local"}, client.Profile{})
			repeat(b, s, http.Header{"Mcp-Session-Id": {id}, "Mcp-Protocol-Version": {"2025-11-25"}},
				`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__tool3","arguments":{"text":"hello"}}}`)
		})
		b.Run(fmt.Sprintf("modern/%d", size), func(b *testing.B) {
			repeat(b, s, modernHeader("tools/call", "up__tool3"),
				`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__tool3","arguments":{"text":"hello"},`+modernMeta+`}}`)
		})
	}
}

func BenchmarkList(b *testing.B) {
	s := mustServer(b, proxytest.NewBackend(b, 1000, 100))
	id, _ := s.sessions.create("2025-11-25", "bench", budget.Account{Principal: "local"}, client.Profile{})
	b.Run("legacy", func(b *testing.B) {
		repeat(b, s, http.Header{"Mcp-Session-Id": {id}}, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	})
	b.Run("modern", func(b *testing.B) {
		repeat(b, s, modernHeader("tools/list", ""), `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modernMeta+`}}`)
	})
}

// BenchmarkSession measures what an idle legacy session costs in memory.
func BenchmarkSession(b *testing.B) {
	s := mustServer(b)
	s.sessions.max = 1 << 30
	b.ReportAllocs()
	for b.Loop() {
		s.sessions.create("2025-11-25", "a client with a name", budget.Account{Principal: "local"}, client.Profile{})
	}
}
