package upstream

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"junction/upstream/bounded"
	"junction/upstream/client"
	"junction/upstream/transport"
)

// catalogs are the lists of a server: those that all callers share, and those of callers with a connection of
// their own. The pool decides over which connection which of them is read, and whose they are. The last one is
// stored for the next process of Junction (remember.go).
type catalogs struct {
	name, user string // as in pool
	entry      string // Config.Entry
	ofClients  bool   // a catalog depends on the capabilities of its client: see Questions.OfClients
	options    Options
	log        *slog.Logger
	changes    transport.LogLimit // of lines about definitions: a server can change them all the time
	checks     *checks
	account    transport.Account     // of the memory for handshakes and lists; may be nil
	shown      func(err error) error // without the secrets of the server
	shared     atomic.Pointer[Catalog]
	announced  atomic.Uint64 // the number of announced changes of the lists, and of sign-ins

	mu     sync.Mutex // after pool.mu
	own    map[linkKey]*Catalog
	second []string // the holders with a second process, which are stored beside the shared catalog
	// time until the shared catalog of a lost upstream is dropped; nil while the upstream is connected
	grace    *time.Timer
	readTook time.Duration // of the last reading of the lists
	asked    time.Time     // of the last reading that a caller asked for (whenAsked); it may be in the future
	closed   bool
	replaced bool // another pool has replaced this one: its catalog is not stored any more
}

// serve makes catalogs those of a pool. They are empty, and nothing stored is used.
func (c *catalogs) serve(p *pool) {
	c.name, c.user, c.entry = p.name, p.user, p.connConfig.Entry(p.name)
	c.ofClients, c.options, c.log, c.shown = p.connConfig.Questions.OfClients(), p.options, p.log, p.shown
	if c.checks = p.options.checks; c.checks == nil {
		c.checks = newChecks(int(p.options.MessageLimit))
	}
}

// begin makes catalogs those of a pool, with the last known shared one. If that has never been read, it takes a
// stored one, and returns it; those of a user come later (recallLater).
func (c *catalogs) begin(p *pool, before *Catalog) *Catalog {
	c.serve(p)
	stored := before
	if c.user == "" {
		stored = c.recall(before)
		c.second = stored.second
	}
	c.shared.Store(stored)
	return stored
}

// last returns the shared catalog. It is nil before begin.
func (c *catalogs) last() *Catalog { return c.shared.Load() }

// of returns the catalog of the callers of a link: their own one, or the shared one.
func (c *catalogs) of(key linkKey) *Catalog {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own := c.own[key]; own != nil {
		return own
	}
	return c.last()
}

// has reports whether the callers of a link have a catalog of their own.
func (c *catalogs) has(key linkKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own[key] != nil
}

// publish replaces the shared catalog by cat.
func (c *catalogs) publish(cat *Catalog) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replace(cat)
}

// replace is publish; c.mu is held.
func (c *catalogs) replace(cat *Catalog) {
	old := c.last()
	same := old.equal(cat)
	if same && !old.since.IsZero() && !cat.since.IsZero() {
		cat.since = old.since // before others see cat: the pool of a reload begins with it
	}
	c.shared.Store(cat)
	if old != cat {
		defer old.free()
	}
	if old.SignIn != cat.SignIn {
		c.announced.Add(1)
	}
	if !same || old.Stored || old.proven != cat.proven {
		c.remember()
	}
	if same {
		if old.Stored { // the names are final now
			c.tell()
		}
		return
	}
	for _, left := range cat.Left {
		c.changes.Warn(c.log, "left out", "kind", left.Part.String(), "name", transport.OneLine(left.Name),
			"reason", transport.OneLine(left.Reason))
	}
	if n := len(cat.Mended); n > 0 { // some servers repeat one mistake in thousands of definitions
		first := cat.Mended[0]
		c.changes.Warn(c.log, "definitions changed, because clients would reject the whole list", "count", n,
			"kind", first.Part.String(), "name", transport.OneLine(first.Name),
			"changes", transport.OneLine(first.Changes))
	}
	c.tell()
}

// tell calls the hook for a changed catalog.
func (c *catalogs) tell() {
	hook := c.options.Hooks.CatalogChanged
	if c.user != "" {
		hook = c.options.Hooks.OwnChanged
	}
	if hook != nil {
		hook(c.name)
	}
}

// maxOwn limits the catalogs of one upstream in addition to the shared one.
const maxOwn = 256

// publishOwn stores the catalog of the callers of a link.
func (c *catalogs) publishOwn(key linkKey, cat *Catalog) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.own[key]
	if !c.ofClients && cat.equal(c.last()) {
		cat.free()
		if old != nil {
			c.drop(key)
			c.tellOwn()
		}
		return
	}
	if old != nil && old.equal(cat) {
		cat.free()
		return
	}
	c.drop(key)
	for other := range c.own {
		if len(c.own) < maxOwn {
			break
		}
		c.drop(other) // its callers get the shared catalog until theirs is read again
	}
	bounded.Put(&c.own, maxOwn, key, cat, nil)
	c.tellOwn()
}

// forget drops the catalog of the callers of a link, if they have one.
func (c *catalogs) forget(key linkKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own[key] != nil {
		c.drop(key)
		c.tellOwn()
	}
}

// drop is forget without the hook; c.mu is held.
func (c *catalogs) drop(key linkKey) {
	if own := c.own[key]; own != nil {
		delete(c.own, key)
		own.free()
	}
}

// tellOwn calls the hook for a changed catalog of some callers; c.mu is held.
func (c *catalogs) tellOwn() {
	if c.options.Hooks.OwnChanged != nil && !c.closed {
		c.options.Hooks.OwnChanged(c.name)
	}
}

// signedOut is the catalog of an upstream whose user has to sign in.
var signedOut = &Catalog{SignIn: true}

// lost begins the time after which the shared catalog is dropped, unless the server is found again.
func (c *catalogs) lost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.grace == nil && !c.closed {
		c.grace = time.AfterFunc(c.options.Grace, c.giveUp)
	}
}

// found ends that time.
func (c *catalogs) found() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopGrace()
}

func (c *catalogs) stopGrace() {
	if c.grace != nil {
		c.grace.Stop()
		c.grace = nil
	}
}

// giveUp drops the catalog of a server that was not found in time.
func (c *catalogs) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.last()
	if c.grace == nil || c.closed || old.Listed.IsZero() {
		return
	}
	c.replace(&Catalog{Era: old.Era, Version: old.Version, Capabilities: old.Capabilities,
		Instructions: old.Instructions})
}

// close ends the hooks for callers with catalogs of their own, and storing.
func (c *catalogs) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.stopGrace()
}

// free returns the memory of all catalogs of a pool that has ended. Callers may still read them, and another pool
// may have the shared one until it has read its own.
func (c *catalogs) free() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, own := range c.own {
		own.free()
	}
	if shared := c.last(); shared != nil {
		shared.free()
	}
}

// interval returns the time after which Junction reads a catalog of the server again without being
// told to: when its TTL ends, and at the latest after Options.Refresh, or a multiple of it if the
// server announces all changes.
func (c *catalogs) interval(cat *Catalog, info *client.Info) time.Duration {
	every := c.options.Refresh
	if _, all := info.Announces(); all {
		every *= announcedPace
	}
	if ttl := cat.ttl(); ttl > 0 {
		every = min(every, max(ttl, minRefresh))
	}
	return every
}

// whenAsked returns the time until a reading that a caller has asked for, at least pause. It counts
// the reading: all links of the pool together have at most one in askedPause, and in askedShare times
// the duration of the last one.
func (c *catalogs) whenAsked(pause time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	at := now.Add(max(0, pause))
	if next := c.asked.Add(max(askedPause, askedShare*c.readTook)); at.Before(next) {
		at = next
	}
	c.asked = at
	return at.Sub(now)
}

// took stores how long a reading has taken.
func (c *catalogs) took(d time.Duration) {
	c.mu.Lock()
	c.readTook = d
	c.mu.Unlock()
}
