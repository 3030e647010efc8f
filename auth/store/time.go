package store

import (
	"fmt"
	"time"
)

// Operations on the database, for Config.Took.
const (
	Read   = "read"
	Write  = "write" // with the wait for other writers
	Commit = "commit"
)

// took reports the time of an operation.
func (s *Store) took(operation string, began time.Time) {
	if s.measured != nil {
		s.measured(operation, time.Since(began))
	}
}

// seconds returns the stored form of a time: Unix seconds, 0 for the zero time.
func seconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// moment scans a stored time; 0 is the zero time.
type moment struct{ *time.Time }

// Scan implements sql.Scanner.
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
