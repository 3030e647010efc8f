package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"junction/upstream/client"
	"junction/upstream/pace"
	"junction/upstream/transport"
)

// link keeps one conn open and reconnects it.
//
//	            ┌─────────────── retry due, or a call is waiting ──────────────┐
//	            ▼                                                              │
//	start ► starting ─── listed ───► ready ── conn ended ─► retrying ──────────┘
//	            │  └──── failed ───────────────────────────► retrying
//	            ├─ it has ended in an empty folder ────────► waits for a folder ─ a call brings one ─► starting
//	            ├─ a sign-in is missing (also when ready) ─► needs sign-in ── as from retrying ─► starting
//	            └─ credentials rejected (also when ready),
//	               or sandbox not available ───────────────► blocked ────── as from retrying ─► starting
//	start ── configuration is wrong ──► blocked, until closed
//	ready ── a call found the conn broken ──► starting
//	ready ── a call got no answer, nor did a ping ──► degraded ── a ping or a call is answered ──► ready
//	ready ── no connection is accepted, or calls fail in a row, and so does a ping ──► degraded, as above
//	ready ── a control question failed ──► degraded ── one is answered, or another session works ──► ready
//	any ── unconfigured, idle, or shutting down ──► closed
type link struct {
	pool         *pool
	key          linkKey
	readsShared  bool // it reads the catalog that all callers share
	readsCatalog bool // it reads a catalog: the shared one, or one for its own callers
	subscribes   bool // it has the subscriptions of its callers
	log          *slog.Logger

	folders  *Folders       // of the client whose calls use the link; nil for none
	dialer   *client.Dialer // of the folders or the key; nil before the first attempt, and without both
	dialedIn *Folders       // those of dialer
	token    string         // the key in the environment of dialer; "" for none
	dialed   string         // the credential at the last attempt; "" for none
	roots    func() []byte  // result of roots/list of the process; set with dialer

	born time.Time
	stop context.CancelCauseFunc
	done chan struct{} // closed when run has returned
	wake chan struct{} // 1-buffered; receives when a call needs the next attempt to connect
	// 1-buffered; receives when the lists of the server have changed
	relist    chan struct{}
	asking    asking
	silence   silence
	suspicion suspicion

	unasked time.Time // when the server could not be asked in the legacy era; zero if it could. See asksAgain

	leaving sync.WaitGroup     // conns of lost sessions that wait for their calls; see leave
	hurry   context.CancelFunc // closes the conn that waits; nil for none

	mu sync.Mutex
	linkState
}

// linkState is the mutable state of a link. It is guarded by link.mu. Except for calls,
// subscribers, orphaned and used, it is changed only by update.
type linkState struct {
	state        State
	since        time.Time
	err          error       // why the link is not ready; while starting, why the last attempt failed
	retry        time.Time   // see Status
	refusedUntil time.Time   // until then no call causes an attempt: see refused
	conn         client.Conn // set only while the link is ready or degraded
	broken       chan error  // see tenure
	lost         error       // why the session of conn is distrusted; nil while it is trusted
	another      bool        // another session has made the link ready
	attempts     int         // failed attempts to connect
	dead         bool        // the last attempt failed, and not because of its time limit: see deadPatience
	calls        int         // calls that hold the link: in flight, or waiting for a conn
	// subscriptions over the link and attempts to subscribe; they also count in calls
	subscribers int
	orphaned    bool // its principal has gone: the link ends with its last call
	used        time.Time
	changed     chan struct{} // closed and replaced whenever state changes
}

var (
	errIdle     = errors.New("unused")
	errReplaced = errors.New("another session has taken the place of the session")
)

// startLink starts the goroutine of a link, which runs until close, or until the link is idle. of is
// the call that needs it.
func startLink(p *pool, key linkKey, readsShared bool, of waiter) *link {
	ctx, stop := context.WithCancelCause(context.Background())
	l := &link{pool: p, key: key, readsShared: readsShared, subscribes: readsShared || key.readsCatalog(),
		readsCatalog: readsShared || key.readsCatalog() && !p.ByFolder(),
		log:          p.log, folders: of.folders, born: time.Now(), stop: stop, done: make(chan struct{}),
		wake: make(chan struct{}, 1), relist: make(chan struct{}, 1), asking: asking{wake: make(chan struct{}, 1)},
		silence: newSilence(), suspicion: suspicion{wake: make(chan struct{}, 1)}}
	l.changed, l.since, l.used = make(chan struct{}), time.Now(), time.Now()
	l.recallRefusal()
	go l.run(ctx, of.cause)
	return l
}

// run is the only goroutine of a link, except for those of connectAndServe.
func (l *link) run(ctx context.Context, cause client.Trace) {
	defer close(l.done)
	defer l.leaving.Wait()
	if l.readsShared && l.pool.user != "" {
		if stored := l.pool.lists.recallLater(); stored != nil {
			l.pool.expect(stored)
		}
	}
	if why := l.pool.connConfig.Blocked; why != "" {
		l.update(outcome{state: StateBlocked, err: errors.New(why), failed: true}.apply)
		<-ctx.Done()
	}
	var pause pace.Backoff
	l.finishRefusal(ctx)
	for ctx.Err() == nil {
		l.update(func(s *linkState) bool { s.state, s.retry = StateStarting, time.Time{}; return true })
		lived, err := l.connectAndServe(ctx, cause)
		l.pool.secondEnded(ctx, l.key, lived, err)
		cause = nil // the next attempt is not for that call
		if errors.Is(err, errIdle) || errors.Is(err, client.ErrNoLegacySession) {
			l.stop(err)
		}
		if ctx.Err() != nil {
			break
		}
		if lived > 0 && errors.Is(err, errReconnect) { // no failure
			continue
		}
		if lived == 0 && unanswered(err) {
			l.doubtReading()
		}
		l.pool.tellRefused(err)
		o, rest := l.outcomeOf(lived, err, &pause)
		if l.key.holder != "" && o.state == StateRetrying {
			l.pool.crashes.Add(1)
		}
		l.update(o.apply)
		l.rest(ctx, rest)
		if !l.readsShared && l.retire() { // no call waits for the link
			l.stop(errIdle)
		}
	}
	l.update(func(s *linkState) bool { s.state, s.conn, s.err = StateClosed, nil, context.Cause(ctx); return true })
	l.pool.forget(l)
}

// update changes the state; apart from calls, subscribers and used there is no other way. change modifies
// the state and reports whether it did, and update then wakes the waiting calls. A closed link
// stays closed.
func (l *link) update(change func(*linkState) bool) bool {
	l.mu.Lock()
	before := l.state
	if l.state == StateClosed || !change(&l.linkState) {
		l.mu.Unlock()
		return false
	}
	l.since = time.Now()
	if l.conn == nil {
		l.lost = nil
	}
	switch {
	case before != StateDegraded && l.state == StateDegraded:
		l.pool.degraded.Add(1)
	case before == StateDegraded && l.state != StateDegraded:
		l.pool.degraded.Add(-1)
	}
	if l.readsShared {
		l.pool.dead.Store(l.deadReason())
		l.pool.waits.Store(l.state == StateWaiting)
	}
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()
	if l.readsShared {
		l.pool.linkChanged(l)
	}
	return true
}

// listenPatience is how long the first call waits for the stream with server requests. Servers that
// offer the stream send the response header at once, or with the first event.
const listenPatience = time.Second

// connectAndServe connects and serves until the conn ends. It returns how long the conn lived, and
// the reason of its end. A duration of 0 means that connecting failed. cause is the Trace of the
// call that waits for it.
func (l *link) connectAndServe(ctx context.Context, cause client.Trace) (time.Duration, error) {
	opening, cancel := l.limitOpening(client.CausedBy(ctx, cause))
	defer cancel()
	if err := l.pool.takeSeat(opening, l); err != nil {
		return 0, err
	}
	defer l.pool.options.seats.free(l)
	o, err := l.open(opening)
	if err = l.wrongKey(ctx, err); err != nil {
		if l.readsShared {
			err = l.pool.awaited(l.dialedIn, err)
		}
		return 0, err
	}
	c, t := o.Conn, newTenure(o.Conn)
	if o.catalog != nil {
		l.pool.adopt(l.key, c.Info(), o.catalog)
	}
	if l.key.profile.Asks() {
		// Some servers send requests on the listening stream, and lose them while it is not open.
		pace.Sleep(opening, listenPatience, o.listening)
	}
	if err := l.runsTwice(c, ""); err != nil {
		t.end()
		return 0, err
	}
	l.silence.end() // the conn before was silent
	if l.losesSessions(c) {
		l.suspicion.watched(c) // before the first call can doubt the session
	}
	ready := time.Now()
	l.update(func(s *linkState) bool {
		s.state, s.conn, s.broken, s.err, s.dead = StateReady, c, t.broken, nil, false
		return true
	})
	l.wakeReading()
	for {
		if l.subscribes {
			c := t.conn // its end ends this
			t.tasks.Go(func() { l.pool.subscriptions(l.key).resubscribe(ctx, l, c) })
		}
		err = l.serve(ctx, t)
		next := l.suspicion.successor()
		l.leave(ctx, t, err, next != nil)
		if next == nil || ctx.Err() != nil || errors.Is(err, errIdle) {
			if next != nil {
				next.end()
			}
			return max(1, time.Since(ready)), err
		}
		t = next
	}
}

// limitOpening returns a context for an attempt to connect.
func (l *link) limitOpening(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, l.pool.connConfig.ConnectTimeout,
		fmt.Errorf("%w within %v (connect_timeout)", errNoConnection, l.pool.connConfig.ConnectTimeout))
}

// dial opens a conn of the link. ctx comes from limitOpening.
func (l *link) dial(ctx context.Context) (client.Conn, error) {
	token, err := l.pool.token(ctx)
	if err != nil {
		return nil, err
	}
	if l.dialed = token; l.readsShared {
		l.pool.exited.Store(nil)
	}
	dialer, roots, err := l.pool.dialerOf(l, token)
	if err != nil {
		return nil, err
	}
	hooks := l.hooks(l.relist)
	var asked <-chan struct{}
	if roots != nil {
		hooks.Roots, asked = noticed(roots)
	}
	dial := dialer.Dial
	switch {
	case l.key.legacySide:
		dial = dialer.DialLegacySession
	case !l.readsShared && l.pool.legacyAlone.Load():
		dial = dialer.DialLegacy
	}
	c, err := dial(ctx, l.key.profile, hooks)
	if err == nil && roots != nil && !(l.readsShared && l.pool.NeedsFolder()) { // which takes no calls
		awaitRoots(ctx, c, asked)
	}
	if err != nil && ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		err = context.Cause(ctx)
	}
	return c, err
}

// listens reports whether the link needs the messages of the server that belong to no call.
func (l *link) listens() bool { return l.subscribes || l.key.profile.Asks() }

// explain marks the error of a second process, with the advice that the server may be able to run
// only once.
func (l *link) explain(err error) error {
	if l.key.holder == "" || l.key.legacySide || !l.pool.connConfig.Kind().Process ||
		l.pool.Status().State != StateReady {
		return err
	}
	err = l.pool.shown(err)
	l.log.Warn("cannot start a process of the server for one user", "error", err,
		"advice", "if the server can run only once, and keeps nothing of its users, set isolation: shared")
	return &ownError{err}
}

// hooks returns the hooks for the link's conn.
func (l *link) hooks(changed chan<- struct{}) client.Hooks {
	h := client.Hooks{Changed: func() {
		l.pool.lists.announced.Add(1)
		pace.Wake(changed)
	}, Doubted: l.doubted, Rootless: l.pool.noteRootless}
	h.Asked = func(items []client.Item) { l.pool.askers.learn(items, l.pool.Catalog()) }
	if l.subscribes {
		s := l.pool.subscriptions(l.key)
		h.Updated, h.Missed = s.updated, s.missed
	}
	return h
}

// doubted notes a reason to doubt the conn which belongs to no call.
func (l *link) doubted(err error) {
	if errors.Is(err, transport.ErrNotSent) {
		l.silence.doubt()
		return
	}
	l.suspicion.raise(nil)
}

// serve maintains a conn until it ends, and returns the reason of its end.
func (l *link) serve(ctx context.Context, t *tenure) error {
	ctx, cancel := context.WithCancelCause(ctx)
	u := l.beginUpkeep(t)
	defer u.end()
	defer cancel(nil) // before end, which waits for what uses ctx
	if l.watches(u.conn) {
		u.examining.Go(func() {
			if l.watch(ctx, u.conn) {
				cancel(errReplaced)
			}
		})
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-t.ended:
			return cmp.Or(err, transport.ErrClosed)
		case err := <-t.broken:
			return err
		case <-l.relist:
			u.due.within(u.pause(calm)) // because some servers report a change after every list request
		case <-l.asking.wake:
			if l.asking.waited() {
				u.due.within(l.pool.lists.whenAsked(u.pause(0)))
			}
		case <-u.due.timer.C:
			if err := u.reread(ctx); err != nil {
				return err
			}
		case <-l.silence.wake:
			u.examine(ctx)
		case <-u.stale:
			l.pool.subscriptions(l.key).withdraw(ctx, u.conn)
		case <-u.look.C:
			token, err := l.pool.token(ctx)
			if signIn(err) {
				return err
			}
			if err == nil && token != l.dialed {
				l.pool.givenAnother()
			}
		case <-u.idle.C:
			left := l.retireIfIdle()
			if left <= 0 {
				return errIdle
			}
			u.idle.Reset(left)
		}
	}
}

// upkeep is what serve does regularly for a conn. Only the goroutine of the link uses it.
type upkeep struct {
	link  *link
	conn  client.Conn
	read  time.Time // when the catalog was last reread
	often pace.Burst
	due   *deadline       // of the next reading
	idle  *time.Timer     // asks whether the link is idle
	look  *time.Ticker    // looks for a sign-in that has ended
	stale <-chan struct{} // receives when subscriptions are no longer needed; nil for none

	examining sync.WaitGroup
	examined  chan struct{} // closed when no ping is needed any more; nil before the first
}

// beginUpkeep begins the upkeep of a conn. The caller calls end.
func (l *link) beginUpkeep(t *tenure) *upkeep {
	u := &upkeep{link: l, conn: t.conn, often: pace.Burst{Most: maxRereads, Every: minRefresh},
		due: newDeadline(l.refreshIn()), idle: time.NewTimer(l.idleLimit()), look: time.NewTicker(lookEvery)}
	if t.other && l.readsCatalog {
		u.due.within(calm)
	}
	l.asking.open(l.readsCatalog)
	if !l.pool.credentialed() {
		u.look.Stop()
	}
	if l.subscribes {
		u.stale = l.pool.subscriptions(l.key).stale
	}
	return u
}

// end waits for the goroutines of the upkeep, whose context has ended.
func (u *upkeep) end() {
	u.examining.Wait()
	u.look.Stop()
	u.idle.Stop()
	u.link.asking.open(false)
	u.due.timer.Stop()
}

// pause returns the time until the next reading may begin, at least usual after the last one.
func (u *upkeep) pause(usual time.Duration) time.Duration {
	return max(u.often.Pause(usual)-time.Since(u.read), u.link.pool.lists.checks.pause())
}

// reread reads the catalog again. The error means that the conn is of the wrong era.
func (u *upkeep) reread(ctx context.Context) error {
	l := u.link
	if d := l.pool.lists.checks.pause(); d > 0 { // another connection has read its list since
		u.due.set(d)
		return nil
	}
	waiting, before := l.asking.take(), l.pool.catalogOf(l.key)
	l.reread(ctx, u.conn)
	if l.asksAgain(ctx) {
		return errOtherEra
	}
	u.read = time.Now()
	// callers that ask for missing items cause no more than one reading a second
	if waiting == nil || !before.equal(l.pool.catalogOf(l.key)) {
		u.often.Took(u.read)
	}
	waiting.done()
	u.due.set(l.refreshIn())
	return nil
}

// examine examines a conn with unanswered calls, unless that is in progress, or another call was answered since.
func (u *upkeep) examine(ctx context.Context) {
	silence := &u.link.silence
	if !silence.doubted.Load() || silence.calm() || u.examined != nil && !pace.IsClosed(u.examined) {
		return
	}
	over := make(chan struct{})
	u.examined = over
	u.examining.Go(func() { defer close(over); u.link.examine(ctx, u.conn) })
}

// fail reports that a call found c broken, and why. Later calls wait for the next conn.
func (l *link) fail(c client.Conn, err error) {
	l.update(func(s *linkState) bool {
		if s.conn != c {
			return false
		}
		s.state, s.conn, s.err = StateStarting, nil, err
		s.broken <- err
		return true
	})
	if errors.Is(err, transport.ErrNotSent) && !errors.Is(err, transport.ErrSessionGone) {
		l.doubtReading()
	}
}

// close ends the link and waits until all its resources are released.
func (l *link) close() {
	l.stop(transport.ErrClosed)
	<-l.done
}
