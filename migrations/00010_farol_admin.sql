-- Who administers in psql is a member of the role farol_admin. It can do what
-- docs/sql.md describes and nothing else.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- +goose StatementBegin
CREATE FUNCTION grant_administration(to_role regrole) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	EXECUTE format('GRANT USAGE ON SCHEMA %I TO %s', (SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'work_items'::regclass), to_role);
	EXECUTE format('GRANT EXECUTE ON FUNCTION requeue, requeue_where, requeue_found, cancel, release, set_priority, pause_stage, resume_stage, pause_all,
		resume_all, drain_worker, why_not TO %s', to_role);
	EXECUTE format('GRANT SELECT ON queue_depth, running, needs_review, failed, outcomes, workers, attempts, all_work_items,
		work_items, work_item_attempts, work_item_audit, stage_settings, stage_settings_audit, institutions, worker_processes, plans, plan_items TO %s', to_role);
	EXECUTE format('GRANT UPDATE (stage, status, priority, note, needs_admin_review) ON work_items TO %s', to_role);
	EXECUTE format('GRANT UPDATE (paused, pause_reason, max_attempts, backoff_first, backoff_most, cap, overdue, processing_timeout,
		heartbeat, lease, unrenewed_timeout, unrenewed_lease) ON stage_settings TO %s', to_role);
END
$$;
COMMENT ON FUNCTION grant_administration IS 'Gives a role the rights that farol_admin has. Only the owner of the schema can.';
-- +goose StatementEnd

-- What changes things is for administrators, and what the triggers call for nobody.
REVOKE EXECUTE ON FUNCTION requeue, cancel, release, set_priority, pause_stage, resume_stage, pause_all, resume_all, drain_worker,
	requeue_where, requeue_found, set_paused, item_to_change, lock_items, lock_object, lock_institution, requeued_by_hand, ended_by_hand,
	take_turn, last_in_work, uploads_begin, append_topic_message, grant_administration
	FROM PUBLIC;

-- Roles belong to the cluster, not to this database: another one of Farol's may
-- have made it, or be making it now.
-- +goose StatementBegin
DO $$
BEGIN
	BEGIN
		IF to_regrole('farol_admin') IS NULL THEN
			CREATE ROLE farol_admin NOLOGIN;
		END IF;
	EXCEPTION
		WHEN duplicate_object OR unique_violation THEN NULL;
		WHEN insufficient_privilege THEN
			RAISE NOTICE 'the role farol_admin was not made: % may not; docs/sql.md says how', current_user;
	END;
	IF to_regrole('farol_admin') IS NOT NULL THEN
		PERFORM grant_administration('farol_admin');
	END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
-- The role stays: other databases of the cluster may use it.
-- +goose StatementBegin
DO $$
BEGIN
	IF to_regrole('farol_admin') IS NOT NULL THEN
		REVOKE ALL ON work_items, work_item_attempts, work_item_audit, stage_settings, stage_settings_audit, institutions,
			worker_processes, plans, plan_items, queue_depth, running, needs_review, failed, outcomes, workers, attempts, all_work_items FROM farol_admin;
	END IF;
END
$$;
-- +goose StatementEnd
DROP FUNCTION grant_administration(regrole);
