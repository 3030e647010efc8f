package load

import (
	"net"
	"strings"
	"sync"
	"testing"
)

// Relay is an address that passes connections on to another one, until it is told otherwise.
type Relay struct {
	Address string
	target  string

	mu     sync.Mutex
	closed bool // new connections end at once
	mute   bool // what is sent goes nowhere, and nothing comes back
	open   map[net.Conn]struct{}
}

// MustRelay starts a relay, which ends with the test. The target is an address of TCP, or the path of a
// UNIX socket.
func MustRelay(t testing.TB, target string) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{Address: l.Addr().String(), target: target, open: map[net.Conn]struct{}{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { r.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		r.Close()
		all.Wait()
	})
	return r
}

// Cut ends all connections. New ones are served.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.open {
		c.Close()
	}
}

// Close ends all connections, also new ones, until Open.
func (r *Relay) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.Cut()
}

// Mute loses all that is sent from now on, as a network does that is gone, until Open.
func (r *Relay) Mute() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mute = true
}

// Open ends Close and Mute. Connections that have lost something end.
func (r *Relay) Open() {
	r.mu.Lock()
	lost := r.mute
	r.closed, r.mute = false, false
	r.mu.Unlock()
	if lost {
		r.Cut()
	}
}

func (r *Relay) serve(client net.Conn) {
	defer client.Close()
	network := "tcp"
	if strings.HasPrefix(r.target, "/") {
		network = "unix"
	}
	server, err := net.Dial(network, r.target)
	if err != nil {
		return
	}
	defer server.Close()
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	r.open[client], r.open[server] = struct{}{}, struct{}{}
	r.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { r.pass(server, client) })
	both.Go(func() { r.pass(client, server) })
	both.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, client)
	delete(r.open, server)
}

// pass copies from one connection to the other until one ends, and then ends both.
func (r *Relay) pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		r.mu.Lock()
		mute := r.mute
		r.mu.Unlock()
		if mute {
			continue
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}
