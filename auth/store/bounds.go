package store

import (
	"cmp"
	"context"
)

// This file limits the rows that unauthenticated requests can add. A network that adds too many
// loses its own rows first.

// bounds are the limits on rows.
type bounds struct {
	network   int // requests of one network: so many unapproved, and so many approved
	requests  int // requests of all networks
	look      int // new requests between two checks of the total
	documents int // of clients, a few kilobytes each
}

func defaultBounds() bounds { return bounds{network: 200, requests: 10_000, look: 20, documents: 1000} }

// excess describes rows to delete from a table beyond a limit.
type excess struct {
	table, key string
	which      string // the rows that count
	about      []any  // its arguments
	most       int    // limit
	first      string // query for the keys to delete first; its last argument is how many
	args       []any  // its other arguments
}

// trimRequests deletes a network's requests of one kind, approved or not, beyond its limit: first
// finished or expired ones, then the oldest. It keeps the request newest.
func (s *Store) trimRequests(ctx context.Context, newest AuthRequest, approved bool) error {
	which := "network = $1 AND approved_at = 0"
	if approved {
		which = "network = $1 AND approved_at > 0"
	}
	return s.trim(ctx, excess{
		table: "auth_requests", key: "id_hash", which: which, about: []any{newest.Network},
		most: cmp.Or(newest.Keep, s.bounds.network),
		first: `SELECT id_hash FROM auth_requests WHERE ` + which + ` AND id_hash <> $2
			ORDER BY CASE WHEN consumed_at > 0 OR expires_at <= $3 THEN 0 ELSE 1 END, created_at LIMIT $4`,
		args: []any{newest.Network, newest.id, seconds(s.now())},
	})
}

// trimAllRequests deletes requests beyond the total limit: first finished or expired ones, then the
// oldest of the networks with the most. A network with one request keeps it while another has two.
func (s *Store) trimAllRequests(ctx context.Context) error {
	return s.trim(ctx, excess{
		table: "auth_requests", key: "id_hash", which: "1 = 1", most: s.bounds.requests,
		first: `SELECT id_hash FROM (
				SELECT id_hash, created_at, CASE WHEN consumed_at > 0 OR expires_at <= $1 THEN 0 ELSE 1 END AS live,
				row_number() OVER (PARTITION BY network ORDER BY created_at DESC, id_hash) AS place FROM auth_requests
			) AS ranked ORDER BY live, place DESC, created_at LIMIT $2`,
		args: []any{seconds(s.now())},
	})
}

// trimDocuments deletes documents beyond the limit. Documents of clients that no user has allowed
// go first, of these the ones with a failed fetch, and then the oldest.
func (s *Store) trimDocuments(ctx context.Context) error {
	return s.trim(ctx, excess{
		table: "cimd_cache", key: "url", which: "1 = 1", most: s.bounds.documents,
		first: `SELECT url FROM cimd_cache
			ORDER BY CASE WHEN EXISTS (SELECT 1 FROM grants WHERE grants.client_id = cimd_cache.url) THEN 1 ELSE 0 END,
			CASE WHEN failure = '' THEN 1 ELSE 0 END, fetched_at LIMIT $1`,
	})
}

// trim deletes a tenth more than the excess, so that not every new row of a flood causes a
// deletion.
func (s *Store) trim(ctx context.Context, e excess) error {
	n := 0
	err := s.get(ctx, []any{&n}, `SELECT count(*) FROM `+e.table+` WHERE `+e.which, e.about...)
	if err != nil || n <= e.most {
		return err
	}
	return s.WithTx(ctx, func(ctx context.Context) error {
		if s.postgres { // replicas that delete the same rows would deadlock
			if locked, err := s.lockSweep(ctx); err != nil || !locked {
				return err
			}
		}
		args := append(e.args, n-e.most+e.most/10)
		_, err := s.exec(ctx, `DELETE FROM `+e.table+` WHERE `+e.key+` IN (`+e.first+`)`, args...)
		return err
	})
}
