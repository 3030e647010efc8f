package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"junction/upstream/client"
	"junction/upstream/pace"
	"junction/upstream/transport"
)

// This file notices a server that is connected and answers nothing. After a call has timed out, its
// link pings the server. If the server does not answer the ping either, the link is degraded: it
// rejects calls at once, as a circuit breaker does, until the server answers a ping, or a call that
// was in flight. A client's call is never used to find out whether the server answers.
//
// A call that its client has cancelled counts, too, if the server was silent for giveUpAfter. The ping is sent
// at once, and is given up when it would be if the call had timed out: a server that handles one request at a
// time may still work on the call.
//
// A server that answers a ping is alive, however slow one of its tools is. So the timeouts of one
// user's calls close nothing for others.
//
// A link also pings a server that accepts no connection any more, and one for which several calls in a row have
// failed without an answer. If the ping cannot be sent, the conn is broken. If it fails in another way, the link
// is degraded, and calls are still sent, because they fail at once and may succeed. Connections to one URL end in
// the same server: if one of them finds it dead, the link that reads the catalog pings it.

const (
	// pingPatience is how long the first ping may take after calls of one caller have timed out.
	pingPatience = 10 * time.Second
	// pingHurry is the same after calls of two callers have timed out in a row.
	pingHurry = 2 * time.Second
	// pingAgain is about how long the second ping may take. Each later one may take twice as long as
	// the one before, up to pace.Longest. The next ping is sent when the one before is given up.
	pingAgain = 5 * time.Second
	// pingCalm is how long after an answered ping a timeout causes no further ping.
	pingCalm = time.Second
	// giveUpAfter is how long the server is silent before a call that its client cancels is a reason for a ping.
	giveUpAfter = 5 * time.Second
	// failuresInRow is how many calls in a row fail without an answer before the server is pinged.
	failuresInRow = 3
)

// silence is what a link knows about calls over its conn that got no answer.
type silence struct {
	doubted atomic.Bool   // the server may not answer: its next answer is news
	wake    chan struct{} // 1-buffered; receives when a ping is due
	news    chan struct{} // 1-buffered; receives when a call was answered, and when others or due changes

	mu      sync.Mutex
	silent  bool      // something got no answer in time since the last answer
	fails   int       // calls that failed since the last answer, and did not time out
	calls   int       // that timed out since the last answer, or that their clients cancelled
	due     time.Time // when the first of them timed out, or would have; zero for none
	account string    // of the first of them
	others  bool      // another account is among them
	asked   time.Time // when the first ping was sent that has no answer; zero for none
	pinged  time.Time // when a ping was answered last
}

func newSilence() silence {
	return silence{wake: make(chan struct{}, 1), news: make(chan struct{}, 1)}
}

// abandoned notes that a call of the account was sent, and has ended without an answer: it timed out, or its client
// has cancelled it.
func (s *silence) abandoned(account string, clock *client.Clock) {
	left := max(0, clock.Left())
	if left > 0 && clock.Silence() < giveUpAfter {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls++; s.calls == 1 {
		s.account = account
	} else if account != s.account && !s.others {
		s.others = true
		pace.Wake(s.news)
	}
	s.lacks(time.Now().Add(left))
}

// suspect causes a ping, because something timed out.
func (s *silence) suspect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lacks(time.Now())
}

// lacks causes a ping, because there is no answer to something that was due at a time; mu is held.
func (s *silence) lacks(due time.Time) {
	if s.due.IsZero() || due.Before(s.due) {
		s.due = due
		pace.Wake(s.news)
	}
	s.silent = true
	s.doubt()
}

// doubt causes a ping, because something failed.
func (s *silence) doubt() {
	s.doubted.Store(true)
	pace.Wake(s.wake)
}

// failed notes that a call failed, and that the server has not answered it.
func (s *silence) failed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubted.Store(true) // so that an answer ends the row
	if s.fails++; s.fails >= failuresInRow {
		pace.Wake(s.wake)
	}
}

// answered notes that the server has answered a call. While nothing is doubted, it costs one atomic
// read.
func (s *silence) answered() {
	if s.doubted.Load() {
		s.end()
		pace.Wake(s.news)
	}
}

// calm reports whether a ping was answered just now.
func (s *silence) calm() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.pinged) < pingCalm
}

// end forgets the calls that got no answer.
func (s *silence) end() {
	s.doubted.Store(false)
	s.mu.Lock()
	s.silent, s.fails, s.calls, s.others, s.due, s.asked = false, 0, 0, false, time.Time{}, time.Time{}
	s.mu.Unlock()
}

// inRow returns how many calls got no answer in time since the last answer.
func (s *silence) inRow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// patience returns until when the first ping, which was sent at began, may take.
func (s *silence) patience(began time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.due.After(began) {
		began = s.due
	}
	if s.others {
		return began.Add(pingHurry)
	}
	return began.Add(pingPatience)
}

// failures returns how many calls failed since the last answer. It returns false if anything timed out, too.
func (s *silence) failures() (calls int, only bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fails, !s.silent
}

// frozenError is the reason why a link is degraded whose server does not answer pings.
type frozenError struct {
	calls int       // that got no answer in a row, or that failed; 0 if only pings were not answered
	since time.Time // of the first ping that was not answered
	next  time.Time // of the next ping
	// failed is why the ping has failed, if nothing has timed out: calls are sent. Otherwise it is nil, and calls
	// are rejected.
	failed error
}

func (e *frozenError) Unwrap() error { return e.failed }

func (e *frozenError) Error() string {
	if left := time.Until(e.next).Round(time.Second); left > 0 {
		return fmt.Sprintf("%s (the next ping is sent in %s)", e.reason(), left)
	}
	return e.reason()
}

// reason is Error without what changes every second.
func (e *frozenError) reason() string {
	calls := ""
	switch {
	case e.failed != nil && e.calls > 1:
		return fmt.Sprintf("%d calls in a row failed, and pings since %s fail: %v", e.calls,
			e.since.UTC().Format("15:04:05 UTC"), e.failed)
	case e.failed != nil:
		return fmt.Sprintf("pings since %s fail: %v", e.since.UTC().Format("15:04:05 UTC"), e.failed)
	case e.calls == 1:
		calls = "a call and "
	case e.calls > 1:
		calls = fmt.Sprintf("%d calls in a row and ", e.calls)
	}
	return fmt.Sprintf("the server does not answer: %spings since %s got no answer; calls are rejected until it "+
		"answers one", calls, e.since.UTC().Format("15:04:05 UTC"))
}

// examine pings the server of a conn until it answers, until the conn is broken, or until ctx ends.
// One ping is in flight at a time.
func (l *link) examine(ctx context.Context, c client.Conn) {
	var pause pace.Backoff
	pause.Begin(pingAgain)
	began, patience := time.Now(), time.Duration(0)
	l.silence.asks(began)
	for {
		err := l.ping(ctx, c, patience)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			l.thaw(c)
			return
		case errors.Is(err, transport.ErrNotSent) && !errors.Is(err, transport.ErrOthers):
			// the next conn finds out more
			l.fail(c, err)
			return
		}
		patience = pause.Next()
		why := &frozenError{since: began, next: time.Now().Add(patience)}
		fails, only := l.silence.failures()
		if only && !errors.Is(err, errNoPing) {
			why.calls, why.failed = fails, l.pool.shown(err)
		} else {
			why.calls = l.silence.inRow()
		}
		l.freeze(c, why)
		if why.failed != nil && !l.silence.pause(ctx, patience) && ctx.Err() == nil {
			l.thaw(c)
			return
		}
	}
}

// pause waits for d, or until the server has answered a call. It returns false if it has, and if ctx has ended.
func (s *silence) pause(ctx context.Context, d time.Duration) bool {
	until := time.Now().Add(d)
	for s.doubted.Load() {
		left := time.Until(until)
		if left <= 0 {
			return true
		}
		if !pace.Sleep(ctx, left, s.news) {
			return false
		}
	}
	return false
}

// errNoPing means that the server has not answered a ping in time.
var errNoPing = errors.New("no answer to a ping")

// ping waits for the answer to a ping, or to another request, for the time of patience; 0 means the time
// for the first ping. If the ping fails earlier, it waits for the rest of the time, unless the conn is
// broken, or calls have failed and none has timed out.
func (l *link) ping(ctx context.Context, c client.Conn, patience time.Duration) error {
	var sending sync.WaitGroup
	defer sending.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began, done := time.Now(), make(chan error, 1)
	left := func() time.Duration {
		if patience > 0 {
			return time.Until(began.Add(patience))
		}
		return time.Until(l.silence.patience(began))
	}
	sending.Go(func() { done <- c.Ping(ctx) })
	late := time.NewTimer(left())
	defer late.Stop()
	for {
		select {
		case err := <-done:
			switch {
			case !unanswered(err):
				return nil
			case errors.Is(err, transport.ErrNotSent) && !errors.Is(err, transport.ErrOthers):
				return err
			}
			if _, only := l.silence.failures(); only {
				return err
			}
		case <-l.silence.news:
			if !l.silence.doubted.Load() {
				return nil
			}
			late.Reset(left())
		case <-late.C:
			return errNoPing
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unanswered reports whether the error of a ping means that the server has not answered. An answer of
// a gateway in front of the server is none. Without a token, nothing was asked.
func unanswered(err error) bool {
	if err == nil {
		return false
	}
	if status, ok := errors.AsType[*transport.StatusError](err); ok {
		return status.Status >= 500
	}
	return client.KindOf(err) == client.KindLost || errors.Is(err, transport.ErrNotSent)
}

// freeze makes a ready link degraded, or changes the reason.
func (l *link) freeze(c client.Conn, why *frozenError) {
	begins := false
	l.update(func(s *linkState) bool {
		if s.conn != c {
			return false
		}
		begins = !s.frozen()
		s.state, s.err, s.retry = StateDegraded, why, why.next
		return true
	})
	if begins {
		l.pool.tellFreeze()
	}
	if begins && !l.readsShared { // pool.apply tells the state of the other one
		l.log.Warn("a connection to the server does not answer", "principal", l.key.user, "error", why)
		if why.failed == nil {
			l.pool.suspectAll()
		} else {
			l.doubtReading()
		}
	}
}

// thaw makes a degraded link ready.
func (l *link) thaw(c client.Conn) {
	l.silence.end()
	l.silence.mu.Lock()
	l.silence.pinged = time.Now()
	l.silence.mu.Unlock()
	thawed := l.update(func(s *linkState) bool {
		if s.conn != c || !s.frozen() {
			return false
		}
		s.another = false
		if s.state, s.err, s.retry = StateReady, nil, (time.Time{}); s.lost != nil {
			s.state, s.err = StateDegraded, s.lost
		}
		return true
	})
	if thawed && !l.readsShared {
		l.log.Info("a connection to the server answers again", "principal", l.key.user)
	}
}

// suspectAll causes a ping over the link that reads the catalog, if the other links have connections to
// the same server. If that link does not answer either, the calls of all users are rejected.
func (p *pool) suspectAll() {
	if l := p.sameServer(); l != nil {
		l.silence.suspect()
	}
}

// unsent looks at the error of a request over c that belongs to no call: if no connection could be opened, c is
// broken, or the server is pinged.
func (l *link) unsent(c client.Conn, err error) {
	switch {
	case !errors.Is(err, transport.ErrNotSent), errors.Is(err, transport.ErrSessionGone):
	case errors.Is(err, transport.ErrOthers):
		l.silence.doubt()
	default:
		l.fail(c, err)
	}
}

// sameServer returns the link that reads the catalog, if all links have connections to the same server; else nil.
func (p *pool) sameServer() *link {
	if p.connConfig.Kind().Process { // each link has a process of its own
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.links[p.reading()]
}

// doubtReading causes a ping over the link that reads the catalog: this link has found the server dead.
func (l *link) doubtReading() {
	if reading := l.pool.sameServer(); reading != nil && reading != l {
		reading.silence.doubt()
	}
}

// wakeReading lets the link that reads the catalog make its next attempt to connect: this link has connected.
func (l *link) wakeReading() {
	reading := l.pool.sameServer()
	if reading == nil || reading == l {
		return
	}
	reading.mu.Lock()
	defer reading.mu.Unlock()
	if reading.state == StateRetrying {
		pace.Wake(reading.wake)
	}
}

// nextFreeze returns a channel that is closed when another link is degraded. Calls that wait for their
// turn then end at once, if it is their link.
func (p *pool) nextFreeze() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.freeze == nil {
		p.freeze = make(chan struct{})
	}
	return p.freeze
}

func (p *pool) tellFreeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.freeze != nil {
		close(p.freeze)
		p.freeze = nil
	}
}

// frozen returns why a call cannot be made now, because the server does not answer; nil if it can.
func (u *Upstream) frozen(c *Call) error {
	if u.degraded.Load() == 0 { // nearly always the case
		return nil
	}
	keys := []linkKey{u.keyOf(c, u.prefersLegacy(c))}
	if !u.config.Kind().Process {
		keys = append(keys, u.reading())
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, key := range keys {
		if l := u.links[key]; l != nil {
			if err := l.degraded(); err != nil {
				return &Error{u.name, client.KindUnavailable, err}
			}
		}
	}
	return nil
}

// degraded returns why a degraded link rejects calls; nil for any other link.
func (l *link) degraded() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rejects() {
		return l.err
	}
	return nil
}

// frozen reports whether the link is degraded because the server does not answer.
func (s *linkState) frozen() bool {
	_, frozen := s.err.(*frozenError)
	return frozen && s.state == StateDegraded
}

// rejects reports whether a frozen link rejects calls. Those of a server that refuses connections, or pings, are sent.
func (s *linkState) rejects() bool {
	why, frozen := s.err.(*frozenError)
	return frozen && s.state == StateDegraded && why.failed == nil
}
