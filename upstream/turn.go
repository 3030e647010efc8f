package upstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// This file is about a call that arrives while another call waits for the answer of a user. If a
// server request does not name its call, that call must stay alone on its connection, with those of its
// window. So the new call gets a second connection. If the server cannot be started twice, the calls take
// turns. A call of an item that is known to ask so (askers.go) is alone from its start.

// turnPatience is the longest wait of a call for its turn. After it the call shares the connection,
// and server requests that do not name their call are refused.
const turnPatience = 20 * time.Second

// turn is a ready conn for one call.
type turn struct {
	link *link
	conn client.Conn
	done func() // of a conn that is reserved for the window of the call; nil if it is not
}

// end gives the conn back.
func (t turn) end() {
	if t.done != nil {
		t.done()
	}
	t.link.release()
}

// takeTurn returns a ready conn for a call: the conn of the first link of that key, or of another link
// while calls of other windows keep the first one.
func (p *pool) takeTurn(ctx context.Context, key linkKey, c *Call) (turn, error) {
	alone := key.profile.Asks() && p.askers.ask(c, p.Catalog())
	first, taken := p.takenBy(key, c, alone)
	if taken == nil && !alone { // nearly always the case
		return p.takeFor(ctx, key, c)
	}
	late, cancel := context.WithTimeout(ctx, turnPatience)
	defer cancel()
	tell := time.After(tellStart)
	for {
		if taken == nil {
			t, busy, err := p.reserve(ctx, key, c, alone)
			if busy == nil {
				return t, err
			}
			first, taken = t.conn, busy
		}
		if other, ok := p.otherKey(key, first, c, alone); ok {
			t, busy, err := p.reserveUntil(late, other, c, alone, taken)
			switch {
			case err == nil && busy == nil:
				return t, nil
			case err != nil && ctx.Err() != nil:
				return turn{}, err
			case late.Err() == nil && err != nil && err != errFreed && !errors.As(err, new(*frozenError)):
				p.stayOne(first, err)
			}
		}
		for waiting := true; waiting; {
			select {
			case <-tell:
				if c.Peer != nil {
					c.Peer.Notify(string(mcp.MethodNotificationMessage), p.turnMessage())
				}
				continue
			case <-taken:
			case <-late.Done():
			}
			waiting = false
		}
		switch {
		case ctx.Err() != nil:
			return turn{}, &Error{p.name, client.KindBusy, errors.New("another call waits for the answer of a " +
				"person, and the server runs only once")}
		case late.Err() != nil: // turnPatience is over: share the connection
			return p.takeFor(ctx, key, c)
		}
		first, taken = p.takenBy(key, c, alone)
	}
}

// turnMessage returns the params of a log message about a call that waits for its turn.
func (p *pool) turnMessage() []byte {
	text := "the call waits: another call of " + p.name + " may ask a person, and their questions would be mixed up"
	return append(raw.AppendQuote([]byte(`{"level":"info","logger":"junction","data":`), text), '}')
}

// takeFor is take for a call.
func (p *pool) takeFor(ctx context.Context, key linkKey, c *Call) (turn, error) {
	l, cn, err := p.take(ctx, key, waiter{c.Trace, c.Peer, c.Folders})
	return turn{link: l, conn: cn}, err
}

// reserve takes the link of that key, and with alone reserves its conn for the window of the call. If calls
// of others have the conn, it returns the conn without a hold, and a channel that is closed when they have
// not.
func (p *pool) reserve(ctx context.Context, key linkKey, c *Call, alone bool) (turn, <-chan struct{}, error) {
	t, err := p.takeFor(ctx, key, c)
	if err != nil || !alone {
		return t, nil, err
	}
	done, taken := t.conn.Reserve(&c.Call)
	if t.done = done; taken != nil {
		t.link.release()
	}
	return t, taken, nil
}

// errFreed means that a call no longer waits for another connection, since the first one is free
// again.
var errFreed = errors.New("the first connection is free again")

// reserveUntil is reserve, until freed is closed: then the first connection is free again, and the error
// is errFreed.
func (p *pool) reserveUntil(
	ctx context.Context, other linkKey, c *Call, alone bool, freed <-chan struct{},
) (turn, <-chan struct{}, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel(nil)
	waiting.Go(func() {
		select {
		case <-freed:
			cancel(errFreed)
		case <-ctx.Done():
		}
	})
	t, taken, err := p.reserve(ctx, other, c, alone)
	if err != nil && context.Cause(ctx) == errFreed {
		err = errFreed
	}
	return t, taken, err
}

// takenBy returns the conn of the link of that key, and a channel that is closed as soon as the call may
// have it: see client.Conn.Taken. The channel is nil if the call may.
func (p *pool) takenBy(key linkKey, c *Call, alone bool) (client.Conn, <-chan struct{}) {
	p.mu.Lock()
	l := p.links[key]
	p.mu.Unlock()
	if l == nil || !key.profile.Asks() {
		return nil, nil
	}
	return l.takenBy(c, alone)
}

// otherKey returns the key of another link for the callers of key, which the call may have; key itself if
// there is no room for another link. first is the conn of the link of key. It returns false if the server
// cannot be started twice, or if only the first process has its state.
func (p *pool) otherKey(key linkKey, first client.Conn, c *Call, alone bool) (linkKey, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stateful.Load() || p.onlyConn.first == first && time.Since(p.onlyConn.at) < stayOneFor {
		return key, false
	}
	for other := key; other.number < p.connConfig.MaxLinks; other.number++ {
		l := p.links[other]
		if l == nil && (len(p.links) < p.connConfig.MaxLinks && !p.full(key) || p.hasIdle(key)) {
			return other, true
		}
		if l != nil {
			if _, taken := l.takenBy(c, alone); taken == nil {
				return other, true
			}
		}
	}
	return key, true
}

// stayOne notes that no second connection can be made beside first.
func (p *pool) stayOne(first client.Conn, err error) {
	p.log.Warn("cannot open a second connection; calls wait for each other while a person is asked", "error", err)
	p.mu.Lock()
	p.onlyConn = noSecondConn{first, time.Now()}
	p.mu.Unlock()
}

// noSecondConn is a connection beside which no second one could be opened, and the time of the
// attempt.
type noSecondConn struct {
	first client.Conn
	at    time.Time
}

// stayOneFor is the time without an attempt to open a second connection after one has failed.
const stayOneFor = time.Minute

// A waiter is the call that a link is for; the zero value is none.
type waiter struct {
	cause client.Trace // of the call, for the first attempt to connect of a new link
	peer  client.Peer  // gets a message if connecting takes long
	// folders are those of the client; nil for none
	folders *Folders
}

// take returns a ready conn of the link of that key. The caller must release the link.
func (p *pool) take(ctx context.Context, key linkKey, of waiter) (*link, client.Conn, error) {
	for {
		l, failed, err := p.link(ctx, key, of)
		if err != nil {
			return nil, nil, err
		}
		cn, err := l.acquire(ctx, failed, of.peer)
		if err == nil {
			return l, cn, nil
		}
		switch {
		case errors.Is(err, client.ErrNoLegacySession):
			<-l.done // it is closing
			return nil, nil, err
		case !errors.Is(err, transport.ErrClosed) && !errors.Is(err, errIdle):
			return nil, nil, err
		}
		select { // the link was closing; the next one is new
		case <-l.done:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}
