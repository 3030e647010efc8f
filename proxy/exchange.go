package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
	"junction/policy"
	"junction/proxy/answers"
	"junction/proxy/budget"
	"junction/proxy/redact"
	"junction/proxy/scope"
	"junction/proxy/sealed"
	"junction/proxy/search"
	"junction/proxy/streams"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/bounded"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// Front is the side of the client of one exchange: what the core needs of a front.
type Front interface {
	// Begin lets the answer begin as a stream if it takes long.
	Begin()
	// Hears reports whether the client gets messages before the answer.
	Hears() bool
	// Notify sends a notification of the request to the client. It does not block. It returns false if
	// it dropped the notification.
	Notify(method string, params []byte) bool
	// Ask sends a request to a client of the legacy era that hears, and waits for the answer. The error
	// is the client's, or ErrNoAnswer. progress gets the client's progress; it may be nil.
	Ask(ctx context.Context, method string, params []byte, progress func([]byte)) ([]byte, error)
	// Headers compares the headers of a tool call with the arguments that they repeat, for a client of
	// the modern era. It returns the headers that repeat no argument.
	Headers(params raw.Object, tool *upstream.Tool) ([]client.HeaderField, error)
	// Listen answers with a stream of notifications. It returns when the stream has ended.
	Listen(ctx context.Context, l *streams.Listener)
	// CallStateful makes a call of a server that declares state (stateful), at the member that has the
	// state of the holder. It may run after the request was answered. The error is for the client.
	CallStateful(ctx context.Context, s Stateful, holder string, c *upstream.Call) (client.Result, error)
	// Succeed answers the request with a result.
	Succeed(r Result)
	// Fail answers the request with an error. cause is the error that e was made of.
	Fail(e *jsonrpc.Error, reason Reason, cause error)
}

// Stateful is an upstream with state; see the methods of upstream.Upstream.
type Stateful interface {
	Name() string
	Config() upstream.Config
	Call(context.Context, *upstream.Call) (client.Result, error)
	Keeps(holder string) bool
	Discard(holder string)
}

// Exchange is one client request until its answer. It belongs to the goroutine of its front, which
// sets the exported fields before Serve.
type Exchange struct {
	scope.Caller
	core  *Core
	front Front

	Era       client.Era
	Msg       jsonrpc.Message
	method    method              // the zero method if it is unknown
	Params    raw.Object          // absent if there are none
	Meta      raw.Object          // params._meta
	RequestID string              // X-Request-Id; "" for none
	Header    map[string][]string // of the transport, for the Observer
	Size      int                 // of the body, in bytes
	Client    string              // the client's name for itself (unverified)
	Session   *Session            // legacy only; not nil there
	// minimum level of log messages for the client; "" means no messages in the modern era, and the
	// upstream's default in the legacy era
	LogLevel string
	End      context.CancelCauseFunc // cancels the context of the request

	Info     CallInfo     // for CallDone
	trace    client.Trace // of the Observer; nil for none
	Grant    budget.Grant // for the request, its body and a large answer
	reserved int64        // part of Grant for the answer, in bytes
	buffer   *[]byte      // for the upstream's answer; nil for none
	Outlived bool         // a call uses the params after the request was answered

	judged
	questions
	located
}

// judged is what Core.call has found out about the call of an exchange.
type judged struct {
	class    search.Class    // of the call tool that the client has called; NoClass for none
	target   *view.Target    // of a call
	decision policy.Decision // about the call
	approved bool            // the user has approved the call
	shown    []byte          // Request.ApprovalDigest of the approved call, if an earlier request made it; else nil
	restored raw.Object      // Params with the text that comes back in arguments; absent for none
	// headers of the client for the server of the call (forward.go)
	forwarded upstream.Forwarded
	reuse     answers.Key // of the call; the zero Key if its result must not be kept
}

// questions are what an upstream has sent to the client during the call of an exchange. A legacy
// upstream may send several requests at once.
type questions struct {
	asked   atomic.Bool            // the upstream has sent a request to the client
	lacks   atomic.Pointer[string] // JSON of missing client capabilities that the upstream requested; nil for none
	opening sync.Mutex             // guards opened
	opened  []string               // elicitation IDs of Junction; see newElicitationID
}

// Session is what the core keeps of a legacy session between its requests.
type Session struct {
	Version string // of the protocol
	Key     string // identifies the session for upstreams; "" for a request without a session
	// Extensions are those that the client has declared; never modified after the handshake.
	Extensions []string
	Streams    streams.Session

	mu       sync.Mutex
	level    string          // the log level that the client has set; "" for none
	approved map[string]bool // digests of requests with a remembered approval
	roots    roots
}

// Level returns the log level that the client has set; "" for none.
func (s *Session) Level() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level
}

func (s *Session) setLevel(level string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.level = level
}

// Prepare sets up a zero exchange for a request whose message was not read yet. The grant belongs to
// the exchange.
func (s *Core) Prepare(x *Exchange, f Front, c scope.Caller, held budget.Grant) {
	x.core, x.front, x.Caller, x.Grant = s, f, c, held
}

// Read sets the message of the exchange and parses its params. The error is a *Refusal.
func (s *Core) Read(x *Exchange, m jsonrpc.Message) error {
	x.Msg, x.method = m, s.methods[mcp.MCPMethod(m.Method)]
	if m.Params == nil || m.Params[0] == '[' && x.takesNone() {
		return nil
	}
	if x.Params = m.Body; !x.Params.Present() {
		return Refuse(ReasonRequest, mcp.INVALID_REQUEST, "Invalid Request: params must be an object")
	}
	var err error
	if x.Meta, err = x.Params.Object("_meta"); err != nil && err != raw.ErrAbsent {
		return Malformed(err)
	}
	// Members for the hop are removed by exact name, so reject a name that another parser would
	// treat as the same.
	if _, err := x.Meta.Get("progressToken"); err != nil && err != raw.ErrAbsent {
		return Malformed(err)
	}
	return nil
}

// takesNone reports whether the params of the request are an empty array, which some clients write for
// none, and the method needs none. Upstreams answer the methods that need some.
func (x *Exchange) takesNone() bool {
	list, err := raw.ElementsWithin(x.Msg.Params, 0)
	return err == nil && len(list) == 0 && !x.method.calls
}

// NamedBy returns the member of params that names the target; "" if the method has none.
func (x *Exchange) NamedBy() string { return x.method.member }

// Notify implements client.Peer.
func (x *Exchange) Notify(method string, params []byte) {
	if method == string(mcp.MethodNotificationMessage) && !x.wantsLog(params) {
		return
	}
	kept := redact.Nothing
	if method == string(mcp.MethodNotificationProgress) {
		kept = redact.ProgressToken // the client's own
	}
	params, _, err := x.reader().Text(params, kept)
	if err != nil {
		return // a text that cannot be searched is not sent
	}
	if method == methodElicitationComplete && x.Session != nil {
		// The notification may come long after the call. Then it is sent on another stream of the
		// session. What waits there is bounded by number only.
		if !x.front.Notify(method, params) && len(params) <= maxCompleted {
			x.core.listeners.Notify(&x.Session.Streams, x.Endpoint.Name, method, params)
		}
		return
	}
	x.front.Notify(method, params)
}

// maxCompleted bounds notifications/elicitation/complete on another stream, in bytes.
const maxCompleted = 4 << 10

// wantsLog reports whether a log message passes the client's level. If the client chose a level,
// messages without a known level do not pass.
func (x *Exchange) wantsLog(params []byte) bool {
	if x.LogLevel == "" {
		return x.Era == client.EraLegacy
	}
	v, err := raw.Get(params, "level")
	if err != nil {
		return false
	}
	level, err := raw.String(v)
	return err == nil && client.Level(level) > 0 && client.Level(level) <= client.Level(x.LogLevel)
}

// sessionless reports whether a legacy client has sent the request without a session.
func (x *Exchange) sessionless() bool { return x.Session != nil && x.Session.Key == "" }

// program identifies the session of a legacy client, or the program of a client without a session;
// "" if several users may be one principal (auth.none behind a proxy that authenticates).
func (x *Exchange) program() string {
	switch {
	case x.Session != nil && x.Session.Key != "":
		return x.Session.Key
	case x.Principal.Kind == auth.KindLocal && !x.Snapshot.Direct:
		return ""
	}
	return string(x.Era) + " " + strings.Join(x.Header["User-Agent"], " ") + " " + x.Client
}

// upstreamCall returns the call of the upstream for a request about target.
func (x *Exchange) upstreamCall(target *view.Target) *upstream.Call {
	c := &upstream.Call{
		Call: client.Call{Method: x.Msg.Method, Name: target.Name, Member: target.Param.Path(), Params: x.sent(),
			Principal: x.User(), Peer: x, Profile: x.Who.Profile, LogLevel: x.LogLevel,
			Trace: x.trace, Forwarded: x.forwarded},
		Account: x.Grant.Name(), Era: x.Era, End: x.End, Folders: x.folders, Caller: Identified(x.Principal),
	}
	if x.Session != nil {
		c.Session = x.Session.Key
	} else {
		c.Window = x.Who.Session
	}
	return c
}

// coming returns what decides about the connection of later calls of the client.
func (x *Exchange) coming() *upstream.Call {
	c := upstream.Coming(x.Who.Profile, x.Who.Session, x.User())
	c.Era, c.Account = x.Era, x.Grant.Name()
	return c
}

// start begins the record of the request, for log, audit and metrics.
func (x *Exchange) start() *CallInfo {
	info := &x.Info
	*info = CallInfo{RequestID: x.RequestID, Client: x.Client, Principal: x.Principal.ID, KeyID: x.Principal.KeyID,
		Person: x.Principal.Name, Email: x.Principal.Email, Kind: string(x.Principal.Kind),
		Address: x.Principal.Address, Era: string(x.Era), Endpoint: x.Endpoint.Name, Surface: x.Endpoint.Surface,
		Method: x.Msg.Method, Request: string(x.Msg.ID),
		Sent: x.Size}
	info.Version = ModernVersion
	if x.Session != nil {
		info.Session, info.Version = x.Session.Key, x.Session.Version
	}
	return info
}

// redactedError is an error with the text that the client reads, for the log and the audit.
type redactedError struct {
	error
	text string
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.error }

// fail answers with an error, and returns the error to report.
func (x *Exchange) fail(err error) (reported error) {
	e, reason := RPCError(err, x.Info.Upstream)
	reported = err
	clean, n := e, 0
	_, ours := errors.AsType[*upstream.Error](err)
	if _, peer := errors.AsType[*jsonrpc.Error](err); peer && !ours { // most were redacted before
		clean, n = x.redactor().Error(e)
	} else if reader := x.reader(); reader != nil { // the text may contain text of the upstream
		before := e.Message
		clean, _ = rpcError(err, x.Info.Upstream, reader.String)
		clean, n = reader.Error(&jsonrpc.Error{Code: e.Code, Message: clean.Message})
		if clean = clean.WithData(e.Data); clean.Message != before { // the data is Junction's
			n++
		}
	}
	if n > 0 {
		e, reported = clean, &redactedError{err, clean.Message}
	}
	x.Info.Code = e.Code
	x.front.Fail(e, reason, err)
	return reported
}

// Serve dispatches the request and writes exactly one answer.
func (s *Core) Serve(ctx context.Context, x *Exchange) {
	began := time.Now()
	x.buffer = s.results.Get()
	defer s.results.Put(x.buffer)
	info := x.start()
	defer s.observe(x)()
	result, err := s.dispatch(ctx, x)
	if err == errAnswered {
		info.Outcome, info.Took = OK, time.Since(began)
		return
	}
	if err == nil && x.method.calls {
		err = x.hold(result)
	}
	reported := err
	if err != nil {
		reported = x.fail(err)
	} else {
		x.front.Succeed(result)
	}
	info.Took, info.Received, info.Err = time.Since(began), result.Size(), reported
	decideOutcome(info, err)
	if s.hooks.CallDone != nil && (info.Upstream != "" || err != nil) {
		var unclear error
		if info.Arguments, unclear = x.Params.Get("arguments"); errors.Is(unclear, raw.ErrAmbiguous) {
			info.Arguments = x.Params.Text()
		}
		s.Report(info)
	}
}

// Handshake answers a request of a client whose version is not negotiated yet, by a function of the
// front, and tells the Observer.
func (s *Core) Handshake(x *Exchange, shake func() (Result, error)) {
	began, info := time.Now(), x.start()
	info.Version = "" // not negotiated yet
	defer s.observe(x)()
	r, err := shake()
	if err != nil {
		x.fail(err)
	} else {
		x.front.Succeed(r)
	}
	info.Took, info.Received, info.Err = time.Since(began), r.Size(), err
	decideOutcome(info, err)
}

// observe tells the Observer about a request, whose record has begun. It returns a function that
// tells the end of the request.
func (s *Core) observe(x *Exchange) (end func()) {
	if s.observer == nil {
		return func() {}
	}
	x.trace = s.observer.Begin(&x.Info, x.Meta, x.Header)
	return func() { s.observer.End(&x.Info, x.trace) }
}

// Reserve implements client.Memory. A large answer counts for the caller until the request is
// over, because a slow client keeps it in memory.
func (x *Exchange) Reserve(n int64) error { return reserve(&x.Grant, &x.reserved, n) }

// reserve takes the bytes of an answer from the budget.
func reserve(held *budget.Grant, reserved *int64, n int64) error {
	err := held.Reserve(budget.Bytes, n)
	if e, ok := errors.AsType[*budget.Exceeded](err); ok {
		own := overuseRefusal(e)
		// With 429, 503 or Retry-After, a client or a load balancer might make the call again.
		own.reason, own.Retry = ReasonNone, ""
		own.text = "the call was made, and its answer of " + BytesText(*reserved+n) + " or more is dropped: " + own.text
		return own
	}
	*reserved += n
	return err
}

// hold reserves the part of an answer that is not reserved yet: some transports cannot attribute an
// answer before it was read.
func (x *Exchange) hold(r Result) error {
	if n := int64(r.Size()) - x.reserved; n > OneWrite {
		return x.Reserve(n)
	}
	return nil
}

// Report passes a call to the CallDone hook.
func (s *Core) Report(info *CallInfo) {
	if s.hooks.CallDone == nil {
		return
	}
	for _, text := range [...]*string{&info.Method, &info.Name, &info.Own, &info.Request, &info.Endpoint} {
		*text = (*text)[:min(len(*text), maxLogged)]
	}
	s.hooks.CallDone(info)
}

// maxLogged bounds texts of the client in the log, in bytes.
const maxLogged = 200

// Result is a result in parts, so that a large result is not copied.
type Result struct {
	Head, Body, Tail []byte
	Items            view.Definitions // between body and tail
}

// Size returns the length of the result, in bytes.
func (r Result) Size() int { return len(r.Head) + len(r.Body) + r.Items.Size + len(r.Tail) }

// toolText returns a result of a tool call that has a text of Junction's own. more are further
// members of the result, each after a comma.
func (s *Core) toolText(x *Exchange, text, more string) Result {
	return s.ownResult(x, fmt.Sprintf(`"content":[{"type":"text","text":%s}]%s`, raw.Quote(text), more))
}

// isError is a member for toolText: the model can correct the call.
const isError = `,"isError":true`

// inputRequired returns the answer that puts requests to a modern client. Each is a member of
// inputRequests.
func (s *Core) inputRequired(x *Exchange, requests [][]byte, st sealed.State) Result {
	return Result{Body: fmt.Appendf(nil,
		`{"resultType":"input_required","inputRequests":{%s},"requestState":%s,"_meta":%s}`,
		bytes.Join(requests, []byte{','}), raw.Quote(s.seal(x, st)), s.modernMeta)}
}

// ownResult returns a result of Junction's own: members, and the members that the era requires.
func (s *Core) ownResult(x *Exchange, members string) Result {
	if x.Era == client.EraLegacy {
		return Result{Body: []byte("{" + members + "}")}
	}
	return Result{Body: append(append([]byte("{"+members+`,"resultType":"complete","_meta":`), s.modernMeta...), '}')}
}

// approves reports whether the user approved the request for the rest of the session.
func (s *Session) approves(request string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.approved[request]
}

func (s *Session) approve(request string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bounded.Put(&s.approved, maxRemarked, request, true, nil)
}

// maxRemarked bounds the remembered approvals of a legacy session.
const maxRemarked = 256

// Buffers is a pool of Buffers for messages.
type Buffers struct{ pool sync.Pool }

// Get returns a buffer of the pool, or a new one.
func (p *Buffers) Get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

// Put returns a buffer to the pool; a very large buffer is dropped.
func (p *Buffers) Put(b *[]byte) {
	if cap(*b) <= 4<<20 {
		p.pool.Put(b)
	}
}

// OneWrite is the largest answer that is copied into one buffer, in bytes. Beyond it, copying costs
// more than additional system calls.
const OneWrite = 64 << 10
