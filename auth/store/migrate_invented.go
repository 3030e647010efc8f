//go:build inventedschema

package store

// invented returns the step of an invented next version of this program, for tests of upgrades.
func invented() []step {
	return []step{{"0004_invented.sql", `CREATE TABLE invented (id TEXT PRIMARY KEY, at BIGINT NOT NULL);
ALTER TABLE users ADD COLUMN invented TEXT NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN invented BIGINT;
CREATE INDEX invented_users ON users (invented);
`}}
}
