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
	watchAfter = 20 * time.Millisecond // a request that takes longer ends when its client leaves
	// bytes that follow a request: what is less is no other one yet, but may be the line breaks of
	// RFC 9112, section 2.2
	fewest    = 4
	maxUnread = 256 << 10              // of a body that the handler did not want: more is not waited for
	lastWords = 500 * time.Millisecond // for an answer to reach a client that still sends
	late      = 10 * time.Second       // an idle connection may be closed so much later than it should
)

// conn is one connection. Its goroutine is serve; while a request takes long there is a second one,
// watch.
type conn struct {
	net.Conn
	server *Server
	ctx    context.Context // of all its requests; ends with the connection, or when the client leaves
	cancel context.CancelFunc
	base   *http.Request // what is the same in all of them, ctx included, which has no other way in without a copy
	doing  atomic.Int32

	first      *[]byte   // of the server's
	buffer     []byte    // that, or larger for as long as it takes
	start, end int       // what was read into it and not used yet
	last       *head     // of the request before; of a long one, no more than the method
	deadline   time.Time // of reading, as it was set last
	timed      bool      // the time runs in which the request has to arrive

	header  http.Header // of answers
	writing time.Time   // the deadline for it, as it was set last

	watcher  *time.Timer
	awaited  bool       // the watcher was started for this request
	watching sync.Mutex // guards over, and the read deadline as long as watch may set it
	over     bool       // the request is: who has not begun to watch need not
	watched  chan struct{}
	ahead    []byte // what watch has read: a byte or none
	lost     bool   // the client has left
}

// What a connection is doing.
const (
	resting int32 = iota // it waits for a request
	working              // it answers one
	closed               // rest has closed it
)

func newConn(s *Server, ctx context.Context, nc net.Conn) *conn {
	c := &conn{Conn: nc, server: s, watched: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.WithValue(ctx, http.LocalAddrContextKey, nc.LocalAddr()))
	c.base = (&http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(c.ctx)
	if a := nc.RemoteAddr(); a != nil { // on some systems a client that has left already has none
		c.base.RemoteAddr = a.String()
	}
	return c
}

// rest closes the connection if it waits for a request.
func (c *conn) rest() {
	if c.doing.CompareAndSwap(resting, closed) {
		c.Conn.Close()
	}
}

// serve answers requests until one is not plain, or there is no next.
func (c *conn) serve() {
	defer c.server.remove(c)
	defer c.cancel()
	c.first = c.server.buffer()
	c.buffer = *c.first
	for {
		h, is := c.next()
		if is == foreign {
			c.Conn.SetDeadline(time.Time{})
			c.server.handOver(&begun{Conn: c.Conn, read: append([]byte(nil), c.buffer[c.start:c.end]...)})
			break
		}
		if is == partial || !c.answer(h) {
			c.Conn.Close()
			break
		}
	}
	c.server.buffers.Put(c.first)
}

// next returns the head of the next request; partial means that there will be none. Until it is
// there, rest may close the connection.
func (c *conn) next() (*head, verdict) {
	c.doing.Store(resting)
	if c.server.ending.Load() {
		return nil, partial
	}
	h, is := c.head()
	if is != partial && !c.doing.CompareAndSwap(resting, working) {
		return nil, partial
	}
	return h, is
}

// head reads the head of the next request; partial means that it does not come.
func (c *conn) head() (*head, verdict) {
	c.timed = false
	least := 1
	if c.last != nil {
		least = fewest
	}
	for c.end-c.start < least {
		if !c.idle() {
			return nil, partial
		}
	}
	if c.last != nil && c.last.method == http.MethodPost {
		c.start += fewest - len(bytes.TrimLeft(c.buffer[c.start:c.start+fewest], "\r\n"))
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
					return nil, foreign
				}
				if c.last = h; n > firstBuffer {
					c.last = &head{method: strings.Clone(h.method)} // which is a piece of the text
				}
			}
			c.start += n
			return h, plain
		case is != partial || len(text) >= c.server.maxHead():
			return nil, foreign
		}
		if lines := bytes.LastIndexByte(text, '\n') + 1; lines > looked {
			if _, ok := parse(string(text[:lines]), false); !ok { // the client may wait for the error response
				return nil, foreign
			}
		}
		looked = len(text)
		c.room()
		if _, err := c.read(nil); err != nil {
			return nil, partial
		}
	}
}

// idle waits for the first bytes of the next request; false means that the connection is to be
// closed.
func (c *conn) idle() bool {
	some := c.buffer[c.start:c.end]
	c.buffer = *c.first // many wait, and who has said much once may not do so again
	c.start, c.end = 0, copy(c.buffer, some)
	wait, more := c.server.HTTP.IdleTimeout, late
	if wait == 0 || c.last == nil {
		wait, more = c.server.HTTP.ReadTimeout, 0
	}
	// not every time, which would be a timer set for each request
	if left := time.Until(c.deadline); wait > 0 && (left < wait || left > wait+more) {
		c.setReadDeadline(time.Now().Add(wait + more))
	} else if wait <= 0 && !c.deadline.IsZero() {
		c.setReadDeadline(time.Time{})
	}
	n, err := atLeastOne(c.Conn, c.buffer[c.end:])
	c.end += n
	return err == nil
}

// atLeastOne reads once, but does not return with nothing.
func atLeastOne(r io.Reader, p []byte) (n int, err error) {
	for n == 0 && err == nil {
		n, err = r.Read(p)
	}
	return n, err
}

// room makes room to read more of a head.
func (c *conn) room() {
	switch {
	case c.end < len(c.buffer):
	case c.start > 0:
		c.end = copy(c.buffer, c.buffer[c.start:c.end])
		c.start = 0
	default:
		larger := make([]byte, maxHead)
		copy(larger, c.buffer)
		c.buffer = larger
	}
}

// read reads more of a request, into p or else into the buffer, within the time that it has to
// arrive.
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

// answer has the handler answer a request; false means that the connection is to be closed.
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
				c.server.logf("plain: panic answering %s: %v\n%s", c.base.RemoteAddr, problem, debug.Stack())
			}
			more, x.body.closed = false, true
		}
		x.reply.end()
	}()
	c.server.HTTP.Handler.ServeHTTP(&x.reply, r)
	x.body.closed = true
	c.unwatch()
	if !x.reply.finish() {
		c.linger(&x.body)
		return false
	}
	if x.reply.then != nil {
		x.reply.then()
	}
	// A client that sends nothing more may still read, and other requests of it may be in the
	// buffer. They are answered as net/http does, with the context that has ended. After the last
	// of them, or where the client is gone, the next read or write fails.
	return x.body.discard()
}

// linger lets an answer reach a client that is still sending: closed at once, the connection would
// be reset, and the answer with it. It reads at most maxUnread bytes, however fast they come.
func (c *conn) linger(b *body) {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && b.left > 0 && !c.lost {
		half.CloseWrite()
		end := time.Now().Add(lastWords)
		c.Conn.SetReadDeadline(end)
		if _, err := io.CopyN(io.Discard, c.Conn, maxUnread); err == nil {
			time.Sleep(time.Until(end))
		}
	}
}

// await has the connection watched if the answer to the request, which has been read, takes long.
func (c *conn) await() {
	c.awaited, c.over = true, false
	if c.watcher == nil {
		c.watcher = time.AfterFunc(watchAfter, c.watch)
		return
	}
	c.watcher.Reset(watchAfter)
}

// watch ends the request when its client leaves. It is a goroutine, which ends with the request at
// the latest.
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
		return // another request comes before this one was answered, or it was answered
	}
	c.lost = true
	c.cancel()
}

// unwatch ends what await has begun.
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
		if c.end == len(c.buffer) { // then something in front of it was used: the head of the request, at least
			c.end = copy(c.buffer, c.buffer[c.start:c.end])
			c.start = 0
		}
		c.end += copy(c.buffer[c.end:], c.ahead)
		c.ahead = nil
	}
}

// body is that of one request, and not used for another: who keeps it reads nothing of the next
// one.
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

// read reports the end together with the last bytes.
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

// discard reads what the handler left; false means that there is no other request after it.
func (b *body) discard() bool {
	if b.left == 0 {
		return true
	}
	_, err := io.Copy(io.Discard, io.LimitReader(unread{b}, maxUnread))
	b.conn.unwatch()
	return err == nil && b.left == 0
}

// unread reads what is left of a body that was closed.
type unread struct{ *body }

func (u unread) Read(p []byte) (int, error) { return u.read(p) }
