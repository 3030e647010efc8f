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
	// Close ends the wire, and everything that it started: it returns when no goroutine and no
	// process of it is left. Calls in flight fail.
	Close() error
}

// request is a message on its way to a server, with what HTTP puts beside it. Other wires ignore
// Header.
type request struct {
	jsonrpc.Message
	Header []http1.Field
	Buffer *[]byte // for the answer, if the wire reads it in one piece; see Call.Buffer
	clock  *clock  // hears of the bytes of the request's own response, where it has one of its own; may be nil
	memory Memory  // of the answer, where it comes in a response of its own; may be nil

	few [4]http1.Field // the memory of most headers
}

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
)
