package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"junction/auth/authtest"
)

// TestTook reports operations of each kind, also those that fail.
func TestTook(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		counts, failures := map[string]int{}, map[string]int{}
		s, err := open(t.Context(), Config{Driver: d.driver, DSN: d.dsn, Keys: d.keys, Log: authtest.Log(t),
			Took: func(operation string, took time.Duration, failed bool) {
				if took < 0 {
					t.Errorf("%s took %v", operation, took)
				}
				counts[operation]++
				if failed {
					failures[operation]++
				}
			}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		clear(counts)
		if _, err := s.User(t.Context(), NewID()); !errors.Is(err, ErrNotFound) {
			t.Fatalf("User = %v, want %v", err, ErrNotFound)
		}
		if counts[Read] != 1 || counts[Write]+counts[Commit] != 0 {
			t.Errorf("a read is reported as %v", counts)
		}
		err = s.WithTx(t.Context(), func(ctx context.Context) error {
			_, err := s.PutUser(ctx, User{Issuer: "https://a.example", Subject: "1"})
			return err
		})
		if err != nil || counts[Write] == 0 || counts[Commit] != 1 {
			t.Errorf("a transaction is reported as %v (%v)", counts, err)
		}
		if len(failures) > 0 {
			t.Errorf("failures are reported although the database works: %v", failures)
		}
		left, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.User(left, "x"); err == nil || len(failures) > 0 {
			t.Errorf("a caller that has left is reported as %v (%v)", failures, err)
		}
		if _, err := s.write.ExecContext(t.Context(), "ALTER TABLE users RENAME TO gone"); err != nil {
			t.Fatal(err)
		}
		_, err = s.PutUser(t.Context(), User{Issuer: "https://a.example", Subject: "2"})
		if _, err := s.User(t.Context(), "x"); err == nil || failures[Read] != 1 {
			t.Errorf("a failed read is reported as %v (%v)", failures, err)
		}
		if err == nil || failures[Write] != 1 {
			t.Errorf("a failed write is reported as %v (%v)", failures, err)
		}
	})
}
