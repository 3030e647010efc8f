package proxy

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
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// These benchmarks measure what the proxy itself costs: without sockets, and without an upstream.

// canned is a backend that knows its answer.
type canned struct {
	name    string
	catalog *upstream.Catalog
	answer  []byte
	config  upstream.Config
}

func (c *canned) Name() string               { return c.name }
func (c *canned) Config() upstream.Config    { return c.config }
func (c *canned) Tried() bool                { return true }
func (c *canned) Catalog() *upstream.Catalog { return c.catalog }
func (c *canned) Call(context.Context, *upstream.Call) (client.Result, error) {
	o, err := raw.Parse(c.answer)
	return client.Result{Object: o, Type: client.TypeComplete}, err
}
func (c *canned) Subscribe(context.Context, client.Profile, string, string, []string) (upstream.Source, []string, error) {
	return upstream.Source{}, nil, nil
}
func (c *canned) Unsubscribe(upstream.Source, []string)                        {}
func (c *canned) Announced() uint64                                            { return 0 }
func (c *canned) RootsChanged(client.Profile, string, string)                  {}
func (c *canned) SignedIn(context.Context) error                               { return nil }
func (c *canned) Met() <-chan struct{}                                         { return nil }
func (c *canned) Ready(context.Context) error                                  { return nil }
func (c *canned) Separates() bool                                              { return false }
func (c *canned) Prepare(context.Context, client.Profile, string, string) bool { return false }
func (c *canned) CatalogFor(client.Profile, string, string) *upstream.Catalog  { return c.catalog }

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
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		tb.Fatal(err)
	}
	s := New(Options{Key: key, Version: "test", Log: authtest.Log(tb)})
	s.apply(SnapshotConfig{Guard: &auth.Guard{}, Policy: policy.Open()}, backends)
	return s
}

func cannedBackend(tb testing.TB, tools, size int) *canned {
	tb.Helper()
	catalog := &upstream.Catalog{Era: client.EraLegacy, Listed: time.Now()}
	for i := range tools {
		definition, err := raw.Parse(fmt.Appendf(nil, `{"name":"tool%d","description":"%0200d","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}`, i, i))
		if err != nil {
			tb.Fatal(err)
		}
		catalog.Tools = append(catalog.Tools, upstream.Tool{Item: upstream.Item{Name: fmt.Sprintf("tool%d", i), Definition: definition}})
	}
	text := bytes.Repeat([]byte("x"), size)
	return &canned{name: "up", catalog: catalog, answer: fmt.Appendf(nil, `{"content":[{"type":"text","text":"%s"}]}`, text)}
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
		s := mustServer(b, cannedBackend(b, 10, size))
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
	s := mustServer(b, cannedBackend(b, 1000, 100))
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
