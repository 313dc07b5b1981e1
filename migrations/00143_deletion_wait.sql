-- An approved deletion waits before anything is removed, so that a mistake can be stopped: the
-- installation has a time for that, and an institution may have its own. When a request may
-- begin is fixed at its approval. An approved request can be cancelled, too.

-- +goose Up
ALTER TABLE request_settings ADD deletion_wait interval NOT NULL DEFAULT '24 hours'
	CONSTRAINT request_settings_deletion_wait CHECK (deletion_wait BETWEEN '0' AND '90 days');
ALTER TABLE institutions ADD deletion_wait interval -- NULL: that of request_settings
	CONSTRAINT institutions_deletion_wait CHECK (deletion_wait BETWEEN '0' AND '90 days');
ALTER TABLE deletion_requests ADD begins_at timestamptz; -- NULL: it is not approved
ALTER TABLE deletion_requests DISABLE TRIGGER USER; -- what was approved before has waited for nothing
UPDATE deletion_requests SET begins_at = approved_at WHERE approved_at IS NOT NULL;
ALTER TABLE deletion_requests ENABLE TRIGGER USER;
ALTER TABLE deletion_requests DROP CONSTRAINT decided_once,
	ADD CONSTRAINT deletion_requests_begin CHECK (begins_at IS NULL OR approved_at IS NOT NULL), -- those of before have none
	ADD CONSTRAINT cancelled_last CHECK (cancelled_at >= approved_at);
INSERT INTO administration_rights (privilege, on_table) VALUES ('UPDATE (deletion_wait)', 'institutions'), ('SELECT (begins_at)', 'deletion_requests');
