package proxy

import (
	"context"
	"strings"

	"junction/proxy/view"
	"junction/upstream"
)

// This file holds what happens to requests about upstreams that were not listed yet, because they
// are starting or cannot be reached.

// awaitLists gives servers that are starting a moment, so that a client that lists its tools once
// finds them. Servers whose catalog is known are not waited for.
func (s *Server) awaitLists(ctx context.Context, x *exchange) {
	seen, waited := x.share.Sight(), false
	if seen.Settled && !seen.Separates {
		return
	}
	x.rest()
	ctx, cancel := context.WithTimeout(ctx, x.world.config.FirstWait)
	defer cancel()
	for st := range seen.Stocks() {
		b := st.Backend
		if st.Catalog.Listed.IsZero() && !b.Tried() {
			waited = true
			select {
			case <-b.Met():
			case <-ctx.Done():
			}
		}
		waited = b.Prepare(ctx, x.who.profile, x.who.session, x.user()) || waited
	}
	if waited {
		s.lookAgain(x)
	}
}

// lookAgain moves the request into the world as it is now. If the caller has lost its rights
// meanwhile, the request keeps the old world.
func (s *Server) lookAgain(x *exchange) {
	s.Settle()
	if now := s.world.Load().adopt(x.caller); now.share != nil {
		x.caller = now
	}
}

// awaitNamed finds a tool or prompt that is not there yet: its name begins like those of an
// upstream that was not listed so far. It waits for the upstream as calls of known tools do. The
// target is nil when there is no such tool; the error says why the upstream is not available.
func (s *Server) awaitNamed(ctx context.Context, x *exchange, p upstream.Part, name string, info *CallInfo) (*view.Target, error) {
	b := x.unlisted(name)
	if b == nil {
		return nil, nil
	}
	info.Upstream = b.Name()
	x.begin()
	err := b.Ready(ctx)
	s.lookAgain(x)
	if t := x.named(p, name, info); t != nil || err == nil || !b.Catalog().Listed.IsZero() {
		return t, nil
	}
	return nil, err
}

// unlisted returns the upstream that a name belongs to, if it was not listed so far and the caller
// may use something of it; nil otherwise.
func (x *exchange) unlisted(name string) (found view.Backend) {
	longest := -1
	for st := range x.share.Sight().Stocks() {
		b, begin := st.Backend, ""
		if !x.share.View.Bare {
			begin = x.world.config.Names.Full(view.PrefixOf(b), "")
		}
		if strings.HasPrefix(name, begin) && len(begin) > longest {
			found, longest = b, len(begin)
			if !st.Catalog.Listed.IsZero() {
				found = nil
			}
		}
	}
	return found
}
