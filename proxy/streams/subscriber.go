package streams

import (
	"junction/proxy/budget"
	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
)

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
	folders *upstream.Folders // of the client, for a server that works in them; nil for none
	from    upstream.Source
}

// call returns what decides about the connection of the subscriber's requests. folders are those of the client;
// nil for none. Listeners.mu is held.
func (h *Subscriber) call(folders *upstream.Folders) *upstream.Call {
	c := upstream.Coming(h.Who.Profile, h.Who.Session, h.User())
	c.Account, c.Folders = h.held.Name(), folders
	return c
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

// Enter adds a subscriber for a request, or returns that of the session on the endpoint. The subscriber
// stays until Leave at least. stream is that of a subscriptions/listen, else session is that of the
// request. held is an empty grant for the resources.
func (ls *Listeners) Enter(c scope.Caller, stream *Listener, session *Session, held budget.Grant) *Subscriber {
	c = c.Alone()
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

// source is where subscriptions were made.
type source struct {
	backend view.Backend
	from    upstream.Source
}

// release ends the subscriptions for which keep returns false, and removes a subscriber that has
// none left, and no request in progress.
func (ls *Listeners) release(h *Subscriber, keep func(resourceKey) bool) {
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
