package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"junction/auth/seal"
)

// ErrReused means that a refresh token was shown again after its successor was used, or too late:
// two hold it, one of whom should not. Everything that its user allowed that client by that grant
// has ended.
var ErrReused = errors.New("the refresh token was used before")

// Presented is a refresh token as a client shows it.
type Presented struct {
	Token     string // the whole of it: what it was answered with is sealed with it
	Signature string
	ClientID  string // who shows it, authenticated as far as that client does so
	// Interval is for how long after its first use it gets the same answer once more.
	Interval time.Duration
	// Address and RequestID are of the request that shows it, for the audit.
	Address, RequestID string
}

// Successor is what a refresh token was exchanged for.
type Successor struct {
	Signature string // of the new refresh token, which is stored by then
	Response  []byte // what the client is told, for those who ask again
}

// Refresh exchanges a refresh token, once, and returns what the client is told. The first who comes
// has rotate make the successor; whoever shows the same token again within the interval, and before
// the successor was used, gets the very same answer: an honest client that runs twice, or did not
// hear us, stays signed in. Any later use revokes the grant and is ErrReused.
//
// All is one transaction, which rotate's context carries, and the answer is returned when it is on
// the disk: if we die before, the client's retry gets it, or does it anew. rotate is given the
// token and its grant, both locked, and must not wait for anything but the store. An error of it
// undoes everything, unless it is of Keep, and is returned.
//
// ErrNotFound is also for a client that is not the token's: that leaves the token as it is.
// ErrExpired and ErrRevoked are also for the grant and its user. With these and ErrReused the
// client has to sign in again; with any other error it must not be told so.
func (s *Store) Refresh(
	ctx context.Context, p Presented, rotate func(ctx context.Context, t Token, g Grant) (Successor, error),
) (response []byte, err error) {
	err = s.WithTx(ctx, func(ctx context.Context) error {
		t, stale := s.Token(ctx, RefreshToken, p.Signature)
		if stale != nil && t.Signature == "" {
			return stale
		}
		g, over := s.Grant(ctx, t.Grant)
		if over != nil && g.ID == "" {
			return fmt.Errorf("the grant of a token: %w", over)
		}
		if g.ClientID != p.ClientID {
			return ErrNotFound
		}
		if over != nil {
			return over
		}
		if stale == nil {
			if stale, err = s.disabled(ctx, g.User); err != nil {
				return err
			}
		}
		switch {
		case stale == nil:
			next, err := rotate(ctx, t, g)
			if err != nil {
				return err
			}
			response = next.Response
			return s.rotated(ctx, p, next)
		case errors.Is(stale, ErrUsed):
			response, err = s.replay(ctx, p, t)
			return err
		}
		return stale
	})
	if err != nil {
		return nil, err
	}
	return response, nil
}

// disabled returns ErrRevoked as stale if a user is shut out.
func (s *Store) disabled(ctx context.Context, user string) (stale, err error) {
	var at int64
	err = s.get(ctx, func(row scanner) error { return row.Scan(&at) }, `SELECT disabled_at FROM users WHERE id = $1`,
		user)
	if err == nil && at != 0 {
		stale = ErrRevoked
	}
	return stale, err
}

// rotated notes that a token has a successor, and keeps the answer for those who show it again.
func (s *Store) rotated(ctx context.Context, p Presented, next Successor) error {
	var replay any
	if p.Interval > 0 {
		vault, err := replayVault(p.Token)
		if err != nil {
			return err
		}
		replay = vault.Seal(next.Response, replayPlace(p.Signature))
	}
	n, err := s.exec(ctx,
		`UPDATE oauth_tokens SET state = 'rotated', rotated_at = $2, successor = $3, replay_enc = $4 WHERE signature = $1 AND state = 'active'`,
		p.Signature, seconds(s.now()), next.Signature, replay)
	if err == nil && n == 0 {
		err = errors.New("the token was revoked while it was exchanged")
	}
	return err
}

// replay returns the answer that a rotated token got, if it may have it again, and revokes
// everything if not.
func (s *Store) replay(ctx context.Context, p Presented, t Token) ([]byte, error) {
	var sealed []byte
	err := s.get(ctx, func(row scanner) error { return row.Scan(&sealed) },
		`SELECT old.replay_enc FROM oauth_tokens AS old JOIN oauth_tokens AS next ON next.signature = old.successor
		WHERE old.signature = $1 AND old.replay_enc IS NOT NULL AND next.state = 'active'`, t.Signature)
	fresh := s.now().Before(t.Rotated.Add(p.Interval))
	switch {
	case err == nil && fresh:
		vault, err := replayVault(p.Token)
		if err != nil {
			return nil, err
		}
		return vault.Open(sealed, replayPlace(t.Signature))
	case err != nil && !errors.Is(err, ErrNotFound):
		return nil, err
	}
	if _, err := s.RevokeGrant(ctx, t.Grant, "refresh_reuse"); err != nil {
		return nil, err
	}
	e := Event{Event: "refresh_reuse", ClientID: p.ClientID, Address: p.Address, RequestID: p.RequestID,
		Detail: fmt.Appendf(nil, `{"grant":%q}`, t.Grant)}
	if err := s.Audit(ctx, e); err != nil {
		return nil, err
	}
	return nil, Keep(ErrReused)
}

// replayVault seals with a token that only its client has: who has the database and the master keys
// still cannot tell what the client was told.
func replayVault(token string) (*seal.Vault, error) {
	ring, err := seal.RingOf("token", sha256.Sum256([]byte(token)))
	if err != nil {
		return nil, err
	}
	return ring.Vault("replay")
}

func replayPlace(signature string) string { return "oauth_tokens|" + signature + "|replay_enc" }
