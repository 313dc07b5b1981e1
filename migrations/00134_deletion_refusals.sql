-- Who refuses a deletion says why: the requester reads it, and it stays on record.

-- +goose Up
ALTER TABLE deletion_requests ADD cancel_reason text, -- NULL: none was given
	ADD CONSTRAINT deletion_requests_reason CHECK (cancel_reason IS NULL OR cancelled_at IS NOT NULL);
