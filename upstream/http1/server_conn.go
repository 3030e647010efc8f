package http1

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// after this time, a request is watched: it ends when its client disconnects
	watchAfter = 20 * time.Millisecond
	// bytes that must arrive after a request before they count as the next request: fewer may be
	// only line breaks, which a client may send after a body (RFC 9112, section 2.2)
	minNext = 4
	// bytes of a body that are read after the handler has returned, so that the connection can go
	// on
	maxUnread  = 256 << 10
	lingerTime = 500 * time.Millisecond // time for a response to reach a client that still sends
	idleSlack  = 10 * time.Second       // maximum delay of closing an idle connection
)

// conn is one connection. Its goroutine is serve; during a long request there is a second one,
// watch.
type conn struct {
	net.Conn
	server *Server
	// the context of all requests; ends with the connection, or when the client disconnects
	ctx    context.Context
	cancel context.CancelFunc
	// template for the requests, including ctx, which can only be set by a copy
	base  *http.Request
	state atomic.Int32

	first      *[]byte   // a buffer from the server's pool; nil while buffer is a larger one
	buffer     []byte    // first, or a larger one for as long as it is needed
	start, end int       // buffer[start:end] was read and is not used yet
	last       *head     // of the previous request; after a long one, only the method
	deadline   time.Time // the current read deadline
	timed      bool      // the time limit for the request has started
	held       held      // memory of an unfinished request

	header  http.Header // of responses
	writing time.Time   // the current write deadline

	watcher  *time.Timer
	awaited  bool       // the watcher was started for this request
	watching sync.Mutex // guards over, and the read deadline while watch may set it
	over     bool       // the request has ended: watch need not begin
	watched  chan struct{}
	ahead    []byte // the byte that watch has read, if any
	lost     bool   // the client has disconnected
}

// States of a connection.
const (
	idling  int32 = iota // waits for a request
	working              // handles a request
	closed               // closed by closeIfIdle
)

func newConn(s *Server, ctx context.Context, nc net.Conn) *conn {
	c := &conn{Conn: nc, server: s, watched: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.WithValue(ctx, http.LocalAddrContextKey, nc.LocalAddr()))
	c.base = (&http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(c.ctx)
	c.held.by, _ = nc.(Holder)
	// on some systems, a client that has already disconnected has no address
	if a := nc.RemoteAddr(); a != nil {
		c.base.RemoteAddr = a.String()
	}
	return c
}

// closeIfIdle closes the connection if it is idle.
func (c *conn) closeIfIdle() {
	if c.state.CompareAndSwap(idling, closed) {
		c.Conn.Close()
	}
}

// serve handles requests until one is not plain, or the connection ends.
func (c *conn) serve() {
	defer c.server.remove(c)
	defer c.cancel()
	c.small()
	for {
		h, is := c.next()
		if is == notPlain {
			c.Conn.SetDeadline(time.Time{})
			c.server.handOver(&begun{Conn: c.Conn, read: append([]byte(nil), c.buffer[c.start:c.end]...),
				held: c.held, first: c.last == nil, reading: true})
			break
		}
		if is == partial || !c.answer(h) {
			c.Conn.Close()
			break
		}
	}
	if c.first != nil {
		c.server.buffers.Put(c.first)
	}
}

// small makes the buffer the small one.
func (c *conn) small() {
	if c.first == nil {
		c.first = c.server.buffers.Get().(*[]byte)
	}
	c.buffer = *c.first
}

// next returns the head of the next request; partial means that there is none. While next waits,
// closeIfIdle may close the connection.
func (c *conn) next() (*head, headKind) {
	c.state.Store(idling)
	if c.server.shut.Load() {
		return nil, partial
	}
	h, is := c.head()
	if is == plain && !c.held.set(0, false) || is != partial && !c.state.CompareAndSwap(idling, working) {
		return nil, partial
	}
	return h, is
}

// head reads the head of the next request; partial means that it did not arrive.
func (c *conn) head() (*head, headKind) {
	c.timed = false
	least := 1
	if c.last != nil {
		least = minNext
	}
	for c.end-c.start < least {
		if !c.idle() {
			return nil, partial
		}
	}
	if c.last != nil && c.last.method == http.MethodPost {
		c.start += minNext - len(bytes.TrimLeft(c.buffer[c.start:c.start+minNext], "\r\n"))
	}
	for looked := 0; ; {
		text := c.buffer[c.start:c.end]
		n, is := find(text, looked)
		switch {
		case is == plain && n <= c.server.maxHead():
			h := c.last
			if h == nil || string(text[:n]) != h.text {
				var ok bool
				if h, ok = parse(string(text[:n]), true); !ok {
					return nil, notPlain
				}
				if c.last = h; n > firstBuffer {
					// the method alone would keep the whole text in memory
					c.last = &head{method: strings.Clone(h.method)}
				}
			}
			c.start += n
			return h, plain
		case is != partial || len(text) >= c.server.maxHead():
			return nil, notPlain
		}
		if lines := bytes.LastIndexByte(text, '\n') + 1; lines > looked {
			// reject early: the client may wait for the error response
			if _, ok := parse(string(text[:lines]), false); !ok {
				return nil, notPlain
			}
		}
		looked = len(text)
		if !c.room() {
			return nil, partial
		}
		if _, err := c.read(nil); err != nil {
			return nil, partial
		}
	}
}

// idle waits for the first bytes of the next request. It returns false if the connection must be
// closed.
func (c *conn) idle() bool {
	some := c.buffer[c.start:c.end]
	c.small() // idle connections use the small buffer to save memory
	c.start, c.end = 0, copy(c.buffer, some)
	if !c.held.set(0, false) {
		return false
	}
	wait, more := c.server.HTTP.IdleTimeout, idleSlack
	if wait == 0 || c.last == nil {
		wait, more = c.server.HTTP.ReadTimeout, 0
	}
	// not for each request, because setting a timer takes time
	if left := time.Until(c.deadline); wait > 0 && (left < wait || left > wait+more) {
		c.setReadDeadline(time.Now().Add(wait + more))
	} else if wait <= 0 && !c.deadline.IsZero() {
		c.setReadDeadline(time.Time{})
	}
	n, err := atLeastOne(c.Conn, c.buffer[c.end:])
	c.end += n
	return err == nil
}

// atLeastOne reads at least one byte, unless there is an error.
func atLeastOne(r io.Reader, p []byte) (n int, err error) {
	for n == 0 && err == nil {
		n, err = r.Read(p)
	}
	return n, err
}

// room makes room in the buffer for more of a head. It returns false if the connection was closed.
func (c *conn) room() bool {
	size := len(c.buffer)
	full := c.end == size
	if full && c.start == 0 {
		size = maxHead
	}
	if !c.held.set(size, c.last == nil) {
		return false
	}
	switch {
	case !full:
	case c.start > 0:
		c.end = copy(c.buffer, c.buffer[c.start:c.end])
		c.start = 0
	default:
		larger := make([]byte, maxHead)
		copy(larger, c.buffer)
		c.server.buffers.Put(c.first)
		c.first, c.buffer = nil, larger
	}
	return true
}

// read reads more of a request, into p or, if p is nil, into the buffer. The time limit for the
// request applies.
func (c *conn) read(p []byte) (int, error) {
	if !c.timed {
		c.timed = true
		var limit time.Time
		if timeout := c.server.HTTP.ReadTimeout; timeout > 0 {
			limit = time.Now().Add(timeout)
		}
		c.setReadDeadline(limit)
	}
	if p != nil {
		return c.Conn.Read(p)
	}
	n, err := c.Conn.Read(c.buffer[c.end:])
	c.end += n
	return n, err
}

func (c *conn) setReadDeadline(t time.Time) {
	c.deadline = t
	c.Conn.SetReadDeadline(t) // an error shows in the next read
}

// answer calls the handler. It returns false if the connection must be closed.
func (c *conn) answer(h *head) (more bool) {
	type parts struct {
		request http.Request
		url     url.URL
		body    body
		reply   response
	}
	x := &parts{request: *c.base, url: url.URL{Path: h.path}, body: body{conn: c, left: h.length}}
	r := &x.request
	r.Method, r.URL, r.RequestURI, r.Host = h.method, &x.url, h.path, h.host
	r.Header, r.ContentLength, r.Body = h.header, h.length, &x.body
	x.reply.begin(c, &x.body)
	c.awaited = false
	if h.length == 0 {
		r.Body = http.NoBody
		c.await()
	}
	defer func() {
		if problem := recover(); problem != nil {
			if problem != http.ErrAbortHandler { //nolint // the value itself, as net/http has it
				c.server.logf("http1: panic answering %s: %v\n%s", c.base.RemoteAddr, problem, debug.Stack())
			}
			more, x.body.closed = false, true
		}
		x.reply.end()
	}()
	c.server.handler.ServeHTTP(&x.reply, r)
	x.body.closed = true
	c.unwatch()
	if !x.reply.finish() {
		c.linger(&x.body)
		return false
	}
	// A client that has closed its sending side may still read, and the buffer may contain more of
	// its requests. As in net/http, they are answered with the ended context. After the last of
	// them, or if the client is gone, the next read or write fails.
	return x.body.discard()
}

// linger lets a response reach a client that is still sending. Closing at once would reset the
// connection and lose the response. linger reads at most maxUnread bytes.
func (c *conn) linger(b *body) {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && b.left > 0 && !c.lost {
		half.CloseWrite()
		end := time.Now().Add(lingerTime)
		c.Conn.SetReadDeadline(end)
		if _, err := io.CopyN(io.Discard, c.Conn, maxUnread); err == nil {
			time.Sleep(time.Until(end))
		}
	}
}

// await starts the watcher, for requests that take long. The request must have been read
// completely.
func (c *conn) await() {
	c.awaited, c.over = true, false
	if c.watcher == nil {
		c.watcher = time.AfterFunc(watchAfter, c.watch)
		return
	}
	c.watcher.Reset(watchAfter)
}

// watch cancels the context if the client disconnects. It runs on its own goroutine, at most until
// unwatch.
func (c *conn) watch() {
	defer func() { c.watched <- struct{}{} }()
	c.watching.Lock()
	if c.over {
		c.watching.Unlock()
		return
	}
	c.Conn.SetReadDeadline(time.Time{})
	c.watching.Unlock()
	b := make([]byte, 1)
	n, err := atLeastOne(c.Conn, b)
	if c.ahead = b[:n]; n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		return // another request arrived early, or this one was answered
	}
	c.lost = true
	c.cancel()
}

// unwatch stops what await has started.
func (c *conn) unwatch() {
	if !c.awaited || c.watcher.Stop() {
		c.awaited = false
		return
	}
	c.watching.Lock()
	c.over = true
	c.setReadDeadline(time.Unix(1, 0))
	c.watching.Unlock()
	<-c.watched
	c.awaited = false
	if len(c.ahead) > 0 {
		// then space in front was used, at least by the head of the request
		if c.end == len(c.buffer) {
			c.end = copy(c.buffer, c.buffer[c.start:c.end])
			c.start = 0
		}
		c.end += copy(c.buffer[c.end:], c.ahead)
		c.ahead = nil
	}
}

// body is the body of one request and is not reused. A handler that keeps it cannot read from the
// next request.
type body struct {
	conn   *conn
	left   int64
	closed bool
}

func (b *body) Read(p []byte) (int, error) {
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.read(p)
}

// read returns io.EOF together with the last bytes.
func (b *body) read(p []byte) (n int, err error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	c := b.conn
	p = p[:min(int64(len(p)), b.left)]
	if c.start < c.end {
		n = copy(p, c.buffer[c.start:c.end])
		c.start += n
	} else {
		n, err = c.read(p)
	}
	if b.left -= int64(n); b.left == 0 {
		c.await()
		return n, io.EOF
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

// discard reads the rest of the body. It returns false if no other request can follow.
func (b *body) discard() bool {
	if b.left == 0 {
		return true
	}
	if c := b.conn; c.first == nil && !c.held.set(2*len(c.buffer), false) { // the buffer, and the head as a string
		return false
	}
	_, err := io.Copy(io.Discard, io.LimitReader(unread{b}, maxUnread))
	b.conn.unwatch()
	return err == nil && b.left == 0
}

// unread reads the rest of a closed body.
type unread struct{ *body }

func (u unread) Read(p []byte) (int, error) { return u.read(p) }
