package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"net/url"
	"strings"
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
	TokenEndpoint   string    // that issued them; they are sent to no other origin
	Resource        string    // audience of the tokens
	ClientID        string    // client that they were issued to
	Expires         time.Time // of Access; zero if unknown
	Broken          bool      // the authorization server rejects the tokens: the user must reconnect
	Created         time.Time
	Given           time.Time // when Access was issued

	version int64 // of the tokens; each change names the version that it replaces
}

// KeyIssuer is the Issuer of a connection whose Access is a key that a person has pasted, and no token of an
// authorization server. Its Resource is the origin of the URL for which the key was given, or a CommandKey.
const KeyIssuer = "urn:junction:key"

// commandKey begins the Resource of a key that a command gets.
const commandKey = "command:"

// CommandKey returns the Resource of a key that a command gets. digest is of all its words.
func CommandKey(program, digest string) string { return commandKey + digest + " " + program }

// KeyPlace returns what gets a key with that Resource, for people: the host, or the program of a command, which
// Junction runs.
func KeyPlace(resource string) (place string, runs bool) {
	if rest, ok := strings.CutPrefix(resource, commandKey); ok {
		_, program, _ := strings.Cut(rest, " ")
		return program, true
	}
	at, err := url.Parse(resource)
	if err != nil {
		return "", false
	}
	return at.Host, false
}

const (
	connectionOK     = "ok"
	connectionBroken = "needs_reconnect"
)

// row is the primary key of a connection. Names of upstreams contain no slash.
func (c *Connection) row() string { return c.Upstream + "/" + c.User }

func (c *Connection) table() string { return "upstream_tokens" }

func (c *Connection) fields() []field {
	return []field{{"upstream", &c.Upstream}, {"owner", &c.User}, {"principal", &c.Principal}, {"scope", &c.Scope},
		{"issuer", &c.Issuer}, {"token_endpoint", &c.TokenEndpoint}, {"resource", &c.Resource},
		{"client_id", &c.ClientID}, {"expires_at", &c.Expires},
		{"state", brokenState{&c.Broken}}, {"version", &c.version}, {"created_at", &c.Created},
		{"updated_at", &c.Given}}
}

func (c *Connection) secrets() []field {
	return []field{sealedField("access_enc", c, &c.Access), sealedField("refresh_enc", c, &c.Refresh)}
}

// free: the version and the claim only order the renewals of replicas.
func (c *Connection) free() []string { return []string{"version"} }

func (c *Connection) ended() bool { return false }

// brokenState is Connection.Broken, stored as a state.
type brokenState struct{ broken *bool }

// Scan implements sql.Scanner.
func (b brokenState) Scan(state any) error {
	*b.broken = state != connectionOK
	return nil
}

// Value implements driver.Valuer.
func (b brokenState) Value() (driver.Value, error) {
	if *b.broken {
		return connectionBroken, nil
	}
	return connectionOK, nil
}

// PutConnection stores a connection in place of an earlier one. It ignores Broken, Created and
// Given. ErrRevoked means that the user is disabled.
func (s *Store) PutConnection(ctx context.Context, c Connection) error {
	return s.putConnection(ctx, c, "")
}

// StartConnection is PutConnection, unless the stored connection has the same principal: then nothing
// changes. So replicas that need a first token at the same time compete for the claim on one row.
func (s *Store) StartConnection(ctx context.Context, c Connection) error {
	return s.putConnection(ctx, c, ` WHERE upstream_tokens.principal <> excluded.principal`)
}

// putConnection stores a connection. where limits which earlier connection it replaces.
func (s *Store) putConnection(ctx context.Context, c Connection, where string) error {
	return s.WithTx(ctx, func(ctx context.Context) error {
		// The user stays locked until the connection is stored: a caller that disables the user then also
		// deletes it.
		if u, err := s.User(ctx, c.User); err != nil {
			return err
		} else if !u.Disabled.IsZero() {
			return ErrRevoked
		}
		now := s.now()
		c.Broken, c.Created, c.Given = false, now, now
		c.version = now.UnixNano() // differs from the version of every earlier connection, also a deleted one
		statement, args := s.insertion(&c, field{"id", c.row()}, field{"claimed_until", 0})
		_, err := s.exec(ctx, statement+` ON CONFLICT (id) DO UPDATE SET principal = excluded.principal,
			access_enc = excluded.access_enc, refresh_enc = excluded.refresh_enc, scope = excluded.scope,
			issuer = excluded.issuer, token_endpoint = excluded.token_endpoint, resource = excluded.resource,
			client_id = excluded.client_id, mac = excluded.mac,
			expires_at = excluded.expires_at, state = excluded.state, version = upstream_tokens.version + 1,
			claimed_until = 0, created_at = excluded.created_at, updated_at = excluded.updated_at`+where, args...)
		return err
	})
}

// Connection returns the connection of a principal to an upstream, which may be Broken. ErrNotFound
// means that there is none, or that the user is disabled.
func (s *Store) Connection(ctx context.Context, upstream, principal string) (c Connection, err error) {
	var u User
	err = s.find(ctx, into{&c, &u}, `JOIN users ON users.id = owner WHERE principal = $1 AND upstream = $2`, principal,
		upstream)
	if err == nil {
		err = sameRow("upstream_tokens", c.Principal, principal, c.Upstream, upstream, c.User, u.ID)
	}
	switch {
	case err != nil:
		return Connection{}, err
	case !u.Disabled.IsZero():
		return Connection{}, ErrNotFound
	}
	return c, nil
}

// Connections returns a user's connections by upstream, without the tokens.
func (s *Store) Connections(ctx context.Context, user string) ([]Connection, error) {
	return list[Connection](ctx, s, `WHERE owner = $1 ORDER BY upstream`, user)
}

// GivenKeys returns the connections with a key, by upstream and principal, without the keys.
func (s *Store) GivenKeys(ctx context.Context) ([]Connection, error) {
	return list[Connection](ctx, s, `WHERE issuer = '`+KeyIssuer+`' ORDER BY upstream, principal`)
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
	err = s.get(ctx, []any{&one}, `SELECT 1 FROM upstream_tokens WHERE id = $1 AND version = $2`, c.row(), c.version)
	if err == nil {
		err = ErrUsed
	}
	return err
}

// RenewConnection stores the renewed Access, Refresh, Scope and Expires of c, and releases the
// claim. ErrNotFound means that the user has disconnected or reconnected in the meantime; that
// stays.
func (s *Store) RenewConnection(ctx context.Context, c Connection) error {
	c.Broken, c.Given = false, s.now()
	secrets := c.secrets()
	return s.only(ctx,
		`UPDATE upstream_tokens SET access_enc = $3, refresh_enc = $4, scope = $5, expires_at = $6,
			version = version + 1, claimed_until = 0, updated_at = $7, mac = $8
		WHERE id = $1 AND version = $2`, c.row(), c.version, s.stored(secrets[0].value), s.stored(secrets[1].value),
		c.Scope, seconds(c.Expires), seconds(c.Given), s.sign(&c))
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
	c.Broken, c.Given, c.Access, c.Refresh = true, s.now(), "", ""
	_, err := s.exec(ctx, `UPDATE upstream_tokens SET state = '`+connectionBroken+
		`', access_enc = NULL, refresh_enc = NULL, version = version + 1, claimed_until = 0, updated_at = $3, mac = $4
		WHERE id = $1 AND version = $2`, c.row(), c.version, seconds(c.Given), s.sign(&c))
	return err
}

// DeleteConnection deletes a user's connection, and returns it so that its tokens can be revoked.
// ErrNotFound means that there is none.
func (s *Store) DeleteConnection(ctx context.Context, upstream, user string) (c Connection, err error) {
	wanted := Connection{Upstream: upstream, User: user}
	err = s.change(ctx, &c, `DELETE FROM upstream_tokens WHERE id = $1`, wanted.row())
	if err == nil {
		err = sameRow("upstream_tokens", c.Upstream, upstream, c.User, user)
	}
	return c, err
}

// UpstreamClient is this server's registration as a client at the authorization server of an
// upstream.
type UpstreamClient struct {
	Upstream, Issuer, RedirectURI string
	ClientID                      string
	Secret                        string // sealed in the store; "" if there is none
	AuthMethod                    string // token_endpoint_auth_method
	// SecretExpires is when the authorization server ends Secret; zero if it does not, or if that is
	// unknown. Created is when the registration was stored: AddUpstreamClient sets it, unless it is set.
	SecretExpires, Created time.Time
}

// row is the primary key, which is made of all three.
func (c *UpstreamClient) row() string { return hash(c.Upstream + " " + c.Issuer + " " + c.RedirectURI) }

func (c *UpstreamClient) table() string { return "upstream_clients" }

func (c *UpstreamClient) fields() []field {
	return []field{{"upstream", &c.Upstream}, {"issuer", &c.Issuer}, {"redirect_uri", &c.RedirectURI},
		{"client_id", &c.ClientID}, {"auth_method", &c.AuthMethod}, {"created_at", &c.Created},
		{"secret_expires_at", &c.SecretExpires}}
}

func (c *UpstreamClient) secrets() []field {
	return []field{sealedField("secret_enc", c, &c.Secret)}
}

// free: the times only decide when this server registers again. A release before the column does not know
// secret_expires_at, so its codes do not have it.
func (c *UpstreamClient) free() []string { return []string{"created_at", "secret_expires_at"} }

func (c *UpstreamClient) ended() bool { return false }

// AddUpstreamClient stores a registration unless there is one. It returns the stored one.
func (s *Store) AddUpstreamClient(ctx context.Context, c UpstreamClient) (UpstreamClient, error) {
	if c.Created.IsZero() {
		c.Created = s.now()
	}
	statement, args := s.insertion(&c, field{"id", c.row()})
	if _, err := s.exec(ctx, statement+` ON CONFLICT (id) DO NOTHING`, args...); err != nil {
		return c, err
	}
	return s.UpstreamClient(ctx, c.Upstream, c.Issuer, c.RedirectURI)
}

// UpstreamClient returns the registration for an upstream at an issuer with a redirect URI;
// ErrNotFound if there is none.
func (s *Store) UpstreamClient(ctx context.Context, upstream, issuer, redirect string) (UpstreamClient, error) {
	c := UpstreamClient{Upstream: upstream, Issuer: issuer, RedirectURI: redirect}
	err := s.find(ctx, into{&c}, `WHERE id = $1`, c.row())
	if err == nil {
		err = sameRow("upstream_clients", c.Upstream, upstream, c.Issuer, issuer, c.RedirectURI, redirect)
	}
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

// SupersedeUpstreamClient stores next in place of old, and keeps old as kept: the same registration under
// another issuer, which is free or has an earlier one. It returns the stored registration: another process
// may have been faster.
func (s *Store) SupersedeUpstreamClient(ctx context.Context, old, kept, next UpstreamClient) (
	stored UpstreamClient, err error,
) {
	err = s.WithTx(ctx, func(ctx context.Context) error {
		n, err := s.exec(ctx, `DELETE FROM upstream_clients WHERE id = $1 AND client_id = $2`, old.row(), old.ClientID)
		if err == nil && n > 0 {
			err = s.ReplaceUpstreamClient(ctx, kept)
		}
		if err == nil {
			stored, err = s.AddUpstreamClient(ctx, next)
		}
		return err
	})
	return stored, err
}

// DropUpstreamClient deletes a registration that the issuer no longer knows.
func (s *Store) DropUpstreamClient(ctx context.Context, c UpstreamClient) error {
	_, err := s.exec(ctx, `DELETE FROM upstream_clients WHERE id = $1 AND client_id = $2`, c.row(), c.ClientID)
	return err
}
