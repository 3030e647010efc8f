package upstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"junction/upstream/client"
	"junction/upstream/transport"
)

// This file is about a call that arrives while another call waits for the answer of a user. If a
// server request does not name its call, that call must stay alone on its connection. So the new
// call gets a second connection. If the server cannot be started twice, the calls take turns.

// turnPatience is the longest wait of a call for its turn. After it the call shares the connection,
// and server requests that do not name their call are refused.
const turnPatience = 20 * time.Second

// takeTurn returns a ready conn for a call of that key: the conn of the first link or of another link
// while a call uses the first one exclusively. The caller must release the link.
func (p *pool) takeTurn(ctx context.Context, key linkKey, of waiter) (*link, client.Conn, error) {
	first, inUse := p.exclusiveUse(key)
	if inUse == nil { // nearly always the case
		return p.take(ctx, key, of)
	}
	late, cancel := context.WithTimeout(ctx, turnPatience)
	defer cancel()
	for ; inUse != nil; first, inUse = p.exclusiveUse(key) {
		if other, ok := p.otherKey(key, first); ok {
			l, c, err := p.takeUntil(late, other, inUse, of)
			switch {
			case err == nil, ctx.Err() != nil:
				return l, c, err
			case late.Err() == nil && err != errFreed && !errors.As(err, new(*frozenError)):
				p.stayOne(first, err)
			}
		}
		select {
		case <-inUse:
			continue
		case <-late.Done():
		}
		if ctx.Err() != nil {
			return nil, nil, &Error{p.name, client.KindBusy, errors.New("another call waits for the answer of a " +
				"person, and the server runs only once")}
		}
		return p.take(ctx, key, of) // turnPatience is over: share the connection
	}
	return p.take(ctx, key, of)
}

// errFreed means that a call no longer waits for another connection, since the first one is free
// again.
var errFreed = errors.New("the first connection is free again")

// takeUntil is take, until freed is closed: then the first connection is free again, and the error
// is errFreed.
func (p *pool) takeUntil(
	ctx context.Context, other linkKey, freed <-chan struct{}, of waiter,
) (*link, client.Conn, error) {
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
	l, c, err := p.take(ctx, other, of)
	if err != nil && context.Cause(ctx) == errFreed {
		err = errFreed
	}
	return l, c, err
}

// exclusiveUse returns the conn of the link of that key, and a channel that is closed as soon as no
// call on the conn waits for a user. The channel is nil if no call does.
func (p *pool) exclusiveUse(key linkKey) (client.Conn, <-chan struct{}) {
	p.mu.Lock()
	l := p.links[key]
	p.mu.Unlock()
	if l == nil || !key.profile.Asks() {
		return nil, nil
	}
	return l.exclusiveUse()
}

// otherKey returns the key of another link for the callers of key, which no call uses exclusively; key
// itself if there is no room for another link. first is the conn of the link of key. It returns
// false if the server cannot be started twice, or if only the first process has its state.
func (p *pool) otherKey(key linkKey, first client.Conn) (linkKey, bool) {
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
			if _, inUse := l.exclusiveUse(); inUse == nil {
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
}

// take returns a ready conn of the link of that key. The caller must release the link.
func (p *pool) take(ctx context.Context, key linkKey, of waiter) (*link, client.Conn, error) {
	for {
		l, failed, err := p.link(ctx, key, of.cause)
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
