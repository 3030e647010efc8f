package streams

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"junction/proxy/view"
	"junction/upstream"
)

// subscribePatience is the time for an upstream to accept a subscription.
const subscribePatience = 10 * time.Second

// maxSubscriptions bounds the subscriptions of one modern stream, or of one legacy session at an
// endpoint.
const maxSubscriptions = 1000

// LimitError means that Junction does not subscribe a client to a resource.
type LimitError struct{ text string }

func (e *LimitError) Error() string { return e.text }

var errTooMany = &LimitError{fmt.Sprintf("a client may subscribe to %d resources", maxSubscriptions)}

// Folders are those of a client, by upstream; without an entry for one, the client has none there.
type Folders map[view.Backend]*upstream.Folders

// Subscribe subscribes h to resources at their upstreams, in the folders of the client, and returns the
// accepted ones. The error is the reason why one was not accepted: a *LimitError, a *budget.Exceeded, or the
// error of an upstream.
func (ls *Listeners) Subscribe(ctx context.Context, h *Subscriber, targets []*view.Target, in Folders) (
	map[*view.Target]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, subscribePatience)
	defer cancel()
	ls.mu.Lock()
	began := h.Snapshot
	moved := ls.elsewhere(h, targets, in)
	missing, failed := h.missing(targets)
	calls := map[view.Backend]*upstream.Call{}
	for b := range missing {
		calls[b] = h.call(in[b])
	}
	ls.mu.Unlock()
	for from, uris := range moved {
		from.backend.Unsubscribe(from.from, uris)
	}
	var all sync.WaitGroup
	for b, uris := range missing {
		all.Go(func() {
			from, got, err := b.Subscribe(ctx, calls[b], slices.Collect(maps.Keys(uris)))
			ls.mu.Lock()
			surplus, refused := ls.record(h, b, in[b], from, uris, got)
			failed = cmp.Or(refused, err, failed)
			ls.mu.Unlock()
			b.Unsubscribe(from, surplus)
		})
	}
	all.Wait()
	accepted := map[*view.Target]bool{}
	ls.mu.Lock()
	if _, alive := ls.subscribers[h]; alive {
		for _, t := range targets {
			_, accepted[t] = h.resources[resourceKey{t.Backend.Name(), t.Name}]
		}
	}
	ls.mu.Unlock()
	ls.catchUp(began)
	return accepted, failed
}

// elsewhere ends the subscriptions of h to targets in other folders than those of the client now, and returns
// them, to end them at their upstreams; mu is held.
func (ls *Listeners) elsewhere(h *Subscriber, targets []*view.Target, in Folders) map[source][]string {
	moved := map[source][]string{}
	for _, t := range targets {
		key := resourceKey{t.Backend.Name(), t.Name}
		if sub, there := h.resources[key]; there && sub.folders.Key() != in[t.Backend].Key() {
			from := source{sub.backend, sub.from}
			moved[from] = append(moved[from], key.uri)
			h.unsubscribed(key)
		}
	}
	return moved
}

// missing returns the URIs of targets that h is not subscribed to, by upstream, with their exposed
// URIs; Listeners.mu is held. The error is the reason why one cannot be subscribed to.
func (h *Subscriber) missing(targets []*view.Target) (map[view.Backend]map[string]string, error) {
	list, queued := map[view.Backend]map[string]string{}, 0
	var err error
	for _, t := range targets {
		uris := list[t.Backend]
		_, there := h.resources[resourceKey{t.Backend.Name(), t.Name}]
		if _, twice := uris[t.Name]; there || twice {
			continue
		}
		switch {
		case len(t.Name) > view.MaxLookedUp:
			err = &LimitError{fmt.Sprintf("the URI of a subscription has at most %d bytes", view.MaxLookedUp)}
			continue
		case len(h.resources)+queued >= maxSubscriptions:
			err = errTooMany
			continue
		case uris == nil:
			uris = map[string]string{}
			list[t.Backend] = uris
		}
		uris[t.Name] = t.Exposed
		queued++
	}
	return list, err
}

// record adds the subscriptions that an upstream has accepted; mu is held. The caller must end the
// surplus ones at the upstream: h has them already, may not have them, or has gone.
func (ls *Listeners) record(h *Subscriber, b view.Backend, in *upstream.Folders, from upstream.Source,
	exposed map[string]string, got []string) (surplus []string, err error) {
	_, alive := ls.subscribers[h]
	for _, uri := range got {
		key := resourceKey{b.Name(), uri}
		_, there := h.resources[key]
		switch {
		case there || !alive:
			surplus = append(surplus, uri)
		case len(h.resources) >= maxSubscriptions: // by requests in parallel
			surplus, err = append(surplus, uri), errTooMany
		default:
			if exceeded := h.subscribed(key, subscription{exposed[uri], b, in, from}); exceeded != nil {
				surplus, err = append(surplus, uri), exceeded
			}
		}
	}
	return surplus, err
}
