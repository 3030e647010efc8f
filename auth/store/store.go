// Package store keeps what signing in leaves behind: users, sessions, grants, codes and tokens, in
// a SQLite file or in Postgres.
//
// What there is, by file; every method takes part in the transaction of its context, may be called
// by several goroutines at once, and blocks on the database:
//
//	store.go     Open, Store.Close; WithTx, and BeginTX, Commit, Rollback, which it is made of; Keep, for an error that is no reason to undo
//	users.go     User: PutUser, User, Users, DisableUser, EnableUser
//	sessions.go  IDPSession: AddIDPSession, IDPSession, IDPSessions, ClaimIDPSession, UpdateIDPSession, EndIDPSession · WebSession: AddWebSession, WebSession, WebSessions,
//	             EndWebSessions · SignOut, of all that a user has
//	requests.go  AuthRequest: AddAuthRequest, AuthRequest, ApproveAuthRequest, ConsumeAuthRequest (by the provider's state), ConsumeApproved (by its own id)
//	grants.go    Grant: AddGrant, Grant, Grants, TouchGrant, RevokeGrant, RevokeGrants, RevokedSince ·
//	             ClientAllowed, RedirectAllowed
//	tokens.go    Code: AddCode, Code, UseCode · AddPKCE, TakePKCE · Token: AddToken, Token · Access (an access token with its grant and user)
//	refresh.go   Refresh: one refresh token for its successor, once, with the replay of the same answer
//	connections.go  Connection: PutConnection, Connection, Connections, ClaimConnection and what ends a claim, DeleteConnection · UpstreamClient
//	clients.go   Document: PutDocument, Document · Block: BlockClient, UnblockClient, ClientBlocked, Blocks · UseAssertion
//	audit.go     Event: Audit, Events
//	sealed.go    Reencrypt; how columns are sealed, and the canary that knows a wrong key
//	migrate.go, lease.go, sweep.go: the schema, one process per SQLite file, rows that nobody needs any more
//	bounds.go: how many rows strangers can have stored
//
// Secrets are given to methods as they are, and hashed or sealed here, so that nobody can forget
// to. Signatures of codes and tokens are not secret. An error that is none of the Err values means
// that it could not be found out: the database is away, say. Nobody's sign-in is over for that.
package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"junction/auth/seal"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"
)

// The drivers of Config.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
)

// What is wrong with a row that was asked for. Everything else is a failure of the store.
var (
	ErrNotFound = errors.New("there is no such entry")
	ErrExpired  = errors.New("it has expired")
	ErrUsed     = errors.New("it has been used before")
	ErrRevoked  = errors.New("it was revoked")
	// ErrText means that a text cannot be stored: it holds a zero byte, or is not UTF-8.
	ErrText = errors.New("a text is not UTF-8, or holds a zero byte")
	// ErrKeys means that the master keys are not those that the store was sealed with.
	ErrKeys = errors.New("the master keys are not those of this store")
	// ErrInUse means that another process has the file.
	ErrInUse = errors.New("another process uses this file")
	// ErrNewer means that a newer version of the program has made the schema.
	ErrNewer = errors.New("the store was made by a newer version")
)

// Config says where the store is.
type Config struct {
	Driver string     // SQLite, the default, or Postgres
	DSN    string     // the path of a file, or a URL or key=value list that Postgres takes
	Keys   *seal.Ring // required; see package seal
	// Attach opens the file of a store that another process runs, for a command that looks at a few
	// rows or changes them: there is no lease, no new schema, and nothing is swept. Of Postgres it
	// means the last two.
	Attach bool
	Log    *slog.Logger     // nil discards
	Now    func() time.Time // nil is time.Now
}

// Store is an open store. Close it.
type Store struct {
	write *sql.DB // of SQLite one connection, so that writers queue here and not in the file
	read  *sql.DB // the same as write, of Postgres
	// forUpdate ends a SELECT of a row that the transaction is going to change; SQLite's
	// transactions exclude each other anyhow.
	forUpdate string
	postgres  bool
	vault     *seal.Vault
	log       *slog.Logger
	now       func() time.Time
	lease     *lease // nil where there is none
	bounds    bounds
	added     atomic.Int64 // requests, by this process

	stop    context.CancelFunc // ends the sweeper
	sweeper sync.WaitGroup
}

// Open opens a store, makes it or brings its schema up to date, and starts to sweep it. It refuses
// a SQLite file that another process has (ErrInUse), and, before it changes anything, keys that are
// not the store's (ErrKeys) and a schema that it does not know (ErrNewer).
func Open(ctx context.Context, c Config) (*Store, error) {
	s, err := open(ctx, c)
	if err == nil && !c.Attach {
		ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
		s.sweeper.Go(func() { s.sweepNowAndThen(ctx) })
	}
	return s, err
}

// open is Open of a store that does not sweep by itself.
func open(ctx context.Context, c Config) (_ *Store, err error) {
	if c.Keys == nil {
		return nil, errors.New("a store needs master keys")
	}
	s := &Store{log: c.Log, now: c.Now, bounds: defaultBounds()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	if s.vault, err = c.Keys.Vault("vault"); err != nil {
		return nil, err
	}
	switch c.Driver {
	case SQLite, "":
		err = s.openSQLite(ctx, c)
	case Postgres:
		s.postgres, s.forUpdate = true, " FOR UPDATE"
		if s.write, err = sql.Open("pgx", c.DSN); err == nil {
			s.write.SetMaxOpenConns(20)
			s.write.SetMaxIdleConns(20)
			s.write.SetConnMaxIdleTime(5 * time.Minute)
			s.read = s.write
		}
	default:
		return nil, fmt.Errorf("the store's driver is %s or %s, not %q", SQLite, Postgres, c.Driver)
	}
	if err != nil {
		return nil, err
	}
	if err := s.migrate(ctx, !c.Attach); err != nil {
		return nil, err
	}
	if s.lease != nil {
		if err := s.signLease(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// openSQLite opens a file as one writer and a few readers. It is made for its owner alone; what
// SQLite puts beside it gets the same permissions.
func (s *Store) openSQLite(ctx context.Context, c Config) error {
	if c.DSN == "" || strings.HasPrefix(c.DSN, "file:") || strings.HasPrefix(c.DSN, ":") {
		return fmt.Errorf("the store's file is given by its path, not by %q", c.DSN)
	}
	file, err := filepath.Abs(c.DSN)
	if err != nil {
		return err
	}
	if c.Attach {
		if _, err := os.Stat(file); err != nil {
			return err
		}
	} else {
		f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		if file, err = filepath.EvalSymlinks(file); err != nil { // two names of one file have one lease
			return err
		}
		if s.lease, err = takeLease(ctx, file); err != nil {
			return err
		}
	}
	// Every commit is on the disk before it is answered: a rotated token that a power cut brings
	// back would cost its user the sign-in.
	pragmas := url.Values{"_txlock": {"immediate"},
		"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)"}}
	if s.write, err = sql.Open("sqlite", sqliteURL(file, pragmas)); err != nil {
		return err
	}
	s.write.SetMaxOpenConns(1)
	if err := s.write.PingContext(ctx); err != nil {
		return fmt.Errorf("open %s: %w", file, err)
	}
	pragmas = url.Values{"_pragma": {"busy_timeout(10000)", "query_only(1)"}}
	if s.read, err = sql.Open("sqlite", sqliteURL(file, pragmas)); err != nil {
		return err
	}
	s.read.SetMaxOpenConns(4)
	s.read.SetMaxIdleConns(4)
	return nil
}

// sqliteURL returns the URL of a file, in which no character of its path means anything else.
func sqliteURL(file string, query url.Values) string {
	p := filepath.ToSlash(file)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // C:/…
	}
	return "file://" + (&url.URL{Path: p}).EscapedPath() + "?" + query.Encode()
}

// Close waits for the sweeper, and ends all connections. Transactions that are open then are
// undone.
func (s *Store) Close() error {
	if s.stop != nil {
		s.stop()
		s.sweeper.Wait()
	}
	var errs []error
	if s.read != nil && s.read != s.write {
		errs = append(errs, s.read.Close())
	}
	if s.write != nil {
		errs = append(errs, s.write.Close())
	}
	if s.lease != nil {
		errs = append(errs, s.lease.give())
	}
	return errors.Join(errs...)
}

// txKey finds the transaction of this store in a context.
type txKey struct{ *Store }

// frame is one level of a transaction: all levels are in the outermost one's.
type frame struct {
	tx     *sql.Tx
	nested bool
	doomed *bool // shared by all levels: an inner one wanted to undo, so the outermost must
}

// errDoomed is why a transaction is undone though its outermost level wants to commit.
var errDoomed = errors.New("a part of the transaction was undone")

// WithTx runs f in a transaction, and commits it if f returns nil or an error of Keep. Methods with
// the context that f is given take part in it, and a WithTx with that context is part of it too. It
// is for one goroutine. f must not wait for anything but the store: of SQLite there is one
// transaction at a time.
func (s *Store) WithTx(ctx context.Context, f func(ctx context.Context) error) error {
	inner, err := s.BeginTX(ctx)
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done { // f panicked
			_ = s.Rollback(inner)
		}
	}()
	err = f(inner)
	done = true
	var kept keep
	if err != nil && !errors.As(err, &kept) {
		if undo := s.Rollback(inner); undo != nil && !errors.Is(undo, sql.ErrTxDone) {
			s.log.Warn("a transaction could not be undone", "error", undo)
		}
		return err
	}
	if failed := s.Commit(inner); failed != nil {
		return failed
	}
	if frameOf(inner, s).nested {
		return err
	}
	if err != nil {
		return kept.error
	}
	return nil
}

// keep is an error that undoes nothing.
type keep struct{ error }

func (k keep) Unwrap() error { return k.error }

// Keep returns an error with which the function of WithTx, or of Refresh, ends without undoing what
// it has done. Whoever called WithTx gets err itself.
func Keep(err error) error { return keep{err} }

// BeginTX returns a context with a transaction, or with another level of the one that ctx has. It
// ends with Commit or Rollback, or when ctx does.
func (s *Store) BeginTX(ctx context.Context) (context.Context, error) {
	if outer := frameOf(ctx, s); outer != nil {
		return context.WithValue(ctx, txKey{s}, &frame{tx: outer.tx, nested: true, doomed: outer.doomed}), nil
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return ctx, fmt.Errorf("begin a transaction: %w", err)
	}
	return context.WithValue(ctx, txKey{s}, &frame{tx: tx, doomed: new(bool)}), nil
}

// Commit ends what BeginTX has begun. Only the outermost level writes; it undoes everything, and
// says so, if a level within was undone.
func (s *Store) Commit(ctx context.Context) error {
	f := frameOf(ctx, s)
	switch {
	case f == nil:
		return errors.New("commit without a transaction")
	case f.nested:
		return nil
	case *f.doomed:
		return errors.Join(errDoomed, f.tx.Rollback())
	}
	if err := f.tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// Rollback undoes what BeginTX has begun, and with it every level around it.
func (s *Store) Rollback(ctx context.Context) error {
	f := frameOf(ctx, s)
	if f == nil {
		return errors.New("rollback without a transaction")
	}
	*f.doomed = true
	if f.nested {
		return nil
	}
	return f.tx.Rollback()
}

func frameOf(ctx context.Context, s *Store) *frame {
	f, _ := ctx.Value(txKey{s}).(*frame)
	return f
}

// lock is what ends a SELECT of rows that the transaction of ctx is going to change; "" outside of
// one.
func (s *Store) lock(ctx context.Context) string {
	if frameOf(ctx, s) == nil {
		return ""
	}
	return s.forUpdate
}

// querier is a database or a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (s *Store) in(ctx context.Context, db *sql.DB) querier {
	if f := frameOf(ctx, s); f != nil {
		return f.tx
	}
	return db
}

// exec runs a statement, and returns how many rows it changed.
func (s *Store) exec(ctx context.Context, query string, args ...any) (int64, error) {
	if err := storable(args); err != nil {
		return 0, err
	}
	result, err := s.in(ctx, s.write).ExecContext(ctx, query, args...)
	if err != nil {
		return 0, fmt.Errorf("store: %w", err)
	}
	return result.RowsAffected()
}

// only runs a statement that is to change one row, and returns ErrNotFound if it changed none.
func (s *Store) only(ctx context.Context, query string, args ...any) error {
	n, err := s.exec(ctx, query, args...)
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

// scanner is a row, or the rows at one.
type scanner interface{ Scan(dest ...any) error }

// get reads one row by scan; it returns ErrNotFound if there is none.
func (s *Store) get(ctx context.Context, scan func(scanner) error, query string, args ...any) error {
	return s.one(ctx, s.read, scan, query, args)
}

// change is get for a statement that changes the row and returns it.
func (s *Store) change(ctx context.Context, scan func(scanner) error, query string, args ...any) error {
	return s.one(ctx, s.write, scan, query, args)
}

func (s *Store) one(ctx context.Context, db *sql.DB, scan func(scanner) error, query string, args []any) error {
	if err := storable(args); err != nil {
		return err
	}
	switch err := scan(s.in(ctx, db).QueryRowContext(ctx, query, args...)); {
	case errors.Is(err, sql.ErrNoRows):
		return ErrNotFound
	case err != nil:
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// all calls scan for each row.
func (s *Store) all(ctx context.Context, scan func(scanner) error, query string, args ...any) error {
	return s.each(ctx, s.read, scan, query, args)
}

func (s *Store) each(ctx context.Context, db *sql.DB, scan func(scanner) error, query string, args []any) error {
	if err := storable(args); err != nil {
		return err
	}
	rows, err := s.in(ctx, db).QueryContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// storable refuses for both databases what one of them would refuse.
func storable(args []any) error {
	for _, arg := range args {
		if text, ok := arg.(string); ok && (!utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0) {
			return ErrText
		}
	}
	return nil
}

// hash is what is stored of a secret of at least 128 random bits.
func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// NewID returns a random id of 128 bits in 22 characters, the first of which is no -, so that it
// can be an argument of a command. The rows that have one get it from here where theirs is "".
func NewID() string {
	for {
		var id [16]byte
		rand.Read(id[:]) // never fails, see crypto/rand
		if text := base64.RawURLEncoding.EncodeToString(id[:]); text[0] != '-' {
			return text
		}
	}
}

// seconds is a time as it is stored: 0 for none.
func seconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// moment is a stored time; the zero time for none.
type moment struct{ *time.Time }

// Scan reads the column.
func (m moment) Scan(value any) error {
	n, ok := value.(int64)
	switch {
	case !ok:
		return fmt.Errorf("a time is a %T", value)
	case n == 0:
		*m.Time = time.Time{}
	default:
		*m.Time = time.Unix(n, 0).UTC()
	}
	return nil
}
