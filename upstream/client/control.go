package client

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/transport"
)

// This file finds out whether a legacy server still has the session. Some servers answer requests in a
// session that they do not have with 400, and others answer 400 after they have carried out a call. So
// Junction asks a control question over the same session: the first page of a list. If the server
// answers it, the error was that of the call alone.

const (
	// controlPause is the least time between two control questions over one conn.
	controlPause = 5 * time.Second
	// controlTime is how long the server has to answer one.
	controlTime = 10 * time.Second
)

// control is the state of the control questions of a conn.
type control struct {
	mu      sync.Mutex
	list    string                 // method of a list that the session has answered; "" for none
	began   time.Time              // of the latest question
	pending chan struct{}          // closed when it has been answered; nil if no question is in flight
	refusal *transport.StatusError // the answer to it, if it doubts the session, too; else nil
}

// listed stores that the session has answered the first page of a list.
func (c *control) listed(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = method
}

// asControl marks the context of a control question.
type asControl struct{}

// transmit sends one request and waits for the response.
func (b *base) transmit(
	ctx context.Context, req *transport.Request, on func(*jsonrpc.Message),
) (*jsonrpc.Message, error) {
	m, err := b.transport.Call(ctx, req, on)
	if err != nil && b.judged != nil {
		err = b.judged(ctx, err)
	}
	return m, err
}

// judge returns the error of a request. If the error doubts the session, it asks a control question
// first. If that is refused, too, the session is over. The request then counts as not carried out only
// if both answers have the same status and text.
func (l *legacyConn) judge(ctx context.Context, err error) error {
	e, ok := errors.AsType[*transport.StatusError](err)
	if !ok || !e.DoubtsSession() || ctx.Value(asControl{}) != nil {
		return err
	}
	refusal := l.ask(ctx)
	if refusal == nil {
		return err
	}
	gone := e.EndSession()
	if refusal.Same(e) {
		return gone
	}
	return err
}

// ask asks a control question, or waits for the one that is in flight. It returns the answer if that
// doubts the session, too. Within controlPause, it returns the answer to the latest question.
func (l *legacyConn) ask(ctx context.Context) *transport.StatusError {
	c := &l.control
	c.mu.Lock()
	defer c.mu.Unlock()
	switch method := cmp.Or(c.list, l.declaredList()); {
	case c.pending != nil:
		pending := c.pending
		c.mu.Unlock()
		select {
		case <-pending:
		case <-ctx.Done():
		}
		c.mu.Lock()
	case method == "" || !c.began.IsZero() && time.Since(c.began) < controlPause:
	default:
		c.began, c.pending, c.refusal = time.Now(), make(chan struct{}), nil
		c.mu.Unlock()
		refusal := l.askFor(method)
		c.mu.Lock()
		c.refusal = refusal
		close(c.pending)
		c.pending = nil
	}
	return c.refusal
}

// askFor asks for the first page of a list. The question belongs to all calls that wait for it, so that
// it ends with none of them.
func (l *legacyConn) askFor(method string) *transport.StatusError {
	ctx, cancel := context.WithTimeout(context.WithValue(l.ctx, asControl{}, true), controlTime)
	defer cancel()
	_, err := l.requestObserved(ctx, method, nil, nil, nil)
	if e, ok := errors.AsType[*transport.StatusError](err); ok && e.DoubtsSession() {
		return e
	}
	return nil
}

// declaredList returns a list that the server declares; "" for none. It is for sessions that read no
// lists.
func (l *legacyConn) declaredList() string {
	for i, listing := range listings {
		if l.info.Capabilities.HasObject(listing) {
			return [...]string{string(mcp.MethodToolsList), string(mcp.MethodPromptsList),
				string(mcp.MethodResourcesList)}[i]
		}
	}
	return ""
}
