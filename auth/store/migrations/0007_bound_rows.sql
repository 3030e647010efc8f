-- The code of a row (HMAC with a key that is derived from the master key) over the columns that decide. Rows of an older version have none, and no code is made for a row
-- that may have been changed: the sign-ins of older versions end. The audit, the blocked clients and the used assertions stay.
DELETE FROM upstream_tokens;
DELETE FROM upstream_clients;
DELETE FROM cimd_cache;
DELETE FROM oauth_pkce;
DELETE FROM oauth_codes;
DELETE FROM oauth_tokens;
DELETE FROM grants;
DELETE FROM auth_requests;
DELETE FROM web_sessions;
DELETE FROM idp_sessions;
DELETE FROM users;
ALTER TABLE users ADD COLUMN mac BLOB;
ALTER TABLE idp_sessions ADD COLUMN mac BLOB;
ALTER TABLE web_sessions ADD COLUMN mac BLOB;
ALTER TABLE auth_requests ADD COLUMN mac BLOB;
ALTER TABLE grants ADD COLUMN mac BLOB;
ALTER TABLE oauth_codes ADD COLUMN mac BLOB;
ALTER TABLE oauth_pkce ADD COLUMN mac BLOB;
ALTER TABLE oauth_tokens ADD COLUMN mac BLOB;
ALTER TABLE cimd_cache ADD COLUMN mac BLOB;
ALTER TABLE upstream_clients ADD COLUMN mac BLOB;
ALTER TABLE upstream_tokens ADD COLUMN mac BLOB;
-- The token endpoint that issued the tokens of a connection. They are renewed only at its origin.
ALTER TABLE upstream_tokens ADD COLUMN token_endpoint TEXT NOT NULL DEFAULT '';
