-- A refusal has a code and arguments, from which each channel makes the next step in its own
-- words: the functions that find out why return these too.

-- +goose Up
DROP FUNCTION IF EXISTS requeue_refusal(work_items, text);
DROP FUNCTION IF EXISTS typed_in_shell(text);
