package http1

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
)

// This file reports the memory that unfinished requests take, so that the listener can bound it.

// Holder is a connection whose listener bounds the memory of unfinished requests. If the connections
// that Serve accepts implement Holder, both servers report to it.
type Holder interface {
	// Hold reports that a request takes n bytes of memory while it waits for its client: for the rest of
	// its head, for the body of a request with a large head, or, after its handler, for the end of it.
	// Zero means that it no longer waits. first means that no request of the connection was complete
	// yet. Hold returns false if the listener has closed the connection to make room. The request must
	// not be handled then.
	Hold(n int, first bool) bool
}

// held is what a connection has reported.
type held struct {
	by Holder // nil: nothing is reported
	n  int
}

// set reports n bytes, unless they are the same as before. It returns false if the connection was closed.
func (h *held) set(n int, first bool) bool {
	if h.by == nil || n == h.n {
		return true
	}
	h.n = n
	return h.by.Hold(n, first)
}

// lineMemory is what net/http takes for a line of a header beside its bytes: short lines take most.
const lineMemory = 128

// begun is a connection of which a part was already read. It belongs to the http.Server. It gives that
// the bytes of one request at a time, so that nothing of the next head is in memory without being
// reported.
type begun struct {
	net.Conn
	read []byte
	held held

	first   bool // no request was complete yet
	reading bool // the head of a request, or nothing yet
	refused bool // the connection was closed when the head was complete
	cost    int  // the memory of the current head
	started bool // the head has a line
	text    bool // the current line of the head is not empty

	left int64 // bytes of the body; 0 if the length is unknown
	last bool  // the body may have been read beyond its end: no other request can follow
}

// Read implements net.Conn. Outside of heads, a read of one byte waits for the end of the connection,
// beside the handler.
func (c *begun) Read(p []byte) (int, error) {
	switch {
	case c.held.by == nil || !c.reading && len(p) <= 1:
		return c.next(p)
	case !c.reading && c.left == 0:
		c.last = true
		return c.next(p)
	case !c.reading:
		n, err := c.next(p[:min(int64(len(p)), c.left)])
		c.left -= int64(n)
		return n, err
	case c.cost > 0 && !c.held.set(c.cost+len(c.read), c.first):
		return 0, net.ErrClosed
	}
	n, err := c.next(p)
	if own := c.head(p[:n]); own < n {
		c.read = append(bytes.Clone(p[own:n]), c.read...)
		n = own
	}
	return n, err
}

// next reads bytes of any request.
func (c *begun) next(p []byte) (int, error) {
	if len(c.read) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.read)
	if c.read = c.read[n:]; len(c.read) == 0 {
		c.read = nil
	}
	return n, nil
}

// head returns how many bytes of p belong to the head, and adds their memory to the cost. If the bytes
// are no head for net/http, only the cost may be wrong.
func (c *begun) head(p []byte) int {
	for i := 0; i < len(p); {
		line, _, whole := bytes.Cut(p[i:], []byte("\n"))
		c.text = c.text || len(bytes.TrimRight(line, "\r")) > 0
		if i += len(line); !whole {
			break
		}
		i++
		c.cost += lineMemory
		if c.started && !c.text {
			c.cost += i
			return i
		}
		c.started, c.text = c.started || c.text, false
	}
	c.cost += len(p)
	return len(p)
}

// turn follows the states of the http.Server, on the goroutine that serves the connection.
func (c *begun) turn(state http.ConnState) {
	switch state {
	case http.StateActive: // the head is complete, or wrong
		c.reading = false
		if !c.held.set(0, false) {
			c.refused = true
			c.Close()
		}
	case http.StateIdle:
		if !c.held.set(0, false) || c.last {
			c.Close()
		}
		c.first, c.reading, c.cost, c.started, c.text, c.left = false, true, 0, false, false, 0
	}
}

// begunKey is the key of the context whose value is the *begun.
type begunKey struct{}

// follow lets the http.Server report what is held for its requests.
func follow(s *http.Server) {
	s.ConnState = func(c net.Conn, state http.ConnState) { c.(*begun).turn(state) }
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, begunKey{}, c)
	}
	handler := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := r.Context().Value(begunKey{}).(*begun)
		if c.refused {
			panic(http.ErrAbortHandler)
		}
		c.left = max(r.ContentLength, 0)
		if c.cost <= maxHead {
			handler.ServeHTTP(w, r)
			return
		}
		if r.ContentLength != 0 {
			r = r.WithContext(r.Context()) // a copy: net/http uses the body of its own
			r.Body = heldBody{r.Body, c}
		}
		handler.ServeHTTP(w, r)
		c.held.set(c.cost, false) // net/http sends the rest of the answer, and reads the rest of the body
	})
}

// heldBody reports the head of its request until the body has come.
type heldBody struct {
	io.ReadCloser
	conn *begun
}

func (b heldBody) Read(p []byte) (int, error) {
	if !b.conn.held.set(b.conn.cost, false) {
		return 0, net.ErrClosed
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil && !b.conn.held.set(0, false) {
		return 0, net.ErrClosed
	}
	return n, err
}

// CloseWrite lets the http.Server close the sending side.
func (c *begun) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}
