package client

import (
	"context"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"
)

// This file has what package upstream needs to decide whether a legacy server still has a session:
// the list for the control question, a report of doubts that no caller sees, and the end of the
// calls over a session that is lost.

// ControlList implements Conn. A session that has read no list gets one that the server declares.
func (l *legacyConn) ControlList() string {
	if method := l.answered.Load(); method != nil {
		return *method
	}
	for i, listing := range listings {
		if l.info.Capabilities.HasObject(listing) {
			return [...]string{string(mcp.MethodToolsList), string(mcp.MethodPromptsList),
				string(mcp.MethodResourcesList)}[i]
		}
	}
	return ""
}

// listed stores that the session has answered the first page of a list. The first list stays: for
// the question it is the same as for the session that may replace this one.
func (l *legacyConn) listed(method string) { l.answered.CompareAndSwap(nil, &method) }

// doubt tells the owner of the conn about a suspicious answer to a ping.
func (l *legacyConn) doubt(err error) {
	if l.hooks.Doubted != nil && Suspicious(err) {
		l.hooks.Doubted()
	}
}

// traffic counts the calls in flight.
type traffic struct {
	calls    atomic.Int64
	draining atomic.Bool
	quiet    chan struct{} // 1-buffered; receives while draining, when no call is in flight
}

func (t *traffic) begin() { t.calls.Add(1) }

func (t *traffic) end() {
	if t.calls.Add(-1) == 0 && t.draining.Load() {
		select {
		case t.quiet <- struct{}{}:
		default:
		}
	}
}

// Drain implements Conn.
func (l *legacyConn) Drain(ctx context.Context) {
	l.traffic.draining.Store(true)
	for l.traffic.calls.Load() > 0 {
		select {
		case <-l.traffic.quiet:
		case <-ctx.Done():
			return
		}
	}
}
