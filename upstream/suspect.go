package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/pace"
	"junction/upstream/transport"
)

// This file decides whether a server of the legacy era has lost a session over HTTP, and whether a server
// does not accept a sign-in any more. Package client
// has the table of suspicious answers. A suspicious answer causes one control question over the same
// session: the first page of a list that the session has answered before. If the server answers, the
// session lives. If that fails alike, the link is degraded, and another session is opened beside the
// first one and asked the same. If the other session answers, it takes the place of the first one,
// whose state at the server is lost. If not, the first one stays, so that calls that work go on. A
// server without sessions gets the control questions alone.
//
// The answer 404 to a POST ends a session without a question: see package transport.
//
// 401 to a call causes a control question, too, in both eras, if requests carry a token that can end: one
// tool may answer so, and its callers must not end the sign-in of all. Without a session, the sign-in has
// ended if the server refuses the token of the control question, and then a renewed one. In a session, the
// handshake of the second session decides.

const (
	// controlPause is the least time between two control questions of a link.
	controlPause = 5 * time.Second
	// controlTime is how long the server has to answer one.
	controlTime = 10 * time.Second
)

// suspicion is the state of the control questions of a link.
type suspicion struct {
	wake chan struct{} // 1-buffered; receives when the session is doubted

	mu    sync.Mutex
	conn  client.Conn // whose session is watched; nil for none
	asked time.Time   // when the latest control question began
	open  *inquiry    // not over yet; nil for none
	over  *inquiry    // the latest one after which another session took the place; nil for none
	next  *tenure     // of that session, until the link uses it

	// the attempts to open another session; only the goroutine of watch uses them
	pause    pace.Backoff
	retry    time.Time // no attempt before
	other    error     // why the latest one failed; nil for none, or if it succeeded
	replaced time.Time // when another session took the place of one last
}

// An inquiry is a control question and what follows from it. done is closed at its end; then the
// rest does not change any more.
type inquiry struct {
	conn     client.Conn
	done     chan struct{}
	refusal  error // the answer to the control question, if it is suspicious, too
	replaced bool  // another session has taken the place of the session
	signIn   error // why there is no other session, if a person has to sign in first
	renewed  bool  // the question was answered with another token than the one before
	noToken  error // why the question was not answered, if no other token could be had
}

// raise doubts the session of a conn; nil is that which is watched. It returns the inquiry to wait
// for; nil if none is due now, and so the session counts as alive.
func (s *suspicion) raise(c client.Conn) *inquiry {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c != nil && s.over != nil && s.over.conn == c:
		return s.over
	case s.conn == nil || c != nil && s.conn != c:
		return nil
	case s.open != nil:
		return s.open
	}
	pace.Wake(s.wake)
	if s.rest() > 0 { // it is asked when the pause is over, and no call waits for that
		return nil
	}
	s.open = &inquiry{conn: s.conn, done: make(chan struct{})}
	return s.open
}

// rest returns the time until the next control question may be asked; mu is held.
func (s *suspicion) rest() time.Duration {
	if s.asked.IsZero() {
		return 0
	}
	return time.Until(s.asked.Add(controlPause))
}

// failed notes that a list which the session has answered before has failed with err when the
// catalog was read: this was the control question.
func (s *suspicion) failed(c client.Conn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != c || s.open != nil {
		return
	}
	s.open, s.asked = &inquiry{conn: c, done: make(chan struct{}), refusal: err}, time.Now()
	pace.Wake(s.wake)
}

// watched sets the conn whose session is watched; nil for none. An inquiry about another one is over.
func (s *suspicion) watched(c client.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == c {
		return
	}
	s.conn = c
	if s.open != nil {
		close(s.open.done)
		s.open = nil
	}
}

// begin returns the inquiry that begins now. It returns nil, and the time to wait, if it is too early.
func (s *suspicion) begin() (*inquiry, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open != nil && s.open.refusal != nil {
		return s.open, 0
	}
	if rest := s.rest(); rest > 0 {
		return nil, rest
	}
	if s.open == nil {
		s.open = &inquiry{conn: s.conn, done: make(chan struct{})}
	}
	s.asked = time.Now()
	return s.open, 0
}

// end ends an inquiry.
func (s *suspicion) end(q *inquiry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = nil
	if q.replaced {
		s.over = q
	}
	close(q.done)
}

// successor returns the tenure that follows; nil for none.
func (s *suspicion) successor() *tenure {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.next
	s.next = nil
	return t
}

// losesSessions reports whether a server can lose the session of a conn of this link unnoticed.
func (l *link) losesSessions(c client.Conn) bool {
	return l.pool.connConfig.Kind().HTTP && c.Info().Era == client.EraLegacy
}

// watches reports whether calls over a conn of this link may cause control questions: about the session, or
// about the sign-in.
func (l *link) watches(c client.Conn) bool {
	return l.losesSessions(c) || l.pool.connConfig.Kind().HTTP && l.pool.credentialed()
}

// doubts reports whether the error of a call is a reason for a control question.
func (l *link) doubts(c client.Conn, err error) bool {
	if l.losesSessions(c) {
		return client.Suspicious(err)
	}
	return client.RejectsToken(err)
}

// watch makes the inquiries about the session of a conn, until ctx ends, or until another session has
// taken its place: then it returns true.
func (l *link) watch(ctx context.Context, c client.Conn) (replaced bool) {
	s := &l.suspicion
	s.watched(c)
	defer s.watched(nil)
	const never = 365 * 24 * time.Hour
	due := newDeadline(never)
	defer due.timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-s.wake:
			due.within(0)
		case <-due.timer.C:
			q, rest := s.begin()
			if q == nil {
				due.set(rest)
				continue
			}
			due.set(never)
			l.inquire(ctx, q)
			s.end(q)
			if q.replaced {
				return true
			}
			if l.distrusts() { // the next control question is due, whether or not a call fails
				due.set(s.untilNext())
			}
		}
	}
}

// untilNext returns the time until the next question that no call causes.
func (s *suspicion) untilNext() time.Duration { return max(controlPause, time.Until(s.retry)) }

// inquire asks the control question, and opens another session if the question fails.
func (l *link) inquire(ctx context.Context, q *inquiry) {
	s, list, sessions := &l.suspicion, q.conn.ControlList(), l.losesSessions(q.conn)
	if list == "" && sessions {
		return
	}
	if q.refusal == nil {
		before := l.pool.given.Load()
		err := askControl(ctx, q.conn, list)
		if now := l.pool.given.Load(); err == nil && before != nil && now != nil {
			q.renewed = *now != *before
		}
		if errors.As(err, new(*transport.TokenError)) {
			q.noToken = err
		}
		_, answered := errors.AsType[*jsonrpc.Error](err)
		switch {
		case signIn(err):
			q.signIn = err
			l.fail(q.conn, err)
			return
		case !sessions: // the sign-in is the only question
			return
		case client.FailsControl(err):
			q.refusal = err
		case err == nil || answered:
			l.trust(q.conn)
			return
		default: // 404 has ended the session; anything else proves nothing
			switch {
			case ctx.Err() != nil:
			case errors.Is(err, context.DeadlineExceeded):
				l.silence.suspect()
			default:
				l.unsent(q.conn, err)
			}
			return
		}
	}
	if !l.distrusts() {
		s.other = nil
		if time.Since(s.replaced) > 2*pace.Longest { // otherwise the server loses one session after the other
			s.pause.Reset()
			s.retry = time.Time{}
		}
	}
	l.distrust(q.conn, &sessionError{list, q.refusal, s.other})
	if time.Now().Before(s.retry) {
		return
	}
	if !q.conn.Info().Session { // another session would be none, too
		s.retry = time.Now().Add(s.pause.Next())
		return
	}
	next, err := l.openBeside(ctx, list)
	switch {
	case ctx.Err() != nil && err != nil:
	case err == nil:
		if q.replaced = l.replace(q, next); q.replaced {
			s.replaced, s.retry = time.Now(), time.Now().Add(s.pause.Next())
		}
	case signIn(err):
		q.signIn = err
		l.fail(q.conn, err)
	default:
		if _, err = l.pool.lacking(err); stateAfter(err) != StateRetrying {
			s.pause.Begin(pace.Longest)
		}
		s.retry, s.other = time.Now().Add(s.pause.Next()), err
		l.distrust(q.conn, &sessionError{list, q.refusal, err})
	}
}

// askControl asks a control question over a conn.
func askControl(ctx context.Context, c client.Conn, list string) error {
	ctx, cancel := context.WithTimeout(ctx, controlTime)
	defer cancel()
	if list == "" { // a server of the modern era without lists
		return c.Ping(ctx)
	}
	_, err := c.List(ctx, list, nil, nil)
	return err
}

// openBeside opens another session. It returns a conn that has answered the list.
func (l *link) openBeside(ctx context.Context, list string) (client.Conn, error) {
	ctx, cancel := l.limitOpening(ctx)
	defer cancel()
	c, err := l.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := askControl(ctx, c, list); err != nil {
		c.Close()
		return nil, fmt.Errorf("%s: %w", list, err)
	}
	return c, nil
}

// replace lets another session take the place of the session of an inquiry. It returns false if the link
// does not use that conn any more.
func (l *link) replace(q *inquiry, next client.Conn) bool {
	t := newTenure(next)
	t.other = true
	if l.listens() {
		next.Watch()
	}
	l.silence.end()
	l.suspicion.mu.Lock()
	l.suspicion.next = t // before a call can find out that next is broken
	l.suspicion.mu.Unlock()
	done := l.update(func(s *linkState) bool {
		if s.conn != q.conn {
			return false
		}
		s.state, s.conn, s.broken, s.err, s.retry = StateReady, next, t.broken, nil, time.Time{}
		s.lost, s.another = nil, true
		return true
	})
	if !done {
		l.suspicion.successor()
		t.end()
		return false
	}
	attrs := []any{"error", l.pool.shown(q.refusal)}
	if l.key.user != "" {
		attrs = append(attrs, "principal", l.key.user)
	}
	l.log.Warn("the server has lost a session; another one takes its place, and what the server kept in the first "+
		"one is lost", attrs...)
	return true
}

// sessionError is why a link is degraded whose session the server seems to have lost.
type sessionError struct {
	list    string
	refusal error // the answer to the control question
	other   error // why another session does not work either; nil before the first attempt
}

func (e *sessionError) Error() string {
	text := fmt.Sprintf("the server rejects %s, which it has answered before: %v", e.list, e.refusal)
	if e.other != nil {
		text += fmt.Sprintf("; another session does not work either: %v", e.other)
	}
	return text
}

func (e *sessionError) Unwrap() []error {
	if e.other == nil {
		return []error{e.refusal}
	}
	return []error{e.refusal, e.other}
}

// distrust makes a link degraded whose control question failed. Its calls are still sent, because a
// server whose lists fail may carry them out.
func (l *link) distrust(c client.Conn, why *sessionError) {
	shown, begins := l.pool.shown(why), false
	l.update(func(s *linkState) bool {
		if s.conn != c {
			return false
		}
		s.lost = shown
		if s.frozen() {
			return false
		}
		begins = s.state == StateReady
		s.state, s.err, s.retry = StateDegraded, shown, time.Now().Add(l.suspicion.untilNext())
		return true
	})
	if begins && !l.readsShared { // pool.apply tells the state of the other one
		l.log.Warn("a session of the server does not work", "principal", l.key.user, "error", shown)
	}
}

// distrusts reports whether the last control question failed.
func (l *link) distrusts() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost != nil
}

// trust makes a link ready whose control question was answered, unless it is degraded for another
// reason.
func (l *link) trust(c client.Conn) {
	trusted := l.update(func(s *linkState) bool {
		if s.conn != c || s.lost == nil {
			return false
		}
		if s.lost, s.another = nil, false; s.frozen() {
			return false
		}
		s.state, s.err, s.retry = StateReady, nil, time.Time{}
		return true
	})
	if trusted && !l.readsShared {
		l.log.Info("a session of the server works again", "principal", l.key.user)
	}
}

// wasReread notes the outcome of a reading of the catalog over c, which is a control question, too.
func (l *link) wasReread(c client.Conn, err error) {
	if !l.losesSessions(c) {
		return
	}
	list, ok := errors.AsType[*listError](err)
	switch {
	case err == nil && l.pool.catalogOf(l.key).lacks(c.ControlList()): // it costs no other list: the question decides
		l.suspicion.raise(c)
	case err == nil:
		l.trust(c)
	case !client.FailsControl(err):
	case ok && list.method == c.ControlList():
		l.suspicion.failed(c, list.err)
	default:
		l.suspicion.raise(c)
	}
}

// suspect returns the error of a call over c. If the error is suspicious, suspect waits for the end of
// the inquiry. If another session has taken the place, the call counts as not carried out only if the
// server has answered 400 with the same text to the list.
func (l *link) suspect(ctx context.Context, c client.Conn, err error) error {
	if ctx.Err() != nil || !l.doubts(c, err) {
		return err
	}
	q := l.suspicion.raise(c)
	if q == nil {
		return l.refusedCall(err)
	}
	select {
	case <-q.done:
	case <-ctx.Done():
		return err
	}
	status, answered := errors.AsType[*transport.StatusError](err)
	refusal, alike := errors.AsType[*transport.StatusError](q.refusal)
	_, begun := errors.AsType[*client.BegunError](err)
	switch {
	case q.signIn != nil:
		return q.signIn
	case !q.replaced && client.RejectsToken(err) && q.noToken != nil:
		return q.noToken
	case !q.replaced && client.RejectsToken(err) && q.renewed && !begun:
		return &oldTokenError{l.refusedCall(err)}
	case !q.replaced:
		return l.refusedCall(err)
	case answered && alike && !begun && status.Status == http.StatusBadRequest && status.Same(refusal):
		return transport.NotSent(fmt.Errorf("%w: %w", transport.ErrSessionGone, err))
	}
	if rpcErr, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return rpcErr.WithMessage(rpcErr.Message + " (" + stateLost + ")")
	}
	return fmt.Errorf("%w; %s", err, stateLost)
}

// oldTokenError means that the token of a call was refused, and the control question was answered with another
// one. So the call is sent again: a server that answers 401 has carried out nothing.
type oldTokenError struct{ error }

func (e *oldTokenError) Unwrap() error { return e.error }

// refusedCall returns the error of a call, with advice if the server has refused its token.
func (l *link) refusedCall(err error) error {
	row := l.pool.connConfig.Auth.Mode.Row()
	if !client.RejectsToken(err) || row.Advice.Call == "" {
		return err
	}
	return fmt.Errorf("%w; %s", err, row.About(row.Advice.Call, l.pool.name))
}

// stateLost is what the error of a call says that another session did not repeat.
const stateLost = "the server had lost the session; Junction has opened another one, without what the server kept " +
	"in the first one, and has not sent the call again"
