package serve

import (
	"maps"
	"slices"

	"junction/auth"
	"junction/auth/credentials"
	"junction/policy"
	"junction/proxy/scope"
	"junction/upstream"
)

// This file connects the parts of upstream sign-ins of users: the pages of the authorization
// server, the OAuth client, the upstreams of each user, and the proxy.

// Of implements scope.People. A token of another issuer gets no upstreams of its own, because its
// subject could not sign in to our pages as the same user.
func (s *signIn) Of(who *auth.Principal) []*upstream.Upstream {
	if who.Kind == auth.KindUser && !s.issuers[who.Issuer] {
		return nil
	}
	return s.program.set.Of(who.ID, func(m upstream.AuthMode) bool { return credentials.MayHave(m, who.Kind) })
}

// uses reports whether a user may use anything of an upstream on some endpoint. If policies match
// addresses, it returns true.
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

// servers returns the names of the upstreams that a user may use, sorted.
func (r *reach) servers(p *auth.Principal) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(r.config.Upstreams)) {
		if !r.config.Upstreams[name].Off() && r.uses(p, name) {
			names = append(names, name)
		}
	}
	return names
}

var _ scope.People = (*signIn)(nil)
