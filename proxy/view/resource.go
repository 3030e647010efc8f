package view

import (
	"errors"
	"iter"
	"strings"

	"junction/policy"
	"junction/upstream"
)

// Everything returns the part of a view for a subject that may use all of it.
func Everything(v *View) *SubjectView {
	s := NewSubjectView(v, policy.Open().For(policy.Subject{}), nil, nil)
	s.looking.Do(func() { s.Found = v.whole })
	return s
}

// Resource finds the upstream that a URI belongs to, and its own URI there. Most resources are in
// no list, so that it is the upstream who says that there is none. One that could belong to two
// upstreams is refused: what an upstream wrote into a text may be as good as the name that we gave
// it, but never a guess. What the subject may not use does not exist here, either, and makes
// nothing ambiguous.
func (s *SubjectView) Resource(uri string) (*Target, error) {
	v, sight := s.View, s.Sight()
	may := func(b Backend, own string, bare bool) *Target {
		if t := NewResource(b, own, uri, bare); s.Ruling(t).Visible() {
			return t
		}
		return nil
	}
	if v.Bare {
		for st := range sight.Stocks() {
			if !HasResources(st.Catalog) {
				break
			}
			if t := may(st.Backend, uri, true); t != nil {
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
			if HasResources(st.Catalog) {
				if t := may(st.Backend, own, false); t != nil {
					return t, nil
				}
			}
			return nil, ErrUnknown
		}
	}
	owners := owners(sight.Stocks(), uri)
	if len(owners) == 0 && strings.HasPrefix(uri, "mcp://") {
		return nil, ErrUnknown // of an upstream that is no more
	}
	if len(owners) == 0 {
		for st := range sight.Stocks() {
			if HasResources(st.Catalog) && !(st.Backend.Tried() && Unlisted(st.Catalog)) {
				owners = append(owners, st.Backend)
			}
		}
	}
	var found []*Target
	var names []string
	for _, b := range owners {
		if t := may(b, uri, false); t != nil {
			found, names = append(found, t), append(names, b.Name())
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

// owners returns those of the upstreams that list the URI, and then those that have a template of
// it. It is for URIs that do not say whose they are: web addresses, and URIs that clients found in
// a text of an upstream's.
func owners(stocks iter.Seq[*Stock], uri string) (all []Backend) {
	for st := range stocks {
		if st.uris[uri] {
			all = append(all, st.Backend)
		}
	}
	if len(uri) > MaxLookedUp {
		return all
	}
	steps := 0
	for st := range stocks {
		if !st.uris[uri] && st.mayHave(uri, &steps) {
			all = append(all, st.Backend)
		}
	}
	return all
}

// maxSearched bounds the bytes that are searched to find the owners of one URI. Every upstream that
// has a template of the same beginning may be an owner then.
const maxSearched = 256 << 10

// MaxLookedUp bounds the URIs that are compared with templates.
const MaxLookedUp = 8 << 10

// HasResources reports whether an upstream has resources, or may have some as far as we know.
func HasResources(c *upstream.Catalog) bool {
	return c.Offers("resources") || len(c.Resources) > 0 || len(c.Templates) > 0 || Unlisted(c)
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
