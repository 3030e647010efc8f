package authtest

import (
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Gate passes connections to Postgres on, until a test closes it: the database is away then.
type Gate struct {
	DSN string // goes through the gate

	real, dir string
	mu        sync.Mutex
	conns     []net.Conn
	l         net.Listener
}

// MustGate returns an open gate to the Postgres of a DSN with a socket of Unix, as that of Schema.
func MustGate(t testing.TB, dsn string) *Gate {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	dir, err := os.MkdirTemp("", "gate") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	g := &Gate{real: filepath.Join(q.Get("host"), ".s.PGSQL.5432"), dir: dir}
	t.Cleanup(func() { g.Close(); os.RemoveAll(dir) })
	q.Set("host", dir)
	u.RawQuery = q.Encode()
	g.DSN = u.String()
	g.MustOpen(t)
	return g
}

// MustOpen opens a closed gate.
func (g *Gate) MustOpen(t testing.TB) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(g.dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	g.l = l
	go func() { // until Close
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("unix", g.real)
			if err != nil {
				c.Close()
				continue
			}
			g.mu.Lock()
			g.conns = append(g.conns, c, there)
			g.mu.Unlock()
			for _, ends := range [][2]net.Conn{{c, there}, {there, c}} {
				go func() { _, _ = io.Copy(ends[0], ends[1]); ends[0].Close() }()
			}
		}
	}()
}

// Close ends all connections, and accepts none.
func (g *Gate) Close() {
	g.l.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		c.Close()
	}
	g.conns = nil
}
