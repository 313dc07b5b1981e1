-- Copies of a version that never came on record, under the keys that its object's
-- files have. Another version with the same content stores it under the same key, so
-- that they are told from copies that nobody knows, and deleted only while no item of
-- the object is in work.

-- +goose Up
ALTER TABLE unrecorded_copies ADD COLUMN keys text[] NOT NULL DEFAULT '{}';
CREATE INDEX unrecorded_copies_keys ON unrecorded_copies USING gin (keys);

-- +goose Down
DROP INDEX unrecorded_copies_keys;
ALTER TABLE unrecorded_copies DROP COLUMN keys;
