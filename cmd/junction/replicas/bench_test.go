package replicas

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"syscall"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/auth/seal"
	"junction/upstream/http1"
)

// BenchmarkForward compares a request to a member with one that another member forwards, with this
// package and with net/http on the connection between them. The client is part of each.
func BenchmarkForward(b *testing.B) {
	answer := []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"0123456789"}]}}`)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	})
	owner, other := mustBench(b), mustBench(b)
	owner.lease.Store(&lease{id: "owner", until: time.Now().Add(time.Hour)})
	other.lease.Store(&lease{id: "other", until: time.Now().Add(time.Hour)})
	other.know([]row{{id: "owner", address: owner.o.Listener.Addr().String(), left: time.Hour}}, "other", time.Now())
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	background := func(net.Listener) context.Context { return context.Background() }
	go owner.Serve(ctx, handler, background, func() time.Duration { return 0 })
	library := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "https", owner.o.Listener.Addr().String(), r.In.Host
			r.Out.Header.Set(headerHop, "owner "+r.In.RemoteAddr)
		},
		Transport: &http.Transport{TLSClientConfig: other.hop.tls, MaxIdleConnsPerHost: 100},
	}
	for _, c := range []struct {
		name    string
		handler http.Handler
	}{
		{"direct", handler},
		{"forwarded", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := other.Forward(w, r, nil, "owner"); err != nil {
				b.Error(err)
			}
		})},
		{"forwarded by net-http", library},
	} {
		b.Run(c.name, func(b *testing.B) { ask(b, c.handler) })
	}
}

// ask sends requests to a server with the handler.
func ask(b *testing.B, handler http.Handler) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := &http1.Server{HTTP: &http.Server{Handler: handler}}
	go s.Serve(l)
	defer s.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	request := []byte("POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789\r\nContent-Type: application/json\r\n" +
		"Accept: application/json, text/event-stream\r\nMcp-Session-Id: 0123456789012345678901234567890123456789\r\n" +
		"Mcp-Protocol-Version: 2025-11-25\r\nContent-Length: 2\r\n\r\n{}")
	reader := bufio.NewReader(c)
	begin := used()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(request); err != nil {
			b.Fatal(err)
		}
		resp, err := http.ReadResponse(reader, nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			b.Fatal(resp, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	b.ReportMetric(float64((used()-begin).Microseconds())/float64(b.N), "cpu-µs/op")
}

// used returns the CPU time of this process.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// mustBench returns a member without a database.
func mustBench(b *testing.B) *Member {
	b.Helper()
	key, err := seal.NewKey(make([]byte, seal.SecretSize))
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	m, err := New(Options{Key: key, Listener: l, Advertise: "127.0.0.1:0", Changed: func() {}, Log: authtest.Log(b),
		Shared: func([]byte) (string, error) { return "", nil }, WriteTimeout: time.Minute, MaxHeader: 64 << 10})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close() })
	return m
}
