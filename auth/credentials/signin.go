package credentials

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"junction/auth/oauth"
	"junction/upstream"
	"junction/upstream/prose"
)

// signIn is the common part of the sources whose owner signs in with OAuth.
type signIn struct {
	mode   upstream.AuthMode
	client func() *oauth.Client // nil, or returns nil, without a database
}

// open returns the client with the stored sign-ins; nil if there is none.
func (s *signIn) open() *oauth.Client {
	if s.client == nil {
		return nil
	}
	return s.client()
}

// Use implements Source.
func (s *signIn) Use(entries map[string]upstream.Config) {
	if client := s.open(); client != nil {
		client.ApplyMode(s.mode.String(), SignIns(s.mode.Row().Owner, entries))
	}
}

// token returns the credential of a principal. missing reports that the principal must sign in, and
// broken that the principal must do so again; then the error is to be replaced.
func (s *signIn) token(ctx context.Context, name, principal string, refused []string) (
	c upstream.Credential, missing, broken bool, err error,
) {
	client := s.open()
	if client == nil {
		return c, false, false, upstream.ErrNoSource
	}
	c.Token, err = client.Token(ctx, name, principal, refused...)
	broken = errors.Is(err, oauth.ErrBroken)
	return c, broken || errors.Is(err, oauth.ErrNotConnected), broken, err
}

// State implements Source. All sign-ins at an upstream have one state.
func (s *signIn) State(_ context.Context, c upstream.Caller) (state upstream.CredentialState) {
	if client := s.open(); client != nil {
		state.Refused, state.Notes = client.Refused(c.Upstream), client.Notes(c.Upstream)
	}
	return state
}

// Renewals implements renewer.
func (s *signIn) Renewals(name string) (f oauth.Figures) {
	if client := s.open(); client != nil {
		f = client.Figures(name)
	}
	return f
}

// ending returns why the sign-in of a principal has ended or ends soon, if that is known and asked for.
func (s *signIn) ending(ctx context.Context, name, principal string, asked bool) string {
	client := s.open()
	if client == nil || !asked {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return client.Ending(ctx, name, principal)
}

// scopes returns the scopes that a principal has granted; nil if they are unknown.
func (s *signIn) scopes(ctx context.Context, name, principal string) []string {
	client := s.open()
	if client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	k, err := client.Store.Connection(ctx, name, principal)
	if err != nil {
		return nil
	}
	return strings.Fields(k.Scope)
}

// Probe implements prober: it asks the upstream for its authorization server and scopes.
func (s *signIn) Probe(ctx context.Context, name string) (list []Finding) {
	client := s.open()
	if client == nil {
		return nil
	}
	add := func(level Level, text, remedy string) { list = append(list, Finding{level, text, remedy}) }
	u, _ := client.Upstream(name)
	hosts, issuer, scopes, err := client.Route(ctx, name)
	if refused, ok := errors.AsType[*oauth.PairError](err); ok {
		add(Wrong, prose.Flat(refused.Error()), "if both belong to one service, permit the pair: "+
			refused.Line(name, u))
		return list
	}
	if err != nil {
		add(Wrong, prose.Flat(err.Error()), "check upstreams."+name+".url, and the authorization server that it "+
			"names: both need https, or http on this machine, and outbound.allow_private for a private network")
		return list
	}
	if pair := hosts.Unnamed; pair != nil {
		add(Warning, prose.Flat(pair.Error())+"; Junction refuses each answer that does not name the issuer "+issuer,
			"if a sign-in is refused, and both belong to one service, permit the pair: "+pair.Line(name, u))
	}
	for _, text := range hosts.Notes {
		add(Warning, prose.Flat(text), "compare it with the documentation of the authorization server")
	}
	add(Good, "people sign in at "+hosts.SignIn+", and are asked for: "+
		cmp.Or(strings.Join(scopes, " "), "nothing by name"), "")
	add(Good, "its issuer is "+prose.Flat(issuer)+"; Junction gets the tokens from "+hosts.Token+
		", and sends the access token to "+hosts.Server, "")
	if u.ClientID != "" && !u.Shared {
		add(Note, "register there as redirect URI of "+u.ClientID+": "+client.URL+oauth.CallbackPath(name), "")
	}
	return list
}

// Close implements Source. The owner of the client closes it.
func (s *signIn) Close() {}

// SignIns returns the enabled entries at whose servers an owner signs in, for package oauth.
func SignIns(owner upstream.Owner, configs map[string]upstream.Config) map[string]oauth.Upstream {
	all := map[string]oauth.Upstream{}
	for name, u := range configs {
		row := u.Auth.Mode.Row()
		if !row.SignIn || row.Owner != owner || u.Off() {
			continue
		}
		all[name] = entry(u)
	}
	return all
}

// entry returns an entry of the configuration for package oauth.
func entry(u upstream.Config) oauth.Upstream {
	row := u.Auth.Mode.Row()
	e := oauth.Upstream{
		URL: u.URL, Scopes: u.Auth.Scopes, ClientID: u.Auth.ClientID, ClientSecret: u.Auth.ClientSecret,
		Issuer: u.Auth.Issuer, Permitted: oauth.Pair{Authorization: u.Auth.AuthorizationEndpoint,
			Token: u.Auth.TokenEndpoint},
		Resource: u.Auth.Resource, Audience: u.Auth.Audience, Params: u.Auth.Params,
		Headers: u.Headers, Transport: u.Transport, Era: u.Era,
		KeyFile: u.Auth.PrivateKeyFile, KeyID: u.Auth.KeyID, ToEndpoint: u.Auth.AssertionAudience.ToEndpoint(),
		Mode: row.Word.String(), Shared: row.Shared(), Own: row.Owner == upstream.OwnerJunction,
	}
	if pair := u.Auth.Certificate(); pair != nil {
		e.Certificate = pair
	}
	return e
}
