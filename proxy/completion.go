package proxy

import (
	"context"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// complete has the argument of a prompt or of a resource template completed by its upstream, as far
// as policy allows (completing.go). An upstream that completes nothing has nothing to say, which is
// an empty completion: the capability that the client relies on is ours.
func complete(ctx context.Context, s *Server, x *exchange, info *CallInfo) (result, error) {
	if !x.share.Sight().Offers.Completions {
		return result{}, unknownMethod(x.era, x.msg.Method)
	}
	t, err := x.reference(info)
	if err != nil {
		return result{}, err
	}
	info.Upstream = t.Backend.Name()
	if err := x.scoped(t); err != nil {
		return result{}, err
	}
	f, err := x.completionFilter(t, info)
	if err != nil {
		return result{}, err
	}
	if f.denied || !view.Completes(t.Backend.Catalog()) {
		return s.own(x, `"completion":{"values":[]}`), nil
	}
	r, err := s.call(ctx, x, t, nil)
	if peer, ok := err.(*jsonrpc.Error); ok && peer.Code == mcp.METHOD_NOT_FOUND {
		return s.own(x, `"completion":{"values":[]}`), nil
	}
	if err != nil || f.template == nil {
		return r, err
	}
	return f.filter(s, r)
}

// reference returns what the request's ref stands for.
func (x *exchange) reference(info *CallInfo) (*view.Target, error) {
	ref, err := x.params.Object("ref")
	if err != nil && err != raw.ErrAbsent {
		return nil, err
	}
	kind, err := ref.String("type")
	if err != nil && err != raw.ErrAbsent {
		return nil, err
	}
	key := map[string]string{"ref/prompt": "name", "ref/resource": "uri"}[kind]
	if info.Name, err = ref.String(key); err == raw.ErrAbsent {
		return nil, invalidParams("Invalid params: ref is neither a prompt with a name nor a resource with a uri")
	} else if err != nil {
		return nil, err
	}
	var found *view.Target
	if key == "uri" {
		// in either era it is a parameter of the request
		if found, err = x.find(upstream.EraModern, info.Name, info); err != nil {
			return nil, err
		}
	} else if found = x.named(upstream.PartPrompts, info.Name, info); found == nil {
		return nil, unknownPrompt(info.Name)
	}
	t := *found
	t.Member = []string{"ref", key}
	return &t, nil
}

// own is a result of ours: members, and what the era wants beside them.
func (s *Server) own(x *exchange, members string) result {
	if x.era == upstream.EraLegacy {
		return result{body: []byte("{" + members + "}")}
	}
	return result{body: append(append([]byte("{"+members+`,"resultType":"complete","_meta":`), s.modernMeta...), '}')}
}
