package upstream

import (
	"context"
	"errors"

	"junction/upstream/http1"
	"junction/upstream/jsonrpc"
)

// wire moves JSON-RPC messages between us and one server. It knows framing, processes and HTTP; it
// knows nothing of MCP's methods. Its methods may be called from several goroutines at once.
type wire interface {
	// Call sends a request, whose ID the caller chose and is unique on this wire, and waits for its
	// response. Messages that certainly belong to this request (they came on its own HTTP response
	// stream) go to on before Call returns, one at a time; it must not block.
	//
	// When ctx ends, Call returns context.Cause(ctx) at once and a late response is dropped; on
	// HTTP the request's stream is closed, on other wires the server learns nothing of it. A
	// request that provably did not reach the server fails with an error that is errNotSent.
	Call(ctx context.Context, req *request, on func(*jsonrpc.Message)) (*jsonrpc.Message, error)
	// Send sends a notification, or a response to a request of the server's. It does not wait for
	// the server to act on it.
	Send(ctx context.Context, m *request) error
	// Wait blocks until the wire cannot be used any more, and says why. It returns nil after Close.
	Wait() error
	// ended reports, without waiting, whether the wire cannot be used any more.
	ended() bool
	// perRequest reports whether each request is an HTTP request of its own. Then it carries
	// headers, the messages that belong to it come on its own response, and the end of that
	// response cancels it. Otherwise all messages share one connection.
	perRequest() bool
	// hasSession reports whether the server keeps a session, in which it can send requests of its
	// own. Over Streamable HTTP that is known once the handshake is done.
	hasSession() bool
	// setVersion puts the protocol version that the legacy handshake agreed on into the header of
	// every later request. It does nothing where requests have no header.
	setVersion(version string)
	// listen opens the stream on which a legacy server sends what belongs to no request, until the
	// wire is closed or the server offers no such stream. gap is called whenever the stream was
	// opened, because something may have been missed before; it must not block. The channel is
	// closed when the stream is open, or when there will be none.
	listen(gap func()) <-chan struct{}
	// Close ends the wire, and everything that it started: it returns when no goroutine and no
	// process of it is left. Calls in flight fail.
	Close() error
}

// request is a message on its way to a server, with what HTTP puts beside it. Other wires ignore
// Header.
type request struct {
	jsonrpc.Message
	Header []http1.Field
	Buffer *[]byte  // for the answer, if the wire reads it in one piece; see Call.Buffer
	clock  observer // may be nil
	memory reserver // of the answer, where it comes in a response of its own; may be nil

	few [4]http1.Field // the memory of most headers
}

// observer follows a request that a client waits for. Its methods do not block.
type observer interface {
	// hears is called when bytes of the request's own response have come.
	hears()
	// late is called when the answer to a request came after its Call had returned, or when it is
	// certain that none will come. It is called on wires that tell the server nothing when a
	// request is given up.
	late()
	// settled reports whether late is of no use any more.
	settled() bool
}

// reserver is asked before a large answer takes memory. An error ends the request, and is in the
// chain of the error of Call.
type reserver interface {
	// Reserve asks for n bytes more. It is called by the goroutine that has called Call.
	Reserve(n int64) error
}

// duplex is what the wires have in common that share one connection among all messages.
type duplex struct{}

func (duplex) perRequest() bool              { return false }
func (duplex) hasSession() bool              { return true }
func (duplex) setVersion(string)             {}
func (duplex) listen(func()) <-chan struct{} { return closed }

// closed is a channel that is.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// receiver takes the messages of a server that belong to no certain request of ours: everything
// unasked for on stdio, and what comes on an HTTP listening stream. It is called on the wire's
// reading goroutine, one message at a time, and must not block or call back into the wire.
type receiver func(m *jsonrpc.Message)

var (
	// errNotSent is in the chain of an error of a request that provably was not received or not
	// processed, so that it may be sent again.
	errNotSent = errors.New("not sent")
	// errSessionGone means that the server does not know our session any more. The request was not
	// processed.
	errSessionGone = errors.New("the server has ended the session")
	// errClosed means that we closed the wire.
	errClosed = errors.New("closed")
	// errInvalid is in the chain of errors about answers that are none.
	errInvalid = errors.New("invalid answer")
)

// tokenError means that nobody could say now what a request is authorized with. The request was not
// sent, or was refused.
type tokenError struct{ Err error }

func (e *tokenError) Error() string { return e.Err.Error() }
func (e *tokenError) Unwrap() error { return e.Err }

// unreservedError is an error of a reserver.
type unreservedError struct{ error }

func (e *unreservedError) Unwrap() error { return e.error }

// sandboxError means that a command was not started because of its sandbox.
type sandboxError struct {
	reason string
	person bool // trying again does not help
}

func (e *sandboxError) Error() string { return e.reason }
