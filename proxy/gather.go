package proxy

import (
	"context"
	"net"
	"net/http"
)

// Gather makes an http.Server that has a Server as its handler write an answer of more than 4 KiB, which is the size of its buffer, with one system call in place
// of two. It returns the listener that s should serve in place of l. Without it everything works as well.
func Gather(s *http.Server, l net.Listener) net.Listener {
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, gatheringKey{}, c)
	}
	return gatherListener{l, new(buffers)}
}

type gatheringKey struct{}

type gatherListener struct {
	net.Listener
	spare *buffers
}

func (l gatherListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		return &gathering{TCPConn: tcp, spare: l.spare}, nil
	}
	return c, err
}

// gathering is a connection that can hold back one small write, to make it together with the next. It belongs to the goroutine that answers.
type gathering struct {
	*net.TCPConn
	on    bool
	held  *[]byte // nil when nothing is
	spare *buffers
}

// gatherSize is that of the buffer of an http.Server.
const gatherSize = 4 << 10

// gatheringOf returns the connection of a request, or nil.
func gatheringOf(r *http.Request) *gathering {
	c, _ := r.Context().Value(gatheringKey{}).(*gathering)
	return c
}

func (c *gathering) Write(b []byte) (int, error) {
	switch {
	case c.held != nil:
		return c.release(b)
	case c.on && len(b) <= gatherSize:
		c.held = c.spare.take()
		*c.held = append((*c.held)[:0], b...)
		return len(b), nil
	}
	return c.TCPConn.Write(b)
}

// release writes what is held back and b.
func (c *gathering) release(b []byte) (int, error) {
	held := c.held
	c.held = nil
	parts := net.Buffers{*held, b}
	n, err := parts.WriteTo(c.TCPConn)
	n -= int64(len(*held))
	c.spare.put(held)
	return int(max(n, 0)), err
}

// together has write write an answer whole, and what it writes go out together.
func (c *gathering) together(w http.ResponseWriter, write func()) {
	c.on = true
	write()
	http.NewResponseController(w).Flush() // an error shows in the next write, if there is one
	c.on = false
	if c.held != nil {
		c.release(nil)
	}
}
