ALTER TABLE auth_requests ADD COLUMN network TEXT NOT NULL DEFAULT '';
CREATE INDEX auth_requests_network ON auth_requests (network, created_at);
