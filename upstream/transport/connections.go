package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync/atomic"

	"junction/upstream/http1"
)

// This file keeps the idle connections of each transport apart. If a server, or a proxy before it,
// writes an answer twice, the second one waits on an idle connection of HTTP/1.1. So it can only
// reach a later request of the same transport, and not a transport with calls of other callers.
// HTTP/2 ties each answer to its request, so its connections are shared.

// connections are the HTTP connections of one transport.
type connections struct {
	pool  *Pool
	plain *http1.Client          // nil if alone is used
	alone atomic.Pointer[secure] // nil before the first request, and if they have become the shared ones
}

// secure has connections with TLS, or through a proxy.
type secure struct {
	*http.Transport
	onlyHTTP2 atomic.Bool // it is shared, and opens no other connections
	mixed     atomic.Bool // it had an answer of HTTP/1.1
}

// errNoHTTP2 means that the server, which has spoken HTTP/2 before, does not speak it on a new
// connection. The request was not sent.
var errNoHTTP2 = errors.New("the server does not speak HTTP/2 any more")

// newSecure returns connections of which none is open.
func (p *Pool) newSecure() *secure {
	s := &secure{Transport: p.http.Clone()}
	s.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := p.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, handshakeTime)
		defer cancel()
		config := s.TLSClientConfig.Clone()
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(address)
		}
		secured := tls.Client(c, config)
		err = secured.HandshakeContext(ctx)
		if err == nil && s.onlyHTTP2.Load() && secured.ConnectionState().NegotiatedProtocol != "h2" {
			err = errNoHTTP2
		}
		if err != nil {
			c.Close()
			return nil, err
		}
		return secured, nil
	}
	return s
}

// roundTrip sends a request that needs neither a Group nor patience.
func (c *connections) roundTrip(r *http.Request) (*http.Response, error) {
	if c.plain != nil {
		return c.plain.RoundTrip(r)
	}
	if s := c.pool.shared.Load(); s != nil {
		resp, err := s.RoundTrip(r)
		if err == nil && resp.ProtoMajor == 1 || errors.Is(err, errNoHTTP2) {
			c.pool.shared.CompareAndSwap(s, nil)
			s.CloseIdleConnections()
		}
		if !errors.Is(err, errNoHTTP2) {
			return resp, err
		}
		if r.GetBody != nil {
			r.Body, _ = r.GetBody() // cannot fail
		}
	}
	s := c.alone.Load()
	if s == nil {
		if s = c.pool.newSecure(); !c.alone.CompareAndSwap(nil, s) {
			s = c.alone.Load()
		}
	}
	resp, err := s.RoundTrip(r)
	switch {
	case err != nil:
	case resp.ProtoMajor == 1:
		s.mixed.Store(true)
		c.limitIdle(s, resp.Header)
	case !s.mixed.Load():
		c.share(s)
	}
	return resp, err
}

// limitIdle lets the connections of later requests be idle only as long as the server keeps them open by
// its own word. The others are closed when they become idle.
func (c *connections) limitIdle(s *secure, header http.Header) {
	value := header["Keep-Alive"]
	if value == nil {
		return
	}
	limit := http1.KeepAlive(value[0])
	if limit == 0 || limit >= s.IdleConnTimeout {
		return
	}
	next := c.pool.newSecure()
	next.IdleConnTimeout = limit
	next.mixed.Store(true)
	if c.alone.CompareAndSwap(s, next) {
		s.CloseIdleConnections()
	}
}

// share gives connections of HTTP/2 to all transports, unless there are some.
func (c *connections) share(s *secure) {
	if c.pool.shared.Load() != nil {
		return
	}
	s.onlyHTTP2.Store(true)
	if !c.pool.shared.CompareAndSwap(nil, s) {
		s.onlyHTTP2.Store(false)
		return
	}
	c.alone.CompareAndSwap(s, nil)
}

// closeIdle closes the idle connections that are not shared.
func (c *connections) closeIdle() {
	if c.plain != nil {
		c.plain.CloseIdleConnections()
	} else if s := c.alone.Load(); s != nil {
		s.CloseIdleConnections()
	}
}
