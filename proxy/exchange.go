package proxy

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
	"junction/policy"
	"junction/proxy/budget"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// exchange is one client request on its way to an answer. It belongs to the goroutine of its HTTP
// request.
type exchange struct {
	caller
	era      upstream.Era
	msg      jsonrpc.Message
	params   raw.Object // absent when there are none
	meta     raw.Object // params._meta
	request  *http.Request
	header   http.Header // of the request
	reply    *reply
	own      reply                   // the memory of reply, as a rule
	info     CallInfo                // for the hook
	size     int                     // of the body
	held     budget.Grant            // of the request and its body, and of a large answer
	reserved int64                   // of held, for the answer
	inTurn   bool                    // it is worked on; see turns.go
	buffer   *[]byte                 // for the upstream's answer; nil means none
	end      context.CancelCauseFunc // of the context that the request is served with

	client  string   // the name that the client gave itself
	session *session // legacy only
	profile upstream.Profile
	// from which on the client wants log messages; "" is none in the modern era, and what comes in
	// the legacy one
	logLevel  string
	target    *view.Target    // of a call
	decision  policy.Decision // about the call
	approved  bool            // a person has approved it
	approval  string          // see CallInfo.Approval; "" when policy did not say ask
	offered   bool            // the answer is that a person has to sign in to the upstream
	listeners *listeners
	opening   sync.Mutex             // guards opened: a legacy upstream may ask several things at once
	opened    []string               // elicitations of ours: see newElicitationID
	lacks     atomic.Pointer[string] // JSON: the capabilities that the upstream asked for in vain; nil for none
	outlived  bool                   // a call goes on with the params after the request was answered
}

// newExchange reads what every request has. The error is a *refusal.
func newExchange(c caller, r *http.Request, m jsonrpc.Message) (*exchange, error) {
	x := &exchange{caller: c, msg: m, header: r.Header}
	if m.Params == nil {
		return x, nil
	}
	if x.params = m.Body; !x.params.Present() {
		return x, refuse(http.StatusBadRequest, -32600, "Invalid Request: params must be an object")
	}
	var err error
	if x.meta, err = x.params.Object("_meta"); err != nil && err != raw.ErrAbsent {
		return x, malformed(err)
	}
	// What belongs to the hop is taken out by exact name, so a name that another reader takes for
	// it must not pass.
	if _, err := x.meta.Get("progressToken"); err != nil && err != raw.ErrAbsent {
		return x, malformed(err)
	}
	return x, nil
}

// Notify implements upstream.Peer.
func (x *exchange) Notify(method string, params []byte) {
	if method == string(mcp.MethodNotificationMessage) && !x.wantsLog(params) {
		return
	}
	if x.subject.redact != nil {
		var err error
		if params, _, err = x.subject.redact.Text(params); err != nil {
			return // what cannot be looked through is not sent
		}
	}
	if method == methodElicitationComplete && x.session != nil {
		// It may come long after the call: then the session hears it on another stream.
		if !x.reply.send(jsonrpc.AppendRequest(nil, "", method, params)) {
			x.listeners.tellSession(x.session, x.endpoint.name, note{method: method, params: string(params)})
		}
		return
	}
	x.reply.notify(method, params)
}

// wantsLog reports whether the client wants a log message. A client that chose a level gets no
// message without a known level.
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

// call makes the upstream's side of a request about target.
func (x *exchange) call(target *view.Target) *upstream.Call {
	c := &upstream.Call{Method: x.msg.Method, Name: target.Name, Member: target.Member, Params: x.params,
		Principal: x.user(), Account: x.held.Name(), Peer: x,
		Era: x.era, Profile: x.profile, LogLevel: x.logLevel, End: x.end}
	if x.session != nil {
		c.Session = x.session.key
	}
	return c
}

// serve answers the request: dispatch, then one answer, whatever happened.
func (s *Server) serve(ctx context.Context, x *exchange) {
	began := time.Now()
	x.buffer = s.results.get()
	defer s.results.put(x.buffer)
	defer x.reply.finish() // in any case, so that no goroutine writes to a finished request
	info := &x.info
	*info = CallInfo{RequestID: auth.RequestID(x.reply.w), Client: x.client, Principal: x.principal.ID,
		Kind: string(x.principal.Kind), Address: x.principal.Address, Era: string(x.era),
		Endpoint: x.endpoint.name, Surface: x.endpoint.surface, Method: x.msg.Method, Request: string(x.msg.ID),
		Sent: x.size}
	if x.session != nil {
		info.Session = x.session.key
	}
	result, err := s.dispatch(ctx, x, info)
	x.endTurn()
	if err == errAnswered {
		return
	}
	if err == nil && isCall(x.msg.Method) {
		err = x.hold(result)
	}
	if err != nil {
		e, status := rpcError(err, info.Upstream)
		if _, ours := errors.AsType[*upstream.Error](err); ours { // what the upstream said may be in its words
			e, _ = x.subject.redact.Error(e)
		}
		info.Code = e.Code
		if own, ok := errors.AsType[*refusal](err); ok && own.challenge != "" {
			x.reply.w.Header().Set("WWW-Authenticate", own.challenge)
		}
		retry(x.reply.w, err)
		x.reply.fail(x.msg.ID, e, status)
	} else {
		x.reply.succeed(x.msg.ID, result)
	}
	if s.hooks.CallDone != nil && (info.Upstream != "" || err != nil) {
		var unclear error
		if info.Arguments, unclear = x.params.Get("arguments"); errors.Is(unclear, raw.ErrAmbiguous) {
			info.Arguments = x.params.Text()
		}
		info.Approval = x.approval
		if x.offered {
			info.Outcome = kindNotConnected
		}
		info.Took, info.Received, info.Outcome, info.Err = time.Since(began), result.size(),
			cmp.Or(info.Outcome, outcome(err)), err
		s.report(info)
	}
}

// Reserve implements upstream.Memory: a large answer counts for the caller until the request is
// over. One that reads slowly, or not at all, keeps us holding it.
func (x *exchange) Reserve(n int64) error { return reserve(&x.held, &x.reserved, n) }

// reserve takes bytes of an answer from the budget.
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

// hold reserves what was not yet reserved of an answer: not every wire knows whose it is before it
// was read.
func (x *exchange) hold(r result) error {
	if n := int64(r.size()) - x.reserved; n > oneWrite {
		return x.Reserve(n)
	}
	return nil
}

// report tells the hook of a call.
func (s *Server) report(info *CallInfo) {
	for _, text := range [...]*string{&info.Method, &info.Name, &info.Own, &info.Request, &info.Endpoint} {
		*text = (*text)[:min(len(*text), maxLogged)]
	}
	s.hooks.CallDone(info)
}

// maxLogged bounds what a client chooses and the log repeats.
const maxLogged = 200

// result is a result in the parts that it is made of, so that a large one is never copied.
type result struct {
	head, body, tail []byte
	items            view.Definitions // between body and tail
}

func (r result) size() int { return len(r.head) + len(r.body) + r.items.Size + len(r.tail) }

// ownResult is a result of ours: members, and what the era wants beside them.
func (s *Server) ownResult(x *exchange, members string) result {
	if x.era == upstream.EraLegacy {
		return result{body: []byte("{" + members + "}")}
	}
	return result{body: append(append([]byte("{"+members+`,"resultType":"complete","_meta":`), s.modernMeta...), '}')}
}

// beginTurn is that of the request's grant.
func (x *exchange) beginTurn() {
	x.held.BeginTurn()
	x.inTurn = true
}

// endTurn is called before the request waits for something, and when it is answered. It may be
// called again.
func (x *exchange) endTurn() {
	if x.inTurn {
		x.inTurn = false
		x.held.EndTurn()
	}
}

// begin is called before the request waits for an upstream or a person, and begins the reply.
func (x *exchange) begin() {
	x.endTurn()
	x.reply.begin()
}
