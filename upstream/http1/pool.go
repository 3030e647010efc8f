package http1

import (
	"bufio"
	"context"
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

// take returns an idle connection that the server has not closed, or dials a new one until ctx or
// closing ends.
func (t *Client) take(ctx, closing context.Context, address string) (*clientConn, error) {
	for {
		c := t.pop(address)
		if c == nil {
			return t.open(ctx, closing, address)
		}
		if c.used >= provenUses && time.Since(c.since) < freshIdle || c.alive() {
			return c, nil
		}
		c.Close()
	}
}

// pop takes the most recently used idle connection.
func (t *Client) pop(address string) *clientConn {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := len(t.idle) - 1; i >= 0; i-- {
		if c := t.idle[i]; c.address == address {
			t.idle = append(t.idle[:i], t.idle[i+1:]...)
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
	return &clientConn{Conn: n, address: address, r: bufio.NewReaderSize(n, responseBuffer), alive: livenessOf(n)}, nil
}

// put returns a connection that works to the idle ones.
func (t *Client) put(c *clientConn) {
	c.since = time.Now()
	c.used++
	t.mu.Lock()
	defer t.mu.Unlock()
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
