package credentials

import (
	"context"
	"strings"

	"junction/auth/oauth"
	"junction/upstream"
)

// operator is the source of mode oauth: the operator signs in with junction login, and all callers use
// that sign-in.
type operator struct{ signIn }

func newOAuth(o Options) Source { return &operator{signIn{upstream.AuthOAuth, o.OAuth}} }

// Apply implements Source.
func (s *operator) Apply(ctx context.Context, c upstream.Caller, refused ...string) (upstream.Credential, error) {
	got, missing, broken, err := s.token(ctx, c.Upstream, oauth.Operator, refused)
	if missing {
		return got, &upstream.LackError{Upstream: c.Upstream, Mode: c.Mode, Again: broken,
			Reason: s.ending(ctx, c.Upstream, oauth.Operator, broken)}
	}
	return got, err
}

func (s *operator) granted(ctx context.Context, c upstream.Caller) []string {
	return s.scopes(ctx, c.Upstream, oauth.Operator)
}

// State implements Source: the client secret of the operator's sign-in may expire.
func (s *operator) State(ctx context.Context, c upstream.Caller) upstream.CredentialState {
	state := s.signIn.State(ctx, c)
	if why := s.ending(ctx, c.Upstream, oauth.Operator, true); why != "" {
		why += "; sign in again: junction login " + c.Upstream
		state.Notes = strings.TrimPrefix(state.Notes+"; "+why, "; ")
	}
	return state
}
