-- A store of schema 3, as SQLite dumps it, sealed with the key a of the tests on 2026-11-21 at 12:00 UTC.
CREATE TABLE schema_migrations (version BIGINT PRIMARY KEY, at BIGINT NOT NULL);
INSERT INTO schema_migrations VALUES(1,1795262400);
INSERT INTO schema_migrations VALUES(2,1795262400);
INSERT INTO schema_migrations VALUES(3,1795262400);
CREATE TABLE canary (id TEXT PRIMARY KEY, secret_enc BLOB NOT NULL);
INSERT INTO canary VALUES('canary',X'020161d2a7fe692f2b3293eab3b33f5a60a38246eba5df341f4f198e6a47ade8e7ddc74a05946b07fd967d327c16f8ea9a');
CREATE TABLE leases (id TEXT PRIMARY KEY, holder TEXT NOT NULL, since BIGINT NOT NULL);
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
INSERT INTO users VALUES('ojk5ZxhjL-F5QWA_8S3quA','https://idp.example','ann','ann@example.com','',NULL,1795262400,1795262400,0,X'0301617565accbcebfb2789daf0da0e15b0cb10bbbcf8f4223cf1e2476637f2e13293e');
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
INSERT INTO idp_sessions VALUES('gf_ruh9WneO5Hf-4FGPU9Q','ojk5ZxhjL-F5QWA_8S3quA','idp','','',X'0201613338238d41075c248e6b130ddb0b5790aeece3ed2722e6163c030c35085d6ef834e474934b551cae3e64ee6653171396',NULL,1795262400,1795262400,1795266000,0,0,X'0301618eba3a09e424b8368fa416d5abf189cfbd83a494e3c2f055046b0e068e1b6c8c');
CREATE TABLE web_sessions (
	id_hash TEXT PRIMARY KEY,
	user_id TEXT NOT NULL REFERENCES users (id),
	idp_session_id TEXT NOT NULL REFERENCES idp_sessions (id),
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	mac BLOB
);
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
INSERT INTO auth_requests VALUES('H1i5FFsk0QjXrDiIcziz6jIpgzucHkGCUDQ_kHv9EEc','gPcK_u88qldkb9IK-5W-nD8sA9OOCRkG3jGDiBPcwi4','203.0.113.9/32','authorize','client','',NULL,'','','',NULL,NULL,'idp','S6aXNcpTdl7WpwnttWxuoja3GTo7KaazkMNG8PQ0Dk4','nonce',X'0201610e75c48c8317644ad0ad208c3ee176da3048caeed9e96e9c5fd9959b25992b88289c32cf',1795262400,1795262400,0,1795263000,X'0301614c2b771f30cc151eb6237ce31d4cc6a2032d334ea228e540bb312a9913f05b91');
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
INSERT INTO grants VALUES('iOFu1fnB0Pu7GlNoEA0Keg','ojk5ZxhjL-F5QWA_8S3quA','gf_ruh9WneO5Hf-4FGPU9Q','client','','','','','',NULL,1795262400,1795262400,1803038400,0,'',X'030161b6a49b808aa20130ef633bbbace943a3dce5167f3c4e1b8676e0bc68c15e3480');
CREATE TABLE oauth_codes (
	signature TEXT PRIMARY KEY,
	grant_id TEXT NOT NULL REFERENCES grants (id),
	request_id TEXT NOT NULL,
	request BLOB,
	active BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	mac BLOB
);
CREATE TABLE oauth_pkce (
	signature TEXT PRIMARY KEY,
	request BLOB,
	expires_at BIGINT NOT NULL,
	mac BLOB
);
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
INSERT INTO oauth_tokens VALUES('sig-rt0','rt','iOFu1fnB0Pu7GlNoEA0Keg','request',NULL,'rotated',1795262400,1795262400,'sig-rt1',X'0205746f6b656e823f7c98311c2119232b1dfab72b1253b767ff545f6f9e3ae6cf2f70f57e036fb7fb4846d855e036ff7f06',1797854400,NULL);
INSERT INTO oauth_tokens VALUES('sig-at-rt0','at','iOFu1fnB0Pu7GlNoEA0Keg','request',NULL,'active',1795262400,0,'',NULL,1797854400,X'03016120c51380e90a60a403078db89a22611dc493bf13e9a362622b3474729950aae3');
INSERT INTO oauth_tokens VALUES('sig-rt1','rt','iOFu1fnB0Pu7GlNoEA0Keg','request',NULL,'active',1795262400,0,'',NULL,1797854400,X'030161fee4cb292d146a3b80ca5e83a51d11ae51a9117656c4879323ee22b3720a86cf');
INSERT INTO oauth_tokens VALUES('sig-at-rt1','at','iOFu1fnB0Pu7GlNoEA0Keg','request',NULL,'active',1795262400,0,'',NULL,1797854400,X'030161f3c96df6e07ab1977454f697c6c3e3d273591345ab988736cbd2c13eed6060f9');
CREATE TABLE client_blocks (
	client_hash TEXT PRIMARY KEY,
	client_id TEXT NOT NULL,
	client_name TEXT NOT NULL,
	reason TEXT NOT NULL,
	at BIGINT NOT NULL
);
INSERT INTO client_blocks VALUES('TjiKsysQ3I28figUT1UoMK3HR4fB4sCCQDIHinnyJ_s','spam','Spam','phishing',1795262400);
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
INSERT INTO audit VALUES('18a1-x',1795262400,'signed_in','ojk5ZxhjL-F5QWA_8S3quA','client','203.0.113.9','abcdefgh-1',NULL,0);
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
, secret_expires_at BIGINT NOT NULL DEFAULT 0);
INSERT INTO upstream_clients VALUES('F8S_-6m6b2xFdNRhH6lOYLdh9U6u0yByOfuVJHqxCfE','linear','https://as.example','https://us/cb','us',X'02016185fdffb107c0aff1288934d79ae918a6e7cd9c0a73b3cc310d2995c7167d59970aba','none',1795262400,X'030161e9fe94522742b473e54c07f340f04eb2983174d3b7a0352376a535eb175c67b3',1797854400);
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
INSERT INTO upstream_tokens VALUES('linear/ojk5ZxhjL-F5QWA_8S3quA','linear','ojk5ZxhjL-F5QWA_8S3quA','user:ann',X'0201611bde1faaea2b422f715b7ea1296bff6465e56bccfe14beb67c8aa5428be17b9a9fab9838a913a8e794',X'020161adcfb46d4f9164d056d42d07269228a2680e7de990fa335da37d11a0d173b9383e55015bd9c4171d6ffc','','https://as.example','https://as.example/token','https://linear.example/mcp','us',0,'ok',1795262400000000000,0,1795262400,1795262400,X'03016185ef77e9455ed453051e422db6bfb55d8a49f94005dc7e7a555af820876134ca');
CREATE TABLE members (
	id TEXT PRIMARY KEY,
	address TEXT NOT NULL,
	fingerprint TEXT NOT NULL,
	digest TEXT NOT NULL,
	version TEXT NOT NULL,
	begun_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL
);
INSERT INTO members VALUES('m1','10.0.0.1:8422','fp','schema=1','v1',1795262400000000,1795262415000000);
CREATE TABLE session_owners (session_hash TEXT PRIMARY KEY, owner TEXT NOT NULL, expires_at BIGINT NOT NULL);
INSERT INTO session_owners VALUES('s1','m1',1797854400000000);
CREATE TABLE deleted_sessions (session_hash TEXT PRIMARY KEY, expires_at BIGINT NOT NULL);
INSERT INTO deleted_sessions VALUES('s2',1797854400000000);
CREATE TABLE used_ids (id_hash TEXT PRIMARY KEY, expires_at BIGINT NOT NULL);
INSERT INTO used_ids VALUES('u1',1797854400000000);
CREATE TABLE limit_shares (limit_hash TEXT PRIMARY KEY, shares TEXT NOT NULL, full_at BIGINT NOT NULL);
INSERT INTO limit_shares VALUES('p1','{"held":{"m1":1}}',1795262400000000);
CREATE TABLE configurations (
	digest TEXT PRIMARY KEY,
	number BIGINT NOT NULL,
	given_at BIGINT NOT NULL,
	wanted_at BIGINT NOT NULL,
	ended_at BIGINT NOT NULL
);
INSERT INTO configurations VALUES('d1',1,1795262400000000,0,0);
CREATE INDEX idp_sessions_user ON idp_sessions (user_id);
CREATE INDEX idp_sessions_sub ON idp_sessions (idp, sub);
CREATE INDEX idp_sessions_sid ON idp_sessions (idp, sid);
CREATE INDEX web_sessions_user ON web_sessions (user_id);
CREATE INDEX web_sessions_idp_session ON web_sessions (idp_session_id);
CREATE INDEX web_sessions_expires ON web_sessions (expires_at);
CREATE INDEX auth_requests_expires ON auth_requests (expires_at);
CREATE INDEX auth_requests_network ON auth_requests (network, created_at);
CREATE INDEX grants_user ON grants (user_id);
CREATE INDEX grants_idp_session ON grants (idp_session_id);
CREATE INDEX grants_client ON grants (client_id);
CREATE INDEX grants_revoked ON grants (revoked_at);
CREATE INDEX oauth_codes_grant ON oauth_codes (grant_id);
CREATE INDEX oauth_codes_expires ON oauth_codes (expires_at);
CREATE INDEX oauth_pkce_expires ON oauth_pkce (expires_at);
CREATE INDEX oauth_tokens_grant ON oauth_tokens (grant_id);
CREATE INDEX oauth_tokens_request ON oauth_tokens (request_id);
CREATE INDEX oauth_tokens_expires ON oauth_tokens (expires_at);
CREATE INDEX assertion_jtis_expires ON assertion_jtis (expires_at);
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_unfiled ON audit (id) WHERE filed_at = 0;
CREATE INDEX upstream_tokens_owner ON upstream_tokens (owner);
CREATE INDEX upstream_tokens_principal ON upstream_tokens (principal, upstream);
CREATE INDEX session_owners_expires ON session_owners (expires_at);
CREATE INDEX deleted_sessions_expires ON deleted_sessions (expires_at);
CREATE INDEX used_ids_expires ON used_ids (expires_at);
CREATE INDEX limit_shares_full ON limit_shares (full_at);
