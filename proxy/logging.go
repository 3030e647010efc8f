package proxy

import (
	"context"

	"junction/upstream"
)

// setLevel answers logging/setLevel of a legacy client: the level is its session's, and goes to
// upstreams with each of its calls.
func setLevel(_ context.Context, _ *Server, x *exchange, _ *CallInfo) (result, error) {
	if !x.share.Sight().Offers.Logging {
		return result{}, unknownMethod(x.era, x.msg.Method)
	}
	level, err := x.params.String("level")
	if err != nil || upstream.Level(level) == 0 {
		return result{}, invalidParams("Invalid params: level is none of debug, info, notice, warning, error, critical, alert, emergency")
	}
	x.session.mu.Lock()
	x.session.level = level
	x.session.mu.Unlock()
	return result{body: []byte("{}")}, nil
}

// logLevel returns the level that the client has set; "" when it has set none.
func (s *session) logLevel() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level
}
