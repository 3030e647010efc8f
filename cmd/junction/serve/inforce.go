package serve

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"junction/auth"
	"junction/cmd/junction/base/config"
	"junction/policy"
	"junction/proxy/scope"
	"junction/upstream"
)

// inForce is what is in force of the configuration: who may call, and what.
type inForce struct {
	*common
	config    *config.Config             // owned by the start, then by reloadLoop; all others call now
	reach     atomic.Pointer[reach]      // nil before the first commit
	guard     atomic.Pointer[auth.Guard] // nil before the first commit
	contents  *contents
	pinned    *pinned
	listening *listening
	recording *recording
	measuring *measuring
	signIns   *signIns
}

// Open keeps the configuration of the start, which is not in force yet.
func (r *inForce) Open(c *config.Config) error {
	r.config = c
	return nil
}

// Prepare compiles the policies of a configuration.
func (r *inForce) Prepare(next *config.Config) (prepared, error) {
	policy := r.policy(next)
	return prepared{use: func() {
		r.guard.Store(r.newGuard(next))
		r.reach.Store(&reach{policy, next})
		r.config = next
	}}, nil
}

// Close does nothing.
func (r *inForce) Close() {}

// refused notes that a server, or its authorization server, does not accept the secret of an
// upstream: the programs that print it run again.
func (r *inForce) refused(upstream string) { r.contents.programs.Refused(upstream) }

// other returns the entry of an upstream with other secrets of its programs, after one was refused: differs reports
// whether an entry has another one. If it does not, the programs run again.
func (r *inForce) other(ctx context.Context, name string, differs func(upstream.Config) bool) (upstream.Config, bool) {
	c := r.now()
	if !c.HasProgram(name) {
		return upstream.Config{}, false
	}
	u := c.Reprinted(name, r.file, r.getenv, r.contents.programs.Value)
	if !differs(u) {
		r.contents.programs.Again(ctx, name)
		u = c.Reprinted(name, r.file, r.getenv, r.contents.programs.Value)
	}
	return u, differs(u)
}

// otherHeaders is upstream.Hooks.Others.
func (r *inForce) otherHeaders(ctx context.Context, name string, sent map[string]string) map[string]string {
	u, ok := r.other(ctx, name, func(u upstream.Config) bool {
		for header, value := range sent {
			if u.Headers[header] != value {
				return true
			}
		}
		return false
	})
	if !ok {
		return nil
	}
	return u.Headers
}

// otherSecret is oauth.Options.Other.
func (r *inForce) otherSecret(ctx context.Context, name, sent string) string {
	u, _ := r.other(ctx, name, func(u upstream.Config) bool { return u.Auth.ClientSecret != sent })
	return u.Auth.ClientSecret
}

// newGuard returns the guard of a configuration, whose keys and issuers are in force from then on.
func (r *inForce) newGuard(c *config.Config) *auth.Guard {
	var own auth.Verifier
	if r.signIns.users != nil {
		own = r.signIns.users.verifier(c)
	}
	guard := c.Auth.Guard(r.signIns.providers, cmp.Or(c.PublicURL, strings.TrimSuffix(r.listening.url(), "/mcp")), own)
	guard.Log, guard.Refused, guard.Accepted = r.log, r.recording.audit.Refused, r.recording.audit.Authenticated
	guard.Checked = r.measuring.telemetry.Checked
	guard.Among(r.signIns.others)
	return guard
}

// policy compiles the policies of the file. Without the key policies, every principal may use
// everything.
func (r *inForce) policy(c *config.Config) *policy.Policy {
	compiled, err := c.Compile()
	if err != nil {
		// unreachable: Load rejects such a file
		r.log.Error("all requests are denied: the policies cannot be understood", "error", err)
		return nil
	}
	return compiled
}

// now returns the configuration in force, also before it is applied.
func (r *inForce) now() *config.Config {
	if reach := r.reach.Load(); reach != nil {
		return reach.config
	}
	return r.config // the start has not ended yet
}

// names returns the names of the upstreams in the file, also of disabled ones; nil before the first commit.
func (r *inForce) names() []string {
	if reach := r.reach.Load(); reach != nil {
		return append([]string{}, slices.Collect(maps.Keys(reach.config.Upstreams))...)
	}
	return nil
}

// reach is the policy and the configuration in force, for questions about access.
type reach struct {
	policy *policy.Policy
	config *config.Config
}

// any reports whether a user may use anything on some endpoint. If policies match addresses, it
// returns true, since the address of the client is not known yet.
func (r *reach) any(p *auth.Principal) bool {
	if r == nil || r.policy.MatchesAddress() {
		return true
	}
	return r.some(p, func(rights *policy.Rights) bool { return !rights.None() })
}

// some reports whether the user's rights on some endpoint satisfy such.
func (r *reach) some(p *auth.Principal, such func(*policy.Rights) bool) bool {
	s := scope.Subject(p, "")
	s.Address = netip.Addr{} // the address of the client is unknown until it connects
	if such(r.policy.For(s)) {
		return true
	}
	for name, e := range r.config.Endpoints {
		if s.Surface = cmp.Or(e.Surface, name); such(r.policy.For(s)) {
			return true
		}
	}
	return false
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
