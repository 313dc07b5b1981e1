-- Administration: what people changed by hand, bulk changes as plans, and the roles.
-- farol_admin does what docs/sql.md describes, and farol_auditor reads. What they may do with
-- tables and views is in two tables; grant_roles() gives it at the end of every farol migrate
-- up.

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
	note             text,
	person           text        DEFAULT acting_person(),
	actor            text        NOT NULL DEFAULT acting_user()
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
	person           text        DEFAULT acting_person(),
	actor            text        NOT NULL DEFAULT acting_user()
);

-- A plan keeps its items and how each of them stood, so that what is applied is what
-- was looked at. It is applied and undone in batches, and the note of each item commits
-- with the change of the item: a crash leaves each item done once or not at all, and
-- the next run goes on from there. A server carries out what people apply and undo over the
-- REST API, and if it dies, another one goes on. A large plan is approved by a second person,
-- who is not the first one under another name: an e-mail changes, and a command names a
-- person otherwise than a server does.
CREATE TABLE plans (
	id               bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	action           text        NOT NULL CHECK (action IN ('requeue', 'cancel', 'set priority')),
	to_stage         text,
	priority         smallint    CHECK (priority BETWEEN -100 AND 100),
	reason           text,
	condition        text        NOT NULL,
	items            bigint      NOT NULL DEFAULT 0,
	refused          bigint      NOT NULL DEFAULT 0,
	bytes            bigint      NOT NULL DEFAULT 0,
	set_hash         text        NOT NULL DEFAULT '',
	state            text        NOT NULL DEFAULT 'ready' CHECK (state IN ('ready', 'applying', 'applied', 'undoing', 'undone')),
	upto             bigint      NOT NULL DEFAULT 0,
	tolerance        numeric,
	created_at       timestamptz NOT NULL DEFAULT now(),
	created_by       text        NOT NULL DEFAULT acting_user(),
	begun_at         timestamptz,
	begun_by         text,
	applied_at       timestamptz,
	undone_at        timestamptz,
	undone_by        text,
	approved_by      text,
	approved_at      timestamptz,
	carry            text        CONSTRAINT plans_carry_known CHECK (carry IN ('apply', 'undo')),
	carry_for        text,
	created_by_user  bigint      REFERENCES users,
	approved_by_user bigint      REFERENCES users,
	-- A list of plans shows how far each is without counting its items.
	counts           jsonb       NOT NULL DEFAULT '{}',
	in_work          bigint      NOT NULL DEFAULT 0,
	CONSTRAINT plans_carried_for_someone CHECK ((carry IS NULL) = (carry_for IS NULL)),
	CONSTRAINT plans_two_people CHECK (approved_by <> created_by),
	CONSTRAINT plans_two_users CHECK (approved_by_user <> created_by_user),
	CHECK (to_stage IS NULL OR action = 'requeue'),
	CHECK (reason IS NULL OR action = 'cancel'),
	CONSTRAINT priority_is_named CHECK ((priority IS NOT NULL) = (action = 'set priority'))
);
CREATE INDEX plans_carried ON plans (id) WHERE carry IS NOT NULL;

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

CREATE TYPE requeue_verdict AS (item bigint, change text, refused text, queued boolean);

CREATE TABLE administration_rights (
	privilege text NOT NULL,
	on_table  text NOT NULL,
	PRIMARY KEY (on_table, privilege)
);
INSERT INTO administration_rights (privilege, on_table)
SELECT 'SELECT', unnest('{queue_depth, running, needs_review, failed, outcomes, workers, attempts, all_work_items,
	work_items, work_item_attempts, work_item_audit, attempt_resets, worker_processes, plans, plan_items, removals,
	stage_settings, stage_settings_audit, stage_names, stage_pauses, services, known_services, service_reports,
	institutions, deletion_requests, deletion_requests_generic_files, deletion_requests_intellectual_objects, deletion_receipts,
	storage_options, retrieval_prices, request_settings, retrievals, spot_restores, alerts,
	fixity_policies, fixity_checks, fixity_feed, fixity_done, fixity_failures, bad_copies, repair_stops, schedules,
	topic_messages, topic_readers, topic_receivers, topic_deliveries, deliveries, queues, topic_partitions, topic_requests, nsq_topics,
	actions, mail_outbox, alert_repeats, holdings_daily, daily_outcomes, exports, means_given, admins_left, pauses, stores}'::text[]);
INSERT INTO administration_rights (privilege, on_table) VALUES
	-- Neither how people sign in, nor the secrets of it.
	('SELECT (id, email, name, institution_id, role, deactivated_at, created_at, updated_at, password_set_at,
		second_factor_required, signed_in_at)', 'users'),
	('UPDATE (stage, status, priority, note, needs_admin_review)', 'work_items'),
	('UPDATE (paused, pause_reason, max_attempts, backoff_first, backoff_factor, backoff_most, cap, overdue, processing_timeout,
		heartbeat, lease, unrenewed_timeout, unrenewed_lease)', 'stage_settings'),
	('UPDATE', 'storage_options'), ('INSERT, UPDATE, DELETE', 'retrieval_prices'), ('UPDATE', 'request_settings'),
	('UPDATE (accepted_by)', 'deletion_receipts'), ('UPDATE (spot_restore_days)', 'institutions'),
	('UPDATE (mode, interval_days, paused_until)', 'fixity_policies'), ('UPDATE (paused, pause_reason, next_run_at)', 'schedules'),
	('UPDATE (deletion_wait)', 'institutions'), ('SELECT, INSERT, UPDATE, DELETE', 'mail_settings');

CREATE TABLE auditor_rights (
	on_table text PRIMARY KEY,
	columns  text NOT NULL DEFAULT ''
);
INSERT INTO auditor_rights (on_table) SELECT unnest('{institutions, intellectual_objects, generic_files, checksums, storage_records, premis_events,
	retired_copies, unrecorded_copies, storage_options, deletion_requests, deletion_requests_generic_files, deletion_requests_intellectual_objects, deletion_receipts,
	fixity_policies, fixity_checks, fixity_feed, fixity_done, fixity_failures, bad_copies, repair_stops, retrievals, retrieval_prices, spot_restores,
	schedules, removals, all_work_items, work_items, work_items_archive, work_item_attempts, work_item_attempts_archive, attempts, attempt_resets,
	work_item_audit, stage_settings, stage_settings_audit, stage_names, stage_pauses, topic_requests, plans, plan_items, queue_depth, needs_review,
	outcomes, failed, running, services, workers, worker_processes, actions, mail_outbox, mail_settings, holdings_daily, daily_outcomes, exports,
	means_given, admins_left, pauses, stores}'::text[]);
-- Neither the secrets of people, nor the text of an alert.
INSERT INTO auditor_rights (on_table, columns) VALUES
	('users', 'id, email, name, institution_id, role, deactivated_at, created_at, updated_at, password_set_at,
		second_factor_required, signed_in_at'),
	('alerts', 'id, institution_id, type, subject, deletion_request_id, work_item_id, generic_file_id, created_at,
		user_id, count, stage, error_code, last_at');

-- Roles belong to the cluster, not to this database: another database of Farol's may
-- have created them, or be creating them now. The role that a server for people logs in as is
-- a member of farol_web: only what it says of the person who asks is believed, see
-- acting_user().
-- +goose StatementBegin
DO $$
DECLARE
	role text;
BEGIN
	FOREACH role IN ARRAY '{farol_admin,farol_auditor,farol_web}'::text[] LOOP
		BEGIN
			IF to_regrole(role) IS NULL THEN
				EXECUTE format('CREATE ROLE %I NOLOGIN', role);
			END IF;
		EXCEPTION
			WHEN duplicate_object OR unique_violation THEN NULL;
			WHEN insufficient_privilege THEN
				RAISE NOTICE 'the role % was not created: % may not create roles; docs/sql.md says how to create it', role, current_user;
		END;
	END LOOP;
END
$$;
-- +goose StatementEnd
