package proxy

import (
	"container/list"
	"sync"
	"sync/atomic"
)

// This file bounds the memory of everything that the proxy keeps for single principals or clients,
// and can make again: what they may use, pages of lists, and endpoints of their own. All of it
// belongs to a world and ends with it.

// The bytes of all caches of a world. Together they are less than 64 MiB: what the policies select
// (package policy) has the rest.
const (
	maxSubjects = 33 << 20 // shares, and the endpoints of people and clients
	maxPages    = 16 << 20
)

// room bounds the bytes of several caches together. When there are too many, entries go that were
// not used since they were last looked at, the oldest first. The zero value keeps nothing.
type room struct {
	mu    sync.RWMutex
	max   int
	used  int
	order list.List // of leaver, the latest in front
}

// leaver is an entry of a room, of whatever cache; room.mu is held.
type leaver interface {
	spared() bool // it was used since the last look
	leave()
}

// trim makes the entries fit; r.mu is held.
func (r *room) trim() {
	for steps := 2 * r.order.Len(); r.used > r.max && steps > 0; steps-- {
		e := r.order.Back()
		if one := e.Value.(leaver); one.spared() {
			r.order.MoveToFront(e)
		} else {
			one.leave()
		}
	}
}

// close lets everything go, and keeps nothing from now on.
func (r *room) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.max = 0; r.order.Len() > 0; {
		r.order.Back().Value.(leaver).leave()
	}
}

// cache is the entries of one kind in a room. Without a room it keeps nothing.
type cache[K comparable, V any] struct {
	room       *room
	of         map[K]*kept[K, V]
	closed     bool
	came, left func(V) // called with room.mu held for each value that comes or leaves; nil does nothing
}

// kept is an entry of a cache.
type kept[K comparable, V any] struct {
	cache *cache[K, V]
	key   K
	value V
	bytes int
	used  atomic.Bool
	place *list.Element // of room.order
}

// perKept is about what an entry takes beside its key and its value.
const perKept = 200

// get returns the value of a key, and whether there is one.
func (c *cache[K, V]) get(key K) (v V, ok bool) {
	if c.room == nil {
		return v, false
	}
	c.room.mu.RLock()
	k := c.of[key]
	c.room.mu.RUnlock()
	if k == nil {
		return v, false
	}
	if !k.used.Load() {
		k.used.Store(true)
	}
	return k.value, true
}

// keep returns the value of the key. Where there is none, the cache takes the one that choose
// returns, which takes that many bytes; choose runs with room.mu held.
func (c *cache[K, V]) keep(key K, choose func() (V, int)) V {
	if c.room == nil {
		v, _ := choose()
		return v
	}
	c.room.mu.Lock()
	defer c.room.mu.Unlock()
	if k := c.of[key]; k != nil {
		k.used.Store(true)
		return k.value
	}
	v, bytes := choose()
	c.add(key, v, bytes)
	return v
}

// fits reports whether a value of that many bytes can be kept without another one leaving.
func (c *cache[K, V]) fits(bytes int) bool {
	if c.room == nil {
		return false
	}
	c.room.mu.RLock()
	defer c.room.mu.RUnlock()
	return c.room.used+bytes+perKept <= c.room.max
}

// put keeps a value in place of that of the key, if there is one.
func (c *cache[K, V]) put(key K, v V, bytes int) {
	if c.room == nil {
		return
	}
	c.room.mu.Lock()
	defer c.room.mu.Unlock()
	if k := c.of[key]; k != nil {
		k.leave()
	}
	c.add(key, v, bytes)
}

// add keeps a value of a new key, if it may be kept; room.mu is held.
func (c *cache[K, V]) add(key K, v V, bytes int) {
	if bytes += perKept; c.closed || bytes > c.room.max/2 { // one that is larger would be all that is left
		if c.left != nil {
			if c.came != nil {
				c.came(v)
			}
			c.left(v)
		}
		return
	}
	if c.of == nil {
		c.of = map[K]*kept[K, V]{}
	}
	k := &kept[K, V]{cache: c, key: key, value: v, bytes: bytes}
	k.used.Store(true)
	k.place = c.room.order.PushFront(k)
	c.of[key] = k
	if c.room.used += bytes; c.came != nil {
		c.came(v)
	}
	c.room.trim()
}

func (k *kept[K, V]) spared() bool { return k.used.Swap(false) }

func (k *kept[K, V]) leave() {
	c := k.cache
	delete(c.of, k.key)
	c.room.order.Remove(k.place)
	if c.room.used -= k.bytes; c.left != nil {
		c.left(k.value)
	}
}

// end lets all entries go, and keeps none from now on; room.mu is held.
func (c *cache[K, V]) end() {
	c.closed = true
	for _, k := range c.of {
		k.leave()
	}
	c.of = nil
}
