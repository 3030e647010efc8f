package authserver

import (
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
	"unicode/utf8"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// provider is an identity provider. It is discovered when it is first needed, and again after a
// failure, so that a provider that is down affects neither the start nor other providers. check finds
// out later changes.
type provider struct {
	IdentityProvider        // with defaults
	redirect         string // one for each provider, against mix-up attacks
	http             *http.Client
	now              func() time.Time
	noRefresh        atomic.Bool // the last sign-in gave no refresh token

	mu    sync.Mutex
	found *discovered // guarded by mu
	err   error       // of the last try; guarded by mu
	again time.Time   // when the next try may be made; guarded by mu
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

// identity is a signed-in user according to the provider.
type identity struct {
	Issuer, Subject string
	Sub, SID        string // claims by which the provider ends sessions; SID may be ""
	Email           string // "" unless the provider has verified it
	Display         string
	Groups          []string
}

// The ways in which a sign-in fails. Any other error means that the provider could not be reached.
var (
	errEnded = errors.New("the provider has ended the session")
	errRules = errors.New("the user may not sign in here")
)

// endedError is errEnded with the reason.
type endedError struct {
	code string // the provider's error code, or a word for what Junction has found
	text string // "" if the provider gave no description
}

func (e *endedError) Error() string { return errEnded.Error() + ": " + e.reason() }

func (e *endedError) Is(target error) bool { return target == errEnded }

// reason returns the code and the text in one line.
func (e *endedError) reason() string {
	if e.text == "" {
		return e.code
	}
	return e.code + ": " + e.text
}

// providerError is an error answer of the provider, or an answer that Junction has rejected (ours). Its
// code is shown to the user.
type providerError struct {
	code string
	text string // the provider's description, or what was wrong; "" if unknown. Only for the log and the audit
	ours bool
	err  error // why Junction has rejected the answer; nil if unknown
}

func (r *providerError) Error() string {
	if r.ours {
		return "the answer of the provider was rejected: " + r.code
	}
	return "the provider answered with the error " + r.code
}

func (r *providerError) Unwrap() error { return r.err }

// rejected returns the *providerError for an answer that Junction rejects.
func rejected(code string, err error) error {
	no := &providerError{code: code, ours: true, err: err}
	if err != nil {
		no.text = safeText(err.Error(), 300)
	}
	return no
}

const (
	providerPatience = 10 * time.Second
	providerPause    = 5 * time.Second
)

func (p *provider) label() string { return cmp.Or(p.Name, p.ID) }

// discover returns the metadata of the provider. Before they are known, it may block on the network, or
// on another goroutine that discovers.
func (p *provider) discover(ctx context.Context) (*discovered, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found != nil {
		return p.found, nil
	}
	if p.now().Before(p.again) {
		return nil, p.err
	}
	// The result outlives the request, so its context must too.
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), providerPatience)
	defer cancel()
	d, err := p.read(limit, nil)
	if err != nil {
		p.err, p.again = err, p.now().Add(providerPause)
		return nil, p.err
	}
	p.found, p.err = d, nil
	return d, nil
}

// read reads the metadata of the provider. before are those in use, whose keys stay if their address
// does; nil if there are none.
func (p *provider) read(ctx context.Context, before *discovered) (*discovered, error) {
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

// check returns an error if the provider cannot be reached, or does not serve its metadata. It reads the
// metadata again; sign-ins go on meanwhile. If they have changed, sign-ins use them from then on, and
// changed has the names. After an error they use the last good ones.
func (p *provider) check(ctx context.Context) (changed []string, err error) {
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

func (p *provider) oauth(d *discovered) *oauth2.Config {
	return &oauth2.Config{ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: d.Endpoint(),
		RedirectURL: p.redirect, Scopes: p.Scopes}
}

// provider returns the identity provider with an id, nil if there is none.
func (srv *Server) provider(id string) *provider {
	for _, p := range srv.providers {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// begin returns the authorization URL for the browser.
func (p *provider) begin(ctx context.Context, state, nonce, verifier string) (string, error) {
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
func (p *provider) issuer(ctx context.Context, q url.Values) error {
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

// finish redeems a code. It returns the user, and the refresh token or "".
func (p *provider) finish(ctx context.Context, code, nonce, verifier string) (identity, string, error) {
	d, err := p.discover(ctx)
	if err != nil {
		return identity{}, "", err
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.http), providerPatience)
	defer cancel()
	token, err := p.oauth(d).Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		return identity{}, "", asProviderError(err, code, verifier)
	}
	id, err := p.identify(ctx, d, token, nonce)
	return id, token.RefreshToken, err
}

// renew asks the provider whether a session still stands. It returns the current refresh token,
// which is the old one if the provider keeps it. The error is errEnded if the session has ended.
func (p *provider) renew(ctx context.Context, refreshToken, subject string) (identity, string, error) {
	d, err := p.discover(ctx)
	if err != nil {
		return identity{}, "", err
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.http), providerPatience)
	defer cancel()
	token, err := p.oauth(d).TokenSource(ctx, &oauth2.Token{RefreshToken: refreshToken}).Token()
	if err != nil {
		if r, ok := errors.AsType[*providerError](asProviderError(err, refreshToken)); ok && r.code == "invalid_grant" {
			return identity{}, "", &endedError{r.code, r.text}
		}
		return identity{}, "", err
	}
	id, err := p.identify(ctx, d, token, "")
	switch {
	case err == nil && id.Subject != subject:
		err = &endedError{"another_user", "the provider answered for " + safeText(id.Subject, 64)}
	case errors.Is(err, errRules):
		err = &endedError{"not_permitted", safeText(err.Error(), 160)}
	}
	return id, token.RefreshToken, err
}

// asProviderError returns a *providerError if the provider answered with an error, and err if there
// was no answer. secrets are what the request contained: a description may repeat them.
func asProviderError(err error, secrets ...string) error {
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok && e.Response != nil && e.Response.StatusCode < 500 &&
		e.Response.StatusCode != http.StatusTooManyRequests {
		code := e.ErrorCode
		if code == "" {
			code = fmt.Sprint("status ", e.Response.StatusCode)
		}
		text := e.ErrorDescription
		for _, secret := range secrets {
			if secret != "" {
				text = strings.ReplaceAll(text, secret, "***")
			}
		}
		return &providerError{code: safeText(code, 60), text: safeText(text, 160)}
	}
	return err
}

// identify returns the user whom the tokens belong to. nonce is "" after a refresh, which may
// return no ID token.
func (p *provider) identify(ctx context.Context, d *discovered, token *oauth2.Token, nonce string) (identity, error) {
	claims := map[string]any{}
	if raw, _ := token.Extra("id_token").(string); raw != "" {
		idToken, err := p.verify(ctx, d, d.keys, raw)
		if errors.Is(err, errNoKeys) {
			return identity{}, err
		}
		if err == nil && nonce != "" && idToken.Nonce != nonce {
			err = errors.New("the nonce does not match")
		}
		if err == nil && idToken.AccessTokenHash != "" {
			err = idToken.VerifyAccessToken(token.AccessToken)
		}
		if err != nil {
			return identity{}, rejected("invalid_id_token", err)
		}
		if err := idToken.Claims(&claims); err != nil {
			return identity{}, rejected("invalid_id_token", err)
		}
	} else if nonce != "" {
		return identity{}, rejected("missing_id_token", nil)
	}
	if err := p.complete(ctx, d, token, claims); err != nil {
		return identity{}, err
	}
	return p.person(claims)
}

// complete adds the claims that the ID token lacks from the userinfo endpoint, where many providers
// return e-mail and groups.
func (p *provider) complete(ctx context.Context, d *discovered, token *oauth2.Token, claims map[string]any) error {
	_, email := claims["email"]
	_, groups := at(claims, p.Claims.Groups)
	if d.UserInfoEndpoint() == "" || email && groups {
		return nil
	}
	info, err := d.Provider.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return fmt.Errorf("get userinfo from %s: %w", p.Issuer, err)
	}
	more := map[string]any{}
	if err := info.Claims(&more); err != nil {
		return rejected("invalid_userinfo", err)
	}
	if sub, known := claims["sub"]; known && more["sub"] != sub { // OpenID Connect Core, section 5.3.2
		return rejected("invalid_userinfo", errors.New("its sub is that of another user"))
	}
	for name, value := range more {
		if _, known := claims[name]; !known {
			claims[name] = value
		}
	}
	return nil
}

// person makes an identity of claims. The error wraps errRules if the configuration rejects the
// user.
func (p *provider) person(claims map[string]any) (identity, error) {
	id := identity{Issuer: p.Issuer}
	id.Sub, id.SID = storableClaim(claims["sub"]), storableClaim(claims["sid"])
	var parts []string
	for _, name := range p.SubjectClaims {
		s, _ := claims[name].(string)
		if s == "" {
			return identity{}, fmt.Errorf("%w: the provider returned no claim %s", errRules, name)
		}
		parts = append(parts, url.PathEscape(s))
	}
	if id.Subject = strings.Join(parts, "/"); len(parts) == 1 {
		id.Subject, _ = claims[p.SubjectClaims[0]].(string)
	}
	address, _ := claims["email"].(string)
	if verified(claims["email_verified"]) {
		id.Email = strings.ToLower(address)
	}
	for _, name := range []string{"name", "preferred_username", "email"} {
		if id.Display, _ = claims[name].(string); id.Display != "" {
			id.Display = cleanName(id.Display)
			break
		}
	}
	if groups, there := at(claims, p.Claims.Groups); there {
		list, ok := texts(groups)
		if !ok {
			return identity{}, fmt.Errorf("%w: the groups claim is not a list of strings", errRules)
		}
		id.Groups = list
	}
	for name, want := range p.RequiredClaims {
		got, _ := texts(claims[name])
		if !slices.ContainsFunc(got, func(s string) bool { return slices.Contains(want, s) }) {
			return identity{}, fmt.Errorf("%w: the claim %s has no value of required_claims", errRules, name)
		}
	}
	if len(p.EmailDomains) > 0 {
		_, domain, _ := strings.Cut(id.Email, "@")
		if !slices.ContainsFunc(p.EmailDomains,
			func(d string) bool { return domain != "" && strings.EqualFold(d, domain) }) {
			return identity{}, fmt.Errorf("%w: no verified e-mail address in email_domains", errRules)
		}
	}
	return id, nil
}

// storableClaim returns a claim that a logout token may name, "" if it is none.
func storableClaim(v any) string {
	s, _ := v.(string)
	if len(s) > maxLogoutText || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return ""
	}
	return s
}

// verified reads email_verified, which some providers send as a string.
func verified(v any) bool { return v == true || v == "true" }

// at returns the value at a path of claim names.
func at(claims map[string]any, path []string) (any, bool) {
	var v any = claims
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[name]; !ok {
			return nil, false
		}
	}
	return v, v != nil
}

// texts reads a string or a list of strings. A boolean or number is read as its JSON text.
func texts(v any) ([]string, bool) {
	switch v := v.(type) {
	case string:
		return []string{v}, true
	case bool, float64, json.Number:
		return []string{fmt.Sprint(v)}, true
	case []any:
		list := make([]string, 0, len(v))
		for _, e := range v {
			s, ok := e.(string)
			if !ok {
				return nil, false
			}
			list = append(list, s)
		}
		return list, true
	}
	return nil, false
}

// signingAlgs returns the algorithms of ID tokens and logout tokens. Without any, go-oidc uses RS256.
func (d *discovered) signingAlgs() []string {
	return slices.DeleteFunc(slices.Clone(d.Algorithms),
		func(alg string) bool { return alg == "none" || strings.HasPrefix(alg, "HS") })
}

// errNoKeys means that a token cannot be verified, because the provider does not give its keys.
var errNoKeys = errors.New("cannot get the keys of the identity provider")

// errNotYet means that a token is not valid yet by the clock of this machine (nbf).
var errNotYet = errors.New("not valid yet")

// verify verifies a signed token of the provider. It accepts the asymmetric algorithms of the metadata.
// The error wraps errNoKeys if the token may be valid.
func (p *provider) verify(ctx context.Context, d *discovered, keys oidc.KeySet, token string) (*oidc.IDToken, error) {
	ctx, cancel := context.WithTimeout(ctx, providerPatience)
	defer cancel()
	used := &usedKeys{KeySet: keys}
	verified, err := oidc.NewVerifier(p.Issuer, used, &oidc.Config{ClientID: p.ClientID, Now: p.now,
		SupportedSigningAlgs: d.signingAlgs()}).Verify(ctx, token)
	_, unreachable := errors.AsType[*url.Error](used.err)
	switch {
	case unreachable && !errors.Is(used.err, errKeysPause) || ctx.Err() != nil:
		return nil, fmt.Errorf("%w %s: %w", errNoKeys, p.Issuer, cmp.Or(used.err, ctx.Err()))
	case err != nil && used.early(p.now()):
		return nil, fmt.Errorf("%w: %w", errNotYet, err)
	}
	return verified, err
}

// usedKeys remembers what keys have found out about a token, since go-oidc drops causes.
type usedKeys struct {
	oidc.KeySet
	payload []byte // nil if the keys did not verify the token
	err     error
}

// VerifySignature implements oidc.KeySet.
func (k *usedKeys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	k.payload, k.err = k.KeySet.VerifySignature(ctx, token)
	return k.payload, k.err
}

// early reports whether a token that go-oidc has refused is not valid yet: it permits an nbf of 5 minutes
// later, and has no type for that error.
func (k *usedKeys) early(now time.Time) bool {
	var c struct {
		NotBefore float64 `json:"nbf"`
	}
	return json.Unmarshal(k.payload, &c) == nil && c.NotBefore > float64(now.Add(5*time.Minute).Unix())
}

const (
	keysPause = time.Minute     // between two fetches of keys for tokens that anyone can send
	keysRetry = 5 * time.Second // after a failed fetch
)

// newKeys returns the keys of a provider that are published at an address. The key set of go-oidc fetches
// them for each signature that no known key has made. With now, it fetches them with pauses.
func newKeys(client *http.Client, at string, now func() time.Time) oidc.KeySet {
	own := *client
	own.Transport = okTransport{cmp.Or(own.Transport, http.DefaultTransport)}
	if now != nil {
		own.Transport = &pausingTransport{next: own.Transport, now: now}
	}
	own.Timeout = cmp.Or(own.Timeout, providerPatience)
	return oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), &own), at)
}

// okTransport returns an error for an answer other than 200, which go-oidc does not tell from keys that
// have not made a signature.
type okTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t okTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err == nil && resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, errors.New("the provider answers " + resp.Status)
	}
	return resp, err
}

// errKeysPause means that the keys are not fetched again yet.
var errKeysPause = errors.New("its keys were fetched a moment ago")

// pausingTransport refuses requests that follow too soon.
type pausingTransport struct {
	next http.RoundTripper
	now  func() time.Time

	mu    sync.Mutex
	again time.Time // guarded by mu
	err   error     // of the last request; guarded by mu
}

// RoundTrip implements http.RoundTripper.
func (t *pausingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	if t.now().Before(t.again) {
		defer t.mu.Unlock()
		return nil, cmp.Or(t.err, errKeysPause)
	}
	t.again, t.err = t.now().Add(keysPause), nil
	t.mu.Unlock()
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		t.mu.Lock()
		t.again, t.err = t.now().Add(keysRetry), err
		t.mu.Unlock()
	}
	return resp, err
}
