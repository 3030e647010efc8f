package policy

import (
	"slices"

	"junction/upstream/yamlread"
)

// This file binds subjects to endpoints. Outside of its endpoints, nothing exists for a subject.

// Outside returns the name of a policy of the subject whose endpoints do not contain this one; "" if
// there is none, so that the subject may use the endpoint.
func (r *Rights) Outside(endpoint string) string {
	for e := range r.all {
		if e.endpoints != nil && !slices.Contains(e.endpoints, endpoint) {
			return e.name
		}
	}
	return ""
}

// Matcher is a compiled Match. A nil Matcher matches every subject.
type Matcher struct{ matcher }

// CompileMatch compiles a match that ValidateMatch accepts. It returns nil for nil.
func CompileMatch(m *Match) *Matcher {
	if m == nil {
		return nil
	}
	return &Matcher{compileMatch(m)}
}

// Matches reports whether every key of the match holds for the subject.
func (m *Matcher) Matches(s Subject) bool { return m == nil || m.matches(&s) }

// ValidateMatch returns the mistakes in the key match of an endpoint, which chooses who may use it.
func ValidateMatch(m *Match) []yamlread.Problem {
	v := &validator{}
	if v.match(".match", m); m != nil && m.Surface != nil {
		v.bad(".match.surface", "says nothing about the caller, who chooses the surface with the URL; name a key, a "+
			"user or a group")
	}
	return v.problems
}
