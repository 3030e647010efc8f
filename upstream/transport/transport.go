// Package transport moves JSON-RPC messages between us and one MCP server: over the standard input
// and output of a process, over Streamable HTTP, and over HTTP+SSE. It knows framing, processes and
// HTTP, and of MCP only what HTTP says in headers.
package transport

import (
	"context"
	"errors"

	"junction/upstream/http1"
	"junction/upstream/jsonrpc"
)

// Transport moves JSON-RPC messages between Junction and one server. Its methods may be called from
// several goroutines at once.
type Transport interface {
	// Call sends a request, whose ID the caller chose and is unique on this transport, and waits
	// for its response. Messages that certainly belong to this request (they came on its own HTTP
	// response stream) go to on before Call returns, one at a time; it must not block.
	//
	// When ctx ends, Call returns context.Cause(ctx) at once and a late response is dropped; on
	// HTTP the request's stream is closed, on other transports the server is not told. A
	// Request that provably did not reach the server fails with an error that is ErrNotSent.
	Call(ctx context.Context, req *Request, on func(*jsonrpc.Message)) (*jsonrpc.Message, error)
	// Send sends a notification, or a response to a request of the server's. It does not wait for
	// the server to act on it.
	Send(ctx context.Context, m *Request) error
	// Wait blocks until the transport has ended, and returns the reason. It returns nil after
	// Close.
	Wait() error
	// Ended reports whether the transport has ended. It does not block.
	Ended() bool
	// PerRequest reports whether each request is an HTTP request of its own. Then it carries
	// headers, the messages that belong to it come on its own response, and the end of that
	// response cancels it. Otherwise all messages share one connection.
	PerRequest() bool
	// HasSession reports whether the server keeps a session, in which it can send requests of its
	// own. Over Streamable HTTP that is known once the handshake is done.
	HasSession() bool
	// SetVersion puts the protocol version that the legacy handshake agreed on into the header of
	// every later request. It does nothing where requests have no header.
	SetVersion(version string)
	// Listen opens the stream on which a legacy server sends what belongs to no request, until the
	// Transport is closed or the server offers no such stream. gap is called whenever the stream
	// was opened, because something may have been missed before; it must not block. The channel is
	// closed when the stream is open, or when there will be none.
	Listen(gap func()) <-chan struct{}
	// Close ends the transport. It returns when all its goroutines and processes have ended. Calls
	// in flight fail.
	Close() error
}

// Request is a message to a server, with its HTTP headers. Transports that are not PerRequest
// ignore Header.
type Request struct {
	jsonrpc.Message
	Header   []http1.Field
	Buffer   *[]byte  // for the answer, if the transport reads it in one piece; see Call.Buffer
	Observer Observer // may be nil
	Memory   Memory   // of the answer, where it comes in a response of its own; may be nil

	HeaderRoom [4]http1.Field // the memory of most headers
}

// Observer is told about the response of a request. Its methods must not block.
type Observer interface {
	// Heard is called when bytes of the request's own response have come.
	Heard()
	// Late is called when the answer to a request came after its Call had returned, or when it is
	// certain that none will come. It is called on transports that tell the server nothing when a
	// Request is given up.
	Late()
	// Settled reports whether Late need not be called any more.
	Settled() bool
}

// Memory is asked before a large answer takes memory. An error ends the request, and is in the
// chain of the error of Call.
type Memory interface {
	// Reserve asks for n bytes more. It is called by the goroutine that has called Call.
	Reserve(n int64) error
}

// Duplex is embedded by transports that send all messages over one connection.
type Duplex struct{}

func (Duplex) PerRequest() bool              { return false }
func (Duplex) HasSession() bool              { return true }
func (Duplex) SetVersion(string)             {}
func (Duplex) Listen(func()) <-chan struct{} { return closed }

// closed is a channel that is.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Receiver takes the messages of a server that came on no request's own stream: on stdio and
// HTTP+SSE all but the responses, over Streamable HTTP those on the listening stream. It is called
// on the transport's reading goroutine, one message at a time. It must not block or call back into
// the transport.
type Receiver func(m *jsonrpc.Message)

var (
	// ErrNotSent is in the chain of the error of a request that certainly was not received or not
	// processed. The request may be sent again.
	ErrNotSent = errors.New("not sent")
	// ErrSessionGone means that the server has ended our session. The request was not processed.
	ErrSessionGone = errors.New("the server has ended the session")
	// ErrClosed means that we closed the transport.
	ErrClosed = errors.New("closed")
	// ErrInvalid is in the chain of errors about responses that violate the protocol.
	ErrInvalid = errors.New("invalid answer")
)

// TokenError means that no access token could be obtained for a request. The request was not sent,
// or was answered 401.
type TokenError struct{ Err error }

func (e *TokenError) Error() string { return e.Err.Error() }
func (e *TokenError) Unwrap() error { return e.Err }

// MemoryError is an error of a reserver.
type MemoryError struct{ error }

func (e *MemoryError) Unwrap() error { return e.error }

// SandboxError means that a command was not started, because its sandbox could not be set up.
type SandboxError struct {
	Reason    string
	Permanent bool // another attempt cannot succeed
}

func (e *SandboxError) Error() string { return e.Reason }
