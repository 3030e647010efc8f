package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"junction/auth/seal"
)

// This file and bound.go keep a program that can write to the database, but has no master key, from
// using what is stored in another place than Junction stored it.
//
// # Sealed columns
//
// A sealed value is encrypted with the master keys. Its additional data are the name of the column
// and the binding of its row: the name of the table and all bound columns below. The value opens in
// this column of this row only, and only while no bound column has changed.
//
//	column                           bound to
//	canary.secret_enc                its table, row and column
//	idp_sessions.refresh_token_enc   all bound columns of idp_sessions: user, provider, claims, times
//	auth_requests.pkce_enc           all bound columns of auth_requests: browser, client, provider, state
//	upstream_clients.secret_enc      all bound columns of upstream_clients: upstream, issuer, client_id
//	upstream_tokens.access_enc       all bound columns of upstream_tokens: upstream, user, principal,
//	upstream_tokens.refresh_enc      issuer, token_endpoint, resource, client_id, scope, expiry
//	oauth_tokens.replay_enc          the token itself, which is its key; token, grant, successor, time
//
// The files of cmd/junction/base/stored are sealed for their entry and user. The tables of
// cmd/junction/base/replicas have no sealed column, and the key between replicas is in a file.
//
// # Bound rows
//
// The column mac of a row has a code (HMAC-SHA-256, with a key that is derived from the master key)
// of the binding of the row, and of which sealed columns have a value. A row without the right code
// is ErrChanged.
//
//	table             bound columns                           not bound
//	users             all others                              last_seen_at
//	idp_sessions      all
//	web_sessions      all
//	auth_requests     all others, until it is consumed        consumed_at
//	grants            all others                              last_used_at
//	oauth_codes       all, until the code is used
//	oauth_pkce        all
//	oauth_tokens      all others, while the token is active   replay_enc
//	cimd_cache        all others                              etag
//	upstream_clients  all others; id follows from them        created_at, secret_expires_at
//	upstream_tokens   all others; id follows from them        version, claimed_until
//
// A row that permits nothing any more has no code: a session that has ended, a request that was
// consumed, and a code or token that was used or revoked. So it cannot be made valid again without
// the earlier code. The rows of audit, client_blocks, assertion_jtis, leases, schema_migrations and
// of the tables of cmd/junction/base/replicas have no codes.
//
// A program that kept an earlier copy of a row can put this copy back, and any program that can
// write can delete rows. integration/safety/README.md says what follows from this.

// secret is the place of the value of a sealed column, in memory.
type secret struct {
	column string
	row    bound
	text   *string
	sealed []byte // as it is stored; set by scan
}

func sealedField(column string, row bound, text *string) field {
	return field{column, &secret{column: column, row: row, text: text}}
}

// place returns the additional data of a sealed value.
func (p *secret) place() string {
	return string(appendPart(binding(p.row), []byte(p.column)))
}

// seal returns the stored form of a secret: NULL for "".
func (s *Store) seal(p *secret) any {
	if *p.text == "" {
		return nil
	}
	return s.vault.Seal([]byte(*p.text), p.place())
}

// open returns the secret in a sealed value, nil for NULL. The other columns of the row must have
// been read.
func (s *Store) open(p *secret) ([]byte, error) {
	if len(p.sealed) == 0 {
		return nil, nil
	}
	plain, err := s.vault.Open(p.sealed, p.place())
	if err != nil {
		return nil, fmt.Errorf("unseal %s of table %s: %w: %w", p.column, p.row.table(), ErrChanged, err)
	}
	return plain, nil
}

// The row of the table canary, the place for which its text is sealed, and the text.
const (
	canaryRow   = "canary"
	canaryPlace = "canary|canary|secret_enc"
	canaryText  = "the keys are right"
)

// checkKeys returns ErrKeys if the store was sealed with other keys. sealed reports whether it has
// a canary.
func (s *Store) checkKeys(ctx context.Context) (sealed bool, err error) {
	var text []byte
	err = s.get(ctx, []any{&text}, `SELECT secret_enc FROM canary WHERE id = $1`, canaryRow)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	plain, err := s.vault.Open(text, canaryPlace)
	switch {
	case errors.Is(err, seal.ErrInvalid):
		return true, fmt.Errorf("%w, and nothing was changed: %w; start with the keys that the store was sealed with "+
			"last", ErrKeys, err)
	case err == nil && string(plain) != canaryText:
		return true, ErrKeys
	}
	return true, err
}

// addCanary adds the canary to a new store.
func (s *Store) addCanary(ctx context.Context) error {
	_, err := s.exec(ctx, `INSERT INTO canary (id, secret_enc) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING`, canaryRow,
		s.vault.Seal([]byte(canaryText), canaryPlace))
	return err
}

// Reencrypted is the result of Reencrypt.
type Reencrypted struct {
	Values  int // sealed values that were made anew
	Rows    int // rows whose code was made anew
	Changed int // rows that another program has changed; they stay unusable
}

// Reencrypt reseals all values and signs all rows with the first master key. It may run while the
// store is in use, and again after an interruption. Afterwards the other keys can be removed. The error
// is ErrMembers, and nothing was changed, if another process does not encrypt with that key.
func (s *Store) Reencrypt(ctx context.Context) (r Reencrypted, err error) {
	if r.Values, err = s.PromoteKey(ctx); err != nil {
		return r, err
	}
	for _, t := range boundRows {
		err := s.eachBound(ctx, t.key, t.blank, func(row boundRow) error { return s.reencryptRow(ctx, t.key, row, &r) })
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// PromoteKey is the first step of Reencrypt: from then on, no process without the first master key starts
// or joins. It returns the number of values that it has sealed anew.
func (s *Store) PromoteKey(ctx context.Context) (values int, err error) {
	err = s.WithTx(ctx, func(ctx context.Context) error {
		if err := s.mayReencrypt(ctx); err != nil {
			return err
		}
		if version, err := s.version(ctx); err != nil {
			return err
		} else if version > len(s.steps) { // it may have secrets that this program does not know
			return s.newer(version)
		}
		var sealed []byte
		err := s.get(ctx, []any{&sealed}, `SELECT secret_enc FROM canary WHERE id = $1`, canaryRow)
		if err != nil || s.vault.Current(sealed) {
			return err
		}
		plain, err := s.vault.Open(sealed, canaryPlace)
		if err != nil {
			return fmt.Errorf("unseal the canary: %w", err)
		}
		n, err := s.exec(ctx, `UPDATE canary SET secret_enc = $3 WHERE id = $1 AND secret_enc = $2`, canaryRow, sealed,
			s.vault.Seal(plain, canaryPlace))
		values = int(n)
		return err
	})
	return values, err
}

// reencryptRow reseals and signs a row, unless it is new enough or has no code.
func (s *Store) reencryptRow(ctx context.Context, key string, row boundRow, r *Reencrypted) error {
	if row.err != nil {
		r.Changed++
		return nil
	}
	old := row.code.stored
	if len(old) == 0 {
		return nil // it permits nothing any more, and has no secrets
	}
	set, args, values, codes := []string{}, []any{row.key, old}, 0, 0
	if !s.codes.Current(old) {
		args = append(args, s.sign(row.bound))
		set, codes = append(set, macColumn+" = $3"), 1
	}
	for _, p := range row.secrets {
		if len(p.sealed) == 0 || s.vault.Current(p.sealed) {
			continue
		}
		args, values = append(args, s.seal(p)), values+1
		set = append(set, fmt.Sprintf("%s = $%d", p.column, len(args)))
	}
	if len(set) == 0 {
		return nil
	}
	// A row that was written in the meantime has another code. It is already sealed with the first key.
	n, err := s.exec(ctx, `UPDATE `+row.table()+` SET `+strings.Join(set, ", ")+` WHERE `+key+` = $1 AND `+macColumn+
		` = $2`, args...)
	r.Values += int(n) * values
	r.Rows += int(n) * codes
	return err
}
