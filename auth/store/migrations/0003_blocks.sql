ALTER TABLE client_blocks ADD COLUMN client_id TEXT NOT NULL DEFAULT '';
ALTER TABLE client_blocks ADD COLUMN client_name TEXT NOT NULL DEFAULT '';
