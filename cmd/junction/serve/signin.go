package serve

import (
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
	"junction/auth/credentials"
	"junction/auth/oauth"
	"junction/cmd/junction/base/config"
	"junction/proxy/scope"
	"junction/upstream"
)

// signIn is the authorization server and the upstream sign-ins of its users. It implements scope.People.
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
		Limited:   p.measuring.telemetry.Limited,
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

// newSources returns the sources of the credentials for upstreams. A reload may open the vault, and the
// authorization server of users is made after them.
func (p *program) newSources() *credentials.Sources {
	return credentials.New(credentials.Options{
		OAuth: func() *oauth.Client {
			if v := p.vault.Load(); v != nil {
				return v.oauth
			}
			return nil
		},
		ConnectURL: func(name, user string, scopes ...string) string {
			if p.signIn == nil {
				return ""
			}
			return p.signIn.ConnectURL(name, user, scopes...)
		},
	})
}

// credential returns the state of the credential that all callers of an upstream use, or of the sign-ins
// of all users.
func (p *program) credential(name string) upstream.CredentialState {
	return p.sources.State(context.Background(), name, "")
}

// Of implements scope.People. A token of another issuer gets no upstreams of its own, because its
// subject could not sign in to our pages as the same user.
func (s *signIn) Of(who *auth.Principal) []*upstream.Upstream {
	if who.Kind == auth.KindUser && !s.issuers[who.Issuer] {
		return nil
	}
	return s.program.set.Of(who.ID, func(m upstream.AuthMode) bool { return credentials.MayHave(m, who.Kind) })
}

var _ scope.People = (*signIn)(nil)
