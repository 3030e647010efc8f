package view

import (
	"slices"
	"sync"

	"junction/policy"
	"junction/upstream"
)

// SubjectView is the part of a view that one subject may use. The Sight is computed at its first
// use.
type SubjectView struct {
	Rights     *policy.Rights
	Safeguards *policy.Safeguards
	View       *View // of the endpoint, including denied items
	rulings    *Rulings

	looking sync.Once
	Found   *Sight
	looked  func(*Sight) // called once with Found; may be nil
}

// NewSubjectView returns the part of a view that the rights allow. looked may be nil.
func NewSubjectView(v *View, rights *policy.Rights, rulings *Rulings, looked func(*Sight)) *SubjectView {
	return &SubjectView{Rights: rights, Safeguards: rights.Safeguards(), View: v, rulings: rulings, looked: looked}
}

// Sight returns the items that the subject sees.
func (s *SubjectView) Sight() *Sight {
	s.looking.Do(func() {
		if s.Found = s.look(); s.looked != nil {
			s.looked(s.Found)
		}
	})
	return s.Found
}

// look computes the Sight: the whole view if the subject may use every item.
func (s *SubjectView) look() *Sight {
	v := s.View
	places := make(bitset, len(v.offered))
	reached := make([]bool, len(v.Stocks))
	for i, st := range v.Stocks {
		its, offered := places[v.begin[i]:v.begin[i+1]], v.offeredBy(i)
		st.items().Visible(s.Rights, its) // without regard to pins, files of skills and the connect tool
		s.hideSkills(st, its)
		if t := st.Connect(v.Bare); t != nil && s.sees(t) {
			its.set(int(t.place))
		}
		for k := range its {
			its[k] &= offered[k]
		}
		if s.Safeguards.Pinned {
			for place, t := range st.naming(v.Bare).targets {
				if t != nil && t.withheld() {
					its.clear(place)
				}
			}
		}
		reached[i] = its.any() || hasResources(st.Catalog) && s.reaches(st, policy.Resource)
		if !reached[i] && !offered.any() { // the upstream is down, or has no items yet
			reached[i] = s.reaches(st, policy.Tool, policy.Prompt)
		}
	}
	if !slices.Contains(reached, false) && string(places) == string(v.offered) {
		return v.whole
	}
	return newSight(v, places, func(i int) bool { return reached[i] })
}

// reaches reports whether some item of these kinds of the upstream might be visible.
func (s *SubjectView) reaches(st *Stock, kinds ...policy.Kind) bool {
	b := st.Backend
	return slices.ContainsFunc(kinds, func(k policy.Kind) bool {
		return s.Rights.Reaches(k, b.Name(), b.Config().Capabilities, st.settings.Names.Full(PrefixOf(b), ""))
	})
}

// sees reports whether the subject sees a target of the view.
func (s *SubjectView) sees(t *Target) bool {
	switch {
	case t.Connects: // the connect tool is visible to all who may use any item of the upstream
		return s.reaches(t.stock, policy.Tool, policy.Prompt, policy.Resource)
	case s.Safeguards.Pinned && t.withheld():
		return false
	}
	return s.Ruling(t).Visible()
}

// Named returns the tool or prompt with this name that the subject sees; nil for none. Items that
// the subject does not see do not make an own name ambiguous.
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

// Ruling returns the ruling about a target of the view, or about a resource in no list.
func (s *SubjectView) Ruling(t *Target) *policy.Ruling { return s.rulings.ruling(s.Rights, t) }
