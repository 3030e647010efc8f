package view

import (
	"errors"
	"iter"
	"strings"

	"junction/policy"
	"junction/upstream"
)

// Everything returns the view for a subject that may use all of it.
func Everything(v *View) *SubjectView {
	s := NewSubjectView(v, policy.Open().For(policy.Subject{}), nil, nil)
	s.looking.Do(func() { s.Found = v.whole })
	return s
}

// Resource finds the upstream of a URI, and the upstream's own URI. Most resources are in no list,
// so only the upstream can tell whether one exists. A URI that could belong to two upstreams is an
// error: own URIs from texts of upstreams are accepted, but Junction does not guess. Items that the
// subject may not use are ignored and do not make a URI ambiguous.
func (s *SubjectView) Resource(uri string) (*Target, error) {
	v, sight := s.View, s.Sight()
	may := func(st *Stock, own string, bare bool) *Target {
		t := NewResource(st.Backend, own, uri, bare)
		if t.home = st; s.Ruling(t).Visible() {
			return t
		}
		return nil
	}
	if v.Bare {
		for st := range sight.Stocks() {
			if !hasResources(st.Catalog) {
				break
			}
			if t := may(st, uri, true); t != nil {
				return t, nil
			}
		}
		return nil, ErrUnknown
	}
	if name, own, ok := splitURI(uri); ok {
		for st := range sight.Stocks() {
			if st.Backend.Name() != name {
				continue
			}
			if hasResources(st.Catalog) {
				if t := may(st, own, false); t != nil {
					return t, nil
				}
			}
			return nil, ErrUnknown
		}
	}
	owners := owners(sight.Stocks(), uri)
	if len(owners) == 0 && strings.HasPrefix(uri, "mcp://") {
		return nil, ErrUnknown // its upstream was removed
	}
	if len(owners) == 0 {
		for st := range sight.Stocks() {
			if hasResources(st.Catalog) && !(st.Backend.Tried() && unlisted(st.Catalog)) {
				owners = append(owners, st)
			}
		}
	}
	var found []*Target
	var names []string
	for _, st := range owners {
		if t := may(st, uri, false); t != nil {
			found, names = append(found, t), append(names, st.Backend.Name())
		}
	}
	switch len(found) {
	case 0:
		return nil, ErrUnknown
	case 1:
		return found[0], nil
	}
	return nil, &AmbiguousError{uri, names}
}

// owners returns the stocks that list the URI, else those with a matching template. It is for
// URIs without the name of their upstream: web addresses, and URIs from texts of upstreams.
func owners(stocks iter.Seq[*Stock], uri string) (all []*Stock) {
	for st := range stocks {
		if st.lists(uri) {
			all = append(all, st)
		}
	}
	if len(uri) > MaxLookedUp {
		return all
	}
	steps := 0
	for st := range stocks {
		if !st.lists(uri) && st.mayHave(uri, &steps) {
			all = append(all, st)
		}
	}
	return all
}

// lists reports whether the upstream lists the URI, or a skill in whose folder it is.
func (st *Stock) lists(uri string) bool { return st.uris[uri] || len(st.Catalog.SkillsWith(uri)) > 0 }

// maxSearched bounds the bytes that are searched for the owners of one URI. Beyond it, every
// upstream with a template of the same beginning counts as an owner.
const maxSearched = 256 << 10

// MaxLookedUp bounds the length of URIs that are compared with templates, in bytes.
const MaxLookedUp = 8 << 10

// hasResources reports whether an upstream has resources, or may have some.
func hasResources(c *upstream.Catalog) bool {
	return c.Offers("resources") || len(c.Resources) > 0 || len(c.Templates) > 0 || offersSkills(c) || unlisted(c)
}

// ErrUnknown means that a URI belongs to no upstream that the subject may use.
var ErrUnknown = errors.New("unknown resource")

// AmbiguousError means that a URI may belong to any of several upstreams.
type AmbiguousError struct {
	Uri       string
	Upstreams []string
}

func (e *AmbiguousError) Error() string {
	return "resource " + e.Uri + " may belong to " + strings.Join(e.Upstreams, ", ")
}
