package facade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ory/fosite"

	"junction/auth/store"
)

// oauthError is what a client is told: what it did wrong.
type oauthError struct {
	status            int
	code, description string
}

func (e *oauthError) Error() string { return e.code + ": " + e.description }

func bad(code, format string, args ...any) *oauthError {
	status := http.StatusBadRequest
	if code == "invalid_client" {
		status = http.StatusUnauthorized
	}
	return &oauthError{status, code, fmt.Sprintf(format, args...)}
}

// tokenResponse is the answer of the token endpoint (RFC 6749, section 5.1).
type tokenResponse struct {
	AccessToken  string `json:"access_token"`
	TokenType    string `json:"token_type"`
	ExpiresIn    int64  `json:"expires_in"`
	RefreshToken string `json:"refresh_token,omitempty"`
	Scope        string `json:"scope"`
}

func (f *Facade) token(w http.ResponseWriter, r *http.Request)  { f.core.Token(w, r) }
func (f *Facade) revoke(w http.ResponseWriter, r *http.Request) { f.core.Revoke(w, r) }

// bounded are the parameters that are looked at and have no bound of their own. Others are ignored
// (RFC 6749, section 3.2).
var bounded = []string{
	"grant_type", "client_id", "redirect_uri", "code", "code_verifier", "refresh_token", "resource", "scope", "token",
}

// form returns the parameters of a request for programs: a form in the body and nowhere else, each parameter once.
func form(r *http.Request) (url.Values, error) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/x-www-form-urlencoded" {
		return nil, bad("invalid_request", "send application/x-www-form-urlencoded")
	}
	if r.URL.RawQuery != "" {
		return nil, bad("invalid_request", "the parameters go into the body")
	}
	if err := r.ParseForm(); err != nil {
		return nil, bad("invalid_request", "the body is no form, or too large")
	}
	for name, values := range r.PostForm {
		if len(values) > 1 {
			return nil, bad("invalid_request", "%s is there twice", visible(name, 40))
		}
		if slices.Contains(bounded, name) && len(values[0]) > bound(name) {
			return nil, bad("invalid_request", "%s is longer than %d bytes", name, bound(name))
		}
	}
	return r.PostForm, nil
}

// answer writes what the client is told, whatever came of its request.
func (s *server) answer(w http.ResponseWriter, r *http.Request, body []byte, err error) {
	told, ok := errors.AsType[*oauthError](err)
	switch {
	case err == nil:
		w.Header().Set("Pragma", "no-cache")
		write(w, http.StatusOK, body)
	case ok:
		fail(w, told.status, told.code, told.description)
	default:
		s.f.away(w, r, err)
	}
}

// Token is AuthorizationServer's.
func (s *server) Token(w http.ResponseWriter, r *http.Request) {
	body, err := s.exchange(r)
	s.answer(w, r, body, err)
}

func (s *server) exchange(r *http.Request) ([]byte, error) {
	q, err := form(r)
	if err != nil {
		return nil, err
	}
	c, err := s.f.authenticate(r.Context(), r, q)
	if err != nil {
		return nil, err
	}
	switch q.Get("grant_type") {
	case "authorization_code":
		return s.redeem(r, c, q)
	case "refresh_token":
		return s.refresh(r, c, q)
	case "":
		return nil, bad("invalid_request", "grant_type is missing")
	}
	return nil, bad("unsupported_grant_type", "grant_type must be authorization_code or refresh_token")
}

// redeem exchanges a code for tokens. Whoever tries it with a wrong verifier has used it up, and a second use takes back what came of the first.
func (s *server) redeem(r *http.Request, c *client, q url.Values) (body []byte, err error) {
	gone := bad("invalid_grant", "the code is not good, or not any more")
	signature, err := s.signature(r.Context(), q.Get("code"), codePrefix)
	if err != nil {
		return nil, gone
	}
	reused := ""
	err = s.f.store.WithTx(r.Context(), func(ctx context.Context) error {
		code, stale := s.f.store.Code(ctx, signature)
		if stale != nil && code.Signature == "" {
			return outcome(stale, gone)
		}
		g, over := s.f.store.Grant(ctx, code.Grant)
		switch {
		case over != nil && g.ID == "":
			return fmt.Errorf("the grant of a code: %w", errors.Join(errInconsistent, over))
		case g.ClientID != c.ID:
			return gone // and it stays good for whoever it was made for
		case errors.Is(stale, store.ErrUsed) && over == nil:
			reused = g.ID
			if _, err := s.f.store.RevokeGrant(ctx, g.ID, "code_reuse"); err != nil {
				return err
			}
			by := callerOf(ctx)
			e := store.Event{Event: "code_reuse", ClientID: c.ID, Principal: g.User, Address: by.address, RequestID: by.request}
			if err := s.f.store.Audit(ctx, e); err != nil {
				return err
			}
			return store.Keep(gone)
		case stale != nil:
			return outcome(stale, gone)
		case over != nil:
			return outcome(over, gone)
		}
		if resource := q.Get("resource"); resource != "" && s.f.resource(resource) != g.Resource {
			return bad("invalid_target", "the code is for %s", g.Resource)
		}
		v := s.view(g)
		body, err = s.issue(context.WithValue(ctx, viewKey{}, v), r, nil)
		if told, ok := errors.AsType[*oauthError](err); ok {
			return store.Keep(told) // the verifier has been tried
		}
		return err
	})
	if reused != "" {
		s.f.forget(reused)
	}
	if err != nil {
		return nil, err
	}
	return body, nil
}

var errInconsistent = errors.New("the store is inconsistent")

// outcome is what a client is told of a row that is over; other errors stay what they are.
func outcome(err error, told *oauthError) error {
	if isOver(err) {
		return told
	}
	return err
}

// issue has fosite make the tokens of a request, with the view that ctx has. narrow, if it is not nil, are the scopes of the access token.
func (s *server) issue(ctx context.Context, r *http.Request, narrow []string) ([]byte, error) {
	if narrow != nil {
		ctx = context.WithValue(ctx, narrowKey{}, narrow)
	}
	ar, err := s.fosite.NewAccessRequest(ctx, r, &fosite.DefaultSession{})
	if err != nil {
		return nil, translate(err)
	}
	response, err := s.fosite.NewAccessResponse(ctx, ar)
	if err != nil {
		return nil, translate(err)
	}
	scope := ar.GetGrantedScopes()
	if narrow != nil {
		scope = narrow
	}
	v, _ := ctx.Value(viewKey{}).(*view)
	refreshToken, _ := response.GetExtra("refresh_token").(string)
	return json.Marshal(tokenResponse{
		AccessToken: response.GetAccessToken(), TokenType: "Bearer", ExpiresIn: int64(v.access / time.Second), RefreshToken: refreshToken, Scope: strings.Join(scope, " "),
	})
}

// translate makes fosite's errors ours: what is not the client's fault stays an error.
func translate(err error) error {
	var e *fosite.RFC6749Error
	if !errors.As(err, &e) || e.CodeField >= http.StatusInternalServerError {
		return err
	}
	description := e.HintField
	if description == "" {
		description = e.DescriptionField
	}
	return &oauthError{e.CodeField, e.ErrorField, description}
}

// Revoke is AuthorizationServer's (RFC 7009): whichever token of a family is given up, the family goes. Whoever has a token may do that, and of one that is not good
// there is nothing to do.
func (s *server) Revoke(w http.ResponseWriter, r *http.Request) {
	err := s.giveUp(r)
	s.answer(w, r, []byte("{}"), err)
}

func (s *server) giveUp(r *http.Request) error {
	q, err := form(r)
	if err != nil {
		return err
	}
	ctx, id := r.Context(), ""
	if q.Get("client_id") != "" || q.Get("client_assertion") != "" {
		c, err := s.f.authenticate(ctx, r, q)
		if err != nil {
			return err
		}
		id = c.ID
	}
	token := q.Get("token")
	if token == "" {
		return bad("invalid_request", "token is missing")
	}
	kind, prefix := store.RefreshToken, refreshPrefix
	if strings.HasPrefix(token, accessPrefix) {
		kind, prefix = store.AccessToken, accessPrefix
	}
	signature, err := s.signature(ctx, token, prefix)
	if err != nil {
		return nil
	}
	t, err := s.f.store.Token(ctx, kind, signature)
	if err != nil && !isOver(err) {
		return err
	}
	if t.Grant == "" {
		return nil
	}
	g, err := s.f.store.Grant(ctx, t.Grant)
	if err != nil {
		if isOver(err) {
			return nil
		}
		return err
	}
	if id != "" && g.ClientID != id {
		return nil // as if it did not exist: nothing of another client's ends
	}
	if err := s.RevokeGrant(ctx, g.ID, "revoked_by_client"); err != nil {
		return err
	}
	s.f.audit(ctx, "grant_revoked", g.User, g.ClientID, "by the client")
	return nil
}
