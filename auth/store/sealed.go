package store

import (
	"context"
	"errors"
	"fmt"

	"junction/auth/seal"
)

// column is a sealed column. A value opens only in its own table, row and column, so that write
// access to the database does not allow to move one user's secret to another.
type column struct{ table, key, name string }

var (
	canarySecret    = column{"canary", "id", "secret_enc"}
	idpRefreshToken = column{"idp_sessions", "id", "refresh_token_enc"}
	authPKCE        = column{"auth_requests", "id_hash", "pkce_enc"}
	upstreamSecret  = column{"upstream_clients", "id", "secret_enc"}
	upstreamAccess  = column{"upstream_tokens", "id", "access_enc"}
	upstreamRefresh = column{"upstream_tokens", "id", "refresh_enc"}
)

// sealedColumns are sealed with the master keys. oauth_tokens.replay_enc is sealed with the token
// instead.
var sealedColumns = []column{canarySecret, idpRefreshToken, authPKCE, upstreamSecret, upstreamAccess, upstreamRefresh}

// secret is the place of the value of a sealed column, in memory.
type secret struct {
	column
	row    func() string // key of its row, known once the other columns are
	text   *string
	sealed []byte // as it is stored; set by scan
}

func sealedField(c column, row func() string, text *string) field {
	return field{c.name, &secret{column: c, row: row, text: text}}
}

func (c column) place(row string) string { return c.table + "|" + row + "|" + c.name }

// seal returns the stored form of a secret: NULL for "".
func (s *Store) seal(c column, row, secret string) any {
	if secret == "" {
		return nil
	}
	return s.vault.Seal([]byte(secret), c.place(row))
}

// open returns the secret in a sealed value, nil for NULL.
func (s *Store) open(c column, row string, sealed []byte) ([]byte, error) {
	if len(sealed) == 0 {
		return nil, nil
	}
	plain, err := s.vault.Open(sealed, c.place(row))
	if err != nil {
		return nil, fmt.Errorf("unseal %s of table %s: %w", c.name, c.table, err)
	}
	return plain, nil
}

// The row of the table canary, and its text.
const (
	canaryRow  = "canary"
	canaryText = "the keys are right"
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
	plain, err := s.open(canarySecret, canaryRow, text)
	switch {
	case errors.Is(err, seal.ErrInvalid):
		return true, fmt.Errorf("%w, and nothing was changed: %w; start with the earlier keys", ErrKeys, err)
	case err == nil && string(plain) != canaryText:
		return true, ErrKeys
	}
	return true, err
}

// addCanary adds the canary to a new store.
func (s *Store) addCanary(ctx context.Context) error {
	_, err := s.exec(ctx, `INSERT INTO canary (id, secret_enc) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING`, canaryRow,
		s.seal(canarySecret, canaryRow, canaryText))
	return err
}

// Reencrypt reseals all values with the first master key, and returns how many it changed. It may
// run while the store is in use, and again after an interruption. Afterwards the other keys can be
// removed, provided that every replica has the first key.
func (s *Store) Reencrypt(ctx context.Context) (n int, err error) {
	for _, c := range sealedColumns {
		old := map[string][]byte{} // by row
		err := s.eachSealed(ctx, c, func(row string, sealed []byte) {
			if !s.vault.Current(sealed) {
				old[row] = sealed
			}
		})
		if err != nil {
			return n, err
		}
		for row, sealed := range old {
			plain, err := s.open(c, row, sealed)
			if err != nil {
				return n, err
			}
			// A row that was written in the meantime is already sealed with the first key.
			changed, err := s.exec(ctx,
				`UPDATE `+c.table+` SET `+c.name+` = $3 WHERE `+c.key+` = $1 AND `+c.name+` = $2`,
				row, sealed, s.vault.Seal(plain, c.place(row)))
			if err != nil {
				return n, err
			}
			n += int(changed)
		}
	}
	return n, nil
}

// eachSealed calls use for each value of a column that is not NULL.
func (s *Store) eachSealed(ctx context.Context, c column, use func(row string, sealed []byte)) error {
	return s.all(ctx, func(scan func(places ...any) error) error {
		var row string
		var sealed []byte
		err := scan(&row, &sealed)
		if err == nil {
			use(row, sealed)
		}
		return err
	}, `SELECT `+c.key+`, `+c.name+` FROM `+c.table+` WHERE `+c.name+` IS NOT NULL`)
}
