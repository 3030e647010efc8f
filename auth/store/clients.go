package store

import (
	"context"
	"errors"
	"time"
)

// Document is what a client's metadata URL answered, or why there was nothing.
type Document struct {
	URL        string
	Body       []byte
	Failure    string // why it could not be had, "" if it could
	Fetched    time.Time
	FreshUntil time.Time
}

// PutDocument stores a document in place of the last one of that URL. Where there are too many,
// those of clients that no user has allowed go first.
func (s *Store) PutDocument(ctx context.Context, d Document) error {
	_, err := s.exec(ctx,
		`INSERT INTO cimd_cache (url, document, failure, etag, fetched_at, fresh_until) VALUES ($1, $2, $3, '', $4, $5)
		ON CONFLICT (url) DO UPDATE SET document = excluded.document, failure = excluded.failure, fetched_at = excluded.fetched_at, fresh_until = excluded.fresh_until`,
		d.URL, d.Body, d.Failure, seconds(d.Fetched), seconds(d.FreshUntil))
	if err == nil {
		err = s.trimDocuments(ctx)
	}
	return err
}

// Document returns the document of a URL, however old.
func (s *Store) Document(ctx context.Context, url string) (d Document, err error) {
	err = s.get(ctx, func(row scanner) error {
		return row.Scan(&d.URL, &d.Body, &d.Failure, moment{&d.Fetched}, moment{&d.FreshUntil})
	}, `SELECT url, document, failure, fetched_at, fresh_until FROM cimd_cache WHERE url = $1`, url)
	return d, err
}

// Block says that a client is shut out.
type Block struct {
	ClientID, ClientName string // what it is known by; the name is for people
	Reason               string // the operator's words
	At                   time.Time
}

// BlockClient shuts a client out and ends what it was allowed. It returns the ids of the grants
// that ended by it. One that is shut out already stays so since then, with the new reason, if there
// is one. At is not read. A Block without a ClientID is an error: it would end all grants that
// there are.
func (s *Store) BlockClient(ctx context.Context, b Block) (grants []string, err error) {
	if b.ClientID == "" {
		return nil, errors.New("a block is of a client")
	}
	_, err = s.exec(ctx,
		`INSERT INTO client_blocks (client_hash, client_id, client_name, reason, at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (client_hash)
		DO UPDATE SET reason = CASE WHEN excluded.reason = '' THEN client_blocks.reason ELSE excluded.reason END`,
		hash(b.ClientID), b.ClientID, b.ClientName, b.Reason, seconds(s.now()))
	if err != nil {
		return nil, err
	}
	// In a transaction of its own: whoever makes a grant looks for a block after that is stored.
	return s.RevokeGrants(ctx, GrantFilter{ClientID: b.ClientID}, "client_blocked")
}

// UnblockClient lets a client in again, by its id. What it had been allowed stays ended.
// ErrNotFound means that it was not shut out.
func (s *Store) UnblockClient(ctx context.Context, id string) error {
	return s.only(ctx, `DELETE FROM client_blocks WHERE client_hash = $1`, hash(id))
}

// ClientBlocked returns ErrRevoked if a client is shut out.
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

// Blocks returns the clients that are shut out, the last one first.
func (s *Store) Blocks(ctx context.Context) (all []Block, err error) {
	err = s.all(ctx, func(row scanner) error {
		var b Block
		err := row.Scan(&b.ClientID, &b.ClientName, &b.Reason, moment{&b.At})
		all = append(all, b)
		return err
	}, `SELECT client_id, client_name, reason, at FROM client_blocks ORDER BY at DESC, client_hash`)
	return all, err
}

// UseAssertion notes that a client has signed in with an assertion, until that expires: of any
// number of calls exactly one succeeds, the others get ErrUsed.
func (s *Store) UseAssertion(ctx context.Context, issuer, jti string, expires time.Time) error {
	n, err := s.exec(ctx,
		`INSERT INTO assertion_jtis (issuer, jti_hash, expires_at) VALUES ($1, $2, $3) ON CONFLICT (issuer, jti_hash) DO NOTHING`,
		issuer, hash(jti), seconds(expires))
	if err == nil && n == 0 {
		err = ErrUsed
	}
	return err
}
