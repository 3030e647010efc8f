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

func (d *Document) table() string { return "cimd_cache" }

func (d *Document) fields() []field {
	return []field{{"url", &d.URL}, {"document", &d.Body}, {"failure", &d.Failure}, {"fetched_at", &d.Fetched},
		{"fresh_until", &d.FreshUntil}}
}

func (d *Document) free() []string { return nil }

func (d *Document) ended() bool { return false }

// PutDocument stores a document by its URL. Beyond the limit, documents of clients that no user has
// allowed are deleted first.
func (s *Store) PutDocument(ctx context.Context, d Document) error {
	statement, args := s.insertion(&d, field{"etag", ""})
	_, err := s.exec(ctx, statement+` ON CONFLICT (url) DO UPDATE SET document = excluded.document,
		failure = excluded.failure, fetched_at = excluded.fetched_at, fresh_until = excluded.fresh_until,
		mac = excluded.mac`, args...)
	if err == nil {
		err = s.trimDocuments(ctx)
	}
	return err
}

// Document returns the document of a URL, even if it has expired. A document that another program
// has changed is ErrNotFound, so that it is fetched again.
func (s *Store) Document(ctx context.Context, url string) (d Document, err error) {
	err = s.find(ctx, into{&d}, `WHERE url = $1`, url)
	if err == nil {
		err = sameRow("cimd_cache", d.URL, url)
	}
	if errors.Is(err, ErrChanged) {
		s.log.Warn("the stored document of an app is ignored", "error", err)
		return Document{}, ErrNotFound
	}
	return d, err
}

// Block is a client that the operator has blocked.
type Block struct {
	ClientID, ClientName string // the name is only for display
	Reason               string // as given by the operator
	At                   time.Time
}

func (b *Block) table() string { return "client_blocks" }

func (b *Block) fields() []field {
	return []field{{"client_id", &b.ClientID}, {"client_name", &b.ClientName}, {"reason", &b.Reason}, {"at", &b.At}}
}

// BlockClient blocks a client, and ends its grants, whose ids it returns. For a blocked client it
// only changes the reason, unless the new one is empty. It ignores At. A Block without a ClientID
// is an error, since it would end all grants.
func (s *Store) BlockClient(ctx context.Context, b Block) (grants []string, err error) {
	if b.ClientID == "" {
		return nil, errors.New("cannot block a client without its client_id")
	}
	b.At = s.now()
	statement, args := s.insertion(&b, field{"client_hash", hash(b.ClientID)})
	_, err = s.exec(ctx, statement+` ON CONFLICT (client_hash) DO UPDATE SET
		reason = CASE WHEN excluded.reason = '' THEN client_blocks.reason ELSE excluded.reason END`, args...)
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
	blocked := false
	err := s.get(ctx, []any{&blocked}, `SELECT EXISTS (SELECT 1 FROM client_blocks WHERE client_hash = $1)`, hash(id))
	if err == nil && blocked {
		err = ErrRevoked
	}
	return err
}

// Blocks returns the blocked clients, the last one first.
func (s *Store) Blocks(ctx context.Context) ([]Block, error) {
	return list[Block](ctx, s, `ORDER BY at DESC, client_hash`)
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
