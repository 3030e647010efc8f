package store

import (
	"context"
	"time"
)

// Code is an authorization code, by the signature of it.
type Code struct {
	Signature string
	Grant     string // Grant.ID
	RequestID string // whoever issues codes and tokens groups them by it
	Request   []byte // of the issuer; no secret
	Expires   time.Time
}

// AddCode stores a code that can be used once.
func (s *Store) AddCode(ctx context.Context, c Code) error {
	_, err := s.exec(ctx,
		`INSERT INTO oauth_codes (signature, grant_id, request_id, request, active, expires_at) VALUES ($1, $2, $3, $4, 1, $5)`,
		c.Signature, c.Grant, c.RequestID, c.Request, seconds(c.Expires))
	return err
}

// Code returns a code. ErrUsed, which is also for one whose grant was revoked, and ErrExpired come
// with it. In a transaction its grant and it are locked, so that one redemption waits for the
// other.
func (s *Store) Code(ctx context.Context, signature string) (c Code, err error) {
	if err := s.lockGrantOf(ctx, "oauth_codes", signature); err != nil {
		return c, err
	}
	var active int64
	err = s.get(ctx, func(row scanner) error {
		return row.Scan(&c.Signature, &c.Grant, &c.RequestID, &c.Request, &active, moment{&c.Expires})
	}, `SELECT signature, grant_id, request_id, request, active, expires_at FROM oauth_codes WHERE signature = $1`+
		s.lock(ctx), signature)
	switch {
	case err != nil:
	case active == 0:
		err = ErrUsed
	case !s.now().Before(c.Expires):
		err = ErrExpired
	}
	return c, err
}

// UseCode ends a code: of any number of calls exactly one succeeds, the others get ErrUsed.
func (s *Store) UseCode(ctx context.Context, signature string) error {
	n, err := s.exec(ctx, `UPDATE oauth_codes SET active = 0 WHERE signature = $1 AND active = 1`, signature)
	if err != nil || n > 0 {
		return err
	}
	err = s.get(ctx, func(row scanner) error { return row.Scan(&n) }, `SELECT 1 FROM oauth_codes WHERE signature = $1`,
		signature)
	if err == nil {
		err = ErrUsed
	}
	return err
}

// AddPKCE stores what a code's verifier is compared with, by the signature of the code.
func (s *Store) AddPKCE(ctx context.Context, signature string, request []byte, expires time.Time) error {
	_, err := s.exec(ctx, `INSERT INTO oauth_pkce (signature, request, expires_at) VALUES ($1, $2, $3)`, signature,
		request, seconds(expires))
	return err
}

// TakePKCE returns what AddPKCE has stored, and deletes it: of any number of calls exactly one
// succeeds, the others get ErrNotFound.
func (s *Store) TakePKCE(ctx context.Context, signature string) (request []byte, err error) {
	err = s.change(ctx, func(row scanner) error { return row.Scan(&request) },
		`DELETE FROM oauth_pkce WHERE signature = $1 RETURNING request`, signature)
	return request, err
}

// The kinds of a Token.
const (
	AccessToken  = "at"
	RefreshToken = "rt"
)

// The states of a Token: active becomes rotated, by Refresh, or revoked; rotated becomes revoked.
const (
	Active  = "active"
	Rotated = "rotated"
	Revoked = "revoked"
)

// Token is an access token or a refresh token, by the signature of it.
type Token struct {
	Signature string
	Kind      string // AccessToken or RefreshToken
	Grant     string // Grant.ID
	RequestID string // whoever issues codes and tokens groups them by it
	Request   []byte // of the issuer; no secret
	State     string // AddToken makes it Active
	Created   time.Time
	Rotated   time.Time // zero: it was not
	Successor string    // the signature of the refresh token that took its place
	Expires   time.Time
}

const tokenColumns = "oauth_tokens.signature, oauth_tokens.kind, oauth_tokens.grant_id, oauth_tokens.request_id, " +
	"oauth_tokens.request, oauth_tokens.state, " +
	"oauth_tokens.created_at, oauth_tokens.rotated_at, oauth_tokens.successor, oauth_tokens.expires_at"

func (t *Token) fields() []any {
	return []any{&t.Signature, &t.Kind, &t.Grant, &t.RequestID, &t.Request, &t.State, moment{&t.Created},
		moment{&t.Rotated}, &t.Successor, moment{&t.Expires}}
}

// over says why a token is not good any more.
func (t *Token) over(now time.Time) error {
	switch {
	case t.State == Rotated:
		return ErrUsed
	case t.State != Active:
		return ErrRevoked
	case !now.Before(t.Expires):
		return ErrExpired
	}
	return nil
}

// AddToken stores a token that is good from now on. That its grant stands is for the caller to
// know, who has it locked.
func (s *Store) AddToken(ctx context.Context, t Token) error {
	_, err := s.exec(ctx,
		`INSERT INTO oauth_tokens (signature, kind, grant_id, request_id, request, state, created_at, rotated_at, successor, replay_enc, expires_at)
		VALUES ($1, $2, $3, $4, $5, 'active', $6, 0, '', NULL, $7)`,
		t.Signature, t.Kind, t.Grant, t.RequestID, t.Request, seconds(s.now()), seconds(t.Expires))
	return err
}

// Token returns a token of a kind. ErrUsed, of a refresh token that was rotated, ErrRevoked and
// ErrExpired come with it. In a transaction its grant and it are locked.
func (s *Store) Token(ctx context.Context, kind, signature string) (t Token, err error) {
	if err := s.lockGrantOf(ctx, "oauth_tokens", signature); err != nil {
		return t, err
	}
	err = s.get(ctx, func(row scanner) error { return row.Scan(t.fields()...) },
		`SELECT `+tokenColumns+` FROM oauth_tokens WHERE signature = $1 AND kind = $2`+s.lock(ctx), signature, kind)
	if err == nil {
		err = t.over(s.now())
	}
	return t, err
}

// lockGrantOf locks the grant of a code or a token before that itself is locked: that is the order
// everywhere. Outside of a transaction it does nothing.
func (s *Store) lockGrantOf(ctx context.Context, table, signature string) error {
	if s.lock(ctx) == "" {
		return nil
	}
	var id string
	err := s.get(ctx, func(row scanner) error { return row.Scan(&id) },
		`SELECT grant_id FROM `+table+` WHERE signature = $1`, signature)
	if err != nil {
		return err
	}
	return s.get(ctx, func(row scanner) error { return row.Scan(&id) },
		`SELECT id FROM grants WHERE id = $1`+s.lock(ctx), id)
}

// Access is an access token with what it rests on.
type Access struct {
	Token Token
	Grant Grant
	User  User
}

// Access returns what an access token gives access to: it is what a request with the token needs,
// in one query. ErrRevoked and ErrExpired, which are also for its grant and a disabled user, come
// with it.
func (s *Store) Access(ctx context.Context, signature string) (a Access, err error) {
	err = s.get(ctx, func(row scanner) error {
		return row.Scan(append(append(a.Token.fields(), a.Grant.fields()...), a.User.fields()...)...)
	}, `SELECT `+tokenColumns+`, `+grantColumns+`, `+userColumns+` FROM oauth_tokens
		JOIN grants ON grants.id = oauth_tokens.grant_id JOIN users ON users.id = grants.user_id
		WHERE oauth_tokens.signature = $1 AND oauth_tokens.kind = 'at'`, signature)
	if err != nil {
		return a, err
	}
	now := s.now()
	if !a.User.Disabled.IsZero() {
		return a, ErrRevoked
	}
	if err := a.Grant.over(now); err != nil {
		return a, err
	}
	return a, a.Token.over(now)
}
