package failure

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/upstreamtest"
)

// heap returns the bytes in use after a collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// spaces is an endless text that is read as white space.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestLimitBody(t *testing.T) {
	harness.Alone(t, "it measures the heap of this process")
	s := harness.MustStand(t, proxy.Limits{}, nil)
	before := heap()
	for _, announced := range []int64{100 << 20, -1} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, io.LimitReader(spaces{}, 100<<20))
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = announced
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder() // a client may see a broken connection instead of the answer
		s.Server.ServeHTTP(w, req)
		if w.Code != http.StatusRequestEntityTooLarge || !strings.Contains(w.Body.String(), "limits.body") {
			t.Errorf("100 MiB (Content-Length %d) = %d %s, want 413 and limits.body", announced, w.Code, w.Body)
		}
	}
	if grown := heap() - before; grown > 50<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

func TestLimitNesting(t *testing.T) {
	harness.Waits(t)
	s := harness.MustStand(t, proxy.Limits{}, nil)
	for _, era := range harness.BothEras() {
		c := harness.MustCaller(t, s.URL, era)
		deep := strings.Repeat("[", 10000) + strings.Repeat("]", 10000)
		resp, err := c.Post(t.Context(), "tools/call", "x",
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":`+deep+`}}}`)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: 10,000 deep = %s %s, want 400", era, resp.Status, body)
		}
	}
}

// TestLimitSessions has a client that initializes again and again, as a client does that loses its
// session id.
func TestLimitSessions(t *testing.T) {
	harness.Alone(t, "it measures the heap of this process")
	sessions := 100_000
	if testing.Short() {
		sessions = 10_000
	}
	s := harness.MustStand(t, proxy.Limits{Sessions: 1000}, nil)
	open := func(n int) {
		for range n {
			req := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/mcp", strings.NewReader(
				`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":`+
					harness.AllCapabilities+`,"clientInfo":{"name":"again","version":"1"}}}`))
			req.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			if s.Server.ServeHTTP(w, req); w.Code != http.StatusOK || w.Header().Get("Mcp-Session-Id") == "" {
				t.Fatalf("initialize = %d %s, want a session", w.Code, w.Body)
			}
		}
	}
	open(2000) // until the limit is reached
	before := heap()
	open(sessions)
	if grown := heap() - before; grown > 10<<20 {
		t.Errorf("the heap grew by %d KiB over %d sessions, want no growth beyond limits.sessions", grown>>10, sessions)
	}
}

// TestLimitStreamsAndRequests has one program open streams and send requests: half of the limits is
// its share.
func TestLimitStreamsAndRequests(t *testing.T) {
	harness.Waits(t)
	server, url := upstreamtest.Start(t, upstreamtest.Script{})
	s := harness.MustStand(t, proxy.Limits{Streams: 4, Requests: 4}, map[string]upstream.Config{"up": {URL: url}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	open := func() *http.Response {
		c := harness.MustCaller(t, s.URL, harness.LegacyEra)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "text/event-stream")
		req.Header.Set("Mcp-Session-Id", c.Session)
		resp, err := c.HTTP.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	for i, want := range []int{200, 200, 429, 429} {
		if got := open().StatusCode; got != want {
			t.Errorf("stream %d = %d, want %d", i+1, got, want)
		}
	}
	c := harness.MustCaller(t, s.URL, harness.LegacyEra)
	done := make(chan struct{})
	for i := range 2 {
		go func() {
			defer func() { done <- struct{}{} }()
			c.MustCall(t, "up__gate", `{"gate":"g"}`, "here it is")
		}()
		seen := 0
		if _, err := server.Await(ctx, func(r upstreamtest.Record) bool {
			if upstreamtest.Method("tools/call")(r) {
				seen++
			}
			return seen > i
		}); err != nil {
			t.Fatal(err)
		}
	}
	if x, err := c.Call(ctx, "up__echo", `{}`); err != nil || !strings.Contains(x.Answer, "limits.requests") {
		t.Errorf("a third request = %s, %v; want limits.requests", x.Answer, err)
	}
	for range 2 {
		server.Release("g")
	}
	for range 2 {
		<-done
	}
	c.MustCall(t, "up__echo", `{"a":1}`, `{\"a\":1}`)
}
