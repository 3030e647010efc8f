package upstream

import (
	"context"
)

// This file holds the catalogs of callers whose connection is their own (isolation, or questions:
// exact). Such a server may offer them something else than others.

// maxOwn bounds the catalogs of one upstream that are not the shared one.
const maxOwn = 256

// ownCatalogs are those that differ from the shared one, by the key of their link. Guarded by
// pool.mu.
type ownCatalogs map[linkKey]*Catalog

// CatalogFor returns what the upstream offers to a client: the catalog of its own connection, if it
// has one that offers something else than Catalog. It is never nil.
func (p *pool) CatalogFor(own Profile, session, principal string) *Catalog {
	if !p.separates() {
		return p.Catalog()
	}
	return p.catalogOf(p.key(own, session, principal, false))
}

// catalogOf returns the catalog of the callers of a link.
func (p *pool) catalogOf(key linkKey) *Catalog {
	if !p.separates() {
		return p.Catalog()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.own[key]; c != nil {
		return c
	}
	return p.Catalog()
}

// Separates reports whether CatalogFor may differ from Catalog.
func (p *pool) Separates() bool { return p.separates() }

// Prepare connects for a client whose catalog depends on its capabilities (questions: exact), and
// waits until the connection was made or has failed, or ctx ends. It reports whether it had to.
func (p *pool) Prepare(ctx context.Context, own Profile, session, principal string) bool {
	if p.hard.Questions != QuestionsExact || p.Catalog().Era != EraLegacy {
		return false
	}
	key := p.key(own, session, principal, false)
	p.mu.Lock()
	known := key == p.reading() || p.own[key] != nil
	p.mu.Unlock()
	if known {
		return false
	}
	if l, _, err := p.take(ctx, key); err == nil {
		l.release()
	}
	return true
}

// publishOwn makes cat the catalog of the callers of a link; p.mu is held.
func (p *pool) publishOwn(key linkKey, cat *Catalog) {
	old := p.own[key]
	if p.hard.Questions != QuestionsExact && cat.equal(p.Catalog()) {
		if old != nil {
			delete(p.own, key)
			p.tellOwn()
		}
		return
	}
	if old != nil && old.equal(cat) {
		return
	}
	if p.own == nil {
		p.own = ownCatalogs{}
	}
	for other := range p.own {
		if len(p.own) < maxOwn {
			break
		}
		delete(p.own, other) // its callers see the shared one until it is read again
	}
	p.own[key] = cat
	p.tellOwn()
}

// forgetOwn drops the catalog of a link that has ended. Where the catalog depends on nothing but
// the capabilities of the client, it stays true.
func (p *pool) forgetOwn(key linkKey) {
	if p.hard.Questions == QuestionsExact && p.isolation(true) == IsolationShared {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own[key] != nil {
		delete(p.own, key)
		p.tellOwn()
	}
}

// tellOwn reports that the catalog of some callers has changed; p.mu is held.
func (p *pool) tellOwn() {
	if p.options.Hooks.OwnChanged != nil && !p.closed {
		p.options.Hooks.OwnChanged(p.name)
	}
}
