package facade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ory/fosite"
	"github.com/ory/fosite/compose"
	"github.com/ory/fosite/handler/oauth2"
	"github.com/ory/fosite/token/hmac"

	"junction/auth/store"
)

// AuthorizationServer is what we need of one that keeps to OAuth 2.1. It knows no browsers, no people and no providers, and what it is made with is nobody's business
// outside of this file.
type AuthorizationServer interface {
	// BeginAuthorize checks a client's request, of which nothing has been given yet. The error is a
	// *problem to show, a *flaw, which comes with the client and where it is told, or one that kept
	// us from finding out.
	BeginAuthorize(ctx context.Context, r *http.Request) (AuthRequest, error)
	// IssueCode stores the grant, and returns where the browser takes the code for it. The error wraps store.ErrRevoked if the session that it rests on has ended.
	IssueCode(ctx context.Context, request AuthRequest, g store.Grant) (redirect string, err error)
	// Token and Revoke answer clients.
	Token(w http.ResponseWriter, r *http.Request)
	Revoke(w http.ResponseWriter, r *http.Request)
	// Introspect returns what an access token gives access to. The error wraps errBadToken if nothing.
	Introspect(ctx context.Context, token string) (Access, error)
	// RevokeGrant ends a grant and all that came of it.
	RevokeGrant(ctx context.Context, id, why string) error
}

// Access is what an access token gives access to.
type Access struct {
	store.Access
	Scopes []string
}

// The prefixes tell people, and those who search for leaked secrets, what they have before them.
const (
	accessPrefix  = "jct_at_"
	refreshPrefix = "jct_rt_"
	codePrefix    = "jct_ac_"

	codeTTL = time.Minute
)

// server is the AuthorizationServer of a Facade, on fosite, whose ideas about clients, redirects, scopes and errors are not ours: what it does not do, or does
// otherwise, is done before it is asked, and it is shown a client that may do exactly what is left.
type server struct {
	f        *Facade
	fosite   fosite.OAuth2Provider
	strategy strategy
}

func newServer(f *Facade, secrets [][]byte) *server {
	config := &fosite.Config{
		AccessTokenLifespan: f.tokens.AccessTTL, RefreshTokenLifespan: f.tokens.RefreshTTL, AuthorizeCodeLifespan: codeTTL,
		GlobalSecret: secrets[0], RotatedGlobalSecrets: secrets[1:], EnforcePKCE: true, MinParameterEntropy: 1, OmitRedirectScopeParam: true,
		RefreshTokenScopes: []string{}, ScopeStrategy: fosite.ExactScopeStrategy, AudienceMatchingStrategy: fosite.ExactAudienceMatchingStrategy,
		RedirectSecureChecker: func(context.Context, *url.URL) bool { return true }, // checked by us, by the rules of redirect.go
		ClientAuthenticationStrategy: func(ctx context.Context, _ *http.Request, _ url.Values) (fosite.Client, error) {
			if v, ok := ctx.Value(viewKey{}).(*view); ok {
				return v, nil
			}
			return nil, fosite.ErrInvalidClient
		},
	}
	s := &server{f: f}
	s.strategy = strategy{oauth2.NewHMACSHAStrategyUnPrefixed(&hmac.HMACStrategy{Config: config}, config)}
	s.fosite = compose.Compose(config, rows{f.store, f.now}, &compose.CommonStrategy{CoreStrategy: s.strategy},
		compose.OAuth2AuthorizeExplicitFactory, compose.OAuth2RefreshTokenGrantFactory, compose.OAuth2PKCEFactory)
	return s
}

// view is a client as fosite sees it for one request: it may do what has been found in order, and nothing else.
type view struct {
	fosite.DefaultClient
	access, refresh time.Duration
}

type viewKey struct{}

// view returns the client of a grant.
func (s *server) view(g store.Grant) *view {
	left := g.Expires.Sub(s.f.now())
	return &view{
		DefaultClient: fosite.DefaultClient{
			ID: g.ClientID, Public: true, GrantTypes: grantTypes, ResponseTypes: responseTypes, Scopes: s.f.scopes, Audience: []string{g.Resource},
		},
		access: min(s.f.tokens.AccessTTL, left), refresh: min(s.f.tokens.RefreshTTL, left),
	}
}

// GetEffectiveLifespan is fosite's: nothing outlives the grant.
func (v *view) GetEffectiveLifespan(_ fosite.GrantType, kind fosite.TokenType, fallback time.Duration) time.Duration {
	switch kind {
	case fosite.AccessToken:
		return v.access
	case fosite.RefreshToken:
		return v.refresh
	}
	return fallback
}

// BeginAuthorize is AuthorizationServer's.
func (s *server) BeginAuthorize(ctx context.Context, r *http.Request) (AuthRequest, error) {
	return s.f.begin(ctx, r.Form)
}

// IssueCode is AuthorizationServer's.
func (s *server) IssueCode(ctx context.Context, request AuthRequest, g store.Grant) (redirect string, err error) {
	to, err := url.Parse(request.RedirectURI)
	if err != nil {
		return "", err
	}
	err = s.f.store.WithTx(ctx, func(ctx context.Context) error {
		// Locked until the grant is there: whoever ends the session ends the grant too, or has ended the session already.
		if _, err := s.f.store.IDPSession(ctx, g.IDPSession); err != nil {
			return err
		}
		if g, err = s.f.store.AddGrant(ctx, g); err != nil {
			return err
		}
		ar := fosite.NewAuthorizeRequest()
		ar.ID, ar.Client, ar.RedirectURI, ar.State, ar.ResponseTypes = g.ID, s.view(g), to, request.State, fosite.Arguments{"code"}
		ar.Form = url.Values{"code_challenge": {request.Challenge}, "code_challenge_method": {"S256"}}
		if request.ExplicitRedirect {
			ar.Form.Set("redirect_uri", request.RedirectURI)
		}
		for _, scope := range strings.Fields(g.Scope) {
			ar.AppendRequestedScope(scope)
			ar.GrantScope(scope)
		}
		ar.SetRequestedAudience(fosite.Arguments{g.Resource})
		ar.GrantAudience(g.Resource)
		response, err := s.fosite.NewAuthorizeResponse(ctx, ar, &fosite.DefaultSession{})
		if err != nil {
			return err
		}
		redirect = s.f.answerURL(request.RedirectURI, url.Values{"code": {response.GetCode()}}, request.State)
		return nil
	})
	return redirect, err
}

var errBadToken = errors.New("the token is not good")

// Introspect is AuthorizationServer's.
func (s *server) Introspect(ctx context.Context, token string) (Access, error) {
	signature, err := s.signature(ctx, token, accessPrefix)
	if err != nil {
		return Access{}, err
	}
	a, err := s.f.store.Access(ctx, signature)
	switch {
	case errors.Is(err, store.ErrExpired):
		return Access{}, fmt.Errorf("%w: it is expired", errBadToken)
	case errors.Is(err, store.ErrRevoked):
		return Access{}, fmt.Errorf("%w: it was revoked", errBadToken)
	case isOver(err):
		return Access{}, fmt.Errorf("%w: nobody knows it here", errBadToken)
	case err != nil:
		return Access{}, err
	}
	var r record
	if err := json.Unmarshal(a.Token.Request, &r); err != nil {
		return Access{}, fmt.Errorf("read a token's row: %w", err)
	}
	return Access{a, r.Granted}, nil
}

// signature returns the name of a token in the store, if we made the token: the name alone, which the store holds, is worth nothing.
func (s *server) signature(ctx context.Context, token, prefix string) (string, error) {
	bare, ok := strings.CutPrefix(token, prefix)
	if !ok || len(token) > 200 || s.strategy.Enigma.Validate(ctx, bare) != nil {
		return "", fmt.Errorf("%w: nobody knows it here", errBadToken)
	}
	return s.strategy.Enigma.Signature(bare), nil
}

// RevokeGrant is AuthorizationServer's.
func (s *server) RevokeGrant(ctx context.Context, id, why string) error {
	_, err := s.f.store.RevokeGrant(ctx, id, why)
	if err == nil {
		s.f.forget(id)
	}
	return err
}

// strategy is fosite's, with prefixes of our own.
type strategy struct {
	*oauth2.HMACSHAStrategyUnPrefixed
}

func prefixed(prefix, token, signature string, err error) (string, string, error) {
	if err != nil {
		return "", "", err
	}
	return prefix + token, signature, nil
}

// GenerateAccessToken and the five methods below are fosite's.
func (s strategy) GenerateAccessToken(ctx context.Context, r fosite.Requester) (string, string, error) {
	token, signature, err := s.HMACSHAStrategyUnPrefixed.GenerateAccessToken(ctx, r)
	return prefixed(accessPrefix, token, signature, err)
}

// GenerateRefreshToken makes a refresh token.
func (s strategy) GenerateRefreshToken(ctx context.Context, r fosite.Requester) (string, string, error) {
	token, signature, err := s.HMACSHAStrategyUnPrefixed.GenerateRefreshToken(ctx, r)
	return prefixed(refreshPrefix, token, signature, err)
}

// GenerateAuthorizeCode makes a code.
func (s strategy) GenerateAuthorizeCode(ctx context.Context, r fosite.Requester) (string, string, error) {
	token, signature, err := s.HMACSHAStrategyUnPrefixed.GenerateAuthorizeCode(ctx, r)
	return prefixed(codePrefix, token, signature, err)
}

// ValidateAccessToken checks an access token.
func (s strategy) ValidateAccessToken(ctx context.Context, r fosite.Requester, token string) error {
	return s.HMACSHAStrategyUnPrefixed.ValidateAccessToken(ctx, r, strings.TrimPrefix(token, accessPrefix))
}

// ValidateRefreshToken checks a refresh token.
func (s strategy) ValidateRefreshToken(ctx context.Context, r fosite.Requester, token string) error {
	return s.HMACSHAStrategyUnPrefixed.ValidateRefreshToken(ctx, r, strings.TrimPrefix(token, refreshPrefix))
}

// ValidateAuthorizeCode checks a code.
func (s strategy) ValidateAuthorizeCode(ctx context.Context, r fosite.Requester, token string) error {
	return s.HMACSHAStrategyUnPrefixed.ValidateAuthorizeCode(ctx, r, strings.TrimPrefix(token, codePrefix))
}

// record is what the store keeps of fosite's requests. No secret is in it.
type record struct {
	Client    string                         `json:"client"`
	At        time.Time                      `json:"at"`
	Requested []string                       `json:"requested"`
	Granted   []string                       `json:"granted"`
	Audience  []string                       `json:"audience"`
	Form      url.Values                     `json:"form,omitempty"`
	Expires   map[fosite.TokenType]time.Time `json:"expires"`
}

func recordOf(r fosite.Requester) record {
	session, _ := r.GetSession().(*fosite.DefaultSession)
	rec := record{
		Client: r.GetClient().GetID(), At: r.GetRequestedAt(), Requested: r.GetRequestedScopes(), Granted: r.GetGrantedScopes(), Audience: r.GetGrantedAudience(),
		Form: r.GetRequestForm(),
	}
	if session != nil {
		rec.Expires = session.ExpiresAt
	}
	return rec
}

// request returns what text is a record of. It has a session of its own: fosite asks for a code's twice, and has by then noted in the first when its tokens end.
func request(id string, text []byte) (fosite.Requester, error) {
	var rec record
	if err := json.Unmarshal(text, &rec); err != nil {
		return nil, err
	}
	r := fosite.NewRequest()
	r.ID, r.RequestedAt, r.RequestedScope, r.GrantedScope = id, rec.At, rec.Requested, rec.Granted
	r.RequestedAudience, r.GrantedAudience, r.Form, r.Session = rec.Audience, rec.Audience, rec.Form, &fosite.DefaultSession{ExpiresAt: rec.Expires}
	r.Client = &fosite.DefaultClient{ID: rec.Client, Public: true, GrantTypes: grantTypes, ResponseTypes: responseTypes}
	if r.Form == nil {
		r.Form = url.Values{}
	}
	return r, nil
}

// narrowKey finds in a context the scopes that an access token is narrowed to, and issuedKey a place for the signature of the refresh token that was made.
type (
	narrowKey struct{}
	issuedKey struct{}
)

// rows is fosite's storage. The id of a request is that of its grant, and codes and tokens come in the transaction of the context.
type rows struct {
	store *store.Store
	now   func() time.Time
}

// GetClient is fosite's; clients come by the view of a request.
func (rows) GetClient(ctx context.Context, id string) (fosite.Client, error) {
	if v, ok := ctx.Value(viewKey{}).(*view); ok && v.ID == id {
		return v, nil
	}
	return nil, fosite.ErrNotFound
}

// ClientAssertionJWTValid and SetClientAssertionJWT are fosite's; assertions are checked by assertion.go.
func (rows) ClientAssertionJWTValid(context.Context, string) error { return fosite.ErrJTIKnown }

// SetClientAssertionJWT refuses.
func (rows) SetClientAssertionJWT(context.Context, string, time.Time) error {
	return fosite.ErrJTIKnown
}

// BeginTX, Commit and Rollback are fosite's.
func (s rows) BeginTX(ctx context.Context) (context.Context, error) { return s.store.BeginTX(ctx) }

// Commit ends a transaction.
func (s rows) Commit(ctx context.Context) error { return s.store.Commit(ctx) }

// Rollback undoes a transaction.
func (s rows) Rollback(ctx context.Context) error { return s.store.Rollback(ctx) }

// CreateAuthorizeCodeSession is fosite's.
func (s rows) CreateAuthorizeCodeSession(ctx context.Context, code string, r fosite.Requester) error {
	text, err := json.Marshal(recordOf(r))
	if err != nil {
		return err
	}
	return s.store.AddCode(ctx, store.Code{
		Signature: code, Grant: r.GetID(), RequestID: r.GetID(), Request: text, Expires: s.now().Add(codeTTL),
	})
}

// GetAuthorizeCodeSession is fosite's.
func (s rows) GetAuthorizeCodeSession(ctx context.Context, code string, _ fosite.Session) (fosite.Requester, error) {
	c, stale := s.store.Code(ctx, code)
	switch {
	case errors.Is(stale, store.ErrNotFound), errors.Is(stale, store.ErrExpired):
		return nil, fosite.ErrNotFound
	case stale != nil && !errors.Is(stale, store.ErrUsed):
		return nil, stale
	}
	r, err := request(c.RequestID, c.Request)
	if err == nil && stale != nil {
		err = fosite.ErrInvalidatedAuthorizeCode
	}
	return r, err
}

// InvalidateAuthorizeCodeSession is fosite's.
func (s rows) InvalidateAuthorizeCodeSession(ctx context.Context, code string) error {
	return s.store.UseCode(ctx, code)
}

// CreatePKCERequestSession is fosite's.
func (s rows) CreatePKCERequestSession(ctx context.Context, signature string, r fosite.Requester) error {
	text, err := json.Marshal(recordOf(r))
	if err != nil {
		return err
	}
	return s.store.AddPKCE(ctx, signature, text, s.now().Add(codeTTL))
}

// GetPKCERequestSession is fosite's. It takes the row, so that a verifier can be tried once.
func (s rows) GetPKCERequestSession(ctx context.Context, signature string, _ fosite.Session) (fosite.Requester, error) {
	text, err := s.store.TakePKCE(ctx, signature)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fosite.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return request("", text)
}

// DeletePKCERequestSession is fosite's; the row has been taken.
func (rows) DeletePKCERequestSession(context.Context, string) error { return nil }

// CreateAccessTokenSession is fosite's.
func (s rows) CreateAccessTokenSession(ctx context.Context, signature string, r fosite.Requester) error {
	rec := recordOf(r)
	if narrow, ok := ctx.Value(narrowKey{}).([]string); ok {
		rec.Granted = narrow
	}
	return s.add(ctx, store.AccessToken, signature, r, rec)
}

// CreateRefreshTokenSession is fosite's.
func (s rows) CreateRefreshTokenSession(ctx context.Context, signature, _ string, r fosite.Requester) error {
	if issued, ok := ctx.Value(issuedKey{}).(*string); ok {
		*issued = signature
	}
	return s.add(ctx, store.RefreshToken, signature, r, recordOf(r))
}

func (s rows) add(ctx context.Context, kind, signature string, r fosite.Requester, rec record) error {
	rec.Form = nil
	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	v, ok := ctx.Value(viewKey{}).(*view)
	if !ok {
		return errInconsistent
	}
	left := v.access
	if kind == store.RefreshToken {
		left = v.refresh
	}
	return s.store.AddToken(ctx, store.Token{
		Signature: signature, Kind: kind, Grant: r.GetID(), RequestID: r.GetID(), Request: text, Expires: s.now().Add(left),
	})
}

// GetAccessTokenSession is fosite's.
func (s rows) GetAccessTokenSession(ctx context.Context, signature string, _ fosite.Session) (fosite.Requester, error) {
	return s.token(ctx, store.AccessToken, signature)
}

// GetRefreshTokenSession is fosite's.
func (s rows) GetRefreshTokenSession(ctx context.Context, signature string, _ fosite.Session) (fosite.Requester, error) {
	return s.token(ctx, store.RefreshToken, signature)
}

func (s rows) token(ctx context.Context, kind, signature string) (fosite.Requester, error) {
	t, err := s.store.Token(ctx, kind, signature)
	if isOver(err) {
		return nil, fosite.ErrNotFound // reuse has been found out before fosite was asked
	}
	if err != nil {
		return nil, err
	}
	return request(t.RequestID, t.Request)
}

// DeleteAccessTokenSession is fosite's; nothing of ours uses it.
func (rows) DeleteAccessTokenSession(context.Context, string) error { return fosite.ErrNotFound }

// DeleteRefreshTokenSession is fosite's; nothing of ours uses it.
func (rows) DeleteRefreshTokenSession(context.Context, string) error { return fosite.ErrNotFound }

// RotateRefreshToken is fosite's; the store rotates.
func (rows) RotateRefreshToken(context.Context, string, string) error { return nil }

// RevokeRefreshToken is fosite's.
func (s rows) RevokeRefreshToken(ctx context.Context, requestID string) error {
	return s.store.RevokeTokens(ctx, store.RefreshToken, requestID)
}

// RevokeRefreshTokenMaybeGracePeriod is fosite's.
func (s rows) RevokeRefreshTokenMaybeGracePeriod(ctx context.Context, requestID, _ string) error {
	return s.RevokeRefreshToken(ctx, requestID)
}

// RevokeAccessToken is fosite's.
func (s rows) RevokeAccessToken(ctx context.Context, requestID string) error {
	return s.store.RevokeTokens(ctx, store.AccessToken, requestID)
}

// subset reports whether all of a are in b.
func subset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}
