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
	"junction/auth/identity"
	"junction/auth/oauth"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/telemetry"
	"junction/cmd/junction/ops/pages"
	"junction/proxy/scope"
	"junction/upstream"
	"junction/upstream/prose"
)

// signIn is the authorization server of users.
type signIn struct {
	*authserver.Server
	issuers map[string]bool // of the configured identity providers
}

// signIns are the sign-ins of users at Junction, and those of Junction at upstreams. It implements scope.People.
type signIns struct {
	*common
	users      *signIn // nil without auth.oauth
	providers  *auth.Providers
	sources    *credentials.Sources // of the credentials for upstreams
	storage    *storage
	inForce    *inForce
	measuring  *measuring
	upstreams  *upstreams
	revoked    *revoked
	others     auth.Others
	identities *identities
}

// Open prepares the verification of other issuers' tokens, and opens the authorization server if it
// is configured.
func (s *signIns) Open(c *config.Config) (err error) {
	s.sources = s.newSources()
	fetcher, err := c.Outbound.Fetcher()
	if err != nil {
		return err
	}
	// URLs from the configuration may have any address. URLs from an issuer's documents may not.
	transport := config.Trusting(fetcher)
	s.providers = auth.NewProviders(&http.Client{Transport: transport})
	s.providers.Untrusted = fetcher.Client()
	s.providers.Revoked(s.revoked.gone())
	if c.Auth.OAuth == nil {
		return nil
	}
	v := s.storage.vault.Load()
	s.users = &signIn{issuers: map[string]bool{}}
	for _, provider := range c.Auth.OAuth.IdentityProviders {
		s.users.issuers[provider.Issuer] = true
	}
	s.users.Server, err = authserver.New(authserver.Options{
		Config: *c.Auth.OAuth, URL: c.PublicURL, Scopes: slices.Sorted(maps.Keys(c.Auth.ScopeCapabilities)),
		Store: v.store, Keys: v.keys, Fetch: fetcher.GetJSON, Log: s.log,
		HTTP:      &http.Client{Transport: transport, Timeout: 10 * time.Second},
		Connector: v.oauth, Keeper: s.sources.UserKeys(),
		SignInWords: authserver.Words(upstream.SignInMode(upstream.OwnerSubject).Row().Account),
		KeyWords:    authserver.Words(upstream.GivenMode().Row().Account),
		MayUse: func(who *auth.Principal, upstream string) bool {
			return s.inForce.reach.Load().uses(who, upstream)
		},
		Servers: func(who *auth.Principal) []string { return s.inForce.reach.Load().servers(who) },
		Address: func(r *http.Request) netip.Addr { return s.inForce.guard.Load().Address(r) },
		Limited: s.measuring.telemetry.Limited,
		Others:  s.others,
		Ended:   s.upstreams.catalogChanged,
		Granted: func(who *auth.Principal) bool { return s.inForce.reach.Load().any(who) },
	})
	return err
}

// Prepare gives the sources the entries of a configuration.
func (s *signIns) Prepare(next *config.Config) (prepared, error) {
	return prepared{use: func() { s.sources.Use(next.Upstreams) }}, nil
}

// Close waits for in-flight requests to authorization servers.
func (s *signIns) Close() {
	if s.sources != nil {
		s.sources.Close()
	}
	if s.providers != nil {
		s.providers.Close()
	}
	s.users.close()
}

// findRevoked ends here what a command or another process has revoked in the database.
func (s *signIns) findRevoked(ctx context.Context) error {
	if s.users == nil {
		return nil
	}
	return s.users.FindRevoked(ctx)
}

// verifier returns the verifier of the users who sign in here. After a reload that was refused in
// part, users of an identity provider that is not in the configuration are rejected.
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

// newSources returns the sources of the credentials for upstreams. A reload may open the vault, and
// the authorization server of users is made after them.
func (s *signIns) newSources() *credentials.Sources {
	return credentials.New(credentials.Options{
		OAuth: func() *oauth.Client {
			if v := s.storage.vault.Load(); v != nil {
				return v.oauth
			}
			return nil
		},
		Store:   s.storage.store,
		Changed: func(name, principal string) { s.upstreams.set.Renew(principal, name) },
		ConnectURL: func(name, user string, scopes ...string) string {
			if s.users == nil {
				return ""
			}
			return s.users.ConnectURL(name, user, scopes...)
		},
	})
}

// serveKeys answers with the public keys of Junction's clients at authorization servers, and with those that sign who
// calls.
func (s *signIns) serveKeys(w http.ResponseWriter, r *http.Request) {
	var keys []byte
	if v := s.storage.vault.Load(); v != nil && s.inForce.reach.Load().config.PublicURL != "" {
		keys = v.oauth.Keys()
	}
	if signs := s.identities.public(); signs != nil {
		if joined, err := identity.Join(keys, signs); err == nil {
			keys = joined
		}
	}
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET reads the keys", http.StatusMethodNotAllowed)
	case keys == nil:
		http.Error(w, "this server has no keys of its own clients", http.StatusNotFound)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "public, max-age=60")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(keys) // the client may have left
	}
}

// credential returns the state of the credential that all callers of an upstream use, or of the
// sign-ins of all users.
func (s *signIns) credential(name string) upstream.CredentialState {
	return s.sources.State(context.Background(), name, "")
}

// renewals returns the renewals of credentials for upstreams.
func (s *signIns) renewals() map[string]telemetry.Credential {
	all := map[string]telemetry.Credential{}
	for name, f := range s.sources.Renewals() {
		all[name] = telemetry.Credential{Renewals: f.Renewals, Failures: f.Failures, Expires: !f.Expires.IsZero(),
			Left: time.Until(f.Expires)}
	}
	return all
}

// begin prepares a sign-in of the operator for the status page at origin.
func (s *signIns) begin(ctx context.Context, name, origin string) (pages.SignIn, error) {
	v := s.storage.vault.Load()
	if !slices.Contains(s.inForce.reach.Load().config.OperatorSignIns(), name) || v == nil {
		return nil, fmt.Errorf("%s has no OAuth sign-in of the operator (auth.mode: %s)", prose.Quote(name),
			upstream.SignInMode(upstream.OwnerOperator))
	}
	attempt, err := v.oauth.Login(ctx, name, origin+oauth.CallbackPath(name), s.credential(name).Lacks...)
	if err != nil {
		return nil, plainProblem(err)
	}
	return attempt, nil
}

// signedIn uses a sign-in of the status page at once.
func (s *signIns) signedIn(upstream string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := auditOperator(ctx, s.storage.vault.Load().oauth, "upstream_connected", upstream); err != nil {
		s.log.Error("a sign-in was not audited", "upstream", upstream, "error", err)
	}
	s.upstreams.set.Reconnect(upstream)
}

// Of implements scope.People. A token of another issuer gets no upstreams of its own, because its
// subject could not sign in to our pages as the same user.
func (s *signIns) Of(who *auth.Principal) []*upstream.Upstream {
	if who.Kind == auth.KindUser && (s.users == nil || !s.users.issuers[who.Issuer]) {
		return nil
	}
	return s.upstreams.set.Of(who.ID, func(m upstream.AuthMode) bool { return credentials.MayHave(m, who.Kind) })
}

var _ scope.People = (*signIns)(nil)
