package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"junction/upstream/client"
	"junction/upstream/pace"
	"junction/upstream/raw"
)

// This file implements subscriptions to the resources of an upstream. Subscribers are counted:
// Junction subscribes at the server for the first subscriber and unsubscribes after the last one
// has gone. The subscription uses the connection that the subscribers' calls use, keeps that
// connection open, and is repeated after each reconnect.

// Source identifies the connection over which resources are followed. The zero value identifies no
// connection.
type Source struct{ *subscriptions }

// subscriptions holds the resource subscriptions over one link.
type subscriptions struct {
	p    *pool
	busy chan struct{} // 1-buffered; full while a goroutine subscribes or unsubscribes at the server
	// 1-buffered; receives when the server follows resources without a subscriber
	stale chan struct{}

	mu     sync.Mutex
	wanted map[string]int // number of subscribers, by URI
	// the link that is kept open while there are subscribers; otherwise nil
	openLink *link
	conn     client.Conn     // the conn that the state below belongs to
	followed map[string]bool // resources that conn follows; changed only by the holder of busy
	lacking  map[string]bool // resources that are wanted and not followed
	idle     map[string]bool // resources that are followed and not wanted
	before   []string        // the resources that were wanted when conn replaced another one
}

// subscriptions returns the subscriptions over the link with that key.
func (p *pool) subscriptions(key linkKey) *subscriptions {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.subs[key]
	if s == nil {
		s = &subscriptions{p: p, busy: make(chan struct{}, 1), stale: make(chan struct{}, 1), wanted: map[string]int{}}
		s.begin(nil)
		p.subs[key] = s
	}
	return s
}

// unlink removes an ended link from its subscriptions, and deletes subscriptions without a
// subscriber; p.mu is held.
func (p *pool) unlink(l *link) {
	s := p.subs[l.key]
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.openLink == l {
		s.openLink = nil
	}
	if len(s.wanted) == 0 && l.key != p.reading() {
		delete(p.subs, l.key)
	}
}

// begin resets the state for a new conn, which follows nothing yet; mu is held.
func (s *subscriptions) begin(c client.Conn) {
	s.conn, s.followed, s.lacking, s.idle = c, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for uri := range s.wanted {
		s.lacking[uri] = true
	}
}

// errNoSubscriptions means that the server does not support resource subscriptions.
var errNoSubscriptions = errors.New("the server takes no subscriptions to resources")

// subscribes reports whether a server is asked to subscribe to resources. A legacy server is asked although
// it does not declare subscriptions, as the reference clients ask it: there are proxies that pass such
// requests on.
func subscribes(era client.Era, declared raw.Object) bool {
	return era == client.EraLegacy || declared.IsTrue("resources", "subscribe")
}

// Subscribe subscribes to resources, so that Hooks.ResourceUpdated is called when one of them
// changes. of has what decides about the connection of the client. Subscribe returns the URIs that the
// server accepted; each of these needs one Unsubscribe with the same Source. The error is the reason for
// the others: a *jsonrpc.Error if the server returned it.
func (p *pool) Subscribe(ctx context.Context, of *Call, uris []string) (Source, []string, error) {
	if c := p.Catalog(); !c.Listed.IsZero() && !subscribes(c.Era, c.Capabilities) {
		return Source{}, nil, errNoSubscriptions
	}
	if p.placeless(of) {
		return Source{}, nil, &Error{p.name, client.KindUnavailable, errNoFolder}
	}
	key := p.keyOf(of, false).ofJunction()
	l, c, err := p.take(ctx, key, waiter{folders: of.Folders})
	if err != nil {
		return Source{}, nil, &Error{p.name, client.KindUnavailable, err}
	}
	defer l.release()
	if info := c.Info(); !subscribes(info.Era, info.Capabilities) {
		return Source{}, nil, errNoSubscriptions
	}
	if !p.claim(l) {
		return Source{}, nil, &Error{p.name, client.KindBusy,
			fmt.Errorf("subscriptions of %d users are open (half of max_links)", p.share())}
	}
	defer l.releaseSubscription()
	s := p.subscriptions(key)
	accepted, err := s.subscribe(ctx, l, c, uris)
	return Source{s}, accepted, err
}

// claim keeps a link open for a subscription. It returns false if subscriptions already keep half
// of max_links, because calls need links, too. After true, the caller must call releaseSubscription.
func (p *pool) claim(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	others := 0
	for _, other := range p.links {
		if other != l && !other.readsShared && other.heldForSubscription() {
			others++
		}
	}
	if others >= p.share() && !l.readsShared && !l.heldForSubscription() {
		return false
	}
	l.holdForSubscription()
	return true
}

func (s *subscriptions) subscribe(ctx context.Context, l *link, c client.Conn, uris []string) ([]string, error) {
	select {
	case s.busy <- struct{}{}:
		defer s.free()
	case <-ctx.Done():
		return nil, &Error{s.p.name, client.KindTimeout, context.Cause(ctx)}
	}
	err := s.sync(ctx, c, uris)
	s.mu.Lock()
	defer s.mu.Unlock()
	var accepted []string
	for _, uri := range uris {
		if s.conn == c && s.followed[uri] {
			accepted = append(accepted, uri)
			s.wanted[uri]++
			delete(s.idle, uri)
		}
	}
	s.keep(l)
	return accepted, err
}

// keep holds the link open if there are subscribers; mu is held.
func (s *subscriptions) keep(l *link) {
	if len(s.wanted) > 0 && s.openLink == nil {
		l.holdForSubscription()
		s.openLink = l
	}
}

// Unsubscribe ends subscriptions that Subscribe returned. It does not wait for the server.
func (p *pool) Unsubscribe(from Source, uris []string) {
	if s := from.subscriptions; s != nil {
		s.unsubscribe(uris)
	}
}

func (s *subscriptions) unsubscribe(uris []string) {
	s.mu.Lock()
	for _, uri := range uris {
		if s.wanted[uri]--; s.wanted[uri] <= 0 {
			delete(s.wanted, uri)
			if delete(s.lacking, uri); s.followed[uri] {
				s.idle[uri] = true
			}
		}
	}
	var unused *link
	if len(s.wanted) == 0 {
		unused, s.openLink = s.openLink, nil
	}
	s.mu.Unlock()
	if unused != nil {
		unused.releaseSubscription()
	}
	pace.Wake(s.stale)
}

// sync makes c follow the wanted resources and those in more, and no others. Only the changes are
// sent to the server. The caller holds busy.
func (s *subscriptions) sync(ctx context.Context, c client.Conn, more []string) error {
	s.mu.Lock()
	if s.conn != c {
		s.begin(c)
		s.before = slices.Sorted(maps.Keys(s.wanted))
	}
	added, removed := slices.Collect(maps.Keys(s.lacking)), slices.Collect(maps.Keys(s.idle))
	for _, uri := range more {
		if !s.followed[uri] && !s.lacking[uri] {
			added = append(added, uri)
		}
	}
	removed = slices.DeleteFunc(removed, func(uri string) bool { return slices.Contains(more, uri) })
	for _, uri := range removed { // if this request fails, the next sync repeats it
		delete(s.followed, uri)
		delete(s.idle, uri)
	}
	s.mu.Unlock()
	if len(added) == 0 && len(removed) == 0 {
		return nil
	}
	slices.Sort(added)
	added = slices.Compact(added)
	accepted, err := c.Follow(ctx, func() []string { return s.all(more) }, added, removed)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uri := range accepted {
		s.followed[uri] = true
		if delete(s.lacking, uri); s.wanted[uri] == 0 { // until subscribe counts the subscriber
			s.idle[uri] = true
		}
	}
	return err
}

// all returns the sorted URIs of the wanted resources and of more.
func (s *subscriptions) all(more []string) []string {
	s.mu.Lock()
	all := slices.AppendSeq(slices.Clone(more), maps.Keys(s.wanted))
	s.mu.Unlock()
	slices.Sort(all)
	return slices.Compact(all)
}

// resubscribe makes a new conn follow the wanted resources. Updates were missed while there was no
// conn, so it then reports all resources wanted before as possibly changed.
func (s *subscriptions) resubscribe(ctx context.Context, l *link, c client.Conn) {
	ctx, cancel := context.WithTimeout(ctx, s.p.connConfig.ConnectTimeout)
	defer cancel()
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done():
		return
	}
	err := s.sync(ctx, c, nil)
	s.mu.Lock()
	before := s.before
	s.before = nil
	s.keep(l)
	s.mu.Unlock()
	s.free()
	if err != nil && ctx.Err() == nil {
		s.p.log.Warn("the server no longer follows all subscribed resources", "error", s.p.shown(err))
	}
	if len(before) > 0 {
		s.missed(before)
	}
}

// free lets the next goroutine hold busy. If resources have lost their last subscriber meanwhile, withdraw
// has done nothing about them, so free wakes it again.
func (s *subscriptions) free() {
	<-s.busy
	s.mu.Lock()
	idle := len(s.idle) > 0
	s.mu.Unlock()
	if idle {
		pace.Wake(s.stale)
	}
}

// withdraw unsubscribes from resources without a subscriber. It does nothing while another
// goroutine holds busy: then free wakes the link again.
func (s *subscriptions) withdraw(ctx context.Context, c client.Conn) {
	ctx, cancel := context.WithTimeout(ctx, s.p.connConfig.ConnectTimeout)
	defer cancel()
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
		if err := s.sync(ctx, c, nil); err != nil {
			s.p.log.Debug("cannot unsubscribe from unused resources", "error", err)
		}
	default:
	}
}

// missed reports those of the resources that have subscribers as possibly changed; nil means all.
func (s *subscriptions) missed(uris []string) {
	if uris == nil {
		uris = s.all(nil)
	}
	for _, uri := range uris {
		s.mu.Lock()
		_, wanted := s.wanted[uri]
		s.mu.Unlock()
		if wanted {
			s.updated(uri, nil)
		}
	}
}

// updated relays an update of a resource to the hook.
func (s *subscriptions) updated(uri string, matches func(string) bool) {
	if tell := s.p.options.Hooks.ResourceUpdated; tell != nil {
		tell(Update{Upstream: s.p.name, User: s.p.user, URI: uri, Source: Source{s}, matches: matches})
	}
}
