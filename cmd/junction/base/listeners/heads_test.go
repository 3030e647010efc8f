package listeners

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/upstream/http1"
)

// ended is a connection that knows whether it was closed.
type ended struct {
	net.Conn
	address string
	closed  bool
}

func (e *ended) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(e.address))
}
func (e *ended) Close() error { e.closed = true; return nil }

// queue is a listener whose connections come from the addresses in it.
type queue struct{ conns []*ended }

func (q *queue) Accept() (net.Conn, error) {
	if len(q.conns) == 0 {
		return nil, net.ErrClosed
	}
	c := q.conns[0]
	q.conns = q.conns[1:]
	return c, nil
}
func (q *queue) Close() error   { return nil }
func (q *queue) Addr() net.Addr { return &net.TCPAddr{} }

// heads is a bound listener whose unfinished requests may hold 64 KiB: 16 of one network, 32 of a /48.
type heads struct {
	t    *testing.T
	l    *queue
	b    *Bounded
	text *bytes.Buffer
}

func newHeads(t *testing.T) *heads {
	h := &heads{t: t, l: &queue{}, text: new(bytes.Buffer)}
	trusted := func() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} }
	h.b = Bound(h.l, 4096, 48, 64<<10, trusted, authtest.Log(t, h.text))
	return h
}

func (h *heads) open(address string) *countedConn {
	h.t.Helper()
	h.l.conns = append(h.l.conns, &ended{address: address + ":1000"})
	c, err := h.b.Accept()
	if err != nil {
		h.t.Fatal(err)
	}
	var _ http1.Holder = c.(*countedConn)
	return c.(*countedConn)
}

// closed returns which of the connections were closed.
func closed(conns []*countedConn) (list []int) {
	for i, c := range conns {
		if c.Conn.(*ended).closed {
			list = append(list, i)
		}
	}
	return list
}

// TestLongestWaitingIsClosed: beyond the share of an address the connection of that address that waits
// longest is closed, as often as needed, and the log says so once. A request that was complete, and one
// of another address, are not affected.
func TestLongestWaitingIsClosed(t *testing.T) {
	h := newHeads(t)
	other := h.open("198.51.100.8")
	other.Hold(4<<10, true)
	var conns []*countedConn
	for range 8 {
		conns = append(conns, h.open("198.51.100.7"))
	}
	hold := func(i, n int, want bool, gone ...int) {
		t.Helper()
		if got := conns[i].Hold(n, false); got != want {
			t.Errorf("connection %d with %d bytes goes on: %t", i, n, got)
		}
		if is := closed(conns); !slices.Equal(is, gone) {
			t.Errorf("when %d has %d bytes, %v are closed, want %v", i, n, is, gone)
		}
	}
	for i := range 4 {
		hold(i, 4<<10, true)
	}
	hold(0, 0, true) // its request is complete
	hold(0, 4<<10, true)
	hold(4, 4<<10, true, 1)
	hold(5, 8<<10, true, 1, 2, 3)
	hold(1, 0, false, 1, 2, 3)
	hold(1, 100, false, 1, 2, 3)
	hold(5, 12<<10, true, 0, 1, 2, 3) // 4 began after 0
	hold(5, 8<<10, true, 0, 1, 2, 3)  // less
	hold(6, 4<<10, true, 0, 1, 2, 3)
	hold(4, 8<<10, false, 0, 1, 2, 3, 4) // it waits longest itself
	hold(7, 20<<10, false, 0, 1, 2, 3, 4, 5, 6, 7)
	if other.Conn.(*ended).closed || !other.Hold(0, false) {
		t.Error("the connection of another address was closed")
	}
	if text := h.text.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "unfinished requests") ||
		!strings.Contains(text, "address=198.51.100.7:1000 limit=16384") {
		t.Errorf("the log has:\n%s", text)
	}
	if n := h.b.all; n.now.held != 0 || n.holding.Len() != 0 {
		t.Errorf("%d bytes of %d connections are held", n.now.held, n.holding.Len())
	}
}

// TestHeadsAreSharedByNetwork: a network, a /48, and all have their share. This machine and trusted proxies
// have no share of their own, and those of others stay as they are.
func TestHeadsAreSharedByNetwork(t *testing.T) {
	for _, tt := range []struct {
		name    string
		address func(i int) string
		most    int // connections with 4 KiB that stay
	}{
		{"an IPv4 address", func(int) string { return "198.51.100.7" }, 4},
		{"an IPv4 address in IPv6", func(int) string { return "[::ffff:198.51.100.7]" }, 4},
		{"a /64", func(i int) string { return fmt.Sprintf("[2001:db8::%x]", i+1) }, 4},
		{"a /48", func(i int) string { return fmt.Sprintf("[2001:db8:1:%x::1]", i+1) }, 8},
		{"many addresses", func(i int) string { return fmt.Sprintf("198.51.100.%d", i+1) }, 16},
		{"this machine", func(int) string { return "127.0.0.1" }, 16},
		{"a trusted proxy", func(int) string { return "10.1.2.3" }, 16},
	} {
		h := newHeads(t)
		var conns []*countedConn
		for i := range 40 {
			conns = append(conns, h.open(tt.address(i)))
			if !conns[i].Hold(4<<10, true) {
				t.Errorf("%s: connection %d was closed at once", tt.name, i)
			}
		}
		if gone := closed(conns); len(gone) != 40-tt.most || gone[len(gone)-1] != 40-tt.most-1 {
			t.Errorf("%s: %v are closed, want the first %d", tt.name, gone, 40-tt.most)
		}
		next := h.open("203.0.113.9")
		if !next.Hold(16<<10, true) || !next.Hold(0, false) {
			t.Errorf("%s: another address has no place", tt.name)
		}
		for _, c := range append(conns, next) {
			c.Close()
			c.Close()
		}
		if len(h.b.by) > 0 || h.b.all.now != (share{}) || h.b.all.holding.Len() > 0 {
			t.Errorf("%s: after the end, these count: %v, %+v", tt.name, h.b.by, h.b.all.now)
		}
	}
}

// TestLargeFirstHeadNeedsRoom: the first request of a connection may hold more than 16 KiB if nobody has
// to be closed for it. Otherwise the connection itself is closed.
func TestLargeFirstHeadNeedsRoom(t *testing.T) {
	for _, first := range []bool{true, false} {
		h := newHeads(t)
		waits := []*countedConn{}
		for i := range 4 {
			waits = append(waits, h.open(fmt.Sprintf("198.51.100.%d", i)))
			waits[i].Hold(12<<10, true)
		}
		large := h.open("127.0.0.1") // with 16 KiB of room
		if !large.Hold(16<<10, first) {
			t.Fatal("there was room")
		}
		large.Hold(0, false)
		if ok := large.Hold(17<<10, first); ok == first || len(closed(waits)) != map[bool]int{true: 0, false: 1}[first] {
			t.Errorf("first %t: it goes on: %t, and %v are closed", first, ok, closed(waits))
		}
		small := h.open("127.0.0.1")
		small.Hold(12<<10, true)
		if !small.Hold(16<<10, true) {
			t.Errorf("first %t: 16 KiB have no place", first)
		}
	}
	h := newHeads(t)
	if c := h.open("127.0.0.1"); !c.Hold(60<<10, true) {
		t.Error("60 KB have no place, although nothing else is held")
	}
}

// FuzzHolds: whatever the connections hold, no share is exceeded, the sums are right, and a connection
// is closed only for its own network or for all.
func FuzzHolds(f *testing.F) {
	f.Add([]byte{0, 10, 1, 200, 2, 16, 3, 32, 0, 0, 1, 255, 17, 64, 33, 64, 2, 3})
	f.Add(bytes.Repeat([]byte{5, 16, 6, 16, 7, 17, 69, 16, 133, 64}, 20))
	f.Fuzz(func(t *testing.T, steps []byte) {
		h := newHeads(t)
		addresses := []string{"198.51.100.7", "198.51.100.8", "[2001:db8:1:1::1]", "[2001:db8:1:2::1]", "[2001:db8:1:3::1]",
			"127.0.0.1", "10.1.1.1", "203.0.113.9"}
		var conns []*countedConn
		for i := range 32 {
			conns = append(conns, h.open(addresses[i%len(addresses)]))
		}
		for ; len(steps) >= 2; steps = steps[2:] {
			i, n := int(steps[0])%len(conns), int(steps[1])<<10/4
			c := conns[i]
			before := closed(conns)
			if steps[0] >= 250 {
				c.Close()
				c = h.open(addresses[i%len(addresses)])
				conns[i], before = c, slices.DeleteFunc(before, func(k int) bool { return k == i })
			}
			ok := c.Hold(n, steps[0] >= 128)
			if gone := c.Conn.(*ended).closed; ok == gone {
				t.Fatalf("Hold returns %t, and the connection is closed: %t", ok, gone)
			}
			if ok && c.held != n {
				t.Fatalf("%d bytes are held, want %d", c.held, n)
			}
			held, all := map[*use]int{}, 0
			for _, c := range conns {
				for _, u := range c.uses {
					held[u] += c.held
				}
				all += c.held
			}
			for u, n := range held {
				if n != u.now.held || n > u.most.held {
					t.Fatalf("%v has %d bytes, counted as %d, of %d", u.network, n, u.now.held, u.most.held)
				}
			}
			if all != h.b.all.now.held {
				t.Fatalf("%d bytes are held, counted as %d", all, h.b.all.now.held)
			}
			for _, k := range closed(conns) {
				if conns[k].held != 0 || len(conns[k].places) > 0 {
					t.Fatal("a closed connection holds something")
				}
				if steps[0] >= 128 && n > firstHead && k != i && !slices.Contains(before, k) {
					t.Fatal("a large first head closed another connection")
				}
			}
		}
	})
}
