-- An answer that is given again has its ETag, too: without it the next decision of a caller
-- whose connection broke would name no version.

-- +goose Up
ALTER TABLE idempotency_keys ADD etag text;
