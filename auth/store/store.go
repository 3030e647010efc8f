// Package store keeps users, sessions, grants, codes and tokens in a SQLite file or in Postgres.
//
// Every method takes part in the transaction of its context, may be called by several goroutines,
// and blocks on the database. By file:
//
//   - store.go: Open and Close; transactions (WithTx, Keep)
//   - rows.go: the statements that read and add the rows of all tables
//   - users.go: User
//   - sessions.go: IDPSession, a session at a provider; WebSession, a signed-in browser; SignOut
//   - requests.go: AuthRequest, a sign-in in progress
//   - grants.go: Grant, what a user allowed a client
//   - tokens.go: Code, Token, and Access (an access token with its grant and user)
//   - refresh.go: Refresh exchanges a refresh token once, and repeats the same answer for a while
//   - connections.go: Connection, a user's sign-in at an upstream; UpstreamClient
//   - clients.go: Document, a cached client metadata document; Block; UseAssertion
//   - audit.go: Event; time.go: how times are stored, and how long operations take
//   - sealed.go: what sealed columns and rows are bound to; Reencrypt, and the detection of wrong keys
//   - bound.go: rows with a code (MAC), which no other program can change or move
//   - schema.go: compares the schema of a database with that of this program
//   - backup.go: Backup, Restore and Check, of a store that another process may use
//   - database.go: Database, for tables with queries in another package
//   - members.go: the processes over one Postgres, and what a command must know of them
//   - migrate.go, lease.go, sweep.go, bounds.go: the schema, one process per SQLite file, deletion
//     of expired rows, and limits on rows that unauthenticated requests can add
//   - migrate_invented.go, migrate_released.go: an invented next version, for tests of upgrades
//
// Callers pass secrets as they are; the store hashes or seals them. Signatures of codes and tokens
// are not secret. An error that is none of the Err values means that the database failed. Such a
// failure must not end a sign-in.
//
// # A new table or column
//
// It is a new file in migrations with the next number, for SQLite and Postgres. The file of a
// migration never changes (released in migrate_test.go). It uses only types, indexes and references that schema.go can
// compare. A release has at most one new step, and the release before must work with it, because
// processes over Postgres are upgraded one by one (migrate.go). So a step only adds: tables, plain
// indexes, and columns that are nullable or have the default 0 or an empty text. The release that
// adds a column of a bound table writes only its default. A step removes only what the release
// before no longer used.
//
// If a row decides about access, its record is bound (bound.go): it has a column mac, is in
// boundRows, so that check, rotate and restore know it, and in mustOwn of bound_test.go. Each
// statement that changes a bound column also sets mac. A new column of a bound table has an empty
// default (NULL, 0 or an empty text), so that the codes of older rows stay valid. Secrets are
// sealed (sealedField), and the columns are in the tables of sealed.go. A read row must have the
// key that was asked for (sameRow). Rows that expire are in the sweep.
//
// testdata has a dump of a store of each schema, whose sign-ins migrate_test.go continues. Tests
// run on both databases (run in store_test.go).
package store

import (
	"cmp"
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

	"junction/auth/seal"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"
)

// The drivers of Config.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
)

// Errors about a row. Any other error is a failure of the store.
var (
	ErrNotFound = errors.New("no such entry")
	ErrExpired  = errors.New("it has expired")
	ErrUsed     = errors.New("it was already used")
	ErrRevoked  = errors.New("it was revoked")
	// ErrText means that a text cannot be stored: it contains a zero byte, or is not UTF-8.
	ErrText = errors.New("a text is not UTF-8, or contains a zero byte")
	// ErrKeys means that the store was sealed with other master keys.
	ErrKeys = errors.New("the master keys are not those of this store")
	// ErrSchema means that the schema has something that this program has not made, or lacks something.
	ErrSchema = errors.New("the schema of the store is not that of this program")
	// ErrInUse means that another process uses the file.
	ErrInUse = errors.New("another process uses this file")
	// ErrNewer means that the schema has more steps than this program knows.
	ErrNewer = errors.New("the store was made by another version of this program")
	// ErrMembers means that other processes use the database, so that its schema must stay.
	ErrMembers = errors.New("other processes use the database")
)

// Config configures Open.
type Config struct {
	Driver string     // SQLite, the default, or Postgres
	DSN    string     // the path of a file, or a Postgres URL or key=value list
	Keys   *seal.Ring // required; see package seal
	// Attach opens a store that another process runs, for a command that reads or changes a few
	// rows: without a lease, a migration or a sweeper.
	Attach bool
	Log    *slog.Logger     // nil discards
	Now    func() time.Time // nil is time.Now
	// Audited is called when an event is about to be stored. It must not block, and may be nil.
	Audited func()
	// Took is called for each Read, Write and Commit; failed means that the database could not do it. It
	// must not block, and may be nil.
	Took func(operation string, took time.Duration, failed bool)

	// Upstreams returns the names of the upstreams in the file, nil as long as they are not known. It may be nil:
	// then no key of a user is deleted because its upstream is missing.
	Upstreams func() []string

	steps []step // of the schema; nil means the steps of this program, and tests have others
}

// Store is an open store. Close it.
type Store struct {
	write *sql.DB // for SQLite one connection, so that writers queue here
	read  *sql.DB // for Postgres the same as write
	// forUpdate ends a SELECT of a row that the transaction will change. SQLite's write
	// transactions exclude each other anyway.
	forUpdate string
	postgres  bool
	patience  time.Duration // limits statements and transactions; 0 for no limit
	keys      *seal.Ring
	vault     *seal.Vault // of sealed columns
	codes     *seal.MAC   // of rows
	log       *slog.Logger
	now       func() time.Time
	audited   func()                            // may be nil
	upstreams func() []string                   // see Config; may be nil
	measured  func(string, time.Duration, bool) // may be nil
	lease     *lease                            // nil if there is none
	steps     []step                            // of the schema
	has       map[string]bool                   // columns of an older schema, as table.column; nil for the latest
	bounds    bounds
	added     atomic.Int64 // requests, by this process

	stop    context.CancelFunc // ends the sweeper
	sweeper sync.WaitGroup
}

// Open opens a store, creates or migrates its schema, and starts its sweeper. Before it changes
// anything, it fails with ErrInUse if another process uses the SQLite file, with ErrKeys if the
// keys are not the store's, with ErrNewer if the schema is unknown, and with ErrMembers if it is older
// and other processes use the database.
func Open(ctx context.Context, c Config) (*Store, error) {
	s, err := open(ctx, c)
	if err == nil && !c.Attach {
		ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
		s.sweeper.Go(func() { s.sweepNowAndThen(ctx) })
	}
	return s, err
}

// open is Open without the sweeper.
func open(ctx context.Context, c Config) (*Store, error) {
	s, err := connect(ctx, c)
	if err != nil {
		return nil, err
	}
	how := migrateAlone
	if c.Attach {
		how = noMigration
	}
	_, err = s.migrate(ctx, how)
	if err == nil && s.lease != nil {
		err = s.signLease(ctx)
	}
	if s.postgres {
		s.patience = patience // from now on: a migration may take long
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// blank returns a Store without a database.
func blank(c Config) (*Store, error) {
	if c.steps == nil {
		c.steps = steps()
	}
	if c.Keys == nil {
		return nil, errors.New("cannot open the store without master keys")
	}
	return &Store{log: cmp.Or(c.Log, slog.New(slog.DiscardHandler)), now: c.now, audited: c.Audited, measured: c.Took,
		upstreams: c.Upstreams,
		steps:     c.steps, bounds: defaultBounds(), keys: c.Keys, vault: c.Keys.Vault("vault"),
		codes: c.Keys.MAC("rows")}, nil
}

// connect returns a Store whose schema and keys are not checked yet.
func connect(ctx context.Context, c Config) (_ *Store, err error) {
	s, err := blank(c)
	if err != nil {
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
		return nil, fmt.Errorf("unknown driver of the store; use %s or %s, not %q", SQLite, Postgres, c.Driver)
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// openSQLite opens a file with one writer and several readers. The file is readable by its owner
// only; SQLite gives its side files the same permissions.
func (s *Store) openSQLite(ctx context.Context, c Config) error {
	if c.DSN == "" || strings.HasPrefix(c.DSN, "file:") || strings.HasPrefix(c.DSN, ":") {
		return fmt.Errorf("the DSN of SQLite must be the path of a file, not %q", c.DSN)
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
		if err := touch(file); err != nil {
			return err
		}
		if file, err = filepath.EvalSymlinks(file); err != nil { // two names of a file share one lease
			return err
		}
		if s.lease, err = takeLease(ctx, file); err != nil {
			return err
		}
	}
	// Commits are synchronous: a rotated token that comes back after a power cut would end its
	// user's sign-in.
	pragmas := url.Values{"_txlock": {"immediate"},
		"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)",
			"trusted_schema(0)"}}
	if s.write, err = sql.Open("sqlite", sqliteURL(file, pragmas)); err != nil {
		return err
	}
	s.write.SetMaxOpenConns(1)
	if err := s.write.PingContext(ctx); err != nil {
		return fmt.Errorf("open %s: %w", file, err)
	}
	pragmas = url.Values{"_pragma": {"busy_timeout(10000)", "query_only(1)", "trusted_schema(0)"}}
	if s.read, err = sql.Open("sqlite", sqliteURL(file, pragmas)); err != nil {
		return err
	}
	s.read.SetMaxOpenConns(4)
	s.read.SetMaxIdleConns(4)
	return nil
}

// touch creates a file, readable by its owner, unless it exists.
func touch(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// sqliteURL returns the URL of a file, with its path escaped.
func sqliteURL(file string, query url.Values) string {
	p := filepath.ToSlash(file)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // C:/…
	}
	return "file://" + (&url.URL{Path: p}).EscapedPath() + "?" + query.Encode()
}

// Ping returns an error if the store does not answer.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.version(ctx)
	return err
}

// Close waits for the sweeper, and closes all connections. It rolls open transactions back.
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

// txKey is the context key of a transaction of this store.
type txKey struct{ *Store }

// transaction is the transaction of a context. Nested calls of WithTx share it.
type transaction struct {
	*sql.Tx
	doomed bool // a nested call has failed
}

func txOf(ctx context.Context, s *Store) *transaction {
	tx, _ := ctx.Value(txKey{s}).(*transaction)
	return tx
}

// errDoomed means that a nested call failed, so that the outermost one cannot commit.
var errDoomed = errors.New("a nested transaction was rolled back")

// WithTx runs f in a transaction, and commits it if f returns nil or an error of Keep. Methods that
// get f's context take part in the transaction, and a nested WithTx is part of it. It is for one
// goroutine. f must not wait for anything but the store: SQLite allows one transaction at a time.
func (s *Store) WithTx(ctx context.Context, f func(ctx context.Context) error) error {
	if outer := txOf(ctx, s); outer != nil {
		err := f(ctx)
		if _, kept := errors.AsType[keep](err); err != nil && !kept {
			outer.doomed = true
		}
		return err
	}
	limited, cancel := s.within(ctx)
	defer cancel()
	began := time.Now()
	tx, err := s.write.BeginTx(limited, nil)
	if err != nil {
		s.took(Write, began, &err)
		return fmt.Errorf("begin a transaction: %w", err)
	}
	defer func() { // does nothing after the commit
		if undo := tx.Rollback(); undo != nil && !errors.Is(undo, sql.ErrTxDone) {
			s.log.Warn("cannot roll back a transaction", "error", undo)
		}
	}()
	inner := &transaction{Tx: tx}
	err = f(context.WithValue(limited, txKey{s}, inner))
	kept, isKept := errors.AsType[keep](err)
	switch {
	case err != nil && !isKept:
		return err
	case inner.doomed:
		return errDoomed
	}
	began = time.Now()
	err = tx.Commit()
	s.took(Commit, began, &err)
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return kept.error
}

// keep is an error that does not cause a rollback.
type keep struct{ error }

func (k keep) Unwrap() error { return k.error }

// Keep returns an error that makes WithTx or Refresh commit. The caller of WithTx gets err itself.
func Keep(err error) error { return keep{err} }

// lock ends a SELECT of rows that the transaction of ctx will change; "" outside of a transaction.
func (s *Store) lock(ctx context.Context) string {
	if txOf(ctx, s) == nil {
		return ""
	}
	return s.forUpdate
}

// hash returns the stored form of a secret with at least 128 random bits.
func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// NewID returns a random id of 128 bits in 22 characters. It does not begin with -, so that it can
// be an argument of a command.
func NewID() string {
	for {
		var id [16]byte
		rand.Read(id[:]) // never fails, see crypto/rand
		if text := base64.RawURLEncoding.EncodeToString(id[:]); text[0] != '-' {
			return text
		}
	}
}
