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
	"junction/upstream/jsonrpc"
	"junction/upstream/pace"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// Call is one client's request on its way to an upstream. It belongs to the caller again when
// (*Upstream).Call returns.
type Call struct {
	// Method is the MCP method, such as tools/call.
	Method string
	// Name is what the request is about under the upstream's own name: of the tool or prompt, or
	// the resource's URI. It replaces the member of params that Member says: one name, or two where
	// the inner one is in an object; nil is name.
	Name   string
	Member []string
	// Params are the client's own, untouched; of them only the name and what _meta says about the
	// client's hop are replaced.
	Params raw.Object
	// Header are Mcp-Param headers of the client's that no tool declares: they go to HTTP servers
	// as they are.
	Header []HeaderField
	// Era is the client's.
	Era Era
	// LogLevel is from which level on the client wants the log messages of this request; "" wants
	// none that it would have to ask for.
	LogLevel string
	// Profile, Session and Principal decide which connection the call may use.
	Profile   Profile
	Session   string
	Principal string // "" where there is one user only
	// Account is whom the call counts for where callers share what the upstream takes at once:
	// Principal, or what tells callers apart where there is none.
	Account string
	// Buffer, when it is not nil, is memory that the result may be read into: the result is valid
	// until the caller uses it for something else. The upstream leaves a larger one here if it
	// needed that.
	Buffer *[]byte
	// Peer takes what the upstream says and asks during the call; nil takes nothing, and answers
	// nothing.
	Peer Peer
	// End ends the context that the call is made with. When it is nil, the call makes a context of
	// its own, to end it when its time is over.
	End context.CancelCauseFunc
	// Trace is that of the client's request, for Options.Observer; nil for none.
	Trace Trace

	asTask  bool // see Tool.TaskOnly
	carried TraceContext
}

// Observer observes the calls that are sent to servers, for metrics and traces. Its methods are
// called by many goroutines at once and must not block.
type Observer interface {
	// Begin is called before a call is sent to a server. Waiting for a connection is over then. The
	// Trace is passed to End; the TraceContext is sent to the server.
	Begin(s Sent) (Trace, TraceContext)
	// End is called once for each Begin.
	End(s Sent, t Trace, r Received)
}

// Trace is a value of an Observer about one request, such as a span. Only the Observer knows its
// type.
type Trace any

// Sent is a call that is sent to a server. A call that is sent again is another Sent.
type Sent struct {
	Upstream string
	Call     *Call  // valid only during Begin and End
	Version  string // of the protocol, as negotiated with the server
	URL      string // of the server; "" for a command
}

// Received is the outcome of a Sent.
type Received struct {
	Took      time.Duration
	ToolError bool  // the result has isError
	Code      int64 // of the server's error response; 0 for none
	Kind      Kind  // of the failure, if there was no response; else ""
}

// TraceContext is what a server learns about the trace of a call (W3C Trace Context). The zero value
// changes nothing.
type TraceContext struct {
	Parent string // traceparent; "" sends none
	State  string // tracestate
	// Header means that only HTTP headers carry it: _meta stays as the client has written it.
	Header bool
	// Inherited means that _meta has the tracestate already.
	Inherited bool
}

// edits adds the members of _meta (SEP-414).
func (t *TraceContext) edits(own []raw.Edit) []raw.Edit {
	if t.Parent == "" || t.Header {
		return own
	}
	own = append(own, raw.Edit{Name: "traceparent", Value: raw.Quote(t.Parent)})
	if t.State != "" && !t.Inherited {
		own = append(own, raw.Edit{Name: "tracestate", Value: raw.Quote(t.State)})
	}
	return own
}

// header adds the headers.
func (t *TraceContext) header(h []HeaderField) []HeaderField {
	if t.Parent == "" {
		return h
	}
	h = append(h, HeaderField{Name: "Traceparent", Value: t.Parent})
	if t.State != "" {
		h = append(h, HeaderField{Name: "Tracestate", Value: t.State})
	}
	return h
}

// send sends the call on the connection, and tells the Observer.
func (u *Upstream) send(ctx context.Context, cn conn, c *Call, clock *clock) (Result, error) {
	o := u.options.Observer
	if o == nil {
		return cn.call(ctx, c, clock)
	}
	s := Sent{u.name, c, cn.about().version, u.hard.URL}
	var t Trace
	t, c.carried = o.Begin(s)
	began := time.Now()
	result, err := cn.call(ctx, c, clock)
	r := Received{Took: time.Since(began)}
	switch said := (*jsonrpc.Error)(nil); {
	case err == nil:
		r.ToolError = c.Method == string(mcp.MethodToolsCall) && result.Failed()
	case errors.As(err, &said):
		r.Code = said.Code
	case ctx.Err() != nil:
		r.Kind = kindOf(context.Cause(ctx))
	default:
		r.Kind = kindOf(err)
	}
	o.End(s, t, r)
	return result, err
}

// Result is what a server answered to a call.
type Result struct {
	raw.Object // as the server wrote it
	// resultType of the modern era; TypeComplete where the server says none, and for every result
	// of a legacy server
	Type string
}

// Failed reports whether the result of a tool call is a failure of the tool (isError).
func (r Result) Failed() bool {
	v, err := r.Get("isError")
	return err == nil && string(v) == "true"
}

// The types of result that we know (2026-07-28, basic/index#resulttype). Others are invalid, and
// never returned.
const (
	TypeComplete      = "complete"
	TypeInputRequired = "input_required" // only of tools/call, prompts/get and resources/read
	TypeTask          = "task"           // only if the profile has Tasks, of tools/call
)

// rename is the edit of the params that puts the upstream's own name in.
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

// headerName is what the header Mcp-Name says: what the request is about, where params have that at
// their top (2026-07-28, streamable-http#standard-headers).
func (c *Call) headerName() string {
	if len(c.Member) > 1 {
		return ""
	}
	return c.Name
}

// HeaderField is one field of an HTTP header.
type HeaderField = http1.Field

// Kind says in one word what went wrong between us and an upstream.
type Kind string

const (
	KindUnavailable Kind = "unavailable" // there is no connection, and none could be made
	KindTimeout     Kind = "timeout"     // no answer in time; the upstream was told to cancel
	// the connection broke during the call, which may or may not have been carried out
	KindLost       Kind = "lost"
	KindInvalid    Kind = "invalid"    // the upstream answered something that is no answer
	KindBusy       Kind = "busy"       // too many calls or connections are in use
	KindCancelled  Kind = "cancelled"  // the client gave up
	KindUnanswered Kind = "unanswered" // the client did not answer what the upstream asked
)

// Error is a failure of ours or of the connection, as distinct from a *jsonrpc.Error, which is what
// the upstream said.
type Error struct {
	Upstream string
	Kind     Kind
	Err      error
}

func (e *Error) Error() string { return fmt.Sprintf("upstream %s: %v", e.Upstream, e.Err) }

// Public is Error for the client: without what a child process wrote to stderr before it ended,
// which is for the log and the table of upstreams.
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

// ownError is why one principal or session could not get a process of its own, while the server's
// first process runs.
type ownError struct{ err error }

func (e *ownError) hint() string {
	return "this was a second process of the server, for this user alone; a server that can run only once needs " +
		"isolation: shared"
}

func (e *ownError) Error() string { return e.err.Error() + "; " + e.hint() }

func (e *ownError) Unwrap() error { return e.err }

// kindOf says which kind of failure err is for a call that got as far as a connection.
func kindOf(err error) Kind {
	var status *transport.StatusError
	var timeout *timeoutError
	switch {
	case errors.As(err, &timeout):
		return KindTimeout
	case errors.Is(err, context.Canceled):
		return KindCancelled
	case errors.As(err, new(*transport.MemoryError)):
		return KindBusy
	case errors.Is(err, transport.ErrNotSent), errors.As(err, new(*transport.TokenError)),
		errors.As(err, new(*LoginError)):
		return KindUnavailable
	case errors.As(err, &status), errors.Is(err, transport.ErrInvalid):
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

// clock ends a call after too much silence, and after max in any case. Its timer fires twice in a
// time of silence: in the middle, where the conn may ask the server whether it is alive, and at the
// end.
type clock struct {
	expire  context.CancelCauseFunc
	owned   bool // expire is only called by the clock
	timer   *time.Timer
	timeout time.Duration
	max     time.Duration
	began   time.Time
	heard   atomic.Int64 // when the last bytes of the call's own response came, in nanoseconds after began; 0 is never
	slot    pace.Slot    // of the call

	mu    sync.Mutex
	alive prober    // asks the server whether it is alive; nil where that cannot be asked
	due   time.Time // when the silence has lasted too long
	end   time.Time
	held  int       // questions that a person is thinking about
	since time.Time // held is not 0
	over  bool      // the call has ended: the timer stays stopped
}

// prober is a conn that can ask its server whether it is alive. Every answer touches the clocks of
// the calls on the conn.
type prober interface {
	// probe makes the conn ask, unless it is asking already. An answer is of use until the time
	// given. probe does not block and does not call the clock.
	probe(until time.Time)
}

// newClock returns a context that ends when the call's time is over, with a *timeoutError as cause:
// ctx, if there is an end to it. stop must follow.
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
	defer c.mu.Unlock()       // after expire: what comes after the call is not ended
	if c.held > 0 || c.over { // a question was just put, or the answer is there
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
	case now.Before(middle): // there was a sign of life meanwhile
		c.timer.Reset(min(middle.Sub(now), c.end.Sub(now)))
	default:
		c.timer.Reset(min(c.due.Sub(now), c.end.Sub(now)))
		if c.alive != nil {
			c.alive.probe(c.due)
		}
	}
}

// probedBy says which conn the call is on, if that can ask the server whether it is alive.
func (c *clock) probedBy(p prober) {
	c.mu.Lock()
	c.alive = p
	c.mu.Unlock()
}

// Late and Settled are about the slot of a call that was given up.
func (c *clock) Late()         { c.slot.Late() }
func (c *clock) Settled() bool { return c.slot.Over() }

// Heard says that bytes of the call's own response have come. It is cheap: the timer looks at it
// when it fires.
func (c *clock) Heard() { c.heard.Store(int64(time.Since(c.began))) }

// touch says that the upstream has shown a sign of life.
func (c *clock) touch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == 0 && !c.over {
		c.restart()
	}
}

// restart begins a new time of silence; mu is held.
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

// hold stops the silence from counting while a person is asked, and the hard cap as well; release
// follows. Both may be called for several questions at once.
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
