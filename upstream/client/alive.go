package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/transport"
)

// This file pings a legacy server while calls on its connection are silent (2025-11-25,
// basic/utilities/ping). Progress is optional, so a silent server may still work on a call. The
// modern era has no ping.

// pings is the state of the only ping that a connection may have open, for all its calls.
type pings struct {
	mu    sync.Mutex
	until time.Time // when the open ping times out; zero while no ping is open
	ended time.Time // when the last ping was answered or refused
}

// pingPause is how long the outcome of a ping counts for all calls, because their clocks may ring
// together. It is shorter for a call that ends sooner.
const pingPause = time.Second

// startPing sends a ping, unless one is in flight. An answer touches the clocks of all calls on the
// connection; an answer after until is useless. The timer of a call's clock calls startPing, which
// does not block and does not call the clock.
func (l *legacyConn) startPing(until time.Time) {
	l.pings.mu.Lock()
	open := !l.pings.until.IsZero()
	if !open && !l.pings.ended.IsZero() && time.Since(l.pings.ended) < min(pingPause, time.Until(until)/2) {
		l.pings.mu.Unlock()
		return
	}
	if until.After(l.pings.until) {
		l.pings.until = until
	}
	l.pings.mu.Unlock()
	if !open {
		l.pingTasks <- l.probe // there is room: one ping is open at most
	}
}

// probe sends a ping, and touches the clocks of all calls on the connection if the server answers.
// An error response is an answer, too: a server that does not know the method is alive.
func (l *legacyConn) probe() {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	var late *time.Timer
	l.pings.mu.Lock()
	late = time.AfterFunc(time.Until(l.pings.until), func() {
		l.pings.mu.Lock()
		defer l.pings.mu.Unlock()
		if left := time.Until(l.pings.until); left > 0 { // another call needs the answer for longer
			late.Reset(left)
		} else {
			cancel()
		}
	})
	l.pings.mu.Unlock()
	// The ping stays open until the clocks were touched: a clock that rings in between must not
	// start another ping.
	defer func() {
		l.pings.mu.Lock()
		l.pings.until, l.pings.ended = time.Time{}, time.Now()
		l.pings.mu.Unlock()
	}()
	lease := transport.NewLease(l.account)
	m, err := l.transport.Call(ctx, &transport.Request{Message: jsonrpc.Message{ID: l.nextID(),
		Method: string(mcp.MethodPing)}, Memory: lease}, nil)
	lease.Release()
	late.Stop()
	if err == nil && m.Error != nil {
		l.doubt(m.Error)
	} else {
		l.doubt(err)
	}
	if _, answered := errors.AsType[*jsonrpc.Error](asRPCError(err)); err != nil && !answered {
		l.log.Debug("the upstream does not answer a ping", "error", err)
		return
	}
	var clocks []*Clock
	l.mu.Lock()
	for _, f := range l.flights {
		if f.clock != nil {
			clocks = append(clocks, f.clock)
		}
	}
	l.mu.Unlock()
	for _, c := range clocks {
		c.Touch()
	}
}
