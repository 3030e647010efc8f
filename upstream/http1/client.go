package http1

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Client sends HTTP/1.1 requests over TCP, for servers with an http URL. http.Transport passes
// every request to a writing goroutine and every response to a reading one, which took a quarter of
// the CPU time of a small call. Here the caller's own goroutine writes the request in one system
// call, reads the response, and parses only the necessary parts (client_response.go). https, HTTP/2
// and proxies use http.Transport.
//
// It is an http.RoundTripper for requests whose body has a known length. The connection of a response
// is used again after its body was read to the end and closed. Closing the body before its end closes
// the connection, and so does Abort before Close: the caller may have read that the response belongs to
// another request.
type Client struct {
	// Dial opens a connection.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// MaxIdle is how long an unused connection is kept, unless the server closes them earlier by its own
	// word; 0 means a minute.
	MaxIdle time.Duration

	mu   sync.Mutex
	idle []*clientConn // the most recently used last
	reap *time.Timer   // closes old connections; nil while none is idle
	// requests that are dialing
	waiting []*waiter
}

const (
	maxResponseHead = 64 << 10 // bytes of a response's head, and of its trailer
	responseBuffer  = 16 << 10 // large enough to read a typical response with its header
	oneWrite        = 64 << 10 // a request up to this size is written at once
	maxInterim      = 8        // 1xx responses before the final one
	// how long to wait for the response of a server that has stopped reading a request
	rejectionWait = time.Second
)

// clientConn is one connection. It belongs to an Exchange or to the idle connections of the Client.
type clientConn struct {
	net.Conn
	address string
	r       *bufio.Reader
	w       []byte // for the head of a request
	head    []byte // for the head of a response
	alive   func(idle time.Duration) bool
	limit   time.Duration // of the idle time
	since   time.Time     // start of the idle time
	used    int           // number of times it was idle
	place   int           // index in the group's conns
}

// abort makes all current reads and writes fail.
func (c *clientConn) abort() { c.SetDeadline(time.Unix(1, 0)) }

// RoundTrip implements http.RoundTripper. (*Group).Do is faster.
func (t *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	port := cmp.Or(r.URL.Port(), "80")
	g := &Group{Client: t, Address: net.JoinHostPort(r.URL.Hostname(), port), Closing: context.Background()}
	x := new(Exchange)
	stop := context.AfterFunc(r.Context(), x.Abort)
	resp, err := g.Do(r.Context(), x, r, nil)
	if err != nil {
		stop()
		return nil, err
	}
	resp.Request, resp.Header = r, x.Header()
	return resp, nil
}

// Group contains the exchanges with one server. Abort ends all of them.
type Group struct {
	Client  *Client
	Address string          // host and port
	Closing context.Context // its end aborts dialing

	mu      sync.Mutex
	conns   []*clientConn // in use; each has its index in place
	aborted bool
}

// Do sends a request and returns when the head of the response has arrived. The response has no
// Header; x returns its fields. more replaces fields of the same name, and is not kept. x may be
// reused after the response's body was closed.
func (g *Group) Do(ctx context.Context, x *Exchange, r *http.Request, more []Field) (*http.Response, error) {
	c, err := g.Client.take(ctx, g.Closing, g.Address)
	if err != nil {
		return nil, err
	}
	x.group, x.conn, x.fields, x.reusable, x.whole = g, c, nil, false, false
	if aborted := g.add(c); !x.hold(c) || aborted {
		x.finish(false)
		return nil, context.Canceled
	}
	resp := &x.response
	if err := c.roundTrip(r, more, x); err != nil {
		x.finish(false)
		return nil, err
	}
	if value := x.Get("Keep-Alive"); value != "" {
		if limit := KeepAlive(value); limit > 0 {
			c.limit = min(limit, g.Client.limit())
		}
	}
	x.content, x.reusable = contentOf(resp, c.r), !resp.Close
	resp.Body = x
	if x.left == 0 {
		x.finish(true)
	}
	return resp, nil
}

// Abort aborts all current and future exchanges of the group.
func (g *Group) Abort() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.aborted = true
	for _, c := range g.conns {
		c.abort()
	}
}

// add registers a connection that an exchange uses, and remove unregisters it. Both report whether
// the group, and with it the connection, was aborted.
func (g *Group) add(c *clientConn) (aborted bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.place = len(g.conns)
	g.conns = append(g.conns, c)
	return g.aborted
}

func (g *Group) remove(c *clientConn) (aborted bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := len(g.conns) - 1
	g.conns[c.place] = g.conns[last]
	g.conns[c.place].place = c.place
	g.conns[last] = nil
	g.conns = g.conns[:last]
	return g.aborted
}

// roundTrip writes the request and reads the head of the response into x.
func (c *clientConn) roundTrip(r *http.Request, more []Field, x *Exchange) error {
	w, err := c.header(r, more)
	if err != nil {
		return err
	}
	if err := c.send(w, r); err != nil {
		// A server that rejects a large body responds before it has read the body.
		c.SetReadDeadline(time.Now().Add(rejectionWait))
		if c.receive(x) != nil {
			return err
		}
		x.response.Close = true
		return nil
	}
	return c.receive(x)
}

// header builds the head of a request. more replaces fields of the same name; the last one wins.
func (c *clientConn) header(r *http.Request, more []Field) ([]byte, error) {
	w := append(append(c.w[:0], r.Method...), ' ')
	w = append(append(w, r.URL.RequestURI()...), " HTTP/1.1\r\nHost: "...)
	w = append(append(w, r.Host...), "\r\n"...)
	ok := true
	for name, values := range r.Header {
		if hasField(more, name) {
			continue
		}
		for _, v := range values {
			if w, ok = appendRequestField(w, name, v); !ok {
				return nil, fmt.Errorf("the header %q cannot be sent", name)
			}
		}
	}
	for i, f := range more {
		if hasField(more[i+1:], f.Name) {
			continue
		}
		if w, ok = appendRequestField(w, f.Name, f.Value); !ok {
			return nil, fmt.Errorf("the header %q cannot be sent", f.Name)
		}
	}
	if r.Body != nil {
		w = append(strconv.AppendInt(append(w, "Content-Length: "...), r.ContentLength, 10), "\r\n"...)
	}
	w = append(w, "\r\n"...)
	c.w = w
	return w, nil
}

// hasField reports whether one of the fields has that name.
func hasField(fields []Field, name string) bool {
	for _, f := range fields {
		if len(f.Name) == len(name) && strings.EqualFold(f.Name, name) {
			return true
		}
	}
	return false
}

// appendRequestField appends a header line. It returns false if the name or value is not valid.
func appendRequestField(w []byte, name, value string) ([]byte, bool) {
	if !IsToken(name) || strings.IndexByte(value, '\r') >= 0 || strings.IndexByte(value, '\n') >= 0 ||
		strings.IndexByte(value, 0) >= 0 {
		return w, false
	}
	return append(append(append(append(w, name...), ": "...), value...), "\r\n"...), true
}

// send writes the head and the body.
func (c *clientConn) send(w []byte, r *http.Request) error {
	if r.Body == nil {
		_, err := c.Conn.Write(w)
		return err
	}
	if r.ContentLength > oneWrite {
		if _, err := c.Conn.Write(w); err != nil {
			return err
		}
		_, err := io.Copy(c.Conn, r.Body)
		return err
	}
	for {
		if len(w) == cap(w) {
			w = append(w, 0)[:len(w)]
		}
		n, err := r.Body.Read(w[len(w):cap(w)])
		w = w[:len(w)+n]
		if err == io.EOF {
			break
		} else if err != nil {
			return err
		}
	}
	if cap(w) <= 2*oneWrite {
		c.w = w
	}
	_, err := c.Conn.Write(w)
	return err
}

// receive reads the head of the response.
func (c *clientConn) receive(x *Exchange) (err error) {
	resp := &x.response
	for range maxInterim {
		*resp = http.Response{}
		if x.fields, err = readResponseHead(c.r, &c.head, resp, x.few[:0]); err != nil {
			return err
		}
		switch {
		case resp.StatusCode >= 200:
			return nil
		// the bytes after this response are not HTTP, and the request has not asked for that
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return notHTTP("it switches protocols")
		case x.Interim != nil:
			x.Interim()
		}
	}
	return errors.New("too many interim answers")
}

// Exchange is a request and its response; it is also the response's body. After the end of the body,
// Close returns the connection to the pool. The zero value is ready for use. Only Abort and Aborted may
// be called concurrently.
type Exchange struct {
	Interim func() // called for each interim response (1xx); may be nil
	content
	response http.Response // without its Header
	fields   []Field       // the fields of the header
	few      [8]Field
	group    *Group
	conn     *clientConn // nil after it was returned
	reusable bool
	whole    bool // the body was read to its end

	mu     sync.Mutex
	taken  *clientConn // same as conn; nil after it was returned
	broken bool
}

// Get returns a field of the response's header; name is canonical. Header returns all of them.
func (x *Exchange) Get(name string) string {
	for _, f := range x.fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

func (x *Exchange) Header() http.Header { return headerOf(x.fields) }

// Abort makes all current and later reads and writes of the exchange fail.
func (x *Exchange) Abort() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.broken = true
	if x.taken != nil {
		x.taken.abort()
	}
}

// Aborted reports whether Abort was called.
func (x *Exchange) Aborted() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.broken
}

// hold sets the connection of the exchange. It returns false if the exchange was aborted.
func (x *Exchange) hold(c *clientConn) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.taken = c
	return !x.broken
}

// giveBack removes the connection from the exchange. It returns false if the exchange, and with it
// the connection, was aborted.
func (x *Exchange) giveBack() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.taken = nil
	return !x.broken
}

func (x *Exchange) Read(p []byte) (int, error) {
	if x.conn == nil || x.whole {
		return 0, io.EOF
	}
	n, err := x.content.Read(p)
	if x.whole = err == io.EOF; err != nil && !x.whole {
		x.finish(false)
	}
	return n, err
}

// Close closes the connection if the body was not read to its end, or if the exchange was aborted.
// Otherwise the connection returns to the pool.
func (x *Exchange) Close() error {
	x.finish(x.whole)
	return nil
}

// finish returns the connection to the pool if it can be reused, and closes it otherwise.
func (x *Exchange) finish(whole bool) {
	c := x.conn
	if c == nil {
		return
	}
	x.conn = nil
	aborted := x.group.remove(c) // the connection may have been aborted with the group
	if x.giveBack() && whole && x.reusable && !aborted && c.r.Buffered() == 0 {
		x.group.Client.put(c)
		return
	}
	c.Close()
}
