-- One text serves SQLite and Postgres: BLOB becomes BYTEA there. Times are seconds since 1970, 0 for
-- none. Columns that end in _enc are sealed, and those that end in _hash are SHA-256. mac is the code
-- of a row (sealed.go). Bytes that clients choose are a BLOB: a TEXT of Postgres rejects NUL and
-- invalid UTF-8.

-- The keys of the store, and the process that uses a SQLite file.
CREATE TABLE canary (id TEXT PRIMARY KEY, secret_enc BLOB NOT NULL);
CREATE TABLE leases (id TEXT PRIMARY KEY, holder TEXT NOT NULL, since BIGINT NOT NULL);

-- Users and their sign-ins.
CREATE TABLE users (
	id TEXT PRIMARY KEY,
	issuer TEXT NOT NULL,
	subject TEXT NOT NULL,
	email TEXT NOT NULL,
	display TEXT NOT NULL,
	claims BLOB,
	created_at BIGINT NOT NULL,
	last_seen_at BIGINT NOT NULL,
	disabled_at BIGINT NOT NULL,
	mac BLOB,
	UNIQUE (issuer, subject)
);
CREATE TABLE idp_sessions (
	id TEXT PRIMARY KEY,
	user_id TEXT NOT NULL REFERENCES users (id),
	idp TEXT NOT NULL,
	sub TEXT NOT NULL,
	sid TEXT NOT NULL,
	refresh_token_enc BLOB,
	claims BLOB,
	created_at BIGINT NOT NULL,
	checked_at BIGINT NOT NULL,
	ok_until BIGINT NOT NULL,
	claimed_until BIGINT NOT NULL,
	ended_at BIGINT NOT NULL,
	mac BLOB
);
CREATE INDEX idp_sessions_user ON idp_sessions (user_id);
CREATE INDEX idp_sessions_sub ON idp_sessions (idp, sub);
CREATE INDEX idp_sessions_sid ON idp_sessions (idp, sid);
CREATE TABLE web_sessions (
	id_hash TEXT PRIMARY KEY,
	user_id TEXT NOT NULL REFERENCES users (id),
	idp_session_id TEXT NOT NULL REFERENCES idp_sessions (id),
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	mac BLOB
);
CREATE INDEX web_sessions_user ON web_sessions (user_id);
CREATE INDEX web_sessions_idp_session ON web_sessions (idp_session_id);
CREATE INDEX web_sessions_expires ON web_sessions (expires_at);
CREATE TABLE auth_requests (
	id_hash TEXT PRIMARY KEY,
	binding_hash TEXT NOT NULL,
	network TEXT NOT NULL,
	purpose TEXT NOT NULL,
	client_id TEXT NOT NULL,
	redirect_uri TEXT NOT NULL,
	client_state BLOB,
	scope TEXT NOT NULL,
	resource TEXT NOT NULL,
	code_challenge TEXT NOT NULL,
	request BLOB,
	detail BLOB,
	idp TEXT NOT NULL,
	idp_state_hash TEXT UNIQUE,
	nonce TEXT NOT NULL,
	pkce_enc BLOB,
	created_at BIGINT NOT NULL,
	approved_at BIGINT NOT NULL,
	consumed_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	mac BLOB
);
CREATE INDEX auth_requests_expires ON auth_requests (expires_at);
CREATE INDEX auth_requests_network ON auth_requests (network, created_at);

-- What users have granted to clients.
CREATE TABLE grants (
	id TEXT PRIMARY KEY,
	user_id TEXT NOT NULL REFERENCES users (id),
	idp_session_id TEXT NOT NULL REFERENCES idp_sessions (id),
	client_id TEXT NOT NULL,
	client_kind TEXT NOT NULL,
	client_name TEXT NOT NULL,
	redirect_host TEXT NOT NULL,
	resource TEXT NOT NULL,
	scope TEXT NOT NULL,
	detail BLOB,
	created_at BIGINT NOT NULL,
	last_used_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	revoked_at BIGINT NOT NULL,
	revoke_reason TEXT NOT NULL,
	mac BLOB
);
CREATE INDEX grants_user ON grants (user_id);
CREATE INDEX grants_idp_session ON grants (idp_session_id);
CREATE INDEX grants_client ON grants (client_id);
CREATE INDEX grants_revoked ON grants (revoked_at);
CREATE TABLE oauth_codes (
	signature TEXT PRIMARY KEY,
	grant_id TEXT NOT NULL REFERENCES grants (id),
	request_id TEXT NOT NULL,
	request BLOB,
	active BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	mac BLOB
);
CREATE INDEX oauth_codes_grant ON oauth_codes (grant_id);
CREATE INDEX oauth_codes_expires ON oauth_codes (expires_at);
CREATE TABLE oauth_pkce (
	signature TEXT PRIMARY KEY,
	request BLOB,
	expires_at BIGINT NOT NULL,
	mac BLOB
);
CREATE INDEX oauth_pkce_expires ON oauth_pkce (expires_at);
CREATE TABLE oauth_tokens (
	signature TEXT PRIMARY KEY,
	kind TEXT NOT NULL,
	grant_id TEXT NOT NULL REFERENCES grants (id),
	request_id TEXT NOT NULL,
	request BLOB,
	state TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	rotated_at BIGINT NOT NULL,
	successor TEXT NOT NULL,
	replay_enc BLOB,
	expires_at BIGINT NOT NULL,
	mac BLOB
);
CREATE INDEX oauth_tokens_grant ON oauth_tokens (grant_id);
CREATE INDEX oauth_tokens_request ON oauth_tokens (request_id);
CREATE INDEX oauth_tokens_expires ON oauth_tokens (expires_at);

-- Clients.
CREATE TABLE client_blocks (
	client_hash TEXT PRIMARY KEY,
	client_id TEXT NOT NULL,
	client_name TEXT NOT NULL,
	reason TEXT NOT NULL,
	at BIGINT NOT NULL
);
CREATE TABLE cimd_cache (
	url TEXT PRIMARY KEY,
	document BLOB,
	failure TEXT NOT NULL,
	etag TEXT NOT NULL,
	fetched_at BIGINT NOT NULL,
	fresh_until BIGINT NOT NULL,
	mac BLOB
);
CREATE TABLE assertion_jtis (
	issuer TEXT NOT NULL,
	jti_hash TEXT NOT NULL,
	expires_at BIGINT NOT NULL,
	PRIMARY KEY (issuer, jti_hash)
);
CREATE INDEX assertion_jtis_expires ON assertion_jtis (expires_at);

-- filed_at is the time at which a process wrote the event to its audit file.
CREATE TABLE audit (
	id TEXT PRIMARY KEY,
	at BIGINT NOT NULL,
	event TEXT NOT NULL,
	principal TEXT NOT NULL,
	client_id TEXT NOT NULL,
	ip TEXT NOT NULL,
	request_id TEXT NOT NULL,
	detail BLOB,
	filed_at BIGINT NOT NULL
);
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_unfiled ON audit (id) WHERE filed_at = 0;

-- The sign-ins of users and of the operator at upstreams. Tokens are renewed only at the origin of
-- token_endpoint, which issued them.
CREATE TABLE upstream_clients (
	id TEXT PRIMARY KEY,
	upstream TEXT NOT NULL,
	issuer TEXT NOT NULL,
	redirect_uri TEXT NOT NULL,
	client_id TEXT NOT NULL,
	secret_enc BLOB,
	auth_method TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	mac BLOB
);
CREATE TABLE upstream_tokens (
	id TEXT PRIMARY KEY,
	upstream TEXT NOT NULL,
	owner TEXT NOT NULL REFERENCES users (id),
	principal TEXT NOT NULL,
	access_enc BLOB,
	refresh_enc BLOB,
	scope TEXT NOT NULL,
	issuer TEXT NOT NULL,
	token_endpoint TEXT NOT NULL,
	resource TEXT NOT NULL,
	client_id TEXT NOT NULL,
	expires_at BIGINT NOT NULL,
	state TEXT NOT NULL,
	version BIGINT NOT NULL,
	claimed_until BIGINT NOT NULL,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	mac BLOB
);
CREATE INDEX upstream_tokens_owner ON upstream_tokens (owner);
CREATE INDEX upstream_tokens_principal ON upstream_tokens (principal, upstream);

-- The replicas over one database, and what they share (cmd/junction/base/replicas). Only Postgres uses
-- these tables. Their times are microseconds since 1970 by the clock of the database.
CREATE TABLE members (
	id TEXT PRIMARY KEY,
	address TEXT NOT NULL,
	fingerprint TEXT NOT NULL,
	digest TEXT NOT NULL,
	version TEXT NOT NULL,
	begun_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL
);
CREATE TABLE session_owners (session_hash TEXT PRIMARY KEY, owner TEXT NOT NULL, expires_at BIGINT NOT NULL);
CREATE INDEX session_owners_expires ON session_owners (expires_at);
CREATE TABLE deleted_sessions (session_hash TEXT PRIMARY KEY, expires_at BIGINT NOT NULL);
CREATE INDEX deleted_sessions_expires ON deleted_sessions (expires_at);
CREATE TABLE used_ids (id_hash TEXT PRIMARY KEY, expires_at BIGINT NOT NULL);
CREATE INDEX used_ids_expires ON used_ids (expires_at);
CREATE TABLE limit_shares (limit_hash TEXT PRIMARY KEY, shares TEXT NOT NULL, full_at BIGINT NOT NULL);
CREATE INDEX limit_shares_full ON limit_shares (full_at);
