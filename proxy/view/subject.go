package view

import (
	"slices"
	"sync"

	"junction/policy"
	"junction/upstream"
)

// SubjectView is the part of a view that one subject may use, found out when it is needed.
type SubjectView struct {
	Rights  *policy.Rights
	Guards  *policy.Guards
	View    *View // of the endpoint, with what is denied
	rulings *Rulings

	looking sync.Once
	Found   *Sight
	looked  func(*Sight) // called once with found, when it was made; nil does nothing
}

// NewSubjectView returns the part of a view that the rights leave. looked may be nil.
func NewSubjectView(v *View, rights *policy.Rights, rulings *Rulings, looked func(*Sight)) *SubjectView {
	return &SubjectView{Rights: rights, Guards: rights.Guards(), View: v, rulings: rulings, looked: looked}
}

// Sight returns what the subject sees.
func (s *SubjectView) Sight() *Sight {
	s.looking.Do(func() {
		if s.Found = s.look(); s.looked != nil {
			s.looked(s.Found)
		}
	})
	return s.Found
}

// look finds out what the subject sees of the view: all of it, if it may use everything there.
func (s *SubjectView) look() *Sight {
	v := s.View
	places := make(bitset, len(v.offered))
	reached := make([]bool, len(v.Stocks))
	for i, st := range v.Stocks {
		its := places[v.begin[i]:v.begin[i+1]]
		st.visible(s.Rights, its)
		if t := st.Connect(v.Bare); t != nil && s.sees(t) {
			its.set(t.place)
		}
		offered, items := false, false
		for k := range its {
			its[k] &= v.offered[v.begin[i]+k]
		}
		if s.Guards.Pinned {
			for place, t := range st.face(v.Bare).targets {
				if t != nil && t.Held != "" {
					its.clear(place)
				}
			}
		}
		for k := range its {
			offered, items = offered || v.offered[v.begin[i]+k] != 0, items || its[k] != 0
		}
		reached[i] = items || HasResources(st.Catalog) && s.reaches(st, policy.Resource)
		if !reached[i] && !offered { // it is down, or has nothing yet
			reached[i] = s.reaches(st, policy.Tool, policy.Prompt)
		}
	}
	if !slices.Contains(reached, false) && string(places) == string(v.offered) {
		return v.whole
	}
	return newSight(v, places, func(i int) bool { return reached[i] })
}

// reaches reports whether some item of an upstream's, of one of those kinds, might be visible.
func (s *SubjectView) reaches(st *Stock, kinds ...policy.Kind) bool {
	b := st.Backend
	return slices.ContainsFunc(kinds, func(k policy.Kind) bool {
		return s.Rights.Reaches(k, b.Name(), b.Config().Capabilities, st.making.Names.Full(PrefixOf(b), ""))
	})
}

// sees reports whether a target of the view's is there for the subject.
func (s *SubjectView) sees(t *Target) bool {
	switch {
	case t.Connects: // it is ours, and for all who may use anything there
		return s.reaches(t.stock, policy.Tool, policy.Prompt, policy.Resource)
	case s.Guards.Pinned && t.Held != "":
		return false
	}
	return s.Ruling(t).Visible()
}

// Named returns the tool or prompt of that name that the subject sees; nil for none. What it does
// not see makes the own name of another item no less sure.
func (s *SubjectView) Named(p upstream.Part, name string) *Target {
	if t := s.View.Exposed(p, name); t != nil && s.sees(t) {
		return t
	}
	sure, among := s.View.owners(p, name)
	if sure != nil && s.sees(sure) {
		return sure
	}
	if len(among) == 0 || s.Sight().Whole {
		return nil
	}
	var found *Target
	for _, t := range among {
		if s.sees(t) {
			if found != nil {
				return nil
			}
			found = t
		}
	}
	return found
}

// Ruling returns what policy says of a target: one of the view, or a resource that is in no list.
func (s *SubjectView) Ruling(t *Target) *policy.Ruling { return s.rulings.of(s.Rights, t) }
