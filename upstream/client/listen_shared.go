package client

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/pace"
	"junction/upstream/transport"
)

// This file manages the subscriptions of a modern server on stdio, where all of them share one
// connection. The cost of a change must not grow with the number of subscribed resources. So the
// added resources get a subscription of their own. A subscription ends some time after the last
// client has unsubscribed from its resources. The specification allows several subscriptions on one
// connection, and the client of the official Go SDK opens one for each resource.
//
// The server of the Go SDK (1.8) stores only one subscription of a connection for each resource and
// each list. When a subscription ends, the server forgets its resources and all lists. So a
// subscription in use ends only if necessary, and subscriptions do not replace each other. After
// the end of any subscription, the subscription to the lists is opened again.

const (
	listenEnd   = time.Second     // time limit for the answer to the end of a subscription
	listenTidy  = 5 * time.Second // how long an unused subscription stays open
	listenTries = 32              // rejections after which resources are not tried one by one
	listenSlop  = 64              // unused resources that may stay subscribed
)

// shared manages the subscriptions of one stdio connection. It belongs to the goroutine of
// watching.
type shared struct {
	*watcher
	lists  *listen         // the subscription to the lists; nil if the server does not announce their changes
	open   map[*listen]int // subscriptions to resources, with the number of resources in use
	proved int             // the most subscriptions that were open at once
	limit  int             // the most subscriptions that the server accepts; 0 is unknown
	mute   bool            // the server does not answer the end of a subscription
	ended  bool            // a subscription has ended since the lists were subscribed to
	look   bool            // tidy may have something to do
}

// adding is the loop of watching on stdio.
func (w *watcher) adding() {
	s := &shared{watcher: w, open: map[*listen]int{}}
	if w.any {
		s.lists = s.watcher.open(&listen{lists: true, first: true, gap: true})
	}
	var tidy <-chan time.Time
	for {
		if tidy == nil && s.look {
			if s.look = s.untidy(); s.look {
				tidy = time.After(listenTidy)
			}
		}
		select {
		case <-w.m.ctx.Done():
			return
		case f := <-w.m.follows:
			s.withdraw(f.removed)
			accepted, err := s.add(f.ctx, f.added)
			f.answer <- followed{accepted, err}
		case <-tidy:
			tidy = nil
			s.tidy()
		}
	}
}

// withLists appends the subscription to the lists, if there is one and it includes no resources.
func (s *shared) withLists(to []*listen) []*listen {
	if _, both := s.open[s.lists]; s.lists != nil && !both {
		to = append(to, s.lists)
	}
	return to
}

// count returns the number of open subscriptions.
func (s *shared) count() int { return len(s.open) + len(s.withLists(nil)) }

// unused returns the subscriptions without a resource that a client uses.
func (s *shared) unused() (list []*listen) {
	for l, wanted := range s.open {
		if wanted == 0 && l != s.lists {
			list = append(list, l)
		}
	}
	return list
}

// add subscribes to more resources. It returns those that the server accepted.
func (s *shared) add(ctx context.Context, uris []string) (accepted []string, err error) {
	var rest []string
	for _, uri := range uris {
		if s.revive(uri) {
			accepted = append(accepted, uri)
		} else {
			rest = append(rest, uri)
		}
	}
	if len(rest) == 0 {
		return accepted, nil
	}
	refusals := 0
	accepting := false // a subscription was accepted after a rejection: there is room for more
	for parts := [][]string{rest}; len(parts) > 0; {
		part := parts[len(parts)-1]
		parts = parts[:len(parts)-1]
		more, failed := s.addTogether(ctx, part, accepting)
		accepted = append(accepted, more...)
		if failed == nil {
			accepting = refusals > 0
			continue
		}
		err = failed
		if _, refused := errors.AsType[*jsonrpc.Error](err); !refused {
			return accepted, err
		}
		if refusals++; len(part) > 1 && refusals < listenTries { // one of them may be the reason
			parts = append(parts, part[len(part)/2:], part[:len(part)/2])
		}
	}
	return accepted, err
}

// addTogether subscribes to more resources with one more subscription. accepting means that a
// rejection is not about the number of subscriptions.
func (s *shared) addTogether(ctx context.Context, uris []string, accepting bool) ([]string, error) {
	if s.limit > 0 && s.count() >= s.limit {
		return s.merge(ctx, uris)
	}
	l := s.watcher.open(&listen{uris: uris})
	err := l.wait(ctx)
	if err == nil {
		s.adopt(l)
		return l.accepted, nil
	}
	s.end(l)
	limit := s.count() // the reason may be the number of subscriptions, or the resource
	if _, refused := errors.AsType[*jsonrpc.Error](err); !refused || accepting || len(uris) > 1 || limit < s.proved ||
		limit == 0 {
		return nil, err
	}
	accepted, err := s.merge(ctx, uris)
	if err == nil {
		s.limit = limit
	}
	return accepted, err
}

// revive marks a resource as used again, if its subscription is still open.
func (s *shared) revive(uri string) bool {
	l := s.m.byURI[uri]
	if l == nil || pace.IsClosed(l.ended) { // ended: the server has rejected it when it was opened again
		return false
	}
	s.m.lmu.Lock()
	defer s.m.lmu.Unlock()
	if s.m.unwanted[uri] {
		delete(s.m.unwanted, uri)
		s.open[l]++
		l.unused = false
	}
	return true
}

// withdraw marks resources as unused. Their subscriptions end later, or never.
func (s *shared) withdraw(uris []string) {
	s.m.lmu.Lock()
	defer s.m.lmu.Unlock()
	for _, uri := range uris {
		if l := s.m.byURI[uri]; l != nil && !s.m.unwanted[uri] {
			s.m.unwanted[uri] = true
			s.open[l]--
			l.unused, s.look = s.open[l] == 0, true
		}
	}
}

// adopt stores the resources that the server has accepted of a subscription.
func (s *shared) adopt(l *listen) {
	asked := map[string]bool{}
	for _, uri := range l.uris {
		asked[uri] = true
	}
	s.open[l] = 0
	s.m.lmu.Lock()
	defer s.m.lmu.Unlock()
	for _, uri := range l.accepted {
		if !asked[uri] || s.m.byURI[uri] == l {
			continue
		}
		if old := s.m.byURI[uri]; old != nil && !s.m.unwanted[uri] {
			s.open[old]--
			s.look = true
		}
		delete(s.m.unwanted, uri)
		s.m.byURI[uri] = l
		s.open[l]++
	}
	if s.open[l] == 0 && !l.lists { // a server may end an empty subscription at once, again and again
		l.stop()
		s.look = true
	}
	s.proved = max(s.proved, s.count())
}

// untidy reports whether tidy has something to do.
func (s *shared) untidy() bool {
	return s.ended && s.any || len(s.unused()) > 0 || s.wasteful()
}

// wasteful reports whether many more resources are subscribed than used.
func (s *shared) wasteful() bool {
	s.m.lmu.Lock()
	defer s.m.lmu.Unlock()
	unwanted := len(s.m.unwanted)
	return unwanted > listenSlop && unwanted > len(s.m.byURI)/2
}

// tidy ends the unused subscriptions. Then it opens the subscription to the lists again, because
// the end of another one may have ended it.
func (s *shared) tidy() {
	s.drop(s.unused())
	s.ended = false
	if s.wasteful() {
		ctx, cancel := context.WithTimeout(s.m.ctx, sendPatience)
		s.merge(ctx, nil) // the error was logged, or ends the conn
		cancel()
	} else if s.any {
		s.lists = s.watcher.open(&listen{lists: true, first: true, gap: true})
	}
}

// drop ends subscriptions and forgets their resources. It also ends the subscription to the lists,
// because the server may forget the lists.
func (s *shared) drop(list []*listen) {
	s.end(s.withLists(list)...)
	s.m.lmu.Lock()
	defer s.m.lmu.Unlock()
	for _, l := range list {
		delete(s.open, l)
		for _, uri := range l.uris {
			if s.m.byURI[uri] == l {
				delete(s.m.byURI, uri)
				delete(s.m.unwanted, uri)
			}
		}
	}
}

// merge replaces all subscriptions by one, and adds the resources more. The old ones end first, so
// a change in between may be missed. If the server rejects the new resources, the subscription gets
// the same resources as before.
func (s *shared) merge(ctx context.Context, more []string) ([]string, error) {
	var wanted []string
	s.m.lmu.Lock()
	for uri := range s.m.byURI {
		if !s.m.unwanted[uri] {
			wanted = append(wanted, uri)
		}
	}
	s.m.lmu.Unlock()
	s.drop(slices.Collect(maps.Keys(s.open)))
	s.ended, s.lists = false, nil
	all := slices.Concat(wanted, more)
	l := s.watcher.open(&listen{uris: all, lists: s.any, first: len(more) == 0, gap: true, before: wanted})
	err := l.wait(ctx)
	if err != nil && len(more) > 0 {
		if s.end(l); len(wanted) == 0 && !s.any {
			return nil, err
		}
		l = s.watcher.open(&listen{uris: wanted, lists: s.any, first: true, gap: true, before: wanted})
		l.wait(ctx) // after a failure, keep tries again
		more = nil
	}
	if s.any {
		s.lists = l
	}
	s.put(l)
	if err != nil {
		return nil, err
	}
	var accepted []string
	for _, uri := range more {
		if s.m.byURI[uri] == l {
			accepted = append(accepted, uri)
		}
	}
	return accepted, nil
}

// put stores the subscription of merge. If the server has not acknowledged it yet, all of its
// resources count as used, because keep tries again.
func (s *shared) put(l *listen) {
	if pace.IsClosed(l.settled) && l.err == nil {
		s.adopt(l)
		return
	}
	s.open[l] = len(l.uris)
	s.m.lmu.Lock()
	defer s.m.lmu.Unlock()
	for _, uri := range l.uris {
		s.m.byURI[uri] = l
	}
}

// end ends subscriptions, and waits for the server's answers. After a server has not answered once,
// end does not wait for it again.
func (s *shared) end(list ...*listen) {
	sending, cancel := context.WithTimeout(s.m.ctx, sendPatience)
	defer cancel()
	known := true // all were acknowledged, so a server without an answer is not just slow
	for _, l := range list {
		l.stop()
		s.m.lmu.Lock()
		id := l.id
		l.unused = true
		s.m.lmu.Unlock()
		known = known && pace.IsClosed(l.settled) && l.err == nil
		if id == "" {
			continue
		}
		params := append(append([]byte(`{"requestId":`), id...), '}')
		end := &transport.Request{Message: jsonrpc.Message{Method: string(mcp.MethodNotificationCancelled),
			Params: params}}
		if err := s.m.transport.Send(sending, end); err != nil {
			s.m.log.Debug("cannot tell the server that a subscription ended", "error", err)
		}
	}
	if len(list) > 0 {
		s.ended, s.look = true, true
	}
	var late <-chan time.Time
	if !s.mute {
		late = time.After(listenEnd)
	}
	for _, l := range list {
		if !s.mute {
			select {
			case <-l.ended:
				continue
			case <-late:
				s.mute = known
				late = closedTime
			case <-s.m.ctx.Done():
			}
		}
		l.drop()
		<-l.ended
	}
}

// closedTime is a channel that is closed.
var closedTime = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()
