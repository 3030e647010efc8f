package policy

import (
	"slices"
	"strings"
)

// Verdicts is a set of verdicts.
type Verdicts uint8

// undecided is the set member for "no rule applies".
const undecided = Allow + 1

func (s Verdicts) with(v Verdict) Verdicts { return s | 1<<v }

func (s Verdicts) without(v Verdict) Verdicts { return s &^ (1 << v) }

// Has reports whether the set contains v.
func (s Verdicts) Has(v Verdict) bool { return s&(1<<v) != 0 }

// Only reports whether the set contains v and no other verdict.
func (s Verdicts) Only(v Verdict) bool { return s == Verdicts(0).with(v) }

// Beginning returns the possible verdicts for reading a resource of the item's upstream whose URI
// begins with one of the item's names. It is for URIs with an unknown end, such as an expansion of
// a URI template with missing variables.
//
// The set contains every verdict that such a URI can get, and perhaps others. Dot segments in the
// unknown part are an exception: such a URI gets a decision of its own.
func (r *Rights) Beginning(it Item) Verdicts {
	if r.also != nil {
		return strictestOf(r.beginning(it), r.also.Beginning(it))
	}
	return r.beginning(it)
}

// beginning is Beginning without the other policy.
func (r *Rights) beginning(it Item) Verdicts {
	var possible Verdicts
	if slices.ContainsFunc(it.Requires, func(c string) bool { return !r.held[c] }) {
		return possible.with(Deny)
	}
	b := newBeginning(it)
	possible = possible.with(undecided)
	for from, to := 0, 0; from < len(r.entries) && possible.Has(undecided); from = to {
		for to = from; to < len(r.entries) && r.entries[to].layer == r.entries[from].layer; to++ {
		}
		possible = possible.without(undecided) | b.decides(r.entries[from:to], false)
	}
	if enforced := r.enforced(); enforced != nil {
		held := b.decides(enforced, true)
		if held.Has(Allow) { // as if no enforced rule applied
			held = held.without(Allow).with(undecided)
		}
		possible = strictestOf(possible, held)
	}
	if possible.Has(undecided) {
		possible = possible.without(undecided).with(Deny)
	}
	return possible
}

// enforced returns the enforced policies.
func (r *Rights) enforced() (all []*entry) {
	for _, e := range r.entries {
		if e.enforced {
			all = append(all, e)
		}
	}
	return all
}

// beginning is the item of Beginning, with every other reading of its names.
type beginning struct {
	named
	open []string // possible beginnings of a continued name, by any reading
}

func newBeginning(it Item) beginning {
	it.Kind = Resource
	b := beginning{named: newNamed(&it)}
	if b.computeForms(); b.long {
		return b
	}
	for _, uri := range it.Names {
		b.open = append(b.open, uri)
		scheme, rest, found := strings.Cut(uri, ":")
		if rest, slashes := strings.CutPrefix(rest, "//"); found && (!slashes || !strings.Contains(rest, "/")) {
			b.open = append(b.open, strings.ToLower(scheme)+":") // the rest of the host is unknown
		}
	}
	b.open = append(b.open, b.forms...)
	return b
}

// decides returns the possible verdicts of a layer, or of all enforced policies if enforcing, with
// undecided if perhaps no rule applies. Enforced policies count as in decideEnforced and decideLayer.
func (b *beginning) decides(entries []*entry, enforcing bool) Verdicts {
	all, outcomes := Verdicts(0), Verdicts(0).with(undecided)
	for _, e := range entries {
		var its Verdicts
		surely, quiet := false, e.enforced && !enforcing
		for i := range e.rules {
			verdict, may, must := b.selects(&e.rules[i])
			switch {
			case must && verdict.Denies():
				return Verdicts(0).with(Deny)
			case may && verdict.Denies():
				all = all.with(Deny)
			case may && !surely:
				if surely = must; quiet && verdict.Asks() {
					verdict = undecided
				}
				its = its.with(verdict)
			}
		}
		if !surely {
			its = its.with(undecided)
		}
		outcomes = strictestOf(outcomes, its)
	}
	return all | outcomes
}

// strictestOf returns the stricter verdict of each pair of a verdict of a and one of b.
func strictestOf(a, b Verdicts) Verdicts {
	var all Verdicts
	for v := Deny; v <= undecided; v++ {
		for w := Deny; w <= undecided; w++ {
			if a.Has(v) && b.Has(w) {
				all = all.with(min(v, w))
			}
		}
	}
	return all
}

// selects reports whether a rule may, or must, apply to a URI that begins so, and its verdict.
func (b *beginning) selects(r *rule) (v Verdict, may, must bool) {
	switch {
	case !r.appliesTo(b.Upstream), r.hints != nil, len(r.where) > 0:
		return r.verdict, false, false
	case r.every:
		return r.verdict, true, true
	}
	for i := range r.resources {
		mayThis, mustThis := b.within(&r.resources[i], r.verdict)
		may, must = may || mayThis, must || mustThis
	}
	if r.skills != nil && (len(b.Within) > 0 || slices.ContainsFunc(b.Names, mayBeInSkill)) {
		may = true // the unknown end may lead into any skill
	}
	switch {
	case r.verdict.Asks() && may && b.odd:
		return Deny, may, must // as in selectsPlace
	case !r.verdict.doubts() && b.odd && !must:
		may = false
	}
	return r.verdict, may, must
}

// within reports whether a URI that begins so may, or must, match the place.
func (b *beginning) within(p *place, v Verdict) (may, must bool) {
	switch {
	case p.plain.everything():
		return true, true
	case b.long:
		may = v.doubts() && p.mayMeanOne(b.Names)
		return may, may
	case !v.doubts():
		may = slices.ContainsFunc(b.Names, p.plain.mayBegin)
		return may, !b.odd && slices.ContainsFunc(b.Names, p.plain.goesOn)
	}
	may = slices.ContainsFunc(b.open, p.mayMean)
	must = slices.ContainsFunc(b.forms, func(s string) bool {
		return p.some(func(g glob) bool { return g.goesOn(s) })
	})
	return may || must, must
}

// goesOn reports whether the glob matches the text with any continuation.
func (g glob) goesOn(s string) bool {
	last := g.segments[len(g.segments)-1]
	return len(g.segments) > 1 && len(last) == 1 && last[0] == "" && g.match(s)
}
