package listeners

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"
)

// This file speaks TLS on the connections of the listener for TLS. wire.go is what is below it.

// Security are the settings of TLS.
type Security struct {
	// Certificate returns the certificate for a handshake.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Protocols are further protocols (ALPN). A connection with one of them ends after its handshake.
	Protocols []string
	// URL returns the URL of Junction, for clients that speak http to the port of https.
	URL func() string
	// Limit is how long a handshake may take; 0 is no limit.
	Limit time.Duration
	Log   *slog.Logger
}

// Secured returns a listener that speaks TLS on those connections of l that come from the listener for TLS of
// Join. The first Read of a connection has its handshake, so that a slow client delays no other one.
func Secured(l net.Listener, s Security) net.Listener {
	return &secured{Listener: l, Security: s, turns: newTurns(), config: &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: append([]string{"http/1.1"}, s.Protocols...),
		GetCertificate: s.Certificate}}
}

// secured is what Secured returns.
type secured struct {
	net.Listener
	Security
	turns  *turns
	config *tls.Config
}

// Accept implements net.Listener.
func (s *secured) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	counted, is := c.(*countedConn)
	if !is {
		return c, nil
	}
	if _, is = counted.Conn.(entered); !is {
		return c, nil
	}
	return s.secure(counted), nil
}

// secure returns a connection with TLS over another one.
func (s *secured) secure(c *countedConn) *secureConn {
	w := newWire(c, s.turns, s.Limit)
	return &secureConn{Conn: tls.Server(w, s.config), wire: w, in: s}
}

// secureConn is a connection with TLS.
type secureConn struct {
	*tls.Conn
	wire  *wire
	in    *secured
	ready bool // the handshake has ended; owned by the goroutine of the first Read
	fails error
}

// Read implements net.Conn. The first Read makes the handshake; it must have returned before another one, or a
// Write, begins.
func (c *secureConn) Read(p []byte) (int, error) {
	if !c.ready {
		c.ready = true
		if c.fails = c.handshake(); c.fails != nil {
			c.in.Log.Debug("a TLS handshake failed", "address", c.RemoteAddr(), "error", c.fails)
		}
	}
	if c.fails != nil {
		return 0, c.fails
	}
	return c.Conn.Read(p)
}

// handshake makes the handshake. A client that speaks http gets an answer.
func (c *secureConn) handshake() error {
	ctx := context.Background()
	if c.in.Limit > 0 {
		limited, cancel := context.WithTimeout(ctx, c.in.Limit)
		defer cancel()
		ctx = limited
	}
	err := c.HandshakeContext(ctx)
	if over := c.wire.established(); err == nil {
		err = over
	}
	if chosen := c.ConnectionState().NegotiatedProtocol; err == nil && slices.Contains(c.in.Protocols, chosen) {
		return errors.New("the connection was for its handshake: " + chosen)
	}
	if header, is := errors.AsType[tls.RecordHeaderError](err); is && header.Conn != nil && c.wire.isHTTP() {
		c.explain()
		return errors.New("the client spoke http to the port of https")
	}
	return err
}

// pathOf is the beginning of a request whose path is repeated to its client.
var pathOf = regexp.MustCompile(`^[A-Z]+ (/[A-Za-z0-9._~/-]{1,200})[? ]`)

// explain answers a client that speaks http with the URL that it should use.
func (c *secureConn) explain() {
	url := c.in.URL() + "/mcp"
	if m := pathOf.FindSubmatch(c.wire.begin); m != nil {
		url = c.in.URL() + string(m[1])
	}
	text := "This port serves https. Use the URL " + url + "\n"
	end := time.Now().Add(explainLimit)
	c.wire.Conn.SetDeadline(end)
	_, err := fmt.Fprintf(c.wire.Conn, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"X-Content-Type-Options: nosniff\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	if half, ok := c.wire.Conn.(interface{ CloseWrite() error }); ok && err == nil {
		half.CloseWrite()
		// Closing with bytes that were not read would reset the connection, and lose the answer.
		_, _ = io.CopyN(io.Discard, c.wire.Conn, maxExplained)
	}
}

// Bounds of the answer to a client that speaks http: of the time, and of the bytes of its request.
const (
	explainLimit = 500 * time.Millisecond
	maxExplained = 256 << 10
)

// Write implements net.Conn.
func (c *secureConn) Write(p []byte) (int, error) {
	c.wire.writing.Add(1)
	defer c.wire.writing.Add(-1)
	return c.Conn.Write(p)
}

// Close tells the client that the connection ends, if it reads, and closes it. It does not wait for the client.
func (c *secureConn) Close() error {
	c.wire.leave()
	return c.Conn.Close()
}

// SetDeadline implements net.Conn.
func (c *secureConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetWriteDeadline implements net.Conn. A Write that missed its deadline ends the connection.
func (c *secureConn) SetWriteDeadline(t time.Time) error { return c.wire.SetWriteDeadline(t) }

// Hold implements http1.Holder.
func (c *secureConn) Hold(n int, first bool) bool { return c.wire.hold(n, first) }

// isHTTP reports whether the first bytes of a client are those of a request.
func (w *wire) isHTTP() bool {
	for _, method := range []string{"GET /", "HEAD /", "POST /", "PUT /", "DELETE /", "OPTIONS ", "PATCH /"} {
		if strings.HasPrefix(string(w.begin), method) {
			return true
		}
	}
	return false
}
