package oauth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"junction/auth/store"
)

// Describe returns what a user confirms before a sign-in of a principal: the hosts, in their order, and a
// digest of the scopes. It returns the scopes to request, too: as Route, with those that the principal has
// granted already, and more. The error is a *UserError if it has a text for the user.
func (c *Client) Describe(ctx context.Context, name, principal string, more []string) (
	seen [4]string, scopes []string, err error,
) {
	u, _, a, err := c.prepareFor(ctx, name, principal, more)
	if err != nil {
		return seen, nil, err
	}
	return a.seen(u), a.Scopes, nil
}

// seen returns what a user confirms before the sign-in.
func (a attempt) seen(u Upstream) [4]string {
	r, scopes := a.route(u), sha256.Sum256([]byte(strings.Join(a.Scopes, " ")))
	return [4]string{r.SignIn, r.Token, r.Server, base64.RawURLEncoding.EncodeToString(scopes[:])}
}

// prepareFor is prepare for a principal: another sign-in takes no scope away.
func (c *Client) prepareFor(ctx context.Context, name, principal string, more []string) (
	u Upstream, s *serverMetadata, a attempt, err error,
) {
	if u, s, a, err = c.prepare(ctx, name); err != nil {
		return u, s, a, err
	}
	if a.Scopes = union(a.Scopes, c.more(ctx, name, principal, a, more)...); len(more) > 0 {
		err = bounded(name, a.Scopes)
	}
	return u, s, a, err
}

// more returns the scopes that a principal has granted in a connection like the attempt, and more.
func (c *Client) more(ctx context.Context, name, principal string, a attempt, more []string) []string {
	k, err := c.Store.Connection(ctx, name, principal)
	if err != nil || !sameIssuer(k.Issuer, a.Issuer) || k.Resource != a.Resource {
		return more
	}
	return append(strings.Fields(k.Scope), more...)
}

// Begin returns the authorization URL for a user's browser, and the state that Finish needs. The
// caller makes state and verifier, binds them to the browser, and uses them once. seen is what Describe
// has returned, and the user has confirmed. The error is a *UserError if it has a text for the user.
func (c *Client) Begin(
	ctx context.Context, name, principal, state, verifier string, seen [4]string, more []string,
) (where string, kept []byte, err error) {
	u, s, a, err := c.prepareFor(ctx, name, principal, more)
	if err != nil {
		return "", nil, err
	}
	if now := a.seen(u); now != seen {
		return "", nil, userError(fmt.Errorf("they were %q, and are %q, with the scopes %q", seen, now, a.Scopes),
			"the servers or the scopes of this sign-in have changed since you saw them; open the page again")
	}
	who, err := c.identify(ctx, name, u, s)
	if err != nil {
		return "", nil, err
	}
	a.ClientID = who.ClientID
	to, err := a.location(c.redirect(name), state, verifier)
	if err != nil {
		return "", nil, err
	}
	kept, err = json.Marshal(a)
	return to, kept, err
}

// location returns the URL at which the user signs in. The browser returns to redirect.
func (a attempt) location(redirect, state, verifier string) (string, error) {
	to, err := url.Parse(a.Authorization)
	if err != nil {
		return "", err
	}
	challenge := sha256.Sum256([]byte(verifier))
	q := to.Query()
	if slices.Contains(a.Scopes, scopeOffline) {
		// Without the prompt OpenID Connect issues no refresh token (Core, section 11).
		q.Set("prompt", "consent")
	}
	for key, value := range a.params {
		q.Set(key, value)
	}
	for key, value := range map[string]string{ // nothing above may change these
		"response_type": "code", "client_id": a.ClientID, "redirect_uri": redirect, "state": state,
		"resource": a.indicator(), "scope": strings.Join(a.Scopes, " "),
		"code_challenge":        base64.RawURLEncoding.EncodeToString(challenge[:]),
		"code_challenge_method": "S256",
	} {
		if q.Set(key, value); value == "" {
			q.Del(key)
		}
	}
	to.RawQuery = q.Encode()
	return to.String(), nil
}

// code returns the code in the answer of an authorization server. The error is a *UserError. It wraps a
// *PairError if the answer must name its issuer, and does not.
func (a attempt) code(name string, u Upstream, answer url.Values) (string, error) {
	for _, member := range []string{"iss", "code", "error"} {
		if len(answer[member]) > 1 {
			return "", userError(nil, "the answer of %s contains a duplicate parameter", host(a.Issuer))
		}
	}
	// Another server's answer could contain a code that must not be sent here (mix-up attack, RFC
	// 9207).
	switch _, given := answer["iss"]; {
	case given && answer.Get("iss") != a.Issuer:
		return "", userError(nil, "the answer does not come from %s, so it was rejected", host(a.Issuer))
	case !given && a.NamesIssuer:
		return "", userError(nil, "the answer does not name its issuer %s, so it was rejected", host(a.Issuer))
	case answer.Get("error") != "":
		no := &errorAnswer{status: http.StatusOK, code: safeText(answer.Get("error"))}
		return "", userError(no, "%s answered: %s%s", host(a.Issuer), no.code, u.hint(name, no.code))
	case answer.Get("code") == "":
		return "", userError(nil, "%s answered without a code", host(a.Issuer))
	case !given && a.MustName:
		pair := &PairError{a.Endpoints, u.Permitted}
		return "", pair.forUser(name, u)
	}
	return answer.Get("code"), nil
}

// hint returns what to do about an error code of an authorization server, after a semicolon.
func (u Upstream) hint(name, code string) string {
	if code == "invalid_target" && !u.OneOrigin {
		return fmt.Sprintf("; it rejects the resource that Junction names: set upstreams.%s.auth.resource to the one "+
			"that it knows, such as the App ID URI at Entra ID, or to none (with auth.client_id and auth.issuer)", name)
	}
	return ""
}

// Finish redeems the answer with which the browser returned, and stores the user's tokens. The
// error is a *UserError if it has a text for the user.
func (c *Client) Finish(
	ctx context.Context, name string, kept []byte, verifier string, answer url.Values, user, principal string,
) error {
	u, ok := c.Upstream(name)
	var a attempt
	if err := json.Unmarshal(kept, &a); err != nil || !ok || !covers(a.Resource, u.URL) {
		return userError(err, "the configuration of %s has changed; connect it again", name)
	}
	code, err := a.code(name, u, answer)
	if err != nil {
		c.note(name, a, err)
		return c.refusal(ctx, name, u, a, err)
	}
	s, err := c.discoverServer(ctx, u, a.Issuer)
	if err != nil {
		return err
	}
	if s.TokenEndpoint != a.Token {
		return userError(fmt.Errorf("its token endpoint was %q, and is %q", a.Token, s.TokenEndpoint),
			"%s has changed during the sign-in; connect %s again", host(a.Issuer), name)
	}
	k := store.Connection{Upstream: name, User: user, Principal: principal, Issuer: a.Issuer, Resource: a.Resource,
		ClientID: a.ClientID, Scope: strings.Join(a.Scopes, " "), TokenEndpoint: a.Token}
	t, err := c.exchange(ctx, u, k, a.indicator(), url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {c.redirect(name)},
		"code_verifier": {verifier},
	})
	if no, refused := errors.AsType[*errorAnswer](err); refused {
		return c.refusal(ctx, name, u, a, userError(err, "%s answered: %s%s", host(a.Issuer), no.reason(),
			cmp.Or(u.hint(name, no.code), "; try again")))
	}
	if err != nil {
		return userError(err, "%s did not return a token; try again in a moment", host(a.Issuer))
	}
	c.mu.Lock()
	delete(c.refused, name)
	c.mu.Unlock()
	t.put(&k, c.Now())
	if err := c.Store.PutConnection(ctx, k); err != nil {
		return err
	}
	c.changed(name, principal)
	return nil
}

// Disconnect deletes a user's connection, and revokes its tokens at the authorization server if
// that can be reached. ErrNotConnected means that there is none.
func (c *Client) Disconnect(ctx context.Context, name, user string) error {
	k, err := c.Store.DeleteConnection(ctx, name, user)
	if errors.Is(err, store.ErrNotFound) {
		return ErrNotConnected
	}
	if err != nil {
		return err
	}
	c.changed(name, k.Principal)
	if u, ok := c.Upstream(name); ok && k.Issuer != store.KeyIssuer {
		if err := c.revoke(ctx, u, k); err != nil {
			c.Log.Warn("deleted the tokens of an upstream, but cannot revoke them there", "upstream", name,
				"issuer", k.Issuer, "error", err)
		}
	}
	return nil
}

// revoke revokes the tokens of a connection (RFC 7009).
func (c *Client) revoke(ctx context.Context, u Upstream, k store.Connection) error {
	form := url.Values{"token": {k.Refresh}, "token_type_hint": {"refresh_token"}}
	if k.Refresh == "" {
		form = url.Values{"token": {k.Access}, "token_type_hint": {"access_token"}}
	}
	if form.Get("token") == "" {
		return nil
	}
	s, err := c.serverOf(ctx, u, k)
	if err != nil || s.RevocationEndpoint == "" {
		return err
	}
	who, err := c.clientOf(ctx, u, s, k)
	if err != nil {
		return err
	}
	_, err = c.form(ctx, u, s, s.RevocationEndpoint, who, form)
	return err
}

func (c *Client) changed(name, principal string) {
	if c.Changed != nil {
		c.Changed(name, principal)
	}
}
