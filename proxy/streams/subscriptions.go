package streams

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/budget"
	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
)

// This file stores subscriptions to resources: of a subscriptions/listen in the modern era, or of a
// session in the legacy era. Their notifications go to the streams (listen.go).

// Subscriber is a subscriptions/listen or a legacy session with subscriptions on an endpoint. A
// session may have no stream. Guarded by Listeners.mu.
type Subscriber struct {
	scope.Caller           // updated with the snapshot
	stream       *Listener // of a subscriptions/listen; nil for a session
	session      *Session
	resources    map[resourceKey]subscription
	waiting      []note       // for a session without a stream
	held         budget.Grant // for resources
	requests     int          // in progress, which may add subscriptions
}

// resourceKey identifies a resource by its upstream and by the URI that the upstream uses.
type resourceKey struct{ upstream, uri string }

// subscription is a resource that a client subscribed to.
type subscription struct {
	exposed string // as the client has subscribed to it
	backend view.Backend
	from    upstream.Source
}

// size returns the approximate memory of a subscription, in bytes.
func (k resourceKey) size(exposed string) int64 { return int64(200 + len(k.uri) + len(exposed)) }

// subscribed adds a subscription and reserves its memory for the subscriber's account; Listeners.mu
// is held. The error is a *budget.Exceeded.
func (h *Subscriber) subscribed(k resourceKey, s subscription) error {
	if err := h.held.Reserve(budget.Bytes, k.size(s.exposed)); err != nil {
		return err
	}
	h.resources[k] = s
	return nil
}

// unsubscribed removes a subscription; Listeners.mu is held.
func (h *Subscriber) unsubscribed(k resourceKey) {
	h.held.Give(budget.Bytes, k.size(h.resources[k].exposed))
	delete(h.resources, k)
}

// Updated notifies the subscribers that a resource, or a resource that contains it, may have changed. If
// there are none, it notifies all subscribers to resources of the upstream, because only the
// upstream understands the relation. It does not block.
func (ls *Listeners) Updated(u upstream.Update) {
	name, uri := u.Upstream, u.URI
	ls.mu.Lock()
	defer ls.mu.Unlock()
	type found struct {
		h       *Subscriber
		known   bool // the client has subscribed to this very URI
		exposed string
	}
	var certain, others []found
	for h := range ls.subscribers {
		if u.User != "" && u.User != h.Principal.ID {
			continue
		}
		sure, known, exposed := false, false, view.ExposeURI(name, uri)
		if h.Endpoint.View.Bare {
			exposed = uri
		}
		var b view.Backend
		for key, sub := range h.resources {
			if key.upstream != name || !u.Of(sub.from, key.uri) {
				continue
			}
			b = sub.backend
			if key.uri == uri {
				exposed, sure, known = sub.exposed, true, true
			} else if isPart(uri, key.uri) {
				sure = true
			}
		}
		if b == nil || !h.Subject.Ruling(view.NewResource(b, uri, exposed, false)).Visible() {
			continue
		}
		if sure {
			certain = append(certain, found{h, known, exposed})
		} else {
			others = append(others, found{h, known, exposed})
		}
	}
	if len(certain) == 0 {
		certain = others
	}
	for _, f := range certain {
		if !f.known {
			f.exposed = f.h.Subject.Redact.URI(f.exposed)
		}
		ls.deliver(f.h, note{method: mcp.MethodNotificationResourceUpdated, uri: f.exposed})
	}
}

// isPart reports whether a URI is below another URI.
func isPart(uri, whole string) bool {
	rest, ok := strings.CutPrefix(uri, strings.TrimSuffix(whole, "/"))
	return ok && rest != "" && strings.ContainsRune("/?#", rune(rest[0]))
}

// Enter adds a subscriber for a request, or returns that of the session on the endpoint. The subscriber
// stays until Leave at least. stream is that of a subscriptions/listen, else session is that of the
// request. held is an empty grant for the resources.
func (ls *Listeners) Enter(c scope.Caller, stream *Listener, session *Session, held budget.Grant) *Subscriber {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for h := range ls.subscribers {
		if session != nil && h.session == session && h.Endpoint.Name == c.Endpoint.Name {
			h.requests++
			return h
		}
	}
	h := &Subscriber{Caller: c, stream: stream, session: session, resources: map[resourceKey]subscription{},
		held: held, requests: 1}
	ls.subscribers[h] = struct{}{}
	return h
}

// Leave ends a request of a subscriber. It ends the subscriptions of a subscriptions/listen, and those of
// a session that has ended meanwhile.
func (ls *Listeners) Leave(h *Subscriber) {
	ls.mu.Lock()
	h.requests--
	ls.mu.Unlock()
	if h.session == nil || h.session.ended.Load() {
		ls.release(h, nothing)
	} else {
		ls.release(h, everything)
	}
}

// Unsubscribe ends the subscription to a resource, if there is one.
func (ls *Listeners) Unsubscribe(h *Subscriber, t *view.Target) {
	ended := resourceKey{t.Backend.Name(), t.Name}
	ls.release(h, func(k resourceKey) bool { return k != ended })
}

// release ends the subscriptions for which keep returns false, and removes a subscriber that has
// none left, and no request in progress.
func (ls *Listeners) release(h *Subscriber, keep func(resourceKey) bool) {
	type source struct {
		backend view.Backend
		from    upstream.Source
	}
	ended := map[source][]string{}
	ls.mu.Lock()
	for key, sub := range h.resources {
		if !keep(key) {
			from := source{sub.backend, sub.from}
			ended[from] = append(ended[from], key.uri)
			h.unsubscribed(key)
		}
	}
	if len(h.resources) == 0 && h.requests == 0 {
		delete(ls.subscribers, h)
	}
	ls.mu.Unlock()
	for s, uris := range ended {
		s.backend.Unsubscribe(s.from, uris)
	}
}

func nothing(resourceKey) bool    { return false }
func everything(resourceKey) bool { return true }

// Forget ends the subscriptions of a session that has ended, or has left the memory.
func (ls *Listeners) Forget(s *Session) {
	ls.mu.Lock()
	var ended []*Subscriber
	for h := range ls.subscribers {
		if h.session == s {
			ended = append(ended, h)
			delete(ls.subscribers, h) // requests in progress add nothing any more
		}
	}
	ls.mu.Unlock()
	for _, h := range ended {
		ls.release(h, nothing)
	}
}

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

// mostMoving limits the subscriptions to one upstream that move at the same time after a change of the
// configuration. A higher limit would let them wait for each other at a slow server.
const mostMoving = 4

// moved is a subscription whose upstream was replaced by another one.
type moved struct {
	h        *Subscriber
	key      resourceKey
	caller   scope.Caller
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
					lists[b] = append(lists[b], moved{h, key, h.Caller, sub.backend, b})
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

// moveTo moves a subscription to the new upstream. If the new upstream does not accept it, the
// subscription ends.
func (ls *Listeners) moveTo(m moved) {
	ctx, cancel := context.WithTimeout(ls.options.Ending, subscribePatience)
	from, got, err := m.now.Subscribe(ctx, m.caller.Who.Profile, m.caller.Who.Session, m.caller.User(),
		[]string{m.key.uri})
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
		m.h.resources[m.key] = subscription{sub.exposed, m.now, from}
		// an update may have been missed
		ls.deliver(m.h, note{method: mcp.MethodNotificationResourceUpdated, uri: sub.exposed})
	default:
		m.h.unsubscribed(m.key)
	}
	ls.mu.Unlock()
	m.old.Unsubscribe(sub.from, []string{m.key.uri})
}
