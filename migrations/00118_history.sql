-- An index for the history of the queue and for reports by day: items of the archive by the
-- time at which they ended. They come into the archive in this order, so that a few pages
-- have the hours that people look at, and the index is tiny. It is built while others write,
-- outside a transaction; what an interrupted build has left is built again.

-- +goose NO TRANSACTION
-- +goose Up

DROP INDEX CONCURRENTLY IF EXISTS work_items_archive_updated;
CREATE INDEX CONCURRENTLY work_items_archive_updated ON work_items_archive USING brin (updated_at) WITH (pages_per_range = 32, autosummarize = on);
