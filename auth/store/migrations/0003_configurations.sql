-- The configurations that replicas have served, by a digest of the keys that all of them must have equal
-- (cmd/junction/base/replicas). The one with the highest number serves. Times are those of the database, as
-- in the table members: when the number was given; when a process with it last waited for processes with
-- a lower one; and when the last process with it was stopped.
CREATE TABLE configurations (
	digest TEXT PRIMARY KEY,
	number BIGINT NOT NULL,
	given_at BIGINT NOT NULL,
	wanted_at BIGINT NOT NULL,
	ended_at BIGINT NOT NULL
);
