package client

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/pace"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// This file subscribes to the notifications of a modern server with subscriptions/listen
// (2026-07-28, basic/patterns/subscriptions). An open subscription cannot be changed. So over HTTP
// a second one is opened, and replaces the first one after the server has acknowledged it. The first
// one is read for a moment longer, because the two streams have no order. So no notification is missed
// in between, and one may come twice. For stdio see listen_shared.go.

// listen is one subscription. It is opened again whenever it ends, until stop.
type listen struct {
	uris   []string
	lists  bool     // it includes changes of the lists
	first  bool     // keep repeats a failed first attempt; if false, the opener handles the error
	gap    bool     // no subscription was open before it, so changes may have been missed
	before []string // the resources of its predecessor; their updates may have been missed in the gap
	ctx    context.Context
	stop   context.CancelFunc
	call   context.Context    // of the request on stdio; it stays open after stop until the server has answered
	drop   context.CancelFunc // ends call
	once   sync.Once
	ended  chan struct{} // closed when the server has ended it, or its end is not awaited
	// closed when the first attempt was acknowledged or has failed; then accepted and err are set
	settled chan struct{}
	// accepted lists the resources that the server has acknowledged.
	accepted []string
	err      error

	replaced atomic.Bool // another one is open in its place; it is not opened again

	id     jsonrpc.ID // of the open request; "" if none is open; guarded by modernConn.lmu
	cut    func()     // ends the open request, as if the server had closed its stream; guarded by modernConn.lmu
	unused bool       // no client wants its updates; guarded by modernConn.lmu
}

// follow is a change of the subscribed resources. Its fields are the arguments of Conn.Follow.
type follow struct {
	ctx            context.Context
	all            func() []string
	added, removed []string
	answer         chan followed // 1-buffered
}

type followed struct {
	accepted []string
	err      error
}

func (m *modernConn) init(log *slog.Logger, h Hooks, era Era) {
	m.base.init(log, h, era)
	m.follows, m.listens = make(chan follow), map[jsonrpc.ID]*listen{}
	m.byURI, m.unwanted = map[string]*listen{}, map[string]bool{}
	m.acked, m.aim, m.cuts = m.acknowledged, m.aimed, m.cancelled
}

// Watch keeps a subscriptions/listen open as long as the conn lives, if the server announces
// changes of its lists, or once a client subscribes to a resource.
func (m *modernConn) Watch() <-chan struct{} {
	m.tasks.Go(m.watching)
	ready := make(chan struct{})
	close(ready) // a modern server sends no requests on a stream, so calls need not wait for it
	return ready
}

// watching is the goroutine of Watch.
func (m *modernConn) watching() {
	w := watcher{m: m}
	defer w.streams.Wait()
	w.any, _ = m.info.Announces()
	if m.transport.PerRequest() {
		w.replacing()
	} else {
		w.adding()
	}
}

// watcher is the state of the goroutine that opens the subscriptions of a conn.
type watcher struct {
	m       *modernConn
	any     bool // the server notifies of changes of its lists
	streams sync.WaitGroup
}

// open starts to open a subscription. The fields that it does not set must be set before.
func (w *watcher) open(l *listen) *listen {
	l.ended, l.settled = make(chan struct{}), make(chan struct{})
	l.ctx, l.stop = context.WithCancel(w.m.ctx)
	l.call, l.drop = context.WithCancel(w.m.ctx)
	w.streams.Go(func() { w.m.keep(l) })
	return l
}

// wait waits for the first attempt to open the subscription. It returns nil after the
// acknowledgement, and otherwise the reason of the failure.
func (l *listen) wait(ctx context.Context) error {
	select {
	case <-l.settled:
		return l.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// overlap is how long a replaced subscription stays open. What the server has sent on it before it has
// acknowledged the next one may arrive after the acknowledgement.
const overlap = time.Second

// replacing is the loop of watching over HTTP, where each subscription has a response of its own.
func (w *watcher) replacing() {
	var now, last *listen // now has replaced last
	end := func() {
		if last != nil {
			last.stop()
			last = nil
		}
	}
	late := time.NewTimer(overlap)
	defer late.Stop()
	if w.any {
		now = w.open(&listen{lists: true, first: true, gap: true})
	}
	for {
		select {
		case <-w.m.ctx.Done():
			return
		case <-late.C:
			end()
		case f := <-w.m.follows:
			var next *listen
			var accepted []string
			if uris := f.all(); w.any || len(uris) > 0 {
				next = w.open(&listen{uris: uris, lists: w.any})
				if err := next.wait(f.ctx); err != nil {
					next.stop()
					f.answer <- followed{err: err}
					continue
				}
				accepted = next.accepted
			}
			end()
			if last, now = now, next; next == nil {
				end() // nothing is wanted any more
			} else if last != nil {
				last.replaced.Store(true)
				late.Reset(overlap)
			}
			f.answer <- followed{accepted: accepted}
		}
	}
}

// Follow implements Conn.
func (m *modernConn) Follow(ctx context.Context, all func() []string, added, removed []string) ([]string, error) {
	f := follow{ctx, all, added, removed, make(chan followed, 1)}
	select {
	case m.follows <- f:
	case <-m.ctx.Done():
		return nil, transport.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case a := <-f.answer:
		return a.accepted, a.err
	case <-m.ctx.Done():
		return nil, transport.ErrClosed
	}
}

// keep opens the subscription, and opens it again whenever it ends. It returns after stop, and if
// the server rejects the subscription. If first is false, it also returns if the first attempt
// fails.
func (m *modernConn) keep(l *listen) {
	defer close(l.ended)
	defer l.stop()
	defer l.drop()
	var pause pace.Backoff
	method := string(mcp.MethodSubscriptionsListen)
	for l.ctx.Err() == nil {
		opened := time.Now()
		id := m.nextID()
		m.lmu.Lock()
		if l.ctx.Err() != nil { // (*shared).end found no id, and so sent no cancellation
			m.lmu.Unlock()
			break
		}
		ctx := l.call // on stdio, (*shared).end cancels the request at the server
		if m.transport.PerRequest() {
			ctx = l.ctx
		}
		ctx, cut := context.WithCancel(ctx)
		m.listens[id], l.id, l.cut = l, id, cut
		m.lmu.Unlock()
		req := &transport.Request{Message: jsonrpc.Message{ID: id, Method: method,
			Params: m.params(Everything(), m.filter(l.lists, l.uris))}, Header: ownHeader(method)}
		// returns when the subscription has ended
		answer, err := m.transport.Call(ctx, req, func(msg *jsonrpc.Message) { m.deliver(ownRequest, msg) })
		m.lmu.Lock()
		delete(m.listens, id)
		l.id = ""
		m.lmu.Unlock()
		cut()
		if l.replaced.Load() {
			return
		}
		if err = asRPCError(err); err == nil && answer.Error != nil {
			err = answer.Error
		}
		if _, refused := err.(*jsonrpc.Error); refused && l.ctx.Err() == nil {
			m.log.Warn("the server announces changes but rejects the subscription", "error",
				transport.OneLine(err.Error()))
			l.settle(nil, err)
			return
		}
		if err == nil {
			err = transport.ErrClosed
		}
		if (RejectsToken(err) || errors.Is(err, transport.ErrNotSent)) && m.hooks.Doubted != nil {
			m.hooks.Doubted(err)
		}
		if l.settle(nil, err) && !l.first {
			return
		}
		if time.Since(opened) > time.Minute {
			pause.Reset()
		}
		pace.Wait(l.ctx, pause.Next(), nil)
	}
	l.settle(nil, transport.ErrClosed)
}

// cancelled ends the subscription that notifications/cancelled of the server names (2026-07-28,
// basic/patterns/cancellation). keep opens it again after the pause for a broken one, and counts what it
// subscribes to as changed. cancelled returns false if the notification names no subscription: a server
// must not cancel a call, and the number may be that of something of its own.
func (m *modernConn) cancelled(msg *jsonrpc.Message) bool {
	id, err := msg.Body.Get("requestId")
	if err != nil {
		return false
	}
	m.lmu.Lock()
	defer m.lmu.Unlock()
	l := byID(m.listens, id)
	if l == nil {
		return false
	}
	m.log.Debug("the server has ended a subscription", "id", string(id))
	l.cut()
	return true
}

// settle stores the result of the first attempt and returns true. Later calls do nothing and return
// false.
func (l *listen) settle(accepted []string, err error) bool {
	first := false
	l.once.Do(func() {
		first = true
		l.accepted, l.err = accepted, err
		close(l.settled)
	})
	return first
}

// acknowledged handles the first message of a subscription. Changes before it were not announced if
// no subscription was open, so acknowledged reports them to the hooks.
func (m *modernConn) acknowledged(msg *jsonrpc.Message) {
	var l *listen
	meta, _ := msg.Body.Object("_meta")
	id, err := meta.Get(mcp.MetaKeySubscriptionID)
	m.lmu.Lock()
	if err == nil {
		l = byID(m.listens, id)
	} else {
		l = m.unsettled()
	}
	m.lmu.Unlock()
	if l == nil {
		return
	}
	var accepted []string
	if honoured, err := msg.Body.Object("notifications"); err == nil {
		list, _ := honoured.Elements("resourceSubscriptions")
		for _, v := range list {
			if uri, err := raw.String(v); err == nil {
				accepted = append(accepted, uri)
			}
		}
	}
	gap, missed := l.gap, l.before
	if pace.IsClosed(l.settled) { // the subscription was opened again
		gap, missed = true, l.uris
	}
	// This comes before settle, so that a client that subscribes just now gets no older updates.
	if gap && l.lists && m.listed.Load() {
		m.hooks.Changed()
	}
	if gap && m.hooks.Missed != nil && len(missed) > 0 {
		m.hooks.Missed(missed)
	}
	l.settle(accepted, nil)
}

// unsettled returns the only subscription that waits for its acknowledgement; nil if there are
// several. It is for servers that acknowledge without a subscription ID. lmu is held.
func (m *modernConn) unsettled() (found *listen) {
	for _, l := range m.listens {
		if pace.IsClosed(l.settled) && len(m.listens) > 1 {
			continue
		}
		if found != nil {
			return nil
		}
		found = l
	}
	return found
}

// aimed returns a function that reports whether an update was sent for the subscription to a
// resource; nil means all subscriptions. wanted is false if no client is subscribed any more.
func (m *modernConn) aimed(msg *jsonrpc.Message, uri string) (matches func(string) bool, wanted bool) {
	meta, _ := msg.Body.Object("_meta")
	id, err := meta.Get(mcp.MetaKeySubscriptionID)
	m.lmu.Lock()
	defer m.lmu.Unlock()
	l := byID(m.listens, id)
	if err != nil || l == nil {
		return nil, m.concerns(uri)
	}
	if l.unused || !m.concerns(uri) {
		return nil, false
	}
	return func(uri string) bool {
		m.lmu.Lock()
		defer m.lmu.Unlock()
		now := m.byURI[uri]
		return now == nil || now == l // nil: over HTTP, and while one subscription replaces others
	}, true
}

// concerns reports whether a client is subscribed to a resource or to a parent of it. lmu is held.
func (m *modernConn) concerns(uri string) bool {
	if !m.unwanted[uri] {
		return true
	}
	for i := range len(uri) {
		if c := uri[i]; (c == '/' || c == '?' || c == '#') && (m.wants(uri[:i]) || m.wants(uri[:i+1])) {
			return true
		}
	}
	return false
}

// wants reports whether a client is subscribed to a resource on stdio. lmu is held.
func (m *modernConn) wants(uri string) bool { return m.byURI[uri] != nil && !m.unwanted[uri] }
