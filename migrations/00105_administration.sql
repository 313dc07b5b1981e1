-- Administration: what people changed by hand, and bulk changes as plans.

-- +goose Up

CREATE TABLE work_item_audit (
	id               bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	work_item_id     bigint      NOT NULL, -- no foreign key: it stays when the item is archived
	at               timestamptz NOT NULL DEFAULT clock_timestamp(),
	session_user_is  text        NOT NULL DEFAULT session_user,
	application_name text        NOT NULL DEFAULT acting_program(),
	before           jsonb       NOT NULL,
	after            jsonb       NOT NULL,
	refused          text,
	person           text        DEFAULT acting_person()
);
CREATE INDEX work_item_audit_item ON work_item_audit (work_item_id);

CREATE TABLE stage_settings_audit (
	id               bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	action           text        NOT NULL,
	stage            text        NOT NULL,
	at               timestamptz NOT NULL DEFAULT clock_timestamp(),
	session_user_is  text        NOT NULL DEFAULT session_user,
	application_name text        NOT NULL DEFAULT acting_program(),
	before           jsonb       NOT NULL,
	after            jsonb       NOT NULL,
	person           text        DEFAULT acting_person()
);

-- A plan keeps its items and how each of them stood, so that what is applied is what
-- was looked at. It is applied and undone in batches, and the note of each item commits
-- with the change of the item: a crash leaves each item done once or not at all, and
-- the next run goes on from there.
CREATE TABLE plans (
	id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	action     text        NOT NULL CHECK (action IN ('requeue', 'cancel', 'set priority')),
	to_stage   text,
	priority   smallint    CHECK (priority BETWEEN -100 AND 100),
	reason     text,
	condition  text        NOT NULL,
	items      bigint      NOT NULL DEFAULT 0,
	refused    bigint      NOT NULL DEFAULT 0,
	bytes      bigint      NOT NULL DEFAULT 0,
	set_hash   text        NOT NULL DEFAULT '',
	state      text        NOT NULL DEFAULT 'ready' CHECK (state IN ('ready', 'applying', 'applied', 'undoing', 'undone')),
	upto       bigint      NOT NULL DEFAULT 0,
	tolerance  numeric,
	created_at timestamptz NOT NULL DEFAULT now(),
	created_by text        NOT NULL DEFAULT acting_user(),
	begun_at   timestamptz,
	begun_by   text,
	applied_at timestamptz,
	undone_at  timestamptz,
	undone_by  text,
	CHECK (to_stage IS NULL OR action = 'requeue'),
	CHECK (reason IS NULL OR action = 'cancel'),
	CONSTRAINT priority_is_named CHECK ((priority IS NOT NULL) = (action = 'set priority'))
);

CREATE TABLE plan_items (
	plan_id      bigint   NOT NULL REFERENCES plans ON DELETE CASCADE,
	work_item_id bigint   NOT NULL, -- no foreign key: it stays when the item is archived
	claim_token  bigint   NOT NULL,
	stage        text     NOT NULL,
	status       text     NOT NULL,
	priority     smallint NOT NULL,
	size         bigint   NOT NULL,
	state        text     NOT NULL DEFAULT 'planned'
		CHECK (state IN ('planned', 'done', 'refused', 'changed', 'undone', 'not undone')),
	detail       text     NOT NULL DEFAULT '',
	before       jsonb,
	token_after  bigint,
	PRIMARY KEY (plan_id, work_item_id),
	CONSTRAINT done_can_be_undone CHECK (
		(state IN ('planned', 'refused', 'changed')) = (before IS NULL) AND (before IS NULL) = (token_after IS NULL))
) WITH (fillfactor = 60); -- each row is written again once or twice

CREATE TYPE stage_pause AS (
	action text, stage text, paused boolean, paused_by text, paused_at timestamptz, pause_reason text
);
CREATE TYPE requeue_verdict AS (item bigint, change text, refused text, queued boolean);
