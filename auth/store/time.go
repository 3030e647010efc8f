package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Operations on the database, for Config.Took.
const (
	Read   = "read"
	Write  = "write" // with the wait for other writers
	Commit = "commit"
)

// took reports the time of an operation, which has ended with err.
func (s *Store) took(operation string, began time.Time, err *error) {
	if s.measured != nil {
		s.measured(operation, time.Since(began), failed(*err))
	}
}

// failed reports whether the database could not do what it was asked for.
func failed(err error) bool {
	for _, other := range []error{ErrNotFound, ErrText, ErrChanged, context.Canceled} {
		if errors.Is(err, other) {
			return false
		}
	}
	return err != nil
}

// seconds returns the stored form of a time: Unix seconds, 0 for the zero time.
func seconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// number scans a stored number. SQLite stores a value of any type in a column of numbers: another one
// sets odd, and the other columns of the row are read all the same.
type number struct {
	to  *int64
	odd *error // wraps ErrChanged
}

// Scan implements sql.Scanner.
func (n number) Scan(value any) error {
	got, ok := value.(int64)
	if *n.to = got; !ok {
		*n.odd = fmt.Errorf("a number is a %T: %w", value, ErrChanged)
	}
	return nil
}

// moment scans a stored time like a number; 0 is the zero time.
type moment struct {
	to  *time.Time
	odd *error
}

// Scan implements sql.Scanner.
func (m moment) Scan(value any) error {
	var n int64
	err := number{&n, m.odd}.Scan(value)
	if *m.to = (time.Time{}); n != 0 {
		*m.to = time.Unix(n, 0).UTC()
	}
	return err
}
