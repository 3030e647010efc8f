package client

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"
)

// This file has what package upstream needs to decide whether a legacy server still has a session, and
// whether a server still accepts a sign-in: the list for the control question, a report of doubts that no
// caller sees, and the end of the calls over a session that is lost.

// ControlList implements Conn. A conn that has read no list gets one that the server declares.
func (b *base) ControlList() string {
	if method := b.control.Load(); method != nil {
		return *method
	}
	for i, listing := range listings {
		if b.info.Capabilities.HasObject(listing) {
			return [...]string{string(mcp.MethodToolsList), string(mcp.MethodPromptsList),
				string(mcp.MethodResourcesList)}[i]
		}
	}
	return ""
}

// answeredList stores that the server has answered the first page of a list. The first list stays: for
// the question it is the same as for the session that may replace this one.
func (b *base) answeredList(method string) { b.control.CompareAndSwap(nil, &method) }

// decides reports whether 401 to one of Junction's own requests decides about the sign-in: the handshakes,
// and the list of the control question. In a session, 401 may also mean that the session is lost; then the
// handshake of another session decides.
func (b *base) decides(method string) bool {
	switch known := b.control.Load(); {
	case method == string(mcp.MethodInitialize), method == string(mcp.MethodServerDiscover):
		return true
	case b.info.Session || !strings.HasSuffix(method, "/list"):
		return false
	default:
		return known == nil || *known == method
	}
}

// doubt tells the owner of the conn about a suspicious answer to a ping.
func (l *legacyConn) doubt(err error) {
	if l.hooks.Doubted != nil && Suspicious(err) {
		l.hooks.Doubted(err)
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
