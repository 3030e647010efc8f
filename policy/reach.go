package policy

import (
	"slices"
	"strings"
)

// some reports whether such a policy exists.
func (p *Policy) some(such func(*entry) bool) bool {
	return p != nil && (slices.ContainsFunc(p.entries, such) || p.also.some(such))
}

// MatchesAddress reports whether decisions depend on the client address.
func (p *Policy) MatchesAddress() bool {
	return p.some(func(e *entry) bool { return e.match.cidr != nil })
}

// Pins reports whether some subjects may see only accepted definitions.
func (p *Policy) Pins() bool {
	return p.some(func(e *entry) bool { return e.safeguards.Pinned })
}

// None reports whether the subject may do nothing: no matching rule allows or asks.
func (r *Rights) None() bool {
	if r.also != nil && r.also.None() {
		return true
	}
	return !slices.ContainsFunc(r.entries, func(e *entry) bool {
		return slices.ContainsFunc(e.rules, func(r rule) bool { return !r.verdict.Denies() })
	})
}

// Reaches reports whether some item of a kind and upstream might be visible. All such items require
// these capabilities, and all their names begin with begin; "" means any name.
func (r *Rights) Reaches(k Kind, upstream string, requires []string, begin string) bool {
	if slices.ContainsFunc(requires, func(c string) bool { return !r.reaches(c) }) ||
		r.also != nil && !r.also.Reaches(k, upstream, requires, begin) {
		return false
	}
	whole := func(r rule) bool {
		return r.verdict.Denies() && r.every && r.hints == nil && len(r.where) == 0 && r.appliesTo(upstream)
	}
	if slices.ContainsFunc(r.entries,
		func(e *entry) bool { return e.enforced && slices.ContainsFunc(e.rules, whole) }) {
		return false
	}
	may := func(globs []glob) bool {
		return slices.ContainsFunc(globs, func(g glob) bool { return g.mayBegin(begin) })
	}
	return slices.ContainsFunc(r.entries, func(e *entry) bool {
		return slices.ContainsFunc(e.rules, func(r rule) bool {
			named := r.every || k == Tool && may(r.tools) || k == Prompt && may(r.prompts) || k == Resource &&
				(r.resources != nil || r.skills != nil) || k == Skill && r.skills != nil
			return !r.verdict.Denies() && named && r.appliesTo(upstream) && r.hints.mayKind(k, upstream)
		})
	})
}

// mayBegin reports whether the glob might match a text that begins like this. It only compares the
// part before the first star or question mark.
func (g glob) mayBegin(begin string) bool {
	head := g.segments[0][0]
	if _, all := g.literal(); all || len(head) > len(begin) {
		return strings.HasPrefix(head, begin)
	}
	return strings.HasPrefix(begin, head)
}

// Reads reports whether a decision depends on the arguments. If not, Decide ignores them.
func (g *Ruling) Reads() bool { return !g.fixed }
