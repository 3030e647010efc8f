package proxy

import (
	"context"
	"errors"
	"strings"

	"junction/policy"
	"junction/upstream"
	"junction/upstream/raw"
)

func listResources(_ context.Context, s *Server, x *exchange, _ *CallInfo) (result, error) {
	return s.list(x, upstream.PartResources)
}

func listTemplates(_ context.Context, s *Server, x *exchange, _ *CallInfo) (result, error) {
	return s.list(x, upstream.PartTemplates)
}

// readResource passes a read on to the upstream that the URI belongs to.
func readResource(ctx context.Context, s *Server, x *exchange, info *CallInfo) (result, error) {
	t, err := x.resource(info)
	if err != nil {
		return result{}, err
	}
	if err := x.permit(t, info, func() error { return unknownResource(x.era, info.Name) }); err != nil {
		return result{}, err
	}
	return s.call(ctx, x, t, nil)
}

// resource returns what the request's uri stands for: something that the caller may use, if only
// after it was asked.
func (x *exchange) resource(info *CallInfo) (*target, error) {
	uri, err := x.params.String("uri")
	if err == raw.ErrAbsent {
		return nil, invalidParams("Invalid params: no uri")
	} else if err != nil {
		return nil, err
	}
	return x.find(x.era, uri, info)
}

// find returns what a URI stands for; the error is one for a client of that era. Of what the caller
// is denied the audit has what denies it.
func (x *exchange) find(era upstream.Era, uri string, info *CallInfo) (*target, error) {
	info.Name = uri
	t, err := x.share.resource(uri)
	if err != nil {
		if denied, other := everything(x.endpoint.view).resource(uri); other == nil {
			x.decide(denied, info)
			info.Verdict = policy.Deny.String()
		}
		return nil, noResource(era, uri, err)
	}
	info.Upstream, info.Own = t.backend.Name(), t.name
	return t, nil
}

// everything is the part of a view that somebody sees who may use all of it.
func everything(v *view) *seen {
	s := newSeen(v, policy.Open().For(policy.Subject{}), nil, nil)
	s.looking.Do(func() { s.found = v.whole })
	return s
}

// resource finds the upstream that a URI belongs to, and its own URI there. Most resources are in
// no list, so that it is the upstream who says that there is none. One that could belong to two
// upstreams is refused: what an upstream wrote into a text may be as good as the name that we gave
// it, but never a guess. What the subject may not use does not exist here, either, and makes
// nothing ambiguous.
func (s *seen) resource(uri string) (*target, error) {
	v, sight := s.view, s.sight()
	may := func(b backend, own string, bare bool) *target {
		if t := newResource(b, own, uri, bare); s.ruling(t).Visible() {
			return t
		}
		return nil
	}
	if v.bare {
		for st := range sight.stocks() {
			if !reads(st.catalog) {
				break
			}
			if t := may(st.backend, uri, true); t != nil {
				return t, nil
			}
		}
		return nil, errUnknownURI
	}
	if name, own, ok := splitURI(uri); ok {
		for st := range sight.stocks() {
			if st.backend.Name() != name {
				continue
			}
			if reads(st.catalog) {
				if t := may(st.backend, own, false); t != nil {
					return t, nil
				}
			}
			return nil, errUnknownURI
		}
	}
	owners := owners(sight.stocks(), uri)
	if len(owners) == 0 && strings.HasPrefix(uri, "mcp://") {
		return nil, errUnknownURI // of an upstream that is no more
	}
	if len(owners) == 0 {
		for st := range sight.stocks() {
			if reads(st.catalog) && !(st.backend.Tried() && unknown(st.catalog)) {
				owners = append(owners, st.backend)
			}
		}
	}
	var found []*target
	var names []string
	for _, b := range owners {
		if t := may(b, uri, false); t != nil {
			found, names = append(found, t), append(names, b.Name())
		}
	}
	switch len(found) {
	case 0:
		return nil, errUnknownURI
	case 1:
		return found[0], nil
	}
	return nil, &ambiguousError{uri, names}
}

func newResource(b backend, own, exposed string, bare bool) *target {
	return &target{backend: b, part: upstream.PartResources, name: own, exposed: exposed, member: []string{"uri"}, bare: bare}
}

// reads reports whether an upstream has resources, or may have some as far as we know.
func reads(c *upstream.Catalog) bool {
	return c.Offers("resources") || len(c.Resources) > 0 || len(c.Templates) > 0 || unknown(c)
}

// errUnknownURI means that a URI belongs to no upstream that the subject may use.
var errUnknownURI = errors.New("unknown resource")

// ambiguousError means that a URI may belong to any of several upstreams.
type ambiguousError struct {
	uri       string
	upstreams []string
}

func (e *ambiguousError) Error() string {
	return "resource " + e.uri + " may belong to " + strings.Join(e.upstreams, ", ")
}
