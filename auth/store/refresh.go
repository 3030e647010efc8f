package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"time"

	"junction/auth/seal"
)

// ErrReused means that a refresh token was presented after its successor was used, or too late, so
// that two parties have it. Its grant has been revoked.
var ErrReused = errors.New("the refresh token was already used")

// Presented is a refresh token as presented by a client.
type Presented struct {
	Token     string // the whole token; it seals the stored answer
	Signature string
	// Grant is the Grant.ID in the token. It names a grant only if the token was made for one.
	Grant    string
	ClientID string // the client that presents it, authenticated
	// Interval is how long after its first use the token gets the same answer again. It belongs to the token,
	// so that all processes have the same one.
	Interval time.Duration
	// Address, RequestID and TraceID are of the request, for the audit.
	Address, RequestID, TraceID string
}

// Successor is the result of exchanging a refresh token.
type Successor struct {
	Signature string // of the new refresh token, already stored
	Response  []byte // the answer for the client, also for replays
}

// Refresh exchanges a refresh token once, and returns the answer for the client. The first call
// makes rotate create the successor. Later calls with the same token, within the interval and
// before the successor is used, get the same answer: a client that runs twice, or lost the answer,
// stays signed in. Any later use revokes the grant and returns ErrReused.
//
// It is one transaction, carried by rotate's context, and the answer is returned after the commit.
// If the process dies before, the client's retry works. rotate gets the token and its grant, both
// locked, and must not wait for anything but the store. Its error is returned, and rolls everything
// back unless it comes from Keep.
//
// ErrNotFound also means that the token belongs to another client; the token then stays valid.
// ErrExpired and ErrRevoked may be about the grant or its user. After these errors and ErrReused
// the client must sign in again. After any other error it must keep its token.
func (s *Store) Refresh(
	ctx context.Context, p Presented, rotate func(ctx context.Context, t Token, g Grant) (Successor, error),
) (response []byte, err error) {
	err = s.WithTx(ctx, func(ctx context.Context) error {
		t, stale := s.Token(ctx, RefreshToken, p.Signature)
		if errors.Is(stale, ErrNotFound) {
			return s.replaced(ctx, p)
		}
		if stale != nil && t.Signature == "" {
			return stale
		}
		g, over := s.Grant(ctx, t.Grant)
		if over != nil && g.ID == "" {
			return fmt.Errorf("read the grant of a token: %w", over)
		}
		if g.ClientID != p.ClientID {
			return ErrNotFound
		}
		if over != nil {
			return over
		}
		if stale == nil {
			if u, err := s.unlocked(ctx, g.User); err != nil {
				return err
			} else if !u.Disabled.IsZero() {
				stale = ErrRevoked
			}
		}
		switch {
		case stale == nil:
			next, err := rotate(ctx, t, g)
			if err != nil {
				return err
			}
			response = next.Response
			return s.rotated(ctx, p, t, next)
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

// rotated stores the successor of a token, and the sealed answer for replays.
func (s *Store) rotated(ctx context.Context, p Presented, t Token, next Successor) error {
	var replay any
	t.Rotated, t.Successor = s.now(), next.Signature
	if p.Interval > 0 {
		replay = replayVault(p.Token).Seal(next.Response, replayPlace(t))
	}
	n, err := s.exec(ctx,
		`UPDATE oauth_tokens SET state = 'rotated', rotated_at = $2, successor = $3, replay_enc = $4, mac = NULL
			WHERE signature = $1 AND state = 'active'`,
		p.Signature, seconds(t.Rotated), t.Successor, replay)
	if err == nil && n == 0 {
		err = errors.New("the token was revoked during the exchange")
	}
	if err != nil {
		return err
	}
	return s.prune(ctx, t)
}

const (
	keptAccess    = 8           // access tokens of one grant that are older than keptAccessFor
	keptAccessFor = time.Minute // for clients that refresh at the same time
)

// prune deletes the tokens of a grant that a refresh makes useless, so that the number of rows does
// not grow with the number of refreshes. The presented token stays, because its answer may be
// repeated. The tokens before it have their grant in them (replaced).
func (s *Store) prune(ctx context.Context, presented Token) error {
	now := s.now()
	_, err := s.exec(ctx, `DELETE FROM oauth_tokens WHERE grant_id = $1 AND signature <> $2 AND (
			(kind = 'rt' AND state = 'rotated') OR (kind = 'at' AND (expires_at <= $3 OR created_at < $4 AND
			signature NOT IN (SELECT signature FROM oauth_tokens WHERE grant_id = $1 AND kind = 'at'
				ORDER BY created_at DESC LIMIT `+strconv.Itoa(keptAccess)+`))))`,
		presented.Grant, presented.Signature, seconds(now), seconds(now.Add(-keptAccessFor)))
	return err
}

// replaced decides about a token that this server has made, and that is not stored any more. If its
// grant has an active refresh token, that one is a successor of the presented one, so two parties
// have a token of the grant.
func (s *Store) replaced(ctx context.Context, p Presented) error {
	var id string
	if err := s.get(ctx, []any{&id}, `SELECT id FROM grants WHERE id = $1`+s.lock(ctx), p.Grant); err != nil {
		return err
	}
	g, err := s.Grant(ctx, p.Grant)
	if err != nil {
		return err
	}
	if g.ClientID != p.ClientID {
		return ErrNotFound
	}
	if err := s.get(ctx, []any{&id}, `SELECT signature FROM oauth_tokens WHERE grant_id = $1 AND kind = 'rt' AND
			state = 'active' AND expires_at > $2`, g.ID, seconds(s.now())); err != nil {
		return err
	}
	return s.reused(ctx, p, g.ID)
}

// replay returns the stored answer of a rotated token if it may be repeated, and else revokes the
// grant.
func (s *Store) replay(ctx context.Context, p Presented, t Token) ([]byte, error) {
	var sealed []byte
	next, err := s.Token(ctx, RefreshToken, t.Successor)
	if err == nil {
		err = s.get(ctx, []any{&sealed}, `SELECT replay_enc FROM oauth_tokens WHERE signature = $1`, t.Signature)
	}
	fresh := s.now().Before(t.Rotated.Add(p.Interval)) && len(sealed) > 0 && next.Grant == t.Grant
	switch {
	case err == nil && fresh:
		answer, err := replayVault(p.Token).Open(sealed, replayPlace(t))
		if err != nil {
			return nil, fmt.Errorf("unseal replay_enc of table oauth_tokens: %w: %w", ErrChanged, err)
		}
		return answer, nil
	case err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrUsed) && !errors.Is(err, ErrRevoked) &&
		!errors.Is(err, ErrExpired):
		return nil, err
	}
	return nil, s.reused(ctx, p, t.Grant)
}

// reused revokes a grant of which two parties have a token. It returns ErrReused.
func (s *Store) reused(ctx context.Context, p Presented, grant string) error {
	if _, err := s.RevokeGrant(ctx, grant, "refresh_reuse"); err != nil {
		return err
	}
	e := Event{Event: "refresh_reuse", ClientID: p.ClientID, Address: p.Address, RequestID: p.RequestID,
		TraceID: p.TraceID, Detail: DetailJSON(map[string]string{"grant": grant})}
	if err := s.Audit(ctx, e); err != nil {
		return err
	}
	return Keep(ErrReused)
}

// replayVault returns a vault whose key is the token, which only its client has. The database and
// the master keys are not enough to read the answer.
func replayVault(token string) *seal.Vault {
	return seal.RingOf("token", sha256.Sum256([]byte(token))).Vault("replay")
}

// replayPlace returns the additional data of the answer of a rotated token. They are what decides
// whether the answer is given.
func replayPlace(t Token) string {
	text := appendPart(nil, []byte("oauth_tokens"))
	for _, part := range []string{t.Signature, t.Grant, t.Successor} {
		text = appendPart(text, []byte(part))
	}
	return string(strconv.AppendInt(text, seconds(t.Rotated), 10))
}
