-- A store with Object Lock keeps copies for a time, or under a legal hold. A deletion waits for
-- that, and the receipts say until when.

-- +goose Up
ALTER TABLE deletion_receipts ADD kept_by_store text NOT NULL DEFAULT ''; -- '': the store does not keep it
