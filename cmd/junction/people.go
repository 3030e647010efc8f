package main

import (
	"context"
	"errors"

	"junction/auth"
	"junction/auth/authserver"
	"junction/policy"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/oauth"
)

// This file joins what people sign in to upstreams by: the pages of the authorization server, the
// OAuth client behind them, the upstreams of each person, and the proxy, none of which knows the
// others.

// people are those who have signed in here, as the proxy and the upstreams want to know them.
type people struct {
	program *program
	oauth   *oauth.Client
	pages   *authserver.Server
	issuers map[string]bool // of the providers that people sign in with here
}

// Of is proxy.People's. Whoever comes with a token of another issuer's could not come to our pages
// as the same person.
func (p *people) Of(who *auth.Principal) []*upstream.Upstream {
	if who.Kind != auth.KindUser || !p.issuers[who.Issuer] {
		return nil
	}
	return p.program.set.Of(who.ID)
}

// Token is upstream.Credentials'.
func (p *people) Token(ctx context.Context, name, person string, refused ...string) (string, error) {
	token, err := p.oauth.Token(ctx, name, person, refused...)
	if broken := errors.Is(err, oauth.ErrBroken); broken || errors.Is(err, oauth.ErrNotConnected) {
		return "", &upstream.SignInError{Upstream: name, URL: p.pages.ConnectURL(name, person), Again: broken}
	}
	return token, err
}

// uses reports whether somebody who signs in may use anything of an upstream, on some endpoint.
func (r *reach) uses(p *auth.Principal, upstream string) bool {
	if r == nil || r.policy.MatchesAddress() {
		return true
	}
	return r.some(p, func(rights *policy.Rights) bool {
		u, there := r.config.Upstreams[upstream]
		_, begin := r.config.Names.Expose(u.PrefixOr(upstream), "")
		for _, k := range []policy.Kind{policy.Tool, policy.Prompt, policy.Resource} {
			if there && rights.Reaches(k, upstream, u.Capabilities, begin) {
				return true
			}
		}
		return false
	})
}

var (
	_ proxy.People = (*people)(nil)
)
