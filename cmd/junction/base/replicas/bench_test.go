//go:build unix

package replicas

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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
	other.setOthers([]row{{id: "owner", address: owner.o.Listener.Addr().String(), left: time.Hour}}, "other", time.Now())
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	background := func(net.Listener) context.Context { return context.Background() }
	go owner.Serve(ctx, handler, background)
	library := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "https", owner.o.Listener.Addr().String(), r.In.Host
			r.Out.Header.Set(headerHop, "owner "+r.In.RemoteAddr)
		},
		Transport: &http.Transport{TLSClientConfig: other.forwarder.tls, MaxIdleConnsPerHost: 100},
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

// BenchmarkStatements measures the statements of a member one after the other, with the CPU time of
// all processes of Postgres on this machine.
func BenchmarkStatements(b *testing.B) {
	for _, rows := range []int{10, 100, 1000} {
		w := mustWorld(b)
		w.ttl = time.Hour
		m := w.mustJoin(nil)
		for i := range rows {
			if _, err := w.store.Database().Exec(`INSERT INTO members SELECT $1, $1, fingerprint, digest, version, begun_at, expires_at
				FROM members LIMIT 1`, fmt.Sprint("member-with-a-long-id", i)); err != nil {
				b.Fatal(err)
			}
		}
		conn, err := pgx.Connect(b.Context(), w.dsn)
		if err != nil {
			b.Fatal(err)
		}
		one := limit{shares: 10}
		n := byte(0)
		for name, run := range map[string]func() error{
			"renew": func() error { _, _, err := m.renew(b.Context(), conn, m.Self()); return err },
			"list":  func() error { _, _, err := list(b.Context(), conn, nil, w.ttl); return err },
			"claim": func() error {
				n++
				session := [16]byte{n}
				rand.Read(session[1:])
				_, err := m.Owner(b.Context(), session, "ended", "", hourLater())
				return err
			},
			"once": func() error { _, err := m.Once(b.Context(), rand.Text(), hourLater()); return err },
			"share": func() error { // taken and given back
				h, done := m.holdings.use(limitOf{principal: "p"})
				defer done()
				for _, to := range []change{more, none} {
					if _, err := m.settle(b.Context(), h, one, to); err != nil {
						return err
					}
				}
				return nil
			},
		} {
			b.Run(fmt.Sprint(name, "/", rows), func(b *testing.B) {
				begin := usedByPostgres(b)
				for b.Loop() {
					if err := run(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64((usedByPostgres(b)-begin).Microseconds())/float64(b.N), "postgres-µs/op")
			})
		}
		conn.Close(b.Context())
	}
}

// usedByPostgres returns the CPU time of the running processes of Postgres, in steps of 10 ms.
func usedByPostgres(b *testing.B) (used time.Duration) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	for _, file := range files {
		used += cpuTime(file)
	}
	return used
}

// cpuTime returns the CPU time of a process of Postgres, by its file stat; 0 for other processes.
func cpuTime(file string) time.Duration {
	text, err := os.ReadFile(file)
	_, rest, found := strings.Cut(string(text), "(postgres) ")
	if err != nil || !found {
		return 0
	}
	var ticks [2]int64
	fields := strings.Fields(rest)
	_, _ = fmt.Sscan(fields[11], &ticks[0])
	_, _ = fmt.Sscan(fields[12], &ticks[1])
	return time.Duration(ticks[0]+ticks[1]) * 10 * time.Millisecond
}
