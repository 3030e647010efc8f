package bounded

import (
	"container/list"
	"sync"
	"sync/atomic"
)

// Room bounds the bytes of several caches together. When the bytes exceed Max, it removes the
// oldest entries that were not read since the last check. The zero value keeps no entries.
type Room struct {
	Mu    sync.RWMutex
	Max   int       // guarded by Mu
	Used  int       // bytes; guarded by Mu
	order list.List // of leaver, newest first; guarded by Mu
}

// leaver is an entry of any cache in a room; Room.Mu is held.
type leaver interface {
	spared() bool // reports whether the entry was read since the last check
	Leave()
}

// Len returns the number of entries in all caches of the room.
func (r *Room) Len() int {
	r.Mu.RLock()
	defer r.Mu.RUnlock()
	return r.order.Len()
}

// Trim removes entries until the rest fits; r.Mu is held.
func (r *Room) Trim() {
	for steps := 2 * r.order.Len(); r.Used > r.Max && steps > 0; steps-- {
		e := r.order.Back()
		if one := e.Value.(leaver); one.spared() {
			r.order.MoveToFront(e)
		} else {
			one.Leave()
		}
	}
}

// Close removes all entries. The room then keeps no entries.
func (r *Room) Close() {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	for r.Max = 0; r.order.Len() > 0; {
		r.order.Back().Value.(leaver).Leave()
	}
}

// Cache holds the entries of one type in a room. Without a room it keeps no entries.
type Cache[K comparable, V any] struct {
	Room       *Room
	Of         map[K]*Entry[K, V] // guarded by Room.Mu
	Closed     bool               // after End; guarded by Room.Mu
	Came, Left func(V)            // called with Room.Mu held for each added or removed value; may be nil
}

// Entry is one value of a cache.
type Entry[K comparable, V any] struct {
	cache *Cache[K, V]
	key   K
	Value V
	bytes int
	used  atomic.Bool
	place *list.Element // of Room.order
}

// perKept is the approximate memory of an entry without its key and value, in bytes.
const perKept = 200

// Get returns the value of a key, and whether it exists.
func (c *Cache[K, V]) Get(key K) (v V, ok bool) {
	if c.Room == nil {
		return v, false
	}
	c.Room.Mu.RLock()
	k := c.Of[key]
	c.Room.Mu.RUnlock()
	if k == nil {
		return v, false
	}
	if !k.used.Load() {
		k.used.Store(true)
	}
	return k.Value, true
}

// Keep returns the value of the key. If there is none, it adds the value that choose returns, with
// its size in bytes. choose runs with Room.Mu held.
func (c *Cache[K, V]) Keep(key K, choose func() (V, int)) V {
	if c.Room == nil {
		v, _ := choose()
		return v
	}
	c.Room.Mu.Lock()
	defer c.Room.Mu.Unlock()
	if k := c.Of[key]; k != nil {
		k.used.Store(true)
		return k.Value
	}
	v, bytes := choose()
	c.add(key, v, bytes)
	return v
}

// Fits reports whether a value of that many bytes can be added without removing another.
func (c *Cache[K, V]) Fits(bytes int) bool {
	if c.Room == nil {
		return false
	}
	c.Room.Mu.RLock()
	defer c.Room.Mu.RUnlock()
	return c.Room.Used+bytes+perKept <= c.Room.Max
}

// Put adds a value, or replaces the value of the key.
func (c *Cache[K, V]) Put(key K, v V, bytes int) {
	if c.Room == nil {
		return
	}
	c.Room.Mu.Lock()
	defer c.Room.Mu.Unlock()
	if k := c.Of[key]; k != nil {
		k.Leave()
	}
	c.add(key, v, bytes)
}

// add adds a value under a new key; Room.Mu is held.
func (c *Cache[K, V]) add(key K, v V, bytes int) {
	if bytes += perKept; c.Closed || bytes > c.Room.Max/2 { // a larger value would evict nearly all others
		if c.Left != nil {
			if c.Came != nil {
				c.Came(v)
			}
			c.Left(v)
		}
		return
	}
	if c.Of == nil {
		c.Of = map[K]*Entry[K, V]{}
	}
	k := &Entry[K, V]{cache: c, key: key, Value: v, bytes: bytes}
	k.used.Store(true)
	k.place = c.Room.order.PushFront(k)
	c.Of[key] = k
	if c.Room.Used += bytes; c.Came != nil {
		c.Came(v)
	}
	c.Room.Trim()
}

func (k *Entry[K, V]) spared() bool { return k.used.Swap(false) }

// Leave removes the entry; Room.Mu is held.
func (k *Entry[K, V]) Leave() {
	c := k.cache
	delete(c.Of, k.key)
	c.Room.order.Remove(k.place)
	if c.Room.Used -= k.bytes; c.Left != nil {
		c.Left(k.Value)
	}
}

// End removes all entries; Room.Mu is held. The cache then keeps no entries.
func (c *Cache[K, V]) End() {
	c.Closed = true
	for _, k := range c.Of {
		k.Leave()
	}
	c.Of = nil
}
