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
	may := func(b Backend, own string, bare bool) *Target {
		if t := NewResource(b, own, uri, bare); s.Ruling(t).Visible() {
			return t
		}
		return nil
	}
	if v.Bare {
		for st := range sight.Stocks() {
			if !hasResources(st.Catalog) {
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
			if hasResources(st.Catalog) {
				if t := may(st.Backend, own, false); t != nil {
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

// owners returns the upstreams that list the URI, else those with a matching template. It is for
// URIs without the name of their upstream: web addresses, and URIs from texts of upstreams.
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

// maxSearched bounds the bytes that are searched for the owners of one URI. Beyond it, every
// upstream with a template of the same beginning counts as an owner.
const maxSearched = 256 << 10

// MaxLookedUp bounds the length of URIs that are compared with templates, in bytes.
const MaxLookedUp = 8 << 10

// hasResources reports whether an upstream has resources, or may have some.
func hasResources(c *upstream.Catalog) bool {
	return c.Offers("resources") || len(c.Resources) > 0 || len(c.Templates) > 0 || unlisted(c)
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
