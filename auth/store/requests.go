package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"
)

// AuthRequest is a sign-in in progress in a browser: created, approved, sent to a provider and
// consumed, each once.
type AuthRequest struct {
	Purpose               string // "authorize", "connect", "login"
	ClientID, RedirectURI string
	State                 []byte // the client's, byte for byte
	Scope, Resource       string
	CodeChallenge         string
	Request               []byte // data for the next step
	Detail                []byte // JSON of package authserver
	Network               string // source network or known browser, "" if unknown; limits count by it
	Keep                  int    // requests of the network beyond which the oldest go; not stored. 0: the default
	Created, Expires      time.Time

	// Set by approval.
	IDP      string // configured id of the provider, "" if there is none
	Nonce    string
	Verifier string // PKCE verifier for the provider; sealed in the store
	Approved time.Time
	Consumed time.Time

	id, binding, state string // hashes of the secrets that find it; state is "" without a provider
}

func (a *AuthRequest) table() string { return "auth_requests" }

func (a *AuthRequest) fields() []field {
	return []field{{"id_hash", &a.id}, {"binding_hash", &a.binding}, {"idp_state_hash", optional{&a.state}},
		{"purpose", &a.Purpose}, {"client_id", &a.ClientID},
		{"redirect_uri", &a.RedirectURI}, {"client_state", &a.State}, {"scope", &a.Scope}, {"resource", &a.Resource},
		{"code_challenge", &a.CodeChallenge}, {"request", &a.Request}, {"detail", &a.Detail},
		{"created_at", &a.Created}, {"expires_at", &a.Expires}, {"idp", &a.IDP}, {"nonce", &a.Nonce},
		{"approved_at", &a.Approved}, {"consumed_at", &a.Consumed}, {"network", &a.Network}}
}

func (a *AuthRequest) secrets() []field {
	return []field{sealedField("pkce_enc", a, &a.Verifier)}
}

func (a *AuthRequest) free() []string { return []string{"consumed_at"} }

func (a *AuthRequest) ended() bool { return !a.Consumed.IsZero() }

// optional is a text that is stored as NULL if it is "".
type optional struct{ text *string }

// Scan implements sql.Scanner.
func (o optional) Scan(value any) error {
	var text sql.NullString
	err := text.Scan(value)
	*o.text = text.String
	return err
}

// Value implements driver.Valuer.
func (o optional) Value() (driver.Value, error) {
	if *o.text == "" {
		return nil, nil
	}
	return *o.text, nil
}

// AddAuthRequest stores a request under the secret id, bound to the browser that has the secret
// binding. It ignores Created. Beyond the limit of its network, the oldest requests are deleted.
func (s *Store) AddAuthRequest(ctx context.Context, id, binding string, a AuthRequest) error {
	a.id, a.binding, a.state, a.Created = hash(id), hash(binding), "", s.now()
	err := s.insert(ctx, &a)
	if err == nil {
		err = s.trimRequests(ctx, a, false)
	}
	if err == nil && s.added.Add(1)%int64(s.bounds.look) == 0 {
		err = s.trimAllRequests(ctx)
	}
	return err
}

// AuthRequest returns the request with an id, for the browser that it is bound to; other browsers
// get ErrNotFound. ErrExpired and ErrUsed (consumed) come with the request. In a transaction the row
// is locked.
func (s *Store) AuthRequest(ctx context.Context, id, binding string) (a AuthRequest, err error) {
	err = s.find(ctx, into{&a}, `WHERE id_hash = $1 AND binding_hash = $2`+s.lock(ctx), hash(id), hash(binding))
	if err == nil {
		err = sameRow("auth_requests", a.id, hash(id), a.binding, hash(binding))
	}
	if err == nil {
		err = a.over(s.now())
	}
	return a, err
}

// over returns why a request cannot go on, or nil.
func (a *AuthRequest) over(now time.Time) error {
	switch {
	case !a.Consumed.IsZero():
		return ErrUsed
	case !now.Before(a.Expires):
		return ErrExpired
	}
	return nil
}

// Approval is the data that approval adds: the provider, and the secrets sent to it.
type Approval struct {
	IDP, State, Nonce, Verifier string // State is "" without a provider
	Detail                      []byte // replaces the request's unless nil
	Keep                        int    // as in AuthRequest
}

// ApproveAuthRequest approves a request. Exactly one call succeeds; the others get ErrUsed.
// ErrNotFound also means that the request is bound to another browser.
func (s *Store) ApproveAuthRequest(
	ctx context.Context, id, binding string, approval Approval,
) (a AuthRequest, err error) {
	err = s.WithTx(ctx, func(ctx context.Context) error {
		if a, err = s.AuthRequest(ctx, id, binding); err != nil {
			return err
		}
		if !a.Approved.IsZero() {
			return ErrUsed
		}
		if a.Approved, a.IDP, a.Nonce, a.Verifier = s.now(), approval.IDP, approval.Nonce,
			approval.Verifier; approval.State != "" {
			a.state = hash(approval.State)
		}
		if approval.Detail != nil {
			a.Detail = approval.Detail
		}
		return s.put(ctx, &a, "id_hash", a.id)
	})
	if err == nil {
		a.Keep = approval.Keep
		err = s.trimRequests(ctx, a, true)
	}
	return a, err
}

// ConsumeAuthRequest returns the approved request for a provider's state, once. ErrNotFound also
// means another browser or another provider, and then does not consume it.
func (s *Store) ConsumeAuthRequest(ctx context.Context, idp, state, binding string) (AuthRequest, error) {
	return s.consume(ctx, `WHERE idp_state_hash = $1 AND idp = $2 AND binding_hash = $3`,
		[]any{hash(state), idp, hash(binding)}, func(a AuthRequest) error {
			return sameRow(a.table(), a.state, hash(state), a.IDP, idp, a.binding, hash(binding))
		})
}

// ConsumeApproved returns the approved request with an id, once. It is for a user who was already
// signed in, so that no provider was involved.
func (s *Store) ConsumeApproved(ctx context.Context, id, binding string) (AuthRequest, error) {
	return s.consume(ctx, `WHERE id_hash = $1 AND idp = '' AND idp_state_hash IS NULL AND binding_hash = $2`,
		[]any{hash(id), hash(binding)}, func(a AuthRequest) error {
			return sameRow(a.table(), a.id, hash(id), a.IDP, "", a.state, "", a.binding, hash(binding))
		})
}

// consume returns the approved request that a query finds, and marks it as consumed. check returns
// nil if it is the one that was asked for.
func (s *Store) consume(ctx context.Context, which string, args []any, check func(AuthRequest) error) (
	a AuthRequest, err error) {
	err = s.WithTx(ctx, func(ctx context.Context) error {
		err := s.find(ctx, into{&a}, which+` AND approved_at > 0`+s.lock(ctx), args...)
		if err == nil {
			err = check(a)
		}
		if err == nil {
			err = a.over(s.now())
		}
		if err != nil {
			return err
		}
		a.Consumed = s.now()
		_, err = s.exec(ctx,
			`UPDATE auth_requests SET consumed_at = $2, pkce_enc = NULL, mac = NULL WHERE id_hash = $1`,
			a.id, seconds(a.Consumed))
		return err
	})
	return a, err
}
