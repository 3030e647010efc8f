package proxy

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/budget"
	"junction/proxy/redact"
	"junction/proxy/sealed"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/pace"
	"junction/upstream/raw"
)

// This file connects a modern client to a legacy upstream. The upstream sends requests in the
// middle of a call and waits. The client gets the requests in an answer and returns with another
// request. The call is parked: it is made once, goes on while the client is away, and gets the
// client's responses. Making the call again would execute it twice.

// parkedCalls are the parked calls of all users.
type parkedCalls struct {
	max      int           // per user
	patience time.Duration // maximum absence of a client

	mu      sync.Mutex
	calls   map[string]*parked
	perUser map[string]int // number of calls per user
	fewer   chan struct{}  // 1-buffered: a call was removed
	closed  bool
	running sync.WaitGroup // goroutines of begin
}

// parked is a call of a modern client to a legacy upstream that may send requests. It is listed in
// parkedCalls from its first server request on.
type parked struct {
	calls  *parkedCalls
	id     string
	held   *budget.Grant // for the params and a large answer; used by the goroutine of the call, then by leave
	large  int64         // part of held for the answer, in bytes
	origin *Exchange     // exchange of the first request
	cancel context.CancelCauseFunc
	listed bool // guarded by parkedCalls.mu
	ended  bool // the call has ended and is no longer listed; guarded by parkedCalls.mu

	mu        sync.Mutex
	present   *Exchange      // request that waits for the call; nil while the client is away
	open      []*openRequest // without a response yet, in the order of arrival
	numbers   int
	done      bool // result and err are set
	abandoned bool // no request will ask for them
	result    client.Result
	err       error
	changed   chan struct{} // 1-buffered: a server request came, or the call is done
	away      *time.Timer   // ends the call if the client does not return; nil before its first absence
}

// openRequest is a server request that waits for its response.
type openRequest struct {
	key    string // in inputRequests
	method string
	params []byte
	answer chan []byte
}

// begin makes a call that may be parked. It answers the client's request when there is a result or
// a server request.
func (l *parkedCalls) begin(ctx context.Context, s *Core, x *Exchange, c *upstream.Call) (Result, error) {
	p := &parked{calls: l, id: rand.Text(), origin: x, present: x, changed: make(chan struct{}, 1)}
	x.Outlived = true
	p.held = x.Grant.Part(budget.Bytes) // in use until the client has the answer
	own := *c
	own.Peer, own.Buffer = p, nil
	var calling context.Context
	calling, p.cancel = context.WithCancelCause(s.killing)
	own.End = p.cancel
	if !l.start(func() {
		defer p.cancel(nil)
		p.finish(x.filter(s.callUpstream(calling, x, &own)))
	}) {
		p.cancel(nil)
		p.held.Release()
		return Result{}, &upstream.Error{Upstream: x.target.Backend.Name(), Kind: client.KindUnavailable,
			Err: errShutdown}
	}
	return p.wait(ctx, s, x)
}

// resume passes the client's responses to the parked call of the state, and then waits like begin.
func (l *parkedCalls) resume(ctx context.Context, s *Core, x *Exchange, st sealed.State) (Result, error) {
	l.mu.Lock()
	p := l.calls[st.Parked]
	l.mu.Unlock()
	if p == nil {
		return Result{}, errParkedGone()
	}
	answers, err := x.Params.Object("inputResponses")
	if _, absent := x.Params.Get("inputResponses"); err == raw.ErrAbsent && absent == nil {
		return Result{}, InvalidParams("Invalid params: inputResponses is no object")
	} else if err != nil && err != raw.ErrAbsent {
		return Result{}, err
	}
	p.mu.Lock()
	if p.present != nil {
		p.mu.Unlock()
		return Result{}, errState() // another request waits for the call
	}
	if err := p.deliver(answers); err != nil {
		p.mu.Unlock()
		return Result{}, err
	}
	p.present = x // before another request can set it
	p.mu.Unlock()
	return p.wait(ctx, s, x)
}

// deliver passes the responses to their open requests; p.mu is held. Other responses are ignored
// (2026-07-28, basic/patterns/mrtr).
func (p *parked) deliver(answers raw.Object) error {
	type given struct {
		q    *openRequest
		text []byte
	}
	var all []given
	for _, q := range p.open {
		switch v, err := answers.Get(q.key); {
		case err == raw.ErrAbsent:
		case err != nil:
			return err
		case !answersQuestion(q.method, v):
			return InvalidParams("Invalid params: inputResponses.%s is no answer to %s", q.key, q.method)
		default:
			all = append(all, given{q, bytes.Clone(v)})
		}
	}
	for _, g := range all {
		g.q.answer <- g.text
		p.open = slices.DeleteFunc(p.open, func(q *openRequest) bool { return q == g.q })
	}
	return nil
}

// answersQuestion reports whether v has the form of a response to a request of the method. The
// upstream checks the content.
func answersQuestion(method string, v []byte) bool {
	o, err := raw.Parse(v)
	if err != nil {
		return false
	}
	member := map[mcp.MCPMethod]string{mcp.MethodElicitationCreate: "action",
		mcp.MethodSamplingCreateMessage: "content", mcp.MethodListRoots: "roots"}
	_, err = o.Get(member[mcp.MCPMethod(method)])
	return err == nil
}

// wait answers a request about the call with the call's result or with the open server requests. If
// the client ends its request, the call is cancelled.
func (p *parked) wait(ctx context.Context, s *Core, x *Exchange) (Result, error) {
	p.mu.Lock()
	p.present = x
	if p.away != nil {
		p.away.Stop()
	}
	p.mu.Unlock()
	for settled := false; ; {
		p.mu.Lock()
		switch {
		case p.done:
			p.present = nil
			p.mu.Unlock()
			p.leave()
			result, err := p.result, p.err
			if x.Snapshot != p.origin.Snapshot { // the policy may redact more than when the call began
				result, err = x.filter(result, err)
			}
			if err != nil {
				x.lacks.Store(p.origin.lacks.Load())
				return s.answerError(x, err)
			}
			return s.answerResult(x, result)
		case len(p.open) > 0 && !settled:
			settled = true
			p.mu.Unlock()
			// further server requests may come, for the same answer
			pace.Sleep(ctx, together, nil)
			continue
		case len(p.open) > 0:
			r, err := p.requests(s, x)
			p.present = nil
			p.away = time.AfterFunc(p.calls.patience, p.giveUp)
			p.mu.Unlock()
			if err != nil {
				p.giveUp()
			}
			return r, err
		}
		p.mu.Unlock()
		select {
		case <-p.changed:
		case <-ctx.Done():
			p.mu.Lock()
			p.present = nil // its body is reused for another request
			p.mu.Unlock()
			p.giveUp()
			return Result{}, context.Cause(ctx)
		}
	}
}

// together is the time for which wait collects server requests.
const together = 20 * time.Millisecond

// requests returns the input_required result with the open requests; p.mu is held.
func (p *parked) requests(s *Core, x *Exchange) (Result, error) {
	var requests [][]byte
	for _, q := range p.open {
		params := q.params
		if x.Snapshot != p.origin.Snapshot { // the policy may redact more than when the call began
			var err error
			if params, _, err = x.reader().Text(params, redact.MetaToken); err != nil {
				return Result{}, rejected("Invalid params of %s: %v", q.method, err)
			}
		}
		// params is {} even if empty: some clients require the member
		requests = append(requests,
			fmt.Appendf(nil, `"%s":{"method":%s,"params":%s}`, q.key, raw.Quote(q.method), params))
	}
	return s.inputRequired(x, requests, sealed.State{Kind: sealed.Parked, Parked: p.id, Member: s.last()}), nil
}

// giveUp ends the call of a client that does not return. The open server requests fail, and the
// call is cancelled.
func (p *parked) giveUp() {
	p.leave() // first, so that a returning client does not find the call
	p.cancel(nil)
}

// leave unlists the call, whose outcome no request will ask for any more, and releases what a call in the
// past holds.
func (p *parked) leave() {
	p.calls.remove(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done && !p.abandoned {
		p.held.Release()
	}
	p.abandoned = true
}

// finish stores the outcome of the call until the client returns. A large answer counts for its user
// meanwhile.
func (p *parked) finish(r client.Result, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && !p.abandoned {
		if n := int64(len(r.Text())) - p.large; n > OneWrite {
			err = p.Reserve(n)
		}
	}
	if err != nil {
		r = client.Result{}
	}
	p.done, p.result, p.err = true, r, err
	p.open = nil
	if p.abandoned {
		p.held.Release()
	}
	pace.Wake(p.changed)
}

// Notify implements client.Peer. It sends the notification to the present request, with that
// request's progress token. While the client is away, it drops notifications.
func (p *parked) Notify(method string, params []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.present
	if x == nil {
		return
	}
	if method == string(mcp.MethodNotificationProgress) && x != p.origin {
		token, err := x.Meta.Get("progressToken")
		if err != nil {
			return
		}
		if params, err = raw.Set(params, token, "progressToken"); err != nil {
			return
		}
	}
	x.Notify(method, params)
}

// Reserve implements client.Memory.
func (p *parked) Reserve(n int64) error { return reserve(p.held, &p.large, n) }

// Ask implements client.Peer.
func (p *parked) Ask(ctx context.Context, q *client.ServerRequest) ([]byte, error) {
	p.origin.asked.Store(true)
	params, err := p.origin.serverRequest(p.origin.target.Backend.Name(), q.Method, q.Params, false)
	if err != nil {
		return nil, err
	}
	if !p.calls.admit(p) {
		return nil, &jsonrpc.Error{Code: mcp.INTERNAL_ERROR,
			Message: "too many calls of this user wait for an answer (limits.parked)"}
	}
	o := &openRequest{method: q.Method, params: params, answer: make(chan []byte, 1)}
	p.mu.Lock()
	p.numbers++
	o.key = "q" + strconv.Itoa(p.numbers)
	p.open = append(p.open, o)
	p.mu.Unlock()
	pace.Wake(p.changed)
	asked := p.origin.question(p.origin.asks(q.Method, q.Trace))
	select {
	case answer := <-o.answer:
		asked.End(nil)
		return answer, nil
	case <-ctx.Done():
		asked.End(ErrNoAnswer)
		p.mu.Lock()
		p.open = slices.DeleteFunc(p.open, func(other *openRequest) bool { return other == o })
		p.mu.Unlock()
		return nil, ErrNoAnswer
	}
}

// start runs a call, unless the parkedCalls are closed.
func (l *parkedCalls) start(call func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.running.Go(call)
	return true
}

// admit lists a call if it is not listed yet. It returns false if the user has too many parked
// calls.
func (l *parkedCalls) admit(p *parked) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch who := p.origin.Principal.ID; {
	case l.closed, p.ended:
		return false
	case p.listed:
		return true
	case l.perUser[who] >= l.max:
		return false
	default:
		l.perUser[who]++
	}
	l.calls[p.id], p.listed = p, true
	return true
}

func (l *parkedCalls) remove(p *parked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.ended = true
	if !p.listed {
		return
	}
	p.listed = false
	delete(l.calls, p.id)
	if l.perUser[p.origin.Principal.ID]--; l.perUser[p.origin.Principal.ID] == 0 {
		delete(l.perUser, p.origin.Principal.ID)
	}
	pace.Wake(l.fewer)
}

// await waits until no call is listed, or until ctx ends. It must not be called concurrently.
func (l *parkedCalls) await(ctx context.Context) {
	for {
		l.mu.Lock()
		n := len(l.calls)
		l.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-l.fewer:
		case <-ctx.Done():
			return
		}
	}
}

// close ends the calls of absent clients, because these cannot return to this process. Other calls
// go on.
func (l *parkedCalls) close() {
	l.mu.Lock()
	l.closed = true
	calls := make([]*parked, 0, len(l.calls))
	for _, p := range l.calls {
		calls = append(calls, p)
	}
	l.mu.Unlock()
	for _, p := range calls {
		p.mu.Lock()
		away := p.present == nil
		p.mu.Unlock()
		if away {
			p.giveUp()
		}
	}
}
