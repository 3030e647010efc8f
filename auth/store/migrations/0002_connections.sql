CREATE TABLE upstream_clients (
	id TEXT PRIMARY KEY, upstream TEXT NOT NULL, issuer TEXT NOT NULL, redirect_uri TEXT NOT NULL, client_id TEXT NOT NULL, secret_enc BLOB, auth_method TEXT NOT NULL,
	created_at BIGINT NOT NULL
);
CREATE TABLE upstream_tokens (
	id TEXT PRIMARY KEY, upstream TEXT NOT NULL, owner TEXT NOT NULL REFERENCES users (id), principal TEXT NOT NULL, access_enc BLOB, refresh_enc BLOB,
	scope TEXT NOT NULL, issuer TEXT NOT NULL, resource TEXT NOT NULL, client_id TEXT NOT NULL, expires_at BIGINT NOT NULL, state TEXT NOT NULL, version BIGINT NOT NULL,
	claimed_until BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL
);
CREATE INDEX upstream_tokens_owner ON upstream_tokens (owner);
CREATE INDEX upstream_tokens_principal ON upstream_tokens (principal, upstream);
