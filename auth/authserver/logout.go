package authserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"junction/auth/store"
)

// This file receives logouts of the identity providers (OpenID Connect Back-Channel Logout 1.0). Anyone
// can send requests here: they are limited by address and by size before a signature is checked, and the
// keys of a provider are fetched at most once a minute for tokens that no known key has signed.

// logoutPath is the path of the endpoint; the id of the provider follows. junction auth doctor shows it.
const logoutPath = "/oauth/backchannel-logout/"

const (
	logoutEvent   = "http://schemas.openid.net/event/backchannel-logout"
	maxLogout     = 8 << 10     // bytes of a logout token; real ones have less than one KiB
	maxLogoutText = 512         // bytes of each of jti, sub and sid
	logoutSkew    = time.Minute // between the clocks of the provider and of this server
	logoutAge     = time.Hour   // how long after iat a token is accepted, and its jti remembered
)

// backchannelLogout is POST /oauth/backchannel-logout/{idp}.
func (srv *Server) backchannelLogout(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		fail(w, http.StatusMethodNotAllowed, "invalid_request", "use POST")
		return
	}
	p := srv.provider(r.PathValue("idp"))
	if p == nil {
		fail(w, http.StatusNotFound, "not_found", "no such endpoint")
		return
	}
	err := srv.endAtProvider(r, p)
	if told, ok := errors.AsType[*oauthError](err); ok {
		srv.event(r, "logout_refused", "", "", p.ID+": "+safeText(told.description, 200))
	}
	srv.answer(w, r, []byte("{}"), err)
}

// errUnchecked means that a logout token cannot be checked. Anyone can cause it while a provider is down.
var errUnchecked = errors.New("cannot check a logout token")

// endAtProvider ends the sessions that a logout token of a provider names.
func (srv *Server) endAtProvider(r *http.Request, p *provider) error {
	q, err := form(r)
	if err != nil {
		return err
	}
	token := q.Get("logout_token")
	if token == "" || len(token) > maxLogout {
		return bad("invalid_request", "logout_token is missing, or longer than %d bytes", maxLogout)
	}
	l, err := p.readLogout(r.Context(), token)
	if err != nil {
		return err
	}
	// The provider may close the connection early; the sessions end all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), recheckTimeout)
	defer cancel()
	ended, grants, err := srv.store.EndAtProvider(ctx, l, "logged_out_at_provider")
	switch {
	case errors.Is(err, store.ErrUsed):
		return bad("invalid_request", "the logout token was already used (jti)")
	case errors.Is(err, store.ErrText):
		return bad("invalid_request", "the logout token has a text that cannot be stored")
	case err != nil:
		return err
	}
	srv.grantsEnded(grants...)
	named := fmt.Sprintf("%s, sub %s, sid %s", p.ID, cmp.Or(safeText(l.Sub, 64), "none"),
		cmp.Or(safeText(l.SID, 64), "none"))
	if len(ended) == 0 {
		srv.log.Info("a provider has logged out a user who has no session here", "provider", p.ID,
			"sub", safeText(l.Sub, 64), "sid", safeText(l.SID, 64), "address", callerOf(ctx).address,
			"request_id", callerOf(ctx).request)
	}
	sessions := map[string]int{} // by user; a sid of several users would be a fault of the provider
	for _, i := range ended {
		sessions[i.User]++
	}
	for user, n := range sessions {
		srv.audit(ctx, "logged_out_at_provider", user, "", named, "sessions", n, "grants", len(grants))
	}
	return nil
}

// logoutClaims are the claims of a logout token (section 2.4) that go-oidc does not check.
type logoutClaims struct {
	Sub    string                     `json:"sub"`
	SID    string                     `json:"sid"`
	JTI    string                     `json:"jti"`
	Nonce  json.RawMessage            `json:"nonce"`
	Events map[string]json.RawMessage `json:"events"`
}

// readLogout verifies a logout token (section 2.6). An error that is no *oauthError means that the
// provider cannot be reached.
func (p *provider) readLogout(ctx context.Context, token string) (store.ProviderLogout, error) {
	no := func(format string, args ...any) (store.ProviderLogout, error) {
		return store.ProviderLogout{}, bad("invalid_request", "the logout token "+format, args...)
	}
	d, err := p.discover(ctx)
	if err != nil {
		return store.ProviderLogout{}, fmt.Errorf("%w: %w", errUnchecked, err)
	}
	if !d.BackchannelLogout {
		return store.ProviderLogout{}, bad("invalid_request",
			"the metadata of the provider has no backchannel_logout_supported: true")
	}
	if !logoutType(token) {
		return no("has a typ other than logout+jwt")
	}
	// VerifyLogout of go-oidc would check jti, sub, sid and nonce, but neither nbf, typ and iat, nor that
	// the event is an object. Verify checks nbf, and the other claims are checked here, with their bounds.
	verified, err := p.verify(ctx, d, d.logoutKeys, token)
	if errors.Is(err, errNoKeys) {
		return store.ProviderLogout{}, fmt.Errorf("%w: %w", errUnchecked, err)
	}
	if err != nil {
		return no("is not valid: %s", safeText(strings.TrimPrefix(err.Error(), "oidc: "), 120))
	}
	var c logoutClaims
	if err := verified.Claims(&c); err != nil {
		return no("has a claim of the wrong type")
	}
	now := p.now()
	expires := verified.IssuedAt.Add(logoutAge)
	if verified.Expiry.Before(expires) {
		expires = verified.Expiry
	}
	event := bytes.TrimSpace(c.Events[logoutEvent])
	switch {
	case verified.IssuedAt.Unix() <= 0 || verified.IssuedAt.After(now.Add(logoutSkew)):
		return no("has no iat, or one in the future")
	case !now.Before(expires):
		return no("was issued more than an hour ago")
	case len(event) == 0 || event[0] != '{':
		return no("has not the event %s", logoutEvent)
	case c.Nonce != nil:
		return no("has a nonce, as an ID token does")
	case c.JTI == "" || c.Sub == "" && c.SID == "":
		return no("has no jti, or neither sub nor sid")
	case max(len(c.JTI), len(c.Sub), len(c.SID)) > maxLogoutText:
		return no("has a jti, sub or sid of more than %d bytes", maxLogoutText)
	}
	return store.ProviderLogout{IDP: p.ID, Sub: c.Sub, SID: c.SID, JTI: c.JTI, Expires: expires}, nil
}

// logoutType reports whether the header of a token permits that it is a logout token. Providers that have
// no type for logout tokens send none, or JWT.
func logoutType(token string) bool {
	head, _, _ := strings.Cut(token, ".")
	text, err := strictBase64.DecodeString(head)
	var header struct {
		Type string `json:"typ"`
	}
	if err != nil || json.Unmarshal(text, &header) != nil {
		return true // go-oidc refuses it, with the reason
	}
	kind := strings.TrimPrefix(strings.ToLower(header.Type), "application/")
	return kind == "" || kind == "jwt" || kind == "logout+jwt"
}
