-- The processes over one database, and what they must agree on (cmd/junction/replicas). Only Postgres uses these tables. Their times are microseconds since 1970 by the
-- clock of the database.
CREATE TABLE members (
	id TEXT PRIMARY KEY, address TEXT NOT NULL, fingerprint TEXT NOT NULL, digest TEXT NOT NULL, version TEXT NOT NULL, begun_at BIGINT NOT NULL, expires_at BIGINT NOT NULL
);
CREATE TABLE session_owners (session_hash TEXT PRIMARY KEY, owner TEXT NOT NULL, expires_at BIGINT NOT NULL);
CREATE INDEX session_owners_expires ON session_owners (expires_at);
CREATE TABLE deleted_sessions (session_hash TEXT PRIMARY KEY, expires_at BIGINT NOT NULL);
CREATE INDEX deleted_sessions_expires ON deleted_sessions (expires_at);
CREATE TABLE used_ids (id_hash TEXT PRIMARY KEY, expires_at BIGINT NOT NULL);
CREATE INDEX used_ids_expires ON used_ids (expires_at);
CREATE TABLE rates (rate_hash TEXT PRIMARY KEY, full_at BIGINT NOT NULL);
CREATE INDEX rates_full ON rates (full_at);
CREATE TABLE calls_in_flight (principal_hash TEXT PRIMARY KEY, calls TEXT NOT NULL, changed_at BIGINT NOT NULL);
CREATE INDEX calls_in_flight_changed ON calls_in_flight (changed_at);
