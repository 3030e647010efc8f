package client

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"junction/upstream/pace"
)

// timeoutError is the cause of a call's context when its time is over.
type timeoutError struct {
	after  time.Duration
	silent bool // or the hard cap
}

func (e *timeoutError) Error() string {
	if e.silent {
		return fmt.Sprintf("no answer and no progress for %v (timeout)", e.after)
	}
	return fmt.Sprintf("no answer within %v (max_timeout)", e.after)
}

// Clock ends a call after too long a silence of the server, and after max in any case. During a
// silence its timer fires twice: in the middle, when the conn may ping the server, and at the end.
type Clock struct {
	expire  context.CancelCauseFunc
	owned   bool // expire is only called by the clock
	timer   *time.Timer
	timeout time.Duration
	max     time.Duration
	strict  bool // only progress ends a silence
	began   time.Time
	heard   atomic.Int64 // time of the last bytes of the call's own response, in ns after began; 0 is never
	Slot    pace.Slot    // of the call

	mu           sync.Mutex
	pinger       *legacyConn // is pinged during a silence; nil if the server cannot be pinged
	due          time.Time   // when the silence has lasted too long
	end          time.Time
	waiting      int       // open server requests, which wait for a user
	waitingSince time.Time // waiting is not 0
	ended        bool      // the call has ended: the timer stays stopped
}

// NewClock returns a context that ends when the time of the call is over, with a *timeoutError as
// cause. If end is not nil, it must end ctx, and the context is ctx. The caller must call Stop.
func NewClock(ctx context.Context, end context.CancelCauseFunc, timeout, max time.Duration) (context.Context, *Clock) {
	timeout = min(timeout, max)
	now := time.Now()
	c := &Clock{expire: end, timeout: timeout, max: max, began: now, due: now.Add(timeout), end: now.Add(max)}
	if end == nil {
		ctx, c.expire = context.WithCancelCause(ctx)
		c.owned = true
	}
	c.mu.Lock() // ring reads timer
	c.timer = time.AfterFunc(timeout/2, c.ring)
	c.mu.Unlock()
	return ctx, c
}

// OnlyProgress makes progress of the call the only end of a silence: pings, log messages and bytes of
// the response do not count. It must be called before the call is sent.
func (c *Clock) OnlyProgress() {
	c.mu.Lock()
	c.strict = true
	c.mu.Unlock()
}

// onlyProgress reports whether OnlyProgress was called. c may be nil.
func (c *Clock) onlyProgress() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.strict
}

// ring is called by the timer.
func (c *Clock) ring() {
	c.mu.Lock()
	defer c.mu.Unlock()           // after expire, so that Stop waits for it
	if c.waiting > 0 || c.ended { // a server request has just arrived, or the answer
		return
	}
	now := time.Now()
	c.useHeard()
	switch middle := c.due.Add(-c.timeout / 2); {
	case !now.Before(c.end):
		c.ended = true
		c.expire(&timeoutError{after: c.max})
	case !now.Before(c.due):
		c.ended = true
		c.expire(&timeoutError{after: c.timeout, silent: true})
	case now.Before(middle): // the server has sent something meanwhile
		c.timer.Reset(min(middle.Sub(now), c.end.Sub(now)))
	default:
		c.timer.Reset(min(c.due.Sub(now), c.end.Sub(now)))
		if c.pinger != nil {
			c.pinger.startPing(c.due)
		}
	}
}

// useHeard lets the bytes that have arrived end the silence, unless only progress does; mu is held.
func (c *Clock) useHeard() {
	if heard := c.heard.Load(); heard > 0 && !c.strict {
		if due := c.began.Add(time.Duration(heard) + c.timeout); due.After(c.due) {
			c.due = due
		}
	}
}

// setPinger sets the conn of the call, which can ping the server.
func (c *Clock) setPinger(l *legacyConn) {
	c.mu.Lock()
	if !c.strict {
		c.pinger = l
	}
	c.mu.Unlock()
}

// Late implements transport.Observer for the slot of an abandoned call.
func (c *Clock) Late() { c.Slot.Late() }

// Settled implements transport.Observer for the slot of an abandoned call.
func (c *Clock) Settled() bool { return c.Slot.Over() }

// Heard notes that bytes of the response have arrived. It is cheap: the timer reads the note when
// it fires.
func (c *Clock) Heard() { c.heard.Store(int64(time.Since(c.began))) }

// Touch notes a sign of life of the server, and begins a new silence. After OnlyProgress, it does
// nothing.
func (c *Clock) Touch() { c.touch(false) }

// Advance notes progress of the call itself, and begins a new silence.
func (c *Clock) Advance() { c.touch(true) }

func (c *Clock) touch(progress bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == 0 && !c.ended && (progress || !c.strict) {
		c.restart()
	}
}

// restart begins a new silence; mu is held.
func (c *Clock) restart() {
	now := time.Now()
	c.due = now.Add(c.timeout)
	c.timer.Reset(min(c.timeout/2, c.end.Sub(now)))
}

// Left returns how much time the call has.
func (c *Clock) Left() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting > 0 {
		return c.timeout
	}
	due := c.due
	if c.end.Before(due) {
		due = c.end
	}
	return time.Until(due)
}

// Silence returns how long the server has been silent; 0 while a server request waits for a user.
func (c *Clock) Silence() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting > 0 {
		return 0
	}
	c.useHeard()
	return c.timeout - time.Until(c.due)
}

// Stop ends the clock. It must be called when the call has ended.
func (c *Clock) Stop() {
	c.mu.Lock()
	c.ended = true
	c.timer.Stop()
	c.mu.Unlock()
	if c.owned {
		c.expire(nil)
	}
}

// hold stops the clock while a server request waits for a user. The caller must call release.
// Several server requests may hold the clock at once.
func (c *Clock) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting++; c.waiting == 1 {
		c.timer.Stop()
		c.waitingSince = time.Now()
	}
}

func (c *Clock) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting--; c.waiting == 0 && !c.ended {
		c.end = c.end.Add(time.Since(c.waitingSince))
		c.restart()
	}
}
