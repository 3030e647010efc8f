package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/client"
	"junction/upstream/pace"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// This file lets calls and subscriptions use a link: they hold the link, and wait for its conn.

// current returns the conn of the link; nil if the link is not ready.
func (l *link) current() client.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn
}

// takenBy returns the conn of the link, and a channel that is closed when the call may have it. The channel
// is nil if the call may.
func (l *link) takenBy(c *Call, alone bool) (client.Conn, <-chan struct{}) {
	cn := l.current()
	if cn == nil {
		return nil, nil
	}
	return cn, cn.Taken(&c.Call, alone)
}

// hold keeps the link in use until release, even before it is ready. Otherwise, calls that need
// more links than max_links would evict each other's links forever. It returns how many attempts to
// connect have failed until then, for acquire.
func (l *link) hold() (failed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	return l.attempts
}

// acquire waits for a ready conn; the caller holds the link, and failed is what hold returned. If an
// attempt to connect fails since then, acquire returns its error and releases the link. peer gets a
// message if this takes long; it may be nil.
func (l *link) acquire(ctx context.Context, failed int, peer client.Peer) (client.Conn, error) {
	c, err := l.await(ctx, failed, peer)
	if err != nil {
		l.release()
	}
	return c, err
}

func (l *link) await(ctx context.Context, failed int, peer client.Peer) (client.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var late, over <-chan time.Time // set with the first wait
	for {
		switch {
		case l.rejects():
			return nil, l.err
		case l.state == StateReady || l.state == StateDegraded:
			return l.conn, nil
		case l.state == StateClosed && errors.Is(l.err, client.ErrNoLegacySession):
			return nil, l.err
		case l.state == StateClosed:
			return nil, transport.ErrClosed
		case l.attempts > failed:
			return nil, l.err
		case l.state == StateBlocked && l.pool.connConfig.Blocked != "": // there is no further attempt
			return nil, l.err
		case l.refused() != nil:
			return nil, l.refused()
		case l.state == StateWaiting && l.pool.lent.Load() == nil: // an attempt would end alike
			return nil, l.err
		}
		if l.state != StateStarting {
			pace.Wake(l.wake)
		}
		if peer != nil && late == nil {
			late = time.After(tellStart)
		}
		if l.known() != nil && over == nil {
			over = time.After(deadPatience)
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-late:
			peer.Notify(string(mcp.MethodNotificationMessage), l.waitMessage())
		case <-over:
			l.mu.Lock()
			if why := l.known(); why != nil {
				return nil, fmt.Errorf("%w; the next attempt is in progress", *why)
			}
			over = nil
			l.mu.Unlock()
		case <-ctx.Done():
		}
		l.mu.Lock()
		if ctx.Err() != nil {
			if l.err != nil {
				return nil, fmt.Errorf("%s; before that: %w", l.connecting(), l.err)
			}
			return nil, fmt.Errorf("%s: %w", l.connecting(), context.Cause(ctx))
		}
	}
}

// tellStart is how long a call waits for a connection before its client gets a message about the wait.
const tellStart = time.Second

// deadPatience is how long a call waits for the next attempt to connect to a server that is known to be dead:
// the last attempt has failed. Such an attempt may take long, and most likely fails, too. A server that
// starts for the first time, or again after it has worked, is waited for.
const deadPatience = 2 * time.Second

// known returns why the server is known to be dead: by this link, or by the one that reads the catalog. It is
// nil if the server is not. l.mu is held.
func (l *link) known() *error {
	if why := l.deadReason(); why != nil || l.readsShared {
		return why
	}
	return l.pool.dead.Load()
}

// deadReason returns why the link is dead; nil if it is not. l.mu is held.
func (s *linkState) deadReason() *error {
	if !s.dead || s.state == StateClosed {
		return nil
	}
	err := s.err
	return &err
}

// waitMessage returns the params of a log message about a call that waits for the link.
func (l *link) waitMessage() []byte {
	text := "the call waits: Junction " + l.connects() + " " + l.pool.name
	if l.key.holder != "" {
		text += " for this user alone; the next call does not wait"
	}
	return append(raw.AppendQuote([]byte(`{"level":"info","logger":"junction","data":`), text), '}')
}

// connects returns what the link does while it connects.
func (l *link) connects() string {
	return l.pool.connConfig.Kind().Connects
}

// connecting returns the reason of a call that got no connection in time.
func (l *link) connecting() string {
	if l.key.holder == "" {
		return "still connecting"
	}
	return l.pool.connConfig.Kind().ConnectsForUser
}

// holdForSubscription holds the link for subscriptions, until releaseSubscription.
func (l *link) holdForSubscription() {
	l.mu.Lock()
	l.subscribers++
	l.mu.Unlock()
	l.hold()
}

func (l *link) heldForSubscription() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.subscribers > 0
}

func (l *link) releaseSubscription() {
	l.mu.Lock()
	l.subscribers--
	l.mu.Unlock()
	l.release()
}

func (l *link) release() {
	l.mu.Lock()
	l.calls--
	l.used = time.Now()
	idle, orphaned := l.calls == 0, l.orphaned
	l.mu.Unlock()
	if idle && orphaned {
		l.end()
	}
	if idle {
		l.pool.linkIdle()
	}
}
