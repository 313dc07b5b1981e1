-- A worker that was asked to stop, and is killed before it has given its items back, says
-- nothing of them: such an attempt ends as stopped, which does not count.

-- +goose Up
ALTER DOMAIN attempt_outcome DROP CONSTRAINT "how an attempt ends";
ALTER DOMAIN attempt_outcome ADD CONSTRAINT "how an attempt ends" CHECK (VALUE IN
	('done', 'transient', 'fatal', 'released', 'stopped', 'snoozed', 'sent back', 'held', 'lease expired', 'killed', 'oom', 'panic', 'cancelled')) NOT VALID;
