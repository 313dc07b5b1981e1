-- Indexes for lists of what people have requested: restorations and deletions are few among
-- the ingests of the archive. They are built outside a transaction; what an interrupted build
-- has left is built again.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS work_items_archive_requests;
CREATE INDEX CONCURRENTLY work_items_archive_requests ON work_items_archive (id) WHERE action <> 'Ingest';
DROP INDEX CONCURRENTLY IF EXISTS work_items_archive_institution_requests;
CREATE INDEX CONCURRENTLY work_items_archive_institution_requests ON work_items_archive (institution_id, id) WHERE action <> 'Ingest';
