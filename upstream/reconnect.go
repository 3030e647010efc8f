package upstream

import (
	"context"
	"errors"

	"junction/upstream/transport"
)

// errReconnect is why connections ended that Set.Reconnect replaces.
var errReconnect = errors.New("a reconnect was requested")

// Reconnect connects a running upstream again, as the operator asked for: its processes and
// sessions end, with the calls on them, and an attempt that is due later comes now. It returns
// false if there is no such upstream, and does not wait.
func (s *Set) Reconnect(name string) bool {
	s.mu.Lock()
	u := s.running[name]
	s.mu.Unlock()
	if u != nil {
		u.reconnect()
	}
	return u != nil
}

func (p *pool) reconnect() {
	p.mu.Lock()
	var links []*link
	for _, l := range p.links {
		links = append(links, l)
	}
	closed := p.closed
	p.mu.Unlock()
	for _, l := range links {
		l.mu.Lock()
		c := l.conn
		l.mu.Unlock()
		switch {
		case !l.reads:
			l.stop(transport.ErrClosed) // the next call opens another one
		case c != nil:
			l.fail(c, errReconnect)
		}
		nudge(l.wake)
	}
	if len(links) == 0 && !closed { // it was unused for long
		if l, err := p.link(context.Background(), p.reading()); err == nil {
			l.release()
		}
	}
}
