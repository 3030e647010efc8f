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
