-- What a stage leaves for the next ones, as long as it is small. It is written by the transaction that
-- ends the stage and deleted by the one that ends the item, so it costs neither requests nor commits.

-- +goose Up

CREATE TABLE work_item_lists (
	work_item_id bigint      NOT NULL, -- no foreign key: the item may be archived
	name         text        NOT NULL,
	content      bytea,                -- NULL: it is in the staging bucket
	staged       boolean     NOT NULL DEFAULT false, -- that bucket has it, or one of the same name by an earlier pass
	written_at   timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (work_item_id, name)
);
ALTER TABLE work_item_lists ALTER content SET STORAGE EXTERNAL; -- it is compressed

ALTER TABLE removals DROP CONSTRAINT removals_what_check,
	ADD CONSTRAINT removals_what_check CHECK (what IN ('objects', 'uploads', 'keys', 'lists', 'copies', 'bags'));
