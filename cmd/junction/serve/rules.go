package serve

import (
	"cmp"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"junction/auth"
	"junction/cmd/build"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/listeners"
	"junction/policy"
	"junction/proxy/pins"
	"junction/proxy/scope"
	"junction/upstream"
)

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

// apply puts a validated configuration in force.
func (p *program) apply(c *config.Config) {
	limits := c.Limits.WithDefaults()
	executable, err := os.Executable()
	if err != nil {
		executable = "" // then "junction" is not replaced in commands, and the upstream reports a missing program
	}
	var own auth.Verifier
	if p.signIn != nil {
		own = p.signIn.verifier(c)
	}
	guard := c.Auth.Guard(p.providers, cmp.Or(c.PublicURL, strings.TrimSuffix(p.url(), "/mcp")), own)
	guard.Log, guard.Refused, guard.Accepted = p.log, p.recording.audit.Refused, p.recording.audit.Authenticated
	guard.Checked = p.measuring.telemetry.Checked
	p.guard.Store(guard)
	next := scope.Config{Guard: guard, Policy: p.policy(c), Pins: p.pins,
		FirstWait: c.Catalog.FirstWait, Endpoints: c.Endpoints, Names: c.Names, BehindProxy: c.Auth.None,
		AllowedOrigins: append(listeners.Origins(p.public.Addr()), c.AllowedOrigins...), AllowedHosts: c.AllowedHosts}
	if u, err := url.Parse(c.PublicURL); c.PublicURL != "" && err == nil {
		next.AllowedOrigins = append(next.AllowedOrigins, c.PublicURL)
		// The name with any port: a reverse proxy may pass Host without the port of public_url.
		next.AllowedHosts = append(slices.Clip(next.AllowedHosts), u.Hostname())
	}
	if p.signIn != nil && len(c.Personal()) > 0 {
		next.People = p.signIn
	}
	p.sources.Use(c.Upstreams)
	o := upstream.Options{
		Defaults: c.Defaults, MessageLimit: limits.Message, Depth: limits.Nesting, Items: limits.Items,
		Refresh: c.Catalog.Refresh, Grace: c.Catalog.Grace,
		Version: build.Read().Version, Self: executable, Sandboxes: p.sandboxes, Writable: c.Writable,
		Log: p.log, Hooks: p.upstreamHooks(),
		Observer: p.measuring.telemetry.Calls(), Credentials: p.sources, Memory: p.server.UpstreamMemory,
	}
	if p.catalogs != nil {
		o.Store = p.catalogs
	}
	p.set.Apply(c.Upstreams, o, func(running []*upstream.Upstream) { p.server.Apply(next, running) })
	p.cleanCatalogs(c)
	p.reach.Store(&reach{next.Policy, c})
	p.config = c
}

// policy compiles the policies of the file. Without the key policies, every principal may use
// everything.
func (p *program) policy(c *config.Config) *policy.Policy {
	compiled, err := c.Compile()
	if err != nil {
		// unreachable: Load rejects such a file
		p.log.Error("all requests are denied: the policies cannot be understood", "error", err)
		return nil
	}
	return compiled
}

// inForce returns the configuration in force, also before it is applied.
func (p *program) inForce() *config.Config {
	if r := p.reach.Load(); r != nil {
		return r.config
	}
	return p.config // open has not ended yet
}

// loadPins reads the pins file of the configuration. It returns nil if the configuration names
// none.
func loadPins(c *config.Config, file string) (*pins.Pins, error) {
	if c.Pins == "" {
		return nil, nil
	}
	return pins.Load(c.Pins, config.Named(file))
}
