package front

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"junction/proxy"
	"junction/proxy/budget"
	"junction/proxy/members"
	"junction/proxy/stateful"
	"junction/upstream"
	"junction/upstream/client"
)

// This file makes the calls of servers that declare state (stateful) at the member that has the state,
// and answers such calls of other members. The messages are those of package stateful.

// states are the states of servers that this process has, or has given up.
type states struct {
	mu    sync.Mutex
	of    map[[16]byte]*state
	calls map[string]memberCall // of other members, by Call.ID
}

// memberCall is a call of another member in flight. The answers to its questions count for its caller.
type memberCall struct {
	owner *stateful.Owner
	grant *budget.Grant // of the request; holds something as long as the call is in states.calls
}

// state is the state of one server, for one principal or for all. Guarded by states.mu.
type state struct {
	server  proxy.Stateful
	holder  string
	calls   int           // in flight, and about to be
	own     bool          // this process has the state
	given   bool          // this process is stopping and has given the state up, for good
	freeing chan struct{} // closed when free is over; nil while it does not run
	look    *time.Timer   // runs free; nil if it is not due
}

// stateKey identifies a state among all members.
func stateKey(server, holder string) (key [16]byte) {
	sum := sha256.Sum256([]byte("state of a server\x00" + server + "\x00" + holder))
	return [16]byte(sum[:16])
}

// lookEvery is the time between two looks whether the connection with a state still exists.
const lookEvery = 10 * time.Second

// has reports whether this process has a state, or asks now who has it.
func (l *states) has(key [16]byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := l.of[key]
	return st != nil && !st.given
}

// enter begins a call. forwarded states that another member has sent it: if this process is stopping, it
// gives up a state without a call in flight then, and the error is errReleased. The caller must call leave.
func (s *Server) enter(ctx context.Context, key [16]byte, server proxy.Stateful, holder string, forwarded bool) (
	*state, error) {
	l := &s.states
	for {
		l.mu.Lock()
		st := l.of[key]
		switch {
		case st == nil:
			st = &state{}
			if l.of == nil {
				l.of = map[[16]byte]*state{}
			}
			l.of[key] = st
		case st.freeing != nil:
			wait := st.freeing
			l.mu.Unlock()
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		if st.given = st.given || forwarded && st.calls == 0 && s.Ending().Err() != nil; st.given {
			l.mu.Unlock()
			return nil, errReleased
		}
		st.server, st.holder = server, holder
		if st.calls++; st.look != nil {
			st.look.Stop()
			st.look = nil
		}
		l.mu.Unlock()
		return st, nil
	}
}

// leave ends a call.
func (s *Server) leave(key [16]byte, st *state) {
	l := &s.states
	l.mu.Lock()
	defer l.mu.Unlock()
	switch st.calls--; {
	case st.calls > 0:
	case st.own:
		st.look = time.AfterFunc(lookEvery, func() { s.free(key, st) })
	case l.of[key] == st:
		delete(l.of, key)
	}
}

// free gives a state back whose connection has ended: then no member has anything of it.
func (s *Server) free(key [16]byte, st *state) {
	l := &s.states
	l.mu.Lock()
	if st.calls > 0 || l.of[key] != st || st.look == nil || s.Ending().Err() != nil {
		l.mu.Unlock()
		return
	}
	if st.server.Keeps(st.holder) {
		st.look = time.AfterFunc(lookEvery, func() { s.free(key, st) })
		l.mu.Unlock()
		return
	}
	done := make(chan struct{})
	st.freeing = done
	l.mu.Unlock()
	// If this fails, the row says that this process has the state, and it begins the next one.
	_ = s.members.FreeState(context.Background(), key)
	l.mu.Lock()
	delete(l.of, key)
	close(done)
	l.mu.Unlock()
}

// discardStates ends the connections with a state that other members may have now.
func (s *Server) discardStates() {
	l := &s.states
	l.mu.Lock()
	var own []*state
	for key, st := range l.of {
		if st.own {
			own = append(own, st)
			st.own = false
			if st.look != nil {
				st.look.Stop()
			}
			if st.calls == 0 {
				delete(l.of, key)
			}
		}
	}
	l.mu.Unlock()
	for _, st := range own {
		st.server.Discard(st.holder)
	}
}

// stateOwner returns the member that has a state. The call of st belongs to this process if that is its
// own ID. The error is for the client.
func (s *Server) stateOwner(ctx context.Context, key [16]byte, st *state, released string) (owner string, err error) {
	owner, lost, err := s.members.State(ctx, key, released)
	if err != nil {
		return "", stateError(err)
	}
	if owner == s.members.Self() {
		s.states.mu.Lock()
		st.own = true
		s.states.mu.Unlock()
	}
	if lost {
		return "", errStateLost
	}
	return owner, nil
}

// errStateLost is the error of the first call after the end of the member that had the state.
var errStateLost = errors.New("the state of this server is lost, because the replica that ran it has ended. " +
	"This call was not made. The next call starts the server anew: first repeat what the call needs, such as " +
	"opening a page or signing in, and then the call")

// stateError returns the error for a call that could not be sent to the member that has the state.
func stateError(err error) error {
	return proxy.UnavailableError("this process cannot reach the process that has the state of the server")
}

// CallStateful implements proxy.Front.
func (x *request) CallStateful(ctx context.Context, server proxy.Stateful, holder string, c *upstream.Call) (
	client.Result, error) {
	s, key := x.server, stateKey(server.Name(), holder)
	ours := func(kind client.Kind, err error) (client.Result, error) {
		return client.Result{}, &upstream.Error{Upstream: server.Name(), Kind: kind, Err: err}
	}
	deadline := time.Now().Add(takeover)
	for released := ""; ; {
		st, err := s.enter(ctx, key, server, holder, false)
		if err != nil {
			return client.Result{}, err
		}
		owner, err := s.stateOwner(ctx, key, st, released)
		if err == nil && owner == s.members.Self() {
			defer s.leave(key, st)
			return server.Call(ctx, c)
		}
		s.leave(key, st)
		switch {
		case err == errStateLost:
			return ours(client.KindStateLost, err)
		case err != nil:
			return client.Result{}, err
		}
		r, err := x.callAt(ctx, owner, server.Name(), c)
		switch {
		case err == nil:
			return r, nil
		case ctx.Err() != nil:
			return ours(client.KindOf(context.Cause(ctx)), context.Cause(ctx))
		case errors.Is(err, stateful.ErrLost):
			return ours(client.KindLost, stateful.ErrLost)
		case errors.Is(err, members.ErrReleased) && time.Now().Before(deadline):
			released = owner
		case errors.Is(err, members.ErrGone):
			if err := s.wait(ctx, owner, deadline); err != nil {
				return client.Result{}, stateError(err)
			}
		case notMade(err):
			return client.Result{}, stateError(err)
		default:
			return r, err
		}
	}
}

// callAt makes a call at another member. It returns the error of the call, stateful.ErrLost, or an error
// of package members: then the call was not made.
func (x *request) callAt(ctx context.Context, owner, name string, c *upstream.Call) (client.Result, error) {
	id := rand.Text()
	message, judged := stateful.Of(id, name, c), proxy.SentOf(&x.Exchange)
	message.Item, message.Asked, message.Exposed = judged.Item, judged.Asked, judged.Name
	text, err := message.Text()
	if err != nil {
		return client.Result{}, err
	}
	held := x.Grant.Empty() // the request's grant may end before a parked call
	defer held.Release()
	if err := held.Reserve(budget.Bytes, int64(len(text))); err != nil {
		return client.Result{}, proxy.OveruseError(err)
	}
	ctx, abort := context.WithCancel(ctx)
	defer abort()
	body, err := x.server.members.Send(ctx, x.request, sentCall, text, owner)
	switch {
	case err == nil:
	case notMade(err):
		return client.Result{}, err
	default:
		return client.Result{}, errors.Join(stateful.ErrLost, err)
	}
	send := func(ctx context.Context, number string, text []byte) error {
		body, err := x.server.members.Send(ctx, x.request, sentAnswer+id+" "+number, text, owner)
		if err == nil {
			return body.Close()
		} else if errors.Is(err, members.ErrRefused) {
			return nil
		}
		return err
	}
	dropped := func() {
		if o := x.server.observer; o != nil {
			o.Ignored(name)
		}
	}
	return stateful.Read(ctx, abort, body, name, c, send, dropped)
}

// The values of members.HeaderCall.
const (
	sentCall   = "call"
	sentAnswer = "answer " // ID of the call, space, number of the question
)

// notMade reports whether an error of Send means that nothing was executed.
func notMade(err error) bool {
	for _, e := range []error{members.ErrGone, members.ErrReleased, members.ErrUnreachable, members.ErrAlone,
		members.ErrRefused} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// answerMember answers a message of another member about a call. It returns false if the request comes
// from a client.
func (s *Server) answerMember(w http.ResponseWriter, r *http.Request) bool {
	message := header(r.Header, members.HeaderCall)
	rest, ok := strings.CutPrefix(message, sentAnswer)
	if !ok || s.members == nil || !members.Forwarded(r.Context()) {
		return false
	}
	id, number, _ := strings.Cut(rest, " ")
	s.states.mu.Lock()
	call, found := s.states.calls[id]
	var held budget.Grant
	if found {
		held = call.grant.Empty()
	}
	s.states.mu.Unlock()
	n := r.ContentLength
	if !found || n <= 0 {
		w.WriteHeader(http.StatusNotFound)
		return true
	}
	defer held.Release()
	status, lost := http.StatusRequestEntityTooLarge, "it is too large (limits.body)"
	if n <= int64(s.limits.Body) {
		err := held.Reserve(budget.Bytes, n)
		if err == nil {
			w.WriteHeader(takeAnswer(call.owner, number, r.Body, n))
			return true
		}
		status, lost = http.StatusServiceUnavailable, err.Error()+"; try again later"
	}
	first := make([]byte, 1)
	_, _ = io.ReadFull(r.Body, first)
	call.owner.Refuse(number, first[0], lost)
	w.WriteHeader(status)
	return true
}

// takeAnswer reads the answer to a question, of n bytes, and returns the status of the reply.
func takeAnswer(owner *stateful.Owner, number string, body io.Reader, n int64) int {
	text := make([]byte, n)
	if _, err := io.ReadFull(body, text); err != nil {
		owner.Refuse(number, text[0], "the connection between two replicas broke")
		return http.StatusBadRequest
	}
	if owner.Answer(number, text) != nil {
		return http.StatusBadRequest
	}
	return http.StatusNoContent
}

// serveMember makes a call of another member, whose request has the credentials of the client. It returns
// false if the request comes from a client.
func (s *Server) serveMember(x *request) bool {
	if s.members == nil || header(x.request.Header, members.HeaderCall) != sentCall ||
		!members.Forwarded(x.request.Context()) {
		return false
	}
	w := x.reply.w
	refuse := func(status int) bool {
		w.WriteHeader(status)
		return true
	}
	// The params of the largest request fit, with their names and headers.
	n := x.request.ContentLength
	if n < 0 || n > int64(s.limits.Body)+maxKept {
		return refuse(http.StatusRequestEntityTooLarge)
	}
	if x.Grant.ReserveAll([budget.Quotas]int64{budget.Requests: 1, budget.Bytes: n}) != nil {
		return refuse(http.StatusServiceUnavailable)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(x.request.Body, text); err != nil {
		return refuse(http.StatusBadRequest)
	}
	clearReadDeadline(w)
	c, err := stateful.ParseCall(text)
	if err != nil {
		return refuse(http.StatusBadRequest)
	}
	server, holder := x.serverOf(c)
	if server == nil {
		if x.hidesState(c) { // a file that another member has read may allow the call already
			return refuse(http.StatusForbidden)
		}
		w.Header().Set(members.HeaderReleased, "1")
		return refuse(http.StatusMisdirectedRequest)
	}
	key, ctx := stateKey(server.Name(), holder), x.request.Context()
	st, err := s.enter(ctx, key, server, holder, true)
	if err != nil {
		w.Header().Set(members.HeaderReleased, "1")
		return refuse(http.StatusMisdirectedRequest)
	}
	defer s.leave(key, st)
	owner, err := s.stateOwner(ctx, key, st, "")
	if err == nil && owner != s.members.Self() {
		w.Header().Set(members.HeaderReleased, "1")
		return refuse(http.StatusMisdirectedRequest)
	} else if err != nil && err != errStateLost {
		return refuse(http.StatusServiceUnavailable)
	}
	s.makeCall(ctx, x, server, c, err)
	return true
}

// serverOf returns the server of a call of another member; nil if there is none with a state that the
// caller may use.
func (x *request) serverOf(c *stateful.Call) (server proxy.Stateful, holder string) {
	for st := range x.Subject.Sight().Stocks() {
		if st.Backend.Name() == c.Upstream {
			if holder, ok := st.Backend.Holder(c.Holds(x.User(), x.Grant.Name())); ok {
				return st.Backend, holder
			}
		}
	}
	return nil, ""
}

// hidesState reports whether this process keeps the state for a call of another member whose caller may not
// use the server here. Others may share the state, so it must stay at one member.
func (x *request) hidesState(c *stateful.Call) bool {
	backends := slices.Clone(x.Snapshot.Backends) // an endpoint may have fewer
	for _, st := range x.Endpoint.View.Stocks {   // those that only the caller has, too
		backends = append(backends, st.Backend)
	}
	for _, b := range backends {
		if b.Name() != c.Upstream {
			continue
		}
		holder, ok := b.Holder(c.Holds(x.User(), x.Grant.Name()))
		if ok && x.server.states.has(stateKey(b.Name(), holder)) {
			return true
		}
	}
	return false
}

// makeCall makes a call of another member, and writes its answer as frames. refused is an error that is
// the answer; nil for none.
func (s *Server) makeCall(ctx context.Context, x *request, server proxy.Stateful, c *stateful.Call, refused error) {
	out := newRelay(x.reply.w, x.request, s.limits.WriteTimeout)
	out.Header().Set("Content-Type", "application/octet-stream")
	peer := stateful.NewOwner(out, func() { _ = out.FlushError() }, x, c.Extensions)
	text := func(err error) string {
		e, _ := proxy.RPCError(err, server.Name())
		return e.Message
	}
	if refused != nil {
		lost := &upstream.Error{Upstream: server.Name(), Kind: client.KindStateLost, Err: refused}
		peer.Finish(client.Result{}, lost, text)
		return
	}
	call, err := c.Request(x.User(), x.Grant.Name(), s.limits.Nesting, peer)
	if err != nil {
		peer.Finish(client.Result{}, proxy.Malformed(err), text)
		return
	}
	if call.Folders, err = x.AdmitAgain(ctx, server.Name(), c.Folders); err != nil {
		refused, _ := proxy.RPCError(err, server.Name())
		peer.Finish(client.Result{}, refused, text)
		return
	}
	call.Guard = &proxy.Sent{X: &x.Exchange, Item: c.Item, Asked: c.Asked, Name: c.Exposed, Params: call.Params}
	call.Caller = proxy.Identified(x.Principal)
	config := server.Config() // the entry here decides which headers the server gets
	if call.Forwarded, err = config.Forwarded(x.Header); err != nil {
		peer.Finish(client.Result{}, proxy.Malformed(err), text)
		return
	}
	s.states.mu.Lock()
	if s.states.calls == nil {
		s.states.calls = map[string]memberCall{}
	}
	s.states.calls[c.ID] = memberCall{peer, &x.Grant}
	s.states.mu.Unlock()
	defer func() {
		s.states.mu.Lock()
		delete(s.states.calls, c.ID)
		s.states.mu.Unlock()
	}()
	_ = out.FlushError() // the other member waits for the head of the answer
	r, err := server.Call(ctx, call)
	if own, ok := errors.AsType[*proxy.Refusal](err); ok { // of the guard
		err, _ = proxy.RPCError(own, server.Name())
	}
	peer.Rooted(call.Rooted)
	peer.Finish(r, err, text)
}
