package upstream

import (
	"context"
	"errors"
	"net/http"
	"time"

	"junction/upstream/bounded"
	"junction/upstream/pace"
	"junction/upstream/transport"
)

// This file is about a server that rejects Junction's credentials while a link connects, or tells when to
// come back. The next attempt would have the same answer, so calls get the known error, and do not cause
// an attempt each.

// refusedPause is the least time between the answer 401 or 403 to an attempt to connect, and the next
// attempt of the same link. Other credentials, and the operator, end it.
const refusedPause = 30 * time.Second

// mostRetryAfter bounds the time of Retry-After that the server sends with 429 or 503.
const mostRetryAfter = 10 * time.Minute

// refusedBy reports whether the server rejected the credentials with 401 or 403.
func refusedBy(err error) bool {
	status, ok := errors.AsType[*transport.StatusError](err)
	return ok && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden)
}

// tellRefused calls the hook for an answer 401.
func (p *pool) tellRefused(err error) {
	status, ok := errors.AsType[*transport.StatusError](err)
	if ok && status.Status == http.StatusUnauthorized && p.options.Hooks.Refused != nil {
		p.options.Hooks.Refused(p.name)
	}
}

// others calls the hook for other headers, and keeps their values out of what people are shown.
func (p *pool) others(ctx context.Context, sent map[string]string) map[string]string {
	now := p.options.Hooks.Others(ctx, p.name, sent)
	if now != nil {
		p.renewed.Store(&now)
	}
	return now
}

// refused returns the error of a link whose attempt was answered 401 or 403 less than refusedPause ago, or
// 429 or 503 with a time that has not passed; nil if a call may cause an attempt. l.mu is held.
func (l *link) refused() error {
	if l.state.Failed() && time.Now().Before(l.refusedUntil) {
		return l.err
	}
	return nil
}

// refusal is what a link that made room for another one knew.
type refusal struct {
	state State
	err   error
	until time.Time // see linkState.refusedUntil
}

// keptRefusals has the refusals by link. They belong to the principals, and are guarded by pool.mu.
type keptRefusals = bounded.Shared[string, linkKey, refusal]

// keepRefusal keeps the pause of a link that is about to end although the pause goes on; p.mu is held.
func (p *pool) keepRefusal(l *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused() == nil {
		return
	}
	p.refused.Max = maxOwn
	p.refused.Put(l.key.user, l.key, refusal{l.state, l.err, l.refusedUntil},
		func(r refusal) bool { return time.Now().After(r.until) })
}

// recallRefusal lets a new link begin with the pause of an earlier one; p.mu is held.
func (l *link) recallRefusal() {
	if r, kept := l.pool.refused.Get(l.key); kept && time.Now().Before(r.until) {
		l.state, l.err, l.retry, l.refusedUntil = r.state, r.err, r.until, r.until
	}
}

// finishRefusal waits for the end of the pause with which a link begins. A link that no call waits for then
// ends.
func (l *link) finishRefusal(ctx context.Context) {
	l.mu.Lock()
	left := time.Until(l.refusedUntil)
	l.mu.Unlock()
	if left > 0 {
		if l.rest(ctx, left); l.retire() {
			l.stop(errIdle)
		}
	}
}

// rest waits until the next attempt to connect is due. Calls end the wait: see await. After 401 or 403,
// other credentials end it, too. They are looked for without asking the server.
func (l *link) rest(ctx context.Context, d time.Duration) {
	l.mu.Lock()
	refused, missing := l.refused() != nil, signIn(l.err)
	l.mu.Unlock()
	if !refused {
		pace.Wait(ctx, d, l.wake)
		return
	}
	select { // a call that came before this attempt has its error
	case <-l.wake:
	default:
	}
	var look <-chan time.Time
	used := l.pool.given.Load()
	if l.pool.credentialed() {
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		look = ticker.C
	}
	due := time.NewTimer(d)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-due.C:
			return
		case <-l.wake:
			return
		case <-look:
			token, err := l.pool.token(ctx)
			if signIn(err) && !missing || err == nil && (used == nil || token != *used) {
				return
			}
		}
	}
}
