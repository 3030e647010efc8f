package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

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
	defer s.took(Write, time.Now())
	ctx, cancel := s.within(ctx)
	defer cancel()
	result, err := s.in(ctx, s.write).ExecContext(ctx, query, args...)
	if err != nil {
		return 0, fmt.Errorf("store: %w", err)
	}
	return result.RowsAffected()
}

// only runs a statement that changes one row, and returns ErrNotFound if it changed none.
func (s *Store) only(ctx context.Context, query string, args ...any) error {
	n, err := s.exec(ctx, query, args...)
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

// scanner is a *sql.Row or *sql.Rows.
type scanner interface{ Scan(dest ...any) error }

// get reads one row with scan; it returns ErrNotFound if there is none.
func (s *Store) get(ctx context.Context, scan func(scanner) error, query string, args ...any) error {
	defer s.took(Read, time.Now())
	return s.one(ctx, s.read, scan, query, args)
}

// change is get for a statement that changes the row and returns it.
func (s *Store) change(ctx context.Context, scan func(scanner) error, query string, args ...any) error {
	defer s.took(Write, time.Now())
	return s.one(ctx, s.write, scan, query, args)
}

func (s *Store) one(ctx context.Context, db *sql.DB, scan func(scanner) error, query string, args []any) error {
	if err := storable(args); err != nil {
		return err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
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
	defer s.took(Read, time.Now())
	return s.each(ctx, s.read, scan, query, args)
}

func (s *Store) each(ctx context.Context, db *sql.DB, scan func(scanner) error, query string, args []any) error {
	if err := storable(args); err != nil {
		return err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
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

// storable rejects texts that one of the two databases cannot store.
func storable(args []any) error {
	for _, arg := range args {
		if text, ok := arg.(string); ok && (!utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0) {
			return ErrText
		}
	}
	return nil
}

// patience limits each statement and each transaction of a database that is reached over a network:
// one that does not answer must hold up no caller for longer.
const patience = 5 * time.Second

// within returns a context for a statement or a transaction, and what releases it.
func (s *Store) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.patience == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.patience)
}
