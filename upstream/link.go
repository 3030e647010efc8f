package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"junction/upstream/pace"
	"junction/upstream/transport"
)

// link keeps one conn alive.
//
//	            ┌──────────────── retry due, or a call wants it ───────────────┐
//	            ▼                                                              │
//	start ► connecting ── listed ──► ready ── conn ended ──► waiting ──────────┘
//	            │  └──── failed ────────────────────────────► waiting
//	            └─ a person is needed (also when ready) ─► blocked ── retry due, or a call wants it ─► connecting
//	any ── unconfigured, idle, or shutting down ──► closed
type link struct {
	u     *pool
	key   linkKey
	reads bool // it reads the catalog that all callers share
	lists bool // it reads a catalog: that one, or one of its own callers
	log   *slog.Logger

	stop context.CancelCauseFunc
	done chan struct{} // closed when run has returned
	wake chan struct{} // 1-buffered: a call wants the next attempt

	mu sync.Mutex
	linkState
}

// linkState is all of a link that changes; guarded by link.mu, and changed through update, but for
// calls and used.
type linkState struct {
	state    State
	since    time.Time
	err      error      // why the link is not ready; while connecting, why it was not before
	conn     conn       // set exactly when the link is ready
	broken   chan error // 1-buffered, of conn: a call found it broken
	attempts int        // to connect that have failed
	calls    int        // that hold the link: in flight, or waiting for a conn
	kept     int        // subscriptions over it, and attempts to subscribe, which count as calls
	used     time.Time
	changed  chan struct{} // closed and replaced whenever state changes
}

var errIdle = errors.New("unused")

// startLink begins the link's goroutine, which ends with close.
func startLink(u *pool, key linkKey, reads bool) *link {
	ctx, stop := context.WithCancelCause(context.Background())
	l := &link{u: u, key: key, reads: reads, lists: reads || key.lists(), log: u.log, stop: stop,
		done: make(chan struct{}), wake: make(chan struct{}, 1)}
	l.changed, l.since, l.used = make(chan struct{}), time.Now(), time.Now()
	go l.run(ctx)
	return l
}

// run is the only goroutine of a link, but for the one in connectAndServe that waits for the conn.
func (l *link) run(ctx context.Context) {
	defer close(l.done)
	if l.reads && l.u.person != "" {
		l.u.recallLater()
	}
	var pause pace.Backoff
	for ctx.Err() == nil {
		l.update(func(s *linkState) bool { s.state = StateConnecting; return true })
		lived, err := l.connectAndServe(ctx)
		if ctx.Err() != nil {
			break
		}
		if errors.As(err, new(*configError)) {
			l.update(func(s *linkState) bool { s.attempts++; s.state, s.err = StateBlocked, err; return true })
			<-ctx.Done()
			break
		}
		if errors.Is(err, errIdle) {
			l.stop(errIdle)
			break
		}
		if lived > 30*time.Second {
			pause.Reset()
		}
		next := StateWaiting
		if needsPerson(err) {
			next, pause.Last = StateBlocked, pace.Longest
		}
		if signIn(err) {
			pause.Last = lookEvery / 2
		}
		l.update(func(s *linkState) bool {
			if lived == 0 {
				s.attempts++ // the end of a conn that was there is no failed attempt: calls wait for the next one
			}
			s.state, s.conn, s.err = next, nil, err
			return true
		})
		pause.Wait(ctx, l.wake)
		if !l.reads && l.retire() { // no call waits for it any more
			l.stop(errIdle)
		}
	}
	l.update(func(s *linkState) bool { s.state, s.conn, s.err = StateClosed, nil, context.Cause(ctx); return true })
	l.u.forget(l)
}

// needsPerson reports whether the server refuses who we are, or the command may not run without a
// sandbox.
func needsPerson(err error) bool {
	var status *transport.StatusError
	var confined *transport.SandboxError
	return signIn(err) || errors.As(err, &confined) && confined.Permanent || errors.As(err, &status) &&
		(status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden)
}

// configError says why an upstream cannot be used as it is configured (Config.Blocked).
type configError struct{ why string }

func (e *configError) Error() string { return e.why }

// signIn reports whether the link's own person, or the operator, has to sign in.
func signIn(err error) bool {
	return errors.As(err, new(*SignInError)) || errors.As(err, new(*LoginError))
}

// lookEvery is how often a person's link looks whether they have signed in, or out, somewhere else.
// That is not asked of the server.
const lookEvery = 5 * time.Second

// update is the only way to change the state. change modifies it and reports whether it did; then
// waiting calls are woken. A closed link stays closed.
func (l *link) update(change func(*linkState) bool) bool {
	l.mu.Lock()
	if l.state == StateClosed || !change(&l.linkState) {
		l.mu.Unlock()
		return false
	}
	l.since = time.Now()
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()
	if l.reads {
		l.u.linkChanged(l)
	}
	return true
}

// listenPatience is how long the first call waits until we can hear the server's questions. One
// that opens a stream says so at once, or with its first event.
const listenPatience = time.Second

// connectAndServe returns when the conn has ended, how long it lived, and why it ended. 0 means
// that there was none.
func (l *link) connectAndServe(ctx context.Context) (time.Duration, error) {
	changed := make(chan struct{}, 1)
	opening, cancel := context.WithTimeoutCause(ctx, l.u.hard.ConnectTimeout,
		fmt.Errorf("no connection within %v (connect_timeout)", l.u.hard.ConnectTimeout))
	defer cancel()
	if why := l.u.hard.Blocked; why != "" {
		return 0, &configError{why}
	}
	if _, err := l.u.token(opening); err != nil {
		return 0, err
	}
	dial := l.u.dialer.dial
	if l.key.aside {
		dial = l.u.dialer.dialAside
	}
	c, err := dial(opening, l.key.profile, l.hooks(changed))
	if err != nil {
		if opening.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
			err = context.Cause(opening)
		}
		return 0, l.explain(err)
	}
	ended := make(chan error, 1)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer c.close()
	waiting.Go(func() { ended <- c.wait() })
	if l.lists || l.key.profile.Asks() {
		listening := c.watch()
		if l.lists {
			if err := l.u.readCatalog(opening, l.key, c); err != nil {
				return 0, err
			}
		}
		if l.key.profile.Asks() {
			// Some servers put their requests on the listening stream, and lose them while there is
			// none.
			select {
			case <-listening:
			case <-time.After(listenPatience):
			case <-opening.Done():
			}
		}
	}
	ready, broken := time.Now(), make(chan error, 1)
	l.update(func(s *linkState) bool { s.state, s.conn, s.broken, s.err = StateReady, c, broken, nil; return true })
	if l.lists {
		waiting.Go(func() { l.u.subscriptions(l.key).resubscribe(ctx, l, c) }) // which the end of c ends
	}
	err = l.serve(ctx, c, changed, broken, ended)
	return max(1, time.Since(ready)), err
}

// explain adds to an error of a second process that the server may be one that can run only once.
func (l *link) explain(err error) error {
	if l.key.owner == "" || l.u.hard.URL != "" || l.u.Status().State != StateReady {
		return err
	}
	l.log.Warn("cannot start a process of the server for one user", "error", err,
		"advice", "if the server can run only once, and keeps nothing of its users, set isolation: shared")
	return &ownError{err}
}

// hooks is what the link wants to hear of its conn.
func (l *link) hooks(changed chan<- struct{}) hooks {
	h := hooks{changed: func() { nudge(changed) }}
	if l.lists {
		s := l.u.subscriptions(l.key)
		h.updated, h.missed = s.updated, s.missed
	}
	return h
}

// stale receives when the server follows resources that no client is subscribed to any more. It is
// nil on a link that does not read a catalog.
func (l *link) stale() <-chan struct{} {
	if !l.lists {
		return nil
	}
	return l.u.subscriptions(l.key).stale
}

// serve looks after a conn until it ends, and returns why it did.
func (l *link) serve(ctx context.Context, c conn, changed <-chan struct{}, broken, ended <-chan error) error {
	var read time.Time // when the catalog was last read again
	refresh := time.NewTimer(l.refreshIn(c))
	defer refresh.Stop()
	idle := time.NewTimer(l.idleLimit())
	defer idle.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	if l.u.dialer.token == nil {
		look.Stop()
	}
	stale := l.stale()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-ended:
			if err == nil {
				err = transport.ErrClosed
			}
			return err
		case err := <-broken:
			return err
		case <-changed:
			// one that tells of a change whenever it is asked must not keep us busy
			if soon := calm - time.Since(read); soon > 0 {
				refresh.Reset(soon)
				continue
			}
			l.reread(ctx, c)
			read = time.Now()
			refresh.Reset(l.refreshIn(c))
		case <-refresh.C:
			l.reread(ctx, c)
			read = time.Now()
			refresh.Reset(l.refreshIn(c))
		case <-stale:
			l.u.subscriptions(l.key).withdraw(ctx, c)
		case <-look.C:
			if _, err := l.u.token(ctx); signIn(err) {
				return err
			}
		case <-idle.C:
			left := l.idleLeft()
			if left <= 0 {
				return errIdle
			}
			idle.Reset(left)
		}
	}
}

// reread reads the catalog again; the last good one stays when that fails.
func (l *link) reread(ctx context.Context, c conn) {
	if !l.lists {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.u.hard.ConnectTimeout)
	defer cancel()
	if err := l.u.readCatalog(ctx, l.key, c); err != nil && ctx.Err() == nil && !signIn(err) {
		l.log.Warn("catalog not refreshed; the last one is served", "error", err)
	}
}

// refreshIn is the time until the catalog is read again unasked: when it is no longer fresh, and
// now and then where the server cannot tell of changes.
func (l *link) refreshIn(c conn) time.Duration {
	every := time.Duration(0)
	if _, _, all := c.about().tells(); !all {
		every = l.u.options.Refresh
	}
	if ttl := l.u.catalogOf(l.key).ttl(); ttl > 0 && (every == 0 || ttl < every) {
		every = max(ttl, minRefresh)
	}
	if every == 0 || !l.lists {
		return 365 * 24 * time.Hour
	}
	return every + rand.N(every/8+1)
}

// calm is the least time between two readings of a catalog that its server asks for.
const calm = 250 * time.Millisecond

// minRefresh keeps a server with a short TTL from being asked all the time.
const minRefresh = 10 * time.Second

// spareIdle is how long a link other than the one that reads the catalog may be unused. It is
// ownIdle for the link of one principal or session, which may have state.
const (
	spareIdle = 5 * time.Minute
	ownIdle   = 15 * time.Minute
)

func (l *link) idleLimit() time.Duration {
	limit := l.u.hard.IdleStop
	switch {
	case limit > 0:
		return limit
	case l.reads:
		return 365 * 24 * time.Hour
	case l.key.owner != "" && l.key.lane == 0:
		return ownIdle
	}
	return spareIdle
}

// idleLeft returns how much longer the link may stay unused; at 0 it takes no further call.
func (l *link) idleLeft() time.Duration {
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

// asking returns a channel that is closed when no call has the link for itself any more; nil while
// none has.
func (l *link) asking() <-chan struct{} {
	l.mu.Lock()
	c := l.conn
	l.mu.Unlock()
	if c == nil {
		return nil
	}
	return c.asking()
}

// hold keeps the link in use until release, also while it is not ready yet: otherwise calls that
// want more links than there may be would take them from each other for ever.
func (l *link) hold() {
	l.mu.Lock()
	l.calls++
	l.mu.Unlock()
}

// acquire waits for a ready conn, for a call that holds the link. It fails, and releases the link,
// when the attempt to connect that it waited for has failed.
func (l *link) acquire(ctx context.Context) (conn, error) {
	c, err := l.await(ctx)
	if err != nil {
		l.release()
	}
	return c, err
}

func (l *link) await(ctx context.Context) (conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for attempts := l.attempts; ; {
		switch {
		case l.state == StateReady:
			return l.conn, nil
		case l.state == StateClosed:
			return nil, transport.ErrClosed
		case l.attempts > attempts:
			return nil, l.err
		}
		if l.state != StateConnecting {
			nudge(l.wake)
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		l.mu.Lock()
		if ctx.Err() != nil {
			if l.err != nil {
				return nil, fmt.Errorf("still connecting; before that: %w", l.err)
			}
			return nil, fmt.Errorf("still connecting: %w", context.Cause(ctx))
		}
	}
}

// keep holds the link for subscriptions, and letGo ends that.
func (l *link) keep() {
	l.mu.Lock()
	l.kept++
	l.mu.Unlock()
	l.hold()
}

func (l *link) isKept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept > 0
}

func (l *link) letGo() {
	l.mu.Lock()
	l.kept--
	l.mu.Unlock()
	l.release()
}

func (l *link) release() {
	l.mu.Lock()
	l.calls--
	l.used = time.Now()
	idle := l.calls == 0
	l.mu.Unlock()
	if idle {
		l.u.linkIdle()
	}
}

// fail says that a call found c broken, and why. Calls that come now wait for the next conn.
func (l *link) fail(c conn, err error) {
	l.update(func(s *linkState) bool {
		if s.state != StateReady || s.conn != c {
			return false
		}
		s.state, s.conn, s.err = StateConnecting, nil, err
		s.broken <- err
		return true
	})
}

// close ends the link and returns when nothing of it is left.
func (l *link) close() {
	l.stop(transport.ErrClosed)
	<-l.done
}

// nudge sends to a 1-buffered channel without waiting.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
