package harness

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"

	"junction/proxy"
)

// Replicated returns the number of processes behind the address of each junction in the test's
// process: JUNCTION_TEST_MEMBERS, or else 1.
func Replicated() int {
	n, err := strconv.Atoi(os.Getenv("JUNCTION_TEST_MEMBERS"))
	if err != nil {
		return 1
	}
	return n
}

// Replicas are the members of a junction: servers of the same endpoints, behind one address that
// sends each request to the next one. A junction of one member is that server itself.
type Replicas struct {
	Servers   []*proxy.Server
	Members   []*Replica // nil for one server
	listeners []*httptest.Server

	mu   sync.Mutex
	turn int
	down map[int]bool // by index
}

// prepare makes n servers, which have the key in common.
func (c *Replicas) prepare(t *testing.T, n int, o proxy.Options) {
	t.Helper()
	c.down = map[int]bool{}
	cluster := NewCluster()
	for range n {
		if n > 1 {
			m := cluster.Replica(t)
			c.Members, o.Members = append(c.Members, m), m
		}
		s, err := proxy.New(o)
		if err != nil {
			t.Fatal(err)
		}
		c.Servers = append(c.Servers, s)
	}
}

// listen starts to serve and returns the base URL of all.
func (c *Replicas) listen() string {
	for i, s := range c.Servers {
		if c.Members == nil {
			c.listeners = append(c.listeners, httptest.NewServer(s))
			break
		}
		ts := httptest.NewServer(c.Members[i].Handler(s))
		c.listeners = append(c.listeners, ts)
		c.Members[i].Join(ts.URL)
	}
	if c.Members == nil {
		return c.listeners[0].URL
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		for c.turn++; c.down[c.turn%len(c.Servers)]; c.turn++ {
		}
		to := c.Members[c.turn%len(c.Servers)]
		c.mu.Unlock()
		if pass(to.transport, w, r.Clone(r.Context()), to.url) != nil {
			panic(http.ErrAbortHandler)
		}
	}))
	c.listeners = append(c.listeners, front)
	return front.URL
}

// each calls f for each server.
func (c *Replicas) each(f func(*proxy.Server)) {
	for _, s := range c.Servers {
		f(s)
	}
}

// close ends what listen has started. The servers must have ended.
func (c *Replicas) close() {
	for _, ts := range c.listeners {
		ts.CloseClientConnections()
	}
	for _, ts := range c.listeners {
		ts.Close()
	}
}

// Shutdown shuts all servers down.
func (c *Replicas) Shutdown() { c.each((*proxy.Server).Shutdown) }

// At returns the URL of one member.
func (c *Replicas) At(i int) string { return c.listeners[i].URL + "/mcp" }

// Down takes a member out of the rotation.
func (c *Replicas) Down(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down[i] = true
}

// Crash ends a member as kill -9 does: its connections break, and its lease ends.
func (c *Replicas) Crash(i int) {
	c.Down(i)
	c.listeners[i].Listener.Close()
	c.listeners[i].CloseClientConnections()
	c.Servers[i].Shutdown()
	c.Servers[i].Kill()
	c.Members[i].Leave()
}
