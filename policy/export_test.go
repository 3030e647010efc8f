package policy

import "junction/upstream/raw"

// Decide combines For, Bind and Ruling.Decide.
func (p *Policy) Decide(s Subject, it Item, arguments raw.Object) (Decision, error) {
	return p.For(s).Bind(it).Decide(arguments)
}

// Holds reports whether the subject holds a capability.
func (r *Rights) Holds(capability string) bool { return r.held[capability] }

// Odd reports whether a URI is ambiguous.
func Odd(uri string) bool { return odd(uri) }

// WithinBudget reports whether the forms of URIs are within their budget, and whether the readings as
// a path are, too.
func WithinBudget(uris ...string) (forms, all bool) {
	var f former
	for i, uri := range uris {
		its := f.within(uri, maxNesting, i == 0)
		f.known, f.meanings = uri, its
	}
	return f.work <= maxWork, f.work <= maxWork && f.reading <= maxReadings
}
