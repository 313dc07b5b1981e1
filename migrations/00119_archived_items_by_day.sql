-- Items are archived in the order in which they ended, so that a range of blocks has those of a
-- few days. Reports count them by day.

-- +goose NO TRANSACTION
-- +goose Up

DROP INDEX CONCURRENTLY IF EXISTS work_items_archive_day;
CREATE INDEX CONCURRENTLY work_items_archive_day ON work_items_archive USING brin (updated_at) WITH (pages_per_range = 32, autosummarize = on);
