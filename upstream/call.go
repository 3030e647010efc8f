package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// Call is one client's request on its way to an upstream. It belongs to the caller again when (*Upstream).Call returns.
type Call struct {
	// Method is the MCP method, such as tools/call.
	Method string
	// Name is what the request is about under the upstream's own name: of the tool or prompt, or the resource's URI. It replaces params.name.
	Name string
	// Params are the client's own, untouched; of them only the name and what _meta says about the client's hop are replaced.
	Params raw.Object
	// Header are Mcp-Param headers of the client's that no tool declares: they go to HTTP servers as they are.
	Header []HeaderField
	// Profile, Session and Principal decide which connection the call may use.
	Profile   Profile
	Session   string
	Principal string
	// Buffer, when it is not nil, is memory that the result may be read into: the result is valid until the caller uses it for something else. The
	// upstream leaves a larger one here if it needed that.
	Buffer *[]byte
	// Peer takes what the upstream says during the call; nil takes nothing.
	Peer Peer
}

// HeaderField is one field of an HTTP header.
type HeaderField struct{ Name, Value string }

// Profile is what an upstream may learn about the client of a call. Calls of equal profiles may share a legacy connection, which hears of its client
// once, in initialize. The zero value is a client that can do nothing but call.
type Profile struct {
	// Capabilities are the client's, a JSON object in one spelling for equal ones; "" is {}.
	Capabilities string
}

func (p Profile) capabilities() []byte {
	if p.Capabilities == "" {
		return []byte("{}")
	}
	return []byte(p.Capabilities)
}

// Peer is whom an upstream talks back to during a call: the client that made it.
type Peer interface {
	// Notify takes a notification that belongs to the call, with the client's own progress token. It does not block. It is not called after
	// (*Upstream).Call has returned.
	Notify(method string, params []byte)
}

// Kind says in one word what went wrong between us and an upstream.
type Kind string

const (
	KindUnavailable Kind = "unavailable" // there is no connection, and none could be made
	KindTimeout     Kind = "timeout"     // no answer in time; the upstream was told to cancel
	KindLost        Kind = "lost"        // the connection broke during the call, which may or may not have been carried out
	KindInvalid     Kind = "invalid"     // the upstream answered something that is no answer
	KindBusy        Kind = "busy"        // too many calls or connections are in use
	KindCancelled   Kind = "cancelled"   // the client gave up
)

// Error is a failure of ours or of the connection, as distinct from a *jsonrpc.Error, which is what the upstream said.
type Error struct {
	Upstream string
	Kind     Kind
	Err      error
}

func (e *Error) Error() string { return fmt.Sprintf("upstream %s: %v", e.Upstream, e.Err) }

// Public is Error for the client: without what a child process wrote to stderr before it ended, which is for the log and the table of upstreams.
func (e *Error) Public() string {
	if exit, ok := errors.AsType[*exitError](e.Err); ok {
		return fmt.Sprintf("upstream %s: %s", e.Upstream, exit.how)
	}
	return e.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// kindOf says which kind of failure err is for a call that got as far as a connection.
func kindOf(err error) Kind {
	var status *statusError
	var timeout *timeoutError
	switch {
	case errors.As(err, &timeout):
		return KindTimeout
	case errors.Is(err, context.Canceled):
		return KindCancelled
	case errors.Is(err, errNotSent):
		return KindUnavailable
	case errors.As(err, &status), errors.Is(err, errInvalid):
		return KindInvalid
	}
	return KindLost
}

// errInvalid is in the chain of errors about answers that are none.
var errInvalid = errors.New("invalid answer")

// timeoutError is the cause of a call's context when its time is over.
type timeoutError struct {
	after  time.Duration
	silent bool // or the hard cap
}

func (e *timeoutError) Error() string {
	if e.silent {
		return fmt.Sprintf("no answer and no progress for %v", e.after)
	}
	return fmt.Sprintf("no answer within %v", e.after)
}

// clock ends a call after too much silence, and after max in any case.
type clock struct {
	timer   *time.Timer
	timeout time.Duration
	end     time.Time
}

// newClock returns a context that ends when the call's time is over, with a *timeoutError as cause. stop frees it.
func newClock(parent context.Context, timeout, max time.Duration) (context.Context, *clock, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	timeout = min(timeout, max)
	c := &clock{timeout: timeout, end: time.Now().Add(max)}
	c.timer = time.AfterFunc(timeout, func() {
		if left := time.Until(c.end); left <= 0 {
			cancel(&timeoutError{after: max})
		} else {
			cancel(&timeoutError{after: timeout, silent: true})
		}
	})
	return ctx, c, func() { c.timer.Stop(); cancel(nil) }
}

// touch says that the upstream has shown a sign of life.
func (c *clock) touch() {
	if c.timer.Stop() {
		c.timer.Reset(min(c.timeout, time.Until(c.end)))
	}
}

// flight is a call that an upstream is working on.
type flight struct {
	id    jsonrpc.ID
	peer  Peer
	token []byte // the client's own progress token; nil when it wants no progress
	clock *clock
}
