-- The second person is another person, not the first one under another name: an e-mail
-- changes, and a command names a person otherwise than a server does. Rows from before have
-- names alone.
--
-- The index of the items of deletions has their status, too: each item that ends looks
-- whether it is the last. It is built while others write, outside a transaction; what an
-- interrupted migration has left is made again.

-- +goose NO TRANSACTION
-- +goose Up
ALTER TABLE plans ADD IF NOT EXISTS created_by_user bigint REFERENCES users, ADD IF NOT EXISTS approved_by_user bigint REFERENCES users,
	DROP CONSTRAINT IF EXISTS plans_two_users, ADD CONSTRAINT plans_two_users CHECK (approved_by_user <> created_by_user);
ALTER TABLE retrievals ADD IF NOT EXISTS requested_by bigint REFERENCES users;
DROP INDEX CONCURRENTLY IF EXISTS work_items_deletion_status;
CREATE INDEX CONCURRENTLY work_items_deletion_status ON work_items (deletion_request_id, status) WHERE deletion_request_id IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS work_items_deletion;
ALTER INDEX work_items_deletion_status RENAME TO work_items_deletion;
