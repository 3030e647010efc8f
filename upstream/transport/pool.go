package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Pool opens the connections to the origin of a URL. The transports of an upstream share one. Each
// transport keeps its own idle connections (connections.go), except for those of HTTP/2.
type Pool struct {
	// Dial opens a connection. NewPool sets it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// for an https URL, and for an HTTP proxy: how each transport connects; nil otherwise, since package
	// http1 is used then. It has no connections.
	http   *http.Transport
	shared atomic.Pointer[secure] // has connections of HTTP/2; nil for none
	open   atomic.Int64           // connections, idle ones too
}

const (
	// A failed dial is repeated for this time while other connections of the pool are open. The
	// first pause doubles up to the longest one.
	spareTime                = 5 * time.Second
	firstPause, longestPause = 20 * time.Millisecond, 320 * time.Millisecond
)

// ErrOthers is in the chain of an ErrNotSent if other connections of the pool are open: the name
// server may have failed, and not the server.
var ErrOthers = errors.New("other connections are open")

// othersError has ErrOthers in its chain, but not in its text.
type othersError struct{ error }

func (e othersError) Unwrap() []error { return []error{ErrOthers, e.error} }

// Security is whom the connections of a pool trust, and how they prove who connects. The zero value trusts the
// authorities of the system.
type Security struct {
	Roots       *x509.CertPool   // nil are those of the system
	Certificate *tls.Certificate // shown to the server; nil for none
	ServerName  string           // in the certificate of the server; "" is the host of the URL
	Err         error            // why no connection can be opened; nil for none
}

// NewSecurePool is NewPool with the security of the connections. A proxy that is reached by https is an error
// with a Certificate or a ServerName, which are for the server only.
func NewSecurePool(rawURL string, s Security) *Pool {
	p := NewPool(rawURL)
	if s.Err != nil {
		p.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, s.Err }
		return p
	}
	if p.http == nil {
		return p
	}
	p.http.TLSClientConfig.RootCAs, p.http.TLSClientConfig.ServerName = s.Roots, s.ServerName
	if s.Certificate != nil {
		p.http.TLSClientConfig.Certificates = []tls.Certificate{*s.Certificate}
	}
	if s.Certificate != nil || s.ServerName != "" {
		p.http.Proxy = func(r *http.Request) (*url.URL, error) {
			proxy, err := http.ProxyFromEnvironment(r)
			if err == nil && proxy != nil && proxy.Scheme == "https" {
				return nil, errors.New("a proxy with https gets no certificate; name the proxy with http, or exclude " +
					"the server in NO_PROXY")
			}
			return proxy, err
		}
	}
	return p
}

// NewPool returns a connection pool for the origin of a URL.
func NewPool(rawURL string) *Pool {
	p := &Pool{Dial: dial}
	r, err := http.NewRequest(http.MethodPost, rawURL, nil)
	if err == nil && r.URL.Scheme == "http" {
		if proxy, err := http.ProxyFromEnvironment(r); err == nil && proxy == nil {
			return p
		}
	}
	p.http = &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: p.dial,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12,
			ClientSessionCache: tls.NewLRUClientSessionCache(16)},
		TLSHandshakeTimeout:    handshakeTime,
		ForceAttemptHTTP2:      true, // custom TLSClientConfig and DialContext would turn it off
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		MaxIdleConnsPerHost:    1024,
		IdleConnTimeout:        secureIdle,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return p
}

// How long an idle connection is kept. A request that is sent while the server closes its connection is
// lost. Many servers close connections after 5 s, and proxies after 60 s. A connection without TLS costs
// little, so that Junction closes it first, as the reference clients do.
const (
	plainIdle  = 4 * time.Second
	secureIdle = 50 * time.Second
)

// handshakeTime is the time limit of a TLS handshake.
const handshakeTime = 10 * time.Second

// CloseIdleConnections closes the shared connections that no request uses.
func (p *Pool) CloseIdleConnections() {
	if s := p.shared.Swap(nil); s != nil {
		s.CloseIdleConnections()
	}
}

// dial opens a connection, and counts it until it is closed. If dialing fails while other
// connections are open, it tries again. Meanwhile the request gets a connection that becomes idle:
// both HTTP clients take the first that they can have.
func (p *Pool) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := p.Dial(ctx, network, address)
	until := time.Now().Add(spareTime)
	for pause := firstPause; err != nil && ctx.Err() == nil && p.open.Load() > 0; pause = min(2*pause, longestPause) {
		left := time.Until(until)
		if left <= 0 {
			return nil, othersError{err}
		}
		select {
		case <-time.After(min(pause, left)):
			c, err = p.Dial(ctx, network, address)
		case <-ctx.Done():
		}
	}
	if err != nil {
		return nil, err
	}
	p.open.Add(1)
	closed := sync.OnceFunc(func() { p.open.Add(-1) })
	if tcp, ok := c.(*net.TCPConn); ok {
		return &pooledTCP{tcp, closed}, nil
	}
	return &pooledConn{c, closed}, nil
}

// pooledConn is an open connection of a Pool.
type pooledConn struct {
	net.Conn
	closed func()
}

func (c *pooledConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// pooledTCP is a pooledConn with all methods of a TCP connection: package http1 writes a request in
// one system call (net.Buffers), and asks the kernel whether a connection is open.
type pooledTCP struct {
	*net.TCPConn
	closed func()
}

func (c *pooledTCP) Close() error {
	c.closed()
	return c.TCPConn.Close()
}
