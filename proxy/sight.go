package proxy

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

// sight is what one subject sees of a view: a bit for each item. It is immutable but for the
// prints.
type sight struct {
	view *view
	// seen is the places of the items, as in view.offered, and behind them a bit for each upstream
	// that is reached. Sights of a view that see the same have the same handle.
	seen    unique.Handle[string]
	whole   bool // it is all of the view
	offers  offers
	settled bool // as of the view, for the upstreams that are reached
	// separates is as that of the view.
	separates bool
	prints    [upstream.Parts + 3]atomic.Uint64 // of the lists by kind; 0 is not known yet
}

// newSight makes the sight of these places, and of the upstreams that reached reports by their
// place in view.stocks.
func newSight(v *view, places bitset, reached func(i int) bool) *sight {
	s := &sight{view: v, settled: true}
	end := len(v.offered)
	all := make(bitset, end+(len(v.stocks)+7)/8)
	s.whole = copy(all, places) == end && string(places) == string(v.offered)
	for i, st := range v.stocks {
		if !reached(i) {
			s.whole = false
			continue
		}
		all.set(8*end + i)
		s.offers = s.offers.or(st.offers)
		s.settled = s.settled && (v.settled || st.backend.Tried())
		s.separates = s.separates || st.backend.Separates()
	}
	s.seen = unique.Make(string(all))
	return s
}

// stocks returns those of the upstreams that are reached.
func (s *sight) stocks() iter.Seq[*stock] {
	return func(yield func(*stock) bool) {
		reached := s.seen.Value()[len(s.view.offered):]
		for i, st := range s.view.stocks {
			if reached[i/8]&(1<<(i%8)) != 0 && !yield(st) {
				return
			}
		}
	}
}

// none reports whether no upstream is reached.
func (s *sight) none() bool {
	for range s.stocks() {
		return false
	}
	return true
}

// all returns the items of a part that are seen, in the order of the lists.
func (s *sight) all(p upstream.Part) iter.Seq[*target] {
	return func(yield func(*target) bool) {
		places := s.seen.Value()
		for i, st := range s.view.stocks {
			targets, from := st.face(s.view.bare).targets, 8*s.view.begin[i]
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
			if p != upstream.PartTools || st.connect(s.view.bare) == nil {
				continue
			}
			if last := st.places - 1; places[(from+last)/8]&(1<<(last%8)) != 0 && !yield(targets[last]) {
				return
			}
		}
	}
}

// listKind is which clients a list is for. Kinds of which the lists are the same are one kind.
type listKind uint8

const (
	legacyKind listKind = 0
	modernKind listKind = 1
	appsKind   listKind = 2 // and one of the others
)

// kind returns the kind of a part's list that a client gets.
func (v *view) kind(p upstream.Part, era upstream.Era, client upstream.Profile) (k listKind) {
	if p != upstream.PartTools {
		return legacyKind
	}
	if v.eras && era == upstream.EraModern {
		k |= modernKind
	}
	if v.apps && client.UI != "" {
		k |= appsKind
	}
	return k
}

// listed returns the target's definition in a list of that kind; nil where it is not in the list.
func (t *target) listed(k listKind) []byte {
	switch {
	case t.forApps && k&appsKind == 0, k&modernKind != 0 && t.tool.HeaderProblem != "":
		return nil
	case k&modernKind == 0 && t.older != nil:
		return t.older
	}
	return t.definition
}

// print tells a list from others.
func (s *sight) print(p upstream.Part, k listKind) uint64 {
	known := &s.prints[p]
	if k != legacyKind {
		known = &s.prints[upstream.Parts+upstream.Part(k)-1]
	}
	if print := known.Load(); print != 0 {
		return print
	}
	h := fnv.New64a()
	text := []byte{byte(k)}
	for t := range s.all(p) {
		if t.listed(k) != nil {
			text = binary.BigEndian.AppendUint64(text, t.print)
		}
	}
	h.Write(text)
	print := max(1, h.Sum64())
	known.Store(print)
	return print
}

// page returns the definitions of a list from the offset on, at most n of them, and the offset of
// the next page; 0 when there is none.
func (s *sight) page(p upstream.Part, k listKind, offset, n int) (list definitions, next int) {
	at := 0
	for t := range s.all(p) {
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

// freshness returns how long the merged list of a part stays fresh, and whether it is the same for
// every user: the least that its sources say (2026-07-28, server/utilities/caching). An upstream
// that says nothing, or that was not listed yet, says 0.
func (s *sight) freshness(p upstream.Part, now time.Time) (ttl time.Duration, public bool) {
	first := true
	for st := range s.stocks() {
		c := st.catalog
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

// appendInstructions appends the member instructions, a comma before it, if there are any.
func (s *sight) appendInstructions(b []byte) []byte {
	text := ""
	for st := range s.stocks() {
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

// bytes is about how much memory the sight takes.
func (s *sight) bytes() int {
	if s == s.view.whole {
		return 0
	}
	return 400 + len(s.seen.Value())
}
