package store

import (
	"context"
	"errors"
	"time"
)

// Document is the cached answer of a client's metadata URL.
type Document struct {
	URL        string
	Body       []byte
	Failure    string // why the fetch failed, "" if it did not
	Fetched    time.Time
	FreshUntil time.Time
}

// PutDocument stores a document by its URL. Beyond the limit, documents of clients that no user has
// allowed are deleted first.
func (s *Store) PutDocument(ctx context.Context, d Document) error {
	_, err := s.exec(ctx,
		`INSERT INTO cimd_cache (url, document, failure, etag, fetched_at, fresh_until) VALUES ($1, $2, $3, '', $4, $5)
		ON CONFLICT (url) DO UPDATE SET document = excluded.document, failure = excluded.failure,
		fetched_at = excluded.fetched_at, fresh_until = excluded.fresh_until`,
		d.URL, d.Body, d.Failure, seconds(d.Fetched), seconds(d.FreshUntil))
	if err == nil {
		err = s.trimDocuments(ctx)
	}
	return err
}

// Document returns the document of a URL, even if it has expired.
func (s *Store) Document(ctx context.Context, url string) (d Document, err error) {
	err = s.get(ctx, func(row scanner) error {
		return row.Scan(&d.URL, &d.Body, &d.Failure, moment{&d.Fetched}, moment{&d.FreshUntil})
	}, `SELECT url, document, failure, fetched_at, fresh_until FROM cimd_cache WHERE url = $1`, url)
	return d, err
}

// Block is a client that the operator has blocked.
type Block struct {
	ClientID, ClientName string // the name is only for display
	Reason               string // as given by the operator
	At                   time.Time
}

// BlockClient blocks a client, and ends its grants, whose ids it returns. For a blocked client it
// only changes the reason, unless the new one is empty. It ignores At. A Block without a ClientID
// is an error, since it would end all grants.
func (s *Store) BlockClient(ctx context.Context, b Block) (grants []string, err error) {
	if b.ClientID == "" {
		return nil, errors.New("cannot block a client without its client_id")
	}
	_, err = s.exec(ctx,
		`INSERT INTO client_blocks (client_hash, client_id, client_name, reason, at) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (client_hash)
		DO UPDATE SET reason = CASE WHEN excluded.reason = '' THEN client_blocks.reason ELSE excluded.reason END`,
		hash(b.ClientID), b.ClientID, b.ClientName, b.Reason, seconds(s.now()))
	if err != nil {
		return nil, err
	}
	// This is a separate transaction: deliver in authserver checks for a block after it has stored
	// a grant.
	return s.RevokeGrants(ctx, GrantFilter{ClientID: b.ClientID}, "client_blocked")
}

// UnblockClient removes a block. Ended grants stay ended. ErrNotFound means that the client was not
// blocked.
func (s *Store) UnblockClient(ctx context.Context, id string) error {
	return s.only(ctx, `DELETE FROM client_blocks WHERE client_hash = $1`, hash(id))
}

// ClientBlocked returns ErrRevoked if a client is blocked.
func (s *Store) ClientBlocked(ctx context.Context, id string) error {
	var at int64
	switch err := s.get(ctx, func(row scanner) error { return row.Scan(&at) },
		`SELECT at FROM client_blocks WHERE client_hash = $1`, hash(id)); err {
	case ErrNotFound:
		return nil
	case nil:
		return ErrRevoked
	default:
		return err
	}
}

// Blocks returns the blocked clients, the last one first.
func (s *Store) Blocks(ctx context.Context) (all []Block, err error) {
	err = s.all(ctx, func(row scanner) error {
		var b Block
		err := row.Scan(&b.ClientID, &b.ClientName, &b.Reason, moment{&b.At})
		all = append(all, b)
		return err
	}, `SELECT client_id, client_name, reason, at FROM client_blocks ORDER BY at DESC, client_hash`)
	return all, err
}

// UseAssertion stores the use of a client assertion until it expires. Exactly one call for an
// assertion succeeds; the others get ErrUsed.
func (s *Store) UseAssertion(ctx context.Context, issuer, jti string, expires time.Time) error {
	n, err := s.exec(ctx,
		`INSERT INTO assertion_jtis (issuer, jti_hash, expires_at) VALUES ($1, $2, $3)
			ON CONFLICT (issuer, jti_hash) DO NOTHING`,
		issuer, hash(jti), seconds(expires))
	if err == nil && n == 0 {
		err = ErrUsed
	}
	return err
}
