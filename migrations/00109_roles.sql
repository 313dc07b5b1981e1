-- Roles: farol_admin does what docs/sql.md describes, and farol_auditor reads. What
-- they may do with tables and views is in two tables; grant_roles() gives it at the end
-- of every farol migrate up.

-- +goose Up

CREATE TABLE administration_rights (
	privilege text NOT NULL,
	on_table  text NOT NULL,
	PRIMARY KEY (on_table, privilege)
);
INSERT INTO administration_rights (privilege, on_table)
SELECT 'SELECT', unnest('{queue_depth, running, needs_review, failed, outcomes, workers, attempts, all_work_items,
	work_items, work_item_attempts, work_item_audit, attempt_resets, worker_processes, plans, plan_items, removals,
	stage_settings, stage_settings_audit, stage_names, stage_pauses, services, known_services, service_reports,
	institutions, users, deletion_requests_generic_files, deletion_requests_intellectual_objects, deletion_receipts,
	storage_options, retrieval_prices, request_settings, retrievals, spot_restores, alerts,
	fixity_policies, fixity_checks, fixity_feed, fixity_done, fixity_failures, bad_copies, repair_stops, schedules,
	topic_messages, topic_readers, topic_receivers, topic_deliveries, deliveries, queues, topic_partitions, topic_requests, nsq_topics}'::text[]);
INSERT INTO administration_rights (privilege, on_table) VALUES
	('SELECT (id, institution_id, requested_by, requested_at, approved_by, approved_at, cancelled_by, cancelled_at)', 'deletion_requests'),
	('UPDATE (stage, status, priority, note, needs_admin_review)', 'work_items'),
	('UPDATE (paused, pause_reason, max_attempts, backoff_first, backoff_factor, backoff_most, cap, overdue, processing_timeout,
		heartbeat, lease, unrenewed_timeout, unrenewed_lease)', 'stage_settings'),
	('UPDATE', 'storage_options'), ('INSERT, UPDATE, DELETE', 'retrieval_prices'), ('UPDATE', 'request_settings'),
	('UPDATE (accepted_by)', 'deletion_receipts'), ('UPDATE (spot_restore_days)', 'institutions'),
	('UPDATE (mode, interval_days, paused_until)', 'fixity_policies'), ('UPDATE (paused, next_run_at)', 'schedules');

CREATE TABLE auditor_rights (
	on_table text PRIMARY KEY,
	columns  text NOT NULL DEFAULT ''
);
INSERT INTO auditor_rights (on_table) SELECT unnest('{institutions, intellectual_objects, generic_files, checksums, storage_records, premis_events,
	retired_copies, unrecorded_copies, storage_options, users, deletion_requests_generic_files, deletion_requests_intellectual_objects, deletion_receipts,
	fixity_policies, fixity_checks, fixity_feed, fixity_done, fixity_failures, bad_copies, repair_stops, retrievals, retrieval_prices, spot_restores,
	schedules, removals, all_work_items, work_items, work_items_archive, work_item_attempts, work_item_attempts_archive, attempts, attempt_resets,
	work_item_audit, stage_settings, stage_settings_audit, stage_names, stage_pauses, topic_requests, plans, plan_items, queue_depth, needs_review,
	outcomes, failed, running}'::text[]);
-- Neither the digest of a token nor the text of an alert: the one that asks for an
-- approval contains the token.
INSERT INTO auditor_rights (on_table, columns) VALUES
	('deletion_requests', 'id, institution_id, requested_by, requested_at, approved_by, approved_at, cancelled_by, cancelled_at'),
	('alerts', 'id, institution_id, type, subject, deletion_request_id, work_item_id, generic_file_id, created_at');

-- Roles belong to the cluster, not to this database: another database of Farol's may
-- have created them, or be creating them now.
-- +goose StatementBegin
DO $$
DECLARE
	role text;
BEGIN
	FOREACH role IN ARRAY '{farol_admin,farol_auditor}'::text[] LOOP
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
