//go:build inventedschema

package store

// A program that is built with the tag inventedschema is an invented next version, for tests of
// upgrades: its schema has one step more.
func init() {
	invented = []step{{"0002_invented.sql", `CREATE TABLE invented (id TEXT PRIMARY KEY, at BIGINT NOT NULL);
ALTER TABLE users ADD COLUMN invented TEXT NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN invented BIGINT;
CREATE INDEX invented_users ON users (invented);
`}}
}
