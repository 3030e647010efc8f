-- When a process has written an event to its audit file: 0 is not yet, 1 is an event of an older version, which stays in the table only.
ALTER TABLE audit ADD COLUMN filed_at BIGINT NOT NULL DEFAULT 1;
CREATE INDEX audit_unfiled ON audit (id) WHERE filed_at = 0;
