-- When the client secret of a registration expires, as the authorization server has said; 0 if it does
-- not, or if that is unknown.
ALTER TABLE upstream_clients ADD COLUMN secret_expires_at BIGINT NOT NULL DEFAULT 0;
