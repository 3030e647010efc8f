package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"junction/auth/authtest"
)

// TestPatience: with Postgres, no statement and no transaction waits for longer than its time limit,
// here for a table that another connection has locked.
func TestPatience(t *testing.T) {
	s := mustOpenUnswept(t, database{Postgres, authtest.Schema(t), mustRing(t, "a")}, newClock().now)
	if s.patience != patience {
		t.Errorf("the time limit is %v, want %v", s.patience, patience)
	}
	s.patience = 50 * time.Millisecond
	lock, err := s.Database().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Rollback()
	if _, err := lock.Exec(`LOCK TABLE users IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	place := []any{new(string)}
	const read, write = `SELECT id FROM users`, `UPDATE users SET id = id`
	for name, ask := range map[string]func(context.Context) error{
		"get":          func(ctx context.Context) error { return s.get(ctx, place, read) },
		"changeValues": func(ctx context.Context) error { return s.changeValues(ctx, place, write+` RETURNING id`) },
		"texts":        func(ctx context.Context) error { _, err := s.texts(ctx, read); return err },
		"exec":         func(ctx context.Context) error { _, err := s.exec(ctx, write); return err },
		"transaction": func(ctx context.Context) error {
			return s.WithTx(ctx, func(ctx context.Context) error {
				_, err := txOf(ctx, s).ExecContext(ctx, write)
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // without a limit, this ends the wait
			defer cancel()
			if err := ask(ctx); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
				t.Errorf("got %v (%v), want the end of the time limit", err, ctx.Err())
			}
		})
	}
}
