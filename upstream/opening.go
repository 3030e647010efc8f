package upstream

import (
	"context"
	"errors"
	"time"

	"junction/upstream/client"
)

// This file opens the conn of a link. The lists of a server may decide in which era it is used: proxies
// made with create_proxy of FastMCP answer a client of the modern era with empty lists, and a legacy
// one with everything. So a server that has nothing in the lists that it declares in the modern era is
// asked in the legacy era, too.

// opened is a conn that is ready for calls.
type opened struct {
	client.Conn
	listening <-chan struct{} // see Conn.Watch; nil if the conn does not watch
	catalog   *Catalog        // nil if the link reads none
}

// open opens a conn for the link, and reads its catalog. ctx ends with connect_timeout.
func (l *link) open(ctx context.Context) (opened, error) {
	p := l.pool
	c, err := l.dial(ctx)
	if err != nil {
		return opened{}, l.explain(err)
	}
	o := opened{Conn: c}
	if l.listens() {
		o.listening = c.Watch()
	}
	if !l.readsCatalog {
		return o, nil
	}
	if o.catalog, err = p.lists.read(ctx, c, p.catalogOf(l.key)); err != nil {
		c.Close()
		return opened{}, err
	}
	other := p.askLegacy(ctx, l.pool.eraDialer(l), l.key.profile, l.hooks(l.relist), o.catalog)
	if l.readsShared {
		p.legacyAlone.Store(other.catalog != nil)
	}
	l.unasked = time.Time{}
	if p.mayBeLegacy(o.catalog) {
		l.unasked = time.Now()
	}
	if other.catalog == nil {
		return o, nil
	}
	o.discard()
	return other, nil
}

// discard closes a conn whose catalog is not served.
func (o *opened) discard() {
	o.Close()
	o.catalog.free()
}

// askLegacy asks a server for its lists in the legacy era if its lists of the modern era are all empty.
// It returns the legacy conn if there are items, and otherwise no conn. For a command this is one more
// process, which has ended when askLegacy returns no conn. A server that has nothing in both eras, or
// rejects initialize, is not asked again by this pool. askLegacy takes at most half of the time that is
// left, so that an attempt does not fail because of it.
func (p *pool) askLegacy(
	ctx context.Context, d *client.Dialer, profile client.Profile, hooks client.Hooks, modern *Catalog,
) opened {
	if !p.mayBeLegacy(modern) {
		return opened{}
	}
	if end, ok := ctx.Deadline(); ok {
		limited, cancel := context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
		ctx = limited
	}
	c, err := d.DialLegacy(ctx, profile, hooks)
	if err != nil {
		p.emptyInBoth.Store(errors.Is(err, client.ErrNoLegacySession))
		p.log.Debug("the lists of the server are empty, and it cannot be asked in the legacy era",
			"error", p.shown(err))
		return opened{}
	}
	o := opened{Conn: c, listening: c.Watch()}
	if o.catalog, err = p.lists.read(ctx, c, &Catalog{}); err != nil {
		c.Close()
		p.log.Debug("the lists of the server are empty, and those of the legacy era cannot be read",
			"error", p.shown(err))
		return opened{}
	}
	if o.catalog.empty() {
		p.emptyInBoth.Store(len(o.catalog.Left) == 0) // a list that could not be read may have items
		o.discard()
		return opened{}
	}
	p.log.Info("the lists of the server are empty in the modern era; it is used in the legacy era")
	return o
}

// mayBeLegacy reports whether a server with this catalog may have items in the legacy era alone.
func (p *pool) mayBeLegacy(c *Catalog) bool {
	return p.connConfig.Era.Detects() && c.hollow() && !p.emptyInBoth.Load()
}

// askAgainAfter is the least time until a server is asked again in the legacy era over one connection.
const askAgainAfter = time.Minute

// errOtherEra ends a connection of the modern era to a server that has nothing there.
var errOtherEra = errors.New("the lists of the server are empty in the modern era, and not in the legacy era")

// asksAgain reports whether the server has items in the legacy era, if that could not be found out when the
// conn was opened. It is called after each refresh of the lists. The next connection is then made in the
// legacy era.
func (l *link) asksAgain(ctx context.Context) bool {
	if l.unasked.IsZero() || time.Since(l.unasked) < askAgainAfter {
		return false
	}
	ctx, cancel := l.limitOpening(ctx)
	defer cancel()
	modern := l.pool.catalogOf(l.key)
	other := l.pool.askLegacy(ctx, l.pool.eraDialer(l), l.key.profile, client.Hooks{Changed: func() {}}, modern)
	if l.unasked = time.Now(); !l.pool.mayBeLegacy(modern) {
		l.unasked = time.Time{}
	}
	if other.catalog == nil {
		return false
	}
	other.discard()
	return true
}

// empty reports whether the catalog has no items.
func (c *Catalog) empty() bool {
	for p := range Parts {
		if c.Items(p) > 0 {
			return false
		}
	}
	return true
}

// hollow reports whether a server of the modern era declares lists, and has nothing in any of them.
func (c *Catalog) hollow() bool {
	has := false
	for _, list := range c.Fresh {
		has = has || list.Has
	}
	return c.Era == client.EraModern && has && c.empty() && len(c.Left) == 0
}
