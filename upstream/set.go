package upstream

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"junction/upstream/pace"
	"junction/upstream/transport"
)

// Set is all configured upstreams. The zero value has none.
type Set struct {
	mu       sync.Mutex
	running  map[string]*Upstream
	people   people
	watchdog transport.Watchdog // of all processes
	retiring sync.WaitGroup
	closing  context.Context // ends when Close is called
	close    context.CancelFunc
}

// retireGrace is how long an upstream that was taken out may take to finish its calls.
const retireGrace = 30 * time.Second

// Apply makes the running upstreams those of configs: one whose configuration did not change, or
// only in what is about calls and names, keeps its process and sessions; a new one is started; one
// that is gone finishes its calls within a grace, and then ends. Apply does not wait for any of
// them. It returns the running ones by name. Those that people sign in to themselves are not among
// them: see Of.
//
// use, when it is not nil, is given them before the others begin to end, so that it can have new
// calls go to them.
func (s *Set) Apply(configs map[string]Config, o Options, use func([]*Upstream)) []*Upstream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing == nil {
		s.closing, s.close = context.WithCancel(context.Background())
	}
	o = o.withDefaults()
	o.watchdog = &s.watchdog
	next, own := map[string]*Upstream{}, map[string]resolved{}
	for name, given := range configs {
		c := given.resolve(o.Defaults)
		if c.Off() {
			continue
		}
		if c.Personal() {
			own[name] = c
			continue
		}
		u := s.running[name]
		switch {
		case u == nil:
			u = start(name, c, o, &Catalog{})
		case !u.serves(c, o):
			u = start(name, c, o, u.Catalog()) // what was there is most likely there again
		case !reflect.DeepEqual(u.config, c.Config):
			u = newUpstream(c, u.pool)
		}
		next[name] = u
	}
	old := s.running
	s.running = next
	gone := s.people.apply(own, o)
	list := s.list()
	if use != nil {
		use(list)
	}
	for _, u := range gone {
		s.retiring.Go(func() { s.retire(u) })
	}
	for name, u := range old {
		if next[name] == nil || next[name].pool != u.pool {
			s.retiring.Go(func() { s.retire(u) })
		}
	}
	return list
}

// retire ends an upstream when its calls are done, or its grace or the Set is over.
func (s *Set) retire(u *Upstream) {
	ctx, cancel := context.WithTimeout(s.closing, retireGrace)
	defer cancel()
	pace.Sleep(ctx, time.Second, nil) // a request that saw the world before this one may not have begun its call
	u.drain(ctx)
	u.Close()
}

// All returns the running upstreams by name, without those of people.
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

// Close ends all upstreams, and returns when nothing of them is left.
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
