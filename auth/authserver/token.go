package authserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"junction/auth/store"
	"junction/upstream/prose"
)

// oauthError is an error for the client.
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

// limitedParams lists the parameters with a size limit of maxLen. Unknown parameters are ignored (RFC
// 6749, section 3.2).
var limitedParams = []string{
	"grant_type", "client_id", "redirect_uri", "code", "code_verifier", "refresh_token", "resource", "scope", "token",
}

// form returns the parameters of a request from a program. They must be in the body, and each may
// occur once.
func form(r *http.Request) (url.Values, error) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil ||
		media != "application/x-www-form-urlencoded" {
		return nil, bad("invalid_request", "send application/x-www-form-urlencoded")
	}
	if r.URL.RawQuery != "" {
		return nil, bad("invalid_request", "send the parameters in the body, not in the URL")
	}
	if err := r.ParseForm(); err != nil {
		return nil, bad("invalid_request", "cannot read the body as a form, or it is too large")
	}
	for name, values := range r.PostForm {
		if len(values) > 1 {
			return nil, bad("invalid_request", "%s occurs more than once", prose.ASCII(name, 40))
		}
		if slices.Contains(limitedParams, name) && len(values[0]) > maxLen(name) {
			return nil, bad("invalid_request", "%s is longer than %d bytes", name, maxLen(name))
		}
	}
	return r.PostForm, nil
}

// answer writes the response to a program.
func (srv *Server) answer(w http.ResponseWriter, r *http.Request, body []byte, err error) {
	oauthErr, ok := errors.AsType[*oauthError](err)
	switch {
	case err == nil:
		w.Header().Set("Pragma", "no-cache")
		write(w, http.StatusOK, body)
	case ok:
		fail(w, oauthErr.status, oauthErr.code, oauthErr.description)
	default:
		srv.answerOutage(w, r, err)
	}
}

// token is POST /oauth/token.
func (srv *Server) token(w http.ResponseWriter, r *http.Request) {
	body, err := srv.exchange(r)
	srv.answer(w, r, body, err)
}

func (srv *Server) exchange(r *http.Request) ([]byte, error) {
	q, err := form(r)
	if err != nil {
		return nil, err
	}
	c, err := srv.authenticate(r.Context(), r, q)
	if err != nil {
		return nil, err
	}
	switch q.Get("grant_type") {
	case "authorization_code":
		return srv.redeem(r, c, q)
	case "refresh_token":
		return srv.refresh(r, c, q)
	case "":
		return nil, bad("invalid_request", "grant_type is missing")
	}
	return nil, bad("unsupported_grant_type", "grant_type must be authorization_code or refresh_token")
}

// redeem exchanges a code for tokens. A wrong verifier uses the code up. A second use of the code
// revokes the tokens of the first one.
func (srv *Server) redeem(r *http.Request, c *client, q url.Values) (body []byte, err error) {
	invalid := bad("invalid_grant", "the code is invalid, expired or already used")
	signature, ok := srv.minter.signature(q.Get("code"), codePrefix)
	if !ok {
		return nil, invalid
	}
	reused := ""
	err = srv.store.WithTx(r.Context(), func(ctx context.Context) error {
		code, stale := srv.store.Code(ctx, signature)
		if stale != nil && code.Signature == "" {
			return toldIfOver(stale, invalid)
		}
		g, over := srv.store.Grant(ctx, code.Grant)
		switch {
		case over != nil && g.ID == "":
			return fmt.Errorf("read the grant of a code: %w", errors.Join(errInconsistent, over))
		case g.ClientID != c.ID:
			return invalid // the code stays valid for its own client
		case errors.Is(stale, store.ErrUsed) && over == nil:
			reused = g.ID
			if _, err := srv.store.RevokeGrant(ctx, g.ID, "code_reuse"); err != nil {
				return err
			}
			by := callerOf(ctx)
			e := store.Event{Event: "code_reuse", ClientID: c.ID, Principal: g.User, Address: by.address,
				RequestID: by.request, TraceID: by.trace}
			if err := srv.store.Audit(ctx, e); err != nil {
				return err
			}
			return store.Keep(invalid)
		case stale != nil:
			return toldIfOver(stale, invalid)
		case over != nil:
			return toldIfOver(over, invalid)
		}
		if resource := q.Get("resource"); resource != "" && srv.resource(resource) != g.Resource {
			return bad("invalid_target", "the code is for the resource %s", g.Resource)
		}
		body, err = srv.exchangeCode(ctx, code, g, q)
		if oauthErr, ok := errors.AsType[*oauthError](err); ok {
			return store.Keep(oauthErr) // keep that the verifier was tried
		}
		return err
	})
	if reused != "" {
		srv.grantsEnded(reused)
	}
	if err != nil {
		return nil, err
	}
	return body, nil
}

var errInconsistent = errors.New("the store is inconsistent")

// toldIfOver returns told if err says that a row is over, and else err.
func toldIfOver(err error, oauthErr *oauthError) error {
	if isOver(err) {
		return oauthErr
	}
	return err
}

// exchangeCode makes tokens for a valid code, after checking the redirect URI and the verifier. It
// runs in the transaction that has locked the code.
func (srv *Server) exchangeCode(ctx context.Context, code store.Code, g store.Grant, q url.Values) ([]byte, error) {
	rec, err := readRecord(code.Request, g)
	if err != nil {
		return nil, err
	}
	if rec.RedirectURI != "" && rec.RedirectURI != q.Get("redirect_uri") {
		return nil, bad("invalid_grant", "redirect_uri is not that of the authorization request")
	}
	if err := srv.checkVerifier(ctx, code.Signature, q.Get("code_verifier")); err != nil {
		return nil, err
	}
	if err := srv.store.UseCode(ctx, code.Signature); err != nil {
		return nil, err
	}
	made, err := srv.addTokens(ctx, g, rec, nil)
	return made.Response, err
}

// revoke is POST /oauth/revoke (RFC 7009). Revoking any token of a grant ends the grant. Having the
// token is enough to revoke it, and an invalid token is no error.
func (srv *Server) revoke(w http.ResponseWriter, r *http.Request) {
	err := srv.revokeToken(r)
	srv.answer(w, r, []byte("{}"), err)
}

func (srv *Server) revokeToken(r *http.Request) error {
	q, err := form(r)
	if err != nil {
		return err
	}
	ctx, id := r.Context(), ""
	if q.Get("client_id") != "" || q.Get("client_assertion") != "" {
		c, err := srv.authenticate(ctx, r, q)
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
	signature, ok := srv.minter.signature(token, prefix)
	if !ok {
		return nil
	}
	t, err := srv.store.Token(ctx, kind, signature)
	if err != nil && !isOver(err) {
		return err
	}
	if kind == store.RefreshToken { // it may be a token before the present one, which is not stored any more
		t.Grant = cmp.Or(t.Grant, srv.minter.grant(token))
	}
	if t.Grant == "" {
		return nil
	}
	g, err := srv.store.Grant(ctx, t.Grant)
	if err != nil {
		if isOver(err) {
			return nil
		}
		return err
	}
	if id != "" && g.ClientID != id {
		return nil // another client's token stays, as if it were unknown
	}
	if err := srv.endGrant(ctx, g.ID, "revoked_by_client"); err != nil {
		return err
	}
	srv.audit(ctx, "grant_revoked", g.User, g.ClientID, "by the client")
	return nil
}
