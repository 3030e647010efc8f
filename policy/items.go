package policy

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"sync"
)

// This file decides which of many items are visible, for many subjects. Whether a rule selects an
// item does not depend on the subject, so each policy is compared with the items once, and items
// that the same rules select share a ruling.

// Items are the items of one upstream. They are safe for concurrent use.
type Items struct {
	list     []Item
	requires column // the classes of items with the same capabilities

	mu       sync.RWMutex
	columns  map[*entry]column
	bytes    int
	building sync.Mutex // held while columns are made, so that each is made once
}

// column holds the class of each item. Items in one class have the same ruling as far as one
// policy, or their required capabilities, decide. The zero value has all items in one class.
type column struct {
	classes []uint8
	unlike  bool // too many classes: each item may have its own ruling
}

// maxColumns is how many columns are cached at least; perColumn is the size of each, besides a byte
// for each item. Columns with a single class have no such bytes. Columns beyond are computed again.
const maxColumns, perColumn = 600, 64

// NewItems takes ownership of the list, in which all items have the same Upstream.
func NewItems(list []Item) *Items {
	s := &Items{list: list, columns: map[*entry]column{}}
	c := newClassifier(len(list))
	var key []byte
	for i := range list {
		key = key[:0]
		for _, capability := range list[i].Requires {
			key = append(binary.AppendUvarint(key, uint64(len(capability))), capability...)
		}
		c.add(i, key)
	}
	s.requires = c.column
	return s
}

// Visible sets the bits of the visible items: item i is 1<<(i%8) of bits[i/8]. The result equals
// Bind and Ruling.Visible of each item.
func (s *Items) Visible(r *Rights, bits []byte) {
	classes, unlike := s.classesOf(r)
	known := map[string]bool{}
	key := make([]byte, len(classes))
	for i := range s.list {
		changed := i == 0 || unlike
		for k, c := range classes {
			changed = changed || key[k] != c[i]
			key[k] = c[i]
		}
		if !changed { // almost always the same as the item before
			if bits[(i-1)/8]&(1<<((i-1)%8)) != 0 {
				bits[i/8] |= 1 << (i % 8)
			}
			continue
		}
		visible, ok := known[string(key)]
		if !ok || unlike {
			visible = r.Bind(s.list[i]).Visible()
			known[string(key)] = visible
		}
		if visible {
			bits[i/8] |= 1 << (i % 8)
		}
	}
}

// classesOf returns the columns of the subject's policies in which items differ, and whether
// columns cannot tell all items apart.
func (s *Items) classesOf(r *Rights) (classes [][]uint8, unlike bool) {
	var missing, personal []*entry
	use := func(c column) {
		if unlike = unlike || c.unlike; c.classes != nil {
			classes = append(classes, c.classes)
		}
	}
	collect := func() {
		classes, missing, personal, unlike = nil, nil, nil, false
		use(s.requires)
		s.mu.RLock()
		defer s.mu.RUnlock()
		for e := range r.all {
			if c, ok := s.columns[e]; ok {
				use(c)
			} else if e.personal() {
				personal = append(personal, e)
			} else {
				missing = append(missing, e)
			}
		}
	}
	if collect(); unlike {
		return nil, true
	}
	if len(missing) > 0 {
		s.building.Lock()
		defer s.building.Unlock()
		if collect(); len(missing) > 0 && !unlike {
			s.add(missing)
			collect() // adding may have dropped others
		}
	}
	for _, c := range s.compare(append(personal, missing...)) {
		use(c)
	}
	return classes, unlike
}

// personal reports whether the policy is for one subject. Its columns are not cached: there may be
// as many such policies as subjects.
func (e *entry) personal() bool {
	return slices.ContainsFunc(e.match.fields, func(f field) bool {
		return len(f.list) == 1 && (f.key == "key" || f.key == "user" || f.key == "email")
	})
}

// add computes and caches the columns of policies.
func (s *Items) add(entries []*entry) {
	made := s.compare(entries)
	s.mu.Lock()
	defer s.mu.Unlock()
	bytes := 0
	for _, c := range made {
		bytes += perColumn + len(c.classes)
	}
	if s.bytes += bytes; s.bytes > maxColumns*(perColumn+len(s.list)) {
		clear(s.columns)
		s.bytes = bytes
	}
	for k, e := range entries {
		s.columns[e] = made[k]
	}
}

// compare computes the columns of policies.
func (s *Items) compare(entries []*entry) []column {
	made := make([]column, len(entries))
	if len(s.list) == 0 {
		return made
	}
	type work struct {
		*classifier
		rules []*rule // that may apply to the upstream
	}
	all := make([]work, len(entries))
	for k, e := range entries {
		for i := range e.rules {
			r := &e.rules[i]
			if r.appliesTo(s.list[0].Upstream) {
				all[k].rules = append(all[k].rules, r)
			}
		}
		if len(all[k].rules) > 0 {
			all[k].classifier = newClassifier(len(s.list))
		}
	}
	var key []byte
	for i := range s.list {
		n := newNamed(&s.list[i])
		for _, w := range all {
			if w.classifier == nil || w.column.unlike {
				continue
			}
			key = key[:0]
			for k, r := range w.rules {
				if v, ok := r.selects(&n); ok {
					key = append(binary.AppendUvarint(key, uint64(k)), byte(v))
				}
			}
			w.add(i, key)
		}
	}
	for k, w := range all {
		if w.classifier != nil {
			made[k] = w.column
		}
	}
	return made
}

// classifier computes a column.
type classifier struct {
	column
	n     int
	known map[string]uint8
	last  []byte // the key of the previous item
}

func newClassifier(n int) *classifier { return &classifier{n: n, known: map[string]uint8{}} }

// add puts item i into the class of all items with that key. Call it in the order of the items.
func (c *classifier) add(i int, key []byte) {
	if c.unlike || i > 0 && c.classes == nil && string(c.last) == string(key) {
		return
	}
	class, ok := c.known[string(key)]
	if !ok && len(c.known) > 255 {
		c.classes, c.unlike = nil, true
		return
	}
	if !ok {
		class = uint8(len(c.known))
		c.known[string(key)] = class
	}
	if c.last = append(c.last[:0], key...); i > 0 && c.classes == nil { // so far all items were in the first class
		c.classes = make([]uint8, c.n)
	}
	if c.classes != nil {
		c.classes[i] = class
	}
}

// Hash is equal for equal rights of one Policy.
func (r *Rights) Hash(seed maphash.Seed) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for e := range r.all {
		maphash.WriteComparable(&h, e.name)
	}
	return h.Sum64()
}

// Size returns the approximate memory of the rights in bytes.
func (r *Rights) Size() int {
	n := 310 + 8*cap(r.entries) + 24*cap(r.safeguards.Redactions) + 24*cap(r.safeguards.Always)
	for _, held := range []int{len(r.held), len(r.scope), len(r.beyond)} {
		n += 64 * ((held + 7) / 8 * 8) // maps grow by eight
	}
	if r.also != nil {
		n += r.also.Size()
	}
	return n
}

// Size returns the approximate memory of the ruling in bytes, without the rights.
func (g *Ruling) Size() int {
	n := 210 + 16*len(g.missing) + len(g.scopes) + 24*len(g.rules)
	if g.also != nil {
		n += g.also.Size()
	}
	return n
}
