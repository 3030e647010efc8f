package signin

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream/upstreamtest"
)

// cable is a TCP listener in front of a Postgres, which can be cut.
type cable struct {
	net.Listener
	to    string // the folder of the socket
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

// mustCable returns a cable to the Postgres of the DSN, and the DSN of the cable.
func mustCable(t *testing.T, dsn string) (*cable, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	c := &cable{to: q.Get("host") + "/.s.PGSQL.5432"}
	if c.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); c.set(true) })
	go func() {
		for {
			from, err := c.Accept()
			if err != nil {
				return
			}
			go c.connect(from)
		}
	}()
	_, port, _ := net.SplitHostPort(c.Addr().String())
	q.Set("host", "127.0.0.1")
	q.Set("port", port)
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	return c, u.String()
}

func (c *cable) connect(from net.Conn) {
	to, err := (&net.Dialer{}).DialContext(context.Background(), "unix", c.to)
	c.mu.Lock()
	dead := c.cut || err != nil
	c.conns = append(c.conns, from)
	c.mu.Unlock()
	if dead {
		from.Close()
		return
	}
	go func() { io.Copy(to, from); to.Close() }()
	io.Copy(from, to)
	from.Close()
}

// set cuts or mends the cable.
func (c *cable) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}

// TestReadinessFollowsTheDatabase cuts the connection to Postgres: the proxy is not ready, says why,
// and is ready again by itself.
func TestReadinessFollowsTheDatabase(t *testing.T) {
	harness.Waits(t)
	line, dsn := mustCable(t, authtest.Schema(t))
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", fmt.Sprintf("storage: { driver: postgres, dsn: %q }\n", dsn))
	health := func() string {
		out, err := c.operate(t, "health")
		if (err == nil) != (out == "ready\n") {
			t.Errorf("junction health: %v, %s", err, out)
		}
		return out
	}
	enough := time.Now().Add(harness.Patience)
	for out := health(); out != "ready\n"; out = health() { // until each part was checked once
		if time.Now().After(enough) {
			t.Fatalf("at first: %s", out)
		}
	}
	line.set(true)
	c.Stderr.MustMatch(t, regexp.MustCompile(`msg="a part that Junction depends on fails" part=storage ready=false`),
		harness.Patience, c.Done)
	if out := health(); !strings.HasPrefix(out, "junction: not ready: unavailable; storage: ") {
		t.Errorf("without the database: %s", out)
	}
	line.set(false)
	c.Stderr.MustMatch(t, regexp.MustCompile(`msg="a part that Junction depends on works again" part=storage`),
		harness.Patience, c.Done)
	if out := health(); out != "ready\n" {
		t.Errorf("with the database again: %s", out)
	}
}
