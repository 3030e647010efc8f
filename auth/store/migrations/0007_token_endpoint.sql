-- The token endpoint that issued the tokens of a connection. They are renewed only at its origin, so that the tokens of an older version, with "", are not renewed.
ALTER TABLE upstream_tokens ADD COLUMN token_endpoint TEXT NOT NULL DEFAULT '';
