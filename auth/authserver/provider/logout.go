package provider

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"junction/upstream/prose"
)

// logoutClaims are the claims of a logout token (section 2.4) that go-oidc does not check.
type logoutClaims struct {
	Sub    string                     `json:"sub"`
	SID    string                     `json:"sid"`
	JTI    string                     `json:"jti"`
	Nonce  json.RawMessage            `json:"nonce"`
	Events map[string]json.RawMessage `json:"events"`
}

// The bounds of logout tokens, which anyone can send.
const (
	maxLogout     = 8 << 10     // bytes of a logout token; real ones have less than one KiB
	maxLogoutText = 512         // bytes of each of jti, sub and sid
	logoutSkew    = time.Minute // between the clocks of the provider and of this server
	logoutAge     = time.Hour   // how long after iat a token is accepted, and its jti remembered
)

const logoutEvent = "http://schemas.openid.net/event/backchannel-logout"

// ErrUnchecked means that a logout token cannot be checked. Anyone can cause it while a provider is down.
var ErrUnchecked = errors.New("cannot check a logout token")

// Logout is what a logout token says: it ends the session SID, or all sessions of Sub.
type Logout struct {
	Sub, SID string // one of them may be ""
	JTI      string // the id of the token, which counts once until Expires
	Expires  time.Time
}

// ReadLogout verifies a logout token (section 2.6). An error that is not ErrUnchecked says why the token is
// refused, in words for the provider.
func (p *Provider) ReadLogout(ctx context.Context, token string) (Logout, error) {
	if token == "" || len(token) > maxLogout {
		return Logout{}, fmt.Errorf("logout_token is missing, or longer than %d bytes", maxLogout)
	}
	no := func(format string, args ...any) (Logout, error) {
		return Logout{}, fmt.Errorf("the logout token "+format, args...)
	}
	d, err := p.discover(ctx)
	if err != nil {
		return Logout{}, fmt.Errorf("%w: %w", ErrUnchecked, err)
	}
	if !d.BackchannelLogout {
		return Logout{}, errors.New("the metadata of the provider has no backchannel_logout_supported: true")
	}
	if !logoutType(token) {
		return no("has a typ other than logout+jwt")
	}
	// VerifyLogout of go-oidc would check jti, sub, sid and nonce, but neither nbf, typ and iat, nor that
	// the event is an object. Verify checks nbf, and the other claims are checked here, with their bounds.
	verified, err := p.verify(ctx, d, d.logoutKeys, token)
	if _, unchecked := errors.AsType[*noKeysError](err); unchecked {
		return Logout{}, fmt.Errorf("%w: %w", ErrUnchecked, err)
	}
	if err != nil {
		return no("is not valid: %s", prose.ASCII(strings.TrimPrefix(err.Error(), "oidc: "), 120))
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
	return Logout{Sub: c.Sub, SID: c.SID, JTI: c.JTI, Expires: expires}, nil
}

// logoutType reports whether the header of a token permits that it is a logout token. Providers that have
// no type for logout tokens send none, or JWT.
func logoutType(token string) bool {
	head, _, _ := strings.Cut(token, ".")
	text, err := base64.RawURLEncoding.Strict().DecodeString(head)
	var header struct {
		Type string `json:"typ"`
	}
	if err != nil || json.Unmarshal(text, &header) != nil {
		return true // go-oidc refuses it, with the reason
	}
	kind := strings.TrimPrefix(strings.ToLower(header.Type), "application/")
	return kind == "" || kind == "jwt" || kind == "logout+jwt"
}
