package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Grant is a user's consent for a client. All codes and tokens of it end with the grant.
type Grant struct {
	ID                               string // set by AddGrant
	User, IDPSession                 string // their ids
	ClientID, ClientKind, ClientName string
	RedirectHost                     string
	Resource, Scope                  string
	Detail                           []byte // JSON
	Created, Used, Expires           time.Time
	Revoked                          time.Time // zero while it stands
	Reason                           string    // why it was revoked
}

func (g *Grant) table() string { return "grants" }

func (g *Grant) fields() []field {
	return []field{{"id", &g.ID}, {"user_id", &g.User}, {"idp_session_id", &g.IDPSession}, {"client_id", &g.ClientID},
		{"client_kind", &g.ClientKind}, {"client_name", &g.ClientName}, {"redirect_host", &g.RedirectHost},
		{"resource", &g.Resource}, {"scope", &g.Scope}, {"detail", &g.Detail}, {"created_at", &g.Created},
		{"last_used_at", &g.Used}, {"expires_at", &g.Expires}, {"revoked_at", &g.Revoked}, {"revoke_reason", &g.Reason}}
}

func (g *Grant) free() []string { return []string{"last_used_at"} }

func (g *Grant) ended() bool { return !g.Revoked.IsZero() }

// over returns why a grant no longer stands, or nil.
func (g *Grant) over(now time.Time) error {
	switch {
	case !g.Revoked.IsZero():
		return ErrRevoked
	case !now.Before(g.Expires):
		return ErrExpired
	}
	return nil
}

// AddGrant stores a grant and returns it with its ID. It ignores Created, Used, Revoked and Reason.
func (s *Store) AddGrant(ctx context.Context, g Grant) (Grant, error) {
	if g.ID == "" {
		g.ID = NewID()
	}
	g.Created, g.Revoked, g.Reason = s.now(), time.Time{}, ""
	g.Used = g.Created
	return g, s.insert(ctx, &g)
}

// Grant returns the grant with an id; ErrRevoked and ErrExpired come with it. In a transaction the
// row is locked. Lock order: a grant before its codes and tokens.
func (s *Store) Grant(ctx context.Context, id string) (g Grant, err error) {
	if err = s.find(ctx, into{&g}, `WHERE id = $1`+s.lock(ctx), id); err == nil {
		err = sameRow("grants", g.ID, id)
	}
	if err == nil {
		err = g.over(s.now())
	}
	return g, err
}

// GrantFilter selects the grants that match every field that is not zero. The zero value selects
// all.
type GrantFilter struct {
	User, ClientID, IDPSession string
	Standing                   bool // neither revoked nor expired
}

const grantFilter = `WHERE ($1 = '' OR user_id = $1) AND ($2 = '' OR client_id = $2)
	AND ($3 = '' OR idp_session_id = $3)
	AND (CAST($4 AS BIGINT) = 0 OR (revoked_at = 0 AND expires_at > CAST($4 AS BIGINT)))`

func (f GrantFilter) args(now time.Time) []any {
	var after int64
	if f.Standing {
		after = seconds(now)
	}
	return []any{f.User, f.ClientID, f.IDPSession, after}
}

// Grants returns the grants that match, the one used last first.
func (s *Store) Grants(ctx context.Context, f GrantFilter) ([]Grant, error) {
	return list[Grant](ctx, s, grantFilter+` ORDER BY last_used_at DESC, id`, f.args(s.now())...)
}

// ClientAllowed reports whether a user has ever allowed a client, as far as is still known: ended
// grants are kept for a while. Without one, nothing that the client can show is good.
//
// It usually reads one row: a row that another program has changed or added does not count.
func (s *Store) ClientAllowed(ctx context.Context, client string) (allowed bool, err error) {
	columns, _ := into{&Grant{}}.columns(true)
	err = s.all(ctx, func(scan func(places ...any) error) error {
		var g Grant
		_, places := into{&g}.columns(true)
		c := places[len(places)-1].(*code)
		err := scan(append(places[:len(places)-1], &c.stored)...)
		if errors.Is(err, ErrChanged) {
			return nil
		}
		if err == nil && g.ClientID == client && s.verify(c) == nil {
			allowed = true
			return errFound
		}
		return err
	}, fmt.Sprintf(`SELECT %s FROM grants WHERE client_id = $1 ORDER BY id LIMIT %d`, columns, maxLook), client)
	if allowed {
		err = nil
	}
	return allowed, err
}

// maxLook is how many grants ClientAllowed reads.
const maxLook = 100

// errFound ends the search of ClientAllowed.
var errFound = errors.New("found")

// TouchGrant notes that a grant is used, at most once a minute.
func (s *Store) TouchGrant(ctx context.Context, id string) error {
	now := seconds(s.now())
	_, err := s.exec(ctx, `UPDATE grants SET last_used_at = $2 WHERE id = $1 AND last_used_at <= $2 - 60`, id, now)
	return err
}

// RevokeGrant ends a grant with its codes and tokens. It reports whether the grant stood until
// then. A missing grant is not an error.
func (s *Store) RevokeGrant(ctx context.Context, id, why string) (stood bool, err error) {
	ended, err := s.revoke(ctx, `WHERE id = $1`, []any{id}, why)
	return len(ended) > 0, err
}

// RevokeGrants ends all grants that match, and returns their ids.
func (s *Store) RevokeGrants(ctx context.Context, f GrantFilter, why string) (ids []string, err error) {
	return s.revoke(ctx, grantFilter, f.args(s.now()), why)
}

// MaxGrants is how many standing grants of a user RevokeUnused leaves: each sign-in of an app adds one.
const MaxGrants = 100

// RevokeUnused ends the standing grants of a user beyond MaxGrants, the ones unused for longest, and
// returns their ids. It keeps the grant newest.
func (s *Store) RevokeUnused(ctx context.Context, user, newest, why string) (ids []string, err error) {
	return s.revoke(ctx, `WHERE id IN (SELECT id FROM (
			SELECT id, row_number() OVER (ORDER BY last_used_at DESC, id) AS place FROM grants
			WHERE user_id = $1 AND id <> $2 AND revoked_at = 0 AND expires_at > $3
		) AS ranked WHERE place >= $4)`, []any{user, newest, seconds(s.now()), MaxGrants}, why)
}

// revoke ends the grants of a condition with a constant number of statements: a transaction of
// Postgres has little time, and SQLite has one writer.
func (s *Store) revoke(ctx context.Context, where string, args []any, why string) (ids []string, err error) {
	err = s.WithTx(ctx, func(ctx context.Context) error {
		now := s.now()
		var codes map[string]*string
		if ids, codes, err = s.revocations(ctx, where, args, now, why); err != nil || len(ids) == 0 {
			return err
		}
		list, err := json.Marshal(codes)
		if err != nil {
			return err
		}
		each, bytes := `json_each($1)`, `unhex(value)`
		if s.postgres {
			each, bytes = `json_each_text(CAST(CAST($1 AS TEXT) AS JSON))`, `decode(value, 'hex')`
		}
		if _, err := s.exec(ctx, `UPDATE grants SET revoked_at = $2, revoke_reason = $3, mac = `+bytes+` FROM `+each+
			` AS ended WHERE grants.id = ended.key`, string(list), seconds(now), why); err != nil {
			return err
		}
		for _, end := range []string{`UPDATE oauth_tokens SET state = 'revoked', replay_enc = NULL, mac = NULL`,
			`UPDATE oauth_codes SET active = 0, mac = NULL`} {
			_, err := s.exec(ctx, end+` WHERE grant_id IN (SELECT key FROM `+each+` AS ended)`, string(list))
			if err != nil {
				return err
			}
		}
		return nil
	})
	return ids, err
}

// revocations locks the standing grants of a condition. It returns their ids, and the code of each
// revoked row in hex: nil for a grant that another program has changed.
func (s *Store) revocations(ctx context.Context, where string, args []any, at time.Time, why string) (
	ids []string, codes map[string]*string, err error) {
	codes = map[string]*string{}
	columns, _ := into{&Grant{}}.columns(true)
	// In a fixed order, to avoid deadlocks.
	err = s.all(ctx, func(scan func(places ...any) error) error {
		var g Grant
		_, places := into{&g}.columns(true)
		err := scan(places...)
		if err != nil && !errors.Is(err, ErrChanged) {
			return err
		}
		ids, codes[g.ID] = append(ids, g.ID), nil
		if err == nil {
			g.Revoked, g.Reason = at, why
			code := hex.EncodeToString(s.sign(&g))
			codes[g.ID] = &code
		}
		return nil
	}, `SELECT `+columns+` FROM grants `+where+` AND revoked_at = 0 ORDER BY id`+s.lock(ctx), args...)
	return ids, codes, err
}

// RevokedSince returns the ids of the grants that were revoked since a time. Replicas poll it with
// a margin for clock differences.
func (s *Store) RevokedSince(ctx context.Context, at time.Time) (ids []string, err error) {
	return s.texts(ctx, `SELECT id FROM grants WHERE revoked_at >= $1 AND revoked_at > 0`, seconds(at))
}
