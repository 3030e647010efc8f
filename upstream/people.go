package upstream

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// This file holds the upstreams at which each user signs in. Each user has an Upstream of their
// own, with links, sessions and a catalog that use only that user's token.

// people holds the per-user upstreams of a Set. It has its own lock because the callback of Apply
// may call Of.
type people struct {
	mu      sync.Mutex
	configs map[string]resolved // of the upstreams; empty after close
	options Options             // from the last Apply
	byUser  map[string]*userUpstreams
	checks  map[string]*checks // of the users of an upstream together
	seats   map[string]*seats  // as checks
}

// start starts the upstream of a user; p.mu is held.
func (p *people) start(name, user string) *Upstream {
	o := p.options
	if o.checks = p.checks[name]; o.checks == nil {
		o.checks = newChecks(int(o.MessageLimit))
		if p.checks == nil {
			p.checks = map[string]*checks{}
		}
		p.checks[name] = o.checks
	}
	if o.seats = p.seats[name]; o.seats == nil {
		o.seats = new(seats)
		if p.seats == nil {
			p.seats = map[string]*seats{}
		}
		p.seats[name] = o.seats
	}
	return start(name, user, p.configs[name], o, &Catalog{})
}

// userUpstreams holds the upstreams of one user. It is guarded by people.mu.
type userUpstreams struct {
	running map[string]*Upstream
	used    time.Time // time of the last call of Of, or of Rest during a call to one of them
}

// Of returns the upstreams to which a subject has a credential of their own, in one of the modes that the
// subject may have, sorted by name. It starts those that are not running, and does not wait for them.
func (s *Set) Of(user string, may func(AuthMode) bool) []*Upstream {
	p := &s.people
	p.mu.Lock()
	defer p.mu.Unlock()
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(p.configs)), func(name string) bool {
		return !may(p.configs[name].Auth.Mode)
	})
	if len(names) == 0 {
		return nil
	}
	its := p.byUser[user]
	if its == nil {
		its = &userUpstreams{running: map[string]*Upstream{}}
		if p.byUser == nil {
			p.byUser = map[string]*userUpstreams{}
		}
		p.byUser[user] = its
	}
	its.used = time.Now()
	var list []*Upstream
	for _, name := range names {
		if its.running[name] == nil {
			its.running[name] = p.start(name, user)
		}
		list = append(list, its.running[name])
	}
	return list
}

// Renew must be called after a user's sign-in at an upstream has changed or was removed.
// Connections that use the old sign-in end, and are replaced.
func (s *Set) Renew(user, name string) { s.renew(user, name, nil) }

// renew is Renew; if stale is not nil, only for an upstream of that pool.
func (s *Set) renew(user, name string, stale *pool) {
	p := &s.people
	p.mu.Lock()
	its := p.byUser[user]
	if stale != nil && (its == nil || its.running[name] == nil || its.running[name].pool != stale) {
		p.mu.Unlock()
		return
	}
	var old *Upstream
	if its != nil && its.running[name] != nil {
		old = its.running[name]
		old.lists.endStoring()
	}
	// the stored catalog may belong to another account
	if c, known := p.configs[name]; known && p.options.Store != nil {
		p.options.Store.Delete(c.Entry(name), user)
	}
	if old == nil {
		p.mu.Unlock()
		return
	}
	its.running[name] = p.start(name, user)
	s.retiring.Go(func() { s.retire(old) })
	changed := p.options.Hooks.OwnChanged
	p.mu.Unlock()
	if changed != nil {
		changed(name)
	}
}

// Rest ends the upstreams of users who had no call in progress, and for whom Of was not called, for the
// given time. The next Of starts them again. Rest must be called more often: it notices the calls.
func (s *Set) Rest(idle time.Duration) {
	p := &s.people
	p.mu.Lock()
	defer p.mu.Unlock()
	for user, its := range p.byUser {
		if its.calling() {
			its.used = time.Now()
			continue
		}
		if time.Since(its.used) < idle {
			continue
		}
		for _, u := range its.running {
			s.retiring.Go(func() { s.retire(u) })
		}
		delete(p.byUser, user)
	}
}

// leave ends the upstreams of users who have gone, when their calls have ended.
func (s *Set) leave(gone func(principal string) bool) {
	p := &s.people
	p.mu.Lock()
	defer p.mu.Unlock()
	for user, its := range p.byUser {
		if !gone(user) {
			continue
		}
		for _, u := range its.running {
			s.retiring.Go(func() { s.retire(u) })
		}
		delete(p.byUser, user)
	}
}

// calling reports whether a call to one of the upstreams is in progress.
func (its *userUpstreams) calling() bool {
	for _, u := range its.running {
		if u.calling() {
			return true
		}
	}
	return false
}

// Degraded returns for each upstream that users sign in to how many connections of all users are
// degraded.
func (s *Set) Degraded() map[string]int {
	p := &s.people
	p.mu.Lock()
	defer p.mu.Unlock()
	degraded := map[string]int{}
	for name := range p.configs {
		degraded[name] = 0
	}
	for _, its := range p.byUser {
		for name, u := range its.running {
			degraded[name] += int(u.degraded.Load())
		}
	}
	return degraded
}

// apply replaces the configuration of the per-user upstreams, and returns the upstreams that the
// caller must retire.
func (p *people) apply(configs map[string]resolved, o Options) (removed []*Upstream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.configs, p.options = configs, o
	maps.DeleteFunc(p.checks, func(name string, _ *checks) bool { _, there := configs[name]; return !there })
	maps.DeleteFunc(p.seats, func(name string, _ *seats) bool { _, there := configs[name]; return !there })
	for _, its := range p.byUser {
		for name, u := range its.running {
			if c, there := configs[name]; there {
				its.running[name] = u.adapt(c, o)
			} else {
				delete(its.running, name)
			}
			if now := its.running[name]; now == nil || now.pool != u.pool {
				removed = append(removed, u)
			}
		}
	}
	return removed
}

// close returns all running upstreams, which the caller must close. No others start afterwards.
func (p *people) close() (running []*Upstream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, its := range p.byUser {
		for _, u := range its.running {
			running = append(running, u)
		}
	}
	p.byUser, p.configs = nil, nil
	return running
}
