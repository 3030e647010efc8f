package upstreamtest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"

	"junction/upstream/transport"
)

// Cable is a network of one server inside a synctest bubble, where time is the test's own: a
// connection is a net.Pipe.
type Cable struct {
	conns chan net.Conn
	down  chan struct{} // closed at the end
	end   sync.Once

	mu  sync.Mutex
	all []net.Conn
	off bool
	// no connection is accepted, and the open ones work
	refuses bool
}

func (c *Cable) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	c.mu.Lock()
	off, refuses := c.off, c.refuses
	c.mu.Unlock()
	switch {
	case off:
		return nil, errors.New("the cable is unplugged")
	case refuses:
		return nil, syscall.ECONNREFUSED
	}
	ours, theirs := net.Pipe()
	select {
	case c.conns <- theirs:
	case <-c.down:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, ours)
	return ours, nil
}

// Plug connects the network; unplugging breaks all connections.
func (c *Cable) Plug(in bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off = !in; c.off {
		for _, conn := range c.all {
			conn.Close()
		}
		c.all = nil
	}
}

// Refuse lets the server refuse new connections, and keep the open ones.
func (c *Cable) Refuse(refuses bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuses = refuses
}

// Accept implements net.Listener.
func (c *Cable) Accept() (net.Conn, error) {
	select {
	case conn := <-c.conns:
		return conn, nil
	case <-c.down:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (c *Cable) Close() error {
	c.end.Do(func() { close(c.down) })
	return nil
}

// Addr implements net.Listener.
func (c *Cable) Addr() net.Addr { return &net.UnixAddr{} }

// NewCable serves h until the end of the bubble.
func NewCable(t *testing.T, h http.Handler) (*Cable, *transport.Pool) {
	c := &Cable{conns: make(chan net.Conn), down: make(chan struct{})}
	srv := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(c)
	}()
	rt := transport.NewPool("https://server/mcp") // net/http notices that a pipe was closed
	rt.Dial = c.dial
	t.Cleanup(func() {
		rt.CloseIdleConnections()
		srv.Close()
		<-done
	})
	return c, rt
}
