package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

const (
	sweepEvery = 10 * time.Minute
	sweepBatch = 1000                 // rows per transaction, to keep transactions short
	afterwards = 24 * time.Hour       // how long expired rows are kept, to distinguish them from unknown ones
	keptGrants = 90 * 24 * time.Hour  // ended grants, for the account page and the audit
	keptEvents = 400 * 24 * time.Hour // the audit
	keptStrays = 30 * 24 * time.Hour  // audit rows of unauthenticated requests
	keptKeys   = 90 * 24 * time.Hour  // keys that users have given, for an upstream that no member has in its file
)

// sweeps are the rows to delete, referring tables first. $1 is the time before which age has
// passed.
var sweeps = []struct {
	table, key, where string
	age               time.Duration
}{
	{"auth_requests", "id_hash", "expires_at < $1", time.Hour}, // each visit of a sign-in page adds one
	{"web_sessions", "id_hash", "expires_at < $1", 0},
	{"oauth_pkce", "signature", "expires_at < $1", afterwards},
	{"oauth_codes", "signature", "expires_at < $1", afterwards},
	{"oauth_tokens", "signature", "expires_at < $1", afterwards},
	{"grants", "id", `(expires_at < $1 OR (revoked_at > 0 AND revoked_at < $1))
		AND NOT EXISTS (SELECT 1 FROM oauth_tokens WHERE grant_id = grants.id)
		AND NOT EXISTS (SELECT 1 FROM oauth_codes WHERE grant_id = grants.id)`, keptGrants},
	{"idp_sessions", "id", `checked_at < $1 AND created_at < $1
		AND NOT EXISTS (SELECT 1 FROM grants WHERE idp_session_id = idp_sessions.id)
		AND NOT EXISTS (SELECT 1 FROM web_sessions WHERE idp_session_id = idp_sessions.id)`,
		afterwards},
	{"cimd_cache", "url", "fresh_until < $1", 7 * 24 * time.Hour},
	{"assertion_jtis", "jti_hash", "expires_at < $1", 10 * time.Minute}, // a margin for clock differences
	{"audit", "id", "at < $1 AND principal = '' AND event IN ('" + strings.Join(Unproven(), "', '") + "')", keptStrays},
	{"audit", "id", "at < $1", keptEvents},
}

// sweepNowAndThen sweeps periodically until ctx ends.
func (s *Store) sweepNowAndThen(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		n, err := s.sweep(ctx)
		keys, failed := s.sweepKeys(ctx)
		if n, err = n+keys, cmp.Or(err, failed); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot delete expired entries", "error", err)
		} else if n > 0 {
			s.log.Debug("expired entries deleted", "entries", n)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// sweep deletes expired rows, and returns how many. Among replicas one sweeps at a time; the others
// do nothing.
func (s *Store) sweep(ctx context.Context) (total int64, err error) {
	batch := ctx
	if !s.postgres {
		// SQLite is fast, and a cancelled statement would keep the file open while it rolls back
		batch = context.WithoutCancel(ctx)
	}
	for _, what := range sweeps {
		for {
			if err := ctx.Err(); err != nil {
				return total, err
			}
			n := int64(0)
			err := s.WithTx(batch, func(ctx context.Context) (err error) {
				if s.postgres {
					if locked, err := s.lockSweep(ctx); err != nil || !locked {
						return err
					}
				}
				n, err = s.exec(ctx, `DELETE FROM `+what.table+` WHERE `+what.key+` IN (SELECT `+what.key+` FROM `+
					what.table+` WHERE `+what.where+` LIMIT $2) AND `+what.where,
					seconds(s.now().Add(-what.age)), sweepBatch)
				return err
			})
			total += n
			if err != nil {
				return total, err
			}
			if n < sweepBatch {
				break
			}
		}
	}
	return total, nil
}

// lockSweep reports whether this process may sweep, and locks out other replicas until the
// transaction ends. The lock is per schema.
func (s *Store) lockSweep(ctx context.Context) (locked bool, err error) {
	err = s.get(ctx, []any{&locked},
		`SELECT pg_try_advisory_xact_lock($1 + 'audit'::regclass::oid::bigint)`, int64(sweeping))
	return locked, err
}

// sweepKeys deletes the keys of an upstream that has been missing in the files of all members for keptKeys, and returns
// how many. A member without the upstream in its file gives its keys an expiry; a member that has it takes the expiry
// away, so that an older member, or a mistake that is corrected, costs no key.
func (s *Store) sweepKeys(ctx context.Context) (total int64, err error) {
	if s.upstreams == nil {
		return 0, nil
	}
	names := s.upstreams()
	given, err := s.texts(ctx, `SELECT DISTINCT upstream FROM upstream_tokens WHERE issuer = '`+KeyIssuer+`'`)
	if err != nil || names == nil {
		return 0, err
	}
	for _, name := range given {
		wrong, expires := "expires_at > 0", time.Time{}
		if !slices.Contains(names, name) {
			wrong, expires = "expires_at = 0", s.now().Add(keptKeys)
		}
		marked, err := list[Connection](ctx, s, `WHERE issuer = '`+KeyIssuer+`' AND upstream = $1 AND `+wrong, name)
		if err != nil {
			return total, err
		}
		for _, one := range marked {
			if err := s.expireKey(ctx, one, expires); err != nil {
				return total, err
			}
		}
		if expires.IsZero() {
			continue
		}
		err = s.WithTx(ctx, func(ctx context.Context) error {
			if s.postgres {
				if locked, err := s.lockSweep(ctx); err != nil || !locked {
					return err
				}
			}
			n, err := s.exec(ctx, `DELETE FROM upstream_tokens WHERE issuer = '`+KeyIssuer+`' AND upstream = $1
				AND expires_at > 0 AND expires_at < $2`, name, seconds(s.now()))
			total += n
			return err
		})
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// expireKey sets when a key is deleted; zero is never. Another key in its place stays as it is.
func (s *Store) expireKey(ctx context.Context, of Connection, expires time.Time) error {
	k, err := s.Connection(ctx, of.Upstream, of.Principal)
	if err == nil {
		k.Expires = expires
		err = s.RenewConnection(ctx, k)
	}
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
