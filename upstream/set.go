package upstream

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"junction/upstream/pace"
	"junction/upstream/stdio"
	"junction/upstream/transport"
)

// Set holds all configured upstreams. The zero value has none.
type Set struct {
	mu       sync.Mutex
	running  map[string]*Upstream
	people   people
	watchdog stdio.Watchdog // of all processes
	retiring sync.WaitGroup
	writable atomic.Pointer[[]string] // the paths that confined commands may change
	file     []string                 // from the last Apply; guarded by mu
	former   map[*[]string]bool       // from earlier Applies whose upstreams still end; guarded by mu
	withheld map[string]string        // variables that an upstream does not get; guarded by mu
	closing  context.Context          // ends when Close is called
	close    context.CancelFunc
}

// retireGrace is the time for a removed upstream to finish its calls.
const retireGrace = 30 * time.Second

// Apply changes the running upstreams to the upstreams of configs. An upstream keeps its process and
// sessions if its configuration is the same, or differs only in settings for calls and names. New
// upstreams start. Removed ones finish their calls within retireGrace and then end. Apply waits for
// none of this. It returns the running upstreams, sorted by name, without those of single users:
// see Of.
//
// If use is not nil, it is called with the result before the removed upstreams begin to end, so
// that the caller can direct new calls to the new ones.
func (s *Set) Apply(configs map[string]Config, o Options, use func([]*Upstream)) []*Upstream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing == nil {
		s.closing, s.close = context.WithCancel(context.Background())
	}
	o = o.withDefaults()
	o.watchdog, o.renew = &s.watchdog, s.renew
	before := s.file
	s.file = append(Writable(configs, o.Sandboxes), o.Writable...)
	slices.Sort(s.file)
	s.file = slices.Compact(s.file)
	if s.former == nil {
		s.former = map[*[]string]bool{}
	}
	s.former[&before] = true
	s.publish()
	grants := grantsFolders(configs)
	o.writable = func() []string { // a later Apply counts for the next process
		paths := *s.writable.Load()
		if grants && o.Folders != nil {
			paths = slices.Concat(paths, o.Folders())
		}
		return paths
	}
	next, own := map[string]*Upstream{}, map[string]resolved{}
	for name, given := range configs {
		if given.Confines {
			given.deciders = s.file // not the former files: the same file must not start another process
		}
		c := given.resolve(o.Defaults)
		if c.Off() {
			continue
		}
		if c.Personal() {
			own[name] = c
			continue
		}
		if u := s.running[name]; u != nil {
			next[name] = u.adapt(c, o)
		} else {
			next[name] = start(name, "", c, o, &Catalog{})
		}
	}
	s.logWithheld(next, own, o.Log)
	old := s.running
	s.running = next
	removed := s.people.apply(own, o)
	list := s.list()
	if use != nil {
		use(list)
	}
	for name, u := range old {
		if next[name] == nil || next[name].pool != u.pool {
			removed = append(removed, u)
		}
	}
	s.retiring.Go(func() {
		var ending sync.WaitGroup
		for _, u := range removed {
			ending.Go(func() { s.retire(u) })
		}
		ending.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.former, &before) // until now, the old processes might change what the former file named
		s.publish()
	})
	return list
}

// logWithheld writes one line about the variables that look like keys and that commands do not get, with the
// upstreams for which this is new.
func (s *Set) logWithheld(shared map[string]*Upstream, own map[string]resolved, log *slog.Logger) {
	now := map[string]string{}
	for name, u := range shared {
		now[name] = strings.Join(u.pool.connConfig.Withheld(), " ")
	}
	for name, c := range own {
		now[name] = strings.Join(c.Withheld(), " ")
	}
	var names, variables []string
	for name, withheld := range now {
		if withheld != "" && s.withheld[name] != withheld {
			names, variables = append(names, name), append(variables, strings.Fields(withheld)...)
		}
	}
	s.withheld = now
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	slices.Sort(variables)
	log.Info("commands do not get variables that look like keys; name those that one needs in its env or inherit_env",
		"upstreams", names, "variables", slices.Compact(variables))
}

// publish sets the paths that confined commands may change: the paths of the file, and of former files
// whose upstreams still end. mu must be held.
func (s *Set) publish() {
	all := slices.Clone(s.file)
	for paths := range s.former {
		all = append(all, *paths...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	s.writable.Store(&all)
}

// retire ends an upstream when its calls have ended, after retireGrace, or when the Set is closed.
func (s *Set) retire(u *Upstream) {
	ctx, cancel := context.WithTimeout(s.closing, retireGrace)
	defer cancel()
	// requests with the old configuration may not have begun their calls yet
	pace.Sleep(ctx, time.Second, nil)
	u.drain(ctx)
	u.Close()
}

// All returns the running upstreams, sorted by name, without those of single users.
func (s *Set) All() []*Upstream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list()
}

func (s *Set) list() []*Upstream {
	var list []*Upstream
	for _, name := range slices.Sorted(maps.Keys(s.running)) {
		list = append(list, s.running[name])
	}
	return list
}

// Leave ends the connections, for a command the processes, that principals have for themselves. One that calls use
// ends with the last of them. It does not wait. gone reports whether a principal has gone.
func (s *Set) Leave(gone func(principal string) bool) {
	for _, u := range s.All() {
		u.leave(gone)
	}
	s.leave(gone)
}

// Close ends all upstreams and waits until all their resources are released.
func (s *Set) Close() {
	s.mu.Lock()
	running := s.list()
	running = append(running, s.people.close()...)
	s.running = nil
	if s.close != nil {
		s.close()
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, u := range running {
		wg.Go(u.Close)
	}
	wg.Wait()
	s.retiring.Wait()
}

// errReconnect is why connections ended that Set.Reconnect replaces.
var errReconnect = errors.New("a reconnect was requested")

// Reconnect connects a running upstream again, as the operator asked for: its processes and
// sessions end, with the calls on them, and an attempt that is due later comes now. It returns
// false if there is no such upstream, and does not wait.
func (s *Set) Reconnect(name string) bool {
	s.mu.Lock()
	u := s.running[name]
	s.mu.Unlock()
	if u != nil {
		u.reconnect()
	}
	return u != nil
}

func (p *pool) reconnect() {
	p.mu.Lock()
	links := slices.Collect(maps.Values(p.links))
	closed := p.closed
	p.mu.Unlock()
	for _, l := range links {
		if !l.readsShared {
			l.stop(transport.ErrClosed) // the next call opens another one
		} else if c := l.current(); c != nil {
			l.fail(c, errReconnect)
		}
		pace.Wake(l.wake)
	}
	if len(links) == 0 && !closed { // it was unused for long
		if l, _, err := p.link(context.Background(), p.reading(), waiter{}); err == nil {
			l.release()
		}
	}
}
