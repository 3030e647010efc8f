package front

import (
	"context"
	"errors"
	"net/http"
	"time"

	"junction/proxy"
	"junction/proxy/budget"
	"junction/proxy/members"
	"junction/proxy/streams"
	"junction/upstream/jsonrpc"
)

// This file finds the process that answers a request, if several processes serve the endpoints
// (package members). A request of a legacy session goes to the member that has the session in
// memory. The return of a modern client to a parked call goes to the member that has made the call.
// All other requests are answered by the member that gets them.

// elsewhere is the error for a session that another member has.
type elsewhere struct{ member string }

func (*elsewhere) Error() string { return "another member has the session" }

// session returns the session of an ID if the principal has it and it is in this process. released
// is a member that has given the session up; see Members.Owner. The error is errUnknownSession,
// errForeign, errReleased, an *elsewhere, errMoved, or one of package members.
func (s *Server) session(ctx context.Context, id, released string, a budget.Account) (*session, error) {
	if found, err := s.sessions.find(id, a); found != nil || err != nil {
		return found, err
	}
	sealed, err := s.sessions.open(id, a)
	if err != nil {
		return nil, err
	}
	first := sealed.Member
	sealed.Member = s.sessions.process()
	if s.members != nil {
		if s.members.Foreign(first, time.Unix(sealed.Born, 0)) {
			return nil, errForeign
		}
		owner, err := s.members.Owner(ctx, hash(id), first, released, sealed.ends(s.sessions.maxAge))
		switch {
		case errors.Is(err, members.ErrDeleted):
			return nil, errUnknownSession
		case err != nil:
			return nil, err
		case owner != sealed.Member:
			return nil, &elsewhere{owner}
		case s.Ending().Err() != nil:
			return nil, errReleased // it may have given the session up before
		}
	}
	found, err := s.sessions.load(id, sealed, a)
	if err == nil {
		found.rebuilt(s.members != nil && first != sealed.Member)
	}
	return found, err
}

// rebuilt prepares a session that was rebuilt from its ID. moved reports that another member had
// the session before.
func (s *session) rebuilt(moved bool) {
	// The client may still answer a server request of the old session. The numbers of the new ones
	// begin higher, so that such an answer matches none of them.
	s.numbers.CompareAndSwap(0, uint64(time.Now().UnixMilli()))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missed = s.missed || moved
}

// hasMissed reports whether the client may have missed that its lists have changed. It returns true only once.
func (s *session) hasMissed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	missed := s.missed
	s.missed = false
	return missed
}

// handOver reports whether this process, which is stopping, gives the session of a forwarded request
// up, so that another member can have it at once. It keeps a session with a call in flight: the
// answers, the cancellations and the streams of the call reach it here. The end of the last call and
// the begin of the next one are ordered by the lock of the session, so no call begins at this
// process after it has given the session up.
func (s *Server) handOver(x *request, id string, found *session) bool {
	if s.Ending().Err() == nil || !members.Forwarded(x.request.Context()) {
		return false
	}
	if x.request.Method == http.MethodGet {
		if rec, _ := found.recorded(header(x.request.Header, "Last-Event-Id")); rec != nil {
			return false
		}
	}
	if !found.release() {
		return false
	}
	s.sessions.remove(id, found)
	return true
}

// takeover is how long a request waits for a new owner after the old one has ended.
const takeover = 20 * time.Second

// wait waits until a member that does not answer has ended, or can be reached again. It returns nil
// if it is worth while to ask for the owner again, before the deadline.
func (s *Server) wait(ctx context.Context, member string, deadline time.Time) error {
	waiting, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return s.members.Await(waiting, member)
}

// forwardSession forwards a request if another member has its session, and answers it with that
// member's response or an error. It returns false if this process must answer. Then it may have
// read the body (x.body).
func (s *Server) forwardSession(x *request) bool {
	w, r := x.reply.w, x.request
	id := header(r.Header, "Mcp-Session-Id")
	if id == "" || r.Method == http.MethodPost && x.looksModern() {
		return false
	}
	if r.Method == http.MethodGet { // a stream must not delay the end of this process
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.Ending(), cancel)()
		r = r.WithContext(ctx)
		r.Body, r.ContentLength = http.NoBody, 0 // a body of a stream means nothing, and would not count
	}
	reserved, released := false, ""
	deadline := time.Now().Add(takeover)
	for {
		found, err := s.session(r.Context(), id, released, x.Grant.Account)
		if err == nil && s.handOver(x, id, found) {
			err = errReleased
		}
		at, other := errors.AsType[*elsewhere](err)
		switch {
		case err == nil, err == errUnknownSession:
			if x.body == nil {
				x.Grant.Release() // the front reserves what it needs
			}
			return false
		case other && members.Forwarded(r.Context()) && s.Ending().Err() != nil:
			// This process has given the session up, and another request has moved it since.
			s.reject(x, "", errReleased)
			return true
		case !other, members.Forwarded(r.Context()):
			if errors.Is(err, members.ErrAlone) {
				if err = s.deliver(x, id, err); err == nil {
					return true
				}
			}
			s.reject(x, "", sessionError(err))
			return true
		}
		if !reserved {
			reserved = true
			if err := s.reserveForward(x); err != nil {
				s.reject(x, "", err)
				return true
			}
			if r.Method == http.MethodGet {
				ctx, end := x.UntilExpiry(r.Context())
				defer end()
				defer s.Streams().Join(streams.NewPassedOn(x.Caller), end)()
				r = r.WithContext(ctx)
			}
		}
		var body []byte
		if x.body != nil {
			body = *x.body
		}
		if err = s.members.Forward(newRelay(w, r, s.limits.WriteTimeout), r, body, at.member); err == nil {
			return true
		}
		if r.Context().Err() != nil {
			return true // the client has gone
		}
		switch {
		case errors.Is(err, members.ErrReleased):
			released = at.member
			if x.body == nil && r.ContentLength > 0 { // it was passed on, and cannot be sent again
				_, _ = s.session(r.Context(), id, released, x.Grant.Account) // the next request finds the new owner
			} else if time.Now().Before(deadline) {
				err = nil
			}
		case errors.Is(err, members.ErrGone):
			err = s.wait(r.Context(), at.member, deadline)
		}
		if err != nil {
			s.reject(x, "", forwardError(err))
			return true
		}
	}
}

// deliver passes an answer of a client on while this process is no member (alone is the reason). A client does not
// send an answer again, and the call would wait for it for as long as the client has patience. The question is in the
// memory of the process that has the call, and needs nothing that members share. The error is for the client.
func (s *Server) deliver(x *request, id string, alone error) error {
	r := x.request
	if r.Method != http.MethodPost {
		return alone
	}
	if x.body == nil {
		var err error
		if x.body, err = s.readBody(x); err != nil {
			return err
		}
	}
	end, err := s.Turn(r.Context(), &x.Exchange)
	if err != nil {
		return err
	}
	m, err := jsonrpc.Parse(*x.body, s.limits.Nesting)
	end()
	if err != nil || !m.IsResponse() {
		return alone
	}
	if here := s.sessions.kept(id, x.Grant.Account); here != nil && here.respond(&m) {
		x.reply.w.WriteHeader(http.StatusAccepted)
		return nil
	}
	if members.Forwarded(r.Context()) {
		return errReleased // the other process asks the next one
	}
	if err := x.reserveAnswer(); err != nil {
		return err
	}
	if s.members.Deliver(newRelay(x.reply.w, r, s.limits.WriteTimeout), r, *x.body) != nil {
		return alone
	}
	return nil
}

const (
	// forwardBuffer is the size of the buffer for the answer to a forwarded request. If the body of the
	// request is larger, the buffer counts as part of the body.
	forwardBuffer = 32 << 10
	// maxKept is the size up to which a body of known length is read before it is sent, so that it
	// can be sent again to another member.
	maxKept = 64 << 10
)

// reserveForward reserves what a request costs this process while another member answers it: a
// request or a stream, its buffer, and its body. It reads a small body, and a body of unknown length,
// into x.body. Forward passes on a larger one as it arrives; it counts all the same, because it takes
// as much work.
func (s *Server) reserveForward(x *request) error {
	r := x.request
	switch {
	case r.Method == http.MethodGet:
		return proxy.OveruseError(x.Grant.ReserveAll(
			[budget.Quotas]int64{budget.Streams: 1, budget.Bytes: forwardBuffer}))
	case r.Body == nil || r.ContentLength == 0:
		return proxy.OveruseError(x.Grant.ReserveAll(
			[budget.Quotas]int64{budget.Requests: 1, budget.Bytes: forwardBuffer}))
	case r.ContentLength > int64(s.limits.Body):
		return tooLarge(x.reply.w, int64(s.limits.Body))
	case r.ContentLength > maxKept:
		err := x.Grant.ReserveAll([budget.Quotas]int64{budget.Requests: 1, budget.Bytes: r.ContentLength})
		if err != nil {
			return tooMuch(x.reply.w, err)
		}
		return nil
	}
	var err error
	if x.body, err = s.readBody(x); err != nil {
		return err
	}
	return x.reserveAnswer()
}

// reserveAnswer reserves the buffer for the answer of another member, after the body was read.
func (x *request) reserveAnswer() error {
	if len(*x.body) >= forwardBuffer {
		return nil
	}
	return proxy.OveruseError(x.Grant.Reserve(budget.Bytes, forwardBuffer))
}

// forwardParked forwards the request of a modern client that returns to a parked call of another
// member. It returns false if this process must answer. If the lease of the other member has ended,
// the call has failed, and this process answers with the error. Before, the call may still wait for
// the client, which can return again: nothing is lost. The owner opens the state again, and checks
// that the state is for this request.
func (s *Server) forwardParked(x *request, body []byte) bool {
	w, r := x.reply.w, x.request
	if !x.looksModern() || members.Forwarded(r.Context()) {
		return false
	}
	owner, ok := s.ParkedAt(&x.Exchange)
	if !ok || owner == "" || owner == s.members.Last() {
		return false
	}
	if s.members.Foreign(owner, time.Now()) {
		s.reject(x, x.Msg.ID, errForeign)
		return true
	}
	if err := x.reserveAnswer(); err != nil {
		s.reject(x, x.Msg.ID, err)
		return true
	}
	for deadline := time.Now().Add(takeover); ; {
		err := s.members.Forward(newRelay(w, r, s.limits.WriteTimeout), r, body, owner)
		if err == nil || r.Context().Err() != nil {
			return true
		}
		if errors.Is(err, members.ErrGone) {
			var ended bool
			if ended, err = s.members.Ended(r.Context(), owner); ended {
				return false
			} else if err == nil {
				err = s.wait(r.Context(), owner, deadline)
			}
		}
		if err != nil {
			s.reject(x, x.Msg.ID, forwardError(err))
			return true
		}
	}
}

// MembersAgree must be called when another member no longer has policies that differ from those of this
// process. Sessions that were judged by those, too, may see more now. The other member may be ending a stream of
// such a session (streams.NewPassedOn), so the next stream is told, too.
func (s *Server) MembersAgree() {
	s.sessions.mu.Lock()
	var all []*session
	for _, e := range s.sessions.byID {
		if e.s.narrowed.Swap(false) {
			all = append(all, e.s)
		}
	}
	s.sessions.mu.Unlock()
	for _, found := range all {
		found.mu.Lock()
		found.missed = true
		found.mu.Unlock()
		s.Streams().MissedBy(&found.core.Streams)
	}
}

// MemberChanged must be called when Members.Self returns another ID than before. It ends the
// streams and calls of the sessions in memory, and drops the sessions, because other members may
// have them now. Their clients can continue the sessions at any member. It also ends the processes and
// sessions of servers with a state.
func (s *Server) MemberChanged() {
	s.discardStates()
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	s.sessions.confirmOwner()
}
