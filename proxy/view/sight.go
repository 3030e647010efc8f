package view

import (
	"encoding/binary"
	"hash/fnv"
	"iter"
	"math/bits"
	"sync/atomic"
	"time"
	"unique"

	"junction/upstream"
	"junction/upstream/raw"
)

// bitset is a set of small numbers.
type bitset []byte

func (b bitset) has(i int) bool { return b[i/8]&(1<<(i%8)) != 0 }
func (b bitset) set(i int)      { b[i/8] |= 1 << (i % 8) }
func (b bitset) clear(i int)    { b[i/8] &^= 1 << (i % 8) }

// Sight is what one subject sees of a view: a bit for each item. It is immutable but for the
// prints.
type Sight struct {
	View *View
	// Seen is the places of the items, as in view.offered, and behind them a bit for each upstream
	// that is reached. Sights of a view that see the same have the same handle.
	Seen    unique.Handle[string]
	Whole   bool // it is all of the view
	Offers  offers
	Settled bool // as of the view, for the upstreams that are reached
	// Separates is as that of the view.
	Separates bool
	prints    [upstream.Parts + 3]atomic.Uint64 // of the lists by kind; 0 is not known yet
}

// newSight makes the sight of these places, and of the upstreams that reached reports by their
// place in view.stocks.
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

// Stocks returns those of the upstreams that are reached.
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

// All returns the items of a part that are seen, in the order of the lists.
func (s *Sight) All(p upstream.Part) iter.Seq[*Target] {
	return func(yield func(*Target) bool) {
		places := s.Seen.Value()
		for i, st := range s.View.Stocks {
			targets, from := st.face(s.View.Bare).targets, 8*s.View.begin[i]
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

// ListKind is which clients a list is for. Kinds of which the lists are the same are one kind.
type ListKind uint8

const (
	LegacyKind ListKind = 0
	modernKind ListKind = 1
	appsKind   ListKind = 2 // and one of the others
)

// Kind returns the kind of a part's list that a client gets.
func (v *View) Kind(p upstream.Part, era upstream.Era, client upstream.Profile) (k ListKind) {
	if p != upstream.PartTools {
		return LegacyKind
	}
	if v.eras && era == upstream.EraModern {
		k |= modernKind
	}
	if v.apps && client.UI != "" {
		k |= appsKind
	}
	return k
}

// Print tells a list from others.
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
		if t.listed(k) != nil {
			text = binary.BigEndian.AppendUint64(text, t.print)
		}
	}
	h.Write(text)
	print := max(1, h.Sum64())
	known.Store(print)
	return print
}

// Page returns the definitions of a list from the offset on, at most n of them, and the offset of
// the next page; 0 when there is none.
func (s *Sight) Page(p upstream.Part, k ListKind, offset, n int) (list Definitions, next int) {
	at := 0
	for t := range s.All(p) {
		text := t.listed(k)
		switch {
		case text == nil:
			continue
		case at >= offset+n:
			return list, at
		case at >= offset:
			list.add(text)
		}
		at++
	}
	return list, 0
}

// Freshness returns how long the merged list of a part stays fresh, and whether it is the same for
// every user: the least that its sources say (2026-07-28, server/utilities/caching). An upstream
// that says nothing, or that was not listed yet, says 0.
func (s *Sight) Freshness(p upstream.Part, now time.Time) (ttl time.Duration, public bool) {
	first := true
	for st := range s.Stocks() {
		c := st.Catalog
		fresh := c.Fresh[p]
		if !fresh.Has && !c.Listed.IsZero() {
			continue
		}
		left := max(0, fresh.TTL-now.Sub(c.Listed))
		if first {
			ttl, public, first = left, fresh.Public, false
			continue
		}
		ttl, public = min(ttl, left), public && fresh.Public
	}
	return ttl, public
}

// AppendInstructions appends the member instructions, a comma before it, if there are any.
func (s *Sight) AppendInstructions(b []byte) []byte {
	text := ""
	for st := range s.Stocks() {
		if text != "" && st.instructions != "" {
			text += "\n\n"
		}
		text += st.instructions
	}
	if text == "" {
		return b
	}
	return raw.AppendQuote(append(b, `,"instructions":`...), text)
}

// Bytes is about how much memory the sight takes.
func (s *Sight) Bytes() int {
	if s == s.View.whole {
		return 0
	}
	return 400 + len(s.Seen.Value())
}
