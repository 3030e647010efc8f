package listeners

import "container/list"

// This file bounds the memory of requests that are being read, so that clients without a key cannot use
// it up. Beyond the share of a network, or of all, the connection that has waited longest is closed.

// countedConn counts for its networks, and for all.
type countedConn struct {
	boundConn
	in *Bounded

	// guarded by in.mu
	uses   []*use // the smallest network first, all last
	held   int
	places []*list.Element // in use.holding of each of uses; nil while nothing is held
	closed bool
}

// firstHead is what a connection may hold before its first request is complete, even if others then have
// to be closed. It may hold more if there is room.
const firstHead = 16 << 10

// Hold implements http1.Holder.
func (c *countedConn) Hold(n int, first bool) bool {
	b := c.in
	b.mu.Lock()
	evicted, limit := c.hold(n, first && n > firstHead)
	ok := !c.closed
	b.mu.Unlock()
	for _, g := range evicted {
		b.warn(unfinished, "connections are closed: unfinished requests take all memory that they may have. "+
			"If the address is a reverse proxy, add it to auth.trusted_proxies", "address", g.RemoteAddr(),
			"limit", limit)
		g.Close()
	}
	return ok
}

// hold counts n bytes in place of what was held. Connections that have to be closed are gone: c itself, if
// it may hold that much only while there is room. in.mu is held.
func (c *countedConn) hold(n int, yields bool) (evicted []*countedConn, limit int) {
	if n == 0 || c.closed {
		c.drop()
		return nil, 0
	}
	for _, u := range c.uses {
		for u.now.held-c.held+n > u.most.held {
			next := c
			if longest := u.holding.Front(); longest != nil && !yields {
				next = longest.Value.(*countedConn)
			}
			next.drop()
			next.closed = true
			evicted, limit = append(evicted, next), u.most.held
			if next == c {
				return evicted, limit
			}
		}
	}
	if c.places == nil {
		for _, u := range c.uses {
			c.places = append(c.places, u.holding.PushBack(c))
		}
	}
	for _, u := range c.uses {
		u.now.held += n - c.held
	}
	c.held = n
	return evicted, limit
}

// drop counts that the connection holds nothing. in.mu is held.
func (c *countedConn) drop() {
	for i, place := range c.places {
		c.uses[i].now.held -= c.held
		c.uses[i].holding.Remove(place)
	}
	c.held, c.places = 0, nil
}
