package http1

import (
	"bufio"
	"context"
	"slices"
	"time"
)

// This file holds the connections of a Client that no exchange uses, and gives them to the next
// one.

const (
	maxIdle    = 60 * time.Second
	provenUses = 3 // responses after which the server counts as keeping connections open
	// idle time within which such a connection is used without a check
	freshIdle = time.Millisecond
)

// waiter waits for a connection that another exchange returns.
type waiter struct {
	address string
	conn    chan *clientConn // 1-buffered
}

// take returns an idle connection that the server has not closed. If there is none, it dials until
// ctx or closing ends, and takes a connection that another exchange returns meanwhile.
func (t *Client) take(ctx, closing context.Context, address string) (*clientConn, error) {
	var w *waiter
	for w == nil {
		t.mu.Lock()
		c := t.pop(address)
		if c == nil {
			w = &waiter{address, make(chan *clientConn, 1)}
			t.waiting = append(t.waiting, w)
		}
		t.mu.Unlock()
		if c != nil && (c.used >= provenUses && time.Since(c.since) < freshIdle || c.alive()) {
			return c, nil
		} else if c != nil {
			c.Close()
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(closing, cancel)()
	type dialed struct {
		conn *clientConn
		err  error
	}
	done := make(chan dialed, 1)
	go func() {
		c, err := t.open(ctx, address)
		done <- dialed{c, err}
	}()
	select {
	case c := <-w.conn:
		cancel()
		if own := <-done; own.err == nil {
			t.put(own.conn)
		}
		return c, nil
	case own := <-done:
		t.mu.Lock()
		t.waiting = slices.DeleteFunc(t.waiting, func(o *waiter) bool { return o == w })
		t.mu.Unlock()
		select {
		case c := <-w.conn: // at the last moment
			if own.err != nil {
				return c, nil
			}
			t.put(c)
		default:
		}
		return own.conn, own.err
	}
}

// pop takes the most recently used idle connection; t.mu is held.
func (t *Client) pop(address string) *clientConn {
	for i := len(t.idle) - 1; i >= 0; i-- {
		if c := t.idle[i]; c.address == address {
			t.idle = append(t.idle[:i], t.idle[i+1:]...)
			return c
		}
	}
	return nil
}

func (t *Client) open(ctx context.Context, address string) (*clientConn, error) {
	n, err := t.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
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
	t.idle = append(t.idle, c)
	if t.reap == nil {
		t.reap = time.AfterFunc(maxIdle, t.closeOld)
	}
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
