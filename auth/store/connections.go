package store

import (
	"context"
	"errors"
	"time"
)

// Connection is a user's own sign-in at an upstream. Only calls of that user use it.
type Connection struct {
	Upstream  string
	User      string // User.ID
	Principal string // ID of the user's principal
	// Access and Refresh are the upstream's tokens, sealed for this user and upstream. Refresh is
	// "" if there is none.
	Access, Refresh string
	Scope           string
	Issuer          string    // authorization server that issued the tokens
	Resource        string    // audience of the tokens
	ClientID        string    // client that they were issued to
	Expires         time.Time // of Access; zero if unknown
	Broken          bool      // the authorization server rejects the tokens: the user must reconnect
	Created         time.Time
	Given           time.Time // when Access was issued

	version int64 // of the tokens; each change names the version that it replaces
}

const connectionColumns = "upstream_tokens.upstream, owner, principal, access_enc, refresh_enc, scope, " +
	"upstream_tokens.issuer, resource, client_id, expires_at, state, version, " +
	"upstream_tokens.created_at, updated_at"

const (
	connectionOK     = "ok"
	connectionBroken = "needs_reconnect"
)

// row is the primary key of a connection, for which its tokens are sealed. Names of upstreams
// contain no slash.
func (c *Connection) row() string { return c.Upstream + "/" + c.User }

func (c *Connection) scan(s *Store, row scanner) error {
	var access, refresh []byte
	var state string
	err := row.Scan(&c.Upstream, &c.User, &c.Principal, &access, &refresh, &c.Scope, &c.Issuer, &c.Resource,
		&c.ClientID, moment{&c.Expires}, &state, &c.version,
		moment{&c.Created}, moment{&c.Given})
	if err != nil {
		return err
	}
	c.Broken = state != connectionOK
	plain, err := s.open(upstreamAccess, c.row(), access)
	if err != nil {
		return err
	}
	c.Access = string(plain)
	plain, err = s.open(upstreamRefresh, c.row(), refresh)
	c.Refresh = string(plain)
	return err
}

// PutConnection stores a connection in place of an earlier one. It ignores Broken, Created and
// Given. ErrRevoked means that the user is disabled.
func (s *Store) PutConnection(ctx context.Context, c Connection) error {
	return s.WithTx(ctx, func(ctx context.Context) error {
		// The user stays locked until the connection is stored: a caller that disables the user then also
		// deletes it.
		if u, err := s.User(ctx, c.User); err != nil {
			return err
		} else if !u.Disabled.IsZero() {
			return ErrRevoked
		}
		now := seconds(s.now())
		_, err := s.exec(ctx,
			`INSERT INTO upstream_tokens (id, upstream, owner, principal, access_enc, refresh_enc, scope, issuer,
				resource, client_id, expires_at, state, version,
			claimed_until, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
			'`+connectionOK+`', $12, 0, $13, $13)
			ON CONFLICT (id) DO UPDATE SET principal = excluded.principal, access_enc = excluded.access_enc,
			refresh_enc = excluded.refresh_enc, scope = excluded.scope,
			issuer = excluded.issuer, resource = excluded.resource, client_id = excluded.client_id,
			expires_at = excluded.expires_at, state = excluded.state,
			version = upstream_tokens.version + 1, claimed_until = 0, created_at = excluded.created_at,
			updated_at = excluded.updated_at`,
			c.row(), c.Upstream, c.User, c.Principal, s.seal(upstreamAccess, c.row(), c.Access), s.seal(upstreamRefresh,
				c.row(), c.Refresh), c.Scope, c.Issuer, c.Resource,
			// differs from the version of every earlier connection, also a deleted one
			c.ClientID, seconds(c.Expires), s.now().UnixNano(), now)
		return err
	})
}

// Connection returns the connection of a principal to an upstream, which may be Broken. ErrNotFound
// means that there is none, or that the user is disabled.
func (s *Store) Connection(ctx context.Context, upstream, principal string) (c Connection, err error) {
	err = s.get(ctx, func(row scanner) error { return c.scan(s, row) },
		`SELECT `+connectionColumns+` FROM upstream_tokens JOIN users ON users.id = owner
		WHERE principal = $1 AND upstream = $2 AND disabled_at = 0`, principal, upstream)
	return c, err
}

// Connections returns a user's connections by upstream, without the tokens.
func (s *Store) Connections(ctx context.Context, user string) (all []Connection, err error) {
	err = s.all(ctx, func(row scanner) error {
		var c Connection
		var state string
		err := row.Scan(&c.Upstream, &c.User, &c.Scope, &c.Issuer, &state, moment{&c.Created})
		c.Broken = state != connectionOK
		all = append(all, c)
		return err
	},
		`SELECT upstream, owner, scope, issuer, state, created_at FROM upstream_tokens WHERE owner = $1
			ORDER BY upstream`, user)
	return all, err
}

// ClaimConnection reserves the renewal of c's tokens for the caller. Others, also on other
// replicas, get ErrUsed until d has passed or one of the methods below is called. So the
// authorization server is queried without an open transaction. ErrNotFound means that the tokens
// have changed.
func (s *Store) ClaimConnection(ctx context.Context, c Connection, d time.Duration) error {
	now := s.now()
	err := s.only(ctx,
		`UPDATE upstream_tokens SET claimed_until = $3 WHERE id = $1 AND version = $2 AND claimed_until <= $4`, c.row(),
		c.version, seconds(now.Add(d)), seconds(now))
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	var one int
	err = s.get(ctx, func(row scanner) error { return row.Scan(&one) },
		`SELECT 1 FROM upstream_tokens WHERE id = $1 AND version = $2`, c.row(), c.version)
	if err == nil {
		err = ErrUsed
	}
	return err
}

// RenewConnection stores the renewed Access, Refresh, Scope and Expires of c, and releases the
// claim. ErrNotFound means that the user has disconnected or reconnected in the meantime; that
// stays.
func (s *Store) RenewConnection(ctx context.Context, c Connection) error {
	return s.only(ctx,
		`UPDATE upstream_tokens SET access_enc = $3, refresh_enc = $4, scope = $5, expires_at = $6,
			version = version + 1, claimed_until = 0, updated_at = $7
		WHERE id = $1 AND version = $2`, c.row(), c.version,
		s.seal(upstreamAccess, c.row(), c.Access), s.seal(upstreamRefresh, c.row(), c.Refresh), c.Scope,
		seconds(c.Expires), seconds(s.now()))
}

// ReleaseConnection releases a claim without a change.
func (s *Store) ReleaseConnection(ctx context.Context, c Connection) error {
	_, err := s.exec(ctx, `UPDATE upstream_tokens SET claimed_until = 0 WHERE id = $1 AND version = $2`, c.row(),
		c.version)
	return err
}

// BreakConnection marks c as broken and deletes its tokens, unless they have changed in the
// meantime.
func (s *Store) BreakConnection(ctx context.Context, c Connection) error {
	_, err := s.exec(ctx, `UPDATE upstream_tokens SET state = '`+connectionBroken+
		`', access_enc = NULL, refresh_enc = NULL, version = version + 1, claimed_until = 0, updated_at = $3
		WHERE id = $1 AND version = $2`, c.row(), c.version, seconds(s.now()))
	return err
}

// DeleteConnection deletes a user's connection, and returns it so that its tokens can be revoked.
// ErrNotFound means that there is none.
func (s *Store) DeleteConnection(ctx context.Context, upstream, user string) (c Connection, err error) {
	of := Connection{Upstream: upstream, User: user}
	err = s.change(ctx, func(row scanner) error { return c.scan(s, row) },
		`DELETE FROM upstream_tokens WHERE id = $1 RETURNING `+connectionColumns, of.row())
	return c, err
}

// UpstreamClient is this server's registration as a client at the authorization server of an
// upstream.
type UpstreamClient struct {
	Upstream, Issuer, RedirectURI string
	ClientID                      string
	Secret                        string // sealed in the store; "" if there is none
	AuthMethod                    string // token_endpoint_auth_method
}

// row is the primary key, which is made of all three.
func (c *UpstreamClient) row() string { return hash(c.Upstream + " " + c.Issuer + " " + c.RedirectURI) }

// AddUpstreamClient stores a registration unless there is one. It returns the stored one.
func (s *Store) AddUpstreamClient(ctx context.Context, c UpstreamClient) (UpstreamClient, error) {
	_, err := s.exec(ctx,
		`INSERT INTO upstream_clients (id, upstream, issuer, redirect_uri, client_id, secret_enc, auth_method,
			created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (id) DO NOTHING`,
		c.row(), c.Upstream, c.Issuer, c.RedirectURI, c.ClientID, s.seal(upstreamSecret, c.row(), c.Secret),
		c.AuthMethod, seconds(s.now()))
	if err != nil {
		return c, err
	}
	return s.UpstreamClient(ctx, c.Upstream, c.Issuer, c.RedirectURI)
}

// UpstreamClient returns the registration for an upstream at an issuer with a redirect URI;
// ErrNotFound if there is none.
func (s *Store) UpstreamClient(ctx context.Context, upstream, issuer, redirect string) (UpstreamClient, error) {
	c := UpstreamClient{Upstream: upstream, Issuer: issuer, RedirectURI: redirect}
	var sealed []byte
	err := s.get(ctx, func(row scanner) error { return row.Scan(&c.ClientID, &sealed, &c.AuthMethod) },
		`SELECT client_id, secret_enc, auth_method FROM upstream_clients WHERE id = $1`, c.row())
	if err != nil {
		return c, err
	}
	plain, err := s.open(upstreamSecret, c.row(), sealed)
	c.Secret = string(plain)
	return c, err
}

// ReplaceUpstreamClient stores a registration in place of the earlier one.
func (s *Store) ReplaceUpstreamClient(ctx context.Context, c UpstreamClient) error {
	if _, err := s.exec(ctx, `DELETE FROM upstream_clients WHERE id = $1`, c.row()); err != nil {
		return err
	}
	_, err := s.AddUpstreamClient(ctx, c)
	return err
}

// DropUpstreamClient deletes a registration that the issuer no longer knows.
func (s *Store) DropUpstreamClient(ctx context.Context, c UpstreamClient) error {
	_, err := s.exec(ctx, `DELETE FROM upstream_clients WHERE id = $1 AND client_id = $2`, c.row(), c.ClientID)
	return err
}
