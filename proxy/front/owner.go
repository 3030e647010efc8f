package front

import (
	"context"
	"errors"
	"net/http"
	"time"

	"junction/proxy"
	"junction/proxy/budget"
	"junction/proxy/members"
	"junction/upstream/pace"
)

// This file finds the process that answers a request, if several processes serve the endpoints
// (package members). A request of a legacy session goes to the member that has the session in
// memory. The return of a modern client to a parked call goes to the member that has made the call.
// All other requests are answered by the member that gets them.

// elsewhere is the error for a session that another member has.
type elsewhere struct{ member string }

func (*elsewhere) Error() string { return "another member has the session" }

// session returns the session of an ID if the principal owns it and this process has it. The error
// is errUnknownSession, an *elsewhere, errMoved, or one of package members.
func (s *Server) session(ctx context.Context, id string, a budget.Account) (*session, error) {
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
		owner, err := s.members.Owner(ctx, hash(id), first, sealed.ends(s.sessions.maxAge))
		switch {
		case errors.Is(err, members.ErrDeleted):
			return nil, errUnknownSession
		case err != nil:
			return nil, err
		case owner != sealed.Member:
			return nil, &elsewhere{owner}
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
	s.moved = s.moved || moved
}

// wasMoved reports whether another member had the session before. It returns true only once.
func (s *session) wasMoved() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	moved := s.moved
	s.moved = false
	return moved
}

const (
	takeover      = 20 * time.Second       // how long a request waits for a new owner after the old one has ended
	takeoverCheck = 250 * time.Millisecond // the pause between two checks
)

// forwardSession forwards a request if another member has its session, and answers it with that
// member's response or an error. It returns false if this process must answer. Then it may have
// read the body (x.body).
func (s *Server) forwardSession(x *request) bool {
	w, r := x.reply.w, x.request
	id := header(r.Header, "Mcp-Session-Id")
	if id == "" || r.Method == http.MethodPost && header(r.Header, "Mcp-Protocol-Version") == proxy.ModernVersion {
		return false
	}
	if r.Method == http.MethodGet { // a stream must not delay the end of this process
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.Ending(), cancel)()
		r = r.WithContext(ctx)
		r.Body, r.ContentLength = http.NoBody, 0 // a body of a stream means nothing, and would not count
	}
	reserved := false
	deadline := time.Now().Add(takeover)
	for {
		_, err := s.session(r.Context(), id, x.Grant.Account)
		at, other := errors.AsType[*elsewhere](err)
		switch {
		case err == nil, err == errUnknownSession:
			if x.body == nil {
				x.Grant.Release() // the front reserves what it needs
			}
			return false
		case !other, members.Forwarded(r.Context()):
			s.reject(x, "", sessionError(err))
			return true
		}
		if !reserved {
			reserved = true
			if err := s.reserveForward(x); err != nil {
				s.reject(x, "", err)
				return true
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
		if !errors.Is(err, members.ErrGone) {
			s.reject(x, "", errForward())
			return true
		}
		if time.Now().After(deadline) || !pace.Sleep(r.Context(), takeoverCheck, nil) {
			s.reject(x, "", sessionError(err))
			return true
		}
	}
}

const (
	// forwardBuffer is the size of the buffer for the answer to a forwarded request. That of a request
	// with a larger body counts as part of the body.
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
// member. It returns false if this process must answer. If the other member has ended, the call has
// failed, and this process answers with the error. The owner opens the state again, and checks that
// the state is for this request.
func (s *Server) forwardParked(x *request, body []byte) bool {
	w, r := x.reply.w, x.request
	if header(r.Header, "Mcp-Protocol-Version") != proxy.ModernVersion || members.Forwarded(r.Context()) {
		return false
	}
	owner, ok := s.ParkedAt(&x.Exchange)
	if !ok || owner == s.members.Self() || !s.members.Alive(owner) {
		return false
	}
	if err := x.reserveAnswer(); err != nil {
		s.reject(x, x.Msg.ID, err)
		return true
	}
	switch err := s.members.Forward(newRelay(w, r, s.limits.WriteTimeout), r, body, owner); {
	case errors.Is(err, members.ErrGone):
		return false
	case err != nil && r.Context().Err() == nil:
		s.reject(x, x.Msg.ID, errForward())
	}
	return true
}

// MemberChanged must be called when Members.Self returns another ID than before. It ends the
// streams and calls of the sessions in memory, and drops the sessions, because other members may
// have them now. Their clients can continue the sessions at any member.
func (s *Server) MemberChanged() {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	s.sessions.confirmOwner()
}
