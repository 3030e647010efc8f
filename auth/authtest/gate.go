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
	direct    string
	held      sync.RWMutex // locked by Hold
	mu        sync.Mutex
	conns     []net.Conn
	l         net.Listener
}

// MustGate returns an open gate to the Postgres of a DSN with a socket of Unix, such as the DSN of Schema.
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
	g := &Gate{real: filepath.Join(q.Get("host"), ".s.PGSQL.5432"), dir: dir, direct: dsn}
	t.Cleanup(func() { g.Close(); os.RemoveAll(dir) })
	q.Set("host", dir)
	u.RawQuery = q.Encode()
	g.DSN = u.String()
	g.MustOpen(t)
	return g
}

// Real returns the DSN that does not go through the gate.
func (g *Gate) Real() string { return g.direct }

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
				go func() { _, _ = io.Copy(late{ends[0], g}, ends[1]); ends[0].Close() }()
			}
		}
	}()
}

// Hold keeps everything that is sent until Release, as a network does that loses packets: it arrives
// late, also what its sender has given up meanwhile.
func (g *Gate) Hold() { g.held.Lock() }

// Release ends Hold.
func (g *Gate) Release() { g.held.Unlock() }

// late is a connection whose data wait for the end of Hold.
type late struct {
	net.Conn
	gate *Gate
}

func (l late) Write(b []byte) (int, error) {
	l.gate.held.RLock()
	defer l.gate.held.RUnlock()
	return l.Conn.Write(b)
}

// ReadFrom hides the method ReadFrom of the connection, which would pass the data on at once.
func (l late) ReadFrom(r io.Reader) (int64, error) { return io.Copy(struct{ io.Writer }{l}, r) }

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
