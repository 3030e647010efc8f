package proxy

import (
	"context"

	"junction/upstream"
	"junction/upstream/raw"
)

func listPrompts(_ context.Context, s *Server, x *exchange, _ *CallInfo) (result, error) {
	return s.list(x, upstream.PartPrompts)
}

// getPrompt has a prompt filled in by its upstream.
func getPrompt(ctx context.Context, s *Server, x *exchange, info *CallInfo) (result, error) {
	name, err := x.params.String("name")
	if err == raw.ErrAbsent {
		return result{}, invalidParams("Invalid params: no name")
	} else if err != nil {
		return result{}, err
	}
	t := x.named(upstream.PartPrompts, name, info)
	if t == nil {
		if t, err = s.awaitNamed(ctx, x, upstream.PartPrompts, name, info); err != nil {
			return result{}, err
		}
	}
	if t == nil {
		return result{}, unknownPrompt(name)
	}
	if err := x.permit(t, info, func() error { return unknownPrompt(name) }); err != nil {
		return result{}, err
	}
	return s.call(ctx, x, t, nil)
}
