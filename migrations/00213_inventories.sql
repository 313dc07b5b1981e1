-- The records are compared with the S3 Inventory of each target that has one. Before a scheduler has
-- begun, the job can be run by hand and paused, as the others.

-- +goose Up

INSERT INTO schedules (job, every) VALUES ('inventories', '24 hours') ON CONFLICT DO NOTHING;
