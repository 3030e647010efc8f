package store

import (
	"context"
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
	Network               string // source network, "" if unknown; limits count by it
	Created, Expires      time.Time

	// Set by approval.
	IDP      string // configured id of the provider, "" if there is none
	Nonce    string
	Verifier string // PKCE verifier for the provider; sealed in the store
	Approved time.Time
	Consumed time.Time

	id string // hash of the secret id
}

func (a *AuthRequest) table() string { return "auth_requests" }

func (a *AuthRequest) fields() []field {
	return []field{{"id_hash", &a.id}, {"purpose", &a.Purpose}, {"client_id", &a.ClientID},
		{"redirect_uri", &a.RedirectURI}, {"client_state", &a.State}, {"scope", &a.Scope}, {"resource", &a.Resource},
		{"code_challenge", &a.CodeChallenge}, {"request", &a.Request}, {"detail", &a.Detail},
		{"created_at", &a.Created}, {"expires_at", &a.Expires}, {"idp", &a.IDP}, {"nonce", &a.Nonce},
		{"approved_at", &a.Approved}, {"consumed_at", &a.Consumed}, {"network", &a.Network}}
}

func (a *AuthRequest) secrets() []field {
	return []field{sealedField(authPKCE, func() string { return a.id }, &a.Verifier)}
}

// AddAuthRequest stores a request under the secret id, bound to the browser that has the secret
// binding. It ignores Created. Beyond the limit of its network, the oldest requests are deleted.
func (s *Store) AddAuthRequest(ctx context.Context, id, binding string, a AuthRequest) error {
	a.id, a.Created = hash(id), s.now()
	err := s.insert(ctx, &a, field{"binding_hash", hash(binding)})
	if err == nil {
		err = s.trimRequests(ctx, a.Network, a.id, false)
	}
	if err == nil && s.added.Add(1)%int64(s.bounds.look) == 0 {
		err = s.trimAllRequests(ctx)
	}
	return err
}

// AuthRequest returns the request with an id, for the browser that it is bound to; other browsers
// get ErrNotFound. ErrExpired and ErrUsed (consumed) come with the request.
func (s *Store) AuthRequest(ctx context.Context, id, binding string) (a AuthRequest, err error) {
	err = s.find(ctx, into{&a}, `WHERE id_hash = $1 AND binding_hash = $2`, hash(id), hash(binding))
	if err == nil {
		err = a.state(s.now())
	}
	return a, err
}

func (a *AuthRequest) state(now time.Time) error {
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
}

// ApproveAuthRequest approves a request. Exactly one call succeeds; the others get ErrUsed.
// ErrNotFound also means that the request is bound to another browser.
func (s *Store) ApproveAuthRequest(
	ctx context.Context, id, binding string, approval Approval,
) (a AuthRequest, err error) {
	var state any
	if approval.State != "" {
		state = hash(approval.State)
	}
	now := seconds(s.now())
	err = s.change(ctx, &a,
		`UPDATE auth_requests SET approved_at = $3, idp = $4, idp_state_hash = $5, nonce = $6, pkce_enc = $7,
			detail = COALESCE($8, detail)
		WHERE id_hash = $1 AND binding_hash = $2 AND approved_at = 0 AND consumed_at = 0 AND expires_at > $3`,
		hash(id), hash(binding), now, approval.IDP, state, approval.Nonce,
		s.seal(authPKCE, hash(id), approval.Verifier), approval.Detail)
	switch err {
	case nil:
		err = s.trimRequests(ctx, a.Network, a.id, true)
	case ErrNotFound:
		if a, err = s.AuthRequest(ctx, id, binding); err == nil {
			err = ErrUsed
		}
	}
	return a, err
}

// ConsumeAuthRequest returns the approved request for a provider's state, once. ErrNotFound also
// means another browser or another provider, and then does not consume it.
func (s *Store) ConsumeAuthRequest(ctx context.Context, idp, state, binding string) (AuthRequest, error) {
	return s.consume(ctx, `idp_state_hash = $1 AND idp = $2 AND binding_hash = $3`, hash(state), idp, hash(binding))
}

// ConsumeApproved returns the approved request with an id, once. It is for a user who was already
// signed in, so that no provider was involved.
func (s *Store) ConsumeApproved(ctx context.Context, id, binding string) (AuthRequest, error) {
	return s.consume(ctx, `id_hash = $1 AND idp = $2 AND idp_state_hash IS NULL AND binding_hash = $3`, hash(id), "",
		hash(binding))
}

func (s *Store) consume(ctx context.Context, which, key, idp, binding string) (a AuthRequest, err error) {
	err = s.change(ctx, &a, `UPDATE auth_requests SET consumed_at = $4 WHERE `+which+
		` AND approved_at > 0 AND consumed_at = 0 AND expires_at > $4`, key, idp, binding, seconds(s.now()))
	if err == ErrNotFound {
		err = s.find(ctx, into{&a}, `WHERE `+which+` AND approved_at > 0`, key, idp, binding)
		if err == nil {
			if err = a.state(s.now()); err == nil {
				err = ErrUsed // another call consumes it now
			}
		}
	}
	return a, err
}
