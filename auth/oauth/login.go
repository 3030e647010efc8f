package oauth

import (
	"context"
	"net/url"
	"strings"

	"junction/auth/store"
)

// Operator is the principal of the operator's own connections (Upstream.Shared). It differs from
// the IDs of all callers, which are "local" or contain a colon.
const Operator = "operator"

// Login is one sign-in of the operator at an upstream, from the browser's first address to the
// stored tokens. Nothing is stored before Finish succeeds.
type Login struct{ *Flow }

// sharedRedirect is the redirect URI under which the operator's registration is stored. The URI in
// use has the port of the program that waits for the answer (RFC 8252, section 7.3).
func sharedRedirect(name string) string { return "http://127.0.0.1" + CallbackPath(name) }

// CallbackPath is the path to which browsers return from the sign-in of an upstream.
func CallbackPath(name string) string { return "/connect/" + name + "/callback" }

// Login prepares a sign-in of the operator at an upstream that is Shared. redirect is the address
// on loopback that will receive the answer; its path should be CallbackPath. Login registers with
// the authorization server if the configuration has no client_id. It asks for the scopes of the
// configuration or of the server, the scopes of the present sign-in, and more. The error is a
// *UserError if the operator can do something about it.
func (c *Client) Login(ctx context.Context, name, redirect string, more ...string) (*Login, error) {
	f, err := c.flowAt(ctx, name, redirect, func(a attempt) []string { return c.more(ctx, name, Operator, a, more) })
	if err != nil {
		return nil, err
	}
	return &Login{f}, nil
}

// Finish redeems the answer with which the browser returned, and replaces the stored tokens. It
// must be called once, with an answer for which Mine returns true. The error is a *UserError if the
// operator can do something about it.
func (l *Login) Finish(ctx context.Context, answer url.Values) error {
	c := l.client
	t, err := l.redeem(ctx, answer)
	if err != nil {
		return err
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
			who := l.who
			who.RedirectURI = sharedRedirect(l.name)
			who.Issuer = registrar(l.attempt.Issuer, l.attempt.Token)
			if err := c.Store.ReplaceUpstreamClient(ctx, who); err != nil {
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
