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

// Subscribe subscribes h to resources at their upstreams, and returns the accepted ones. The error is the
// reason why one was not accepted: a *LimitError, a *budget.Exceeded, or the error of an upstream.
func (ls *Listeners) Subscribe(ctx context.Context, h *Subscriber, targets []*view.Target) (map[*view.Target]bool,
	error) {
	ctx, cancel := context.WithTimeout(ctx, subscribePatience)
	defer cancel()
	ls.mu.Lock()
	c, began := h.Caller, h.Snapshot
	missing, failed := h.missing(targets)
	ls.mu.Unlock()
	var all sync.WaitGroup
	for b, uris := range missing {
		all.Go(func() {
			from, got, err := b.Subscribe(ctx, c.Who.Profile, c.Who.Session, c.User(), slices.Collect(maps.Keys(uris)))
			ls.mu.Lock()
			surplus, refused := ls.record(h, b, from, uris, got)
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
func (ls *Listeners) record(h *Subscriber, b view.Backend, from upstream.Source, exposed map[string]string,
	got []string) (surplus []string, err error) {
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
			if exceeded := h.subscribed(key, subscription{exposed[uri], b, from}); exceeded != nil {
				surplus, err = append(surplus, uri), exceeded
			}
		}
	}
	return surplus, err
}
