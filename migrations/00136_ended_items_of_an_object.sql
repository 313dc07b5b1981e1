-- The items of an object that have ended, and those that wait for a person, are found by the
-- object: all that an institution had of such items were read. Transitions write the index
-- once for each item, when it ends.
-- It is built outside a transaction; what an interrupted build has left is built again.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS work_items_ended_object;
CREATE INDEX CONCURRENTLY work_items_ended_object ON work_items (object_identifier) WHERE NOT retry;
