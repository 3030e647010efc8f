package upstream

import (
	"bufio"
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

// plainTransport speaks HTTP/1.1 over TCP, for servers with an http URL. It is here because of its
// cost: http.Transport hands every request to one goroutine that writes and every answer to another
// that reads, which was a quarter of the CPU of a small call; here the caller's own goroutine
// writes the request in one system call and reads the answer, and parses no more of it than is
// needed (plain_response.go). https, HTTP/2 and proxies stay with http.Transport.
//
// It is an http.RoundTripper for requests whose body has a known length. Close of a response's body
// before its end closes the connection.
type plainTransport struct {
	mu   sync.Mutex
	idle []*plainConn // the last used at the end
	reap *time.Timer  // closes what was idle for too long; nil while nothing is idle
}

const (
	plainIdle      = 60 * time.Second
	plainHeader    = 64 << 10 // of a response, and of the trailer of one
	plainBuffer    = 16 << 10 // so that a common answer is read with its header
	plainOneWrite  = 64 << 10 // a request up to this size is written at once
	plainInterim   = 8        // 1xx responses before the real one
	plainLastWords = time.Second
	plainProven    = 3 // answers after which a server is known to keep its connections open,
	// and for how long that is taken for granted: it could close as well while our request is under
	// way
	plainFresh = time.Millisecond
)

// transportFor returns the pool of connections to the origin of a URL.
func transportFor(rawURL string) http.RoundTripper {
	r, err := http.NewRequest(http.MethodPost, rawURL, nil)
	if err == nil && r.URL.Scheme == "http" {
		if proxy, err := http.ProxyFromEnvironment(r); err == nil && proxy == nil {
			return new(plainTransport)
		}
	}
	return newTransport()
}

// plainConn is one connection. Whoever has it owns it: a request, or the pool.
type plainConn struct {
	net.Conn
	address string
	r       *bufio.Reader
	w       []byte // for the head of a request
	head    []byte // for the head of a response
	alive   func() bool
	since   time.Time // it is idle
	used    int       // how often it was idle
	place   int       // among those that its origin uses
}

// abort breaks off whatever is being read or written.
func (c *plainConn) abort() { c.SetDeadline(time.Unix(1, 0)) }

// RoundTrip implements http.RoundTripper. It is the slow way in; (*origin).plainTrip is the other.
func (t *plainTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	o := &origin{address: net.JoinHostPort(r.URL.Hostname(), port(r.URL))}
	o.ctx, o.cancel = context.WithCancelCause(context.Background())
	trip := new(trip)
	trip.stop = context.AfterFunc(r.Context(), trip.breakOff)
	resp, err := o.plainTrip(r.Context(), t, trip, r, nil)
	if err != nil {
		trip.stop()
		return nil, err
	}
	resp.Request, resp.Header = r, headerOf(trip.body.fields)
	return resp, nil
}

// roundTrip writes the request and reads the head of the answer into b.
func (c *plainConn) roundTrip(r *http.Request, more []HeaderField, b *plainBody) error {
	w, err := c.header(r, more)
	if err != nil {
		return err
	}
	if err := c.send(w, r); err != nil {
		// A server that refuses a large body says so before it has read it.
		c.SetReadDeadline(time.Now().Add(plainLastWords))
		if c.receive(b) != nil {
			return err
		}
		b.response.Close = true
		return nil
	}
	return c.receive(b)
}

// header makes the head of a request; more replaces fields of the same name, and the last of
// several counts.
func (c *plainConn) header(r *http.Request, more []HeaderField) ([]byte, error) {
	w := append(append(c.w[:0], r.Method...), ' ')
	w = append(append(w, r.URL.RequestURI()...), " HTTP/1.1\r\nHost: "...)
	w = append(append(w, r.Host...), "\r\n"...)
	ok := true
	for name, values := range r.Header {
		if hasField(more, name) {
			continue
		}
		for _, v := range values {
			if w, ok = appendField(w, name, v); !ok {
				return nil, fmt.Errorf("the header %q cannot be sent", name)
			}
		}
	}
	for i, f := range more {
		if hasField(more[i+1:], f.Name) {
			continue
		}
		if w, ok = appendField(w, f.Name, f.Value); !ok {
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
func hasField(fields []HeaderField, name string) bool {
	for _, f := range fields {
		if len(f.Name) == len(name) && strings.EqualFold(f.Name, name) {
			return true
		}
	}
	return false
}

// appendField appends a line of a header; false means that it would be none, or several.
func appendField(w []byte, name, value string) ([]byte, bool) {
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
func (c *plainConn) send(w []byte, r *http.Request) error {
	if r.Body == nil {
		_, err := c.Conn.Write(w)
		return err
	}
	if r.ContentLength > plainOneWrite {
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
	if cap(w) <= 2*plainOneWrite {
		c.w = w
	}
	_, err := c.Conn.Write(w)
	return err
}

// receive reads the head of the answer.
func (c *plainConn) receive(b *plainBody) (err error) {
	resp := &b.response
	for range plainInterim {
		*resp = http.Response{}
		if b.fields, err = readHead(c.r, &c.head, resp, b.few[:0]); err != nil {
			return err
		}
		switch {
		case resp.StatusCode >= 200:
			return nil
		case resp.StatusCode == http.StatusSwitchingProtocols: // what follows is no HTTP, and nobody asked for it
			return notHTTP("it switches protocols")
		}
	}
	return errors.New("too many interim answers")
}

// plainBody is the body of an answer; at its end the connection goes back to the pool.
type plainBody struct {
	content
	response http.Response // without its Header
	fields   []HeaderField // which these are
	few      [8]HeaderField
	pool     *plainTransport
	conn     *plainConn // nil when it was given back
	trip     *trip
	of       *origin
	reusable bool
}

func (b *plainBody) Read(p []byte) (int, error) {
	if b.conn == nil {
		return 0, io.EOF
	}
	n, err := b.content.Read(p)
	if err != nil {
		b.finish(err == io.EOF)
	}
	return n, err
}

func (b *plainBody) Close() error {
	b.finish(false)
	return nil
}

// finish gives the connection back if it can be used again, and closes it otherwise.
func (b *plainBody) finish(whole bool) {
	c := b.conn
	if c == nil {
		return
	}
	b.conn = nil
	closed := b.of.unuse(c) // then it was aborted, perhaps just now
	if b.trip.giveBack() && whole && b.reusable && !closed && c.r.Buffered() == 0 {
		b.pool.put(c)
		return
	}
	c.Close()
}

// take returns an idle connection that the server has not closed meanwhile, or a new one.
//
// A new one is dialed until ctx or closing ends.
func (t *plainTransport) take(ctx, closing context.Context, address string) (*plainConn, error) {
	for {
		c := t.pop(address)
		if c == nil {
			return dialPlain(ctx, closing, address)
		}
		if c.used >= plainProven && time.Since(c.since) < plainFresh || c.alive() {
			return c, nil
		}
		c.Close()
	}
}

// pop takes the idle connection that was used last.
func (t *plainTransport) pop(address string) *plainConn {
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

func dialPlain(ctx, closing context.Context, address string) (*plainConn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(closing, cancel)()
	n, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &plainConn{Conn: n, address: address, r: bufio.NewReaderSize(n, plainBuffer), alive: livenessOf(n)}, nil
}

func (t *plainTransport) put(c *plainConn) {
	c.since = time.Now()
	c.used++
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idle = append(t.idle, c)
	if t.reap == nil {
		t.reap = time.AfterFunc(plainIdle, t.closeOld)
	}
}

// closeOld closes what has been idle for too long.
func (t *plainTransport) closeOld() {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := 0
	for old < len(t.idle) && time.Since(t.idle[old].since) >= plainIdle {
		t.idle[old].Close()
		old++
	}
	t.idle = append(t.idle[:0], t.idle[old:]...)
	if len(t.idle) == 0 {
		t.reap = nil
		return
	}
	t.reap.Reset(max(time.Second, plainIdle-time.Since(t.idle[0].since)))
}

// CloseIdleConnections closes the connections that no request uses.
func (t *plainTransport) CloseIdleConnections() {
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
