package store

import (
	"context"
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

// PutDocument stores a document in place of the last one of that URL.
func (s *Store) PutDocument(ctx context.Context, d Document) error {
	_, err := s.exec(ctx, `INSERT INTO cimd_cache (url, document, failure, etag, fetched_at, fresh_until) VALUES ($1, $2, $3, '', $4, $5)
		ON CONFLICT (url) DO UPDATE SET document = excluded.document, failure = excluded.failure, fetched_at = excluded.fetched_at, fresh_until = excluded.fresh_until`,
		d.URL, d.Body, d.Failure, seconds(d.Fetched), seconds(d.FreshUntil))
	return err
}

// Document returns the document of a URL, however old.
func (s *Store) Document(ctx context.Context, url string) (d Document, err error) {
	err = s.get(ctx, func(row scanner) error {
		return row.Scan(&d.URL, &d.Body, &d.Failure, moment{&d.Fetched}, moment{&d.FreshUntil})
	}, `SELECT url, document, failure, fetched_at, fresh_until FROM cimd_cache WHERE url = $1`, url)
	return d, err
}

// BlockClient shuts a client out by its id, and ends what it was allowed.
func (s *Store) BlockClient(ctx context.Context, id, reason string) error {
	return s.WithTx(ctx, func(ctx context.Context) error {
		_, err := s.exec(ctx, `INSERT INTO client_blocks (client_hash, reason, at) VALUES ($1, $2, $3) ON CONFLICT (client_hash) DO UPDATE SET reason = excluded.reason`,
			hash(id), reason, seconds(s.now()))
		if err != nil {
			return err
		}
		_, err = s.RevokeGrants(ctx, GrantFilter{ClientID: id}, "client_blocked")
		return err
	})
}

// UnblockClient lets a client in again, if it was shut out.
func (s *Store) UnblockClient(ctx context.Context, id string) error {
	_, err := s.exec(ctx, `DELETE FROM client_blocks WHERE client_hash = $1`, hash(id))
	return err
}

// ClientBlocked returns ErrRevoked, with the reason, if a client is shut out.
func (s *Store) ClientBlocked(ctx context.Context, id string) (reason string, err error) {
	err = s.get(ctx, func(row scanner) error { return row.Scan(&reason) }, `SELECT reason FROM client_blocks WHERE client_hash = $1`, hash(id))
	switch err {
	case ErrNotFound:
		return "", nil
	case nil:
		return reason, ErrRevoked
	}
	return "", err
}

// UseAssertion notes that a client has signed in with an assertion, until that expires: of any number of calls exactly one succeeds, the others get ErrUsed.
func (s *Store) UseAssertion(ctx context.Context, issuer, jti string, expires time.Time) error {
	n, err := s.exec(ctx, `INSERT INTO assertion_jtis (issuer, jti_hash, expires_at) VALUES ($1, $2, $3) ON CONFLICT (issuer, jti_hash) DO NOTHING`,
		issuer, hash(jti), seconds(expires))
	if err == nil && n == 0 {
		err = ErrUsed
	}
	return err
}
