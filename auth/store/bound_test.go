package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
)

// intruder is a program that can write to a database, and has no master key. It disregards references
// between tables.
type intruder struct {
	*sql.DB
	postgres bool
}

func mustIntrude(t *testing.T, d database) intruder {
	t.Helper()
	driver, dsn := "pgx", d.dsn
	if d.driver == SQLite {
		driver, dsn = "sqlite", sqliteURL(d.dsn, map[string][]string{"_pragma": {"busy_timeout(10000)"}})
	}
	db, err := sql.Open(driver, dsn)
	want(t, "Open", err, nil)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	if d.driver == Postgres {
		_, err = db.Exec(`SET session_replication_role = replica`)
		want(t, "SET", err, nil)
	}
	return intruder{db, d.driver == Postgres}
}

func (i intruder) must(t *testing.T, statement string, args ...any) {
	t.Helper()
	result, err := i.Exec(statement, args...)
	want(t, statement, err, nil)
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		t.Fatalf("%s has changed %d rows, %v", statement, n, err)
	}
}

// during runs f while a row has another value in a column, and puts the row's value back.
func (i intruder) during(t *testing.T, table, key, row, column string, other any, f func()) {
	t.Helper()
	var was any
	want(t, "SELECT", i.QueryRow(`SELECT `+column+` FROM `+table+` WHERE `+key+` = $1`, row).Scan(&was), nil)
	i.must(t, `UPDATE `+table+` SET `+column+` = $2 WHERE `+key+` = $1`, row, other)
	f()
	if column == key {
		row = other.(string)
	}
	i.must(t, `UPDATE `+table+` SET `+column+` = $2 WHERE `+key+` = $1`, row, was)
}

// possessions are all rows of one user, and how a server reads them. Each reader returns the error of
// the row, and what the row gives access to.
type possessions struct {
	keys    map[string]string // of the rows, by table
	readers map[string]func(ctx context.Context) (gives string, err error)
}

// mustOwn stores a row of a user in each table.
func mustOwn(t *testing.T, s *Store, name string) possessions {
	t.Helper()
	ctx, hour := t.Context(), s.now().Add(time.Hour)
	secret := func(what string) string {
		authtest.Secret(what, "canary-"+name+"-"+what)
		return "canary-" + name + "-" + what
	}
	u, err := s.PutUser(ctx, User{Issuer: "https://idp.example", Subject: name, Email: name + "@example.com",
		Display: name, Claims: []byte(`{"groups":["` + name + `"]}`)})
	want(t, "PutUser", err, nil)
	i, err := s.AddIDPSession(ctx, IDPSession{User: u.ID, IDP: "idp", RefreshToken: secret("idp-token"),
		Claims: []byte(name), Checked: s.now(), OKUntil: hour})
	want(t, "AddIDPSession", err, nil)
	want(t, "AddWebSession", s.AddWebSession(ctx, secret("cookie"),
		WebSession{User: u.ID, IDPSession: i.ID, Expires: hour}), nil)
	request, binding, state := secret("request"), secret("browser"), secret("state")
	want(t, "AddAuthRequest", s.AddAuthRequest(ctx, request, binding, AuthRequest{Purpose: "authorize",
		ClientID: "client of " + name, RedirectURI: "https://" + name + ".example/cb", State: []byte(name), Scope: name,
		Resource: "https://us/" + name, CodeChallenge: name, Request: []byte(name), Detail: []byte(name),
		Network: name, Expires: hour}), nil)
	_, err = s.ApproveAuthRequest(ctx, request, binding, Approval{IDP: "idp", State: state, Nonce: "nonce of " + name,
		Verifier: secret("verifier")})
	want(t, "ApproveAuthRequest", err, nil)
	g, err := s.AddGrant(ctx, Grant{User: u.ID, IDPSession: i.ID, ClientID: "client of " + name, ClientKind: "dcr",
		ClientName: name, RedirectHost: name + ".example", Resource: "https://us/" + name, Scope: name,
		Detail: []byte(name), Expires: hour})
	want(t, "AddGrant", err, nil)
	want(t, "AddCode", s.AddCode(ctx, Code{Signature: "code of " + name, Grant: g.ID, RequestID: name,
		Request: []byte(name), Expires: hour}), nil)
	want(t, "AddPKCE", s.AddPKCE(ctx, "code of "+name, []byte(name), hour), nil)
	for _, kind := range []string{AccessToken, RefreshToken} {
		want(t, "AddToken", s.AddToken(ctx, Token{Signature: kind + " of " + name, Kind: kind, Grant: g.ID,
			RequestID: name, Request: []byte(name), Expires: hour}), nil)
	}
	want(t, "PutDocument", s.PutDocument(ctx, Document{URL: "https://" + name + ".example/app", Body: []byte(name),
		Fetched: s.now(), FreshUntil: hour}), nil)
	c, err := s.AddUpstreamClient(ctx, UpstreamClient{Upstream: "linear", Issuer: "https://as." + name + ".example",
		RedirectURI: "https://us/cb", ClientID: "us at " + name, Secret: secret("client-secret"), AuthMethod: "post"})
	want(t, "AddUpstreamClient", err, nil)
	k := Connection{Upstream: "linear", User: u.ID, Principal: "user:" + name, Access: secret("access"),
		Refresh: secret("refresh"), Scope: name, Issuer: "https://as." + name + ".example",
		Resource: "https://linear.example/" + name, ClientID: "us at " + name, Expires: hour}
	want(t, "PutConnection", s.PutConnection(ctx, k), nil)
	return possessions{map[string]string{"users": u.ID, "idp_sessions": i.ID,
		"web_sessions": hash(secret("cookie")), "auth_requests": hash(request), "grants": g.ID,
		"oauth_codes": "code of " + name, "oauth_pkce": "code of " + name, "oauth_tokens": AccessToken + " of " + name,
		"cimd_cache": "https://" + name + ".example/app", "upstream_clients": c.row(), "upstream_tokens": k.row(),
	}, map[string]func(ctx context.Context) (string, error){
		"users": func(ctx context.Context) (string, error) {
			u, err := s.User(ctx, u.ID)
			return u.Subject, err
		},
		"idp_sessions": func(ctx context.Context) (string, error) {
			i, err := s.IDPSession(ctx, i.ID)
			return i.RefreshToken, err
		},
		"web_sessions": func(ctx context.Context) (string, error) {
			w, _, err := s.WebSession(ctx, secret("cookie"))
			return w.User, err
		},
		"auth_requests": func(ctx context.Context) (string, error) {
			a, err := s.ConsumeAuthRequest(ctx, "idp", state, binding)
			return a.Verifier, err
		},
		"grants": func(ctx context.Context) (string, error) {
			a, err := s.Access(ctx, AccessToken+" of "+name)
			return a.User.Subject, err
		},
		"oauth_codes": func(ctx context.Context) (string, error) {
			c, err := s.Code(ctx, "code of "+name)
			return c.Grant, err
		},
		"oauth_pkce": func(ctx context.Context) (string, error) {
			request, err := s.TakePKCE(ctx, "code of "+name)
			return string(request), err
		},
		"oauth_tokens": func(ctx context.Context) (string, error) {
			a, err := s.Access(ctx, AccessToken+" of "+name)
			return a.User.Subject, err
		},
		"cimd_cache": func(ctx context.Context) (string, error) {
			d, err := s.Document(ctx, "https://"+name+".example/app")
			return string(d.Body), err
		},
		"upstream_clients": func(ctx context.Context) (string, error) {
			c, err := s.UpstreamClient(ctx, c.Upstream, c.Issuer, c.RedirectURI)
			return c.Secret, err
		},
		"upstream_tokens": func(ctx context.Context) (string, error) {
			c, err := s.Connection(ctx, "linear", "user:"+name)
			return c.Access, err
		},
	}}
}

var errUndo = errors.New("undo")

// gives reads a row in a transaction that is undone, since some readers use the row up.
func (p possessions) gives(t *testing.T, s *Store, table string) (text string, err error) {
	t.Helper()
	undone := s.WithTx(t.Context(), func(ctx context.Context) error {
		text, err = p.readers[table](ctx)
		return errUndo
	})
	want(t, "WithTx", undone, errUndo)
	return text, err
}

// changed returns how many rows Check would name.
func changed(t *testing.T, s *Store) int {
	t.Helper()
	r := Report{}
	want(t, "verifyAll", s.verifyAll(t.Context(), &r), nil)
	return len(r.Problems)
}

// problems returns how many problems Check finds.
func problems(t *testing.T, d database) int {
	t.Helper()
	r, err := Check(t.Context(), d.config(t))
	want(t, "Check", err, nil)
	return len(r.Problems)
}

// over are the errors of rows that have come to their end.
func over(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, ErrExpired) || errors.Is(err, ErrUsed) ||
		errors.Is(err, ErrRevoked)
}

// ends are columns that end what a row permits.
var ends = []string{"state", "active", "ended_at", "revoked_at"}

// TestNoColumnOfABoundRowCanBeChanged changes each bound column of each table, the sealed ones
// included: the row gives nothing any more, and Check finds it.
func TestNoColumnOfABoundRowCanBeChanged(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s := mustOpenUnswept(t, d, newClock().now)
		ann, bob := mustOwn(t, s, "ann"), mustOwn(t, s, "bob")
		if n := problems(t, d); n > 0 {
			t.Fatalf("%d problems before any change", n)
		}
		i := mustIntrude(t, d)
		for _, table := range boundRows {
			r := table.blank()
			name := r.table()
			for _, f := range columnsOf(r) {
				if slices.Contains(r.free(), f.column) {
					continue
				}
				others := []any{"another", ""}
				switch f.value.(type) {
				case *time.Time, *int64:
					others = []any{int64(1), s.now().Add(30 * time.Minute).Unix(), int64(0)}
				case *[]byte:
					others = []any{[]byte("another"), nil}
				case *secret, *code: // first that of another user
					var his []byte
					want(t, "SELECT", i.QueryRow(`SELECT `+f.column+` FROM `+name+` WHERE `+table.key+` = $1`,
						bob.keys[name]).Scan(&his), nil)
					others = []any{his, nil}
				case optional:
					others = []any{"another", nil}
				}
				for _, other := range others {
					var was, is string
					column := `SELECT coalesce(CAST(` + f.column + ` AS TEXT), '') FROM ` + name + ` WHERE ` + table.key + ` = $1`
					want(t, "SELECT", i.QueryRow(column, ann.keys[name]).Scan(&was), nil)
					i.during(t, name, table.key, ann.keys[name], f.column, other, func() {
						key := ann.keys[name]
						if f.column == table.key {
							key = other.(string)
						}
						if key == "" {
							return // no id is empty
						}
						want(t, "SELECT", i.QueryRow(column, key).Scan(&is), nil)
						if was == is {
							return
						}
						what := fmt.Sprintf("%s.%s = %v", name, f.column, other)
						got, err := ann.gives(t, s, name)
						if errors.Is(err, ErrChanged) && got != "" || !errors.Is(err, ErrChanged) && !over(err) {
							t.Errorf("%s: the row gives %q, %v", what, got, err)
						}
						if n := changed(t, s); n != 1 && !slices.Contains(ends, f.column) {
							t.Errorf("%s: Check finds %d problems, want 1", what, n)
						}
					})
				}
			}
			if got, err := ann.gives(t, s, name); err != nil || got == "" {
				t.Errorf("with all values back, the row of %s gives %q, %v", name, got, err)
			}
		}
	})
}

// TestMovedTokensAreNotUsed changes the columns that say whose token it is, and where it may go, and
// asks for the token as the one who would gain it.
func TestMovedTokensAreNotUsed(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s, ctx := mustOpenUnswept(t, d, newClock().now), t.Context()
		ann := mustOwn(t, s, "ann")
		i := mustIntrude(t, d)
		for _, tt := range []struct{ column, value, upstream, principal string }{
			{"principal", "user:mallory", "linear", "user:mallory"},
			{"upstream", "mallory", "mallory", "user:ann"},
			{"issuer", "https://mallory.example", "linear", "user:ann"},
			{"token_endpoint", "https://mallory.example/token", "linear", "user:ann"},
			{"resource", "https://mallory.example/mcp", "linear", "user:ann"},
			{"client_id", "mallory", "linear", "user:ann"},
			{"scope", "everything", "linear", "user:ann"},
		} {
			i.during(t, "upstream_tokens", "id", ann.keys["upstream_tokens"], tt.column, tt.value, func() {
				c, err := s.Connection(ctx, tt.upstream, tt.principal)
				want(t, "another "+tt.column, err, ErrChanged)
				if c.Access+c.Refresh+c.Issuer != "" {
					t.Errorf("another %s gives %+v", tt.column, c)
				}
			})
		}
		i.during(t, "upstream_clients", "id", ann.keys["upstream_clients"], "issuer", "https://mallory.example", func() {
			mallory := UpstreamClient{Upstream: "linear", Issuer: "https://mallory.example", RedirectURI: "https://us/cb"}
			i.during(t, "upstream_clients", "id", ann.keys["upstream_clients"], "id", mallory.row(), func() {
				c, err := s.UpstreamClient(ctx, mallory.Upstream, mallory.Issuer, mallory.RedirectURI)
				want(t, "a client secret for another issuer", err, ErrChanged)
				if c.Secret != "" {
					t.Errorf("another issuer gives %+v", c)
				}
			})
		})
		// A user who disconnects gets the row deleted, and none of its tokens is sent for revocation.
		i.must(t, `UPDATE upstream_tokens SET issuer = 'https://mallory.example'`)
		c, err := s.DeleteConnection(ctx, "linear", ann.keys["users"])
		want(t, "DeleteConnection", err, ErrChanged)
		if c.Refresh+c.Access != "" {
			t.Errorf("DeleteConnection = %+v", c)
		}
		_, err = s.DeleteConnection(ctx, "linear", ann.keys["users"])
		want(t, "DeleteConnection again", err, ErrNotFound)
	})
}

// TestEndedRowsStayEnded ends what a user has, and sets the columns back that say so.
func TestEndedRowsStayEnded(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpenUnswept(t, d, c.now), t.Context()
		i := mustIntrude(t, d)
		for name, tt := range map[string]struct {
			end  func(p possessions) error
			back string
			read string // table
		}{
			"a used code": {func(p possessions) error { return s.UseCode(ctx, p.keys["oauth_codes"]) },
				`UPDATE oauth_codes SET active = 1`, "oauth_codes"},
			"a consumed request": {func(p possessions) error { _, err := p.readers["auth_requests"](ctx); return err },
				`UPDATE auth_requests SET consumed_at = 0`, "auth_requests"},
			"a session that has ended": {func(p possessions) error {
				_, err := s.EndIDPSession(ctx, p.keys["idp_sessions"], "test")
				return err
			}, `UPDATE idp_sessions SET ended_at = 0`, "idp_sessions"},
			"a revoked grant": {func(p possessions) error { _, err := s.RevokeGrant(ctx, p.keys["grants"], "test"); return err },
				`UPDATE grants SET revoked_at = 0, revoke_reason = ''`, "grants"},
			"its token": {func(p possessions) error { _, err := s.RevokeGrant(ctx, p.keys["grants"], "test"); return err },
				`UPDATE oauth_tokens SET state = 'active'`, "oauth_tokens"},
			"a disabled user": {func(p possessions) error { _, err := s.DisableUser(ctx, p.keys["users"], "test"); return err },
				`UPDATE users SET disabled_at = 0`, "users"},
		} {
			t.Run(name, func(t *testing.T) {
				p := mustOwn(t, s, strings.ReplaceAll(name, " ", "-"))
				want(t, "the end", tt.end(p), nil)
				i.must(t, tt.back)
				got, err := p.gives(t, s, tt.read)
				if got != "" || !errors.Is(err, ErrChanged) && !errors.Is(err, ErrRevoked) {
					t.Errorf("set back, it gives %q, %v", got, err)
				}
			})
		}
	})
}

// TestReplaysAreBound moves the time and the successor of a rotated token: its answer is not given
// again.
func TestReplaysAreBound(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpenUnswept(t, d, c.now), t.Context()
		mustIssue(t, s, mustGrant(t, s, "ann"), "rt0")
		_, err := exchange(ctx, s, "client", "rt0", "rt1")
		want(t, "exchange", err, nil)
		i := mustIntrude(t, d)
		c.pass(24 * time.Hour)
		i.must(t, `UPDATE oauth_tokens SET rotated_at = $1 WHERE signature = 'sig-rt0'`, seconds(c.now()))
		answer, err := exchange(ctx, s, "client", "rt0", "x")
		want(t, "an old answer", err, ErrChanged)
		if answer != "" {
			t.Errorf("the answer is %q", answer)
		}
	})
}

// TestAddedGrantsAllowNothing adds a grant for an app that no user has allowed.
func TestAddedGrantsAllowNothing(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s, ctx := mustOpenUnswept(t, d, newClock().now), t.Context()
		ann := mustOwn(t, s, "ann")
		mustIntrude(t, d).must(t, `INSERT INTO grants SELECT 'added', user_id, idp_session_id, 'mallory', client_kind,
			client_name, 'mallory.example', resource, scope, detail, created_at, last_used_at, expires_at, revoked_at,
			revoke_reason, mac FROM grants WHERE id = $1`, ann.keys["grants"])
		if allowed, err := s.ClientAllowed(ctx, "mallory"); allowed || err != nil {
			t.Errorf("ClientAllowed = %v, %v", allowed, err)
		}
		if allowed, err := s.ClientAllowed(ctx, "client of ann"); !allowed || err != nil {
			t.Errorf("ClientAllowed of her app = %v, %v", allowed, err)
		}
	})
}

// TestOperatorsCanEndChangedRows: a changed row cannot be used, and it does not keep the operator from
// ending it, nor from replacing the master key.
func TestOperatorsCanEndChangedRows(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s, ctx := mustOpenNow(t, d), t.Context()
		ann := mustOwn(t, s, "ann")
		i := mustIntrude(t, d)
		i.must(t, `UPDATE users SET email = 'mallory@example.com'`)
		i.must(t, `UPDATE grants SET scope = 'everything'`)
		_, err := s.PutUser(ctx, User{Issuer: "https://idp.example", Subject: "ann"})
		want(t, "a sign-in of a changed user", err, ErrChanged)
		rotated := d
		rotated.keys = mustRing(t, "b", "a")
		want(t, "Close", s.Close(), nil)
		s = mustOpenUnswept(t, rotated, nil)
		if r, err := s.Reencrypt(ctx); err != nil || r.Changed != 2 || r.Values == 0 || r.Rows == 0 {
			t.Errorf("Reencrypt = %+v, %v; want two rows left", r, err)
		}
		d.keys = mustRing(t, "b")
		if n := problems(t, d); n != 2 {
			t.Errorf("with the new key there are %d problems, want 2", n)
		}
		ended, err := s.DisableUser(ctx, ann.keys["users"], "test")
		if err != nil || len(ended.Grants) != 1 || ended.Sessions != 1 {
			t.Errorf("DisableUser = %+v, %v", ended, err)
		}
		_, err = s.Grant(ctx, ann.keys["grants"])
		want(t, "the changed grant", err, ErrRevoked)
		want(t, "EnableUser of a changed user", s.EnableUser(ctx, ann.keys["users"]), ErrChanged)
		if all, err := s.Users(ctx, ""); err != nil || len(all) != 1 || all[0].Disabled.IsZero() {
			t.Errorf("Users = %+v, %v; want her, disabled", all, err)
		}
	})
}
