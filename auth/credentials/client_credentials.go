package credentials

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"junction/auth/oauth"
	"junction/upstream"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// clientCredentials is the source of mode client_credentials: Junction has a client of its own at the
// authorization server of an upstream, and all callers use its token.
type clientCredentials struct{ signIn }

func newClientCredentials(o Options) Source {
	return &clientCredentials{signIn{upstream.AuthClient, o.OAuth}}
}

// Use implements Source.
func (s *clientCredentials) Use(entries map[string]upstream.Config) {
	client := s.open()
	if client == nil {
		return
	}
	all := map[string]oauth.Upstream{}
	for name, u := range entries {
		all[name] = entry(u)
	}
	client.ApplyMode(s.mode.String(), all)
}

// Apply implements Source.
func (s *clientCredentials) Apply(ctx context.Context, c upstream.Caller, refused ...string) (
	got upstream.Credential, err error,
) {
	client := s.open()
	if client == nil {
		return got, upstream.ErrNoSource
	}
	got.Token, err = client.Token(ctx, c.Upstream, oauth.Own, refused...)
	switch {
	case errors.Is(err, oauth.ErrBroken):
		return got, &upstream.LackError{Upstream: c.Upstream, Mode: c.Mode, Again: true}
	case errors.Is(err, oauth.ErrNotConnected):
		return got, &upstream.LackError{Upstream: c.Upstream, Mode: c.Mode}
	}
	return got, err
}

// State implements Source.
func (s *clientCredentials) State(_ context.Context, c upstream.Caller) (state upstream.CredentialState) {
	if client := s.open(); client != nil {
		if requests, err := client.Failing(c.Upstream); err != nil {
			state.Notes = fmt.Sprintf("requests for a token fail (%d in a row): %s", requests, prose.Flat(err.Error()))
		}
	}
	return state
}

// Probe implements prober: it gets a token, and drops it.
func (s *clientCredentials) Probe(ctx context.Context, name string) []Finding {
	client := s.open()
	if client == nil {
		return nil
	}
	var list []Finding
	u, _ := client.Upstream(name)
	if id, err := client.KeyID(name); err == nil && id != "" {
		list = append(list, Finding{Note, "register there the public key of " + u.ClientID + ", with the kid " +
			prose.Flat(id) + ": " + keysAt(client.URL, u.KeyFile), ""})
	}
	got, err := client.TryOwn(ctx, name)
	if err != nil {
		return append(list, Finding{Wrong, prose.Flat(err.Error()), "check upstreams." + name + ".auth: issuer, " +
			"client_id, " + strings.Join(s.mode.Row().AuthOne, " or ") + ", scopes, resource and audience"})
	}
	lasts := "without an expiry"
	if !got.Expires.IsZero() {
		lasts = "that expires at " + got.Expires.UTC().Format(time.RFC3339)
	}
	return append(list, Finding{Good, "Junction gets a token " + lasts + ", with the scopes: " +
		cmp.Or(prose.Flat(got.Scope), "not named"), ""})
}

// Try implements trier.
func (s *clientCredentials) Try(ctx context.Context, name string) (upstream.Credential, error) {
	client := s.open()
	if client == nil {
		return upstream.Credential{}, upstream.ErrNoSource
	}
	got, err := client.TryOwn(ctx, name)
	return upstream.Credential{Token: got.Token}, err
}

// keysAt says where an authorization server gets the public key of a file.
func keysAt(public, file string) string {
	if public == "" {
		return "openssl pkey -pubout -in " + shell.Quote(file)
	}
	return "jwks_uri " + public + oauth.KeysPath
}
