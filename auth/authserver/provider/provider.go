// Package provider asks the identity providers of the organisation (OpenID Connect) who a user is. The
// package authserver asks this package, and turns the result into grants and tokens. By file:
//
//   - config.go: an entry of auth.oauth.identity_providers
//   - provider.go: the metadata, a sign-in (Begin, Finish), and whether a session still stands (Renew)
//   - keys.go: how signed tokens are verified, and how keys are fetched
//   - claims.go: Identity, made of the claims
//   - logout.go: tokens of a back-channel logout
//   - advice.go: what an operator or a user can do about an error
package provider

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"junction/auth/fetch"
	"junction/upstream/prose"
)

// Provider is an identity provider. It is discovered when it is first needed, and again after a
// failure, so that a provider that is down affects neither the start nor other providers. Check finds
// later changes. It may be used by several goroutines. Make it with New.
type Provider struct {
	Config                // with defaults
	NoRefresh atomic.Bool // the last sign-in gave no refresh token; the caller sets it
	redirect  string      // one for each provider, against mix-up attacks
	http      *http.Client
	now       func() time.Time

	mu    sync.Mutex
	found *discovered // guarded by mu
	err   error       // of the last try; guarded by mu
	again time.Time   // when the next try may be made; guarded by mu
}

// New returns the Provider of an entry of the file, and sends no request. redirect is the redirect URI of
// this provider alone. A nil client is one with a timeout.
func New(c Config, redirect string, client *http.Client, now func() time.Time) *Provider {
	own := *cmp.Or(client, &http.Client{Timeout: patience})
	own.Transport = boundedTransport{cmp.Or(own.Transport, http.DefaultTransport)}
	return &Provider{Config: c.withDefaults(), redirect: redirect, http: &own, now: now}
}

// boundedTransport bounds the answers of a provider, since the libraries read metadata and keys as a whole.
type boundedTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err == nil {
		resp.Body = fetch.Bounded(resp.Body, maxAnswer)
	}
	return resp, err
}

// discovered is the metadata of a provider, with its keys.
type discovered struct {
	*oidc.Provider
	metadata
	// logoutKeys are for tokens that anyone can send, keys for tokens from the token endpoint. They are
	// apart, so that strangers do not delay a sign-in.
	keys, logoutKeys oidc.KeySet
}

// metadata are the members of the metadata that this server uses (OpenID Connect Discovery 1.0, section 3).
type metadata struct {
	Authorization     string   `json:"authorization_endpoint"`
	Token             string   `json:"token_endpoint"`
	UserInfo          string   `json:"userinfo_endpoint"`
	Keys              string   `json:"jwks_uri"`
	Algorithms        []string `json:"id_token_signing_alg_values_supported"`
	IssParameter      bool     `json:"authorization_response_iss_parameter_supported"`
	BackchannelLogout bool     `json:"backchannel_logout_supported"`
}

// changes returns the names of the members that differ.
func (m metadata) changes(to metadata) (names []string) {
	for name, differs := range map[string]bool{
		"authorization_endpoint": m.Authorization != to.Authorization, "token_endpoint": m.Token != to.Token,
		"userinfo_endpoint": m.UserInfo != to.UserInfo, "jwks_uri": m.Keys != to.Keys,
		"id_token_signing_alg_values_supported":          !slices.Equal(m.Algorithms, to.Algorithms),
		"authorization_response_iss_parameter_supported": m.IssParameter != to.IssParameter,
		"backchannel_logout_supported":                   m.BackchannelLogout != to.BackchannelLogout,
	} {
		if differs {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// A sign-in fails with ErrRules, an *Error or an *EndedError. Any other error means that the provider could
// not be reached.

// ErrRules means that the configuration does not let a user sign in.
var ErrRules = errors.New("the user may not sign in here")

// EndedError means that the session of a user at the provider has ended.
type EndedError struct {
	Code string // the provider's error code, or a word for what Junction has found
	Text string // "" if the provider gave no description
}

func (e *EndedError) Error() string { return "the provider has ended the session: " + e.Reason() }

// Reason returns the code and the text in one line.
func (e *EndedError) Reason() string {
	if e.Text == "" {
		return e.Code
	}
	return e.Code + ": " + e.Text
}

// Error is an error answer of the provider, or an answer that Junction has rejected (ours). Its
// code is shown to the user.
type Error struct {
	code string
	Text string // the provider's description, or what was wrong; "" if unknown. Only for the log and the audit
	ours bool
	err  error // why Junction has rejected the answer; nil if unknown
}

func (r *Error) Error() string {
	if r.ours {
		return "the answer of the provider was rejected: " + r.code
	}
	return "the provider answered with the error " + r.code
}

func (r *Error) Unwrap() error { return r.err }

// rejected returns the *Error for an answer that Junction rejects.
func rejected(code string, err error) error {
	no := &Error{code: code, ours: true, err: err}
	if err != nil {
		no.Text = prose.ASCII(err.Error(), 300)
	}
	return no
}

const (
	maxAnswer = 1 << 20 // bytes of each answer of the provider: metadata, keys, tokens, userinfo
	patience  = 10 * time.Second
	pause     = 5 * time.Second
)

// Label returns the name that users see.
func (p *Provider) Label() string { return cmp.Or(p.Name, p.ID) }

// discover returns the metadata of the provider. Before they are known, it may block on the network, or
// on another goroutine that discovers.
func (p *Provider) discover(ctx context.Context) (*discovered, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found != nil {
		return p.found, nil
	}
	if p.now().Before(p.again) {
		return nil, p.err
	}
	// The result outlives the request, so its context must too.
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	d, err := p.read(limit, nil)
	if err != nil {
		p.err, p.again = err, p.now().Add(pause)
		return nil, p.err
	}
	p.found, p.err = d, nil
	return d, nil
}

// read reads the metadata of the provider. before are those in use, whose keys stay if their address
// does; nil if there are none.
func (p *Provider) read(ctx context.Context, before *discovered) (*discovered, error) {
	o, err := oidc.NewProvider(oidc.ClientContext(ctx, p.http), p.Issuer) // refuses another issuer
	d := &discovered{Provider: o}
	if err == nil {
		err = o.Claims(&d.metadata)
	}
	if err == nil && (d.Authorization == "" || d.Token == "" || d.Keys == "") {
		err = errors.New("the metadata lack authorization_endpoint, token_endpoint or jwks_uri")
	}
	if err != nil {
		return nil, &undiscoveredError{p.Issuer, err}
	}
	if before != nil && before.Keys == d.Keys {
		d.keys, d.logoutKeys = before.keys, before.logoutKeys
	} else {
		d.keys, d.logoutKeys = newKeys(p.http, d.Keys, nil), newKeys(p.http, d.Keys, p.now)
	}
	return d, nil
}

// Check returns an error if the provider cannot be reached, or does not serve its metadata. It reads the
// metadata again; sign-ins go on meanwhile. If they have changed, sign-ins use them from then on, and
// changed has the names. After an error they use the last good ones.
func (p *Provider) Check(ctx context.Context) (changed []string, err error) {
	p.mu.Lock()
	before := p.found
	p.mu.Unlock()
	if before == nil {
		_, err := p.discover(ctx)
		return nil, err
	}
	d, err := p.read(ctx, before)
	if err != nil {
		return nil, err
	}
	if changed = before.changes(d.metadata); len(changed) > 0 {
		p.mu.Lock()
		p.found = d
		p.mu.Unlock()
	}
	return changed, nil
}

func (p *Provider) oauth(d *discovered) *oauth2.Config {
	return &oauth2.Config{ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: d.Endpoint(),
		RedirectURL: p.redirect, Scopes: p.Scopes}
}

// Begin returns the authorization URL for the browser.
func (p *Provider) Begin(ctx context.Context, state, nonce, verifier string) (string, error) {
	d, err := p.discover(ctx)
	if err != nil {
		return "", err
	}
	options := []oauth2.AuthCodeOption{oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)}
	for name, value := range p.Parameters {
		options = append(options, oauth2.SetAuthURLParam(name, value))
	}
	return p.oauth(d).AuthCodeURL(state, options...), nil
}

// issuer checks the iss parameter of an answer, which detects mix-up attacks (RFC 9207).
func (p *Provider) issuer(ctx context.Context, q url.Values) error {
	d, err := p.discover(ctx)
	if err != nil {
		return err
	}
	switch iss, given := q["iss"]; {
	case !given && d.IssParameter:
		return rejected("missing_iss", nil)
	case given && (len(iss) != 1 || iss[0] != p.Issuer):
		return rejected("wrong_iss", fmt.Errorf("iss is %q", iss))
	}
	return nil
}

// Finish reads the answer with which the provider sends a user back, and redeems its code. It returns the
// user, and the refresh token or "".
func (p *Provider) Finish(ctx context.Context, q url.Values, nonce, verifier string) (Identity, string, error) {
	if err := p.issuer(ctx, q); err != nil {
		return Identity{}, "", err
	}
	switch {
	case q.Get("error") != "":
		return Identity{}, "", &Error{code: prose.ASCII(q.Get("error"), 60),
			Text: prose.ASCII(q.Get("error_description"), 160)}
	case q.Get("code") == "":
		return Identity{}, "", rejected("missing_code", nil)
	}
	return p.finish(ctx, q.Get("code"), nonce, verifier)
}

// finish redeems a code. It returns the user, and the refresh token or "".
func (p *Provider) finish(ctx context.Context, code, nonce, verifier string) (Identity, string, error) {
	d, err := p.discover(ctx)
	if err != nil {
		return Identity{}, "", err
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.http), patience)
	defer cancel()
	token, err := p.oauth(d).Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		return Identity{}, "", asError(err, code, verifier, p.ClientSecret)
	}
	id, err := p.identify(ctx, d, token, nonce)
	return id, token.RefreshToken, err
}

// Renew asks the provider whether a session still stands. It returns the current refresh token,
// which is the old one if the provider keeps it. The error is an *EndedError if the session has ended. An
// error answer that is not about the user is no such error: the operator or the provider must act.
func (p *Provider) Renew(ctx context.Context, refreshToken, subject string) (Identity, string, error) {
	d, err := p.discover(ctx)
	if err != nil {
		return Identity{}, "", err
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.http), patience)
	defer cancel()
	token, err := p.oauth(d).TokenSource(ctx, &oauth2.Token{RefreshToken: refreshToken}).Token()
	if err != nil {
		err = asError(err, refreshToken, p.ClientSecret)
		if r, ok := errors.AsType[*Error](err); ok && refusesUser(r.code) {
			return Identity{}, "", &EndedError{r.code, r.Text}
		}
		return Identity{}, "", err
	}
	id, err := p.identify(ctx, d, token, "")
	switch {
	case err == nil && id.Subject != subject:
		err = &EndedError{"another_user", "the provider answered for " + prose.ASCII(id.Subject, 64)}
	case errors.Is(err, ErrRules):
		err = &EndedError{"not_permitted", prose.ASCII(err.Error(), 160)}
	}
	return id, token.RefreshToken, err
}

// refusesUser reports whether a provider that answers a refresh with an error code refuses the user, who
// has to sign in again if that is possible: the grant has ended, or the user or their account is refused
// ("unauthorized" and "mfa_required" are Auth0's). The other codes are about this client, its request or
// the state of the provider.
func refusesUser(code string) bool {
	return usersChoice[code] || code == "invalid_grant" || code == "unauthorized" || code == "mfa_required"
}

// asError returns an *Error if the provider answered with an error, an error with the status if it has an
// outage, and err if there was no answer. secrets are what the request contained: the answer
// may repeat them.
func asError(err error, secrets ...string) error {
	e, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok || e.Response == nil {
		return err
	}
	if status := e.Response.StatusCode; status >= 500 || status == http.StatusTooManyRequests ||
		status == http.StatusRequestTimeout {
		return fmt.Errorf("the provider answered with status %d", status)
	}
	code := e.ErrorCode
	if code == "" {
		code = fmt.Sprint("status ", e.Response.StatusCode)
	}
	return &Error{code: prose.ASCII(without(code, secrets), 60),
		Text: prose.ASCII(without(e.ErrorDescription, secrets), 160)}
}

// without replaces secrets in a text.
func without(text string, secrets []string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}

// userInfoError returns the error for a request of userinfo without a result. It shortens the error of
// go-oidc, which contains the whole body.
func (p *Provider) userInfoError(err error, token string) error {
	if _, unanswered := errors.AsType[*url.Error](err); unanswered {
		return fmt.Errorf("get userinfo from %s: %w", p.Issuer, err)
	}
	text := prose.ASCII(without(err.Error(), []string{token}), 160)
	if strings.HasPrefix(text, "4") && !strings.HasPrefix(text, "429") {
		return &Error{code: "userinfo_refused", Text: text}
	}
	return fmt.Errorf("get userinfo from %s: %s", p.Issuer, text)
}

// identify returns the user whom the tokens belong to. nonce is "" after a refresh, which may
// return no ID token.
func (p *Provider) identify(ctx context.Context, d *discovered, token *oauth2.Token, nonce string) (Identity, error) {
	claims := map[string]any{}
	if raw, _ := token.Extra("id_token").(string); raw != "" {
		idToken, err := p.verify(ctx, d, d.keys, raw)
		if _, unchecked := errors.AsType[*noKeysError](err); unchecked {
			return Identity{}, err
		}
		if err == nil && nonce != "" && idToken.Nonce != nonce {
			err = errors.New("the nonce does not match")
		}
		if err == nil && idToken.AccessTokenHash != "" {
			err = idToken.VerifyAccessToken(token.AccessToken)
		}
		if err != nil {
			return Identity{}, rejected("invalid_id_token", err)
		}
		if err := decode(idToken, &claims); err != nil {
			return Identity{}, rejected("invalid_id_token", err)
		}
	} else if nonce != "" {
		return Identity{}, rejected("missing_id_token", nil)
	}
	whole, err := p.complete(ctx, d, token, claims)
	if err != nil {
		return Identity{}, err
	}
	id, err := p.person(claims)
	id.Whole = id.Whole && whole
	return id, err
}

// decode reads claims. Numbers stay as the provider wrote them.
func decode(from interface{ Claims(any) error }, into *map[string]any) error {
	var text json.RawMessage
	if err := from.Claims(&text); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}

// complete adds the claims that the ID token lacks from the userinfo endpoint, where many providers
// return e-mail and groups. whole reports that there are no other claims.
func (p *Provider) complete(ctx context.Context, d *discovered, token *oauth2.Token, claims map[string]any) (
	whole bool, err error) {
	_, email := claims["email"]
	_, groups := at(claims, p.Claims.Groups)
	if d.UserInfoEndpoint() == "" || email && groups {
		return d.UserInfoEndpoint() == "", nil
	}
	info, err := d.Provider.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return false, p.userInfoError(err, token.AccessToken)
	}
	more := map[string]any{}
	if err := decode(info, &more); err != nil {
		return false, rejected("invalid_userinfo", err)
	}
	if sub, known := claims["sub"]; known && more["sub"] != sub { // OpenID Connect Core, section 5.3.2
		return false, rejected("invalid_userinfo", errors.New("its sub is that of another user"))
	}
	for name, value := range more {
		if _, known := claims[name]; !known {
			claims[name] = value
		}
	}
	return true, nil
}
