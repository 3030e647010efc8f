package http1

import (
	"bufio"
	"context"
	"errors"
	"slices"
	"time"
)

// This file holds the connections of a Client that no exchange uses, and gives them to the next
// one.

const (
	maxIdle = 60 * time.Second
	// how long a request waits for the connection of another one, after dialing has failed
	spareWait  = 5 * time.Second
	provenUses = 3 // responses after which the server counts as keeping connections open
	// idle time within which such a connection is used without a check
	freshIdle = time.Millisecond
)

// waiter waits for a connection that another exchange returns.
type waiter struct {
	address string
	conn    chan *clientConn // 1-buffered; nil if no exchange is left
}

// ErrOthers is in the chain of an error of dialing if exchanges over other connections are in
// progress: these still work.
var ErrOthers = errors.New("exchanges over other connections are in progress")

// othersError has ErrOthers in its chain, but not in its text.
type othersError struct{ error }

func (e othersError) Unwrap() []error { return []error{ErrOthers, e.error} }

// take returns an idle connection that the server has not closed, or dials a new one until ctx or
// closing ends. If dialing fails while other connections are in use, it waits for one of these: the
// name server may have failed, and not the server.
func (t *Client) take(ctx, closing context.Context, address string) (*clientConn, error) {
	for {
		c := t.pop(address)
		if c == nil {
			break
		}
		if c.used >= provenUses && time.Since(c.since) < freshIdle || c.alive() {
			return c, nil
		}
		t.drop(c)
	}
	c, err := t.open(ctx, closing, address)
	if err == nil || ctx.Err() != nil || closing.Err() != nil {
		return c, err
	}
	return t.spare(ctx, closing, address, err)
}

// spare waits for a connection that another exchange returns. failure is why there is no new one.
func (t *Client) spare(ctx, closing context.Context, address string, failure error) (*clientConn, error) {
	t.mu.Lock()
	for c := t.popLocked(address); c != nil; c = t.popLocked(address) { // returned while this request was dialing
		if c.alive() {
			t.mu.Unlock()
			return c, nil
		}
		c.Close()
		t.busy--
	}
	if t.busy == 0 {
		t.mu.Unlock()
		return nil, failure
	}
	w := &waiter{address, make(chan *clientConn, 1)}
	t.waiting = append(t.waiting, w)
	t.mu.Unlock()
	late := time.NewTimer(spareWait)
	defer late.Stop()
	select {
	case c := <-w.conn:
		if c == nil {
			return nil, failure
		}
		return c, nil
	case <-late.C:
	case <-ctx.Done():
	case <-closing.Done():
	}
	t.mu.Lock()
	t.waiting = slices.DeleteFunc(t.waiting, func(o *waiter) bool { return o == w })
	t.mu.Unlock()
	select {
	case c := <-w.conn: // at the last moment
		if c != nil {
			return c, nil
		}
		return nil, failure
	default:
		return nil, othersError{failure}
	}
}

// pop takes the most recently used idle connection.
func (t *Client) pop(address string) *clientConn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.popLocked(address)
}

// popLocked is pop for a caller that holds t.mu.
func (t *Client) popLocked(address string) *clientConn {
	for i := len(t.idle) - 1; i >= 0; i-- {
		if c := t.idle[i]; c.address == address {
			t.idle = append(t.idle[:i], t.idle[i+1:]...)
			t.busy++
			return c
		}
	}
	return nil
}

func (t *Client) open(ctx, closing context.Context, address string) (*clientConn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(closing, cancel)()
	n, err := t.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.busy++
	t.mu.Unlock()
	return &clientConn{Conn: n, address: address, r: bufio.NewReaderSize(n, responseBuffer), alive: livenessOf(n)}, nil
}

// put returns a connection that works: to a waiter, or to the idle ones.
func (t *Client) put(c *clientConn) {
	c.since = time.Now()
	c.used++
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, w := range t.waiting {
		if w.address == c.address {
			t.waiting = slices.Delete(t.waiting, i, i+1)
			w.conn <- c
			return
		}
	}
	t.leave()
	t.idle = append(t.idle, c)
	if t.reap == nil {
		t.reap = time.AfterFunc(maxIdle, t.closeOld)
	}
}

// drop closes a connection that was in use.
func (t *Client) drop(c *clientConn) {
	c.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave()
}

// leave counts a connection that is in use no more; t.mu is held. After the last one, the waiters
// give up.
func (t *Client) leave() {
	if t.busy--; t.busy > 0 {
		return
	}
	for _, w := range t.waiting {
		w.conn <- nil
	}
	t.waiting = nil
}

// closeOld closes the connections that were idle for maxIdle.
func (t *Client) closeOld() {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := 0
	for old < len(t.idle) && time.Since(t.idle[old].since) >= maxIdle {
		t.idle[old].Close()
		old++
	}
	t.idle = append(t.idle[:0], t.idle[old:]...)
	if len(t.idle) == 0 {
		t.reap = nil
		return
	}
	t.reap.Reset(max(time.Second, maxIdle-time.Since(t.idle[0].since)))
}

// CloseIdleConnections closes the connections that no request uses.
func (t *Client) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.idle {
		c.Close()
	}
	t.idle = nil
	if t.reap != nil {
		t.reap.Stop()
		t.reap = nil
	}
}
