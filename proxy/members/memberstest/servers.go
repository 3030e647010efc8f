package memberstest

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"

	"junction/proxy/front"
)

// Wanted returns the number of processes behind the address of each junction in the test's
// process: JUNCTION_TEST_MEMBERS, or else 1.
func Wanted() int {
	n, err := strconv.Atoi(os.Getenv("JUNCTION_TEST_MEMBERS"))
	if err != nil {
		return 1
	}
	return n
}

// Servers are the members of a junction: servers of the same endpoints, behind one address that
// sends each request to the next one. A junction of one member is that server itself.
type Servers struct {
	All       []*front.Server
	Members   []*Member // nil for one server
	listeners []*httptest.Server

	mu   sync.Mutex
	turn int
	down map[int]bool // by index
}

// Prepare makes n servers, which have the key in common.
func (c *Servers) Prepare(t testing.TB, n int, o front.Options) {
	t.Helper()
	c.down = map[int]bool{}
	cluster := NewCluster()
	for range n {
		if n > 1 {
			m := cluster.Member(t)
			c.Members, o.Members = append(c.Members, m), m
		}
		c.All = append(c.All, front.New(o))
	}
}

// Listen starts to serve and returns the base URL of all.
func (c *Servers) Listen() string {
	for i, s := range c.All {
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
		for c.turn++; c.down[c.turn%len(c.All)]; c.turn++ {
		}
		to := c.Members[c.turn%len(c.All)]
		c.mu.Unlock()
		if pass(to.transport, w, r.Clone(r.Context()), to.url) != nil {
			panic(http.ErrAbortHandler)
		}
	}))
	c.listeners = append(c.listeners, front)
	return front.URL
}

// Each calls f for each server.
func (c *Servers) Each(f func(*front.Server)) {
	for _, s := range c.All {
		f(s)
	}
}

// Close ends what listen has started. The servers must have ended.
func (c *Servers) Close() {
	for _, ts := range c.listeners {
		ts.CloseClientConnections()
	}
	for _, ts := range c.listeners {
		ts.Close()
	}
}

// Shutdown shuts all servers down.
func (c *Servers) Shutdown() { c.Each((*front.Server).Shutdown) }

// At returns the URL of one member.
func (c *Servers) At(i int) string { return c.listeners[i].URL + "/mcp" }

// Down takes a member out of the rotation.
func (c *Servers) Down(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down[i] = true
}

// Crash ends a member as kill -9 does: its connections break, and its lease ends.
func (c *Servers) Crash(i int) {
	c.Down(i)
	c.listeners[i].Listener.Close()
	c.listeners[i].CloseClientConnections()
	c.All[i].Shutdown()
	c.All[i].Kill()
	c.Members[i].Leave()
}
