package bounded

import "container/heap"

// Shared is a map whose entries have owners. Beyond Max entries, an owner with the most entries loses its
// oldest entry. So an owner removes only its own entries, as long as another has fewer. The zero value
// keeps no entries. The lock of the caller guards a Shared.
type Shared[O, K comparable, V any] struct {
	Max    int
	values map[K]V
	owners map[O]*sharer[O, K]
	most   sharers[O, K] // all owners; one with the most entries is first
}

// sharer is an owner with entries.
type sharer[O, K comparable] struct {
	owner O
	keys  []K // the oldest first; not empty
	at    int // index in Shared.most
}

// sharers is a heap.
type sharers[O, K comparable] []*sharer[O, K]

func (h sharers[O, K]) Len() int           { return len(h) }
func (h sharers[O, K]) Less(i, j int) bool { return len(h[i].keys) > len(h[j].keys) }
func (h sharers[O, K]) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }
func (h *sharers[O, K]) Push(x any) {
	s := x.(*sharer[O, K])
	s.at = len(*h)
	*h = append(*h, s)
}
func (h *sharers[O, K]) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return x
}

// Len returns the number of entries.
func (s *Shared[O, K, V]) Len() int { return len(s.values) }

// Get returns the value of a key, and whether it exists.
func (s *Shared[O, K, V]) Get(key K) (V, bool) {
	v, ok := s.values[key]
	return v, ok
}

// Each calls f for each entry. The entries of an owner come in the order in which they were added. f must
// not change s.
func (s *Shared[O, K, V]) Each(f func(owner O, key K, v V)) {
	for owner, o := range s.owners {
		for _, key := range o.keys {
			f(owner, key, s.values[key])
		}
	}
}

// Put sets the value of a key. If the key is new, it belongs to the owner, and Put first removes entries
// that have ended: the oldest ones of the owner, and of a few random others. A nil function means that
// no entry ends.
func (s *Shared[O, K, V]) Put(owner O, key K, v V, ended func(V) bool) {
	if s.Max <= 0 {
		return
	}
	if _, known := s.values[key]; known {
		s.values[key] = v
		return
	}
	if s.values == nil {
		s.values, s.owners = map[K]V{}, map[O]*sharer[O, K]{}
	}
	if ended != nil {
		s.forget(owner, ended)
	}
	o := s.owners[owner]
	if o == nil {
		o = &sharer[O, K]{owner: owner}
		s.owners[owner] = o
		heap.Push(&s.most, o)
	}
	s.values[key], o.keys = v, append(o.keys, key)
	heap.Fix(&s.most, o.at)
	for len(s.values) > s.Max {
		s.drop(s.most[0])
	}
}

// forget removes entries that have ended.
func (s *Shared[O, K, V]) forget(owner O, ended func(V) bool) {
	some := make([]*sharer[O, K], 0, looked)
	if o := s.owners[owner]; o != nil {
		some = append(some, o)
	}
	for other, o := range s.owners {
		if len(some) == looked {
			break
		}
		if other != owner {
			some = append(some, o)
		}
	}
	for _, o := range some {
		for n := 0; n < looked && len(o.keys) > 0 && ended(s.values[o.keys[0]]); n++ {
			s.drop(o)
		}
	}
}

// drop removes the oldest entry of an owner.
func (s *Shared[O, K, V]) drop(o *sharer[O, K]) {
	delete(s.values, o.keys[0])
	if o.keys = o.keys[1:]; len(o.keys) > 0 {
		heap.Fix(&s.most, o.at)
		return
	}
	heap.Remove(&s.most, o.at)
	delete(s.owners, o.owner)
}
