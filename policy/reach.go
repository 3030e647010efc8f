package policy

import "slices"

// MatchesAddress reports whether what a subject may do depends on its address.
func (p *Policy) MatchesAddress() bool {
	return p != nil && slices.ContainsFunc(p.entries, func(e *entry) bool { return e.match.cidr != nil })
}

// Pins reports whether some subjects are to see accepted definitions only.
func (p *Policy) Pins() bool {
	return p != nil && slices.ContainsFunc(p.entries, func(e *entry) bool { return e.guards.Pinned })
}

// None reports whether the subject may do nothing at all: no rule that matches it allows or asks.
func (r *Rights) None() bool {
	return !slices.ContainsFunc(r.entries, func(e *entry) bool {
		return slices.ContainsFunc(e.rules, func(r rule) bool { return r.verdict != Deny })
	})
}

// Reaches reports whether some item of that kind and upstream might be visible, whatever its name, where all of them require these capabilities.
func (r *Rights) Reaches(k Kind, upstream string, requires []string) bool {
	if slices.ContainsFunc(requires, func(c string) bool { return !r.held[c] }) {
		return false
	}
	return slices.ContainsFunc(r.entries, func(e *entry) bool {
		return slices.ContainsFunc(e.rules, func(r rule) bool {
			named := r.every || k == Tool && r.tools != nil || k == Prompt && r.prompts != nil || k == Resource && r.resources != nil
			return r.verdict != Deny && named && (r.upstreams == nil || slices.ContainsFunc(r.upstreams, func(g glob) bool { return g.match(upstream) }))
		})
	})
}

// Reads reports whether a decision depends on the arguments. Where it does not, Decide needs none.
func (g *Ruling) Reads() bool { return !g.fixed }
