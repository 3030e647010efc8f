package oauth

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"net/url"
	"slices"
	"time"

	"golang.org/x/oauth2"

	"junction/auth/store"
)

// Flow is one sign-in of a person whose browser returns to a program on the same machine: from the
// browser's first address to the tokens. It stores nothing, and registers with the authorization
// server each time, because each has a port of its own.
type Flow struct {
	client          *Client
	name            string
	upstream        Upstream
	server          *serverMetadata
	attempt         attempt
	who             store.UpstreamClient // with the redirect URI in use
	state, verifier string
}

// Start prepares a sign-in at an upstream, for a Redeem. redirect is the address on loopback that
// will receive the answer. The error is a *UserError if it has a text for the person.
func (c *Client) Start(ctx context.Context, name, redirect string) (*Flow, error) {
	return c.flowAt(ctx, name, redirect, func(attempt) []string { return nil })
}

// flowAt prepares a sign-in at the first authorization server of an upstream that admits this client.
// more returns the scopes to ask for, besides the scopes of the attempt.
func (c *Client) flowAt(ctx context.Context, name, redirect string, more func(attempt) []string) (*Flow, error) {
	var tried []string
	for {
		u, s, a, err := c.prepare(ctx, name)
		if err != nil {
			return nil, err
		}
		a.Scopes = union(a.Scopes, more(a)...)
		f, failed := c.flow(ctx, name, u, s, a, redirect)
		if failed == nil || !c.reject(name, s.Issuer, failed) {
			return f, failed
		}
		tried = append(tried, s.Issuer)
		if _, next, _, err := c.prepare(ctx, name); err != nil || slices.Contains(tried, next.Issuer) {
			return nil, failed
		}
	}
}

// flow gets a client_id for a prepared sign-in: the configured client_id, or a registered one.
func (c *Client) flow(
	ctx context.Context, name string, u Upstream, s *serverMetadata, a attempt, redirect string,
) (*Flow, error) {
	who := store.UpstreamClient{Upstream: name, Issuer: s.Issuer, RedirectURI: redirect, AuthMethod: methodNone}
	var err error
	switch {
	case u.ClientID != "":
		if who, err = c.configured(who, u, s); err != nil {
			return nil, err
		}
	case s.RegistrationEndpoint == "":
		return nil, s.unregistrable(redirect)
	default:
		if err := c.register(ctx, u, s, &who); err != nil {
			return nil, rejected(err, s, "this client")
		}
	}
	a.ClientID = who.ClientID
	return &Flow{client: c, name: name, upstream: u, server: s, attempt: a, who: who,
		state: store.NewID(), verifier: oauth2.GenerateVerifier()}, nil
}

// URL returns the address at which the person signs in.
func (f *Flow) URL() (string, error) {
	return f.attempt.location(f.who.RedirectURI, f.state, f.verifier)
}

// About names the hosts that take part, in sentences for the person.
func (f *Flow) About() string { return f.attempt.route(f.upstream).String() }

// Notes returns what is unusual about the authorization server, in sentences for the operator.
func (f *Flow) Notes() []string { return f.attempt.notes }

// Mine reports whether an answer belongs to this sign-in.
func (f *Flow) Mine(answer url.Values) bool {
	return len(answer["state"]) == 1 && subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(f.state)) == 1
}

// redeem redeems the answer with which the browser returned. The error is a *UserError if the person
// can do something about it.
func (f *Flow) redeem(ctx context.Context, answer url.Values) (*token, error) {
	if !f.Mine(answer) {
		return nil, userError(nil, "the answer does not belong to this sign-in; start the sign-in again")
	}
	code, err := f.attempt.code(f.name, f.upstream, answer)
	if err != nil {
		f.client.note(f.name, f.attempt, err)
		return nil, err
	}
	t, err := f.client.exchangeAs(ctx, f.upstream, f.server, f.who, f.attempt.indicator(), url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {f.who.RedirectURI},
		"code_verifier": {f.verifier},
	})
	if no, refused := errors.AsType[*errorAnswer](err); refused {
		return nil, userError(err, "%s rejected the sign-in (%s)%s", host(f.server.Issuer), no.reason(),
			cmp.Or(f.upstream.hint(f.name, no.code), "; start it again"))
	}
	if err != nil {
		return nil, userError(err, "%s returned no usable token; try again later", host(f.server.Issuer))
	}
	return t, nil
}

// Redeem redeems the answer with which the browser returned. It must be called once, with an answer
// for which Mine returns true. The error is a *UserError if the person can do something about it.
func (f *Flow) Redeem(ctx context.Context, answer url.Values) (Grant, error) {
	t, err := f.redeem(ctx, answer)
	if err != nil {
		return Grant{}, err
	}
	g := Grant{Issuer: f.attempt.Issuer, Resource: f.attempt.Resource, TokenEndpoint: f.attempt.Token,
		ClientID: f.who.ClientID, Secret: f.who.Secret, AuthMethod: f.who.AuthMethod}
	g.take(t, f.client.Now())
	return g, nil
}

// Grant is a sign-in that its owner keeps, outside of a store: its tokens, and the client that they
// were issued to.
type Grant struct {
	Issuer        string    `json:"issuer"`
	Resource      string    `json:"resource"`
	TokenEndpoint string    `json:"token_endpoint"` // that issued the tokens; they are renewed only at its origin
	ClientID      string    `json:"client_id"`
	Secret        string    `json:"client_secret,omitempty"`
	AuthMethod    string    `json:"token_endpoint_auth_method"`
	Access        string    `json:"access_token"`
	Refresh       string    `json:"refresh_token,omitempty"`
	Expires       time.Time `json:"expires,omitzero"` // zero if unknown
}

// take replaces the tokens. A missing refresh token leaves the old one valid (RFC 6749, section 6).
func (g *Grant) take(t *token, now time.Time) {
	var k store.Connection
	k.Refresh = g.Refresh
	t.put(&k, now)
	g.Access, g.Refresh, g.Expires = k.Access, k.Refresh, k.Expires
}

// Renew renews the tokens of a Grant for an upstream. ErrBroken means that the person must sign in
// again; any other error changes nothing.
func (c *Client) Renew(ctx context.Context, name string, g Grant) (Grant, error) {
	u, ok := c.Upstream(name)
	if !ok || g.Refresh == "" || !covers(g.Resource, u.URL) {
		return g, ErrBroken
	}
	s, err := c.serverOf(ctx, u, store.Connection{Issuer: g.Issuer, TokenEndpoint: g.TokenEndpoint})
	if errors.Is(err, errMoved) {
		return g, ErrBroken
	}
	if err != nil {
		return g, err
	}
	who := store.UpstreamClient{ClientID: g.ClientID, Secret: g.Secret, AuthMethod: g.AuthMethod}
	t, err := c.exchangeAs(ctx, u, s, who, u.indicator(g.Resource), url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {g.Refresh}})
	if _, refused := errors.AsType[*errorAnswer](err); refused {
		return g, ErrBroken
	}
	if err != nil {
		return g, err
	}
	g.take(t, c.Now())
	return g, nil
}
