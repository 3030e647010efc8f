package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"junction/proxy/budget"
	"junction/proxy/members"
	"junction/proxy/relay"
)

// This file finds the process that answers a request, if several processes serve the endpoints
// (package members). The owner of a session has it in memory; the owner of a parked call has made
// it. All other requests are answered where they arrive.

// elsewhere means that another member has the session.
type elsewhere struct{ member string }

func (*elsewhere) Error() string { return "another member has the session" }

// session returns the session of an ID if the principal owns it and this process has it. The error
// is errUnknownSession, an *elsewhere, errMoved, or one of package members.
func (s *Server) session(ctx context.Context, id string, a budget.Account) (*session, error) {
	if its, err := s.sessions.find(id, a); its != nil || err != nil {
		return its, err
	}
	said, err := s.sessions.open(id, a)
	if err != nil {
		return nil, err
	}
	first := said.Member
	said.Member = s.sessions.process()
	if s.members != nil {
		owner, err := s.members.Owner(ctx, hash(id), first, time.Unix(said.Born, 0).Add(s.sessions.maxAge))
		switch {
		case errors.Is(err, members.ErrDeleted):
			return nil, errUnknownSession
		case err != nil:
			return nil, err
		case owner != said.Member:
			return nil, &elsewhere{owner}
		}
	}
	its, err := s.sessions.adopt(id, said, a)
	if err == nil {
		its.rebuilt(s.members != nil && first != said.Member)
	}
	return its, err
}

// rebuilt prepares a session that was made from its ID. moved reports that another member had it.
func (s *session) rebuilt(moved bool) {
	// An answer to a server request from before must not be taken for one to a new server request.
	s.numbers.CompareAndSwap(0, uint64(time.Now().UnixMilli()))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = s.moved || moved
}

// wasMoved reports once that another member had the session before.
func (s *session) wasMoved() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	moved := s.moved
	s.moved = false
	return moved
}

const (
	takeover      = 20 * time.Second       // for which a request waits until an ended owner is replaced
	takeoverCheck = 250 * time.Millisecond // between two checks
)

// forwardSession answers a request about a session that another member has. It returns false if
// this process must answer. The body is not read before.
func (s *Server) forwardSession(w http.ResponseWriter, r *http.Request, c caller) bool {
	id := header(r.Header, "Mcp-Session-Id")
	if id == "" || r.Method == http.MethodPost && header(r.Header, "Mcp-Protocol-Version") == modernVersion {
		return false
	}
	if r.Method == http.MethodGet { // a stream must not delay the end of this process
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.ending, cancel)()
		r = r.WithContext(ctx)
	}
	enough := time.Now().Add(takeover)
	for {
		_, err := s.session(r.Context(), id, c.account(r))
		at, other := errors.AsType[*elsewhere](err)
		switch {
		case err == nil, err == errUnknownSession:
			return false
		case !other, members.Hopped(r.Context()):
			s.reject(newReply(w, r, &s.limits), "", sessionError(err))
			return true
		}
		if err = s.members.Forward(relay.New(w, r, s.limits.WriteTimeout), r, nil, at.member); err == nil {
			return true
		}
		if r.Context().Err() != nil {
			return true // the client has gone
		}
		if !errors.Is(err, members.ErrGone) {
			s.reject(newReply(w, r, &s.limits), "", errForward())
			return true
		}
		if time.Now().After(enough) || !pauseFor(r.Context(), takeoverCheck) {
			s.reject(newReply(w, r, &s.limits), "", sessionError(err))
			return true // the lease of the owner lasts longer than we wait
		}
	}
}

// pauseFor waits. It returns false if ctx ends before.
func pauseFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// forwardParked answers the request of a modern client that returns to a parked call of another
// member. It returns false if this process must answer: also if the other member has ended, because
// then the call has failed. The owner checks the state again, and that it is for this request.
func (s *Server) forwardParked(w http.ResponseWriter, r *http.Request, x *exchange, body []byte) bool {
	if header(r.Header, "Mcp-Protocol-Version") != modernVersion || members.Hopped(r.Context()) {
		return false
	}
	sealed, err := x.params.String("requestState")
	if err != nil {
		return false
	}
	var st state
	text, err := s.states.Open(sealed)
	if err != nil || json.Unmarshal(text, &st) != nil || st.Kind != stateParked || st.Principal != x.principal.ID ||
		time.Now().Unix() > st.Expires || st.Member == s.members.Self() || !s.members.Alive(st.Member) {
		return false
	}
	x.outlived = true // the connection to the member may still read the body
	switch err := s.members.Forward(relay.New(w, r, s.limits.WriteTimeout), r, body, st.Member); {
	case errors.Is(err, members.ErrGone):
		return false
	case err != nil && r.Context().Err() == nil:
		s.reject(x.reply, x.msg.ID, errForward())
	}
	return true
}

// MemberChanged must be called when Members.Self returns another ID than before. It ends the sessions
// in memory, because other members may have them now; their clients come back.
func (s *Server) MemberChanged() {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	s.sessions.joined()
}
