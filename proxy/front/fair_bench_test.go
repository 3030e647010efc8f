package front

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"sync/atomic"
	"testing"

	"junction/auth"
	"junction/auth/authtest"
	"junction/policy"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
	"junction/proxy/view"
)

// many verifies the tokens jct_key_0 to jct_key_999 as principals of these names.
type many struct{ principals map[string]*auth.Principal }

func newMany(n int) many {
	m := many{map[string]*auth.Principal{}}
	for i := range n {
		name := fmt.Sprintf("user%d", i)
		m.principals["token"+name] = &auth.Principal{Kind: auth.KindKey, ID: "key:" + name, Key: name}
	}
	return m
}

func (m many) Verify(_ context.Context, token string, _ netip.Addr) (*auth.Principal, error) {
	if p := m.principals[token]; p != nil {
		return p, nil
	}
	return nil, auth.ErrInvalidToken
}

// BenchmarkCallOfMany has a thousand principals call in turn, on all processors at once.
func BenchmarkCallOfMany(b *testing.B) {
	const principals = 1000
	s := mustServer(b)
	s.ApplyBackends(scope.Config{Guard: &auth.Guard{Verifier: newMany(principals), Log: authtest.Log(b)}, Policy: policy.Open()}, []view.Backend{proxytest.NewBackend(b, 10, 100)})
	body := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__tool3","arguments":{"text":"hello"},` + modernMeta + `}}`)
	headers := make([]http.Header, principals)
	for i := range headers {
		h := modernHeader("tools/call", "up__tool3")
		h["Authorization"] = []string{fmt.Sprintf("Bearer tokenuser%d", i)}
		h["Content-Type"] = []string{"application/json"}
		h["Accept"] = []string{"application/json, text/event-stream"}
		headers[i] = h
	}
	var turn atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		r := (&http.Request{Method: "POST", URL: &url.URL{Path: "/mcp"}, Host: "127.0.0.1:8420", ContentLength: int64(len(body))}).WithContext(b.Context())
		reader := bytes.NewReader(nil)
		w := &nowhere{header: http.Header{}}
		for pb.Next() {
			reader.Reset(body)
			r.Header, r.Body = headers[turn.Add(7)%principals], io.NopCloser(reader)
			w.n = 0
			s.ServeHTTP(w, r)
			if w.n < 50 {
				b.Errorf("an answer has %d bytes; it is none", w.n)
				return
			}
		}
	})
}
