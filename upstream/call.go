package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/http1"
	"junction/upstream/pace"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// Call is one client's request on its way to an upstream. It belongs to the caller again when
// (*Upstream).Call returns.
type Call struct {
	// Method is the MCP method, such as tools/call.
	Method string
	// Name is the upstream's own name of the tool or prompt, or the URI of the resource. It
	// replaces the member of params that Member names: one name, or two if the second one is a
	// member of an object; nil means name.
	Name   string
	Member []string
	// Params are those of the client, as it sent them. The upstream replaces only the name, and the
	// members of _meta about the hop of the client.
	Params raw.Object
	// Header has the Mcp-Param headers of the client that no tool declares. HTTP servers get them
	// unchanged.
	Header []HeaderField
	// Era is that of the client.
	Era Era
	// LogLevel is the lowest level of log messages that the client requested for this call; "" if
	// it requested none.
	LogLevel string
	// Profile, Session and Principal decide which connection the call may use.
	Profile   Profile
	Session   string
	Principal string // "" if there is only one user
	// Account is the caller that the call counts for in the concurrency of the upstream: Principal,
	// or what distinguishes callers without authentication.
	Account string
	// Buffer is memory for the result, unless it is nil. The result is valid until the caller uses
	// the memory for something else. If the result needed more, a larger buffer replaces it.
	Buffer *[]byte
	// Peer gets the notifications and the requests of the server during the call. If it is nil, no
	// notification or request is attributed to the call.
	Peer Peer
	// End ends the context of the call. If it is nil, the call creates a context of its own, and
	// ends it when the time of the call is over.
	End context.CancelCauseFunc
	// Trace is that of the client's request, for Options.Observer; nil for none.
	Trace Trace

	asTask  bool // see Tool.TaskOnly
	carried TraceContext
	trace   Trace // of the call itself, or Trace
}

// send sends the call on the connection, and tells the Observer.
func (u *Upstream) send(ctx context.Context, cn conn, c *Call, clock *clock) (Result, error) {
	o := u.options.Observer
	if o == nil {
		return cn.call(ctx, c, clock)
	}
	s := Sent{u.name, c.Method, c.Name, cn.about().version, u.connConfig.URL, c.Trace}
	var t Trace
	t, c.carried = o.Begin(s)
	if c.trace = t; t == nil {
		c.trace = c.Trace
	}
	began := time.Now()
	result, err := cn.call(ctx, c, clock)
	r := received(ctx, began, err)
	r.ToolError = err == nil && c.Method == string(mcp.MethodToolsCall) && result.Failed()
	o.End(s, t, r)
	return result, err
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
	KindLost       Kind = "lost"
	KindInvalid    Kind = "invalid"    // the upstream sent an invalid response
	KindBusy       Kind = "busy"       // too many calls or connections are in use
	KindCancelled  Kind = "cancelled"  // the client gave up
	KindUnanswered Kind = "unanswered" // the client did not answer a server request
)

// Error is a failure of Junction or of the connection. An error that the server returned is a
// *jsonrpc.Error instead.
type Error struct {
	Upstream string
	Kind     Kind
	Err      error
}

func (e *Error) Error() string { return fmt.Sprintf("upstream %s: %v", e.Upstream, e.Err) }

// Public returns the text for the client. It does not contain the last output of a child process;
// the log and the table of upstreams show that output.
func (e *Error) Public() string {
	if own, ok := errors.AsType[*ownError](e.Err); ok {
		return (&Error{e.Upstream, e.Kind, own.err}).Public() + "; " + own.hint()
	}
	if exit, ok := errors.AsType[*transport.ExitError](e.Err); ok {
		return fmt.Sprintf("upstream %s: %s", e.Upstream, exit.How)
	}
	return e.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// ownError is the error of a second process, for one principal or session, while the server's first
// process runs.
type ownError struct{ err error }

func (e *ownError) hint() string {
	return "this was a second process of the server, for this user alone; a server that can run only once needs " +
		"isolation: shared"
}

func (e *ownError) Error() string { return e.err.Error() + "; " + e.hint() }

func (e *ownError) Unwrap() error { return e.err }

// kindOf returns the kind of the error of a call that had a connection.
func kindOf(err error) Kind {
	switch {
	case errors.As(err, new(*timeoutError)):
		return KindTimeout
	case errors.Is(err, context.Canceled):
		return KindCancelled
	case errors.As(err, new(*transport.MemoryError)):
		return KindBusy
	case errors.Is(err, transport.ErrNotSent), errors.As(err, new(*transport.TokenError)),
		errors.As(err, new(*LoginError)):
		return KindUnavailable
	case errors.As(err, new(*transport.StatusError)), errors.Is(err, transport.ErrInvalid):
		return KindInvalid
	}
	return KindLost
}

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

// clock ends a call after too long a silence of the server, and after max in any case. During a
// silence its timer fires twice: in the middle, when the conn may ping the server, and at the end.
type clock struct {
	expire  context.CancelCauseFunc
	owned   bool // expire is only called by the clock
	timer   *time.Timer
	timeout time.Duration
	max     time.Duration
	began   time.Time
	heard   atomic.Int64 // time of the last bytes of the call's own response, in ns after began; 0 is never
	slot    pace.Slot    // of the call

	mu     sync.Mutex
	pinger *legacyConn // is pinged during a silence; nil if the server cannot be pinged
	due    time.Time   // when the silence has lasted too long
	end    time.Time
	held   int       // open server requests, which wait for a user
	since  time.Time // held is not 0
	over   bool      // the call has ended: the timer stays stopped
}

// newClock returns a context that ends when the time of the call is over, with a *timeoutError as
// cause. If end is not nil, it must end ctx, and the context is ctx. The caller must call stop.
func newClock(ctx context.Context, end context.CancelCauseFunc, timeout, max time.Duration) (context.Context, *clock) {
	timeout = min(timeout, max)
	now := time.Now()
	c := &clock{expire: end, timeout: timeout, max: max, began: now, due: now.Add(timeout), end: now.Add(max)}
	if end == nil {
		ctx, c.expire = context.WithCancelCause(ctx)
		c.owned = true
	}
	c.mu.Lock() // ring reads timer
	c.timer = time.AfterFunc(timeout/2, c.ring)
	c.mu.Unlock()
	return ctx, c
}

// ring is called by the timer.
func (c *clock) ring() {
	c.mu.Lock()
	defer c.mu.Unlock()       // after expire, so that stop waits for it
	if c.held > 0 || c.over { // a server request has just arrived, or the answer
		return
	}
	now := time.Now()
	if heard := c.heard.Load(); heard > 0 {
		if due := c.began.Add(time.Duration(heard) + c.timeout); due.After(c.due) {
			c.due = due
		}
	}
	switch middle := c.due.Add(-c.timeout / 2); {
	case !now.Before(c.end):
		c.over = true
		c.expire(&timeoutError{after: c.max})
	case !now.Before(c.due):
		c.over = true
		c.expire(&timeoutError{after: c.timeout, silent: true})
	case now.Before(middle): // the server has sent something meanwhile
		c.timer.Reset(min(middle.Sub(now), c.end.Sub(now)))
	default:
		c.timer.Reset(min(c.due.Sub(now), c.end.Sub(now)))
		if c.pinger != nil {
			c.pinger.startPing(c.due)
		}
	}
}

// setPinger sets the conn of the call, which can ping the server.
func (c *clock) setPinger(l *legacyConn) {
	c.mu.Lock()
	c.pinger = l
	c.mu.Unlock()
}

// Late and Settled implement transport.Observer for the slot of an abandoned call.
func (c *clock) Late()         { c.slot.Late() }
func (c *clock) Settled() bool { return c.slot.Over() }

// Heard notes that bytes of the response have arrived. It is cheap: the timer reads the note when
// it fires.
func (c *clock) Heard() { c.heard.Store(int64(time.Since(c.began))) }

// touch notes that the server has sent something, and begins a new silence.
func (c *clock) touch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == 0 && !c.over {
		c.restart()
	}
}

// restart begins a new silence; mu is held.
func (c *clock) restart() {
	now := time.Now()
	c.due = now.Add(c.timeout)
	c.timer.Reset(min(c.timeout/2, c.end.Sub(now)))
}

// left returns how much time the call has.
func (c *clock) left() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held > 0 {
		return c.timeout
	}
	due := c.due
	if c.end.Before(due) {
		due = c.end
	}
	return time.Until(due)
}

func (c *clock) stop() {
	c.mu.Lock()
	c.over = true
	c.timer.Stop()
	c.mu.Unlock()
	if c.owned {
		c.expire(nil)
	}
}

// hold stops the clock while a server request waits for a user. The caller must call release.
// Several server requests may hold the clock at once.
func (c *clock) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held++; c.held == 1 {
		c.timer.Stop()
		c.since = time.Now()
	}
}

func (c *clock) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held--; c.held == 0 && !c.over {
		c.end = c.end.Add(time.Since(c.since))
		c.restart()
	}
}
