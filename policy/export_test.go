package policy

import "junction/upstream/raw"

// Decide combines For, Bind and Ruling.Decide.
func (p *Policy) Decide(s Subject, it Item, arguments raw.Object) (Decision, error) {
	return p.For(s).Bind(it).Decide(arguments)
}

// Holds reports whether the subject holds a capability.
func (r *Rights) Holds(capability string) bool { return r.held[capability] }
