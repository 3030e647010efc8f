package view

import (
	"encoding/binary"
	"hash/fnv"
	"iter"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unique"

	"junction/upstream"
	"junction/upstream/client"
)

// bitset is a set of small numbers.
type bitset []byte

func (b bitset) has(i int) bool { return b[i/8]&(1<<(i%8)) != 0 }
func (b bitset) set(i int)      { b[i/8] |= 1 << (i % 8) }
func (b bitset) clear(i int)    { b[i/8] &^= 1 << (i % 8) }
func (b bitset) any() bool {
	return slices.ContainsFunc(b, func(octet byte) bool { return octet != 0 })
}

// Sight holds the items of a view that one subject sees, as one bit per item. It is immutable
// except for the prints.
type Sight struct {
	View *View
	// Seen holds the bits of the items, as in View.offered, and then a bit for each reached
	// upstream. Equal sights of a view have the same handle.
	Seen    unique.Handle[string]
	Whole   bool // the sight is the whole view
	Offers  offers
	Settled bool // View.settled for the reached upstreams
	// Separates is View.Separates for the reached upstreams.
	Separates bool
	prints    [upstream.Parts + 3]atomic.Uint64 // prints of the lists by kind; 0 if unknown
}

// newSight makes the sight of these places and of the reached upstreams. reached gets an index of
// View.Stocks.
func newSight(v *View, places bitset, reached func(i int) bool) *Sight {
	s := &Sight{View: v, Settled: true}
	end := len(v.offered)
	all := make(bitset, end+(len(v.Stocks)+7)/8)
	s.Whole = copy(all, places) == end && string(places) == string(v.offered)
	for i, st := range v.Stocks {
		if !reached(i) {
			s.Whole = false
			continue
		}
		all.set(8*end + i)
		s.Offers = s.Offers.or(st.offers)
		s.Settled = s.Settled && (v.settled || st.Backend.Tried())
		s.Separates = s.Separates || st.Backend.Separates()
	}
	s.Seen = unique.Make(string(all))
	return s
}

// Stocks returns the stocks of the reached upstreams.
func (s *Sight) Stocks() iter.Seq[*Stock] {
	return func(yield func(*Stock) bool) {
		reached := s.Seen.Value()[len(s.View.offered):]
		for i, st := range s.View.Stocks {
			if reached[i/8]&(1<<(i%8)) != 0 && !yield(st) {
				return
			}
		}
	}
}

// None reports whether no upstream is reached.
func (s *Sight) None() bool {
	for range s.Stocks() {
		return false
	}
	return true
}

// All returns the visible items of a part, in list order.
func (s *Sight) All(p upstream.Part) iter.Seq[*Target] {
	return func(yield func(*Target) bool) {
		places := s.Seen.Value()
		for i, st := range s.View.Stocks {
			targets, from := st.naming(s.View.Bare).targets, 8*s.View.begin[i]
			first, end := st.part(p)
			for place := first; place < end; {
				octet := places[(from+place)/8] >> (place % 8)
				if octet == 0 {
					place += 8 - place%8
					continue
				}
				if place += bits.TrailingZeros8(octet); place < end && !yield(targets[place]) {
					return
				}
				place++
			}
			if p != upstream.PartTools || st.Connect(s.View.Bare) == nil {
				continue
			}
			if last := st.places - 1; places[(from+last)/8]&(1<<(last%8)) != 0 && !yield(targets[last]) {
				return
			}
		}
	}
}

// ListKind is the kind of clients that a list is for. Kinds with the same list are one kind.
type ListKind uint8

const (
	LegacyKind ListKind = 0
	modernKind ListKind = 1
	appsKind   ListKind = 2 // combined with one of the others
)

// Kind returns the kind of list that a client gets for a part.
func (v *View) Kind(p upstream.Part, era client.Era, profile client.Profile) (k ListKind) {
	if p != upstream.PartTools {
		return LegacyKind
	}
	if v.eras && era == client.EraModern {
		k |= modernKind
	}
	if v.apps && profile.UI != "" {
		k |= appsKind
	}
	return k
}

// Print returns a hash that identifies a list.
func (s *Sight) Print(p upstream.Part, k ListKind) uint64 {
	known := &s.prints[p]
	if k != LegacyKind {
		known = &s.prints[upstream.Parts+upstream.Part(k)-1]
	}
	if print := known.Load(); print != 0 {
		return print
	}
	h := fnv.New64a()
	text := []byte{byte(k)}
	for t := range s.All(p) {
		if t.Listed(k) != nil {
			text = binary.BigEndian.AppendUint64(text, t.print)
		}
	}
	h.Write(text)
	print := max(1, h.Sum64())
	known.Store(print)
	return print
}

// Page returns at most n definitions of a list from the offset on, and the offset of the next page;
// 0 if there is none.
func (s *Sight) Page(p upstream.Part, k ListKind, offset, n int) (list Definitions, next int) {
	at := 0
	for t := range s.All(p) {
		text := t.Listed(k)
		switch {
		case text == nil:
			continue
		case at >= offset+n, p == upstream.PartSkills && list.Size > maxSkillPage:
			return list, at
		case at >= offset:
			list.add(text)
		}
		at++
	}
	return list, 0
}

// maxSkillPage bounds a page of skills in bytes: it ends with the skill that passes the bound. One
// skill may have the digests of 512 files.
const maxSkillPage = 1 << 20

// Freshness returns the time for which the merged list of a part stays fresh, and whether the list
// is the same for every user: the minimum of its sources (2026-07-28, server/utilities/caching).
// An upstream counts with at least the interval in which Junction reads its lists again, because an
// earlier request would get the same list. Upstreams without a catalog yet count as 0; upstreams
// without the list do not count.
func (s *Sight) Freshness(p upstream.Part, now time.Time) (ttl time.Duration, public bool) {
	first := true
	for st := range s.Stocks() {
		c := st.Catalog
		fresh := c.Fresh[p]
		if !fresh.Has && !c.Listed.IsZero() {
			continue
		}
		left := max(c.Interval, fresh.TTL-now.Sub(c.Listed), 0)
		if first {
			ttl, public, first = left, fresh.Public, false
			continue
		}
		ttl, public = min(ttl, left), public && fresh.Public
	}
	return ttl, public
}

// Instructions returns the instructions of the upstreams, each shortened after clean; "" if there are none.
func (s *Sight) Instructions(clean func(string) string) string {
	var list []string
	for st := range s.Stocks() {
		if text := st.instructionsFor(clean); text != "" {
			list = append(list, text)
		}
	}
	return strings.Join(list, "\n\n")
}

// Bytes returns the approximate memory of the sight, in bytes.
func (s *Sight) Bytes() int {
	if s == s.View.whole {
		return 0
	}
	return 400 + len(s.Seen.Value())
}
