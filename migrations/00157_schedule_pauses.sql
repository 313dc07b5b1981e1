-- A pause of a job is a record, as one of a stage is: who, why, since when.

-- +goose Up
ALTER TABLE schedules ADD COLUMN paused_by text, ADD COLUMN paused_at timestamptz, ADD COLUMN pause_reason text;
INSERT INTO pauses (action, stage, paused_by) SELECT 'Schedule', job, 'unknown' FROM schedules WHERE paused;
UPDATE schedules SET paused_by = 'unknown', paused_at = now() WHERE paused;
UPDATE administration_rights SET privilege = 'UPDATE (paused, pause_reason, next_run_at)' WHERE on_table = 'schedules' AND privilege LIKE 'UPDATE%';
