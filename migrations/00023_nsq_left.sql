-- A mirror that ends in order leaves the messages of items that wait in their
-- channels. The next one tells them from what others publish meanwhile by when
-- they were published, and by how many they are.

-- +goose Up
ALTER TABLE nsq_topics
	ADD COLUMN left_at       timestamptz,               -- by nsqd's clock; NULL: it left no message
	ADD COLUMN left_messages bigint NOT NULL DEFAULT 0; -- that were its own
COMMENT ON COLUMN nsq_topics.settled IS 'The last mirror ended in order. All its messages were published before left_at.';

-- +goose Down
ALTER TABLE nsq_topics DROP COLUMN left_at, DROP COLUMN left_messages;
