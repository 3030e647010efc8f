// Package transport moves JSON-RPC messages between Junction and one MCP server. It has the
// interface of all transports, and the transports over Streamable HTTP and HTTP+SSE. Of MCP it
// implements only the HTTP headers. The transport to a process is in package stdio.
package transport

import (
	"context"
	"errors"
	"sync"

	"junction/upstream/http1"
	"junction/upstream/jsonrpc"
)

// Transport moves JSON-RPC messages between Junction and one server. Its methods may be called from
// several goroutines at once.
type Transport interface {
	// Call sends a request and waits for its response. The caller chooses the request's ID, which
	// must be unique on this transport. Messages that certainly belong to this request (they came
	// on its own HTTP response stream) go to on before Call returns, one at a time; on must not
	// block.
	//
	// When ctx ends, Call returns context.Cause(ctx) at once and drops a late response. Transports
	// that are PerRequest close the request's stream; the others send nothing to the server. If the
	// request provably did not reach the server, ErrNotSent is in the chain of the error.
	Call(ctx context.Context, req *Request, on func(*jsonrpc.Message)) (*jsonrpc.Message, error)
	// Send sends a notification, or a response to a server request. It does not wait for the server
	// to process it.
	Send(ctx context.Context, m *Request) error
	// Wait blocks until the transport has ended, and returns the reason. The reason is nil after
	// Close.
	Wait() error
	// Ended reports whether the transport has ended. It does not block.
	Ended() bool
	// PerRequest reports whether each request is an HTTP request of its own. Such a request has
	// headers, receives its messages on its own response, and is cancelled by closing that
	// response. Otherwise all messages share one connection.
	PerRequest() bool
	// HasSession reports whether the server keeps a session, in which it can send server requests.
	// For Streamable HTTP the value is final after the handshake.
	HasSession() bool
	// SetVersion sets the header with the protocol version that the legacy handshake negotiated,
	// for every later request. It does nothing on transports without headers.
	SetVersion(version string)
	// Listen opens the stream on which a legacy server sends messages that belong to no request.
	// The stream stays open until Close, or until the server turns out not to offer it. gap is
	// called each time the stream was opened, because messages may have been missed before; it must
	// not block. The channel is closed when the stream is open, or when there will be none.
	Listen(gap func()) <-chan struct{}
	// Close ends the transport and waits until all its goroutines and processes have ended.
	// In-flight calls fail.
	Close() error
}

// Ending is the end of a transport, and its reason. Transports embed it, because it implements Ended
// and Wait. NewEnding makes one.
type Ending struct {
	once   sync.Once     // keeps the first reason
	reason error         // ErrClosed if Junction ended the transport; set before gone is closed
	gone   chan struct{} // closed when the transport can no longer be used
}

// NewEnding returns the end of a transport that is in use.
func NewEnding() Ending { return Ending{gone: make(chan struct{})} }

// Over ends the transport, with ErrClosed if Junction ended it. The first reason wins. In-flight
// calls continue.
func (e *Ending) Over(reason error) {
	e.once.Do(func() {
		e.reason = reason
		close(e.gone)
	})
}

// Gone returns the channel that is closed when the transport has ended.
func (e *Ending) Gone() <-chan struct{} { return e.gone }

// Reason returns the reason of the end, and nil before the end. The caller must know that Over does
// not run: Gone is closed, or a lock is held with which Over is called.
func (e *Ending) Reason() error { return e.reason }

// Ended implements Transport.
func (e *Ending) Ended() bool {
	select {
	case <-e.gone:
		return true
	default:
		return false
	}
}

// Wait implements Transport. The first reason wins: Close does not replace an earlier one.
func (e *Ending) Wait() error {
	<-e.gone
	if e.reason == ErrClosed {
		return nil
	}
	return e.reason
}

// Request is a message to a server, with its HTTP headers. Transports that are not PerRequest
// ignore Header.
type Request struct {
	jsonrpc.Message
	Header   []http1.Field
	Buffer   *[]byte  // reused for a response that is read in one piece; see upstream.Call.Buffer
	Observer Observer // may be nil
	Memory   Memory   // accounts for a response with its own body; may be nil
	Called   bool     // a call of a client: HTTPOptions.Headers do not stand in for a header of Forward
	// Forwarded are the headers of the client of a call, and those that sign who calls; no error shows them, and
	// transports over HTTP send them all
	Forwarded []http1.Field
	Own       bool // a question of Junction's own: 401 to it decides about the sign-in (renewal.go)

	HeaderRoom [4]http1.Field // storage for the headers of most requests
}

// Observer hears of the response of a request. Its methods must not block.
type Observer interface {
	// Heard is called when bytes of the request's own response arrive.
	Heard()
	// Late is called when the response to an abandoned call arrives after Call has returned, or
	// when it is certain that none will arrive. Only transports that do not cancel abandoned calls
	// at the server call it.
	Late()
	// Settled reports whether Late need not be called.
	Settled() bool
}

// Duplex is embedded by transports that send all messages over one connection.
type Duplex struct{}

func (Duplex) PerRequest() bool              { return false }
func (Duplex) HasSession() bool              { return true }
func (Duplex) SetVersion(string)             {}
func (Duplex) Listen(func()) <-chan struct{} { return closed }

// closed is a closed channel.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Receiver handles the server's messages that came on no request's own stream. On stdio and
// HTTP+SSE these are all messages except the responses that a Call waits for; on Streamable HTTP, the
// messages on the listening stream. It is called on the transport's reading goroutine, one message at a time. It
// must not block or call back into the transport.
type Receiver func(m *jsonrpc.Message)

var (
	// ErrNotSent is in the chain of the error of a request that the server certainly did not
	// receive or process. The request may be sent again.
	ErrNotSent = errors.New("not sent")
	// ErrSessionGone means that the server has ended the session. The request was not processed.
	ErrSessionGone = errors.New("the server has ended the session")
	// ErrClosed means that Junction closed the transport, such as for a reconnect that the operator wants.
	ErrClosed = errors.New("the connection was closed by Junction")
	// ErrInvalid is in the chain of errors about responses that violate the protocol.
	ErrInvalid = errors.New("invalid answer")
)

// TokenError means that no access token could be obtained for a request. The request was not sent,
// or was answered 401.
type TokenError struct{ Err error }

func (e *TokenError) Error() string { return e.Err.Error() }
func (e *TokenError) Unwrap() error { return e.Err }
