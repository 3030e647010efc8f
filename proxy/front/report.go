package front

import (
	"errors"
	"net/http"
	"time"

	"junction/proxy"
)

// deny answers 403.
func (s *Server) deny(rw http.ResponseWriter, reason, text string) {
	s.refused(reason, http.StatusForbidden, 0)
	http.Error(rw, text, http.StatusForbidden)
}

// SessionStatus describes a legacy session.
type SessionStatus struct {
	Principal string // that has the session
	Client    string // the client's name for itself (unverified)
	Version   string // of the protocol
	Used      time.Time
}

// Sessions returns the latest used sessions, latest first and at most 20, and the number of
// sessions in memory.
func (s *Server) Sessions() (latest []SessionStatus, total int) {
	const most = 20
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	for e := s.sessions.order.Front(); e != nil && len(latest) < most; e = e.Next() {
		one := e.Value.(*entry)
		latest = append(latest, SessionStatus{one.s.Principal, one.s.Client, one.s.Version, one.used})
	}
	return latest, s.sessions.order.Len()
}

// refusedFor returns why a request was refused that another one of the same text would not be: a limit, or a
// member or a database that does not answer; "" for other reasons, which the status and the code tell.
func refusedFor(err error) string {
	if own, ok := errors.AsType[*proxy.Refusal](err); ok {
		switch own.Outcome {
		case proxy.Limited:
			return "limit"
		case proxy.Unavailable, proxy.Lost:
			return "unavailable"
		}
	}
	return ""
}

func (s *Server) refused(reason string, status int, code int64) {
	if s.observer != nil {
		s.observer.Refused(reason, status, code)
	}
}
