package serve

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"junction/auth"
	"junction/auth/authserver"
	"junction/auth/oauth"
	"junction/auth/seal"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/ops/signins"
	"junction/policy"
	"junction/proxy/scope"
)

// signIn is the authorization server and the upstream sign-ins of its users. It implements
// scope.People (people.go).
type signIn struct {
	*authserver.Server
	program *program
	oauth   *oauth.Client
	issuers map[string]bool // of the configured identity providers
}

// openSignIn prepares the verification of other issuers' tokens, and opens the vault and the
// authorization server if they are configured.
func (p *program) openSignIn(c *config.Config) (err error) {
	fetcher, err := c.Outbound.Fetcher()
	if err != nil {
		return err
	}
	// URLs from the configuration may have any address. URLs from an issuer's documents may not.
	transport := config.Trusting(fetcher)
	p.providers = auth.NewProviders(&http.Client{Transport: transport})
	p.providers.Untrusted = fetcher.Client()
	if err := p.openVault(c); err != nil || c.Auth.OAuth == nil {
		return err
	}
	s := &signIn{program: p, oauth: p.vault.Load().oauth, issuers: map[string]bool{}}
	p.signIn = s // from here on close closes it
	for _, provider := range c.Auth.OAuth.IdentityProviders {
		s.issuers[provider.Issuer] = true
	}
	s.Server, err = authserver.New(authserver.Options{
		Config: *c.Auth.OAuth, URL: c.PublicURL, Scopes: slices.Sorted(maps.Keys(c.Auth.ScopeCapabilities)),
		Store: p.vault.Load().store, Keys: p.vault.Load().keys, Fetch: fetcher.GetJSON, Log: p.log,
		HTTP:      &http.Client{Transport: transport, Timeout: 10 * time.Second},
		Connector: s.oauth,
		MayUse:    func(who *auth.Principal, upstream string) bool { return p.reach.Load().uses(who, upstream) },
		Servers:   func(who *auth.Principal) []string { return p.reach.Load().servers(who) },
		Address:   func(r *http.Request) netip.Addr { return p.guard.Load().Address(r) },
		Limited:   p.telemetry.Limited,
		Ended:     p.catalogChanged, Granted: func(who *auth.Principal) bool { return p.reach.Load().any(who) },
	})
	return err
}

// findRevoked ends here what a command or another process has revoked in the database.
func (p *program) findRevoked(ctx context.Context) error {
	if p.signIn == nil {
		return nil
	}
	return p.signIn.FindRevoked(ctx)
}

// endRevoked is findRevoked for all processes over the database. missed are the addresses of those that do
// not answer.
func (p *program) endRevoked(ctx context.Context) (missed []string, err error) {
	if err := p.findRevoked(ctx); err != nil || p.members == nil {
		return nil, err
	}
	return p.members.TellRevoked(ctx), nil
}

// verifier returns the verifier of the users who sign in here. After a reload that was refused in part,
// users of an identity provider that is not in the configuration are rejected.
func (s *signIn) verifier(c *config.Config) auth.Verifier {
	if c.Both == nil {
		return s.Server
	}
	known := map[string]bool{}
	for _, provider := range c.Auth.OAuth.IdentityProviders {
		known[provider.Issuer] = true
	}
	return usersOf{s.Server, known}
}

// usersOf is a verifier for the users of some issuers.
type usersOf struct {
	*authserver.Server
	issuers map[string]bool
}

var errProvider = fmt.Errorf("%w: the identity provider of the user has changed in the configuration",
	auth.ErrInvalidToken)

func (u usersOf) Verify(ctx context.Context, token string, from netip.Addr) (*auth.Principal, error) {
	p, err := u.Server.Verify(ctx, token, from)
	if err == nil && !u.issuers[p.Issuer] {
		return nil, errProvider
	}
	return p, err
}

func (u usersOf) Still(p *auth.Principal) bool { return u.issuers[p.Issuer] && u.Server.Still(p) }

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

// ring reads the master keys, and creates the first one if there is no key file.
func (p *program) ring(c config.Storage) (*seal.Ring, error) {
	ring, made, err := signins.MasterKeys(c, p.getenv)
	if made != "" {
		p.log.Warn("a master key was made: keep a copy of it, since without it what is stored cannot be read", "file",
			made)
	}
	return ring, err
}

// serves reports whether a request is for the authorization server.
func (s *signIn) serves(r *http.Request) bool {
	path := r.URL.Path
	if rest, page := strings.CutPrefix(path, "/connect/"); page {
		return strings.TrimSuffix(rest, "/") != "mcp" // an endpoint named connect
	}
	return path == "/" || path == "/account" || strings.HasPrefix(path, "/account/") ||
		strings.HasPrefix(path, "/oauth/") ||
		strings.HasPrefix(path, "/.well-known/oauth-authorization-server")
}

func (s *signIn) close() {
	if s != nil && s.Server != nil {
		s.Server.Close()
	}
}
