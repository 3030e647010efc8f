package client

import (
	"context"
	"errors"

	"junction/upstream/http1"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// Call is one call of a client. It belongs to the caller again when Call returns.
type Call struct {
	// Method is the MCP method, such as tools/call.
	Method string
	// Name is the server's own name of the tool or prompt, or the URI of the resource. It
	// replaces the member of params that Member names: one name, or two if the second one is a
	// member of an object; nil means name.
	Name   string
	Member []string
	// Params are the params of the client, as it sent them. The conn replaces only the name, and the
	// members of _meta about the hop of the client.
	Params raw.Object
	// Header has the Mcp-Param headers of the client that no tool declares, unless a person or a rule
	// judges the arguments of the call. HTTP servers get them unchanged.
	Header []HeaderField
	// Forwarded are headers of the client that go to the server (Options.Forward). Only a modern HTTP server gets
	// them with the call: a legacy one gets those of its session (Dialer.With).
	Forwarded []HeaderField
	// Signed are headers of Junction about the caller, which an HTTP server of either era gets with the call.
	Signed []HeaderField
	// LogLevel is the lowest level of log messages that the client requested for this call; "" if
	// it requested none.
	LogLevel string
	// Profile has the capabilities of the client. A legacy server got those of the handshake instead.
	Profile Profile
	// Principal is the user that the call is for; "" if there is only one user. A server request
	// that names no call is not passed to a user while it could be for an earlier call of another.
	Principal string
	// Session is that of a legacy client; "" if the client has none. A server request that names no call is
	// passed on while only one call, or calls of one Principal and one Session, could have caused it.
	Session string
	// AsTask means that the tool answers only by a task, if the server is a legacy one.
	AsTask bool
	// Buffer is memory for the result, unless it is nil. The result is valid until the caller uses
	// the memory for something else. If the result needed more, a larger buffer replaces it.
	Buffer *[]byte
	// Peer gets the notifications and the requests of the server during the call. If it is nil, no
	// notification or request is attributed to the call.
	Peer Peer
	// Trace is the trace of the client's request, for the Observer; nil for none.
	Trace Trace

	carried TraceContext
	trace   Trace // of the call itself, or Trace
}

// Result is the result that a server returned for a call.
type Result struct {
	raw.Object // as the server wrote it
	// resultType of the modern era; TypeComplete if it is missing, and for every result of a legacy
	// server
	Type string
}

// Failed reports whether the result of a tool call is a failure of the tool (isError).
func (r Result) Failed() bool {
	v, err := r.Get("isError")
	return err == nil && string(v) == "true"
}

// The known types of results (2026-07-28, basic/index#resulttype). A result of another type is an
// error of KindInvalid.
const (
	TypeComplete      = "complete"
	TypeInputRequired = "input_required" // only of tools/call, prompts/get and resources/read
	TypeTask          = "task"           // only if the profile has Tasks, of tools/call
)

// rename returns the edit of the params that inserts the upstream's own name.
func (c *Call) rename() (raw.Edit, error) {
	name := raw.Quote(c.Name)
	switch len(c.Member) {
	case 0:
		return raw.Edit{Name: "name", Value: name}, nil
	case 1:
		return raw.Edit{Name: c.Member[0], Value: name}, nil
	}
	inner, err := c.Params.Object(c.Member[0])
	if err != nil {
		return raw.Edit{}, err
	}
	value, err := inner.Splice(raw.Edit{Name: c.Member[1], Value: name})
	return raw.Edit{Name: c.Member[0], Value: value}, err
}

// headerName returns the header Mcp-Name: the name, if it is a direct member of params (2026-07-28,
// streamable-http#standard-headers).
func (c *Call) headerName() string {
	if len(c.Member) > 1 {
		return ""
	}
	return c.Name
}

// HeaderField is one field of an HTTP header.
type HeaderField = http1.Field

// Kind is the kind of a failure between Junction and an upstream.
type Kind string

const (
	KindUnavailable Kind = "unavailable" // there is no connection, and none could be made
	KindTimeout     Kind = "timeout"     // no answer in time; the upstream was told to cancel
	// the connection broke during the call, which may or may not have been carried out
	KindLost Kind = "lost"
	// the answer of the upstream cannot be used: it is no valid message, or an HTTP status of a failure
	KindInvalid    Kind = "invalid"
	KindBusy       Kind = "busy"       // a limit of calls or connections is reached; the call was not made
	KindCancelled  Kind = "cancelled"  // the client gave up
	KindUnanswered Kind = "unanswered" // the client did not answer a server request
	// the replica that had the state of the server (stateful) has ended; the call was not made
	KindStateLost Kind = "state_lost"
)

// Kinds returns all kinds. The table of the outcomes in package proxy has each of them.
func Kinds() []Kind {
	return []Kind{KindUnavailable, KindTimeout, KindLost, KindInvalid, KindBusy, KindCancelled, KindUnanswered,
		KindStateLost}
}

// Unmade reports whether the kind says that the call was not made. A limit of answers ends a call that was made, so
// that it cannot have such a kind.
func (k Kind) Unmade() bool { return k == KindBusy || k == KindStateLost }

// ErrNoToken is in the chain of an error of Token if the request needs a token, and a person has to do
// something first. The call was not made.
var ErrNoToken = errors.New("there is no access token")

// KindOf returns the kind of the error of a call that had a connection.
func KindOf(err error) Kind {
	switch {
	case errors.As(err, new(*timeoutError)):
		return KindTimeout
	case errors.Is(err, context.Canceled):
		return KindCancelled
	case errors.As(err, new(*transport.MemoryError)):
		return KindBusy
	case errors.Is(err, transport.ErrNotSent), errors.As(err, new(*transport.TokenError)),
		errors.Is(err, ErrNoToken):
		return KindUnavailable
	case errors.As(err, new(*transport.StatusError)), errors.Is(err, transport.ErrInvalid):
		return KindInvalid
	}
	return KindLost
}
