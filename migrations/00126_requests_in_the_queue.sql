-- The index of requests in the queue has all of them, and not only those that wait: a list of
-- restorations read the whole queue. An ingest is not in it, so its transitions write no more
-- than before. Items of an institution that wait for a person have an index in the archive.
-- They are built outside a transaction; what an interrupted build has left is built again.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS work_items_all_requests;
CREATE INDEX CONCURRENTLY work_items_all_requests ON work_items (object_identifier, action) WHERE action <> 'Ingest';
DROP INDEX CONCURRENTLY IF EXISTS work_items_requests;
ALTER INDEX work_items_all_requests RENAME TO work_items_requests;
DROP INDEX CONCURRENTLY IF EXISTS work_items_archive_institution_review;
CREATE INDEX CONCURRENTLY work_items_archive_institution_review ON work_items_archive (institution_id, id) WHERE needs_admin_review;
