package upstream

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// Stuck is a connection over which the server does not work: see StateDegraded.
type Stuck struct {
	PID             int       // of its process; 0 for a server with a url
	User, Principal string    // as in Process
	Since           time.Time // of the first ping without an answer; zero if the server rejects calls or pings
	Err             string    // why it does not work, in one line
}

// stuck returns the connections over which the server does not work, except the one that reads the
// catalog, which Status.State is about; p.mu is held.
func (p *pool) stuck() (list []Stuck) {
	for _, l := range p.links {
		if l.readsShared {
			continue
		}
		l.mu.Lock()
		now := l.linkState
		l.mu.Unlock()
		if now.state != StateDegraded {
			continue
		}
		s := Stuck{Err: describe(now.err)}
		s.User, s.Principal = l.callers()
		if frozen, ok := errors.AsType[*frozenError](now.err); ok {
			if s.Err = frozen.reason(); frozen.failed == nil {
				s.Since = frozen.since
			}
		}
		if c := now.conn.Child(); c != nil {
			s.PID = c.PID()
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b Stuck) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.User, b.User), cmp.Compare(a.PID, b.PID))
	})
	return list
}

// Awaited is a ping that a server has not answered, while a call that its client has cancelled could still be in
// progress: the server may handle one request at a time. The server is not degraded yet.
type Awaited struct {
	Since time.Time // when the ping was sent; zero if none is awaited for long
	Until time.Time // when the server is degraded if it answers nothing
}

// asks notes that the first ping is sent.
func (s *silence) asks(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = now
}

// awaited returns the ping that a link waits for, if it has waited longer than for other pings.
func (l *link) awaited() (a Awaited) {
	l.mu.Lock()
	ready := l.state == StateReady
	l.mu.Unlock()
	l.silence.mu.Lock()
	asked := l.silence.asked
	l.silence.mu.Unlock()
	if ready && !asked.IsZero() && time.Since(asked) >= pingPatience {
		a = Awaited{asked, l.silence.patience(asked)}
	}
	return a
}

// longestPing returns the ping of all links that is awaited for the longest time; p.mu is held.
func (p *pool) longestPing() (first Awaited) {
	for _, l := range p.links {
		if a := l.awaited(); !a.Since.IsZero() && (first.Since.IsZero() || a.Since.Before(first.Since)) {
			first = a
		}
	}
	return first
}
