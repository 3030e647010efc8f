package upstream

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// This file holds the subscriptions/listen of a modern server (2026-07-28, basic/patterns/subscriptions). What it says cannot be changed while it is open, so
// another one is opened beside it, and takes its place when it was acknowledged: nothing is missed in between. On stdio, where all share one connection, the old one
// is ended first: there are servers that remember one subscription for a connection, and forget the new one when the old one ends (the official Go SDK, 1.8).

// listen is a subscription that is opened again whenever it ends, until stop.
type listen struct {
	uris    []string
	first   bool     // of its conn: there is none that it takes the place of
	gap     bool     // none was open when it was opened
	before  []string // the resources of the one before it, of which something may have been missed in the gap
	ctx     context.Context
	stop    context.CancelFunc
	once    sync.Once
	ended   chan struct{} // closed when the server is done with it, or does not say so in time
	settled chan struct{} // closed when it was acknowledged for the first time, or will not be: accepted and err are set
	// accepted are the resources that the server said it would tell of.
	accepted []string
	err      error
}

// follow is what somebody wants to hear of from now on.
type follow struct {
	ctx    context.Context
	uris   []string
	answer chan followed // 1-buffered
}

type followed struct {
	accepted []string
	err      error
}

func (m *modernConn) init(log *slog.Logger, h hooks, era Era) {
	m.base.init(log, h, era)
	m.follows, m.listens, m.acked = make(chan follow), map[jsonrpc.ID]*listen{}, m.acknowledged
}

// watch keeps a subscriptions/listen open for as long as the conn is, if the server tells of changes at all, or as soon as somebody wants to hear of a resource.
func (m *modernConn) watch() <-chan struct{} {
	m.tasks.Go(m.watching)
	return closed // a question comes in an answer
}

func (m *modernConn) watching() {
	var streams sync.WaitGroup
	defer streams.Wait()
	_, any, _ := m.info.tells()
	open := func(uris []string, first, gap bool, before []string) *listen {
		l := &listen{uris: uris, first: first, gap: gap, before: before, ended: make(chan struct{}), settled: make(chan struct{})}
		l.ctx, l.stop = context.WithCancel(m.ctx)
		streams.Go(func() { m.keep(l) })
		return l
	}
	var now *listen
	if any {
		now = open(nil, true, true, nil)
	}
	_, beside := m.wire.(*httpWire)
	for {
		select {
		case <-m.ctx.Done():
			return
		case f := <-m.follows:
			var next *listen
			if now != nil && !beside {
				now.stop()
				<-now.ended
			}
			var before []string
			if now != nil {
				before = now.uris
			}
			if any || len(f.uris) > 0 {
				next = open(f.uris, false, !beside, before)
				var err error
				select {
				case <-next.settled:
					err = next.err
				case <-f.ctx.Done():
					err = context.Cause(f.ctx)
				}
				if err != nil {
					next.stop()
					if now != nil && !beside {
						<-next.ended
						now = open(now.uris, true, true, now.uris)
					}
					f.answer <- followed{err: err}
					continue
				}
			}
			if now != nil {
				now.stop()
			}
			now = next
			if next == nil {
				f.answer <- followed{}
			} else {
				f.answer <- followed{accepted: next.accepted}
			}
		}
	}
}

// follow is that of conn.
func (m *modernConn) follow(ctx context.Context, all, added, _ []string) ([]string, error) {
	f := follow{ctx, all, make(chan followed, 1)}
	select {
	case m.follows <- f:
	case <-m.ctx.Done():
		return nil, errClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case a := <-f.answer:
		return a.accepted, a.err
	case <-m.ctx.Done():
		return nil, errClosed
	}
}

// keep opens the subscription, and opens it again.
func (m *modernConn) keep(l *listen) {
	defer close(l.ended)
	defer l.stop()
	var pause backoff
	method := string(mcp.MethodSubscriptionsListen)
	for l.ctx.Err() == nil {
		opened := time.Now()
		id := m.nextID()
		m.lmu.Lock()
		m.listens[id] = l
		m.lmu.Unlock()
		req := &request{Message: jsonrpc.Message{ID: id, Method: method, Params: m.params(everything(), m.filter(l.uris))}, Header: m.header(method, "")}
		answer, err := m.listenOnce(l, req)
		m.lmu.Lock()
		delete(m.listens, id)
		m.lmu.Unlock()
		if err = asPeerError(err); err == nil && answer.Error != nil {
			err = answer.Error
		}
		if _, refused := err.(*jsonrpc.Error); refused && l.ctx.Err() == nil {
			m.log.Warn("the upstream tells of changes and refuses to be listened to", "error", err)
			l.settle(nil, err)
			return
		}
		if err == nil {
			err = errClosed
		}
		if l.settle(nil, err) && !l.first {
			return
		}
		if time.Since(opened) > time.Minute {
			pause.reset()
		}
		pause.wait(l.ctx, nil)
	}
	l.settle(nil, errClosed)
}

// listenEnd is how long a server may take to end a subscription.
const listenEnd = time.Second

// listenOnce makes the request, which goes on until the subscription ends. Over HTTP it ends with its response; on stdio the server is told, and waited for.
func (m *modernConn) listenOnce(l *listen, req *request) (*jsonrpc.Message, error) {
	on := func(msg *jsonrpc.Message) { m.deliver(nobody, msg) }
	if _, http := m.wire.(*httpWire); http {
		return m.wire.Call(l.ctx, req, on)
	}
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, func() {
		if m.ctx.Err() == nil {
			m.post(&request{Message: jsonrpc.Message{Method: string(mcp.MethodNotificationCancelled), Params: append(append([]byte(`{"requestId":`), req.ID...), '}')}})
			time.AfterFunc(listenEnd, cancel)
		}
	})()
	return m.wire.Call(ctx, req, on)
}

// settle says how the first attempt ended, and reports whether this is the first.
func (l *listen) settle(accepted []string, err error) bool {
	first := false
	l.once.Do(func() {
		first = true
		l.accepted, l.err = accepted, err
		close(l.settled)
	})
	return first
}

// acknowledged takes the first message of a subscription. What happened before it, while there was none, was said to nobody.
func (m *modernConn) acknowledged(msg *jsonrpc.Message) {
	var l *listen
	meta, _ := msg.Body.Object("_meta")
	id, err := meta.Get(mcp.MetaKeySubscriptionID)
	m.lmu.Lock()
	if err == nil {
		l = m.listens[jsonrpc.ID(id)]
	} else if len(m.listens) == 1 {
		for _, l = range m.listens {
		}
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
	select {
	case <-l.settled: // it was opened again
		gap, missed = true, l.uris
	default:
	}
	// Before it is settled, so that who subscribes just now hears of nothing that was before.
	if gap && m.listed.Load() {
		m.hooks.changed()
	}
	if gap && m.hooks.missed != nil && len(missed) > 0 {
		m.hooks.missed(missed)
	}
	l.settle(accepted, nil)
}
