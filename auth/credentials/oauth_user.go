package credentials

import (
	"context"

	"junction/upstream"
)

// person is the source of mode oauth_user: each user signs in on a page of Junction, and has tokens of
// their own.
type person struct {
	signIn
	page func(upstream, user string, scopes ...string) string
}

func newOAuthUser(o Options) Source {
	return &person{signIn{upstream.AuthOAuthUser, o.OAuth}, o.ConnectURL}
}

// Apply implements Source.
func (s *person) Apply(ctx context.Context, c upstream.Caller, refused ...string) (upstream.Credential, error) {
	got, missing, broken, err := s.token(ctx, c.Upstream, c.User, refused)
	if missing {
		need := &upstream.SignInError{Upstream: c.Upstream, Mode: c.Mode, Again: broken,
			Reason: s.ending(ctx, c.Upstream, c.User, broken)}
		if s.page != nil {
			need.URL = s.page(c.Upstream, c.User)
		}
		return got, need
	}
	return got, err
}

func (s *person) granted(ctx context.Context, c upstream.Caller) []string {
	return s.scopes(ctx, c.Upstream, c.User)
}
