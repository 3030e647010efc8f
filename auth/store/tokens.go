package store

import (
	"context"
	"time"
)

// Code is an authorization code, identified by its signature.
type Code struct {
	Signature string
	Grant     string // Grant.ID
	RequestID string // groups the codes and tokens of one request
	Request   []byte // record of package authserver; no secret
	Expires   time.Time
	active    int64 // 0 after its use
}

func (c *Code) table() string { return "oauth_codes" }

func (c *Code) fields() []field {
	return []field{{"signature", &c.Signature}, {"grant_id", &c.Grant}, {"request_id", &c.RequestID},
		{"request", &c.Request}, {"active", &c.active}, {"expires_at", &c.Expires}}
}

func (c *Code) free() []string { return nil }

func (c *Code) ended() bool { return c.active == 0 }

// AddCode stores a new code.
func (s *Store) AddCode(ctx context.Context, c Code) error {
	c.active = 1
	return s.insert(ctx, &c)
}

// Code returns a code. ErrUsed, which also means that its grant was revoked, and ErrExpired come
// with it. In a transaction the code and its grant are locked, so that redemptions are serialised.
func (s *Store) Code(ctx context.Context, signature string) (c Code, err error) {
	if err := s.lockGrantOf(ctx, "oauth_codes", signature); err != nil {
		return c, err
	}
	err = s.find(ctx, into{&c}, `WHERE signature = $1`+s.lock(ctx), signature)
	if err == nil {
		err = sameRow("oauth_codes", c.Signature, signature)
	}
	switch {
	case err != nil:
	case c.active == 0:
		err = ErrUsed
	case !s.now().Before(c.Expires):
		err = ErrExpired
	}
	return c, err
}

// UseCode marks a code as used. Exactly one call succeeds; the others get ErrUsed.
func (s *Store) UseCode(ctx context.Context, signature string) error {
	n, err := s.exec(ctx, `UPDATE oauth_codes SET active = 0, mac = NULL WHERE signature = $1 AND active = 1`,
		signature)
	if err == nil && n == 0 {
		err = ErrUsed
	}
	return err
}

// pkce is the PKCE challenge of a code.
type pkce struct {
	signature string // Code.Signature
	request   []byte // record of package authserver
	expires   time.Time
}

func (p *pkce) table() string { return "oauth_pkce" }

func (p *pkce) fields() []field {
	return []field{{"signature", &p.signature}, {"request", &p.request}, {"expires_at", &p.expires}}
}

func (p *pkce) free() []string { return nil }

func (p *pkce) ended() bool { return false }

// AddPKCE stores the PKCE challenge of a code, by the code's signature.
func (s *Store) AddPKCE(ctx context.Context, signature string, request []byte, expires time.Time) error {
	return s.insert(ctx, &pkce{signature, request, expires})
}

// TakePKCE returns and deletes the challenge of a code. Exactly one call succeeds; the others get
// ErrNotFound.
func (s *Store) TakePKCE(ctx context.Context, signature string) (request []byte, err error) {
	var p pkce
	err = s.change(ctx, &p, `DELETE FROM oauth_pkce WHERE signature = $1`, signature)
	if err == nil {
		err = sameRow("oauth_pkce", p.signature, signature)
	}
	if err != nil {
		return nil, err
	}
	return p.request, nil
}

// The kinds of a Token.
const (
	AccessToken  = "at"
	RefreshToken = "rt"
)

// The states of a Token. Refresh changes active to rotated; revocation changes both to revoked.
const (
	Active  = "active"
	Rotated = "rotated"
	Revoked = "revoked"
)

// Token is an access token or a refresh token, identified by its signature.
type Token struct {
	Signature string
	Kind      string // AccessToken or RefreshToken
	Grant     string // Grant.ID
	RequestID string // groups the codes and tokens of one request
	Request   []byte // record of package authserver; no secret
	State     string // AddToken sets Active
	Created   time.Time
	Rotated   time.Time // zero if it was not
	Successor string    // signature of the next refresh token
	Expires   time.Time
}

func (t *Token) table() string { return "oauth_tokens" }

func (t *Token) fields() []field {
	return []field{{"signature", &t.Signature}, {"kind", &t.Kind}, {"grant_id", &t.Grant}, {"request_id", &t.RequestID},
		{"request", &t.Request}, {"state", &t.State}, {"created_at", &t.Created}, {"rotated_at", &t.Rotated},
		{"successor", &t.Successor}, {"expires_at", &t.Expires}}
}

func (t *Token) free() []string { return nil }

func (t *Token) ended() bool { return t.State != Active }

// over returns why a token is no longer valid, or nil.
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

// AddToken stores a new token. The caller has locked its grant and knows that it stands.
func (s *Store) AddToken(ctx context.Context, t Token) error {
	t.State, t.Created, t.Rotated, t.Successor = Active, s.now(), time.Time{}, ""
	return s.insert(ctx, &t)
}

// Token returns a token of a kind. ErrUsed (for a rotated refresh token), ErrRevoked and ErrExpired
// come with it. In a transaction the token and its grant are locked.
func (s *Store) Token(ctx context.Context, kind, signature string) (t Token, err error) {
	if err := s.lockGrantOf(ctx, "oauth_tokens", signature); err != nil {
		return t, err
	}
	err = s.find(ctx, into{&t}, `WHERE signature = $1 AND kind = $2`+s.lock(ctx), signature, kind)
	if err == nil {
		err = sameRow("oauth_tokens", t.Signature, signature, t.Kind, kind)
	}
	if err == nil {
		err = t.over(s.now())
	}
	return t, err
}

// lockGrantOf locks the grant of a code or token, which must be locked first. Outside of a
// transaction it does nothing.
func (s *Store) lockGrantOf(ctx context.Context, table, signature string) error {
	if s.lock(ctx) == "" {
		return nil
	}
	var id string
	err := s.get(ctx, []any{&id}, `SELECT grant_id FROM `+table+` WHERE signature = $1`, signature)
	if err != nil {
		return err
	}
	return s.get(ctx, []any{&id}, `SELECT id FROM grants WHERE id = $1`+s.lock(ctx), id)
}

// Access is an access token with its grant and user.
type Access struct {
	Token Token
	Grant Grant
	User  User
}

// Access returns an access token with its grant and user in one query. ErrRevoked and ErrExpired,
// which may be about the grant or a disabled user, come with it.
func (s *Store) Access(ctx context.Context, signature string) (a Access, err error) {
	err = s.find(ctx, into{&a.Token, &a.Grant, &a.User}, `JOIN grants ON grants.id = oauth_tokens.grant_id
		JOIN users ON users.id = grants.user_id
		WHERE oauth_tokens.signature = $1 AND oauth_tokens.kind = 'at'`, signature)
	if err == nil {
		err = sameRow("oauth_tokens", a.Token.Signature, signature, a.Token.Kind, AccessToken, a.Token.Grant,
			a.Grant.ID, a.Grant.User, a.User.ID)
	}
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
