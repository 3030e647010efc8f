package listeners

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
)

// calls is a listener whose connections come from the addresses sent to it. The address "full" stands
// for no descriptor that is left.
type calls chan string

// from is a connection with the address of its client.
type from struct {
	net.Conn
	address net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.address }
func (f from) Close() error         { return nil }

func (l calls) Accept() (net.Conn, error) {
	select {
	case address, open := <-l:
		if !open {
			return nil, net.ErrClosed
		}
		if address == "full" {
			return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
		}
		return from{address: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))}, nil
	default:
		return nil, errors.New("no client is left") // a test fails, and does not wait
	}
}

func (l calls) Close() error   { close(l); return nil }
func (l calls) Addr() net.Addr { return &net.TCPAddr{} }

// TestConnectionsAreBoundByAddress: one address gets a quarter of the connections, others are let in
// beside it, and a proxy and this machine are not bound by their address.
func TestConnectionsAreBoundByAddress(t *testing.T) {
	text := new(bytes.Buffer)
	l := make(calls, 1000)
	trusted := func() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} }
	b := Bound(l, 256, 48, 64<<10, trusted, authtest.Log(t, text))
	const total, each = 192, 48
	var open []net.Conn
	ring := func(n int, address string) {
		for range n {
			l <- address
		}
	}
	take := func() net.Conn {
		t.Helper()
		if len(b.open) == cap(b.open) {
			t.Fatalf("all %d connections are open", len(b.open))
		}
		c, err := b.Accept()
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
		return c
	}
	ring(each+10, "198.51.100.7:1000")
	ring(1, "198.51.100.8:1000")
	for range each {
		take()
	}
	if c := take(); c.RemoteAddr().String() != "198.51.100.8:1000" {
		t.Errorf("after %d connections of one address comes %v, want that of another", each, c.RemoteAddr())
	}
	if !strings.Contains(text.String(), "too many from one address") || strings.Count(text.String(), "\n") != 1 {
		t.Errorf("the log has:\n%s", text)
	}
	open[0].Close()
	open[0].Close()
	ring(2, "198.51.100.7:1000")
	ring(70, "10.1.2.3:1000")
	ring(70, "127.0.0.1:1000")
	for range 1 + 70 + 70 {
		take()
	}
	accepted := make(chan error)
	ring(total-(each+1+70+70), "127.0.0.1:1000")
	for range total - (each + 1 + 70 + 70) {
		take()
	}
	ring(1, "198.51.100.9:1000")
	go func() { _, err := b.Accept(); accepted <- err }()
	waits := make(chan string)
	go func() {
		for {
			if why, since := b.Waits(); why != "" && !since.IsZero() {
				waits <- why
				return
			}
			runtime.Gosched()
		}
	}()
	select {
	case err := <-accepted:
		t.Fatalf("a connection above the total: %v", err)
	case why := <-waits:
		if why != allOpen {
			t.Errorf("a connection waits because of %q", why)
		}
	}
	if f := b.Figures(); f.Open != total || f.Limit != total || !f.Waiting || f.Closed["too_many"] != 11 || f.Closed["unfinished"] != 0 {
		t.Errorf("the figures of a full house are %+v", f)
	}
	open[1].Close()
	if err := <-accepted; err != nil {
		t.Errorf("after another has ended: %v", err)
	}
	if text := text.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, allOpen) {
		t.Errorf("the log does not have one line for each event:\n%s", text)
	}
	if why, _ := b.Waits(); why != "" {
		t.Errorf("a connection was accepted, and others wait: %s", why)
	}
	go func() { _, err := b.Accept(); accepted <- err }()
	b.Close()
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// TestConnectionsWaitForDescriptors: without a descriptor new connections wait, and the figures show it for
// as long as the error is repeated, or until a connection is accepted.
func TestConnectionsWaitForDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := make(calls, 10)
		b := Bound(l, 256, 48, 64<<10, func() []netip.Prefix { return nil }, authtest.Log(t))
		var first time.Time
		for i := range 3 {
			time.Sleep(acceptAgain / 2)
			l <- "full"
			if _, err := b.Accept(); !errors.Is(err, syscall.EMFILE) {
				t.Fatalf("Accept without a descriptor: %v", err)
			}
			why, since := b.Waits()
			if i == 0 {
				first = since
			}
			if why != tooManyFiles || since != first || !b.Figures().Waiting {
				t.Errorf("after %d errors: %q since %v, want since %v", i+1, why, since, first)
			}
		}
		time.Sleep(acceptAgain)
		if why, _ := b.Waits(); why != "" {
			t.Errorf("a while after the last error: %q", why)
		}
		l <- "full"
		l <- "127.0.0.1:1"
		_, _ = b.Accept()
		if _, err := b.Accept(); err != nil || b.Figures().Waiting {
			t.Errorf("after a connection (%v): %+v", err, b.Figures())
		}
	})
}

// TestConnectionsAreBoundByNetwork: a /64 of IPv6 gets a quarter of the connections, and a /48 a half,
// however many addresses it has. Connections that have ended do not count.
func TestConnectionsAreBoundByNetwork(t *testing.T) {
	l := make(calls, 1000)
	b := Bound(l, 256, 48, 64<<10, func() []netip.Prefix { return nil }, authtest.Log(t))
	const total, each, wide = 192, 48, 96
	for range 2 {
		for i := range 3 * each {
			l <- fmt.Sprintf("[2001:db8:1:2::%x]:1000", i)
		}
		for i := range 3 * wide {
			l <- fmt.Sprintf("[2001:db8:1:%x::1]:1000", i+16)
		}
		l <- "[2001:db8:2::1]:1000"
		var open []net.Conn
		for last := ""; last != "[2001:db8:2::1]:1000"; last = open[len(open)-1].RemoteAddr().String() {
			if len(open) == total {
				t.Fatalf("all %d connections are open, the last one of %s", total, last)
			}
			c, err := b.Accept()
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
		if len(open) != wide+1 || open[each-1].RemoteAddr().String() != fmt.Sprintf("[2001:db8:1:2::%x]:1000", each-1) ||
			open[each].RemoteAddr().String() != "[2001:db8:1:10::1]:1000" {
			t.Errorf("%d connections of two networks are open, want %d of a /48 and one of another", len(open), wide)
		}
		for _, c := range open {
			c.Close()
		}
		if len(b.by) > 0 {
			t.Errorf("without connections these count: %v", b.by)
		}
	}
}

// TestFewDescriptorsLeaveEnoughForOwnFiles: with a low limit, clients get what Junction itself does not
// need. With too low a limit, Junction does not start, and says which one it needs.
func TestFewDescriptorsLeaveEnoughForOwnFiles(t *testing.T) {
	for _, tt := range []struct {
		files     int64
		upstreams int
		clients   int
		warns     bool
		err       string
	}{
		{files: 1024, upstreams: 1, clients: 768},
		{files: 64, upstreams: 1, clients: 16},
		{files: 100, upstreams: 4, clients: 34},
		{files: 256, upstreams: 20, clients: 94},
		{files: 100, upstreams: 20, clients: leastConns, warns: true},
		{files: 0, upstreams: 20, clients: 1 << 20},
		{files: 63, upstreams: 1, err: "only 63 files may be open at once (ulimit -n), and Junction needs 64; raise the limit"},
		{files: 32, upstreams: 4, err: "Junction needs 82"},
	} {
		text := new(bytes.Buffer)
		log := authtest.Log(t, text)
		own, err := CheckFiles(tt.files, tt.upstreams, log)
		if err != nil || tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%d files for %d upstreams: %v, want %q", tt.files, tt.upstreams, err, tt.err)
			}
			continue
		}
		b := Bound(make(calls), tt.files, own, 64<<10, nil, log)
		if cap(b.open) != tt.clients {
			t.Errorf("%d files for %d upstreams leave %d to clients, want %d", tt.files, tt.upstreams, cap(b.open), tt.clients)
		}
		if warned := strings.Contains(text.String(), "few files"); warned != tt.warns {
			t.Errorf("%d files for %d upstreams: warned %v, want %v", tt.files, tt.upstreams, warned, tt.warns)
		}
	}
}

// TestAdminHasDescriptorsInReserve: where none are left, the admin address still accepts, and has its
// reserve again when a connection has ended.
func TestAdminHasDescriptorsInReserve(t *testing.T) {
	l := make(calls, 100)
	r := Reserve(l)
	defer r.Close()
	for range 3 {
		for range spareFiles {
			l <- "full"
			l <- "127.0.0.1:1"
		}
		var open []net.Conn
		for range spareFiles {
			c, err := r.Accept()
			if err != nil {
				t.Fatalf("with a reserve: %v", err)
			}
			open = append(open, c)
		}
		l <- "full"
		if _, err := r.Accept(); !errors.Is(err, syscall.EMFILE) {
			t.Errorf("without a reserve: %v", err)
		}
		open[0].Close()
	}
}
