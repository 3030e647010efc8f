package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
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
	"junction/proxy/search"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// exchange is one client request until its answer. It belongs to the goroutine of its HTTP request.
type exchange struct {
	scope.Caller
	era      upstream.Era
	msg      jsonrpc.Message
	method   method     // the zero method if it is unknown
	params   raw.Object // absent if there are none
	meta     raw.Object // params._meta
	request  *http.Request
	reply    reply
	info     CallInfo                // for CallDone
	body     *[]byte                 // of the request; nil until it was read
	size     int                     // of the body, in bytes
	held     budget.Grant            // for the request, its body and a large answer
	reserved int64                   // part of held for the answer, in bytes
	buffer   *[]byte                 // for the upstream's answer; nil for none
	end      context.CancelCauseFunc // cancels the context of the request

	client  string   // the client's name for itself (unverified)
	session *session // legacy only
	// minimum level of log messages for the client; "" means no messages in the modern era, and the
	// upstream's default in the legacy era
	logLevel  string
	class     search.Class    // of the call tool that the client has called; NoClass for none
	target    *view.Target    // of a call
	decision  policy.Decision // about the call
	approved  bool            // the user has approved the call
	shown     []byte          // approvalDigest of the approved call, if an earlier request made it; else nil
	listeners *listeners
	opening   sync.Mutex             // guards opened: a legacy upstream may send several requests at once
	opened    []string               // elicitation IDs of Junction; see newElicitationID
	lacks     atomic.Pointer[string] // JSON of missing client capabilities that the upstream requested; nil for none
	reuse     answers.Key            // of the call; the zero Key if its result must not be kept
	asked     atomic.Bool            // the upstream has sent a request to the client
	observer  Observer               // nil observes nothing
	trace     upstream.Trace         // of the observer; nil for none
	outlived  bool                   // a call uses the params after the request was answered
}

// newExchange returns the exchange of a request whose message was not read yet. Call
// release at its end.
func (s *Server) newExchange(w http.ResponseWriter, r *http.Request, c scope.Caller) *exchange {
	x := &exchange{Caller: c, request: r, held: s.grant(c, r)}
	x.reply.init(w, r, &s.limits)
	return x
}

// read sets the message of the exchange and parses its params. The error is a *refusal.
func (s *Server) read(x *exchange, m jsonrpc.Message) error {
	x.msg, x.method = m, s.methods[mcp.MCPMethod(m.Method)]
	if m.Params == nil {
		return nil
	}
	if x.params = m.Body; !x.params.Present() {
		return refuse(http.StatusBadRequest, -32600, "Invalid Request: params must be an object")
	}
	var err error
	if x.meta, err = x.params.Object("_meta"); err != nil && err != raw.ErrAbsent {
		return malformed(err)
	}
	// Members for the hop are removed by exact name, so reject a name that another parser would
	// treat as the same.
	if _, err := x.meta.Get("progressToken"); err != nil && err != raw.ErrAbsent {
		return malformed(err)
	}
	return nil
}

// Notify implements upstream.Peer.
func (x *exchange) Notify(method string, params []byte) {
	if method == string(mcp.MethodNotificationMessage) && !x.wantsLog(params) {
		return
	}
	kept := redact.Nothing
	if method == string(mcp.MethodNotificationProgress) {
		kept = redact.ProgressToken // the client's own
	}
	params, _, err := x.Subject.Redact.Text(params, kept)
	if err != nil {
		return // a text that cannot be searched is not sent
	}
	if method == methodElicitationComplete && x.session != nil {
		// The notification may come long after the call. Then it is sent on another stream of the
		// session.
		if !x.reply.send(jsonrpc.AppendRequest(nil, "", method, params)) {
			x.listeners.tellSession(x.session, x.Endpoint.Name, note{method: method, params: string(params)})
		}
		return
	}
	x.reply.notify(method, params)
}

// wantsLog reports whether a log message passes the client's level. If the client chose a level,
// messages without a known level do not pass.
func (x *exchange) wantsLog(params []byte) bool {
	if x.logLevel == "" {
		return x.era == upstream.EraLegacy
	}
	v, err := raw.Get(params, "level")
	if err != nil {
		return false
	}
	level, err := raw.String(v)
	return err == nil && upstream.Level(level) > 0 && upstream.Level(level) <= upstream.Level(x.logLevel)
}

// upstreamCall returns the call of the upstream for a request about target.
func (x *exchange) upstreamCall(target *view.Target) *upstream.Call {
	c := &upstream.Call{Method: x.msg.Method, Name: target.Name, Member: target.Member, Params: x.params,
		Principal: x.User(), Account: x.held.Name(), Peer: x,
		Era: x.era, Profile: x.Who.Profile, LogLevel: x.logLevel, End: x.end, Trace: x.trace}
	if x.session != nil {
		c.Session = x.session.Key
	}
	return c
}

// start begins the record of the request, for log, audit and metrics.
func (x *exchange) start() *CallInfo {
	info := &x.info
	*info = CallInfo{RequestID: auth.RequestID(x.reply.w), Client: x.client, Principal: x.Principal.ID,
		Person: x.Principal.Name, Email: x.Principal.Email, Kind: string(x.Principal.Kind),
		Address: x.Principal.Address, Era: string(x.era), Endpoint: x.Endpoint.Name, Surface: x.Endpoint.Surface,
		Method: x.msg.Method, Request: string(x.msg.ID),
		Sent: x.size}
	info.Version = modernVersion
	if x.session != nil {
		info.Session, info.Version = x.session.Key, x.session.Version
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
func (x *exchange) fail(err error) (reported error) {
	e, status := rpcError(err, x.info.Upstream)
	reported = err
	clean, n := e, 0
	if _, ours := errors.AsType[*upstream.Error](err); ours { // the text may contain text of the upstream
		clean, n = x.Subject.Redact.Error(&jsonrpc.Error{Code: e.Code, Message: e.Message})
		clean = clean.WithData(e.Data) // of Junction
	} else if _, peer := errors.AsType[*jsonrpc.Error](err); peer { // most were redacted before
		clean, n = x.Subject.Redact.Error(e)
	}
	if n > 0 {
		e, reported = clean, &redactedError{err, clean.Message}
	}
	x.info.Code = e.Code
	if own, ok := errors.AsType[*refusal](err); ok && own.challenge != "" {
		x.reply.w.Header().Set("WWW-Authenticate", own.challenge)
	}
	retry(x.reply.w, err)
	x.reply.fail(x.msg.ID, e, status)
	return reported
}

// serve dispatches the request and writes exactly one answer.
func (s *Server) serve(ctx context.Context, x *exchange) {
	began := time.Now()
	x.buffer = s.results.get()
	defer s.results.put(x.buffer)
	defer x.reply.finish() // in any case, so that no goroutine writes to a finished request
	info := x.start()
	if s.observer != nil {
		x.observer, x.trace = s.observer, s.observer.Begin(info, x.meta, x.request.Header)
		defer func() { s.observer.End(info, x.trace) }()
	}
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
		x.reply.succeed(x.msg.ID, result)
	}
	info.Took, info.Received, info.Err = time.Since(began), result.size(), reported
	decideOutcome(info, err)
	if s.hooks.CallDone != nil && (info.Upstream != "" || err != nil) {
		var unclear error
		if info.Arguments, unclear = x.params.Get("arguments"); errors.Is(unclear, raw.ErrAmbiguous) {
			info.Arguments = x.params.Text()
		}
		s.report(info)
	}
}

// Reserve implements upstream.Memory. A large answer counts for the caller until the request is
// over, because a slow client keeps it in memory.
func (x *exchange) Reserve(n int64) error { return reserve(&x.held, &x.reserved, n) }

// reserve takes the bytes of an answer from the budget.
func reserve(held *budget.Grant, reserved *int64, n int64) error {
	err := held.Reserve(budget.Bytes, n)
	if e, ok := errors.AsType[*budget.Exceeded](err); ok {
		own := overuseRefusal(e)
		own.text = "the call was made, and its answer of " + bytesText(*reserved+n) + " or more is dropped: " + own.text
		return own
	}
	*reserved += n
	return err
}

// hold reserves the part of an answer that is not reserved yet: some transports cannot attribute an
// answer before it was read.
func (x *exchange) hold(r result) error {
	if n := int64(r.size()) - x.reserved; n > oneWrite {
		return x.Reserve(n)
	}
	return nil
}

// report passes a call to the CallDone hook.
func (s *Server) report(info *CallInfo) {
	for _, text := range [...]*string{&info.Method, &info.Name, &info.Own, &info.Request, &info.Endpoint} {
		*text = (*text)[:min(len(*text), maxLogged)]
	}
	s.hooks.CallDone(info)
}

// maxLogged bounds texts of the client in the log, in bytes.
const maxLogged = 200

// result is a result in parts, so that a large result is not copied.
type result struct {
	head, body, tail []byte
	items            view.Definitions // between body and tail
}

func (r result) size() int { return len(r.head) + len(r.body) + r.items.Size + len(r.tail) }

// toolText returns a result of a tool call that has a text of Junction's own. more are further
// members of the result, each after a comma.
func (s *Server) toolText(x *exchange, text, more string) result {
	return s.ownResult(x, fmt.Sprintf(`"content":[{"type":"text","text":%s}]%s`, raw.Quote(text), more))
}

// isError is a member for toolText: the model can correct the call.
const isError = `,"isError":true`

// inputRequired returns the answer that puts requests to a modern client. Each is a member of
// inputRequests.
func (s *Server) inputRequired(x *exchange, requests [][]byte, st state) result {
	return result{body: fmt.Appendf(nil,
		`{"resultType":"input_required","inputRequests":{%s},"requestState":%s,"_meta":%s}`,
		bytes.Join(requests, []byte{','}), raw.Quote(s.seal(x, st)), s.modernMeta)}
}

// ownResult returns a result of Junction's own: members, and the members that the era requires.
func (s *Server) ownResult(x *exchange, members string) result {
	if x.era == upstream.EraLegacy {
		return result{body: []byte("{" + members + "}")}
	}
	return result{body: append(append([]byte("{"+members+`,"resultType":"complete","_meta":`), s.modernMeta...), '}')}
}
