package view

import (
	"junction/policy"
	"junction/proxy/search"
	"junction/upstream"
)

// buildIndex makes the index of the tools of a naming by place, at the first search.
func (st *Stock) buildIndex(f *naming) *search.Index {
	_, end := st.part(upstream.PartTools)
	return search.Build(st.places, func(place int) (search.Tool, bool) {
		t := f.targets[place]
		if t == nil || place >= end && !t.Connects {
			return search.Tool{}, false
		}
		return search.Tool{Name: t.Exposed, Own: t.Name, Definition: t.Item.Definition}, true
	})
}

// Search finds visible tools in a list of kind k by a query: the best matches in order, and the
// number of all matches.
func (s *Sight) Search(k ListKind, query string, limit int) (found []*Target, total int) {
	var parts []search.Part
	var stocks []*Stock
	places := bitset(s.Seen.Value())
	for i, st := range s.View.Stocks {
		naming := st.naming(s.View.Bare)
		targets := naming.targets
		seen := make(bitset, (st.places+7)/8)
		_, end := st.part(upstream.PartTools)
		for place, t := range targets {
			if t == nil || place >= end && !t.Connects || !places.has(8*s.View.begin[i]+place) || t.Listed(k) == nil {
				continue
			}
			seen.set(place)
		}
		if seen.any() {
			names := func(place int) (exposed, own string) { return targets[place].Exposed, targets[place].Name }
			parts = append(parts, search.Part{Index: naming.index(), Seen: seen, Names: names})
			stocks = append(stocks, st)
		}
	}
	best, total := search.Search(parts, query, limit)
	for _, h := range best {
		found = append(found, stocks[h.Part].naming(s.View.Bare).targets[h.Place])
	}
	return found, total
}

// Only returns the sight of the tools that a glob matches, with the other items of s.
func (s *Sight) Only(tools policy.Globs) *Sight {
	places := make(bitset, len(s.View.offered))
	copy(places, s.Seen.Value())
	for i, st := range s.View.Stocks {
		_, end := st.part(upstream.PartTools)
		for place, t := range st.naming(s.View.Bare).targets {
			if t != nil && (place < end || t.Connects) && !tools.Match(t.Names) {
				places.clear(8*s.View.begin[i] + place)
			}
		}
	}
	reached := bitset(s.Seen.Value()[len(s.View.offered):])
	return newSight(s.View, places, func(i int) bool { return reached.has(i) })
}

// SearchAnswer returns the text of the result of search_tools for clients with a list of kind k. clean
// returns the definition that the client may read; if ok is false, the tool does not count.
func (s *Sight) SearchAnswer(k ListKind, q search.Query, clean func([]byte) (now []byte, ok bool)) string {
	found, total := s.Search(k, q.Text, q.Limit)
	var answer search.Answer
	for _, t := range found {
		definition, ok := clean(t.Listed(k))
		if !ok {
			total--
		} else if !answer.Add(search.ClassOf(t.Item.Definition), definition) {
			break
		}
	}
	var unknown []string
	for st := range s.Stocks() {
		if st.Catalog.Listed.IsZero() && !st.Catalog.SignIn {
			unknown = append(unknown, st.Backend.Name())
		}
	}
	return answer.Text(total, unknown)
}
