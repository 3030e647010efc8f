package proxy

import (
	"context"

	"junction/policy"
	"junction/proxy/view"
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
func (x *exchange) resource(info *CallInfo) (*view.Target, error) {
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
func (x *exchange) find(era upstream.Era, uri string, info *CallInfo) (*view.Target, error) {
	info.Name = uri
	t, err := x.share.Resource(uri)
	if err != nil {
		if denied, other := view.Everything(x.endpoint.view).Resource(uri); other == nil {
			x.decide(denied, info)
			info.Verdict = policy.Deny.String()
		}
		return nil, noResource(era, uri, err)
	}
	info.Upstream, info.Own = t.Backend.Name(), t.Name
	return t, nil
}
