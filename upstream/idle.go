package upstream

import "time"

// This file ends links that no call uses.

// Time after which unused links are closed, except for the link that reads the shared catalog.
// ownIdle applies to the link of one principal or session, which may have state at the server.
const (
	spareIdle = 5 * time.Minute
	ownIdle   = 15 * time.Minute
)

func (l *link) idleLimit() time.Duration {
	limit := l.pool.connConfig.IdleStop
	switch {
	case limit > 0:
		return limit
	case l.readsShared:
		return 365 * 24 * time.Hour
	case (l.key.holder != "" || l.key.forwarded != "") && l.key.number == 0:
		return ownIdle
	}
	return spareIdle
}

// retireIfIdle retires the link if it is idle, and returns 0. Otherwise it returns the time until
// the next check.
func (l *link) retireIfIdle() time.Duration {
	l.mu.Lock()
	left := time.Until(l.used.Add(l.idleLimit()))
	if l.calls > 0 {
		left = l.idleLimit()
	}
	l.mu.Unlock()
	if left > 0 || !l.retire() {
		return max(left, time.Second)
	}
	return 0
}

// leave ends the links of principals that have gone: the unused ones now, the others with their last call.
func (p *pool) leave(gone func(principal string) bool) {
	var links []*link
	p.mu.Lock()
	for key, l := range p.links {
		if key.user != "" && !l.readsShared && gone(key.user) {
			links = append(links, l)
		}
	}
	p.mu.Unlock()
	for _, l := range links {
		l.mu.Lock()
		l.orphaned = true
		l.mu.Unlock()
		l.end()
	}
}

// end ends the link, unless a call holds it.
func (l *link) end() {
	if l.retire() {
		l.stop(errIdle)
	}
}

// retire closes an idle link to new calls. It returns false if a call holds the link.
func (l *link) retire() bool {
	return l.update(func(s *linkState) bool {
		if s.calls > 0 {
			return false
		}
		s.state, s.conn, s.err = StateClosed, nil, errIdle
		return true
	})
}
