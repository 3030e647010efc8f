package store

import "database/sql"

// Database returns the connections to Postgres, for the tables of the replicas: their queries,
// and the deletion of their expired rows, are in cmd/junction/base/replicas. The result is nil for
// SQLite, and is closed with the store.
func (s *Store) Database() *sql.DB {
	if !s.postgres {
		return nil
	}
	return s.write
}
