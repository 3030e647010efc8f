package http1

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file holds the connections of a Client that no exchange uses, and gives them to the next
// one.

const (
	maxIdle    = 60 * time.Second
	provenUses = 3 // responses after which the server counts as keeping connections open
	// idle time within which such a connection is used without a check: a client that waits for each
	// answer needs longer for its next request
	freshIdle = 50 * time.Microsecond
	// a connection is used until so long before the server closes it by its own word (Keep-Alive)
	beforeEnd = time.Second
)

// KeepAlive returns how long a connection may be idle before it is not used again, by the value of
// the header field Keep-Alive of a response (RFC 2068, section 19.7.1). It returns 0 if that has no
// timeout.
func KeepAlive(value string) time.Duration {
	for parameter := range strings.SplitSeq(value, ",") {
		name, text, _ := strings.Cut(parameter, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "timeout") {
			continue
		}
		if s, err := strconv.ParseUint(strings.Trim(text, " \t\""), 10, 31); err == nil {
			end := time.Duration(s) * time.Second
			return max(end-beforeEnd, end/2, 1)
		}
	}
	return 0
}

// limit is how long an unused connection is kept if the server has not told when it closes them.
func (t *Client) limit() time.Duration { return cmp.Or(t.MaxIdle, maxIdle) }

// usable reports whether an idle connection can take a request: the server has not closed it, and is not
// about to.
func (c *clientConn) usable() bool {
	idle := time.Since(c.since)
	return idle < c.limit && (c.used >= provenUses && idle < freshIdle || c.alive(idle))
}

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
		if c != nil && c.usable() {
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
	return &clientConn{Conn: n, address: address, r: bufio.NewReaderSize(n, responseBuffer), alive: livenessOf(n),
		limit: t.limit()}, nil
}

// put returns a connection that works: to a waiter, or to the idle ones.
func (t *Client) put(c *clientConn) {
	c.since = time.Now()
	c.used++
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, w := range t.waiting {
		if w.address == c.address && !c.usable() {
			c.Close()
			return
		} else if w.address == c.address {
			t.waiting = slices.Delete(t.waiting, i, i+1)
			w.conn <- c
			return
		}
	}
	t.idle = append(t.idle, c)
	if t.reap == nil {
		t.reap = time.AfterFunc(t.limit(), t.closeOld)
	}
}

// closeOld closes the connections that were idle for too long.
func (t *Client) closeOld() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idle = slices.DeleteFunc(t.idle, func(c *clientConn) bool {
		old := time.Since(c.since) >= c.limit
		if old {
			c.Close()
		}
		return old
	})
	if len(t.idle) == 0 {
		t.reap = nil
		return
	}
	t.reap.Reset(max(time.Second, t.limit()-time.Since(t.idle[0].since)))
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

const (
	// readWait is how long livenessByReading waits for the end of a connection.
	readWait = time.Millisecond
	// readIdle is the idle time from which it looks for the end at all: before, the wait costs more.
	readIdle = 100 * time.Millisecond
)

// livenessByReading returns a function that reports whether an idle connection is still open, where the
// system has no check without reading.
func livenessByReading(c net.Conn) func(time.Duration) bool {
	return func(idle time.Duration) bool {
		if idle < readIdle {
			return true
		}
		var one [1]byte
		c.SetReadDeadline(time.Now().Add(readWait))
		n, err := c.Read(one[:])
		c.SetReadDeadline(time.Time{})
		return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
	}
}
