// Package http1 serves HTTP/1.1 as an http.Server does, and sends requests as an http.Transport
// does, at about half the CPU time for the requests that make up nearly all of the traffic.
//
// Server serves plain requests. A plain request needs no interpretation: it is a POST with a
// Content-Length, or a GET or DELETE without a body. Its target is only a path. Its header fields
// are well-formed, and none of them changes how the connection is read. If any other bytes arrive,
// well-formed or not, the http.Server takes over the connection, with all bytes that were read and
// not yet answered, and keeps it. So this package never interprets a doubtful request, and never
// refuses one. Client sends requests to servers with an http URL, and reads their responses.
//
//	server.go           Server: its connections, which it accepts, counts, hands over and shuts down
//	server_conn.go      one connection: its requests in turn, idle time, and lost clients
//	server_head.go      decides whether a request is plain, and parses it
//	server_response.go  the response to a plain request
//	server_held.go      reports the memory of unfinished requests, in both servers
//	client.go           Client: sends a request on a connection
//	client_response.go  reads the response
//	pool.go             the idle connections of a Client
//	head.go             header lines, of requests and of responses
package http1

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Server serves a Handler. Its fields must not be changed after Serve was called.
//
// The Handler gets the same as from an http.Server, with these differences. The ResponseWriter has
// no Hijack and no ReadFrom, and sends interim responses without header fields. A disconnected client is detected no
// sooner than 20 ms after its request was read. Requests on one connection share their context,
// which ends with the connection and not with the request. They may also share their Header, which
// must not be changed. A request with a chunked body, or of HTTP/1.0, is the last one on its
// connection.
type Server struct {
	// HTTP serves all requests that are not plain. Its Handler, BaseContext, ReadTimeout,
	// WriteTimeout, IdleTimeout, MaxHeaderBytes and ErrorLog also apply to plain requests. Their
	// WriteTimeout is per write, and applies only until the handler sets its own deadline. Server
	// shuts HTTP down, and sets its ConnState and ConnContext; HTTP must not serve anything else.
	HTTP *http.Server

	handler  http.Handler // of plain requests
	mu       sync.Mutex
	listener net.Listener
	conns    map[*conn]struct{}
	// closed when conns is empty after the end; nil until Shutdown waits for it
	drained chan struct{}
	handed  handed
	ending  atomic.Bool // Shutdown or Close was called: each connection gets one more response at most
	shut    atomic.Bool // idle connections are closed, too

	buffers, memories sync.Pool // of *[]byte and *memory; Serve sets New
	today             atomic.Pointer[dated]
}

// Serve accepts connections until Shutdown or Close, and then returns http.ErrServerClosed. It
// closes the listener.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.ending.Load() {
		s.mu.Unlock()
		l.Close()
		return http.ErrServerClosed
	}
	s.listener, s.conns = l, map[*conn]struct{}{}
	s.buffers.New = func() any { return new(make([]byte, firstBuffer)) }
	s.memories.New = func() any { return new(memory) }
	if s.handler = s.HTTP.Handler; s.handler == nil {
		s.handler = http.DefaultServeMux
	}
	s.HTTP.Handler = lastIfChunked(s.handler)
	follow(s.HTTP)
	s.handed = handed{conns: make(chan net.Conn), closed: make(chan struct{}), address: l.Addr()}
	s.mu.Unlock()
	go s.HTTP.Serve(&s.handed) // until Shutdown or Close
	defer l.Close()
	ctx := context.Background()
	if s.HTTP.BaseContext != nil {
		ctx = s.HTTP.BaseContext(l)
	}
	ctx = context.WithValue(ctx, http.ServerContextKey, s.HTTP)
	var pause time.Duration
	for {
		c, err := l.Accept()
		if s.ending.Load() && err != nil {
			return http.ErrServerClosed
		}
		var temporary interface{ Temporary() bool }
		// a temporary error, such as too many open files
		if errors.As(err, &temporary) && temporary.Temporary() {
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.logf("http1: accept: %v; again in %v", err, pause)
			time.Sleep(pause)
			continue
		} else if err != nil {
			s.handed.Close()
			return err
		}
		pause = 0
		if c := newConn(s, ctx, c); s.add(c) {
			go c.serve()
		}
	}
}

// lastIfChunked makes a request with a chunked body the last one on its connection. If the request had
// a Content-Length, too, which net/http removes, a proxy in front may see another end of the request
// (RFC 9112, section 6.1). net/http also removes a Transfer-Encoding from a request of HTTP/1.0, so
// each of these is the last one. Plain requests have no such body, and are of HTTP/1.1.
func lastIfChunked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// add registers a connection. If the server is ending, it closes the connection instead.
func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut.Load() {
		c.Conn.Close()
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

// remove unregisters a connection that was closed or handed over.
func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.drained != nil && len(s.conns) == 0 {
		close(s.drained)
		s.drained = nil
	}
}

// handOver passes a connection to the http.Server.
func (s *Server) handOver(c net.Conn) {
	select {
	case s.handed.conns <- c:
	case <-s.handed.closed:
		c.Close()
	}
}

// idleLinger is how long Shutdown keeps idle connections open. A reverse proxy may just have sent a
// request on one: if it were closed, the proxy could not know whether the request was executed.
const idleLinger = 100 * time.Millisecond

// Shutdown closes the listener and, after idleLinger, the idle connections. It waits until the others
// have answered their requests. It returns ctx.Err() if ctx ends first, and can then be called again.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.end()
	drained := s.awaited()
	s.mu.Unlock()
	// HTTP still accepts connections that are handed over; each then gets one response
	s.HTTP.SetKeepAlivesEnabled(false)
	if drained != nil && !s.shut.Load() {
		linger := time.NewTimer(idleLinger)
		defer linger.Stop()
		select {
		case <-linger.C:
		case <-drained:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	s.shut.Store(true)
	drained = s.awaited()
	for c := range s.conns {
		c.closeIfIdle()
	}
	s.mu.Unlock()
	if drained != nil {
		select {
		case <-drained:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.HTTP.Shutdown(ctx) // after all that could be handed over
}

// awaited returns a channel that is closed when no connection is left; nil if none is left now. s.mu
// is held.
func (s *Server) awaited() chan struct{} {
	if len(s.conns) > 0 && s.drained == nil {
		s.drained = make(chan struct{})
	}
	return s.drained
}

// Close closes all connections at once.
func (s *Server) Close() error {
	s.mu.Lock()
	s.end()
	s.shut.Store(true)
	for c := range s.conns {
		c.Conn.Close()
	}
	s.mu.Unlock()
	return s.HTTP.Close()
}

// end stops accepting; s.mu is held.
func (s *Server) end() {
	s.ending.Store(true)
	if s.listener != nil {
		s.listener.Close()
	}
}

// maxHead returns the maximum size of the head of a plain request.
func (s *Server) maxHead() int {
	if most := s.HTTP.MaxHeaderBytes; most > 0 {
		return min(most, maxHead)
	}
	return maxHead
}

func (s *Server) logf(format string, args ...any) {
	if s.HTTP.ErrorLog != nil {
		s.HTTP.ErrorLog.Printf(format, args...)
	}
}

// dated is the value of the header field Date for one second.
type dated struct {
	second int64
	text   string
}

func (s *Server) date() string {
	now := time.Now()
	d := s.today.Load()
	if d == nil || d.second != now.Unix() {
		d = &dated{now.Unix(), now.UTC().Format(http.TimeFormat)}
		s.today.Store(d)
	}
	return d.text
}

// handed is the listener of the http.Server. It accepts the connections that are handed over.
type handed struct {
	conns   chan net.Conn
	closed  chan struct{}
	closing sync.Once
	address net.Addr
}

func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *handed) Close() error {
	h.closing.Do(func() { close(h.closed) })
	return nil
}

func (h *handed) Addr() net.Addr { return h.address }
