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
// call, reads the response, and parses only what is needed (client_response.go). https, HTTP/2 and
// proxies stay with http.Transport.
//
// It is an http.RoundTripper for requests whose body has a known length. Close of a response's body
// before its end closes the connection.
type Client struct {
	// Dial opens a connection.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu   sync.Mutex
	idle []*clientConn // the last used at the end
	reap *time.Timer   // closes what was idle for too long; nil while nothing is idle
}

const (
	maxIdle         = 60 * time.Second
	maxResponseHead = 64 << 10 // of a response, and of the trailer of one
	responseBuffer  = 16 << 10 // so that a common answer is read with its header
	oneWrite        = 64 << 10 // a request up to this size is written at once
	maxInterim      = 8        // 1xx responses before the real one
	refusalWait     = time.Second
	provenUses      = 3 // answers after which a server is known to keep its connections open,
	// and for how long that is taken for granted: it could close as well while our request is under
	// way
	freshIdle = time.Millisecond
)

// clientConn is one connection. It belongs to an Exchange or to the idle connections of the Client.
type clientConn struct {
	net.Conn
	address string
	r       *bufio.Reader
	w       []byte // for the head of a request
	head    []byte // for the head of a response
	alive   func() bool
	since   time.Time // it is idle
	used    int       // how often it was idle
	place   int       // in its group
}

// Abort breaks off whatever is being read or written.
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

// Group is the exchanges with one server, which can be aborted together.
type Group struct {
	Client  *Client
	Address string          // host and port
	Closing context.Context // dialing ends with it

	mu      sync.Mutex
	conns   []*clientConn // in use; each knows its place
	aborted bool
}

// Do sends a request and returns when the head of its response is there, without its Header: that
// is x's. more replaces fields of the same name, and is not kept. x may be used again after the
// response's body was closed.
func (g *Group) Do(ctx context.Context, x *Exchange, r *http.Request, more []Field) (*http.Response, error) {
	c, err := g.Client.take(ctx, g.Closing, g.Address)
	if err != nil {
		return nil, err
	}
	x.group, x.conn, x.fields, x.reusable = g, c, nil, false
	if aborted := g.add(c); !x.take(c) || aborted {
		x.finish(false)
		return nil, context.Canceled
	}
	resp := &x.response
	if err := c.roundTrip(r, more, x); err != nil {
		x.finish(false)
		return nil, err
	}
	x.content, x.reusable = contentOf(resp, c.r), !resp.Close
	resp.Body = x
	if x.left == 0 {
		x.finish(true)
	}
	return resp, nil
}

// Abort aborts all exchanges of the group, and those that begin later.
func (g *Group) Abort() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.aborted = true
	for _, c := range g.conns {
		c.abort()
	}
}

// add notes that an exchange uses the connection, and remove that it does not any more. Both report
// whether the group was aborted, and the connection with it.
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

// roundTrip writes the request and reads the head of the answer into x.
func (c *clientConn) roundTrip(r *http.Request, more []Field, x *Exchange) error {
	w, err := c.header(r, more)
	if err != nil {
		return err
	}
	if err := c.send(w, r); err != nil {
		// A server that refuses a large body says so before it has read it.
		c.SetReadDeadline(time.Now().Add(refusalWait))
		if c.receive(x) != nil {
			return err
		}
		x.response.Close = true
		return nil
	}
	return c.receive(x)
}

// header makes the head of a request; more replaces fields of the same name, and the last of
// several counts.
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

// appendRequestField appends a line of a header; false means that it would be none, or several.
func appendRequestField(w []byte, name, value string) ([]byte, bool) {
	for i := range len(name) {
		if !tokenBytes[name[i]] {
			return w, false
		}
	}
	for i := range len(value) {
		if c := value[i]; c == '\r' || c == '\n' || c == 0 {
			return w, false
		}
	}
	return append(append(append(append(w, name...), ": "...), value...), "\r\n"...), name != ""
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

// receive reads the head of the answer.
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
		case resp.StatusCode == http.StatusSwitchingProtocols: // the rest is not HTTP, and was not requested
			return notHTTP("it switches protocols")
		}
	}
	return errors.New("too many interim answers")
}

// Exchange is a request and its response, whose body it is. At the end of the body the
// connection goes back to the pool. The zero value is ready for use. Only Abort and Aborted may be
// called by other goroutines than the one that uses it.
type Exchange struct {
	content
	response http.Response // without its Header
	fields   []Field       // which these are
	few      [8]Field
	group    *Group
	conn     *clientConn // nil when it was given back
	reusable bool

	mu     sync.Mutex
	taken  *clientConn // conn; nil when it was given back
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

// Abort makes all reads and writes of the exchange fail, now and later.
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

// take gives the exchange its connection; false means that it was aborted.
func (x *Exchange) take(c *clientConn) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.taken = c
	return !x.broken
}

// giveBack takes the connection from the exchange; false means that the exchange was aborted, and
// the connection with it.
func (x *Exchange) giveBack() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.taken = nil
	return !x.broken
}

func (x *Exchange) Read(p []byte) (int, error) {
	if x.conn == nil {
		return 0, io.EOF
	}
	n, err := x.content.Read(p)
	if err != nil {
		x.finish(err == io.EOF)
	}
	return n, err
}

// Close closes the connection if the body was not read to its end.
func (x *Exchange) Close() error {
	x.finish(false)
	return nil
}

// finish gives the connection back if it can be used again, and closes it otherwise.
func (x *Exchange) finish(whole bool) {
	c := x.conn
	if c == nil {
		return
	}
	x.conn = nil
	aborted := x.group.remove(c) // then the connection was, perhaps just now
	if x.giveBack() && whole && x.reusable && !aborted && c.r.Buffered() == 0 {
		x.group.Client.put(c)
		return
	}
	c.Close()
}

// take returns an idle connection that the server has not closed meanwhile, or a new one.
//
// A new one is dialed until ctx or closing ends.
func (t *Client) take(ctx, closing context.Context, address string) (*clientConn, error) {
	for {
		c := t.pop(address)
		if c == nil {
			return t.open(ctx, closing, address)
		}
		if c.used >= provenUses && time.Since(c.since) < freshIdle || c.alive() {
			return c, nil
		}
		c.Close()
	}
}

// pop takes the idle connection that was used last.
func (t *Client) pop(address string) *clientConn {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := len(t.idle) - 1; i >= 0; i-- {
		if c := t.idle[i]; c.address == address {
			t.idle = append(t.idle[:i], t.idle[i+1:]...)
			return c
		}
	}
	return nil
}

func (t *Client) open(ctx, closing context.Context, address string) (*clientConn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(closing, cancel)()
	n, err := t.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &clientConn{Conn: n, address: address, r: bufio.NewReaderSize(n, responseBuffer), alive: livenessOf(n)}, nil
}

func (t *Client) put(c *clientConn) {
	c.since = time.Now()
	c.used++
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idle = append(t.idle, c)
	if t.reap == nil {
		t.reap = time.AfterFunc(maxIdle, t.closeOld)
	}
}

// closeOld closes what has been idle for too long.
func (t *Client) closeOld() {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := 0
	for old < len(t.idle) && time.Since(t.idle[old].since) >= maxIdle {
		t.idle[old].Close()
		old++
	}
	t.idle = append(t.idle[:0], t.idle[old:]...)
	if len(t.idle) == 0 {
		t.reap = nil
		return
	}
	t.reap.Reset(max(time.Second, maxIdle-time.Since(t.idle[0].since)))
}

// CloseIdleConnections closes the connections that no request uses.
func (t *Client) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.idle {
		c.Close()
	}
	t.idle = nil
	if t.reap != nil {
		t.reap.Stop()
		t.reap = nil
	}
}
