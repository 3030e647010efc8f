package oauth

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/oauth2"

	"junction/auth/store"
)

// Operator is the principal of the operator's own connections (Upstream.Shared). It differs from
// the IDs of all callers, which are "local" or contain a colon.
const Operator = "operator"

// Login is one sign-in of the operator at an upstream, from the browser's first address to the
// stored tokens. Nothing is stored before Finish succeeds.
type Login struct {
	client          *Client
	name            string
	upstream        Upstream
	server          *serverMetadata
	attempt         attempt
	who             store.UpstreamClient // as it will be stored
	redirect        string
	state, verifier string
}

// sharedRedirect is the redirect URI under which the operator's registration is stored. The URI in
// use has the port of the program that waits for the answer (RFC 8252, section 7.3).
func sharedRedirect(name string) string { return "http://127.0.0.1" + CallbackPath(name) }

// CallbackPath is the path to which browsers return from the sign-in of an upstream.
func CallbackPath(name string) string { return "/connect/" + name + "/callback" }

// Login prepares a sign-in of the operator at an upstream that is Shared. redirect is the address
// on loopback that will receive the answer; its path should be that of CallbackPath. Login
// registers with the authorization server if the configuration has no client_id. It asks for the
// scopes of the configuration or of the server, those of the present sign-in, and more. The error
// is a *UserError if the operator can do something about it.
func (c *Client) Login(ctx context.Context, name, redirect string, more ...string) (*Login, error) {
	u, s, a, err := c.prepare(ctx, name)
	if err != nil {
		return nil, err
	}
	a.Scopes = slices.Clone(a.Scopes)
	if k, err := c.Store.Connection(ctx, name, Operator); err == nil && k.Issuer == a.Issuer &&
		k.Resource == a.Resource {
		more = append(strings.Fields(k.Scope), more...) // another sign-in takes nothing away
	}
	for _, scope := range more {
		if !slices.Contains(a.Scopes, scope) {
			a.Scopes = append(a.Scopes, scope)
		}
	}
	who := store.UpstreamClient{Upstream: name, Issuer: s.Issuer, RedirectURI: redirect, AuthMethod: methodNone}
	switch {
	case u.ClientID != "":
		if who, err = c.configured(who, u, s); err != nil {
			return nil, err
		}
	case s.RegistrationEndpoint == "":
		return nil, userError(nil, "%s accepts only registered clients; register one there with the redirect URI "+
			"%s and set auth.client_id, and auth.issuer: %s", host(s.Issuer), redirect, s.Issuer)
	default:
		if err := c.register(ctx, u, s, &who); err != nil {
			return nil, userError(err, "%s rejected the registration of this client", host(s.Issuer))
		}
	}
	who.RedirectURI = sharedRedirect(name)
	a.ClientID = who.ClientID
	return &Login{
		client: c, name: name, upstream: u, server: s, attempt: a, who: who, redirect: redirect,
		state: store.NewID(), verifier: oauth2.GenerateVerifier(),
	}, nil
}

// URL returns the address at which the operator signs in.
func (l *Login) URL() (string, error) {
	return l.attempt.location(l.redirect, l.state, l.verifier)
}

// About names the hosts that take part, in sentences for the operator.
func (l *Login) About() string { return l.attempt.route(l.upstream).String() }

// Mine reports whether an answer belongs to this sign-in.
func (l *Login) Mine(answer url.Values) bool {
	return len(answer["state"]) == 1 && subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(l.state)) == 1
}

// Finish redeems the answer with which the browser returned, and replaces the stored tokens. It
// must be called once, with an answer for which Mine returns true. The error is a *UserError if the
// operator can do something about it.
func (l *Login) Finish(ctx context.Context, answer url.Values) error {
	c := l.client
	if !l.Mine(answer) {
		return userError(nil, "the answer does not belong to this sign-in; start the sign-in again")
	}
	code, err := l.attempt.code(answer)
	if err != nil {
		return err
	}
	t, err := c.exchangeAs(ctx, l.upstream, l.server, l.who, l.attempt.Resource, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {l.redirect},
		"code_verifier": {l.verifier},
	})
	if no, refused := errors.AsType[*errorAnswer](err); refused {
		return userError(err, "%s rejected the sign-in (%s); start it again", host(l.server.Issuer), no.code)
	}
	if err != nil {
		return userError(err, "%s returned no usable token; try again later", host(l.server.Issuer))
	}
	operator, err := c.Store.Operator(ctx)
	if err != nil {
		return err
	}
	k := store.Connection{
		Upstream: l.name, User: operator.ID, Principal: Operator, Issuer: l.attempt.Issuer,
		Resource: l.attempt.Resource, ClientID: l.who.ClientID, Scope: strings.Join(l.attempt.Scopes, " "),
		TokenEndpoint: l.attempt.Token,
	}
	t.put(&k, c.Now())
	err = c.Store.WithTx(ctx, func(ctx context.Context) error {
		if l.upstream.ClientID == "" {
			if err := c.Store.ReplaceUpstreamClient(ctx, l.who); err != nil {
				return err
			}
		}
		return c.Store.PutConnection(ctx, k)
	})
	if err != nil {
		return err
	}
	c.changed(l.name, Operator)
	return nil
}

// Logout revokes and deletes the operator's tokens for an upstream. ErrNotConnected means that
// there are none.
func (c *Client) Logout(ctx context.Context, name string) error {
	operator, err := c.Store.Operator(ctx)
	if err != nil {
		return err
	}
	return c.Disconnect(ctx, name, operator.ID)
}
