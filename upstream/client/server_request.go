package client

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/bounded"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// This file attributes the messages of a server to the calls of clients, and passes server requests
// to the client.

// Peer is the client that made a call. It receives the notifications and the server requests of
// that call.
type Peer interface {
	// Notify takes a notification that belongs to the call: progress with the client's own token,
	// or a log message. It does not block. After Conn.Call has returned, notifications are
	// dropped, except notifications/elicitation/complete.
	Notify(method string, params []byte)
	// Ask sends a request of a legacy server to the client, waits, and returns the result. The time
	// limits of the call pause meanwhile. A *jsonrpc.Error is sent to the server: it is the
	// client's own error, or the client cannot be asked. Any other error means that the client did
	// not answer. ctx ends with the call, and when the server cancels the request.
	Ask(ctx context.Context, q *ServerRequest) ([]byte, error)
}

// Memory is a Peer that approves the memory for a large response before it is allocated. Its error
// ends the call, and is in the chain of the error that Call returns.
type Memory = transport.Memory

// Account is the memory of an upstream for what belongs to no call: see Options.Account.
type Account = transport.Account

// ServerRequest is a request of the server to the client: elicitation/create,
// sampling/createMessage or roots/list.
type ServerRequest struct {
	Method string
	Params []byte // as the server wrote them; nil for none
	Trace  Trace  // of the request, from Options.Observer; nil for none
	// Progress sends notifications/progress about the request to the server. Its argument is the
	// params, with the server's own token. It may be nil.
	Progress func(params []byte)
}

// isServerRequest reports whether the client has to answer a request of this method.
func isServerRequest(method string) bool {
	switch mcp.MCPMethod(method) {
	case mcp.MethodElicitationCreate, mcp.MethodSamplingCreateMessage, mcp.MethodListRoots:
		return true
	}
	return false
}

// flight is an in-flight call of a client.
type flight struct {
	id   jsonrpc.ID
	peer Peer
	window
	item    Item
	profile Profile         // of the client
	order   uint64          // a later call has a higher one; set by track
	token   []byte          // the client's own progress token; nil if it requested no progress
	counts  bool            // the server was asked for progress, for the clock alone
	clock   *Clock          // may be nil
	ctx     context.Context // ends with the call
	trace   Trace           // of the call
	task    string          // ID of the task that executes the call, for legacy servers; guarded by base.mu
	// the call uses the conn exclusively, since a server request that names no call was attributed
	// to it; guarded by base.mu
	exclusive bool
	// the response arrived after its caller had given up; guarded by base.mu
	answered bool
}

// endedCall is the time when the last call of a principal ended. The zero value means no call.
type endedCall struct {
	principal string
	at        time.Time
}

// track registers an in-flight call, and untrack removes it.
func (b *base) track(f *flight) {
	b.mu.Lock()
	b.tracked++
	f.order = b.tracked
	b.flights[f.id] = f
	b.mu.Unlock()
}

func (b *base) untrack(f *flight) {
	b.mu.Lock()
	delete(b.flights, f.id)
	if b.recent[0].principal != f.principal {
		b.recent[1] = b.recent[0]
	}
	b.recent[0] = endedCall{f.principal, time.Now()}
	for _, a := range b.pending {
		if a.call == f {
			b.passOn(a)
		}
	}
	if f.exclusive {
		b.exclusive--
	}
	b.ease()
	b.mu.Unlock()
}

// callOf returns the call that a message belongs to. own is the call on whose response stream the
// message came; nil for other streams. A message may name its task. Without a task, it belongs to the
// only call in flight, or, if all candidates are of one window, to the newest one whose client can
// answer. callOf returns nil and the reason if the candidates can be of several windows, or if a call of
// another principal ended within abandonedGrace.
func (b *base) callOf(own *flight, m *jsonrpc.Message) (f *flight, reason string) {
	if own != nil {
		return own, ""
	}
	meta, _ := m.Body.Object("_meta")
	related, _ := meta.Object(keyRelatedTask)
	task, _ := related.String("taskId")
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.flights {
		if task != "" && f.task == task {
			return f, ""
		}
	}
	switch {
	case task != "":
		return nil, "no call in progress has that task"
	case len(b.flights) == 0:
		return nil, "no call of a client is in progress"
	}
	b.forgetDoubts()
	f, alike := b.newest(m.Method)
	doubtful := time.Now().Before(b.doubtful)
	switch {
	case b.crowded(f.principal):
		return nil, "it could belong to an earlier call of another user on this connection (isolation: shared)"
	case alike && !doubtful:
		return f, ""
	case len(b.flights) > 1:
		return nil, "it could belong to any of the " + strconv.Itoa(len(b.flights)) +
			" calls in progress on this connection, which may be of several windows; repeat the call: it then has " +
			"the connection for itself"
	case len(b.doubts) > 0 || doubtful:
		return nil, "it could belong to a call of another window that was given up less than a minute ago"
	}
	return f, ""
}

// keyRelatedTask is the member of _meta that names the task of a message (2025-11-25,
// basic/utilities/tasks).
const keyRelatedTask = "io.modelcontextprotocol/related-task"

// serverQuestion is a server request that the client has not answered yet.
type serverQuestion struct {
	method string
	call   *flight            // whose client is asked; guarded by base.mu
	ctx    context.Context    // ends when that client need not answer; guarded by base.mu
	cancel context.CancelFunc // ends ctx; guarded by base.mu
	shared bool               // the question names no call; it could belong to others of the same window
	clocks []*Clock           // of the calls that it could belong to
	seen   *question
	held   int64         // reserved on base.account for the params
	done   chan struct{} // closed when relay has returned
}

// passOn ends the question to the client of a.call, which has ended. If the question could belong to
// another call of the same window, the client of that one is asked in its place. b.mu is held.
func (b *base) passOn(a *serverQuestion) {
	a.cancel()
	if !a.shared || len(b.flights) == 0 {
		return
	}
	if next, alike := b.newest(a.method); alike && next.window.is(a.call.window) {
		b.ask(a, next)
	}
}

// ask has the client of f answer the question. b.mu is held.
func (b *base) ask(a *serverQuestion, f *flight) {
	a.call = f
	a.ctx, a.cancel = context.WithCancel(f.ctx)
	if a.shared && !f.exclusive {
		f.exclusive = true
		b.exclusive++
	}
}

// serverRequest relays a server request to the client, on a goroutine that close waits for. It
// rejects a request that belongs to no call.
func (b *base) serverRequest(own *flight, m *jsonrpc.Message) {
	f, reason := b.callOf(own, m)
	if own == nil {
		b.learn(f)
	}
	seen := b.observe(f, m)
	if f == nil && m.Method == string(mcp.MethodListRoots) && b.hooks.Rootless != nil {
		b.hooks.Rootless()
	}
	if f == nil && m.Method == string(mcp.MethodListRoots) && !b.declares().Roots {
		b.log.Debug("rejected roots/list: roots were not declared", "reason", reason)
		// 2025-11-25, client/roots#error-handling
		b.refuse(seen, m.ID, mcp.METHOD_NOT_FOUND, "Method not found: the client has not declared roots")
		return
	}
	if f == nil || f.peer == nil {
		b.violationLog.Warn(b.log, "server request rejected", "method", m.Method, "reason", reason)
		b.refuse(seen, m.ID, mcp.INVALID_PARAMS, m.Method+" rejected: "+reason)
		return
	}
	a := b.admit(own, f, m, seen)
	if a == nil {
		return
	}
	if m.Method == string(mcp.MethodElicitationCreate) {
		b.sent(f.peer, m.Params)
	}
	id := jsonrpc.ID(string(m.ID))
	q := &ServerRequest{Method: m.Method, Params: bytes.Clone(m.Params), Trace: seen.traceOrNil()}
	q.Progress = func(params []byte) {
		b.post(&jsonrpc.Message{Method: string(mcp.MethodNotificationProgress), Params: params})
	}
	b.tasks.Go(func() { b.relay(a, id, q) })
}

// admit adds a server request of the call f to the pending ones, and reserves its params if they are
// large. If there are too many, the account has no room, or the call has ended, admit rejects the
// request and returns nil.
func (b *base) admit(own, f *flight, m *jsonrpc.Message, seen *question) *serverQuestion {
	b.mu.Lock()
	if b.flights[f.id] != f { // the call has just ended
		b.mu.Unlock()
		b.refuse(seen, m.ID, mcp.INVALID_PARAMS, m.Method+" rejected: its call is over")
		return nil
	}
	if _, open := b.pending[m.ID]; open || len(b.pending) >= maxServerRequests {
		b.mu.Unlock()
		b.refuse(seen, m.ID, mcp.INVALID_REQUEST, "too many requests of the server are open, or one with this id is")
		return nil
	}
	held := int64(0)
	if n := int64(len(m.Params)); n > transport.Uncharged && b.account != nil {
		if err := b.account.Reserve(n); err != nil {
			b.mu.Unlock()
			b.violationLog.Warn(b.log, "server request rejected", "method", m.Method, "reason", err.Error())
			b.refuse(seen, m.ID, mcp.INTERNAL_ERROR,
				m.Method+" rejected: the open requests of the server take too much memory")
			return nil
		}
		held = n
	}
	defer b.mu.Unlock()
	a := &serverQuestion{method: m.Method, shared: own == nil, seen: seen, held: held, done: make(chan struct{})}
	for _, other := range b.flights {
		if other.clock != nil && (other == f || a.shared && f.task == "" && other.window.is(f.window)) {
			a.clocks = append(a.clocks, other.clock)
		}
	}
	b.ask(a, f)
	b.pending[m.ID] = a
	return a
}

// answerOf asks the client until it has answered, or until no call that the question could belong to is
// in flight. wanted is false if the server has cancelled the question.
func (b *base) answerOf(a *serverQuestion, id jsonrpc.ID, q *ServerRequest) (result []byte, wanted bool, err error) {
	for _, c := range a.clocks {
		c.hold()
		defer c.release() // the time limits count again, also while the answer is sent
	}
	for {
		b.mu.Lock()
		call, ctx := a.call, a.ctx
		b.mu.Unlock()
		result, err = call.peer.Ask(ctx, q)
		b.mu.Lock()
		wanted = b.pending[id] == a
		again := err != nil && wanted && a.call != call && ctx.Err() != nil
		if !again {
			a.cancel()
		}
		b.mu.Unlock()
		if !again {
			return result, wanted, err
		}
	}
}

// relay asks the client and sends its answer to the server.
func (b *base) relay(a *serverQuestion, id jsonrpc.ID, q *ServerRequest) {
	defer close(a.done)
	if a.held > 0 {
		defer b.account.Release(a.held)
	}
	result, wanted, err := b.answerOf(a, id, q)
	if !wanted {
		a.seen.end(nil, KindCancelled)
		return // the server has cancelled the request
	}
	defer func() { // after the answer was sent, so that maxServerRequests limits these goroutines
		b.mu.Lock()
		if b.pending[id] == a {
			delete(b.pending, id)
		}
		b.mu.Unlock()
	}()
	sending, cancel := context.WithTimeout(b.ctx, sendPatience)
	defer cancel()
	reply, failed := &transport.Request{Message: jsonrpc.Message{ID: id, Result: result}}, Kind("")
	if err != nil {
		failed = KindUnanswered
		reply.Result, reply.Error = unanswered(q.Method, err)
	}
	a.seen.end(err, failed)
	if err := b.transport.Send(sending, reply); err != nil && b.ctx.Err() == nil {
		b.log.Debug("cannot send the answer to the server", "method", q.Method, "error", err)
	}
}

// declares returns the client capabilities that the handshake declared.
func (b *base) declares() Profile {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.declared
}

// sendPatience is the time limit for sending a notification or a response.
const sendPatience = 30 * time.Second

// methodElicitationComplete is the notification that a URL elicitation is complete (2025-11-25,
// client/elicitation).
const methodElicitationComplete = "notifications/elicitation/complete"

// sent remembers the peer of a URL elicitation: a server request, or an item of an error with code
// -32042.
func (b *base) sent(p Peer, elicitation []byte) {
	o, _ := raw.Parse(elicitation)
	id, err := o.String("elicitationId")
	if err != nil || p == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	bounded.Put(&b.browse, maxServerRequests, id, p, nil) // in practice there are fewer
}

// completed passes the notification to the client that received the URL elicitation.
func (b *base) completed(m *jsonrpc.Message) {
	id, err := m.Body.String("elicitationId")
	if err != nil {
		return
	}
	b.mu.Lock()
	p := b.browse[id]
	delete(b.browse, id)
	b.mu.Unlock()
	if p != nil {
		p.Notify(m.Method, m.Params)
	}
}

// maxServerRequests is the most server requests that one connection may have open.
const maxServerRequests = 64

// unanswered returns the response to a server request that the client did not answer.
func unanswered(method string, err error) ([]byte, *jsonrpc.Error) {
	if rpcErr, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return nil, rpcErr
	}
	switch mcp.MCPMethod(method) {
	case mcp.MethodElicitationCreate:
		return []byte(`{"action":"cancel"}`), nil
	case mcp.MethodSamplingCreateMessage:
		// 2025-11-25, client/sampling#error-handling
		return nil, &jsonrpc.Error{Code: -1, Message: "the user did not answer the sampling request"}
	}
	return nil, &jsonrpc.Error{Code: mcp.INTERNAL_ERROR, Message: "the client did not answer"}
}

// takeBack ends a server request that the server has cancelled.
func (b *base) takeBack(m *jsonrpc.Message) {
	v, err := m.Body.Get("requestId")
	if err != nil {
		return
	}
	b.mu.Lock()
	a := b.pending[jsonrpc.ID(v)]
	delete(b.pending, jsonrpc.ID(v))
	b.mu.Unlock()
	if a == nil {
		return
	}
	a.cancel()
	select { // the client must get the cancellation before the response to its call, which may be next
	case <-a.done:
	case <-time.After(50 * time.Millisecond):
	}
}

// refuse rejects a request of the server with an error.
func (b *base) refuse(seen *question, id jsonrpc.ID, code int64, text string) {
	e := &jsonrpc.Error{Code: code, Message: text}
	seen.end(e, "")
	b.post(&jsonrpc.Message{ID: id, Error: e})
}
