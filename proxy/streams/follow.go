package streams

import (
	"context"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
)

// mostMoving limits the subscriptions to one upstream that move at the same time after a change of the
// configuration. A higher limit would let them wait for each other at a slow server.
const mostMoving = 4

// moved is a subscription whose upstream was replaced by another one.
type moved struct {
	h        *Subscriber
	key      resourceKey
	caller   scope.Caller
	call     *upstream.Call // has the folders of the old snapshot
	old, now view.Backend
}

// follow moves subscriptions of replaced upstreams to their new upstreams, in the background. Each may
// take subscribePatience, so the upstreams do not wait for each other. The subscribers must have been
// renewed.
func (ls *Listeners) follow() {
	lists := map[view.Backend][]moved{} // by new upstream
	ls.mu.Lock()
	for h := range ls.subscribers {
		for key, sub := range h.resources {
			for _, st := range h.Endpoint.View.Stocks {
				b := st.Backend
				if b.Name() == key.upstream && b != sub.backend {
					lists[b] = append(lists[b], moved{h, key, h.Caller, h.call(sub.folders), sub.backend, b})
				}
			}
		}
	}
	ls.mu.Unlock()
	if ls.options.Ending.Err() != nil {
		return
	}
	for _, list := range lists {
		todo := make(chan moved, len(list))
		for _, m := range list {
			todo <- m
		}
		close(todo)
		for range min(mostMoving, len(list)) {
			ls.moving.Go(func() {
				for m := range todo {
					ls.moveTo(m)
				}
			})
		}
	}
}

// subscribe subscribes at the new upstream, if the folders of the client are still permitted.
func (m *moved) subscribe(ctx context.Context) (from upstream.Source, got []string, err error) {
	if m.call.Folders, err = m.call.Folders.Again(ctx, m.caller.Folders(m.now)); err != nil {
		return from, nil, err
	}
	return m.now.Subscribe(ctx, m.call, []string{m.key.uri})
}

// moveTo moves a subscription to the new upstream. If the new upstream does not accept it, the
// subscription ends.
func (ls *Listeners) moveTo(m moved) {
	ctx, cancel := context.WithTimeout(ls.options.Ending, subscribePatience)
	from, got, err := m.subscribe(ctx)
	cancel()
	if err != nil {
		ls.options.Log.Warn("a subscription was lost with the configuration that it was made under", "upstream",
			m.key.upstream, "error", err)
	}
	ls.mu.Lock()
	sub, there := m.h.resources[m.key]
	switch {
	case !there || sub.backend != m.old: // unsubscribed meanwhile
		ls.mu.Unlock()
		m.now.Unsubscribe(from, got)
		return
	case len(got) > 0:
		m.h.resources[m.key] = subscription{sub.exposed, m.now, m.call.Folders, from}
		// an update may have been missed
		ls.deliver(m.h, note{method: mcp.MethodNotificationResourceUpdated, uri: sub.exposed},
			view.NewResource(m.now, m.key.uri, sub.exposed, false))
	default:
		m.h.unsubscribed(m.key)
	}
	ls.mu.Unlock()
	m.old.Unsubscribe(sub.from, []string{m.key.uri})
}
