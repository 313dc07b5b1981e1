-- The role that owns the schema need not be the one that works with it: migrations
-- run as the owner, such as farol_owner, and processes as farol, who can change rows
-- and no table. Where one role does both, all is as before.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

CREATE TABLE auditor_rights (
	on_table text PRIMARY KEY,
	columns  text NOT NULL DEFAULT '' -- which alone may be read; '': all
);
COMMENT ON TABLE auditor_rights IS 'What farol_auditor may read.';
INSERT INTO auditor_rights (on_table) SELECT unnest('{institutions, intellectual_objects, generic_files, checksums, storage_records, premis_events,
	retired_copies, unrecorded_copies, storage_options, users, deletion_requests_generic_files, deletion_requests_intellectual_objects, deletion_receipts,
	fixity_policies, fixity_checks, fixity_feed, fixity_done, fixity_failures, bad_copies, repair_brakes, retrievals, retrieval_prices, spot_restores,
	schedules, removals, all_work_items, work_items, work_items_archive, work_item_attempts, work_item_attempts_archive, attempts, attempts_forgiven,
	work_item_audit, stage_settings, stage_settings_audit, stage_names, stage_pauses, topic_requests, plans, plan_items, queue_depth, needs_review,
	outcomes, failed, running}'::text[]);
-- Not the digest of its token, nor what an alert says: the one that asks for an
-- approval has the token in it.
INSERT INTO auditor_rights (on_table, columns) VALUES
	('deletion_requests', 'id, institution_id, requested_by, requested_at, approved_by, approved_at, cancelled_by, cancelled_at'),
	('alerts', 'id, institution_id, type, subject, deletion_request_id, work_item_id, generic_file_id, created_at');

-- grant_audit gives a role the rights that farol_auditor has: to read, and nothing else.
-- +goose StatementBegin
CREATE FUNCTION grant_audit(to_role regrole) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	r auditor_rights;
BEGIN
	EXECUTE format('GRANT USAGE ON SCHEMA %I TO %s', (SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'work_items'::regclass), to_role);
	FOR r IN SELECT * FROM auditor_rights LOOP
		EXECUTE format('GRANT SELECT %s ON %I TO %s', CASE WHEN r.columns = '' THEN '' ELSE '(' || r.columns || ')' END, r.on_table, to_role);
	END LOOP;
END
$$;

-- grant_work gives a role the rights that processes of Farol need. The migrations are
-- read, not written.
CREATE FUNCTION grant_work(to_role regrole) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	schema text := (SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'work_items'::regclass);
BEGIN
	EXECUTE format('GRANT USAGE ON SCHEMA %s TO %s', schema, to_role);
	EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s TO %s', schema, to_role);
	EXECUTE format('GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA %s TO %s', schema, to_role);
	EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %s TO %s', schema, to_role);
	EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON goose_db_version, administration_rights, auditor_rights FROM %s', to_role);
END
$$;

-- grant_roles gives each role its rights to all that there is now. It ends every
-- migration: to farol, to whom the rights of work were given by hand, to farol_admin
-- and to farol_auditor. Who does not own the schema changes nothing.
CREATE FUNCTION grant_roles() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	owner oid := (SELECT relowner FROM pg_class WHERE oid = 'work_items'::regclass);
	works regrole;
BEGIN
	IF NOT pg_has_role(current_user, owner, 'USAGE') THEN
		RETURN;
	END IF;
	PERFORM grant_to_administrators();
	FOR works IN SELECT r.oid FROM pg_roles r
		WHERE r.oid <> owner AND NOT r.rolsuper AND (r.rolname = 'farol' OR EXISTS (SELECT FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
			WHERE c.oid = 'work_items'::regclass AND a.grantee = r.oid AND a.privilege_type = 'INSERT'))
	LOOP
		PERFORM grant_work(works);
	END LOOP;
	IF to_regrole('farol_auditor') IS NOT NULL THEN
		PERFORM grant_audit('farol_auditor');
	END IF;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION grant_audit IS 'Gives a role the rights that farol_auditor has: to read. Only the owner of the schema can.';
COMMENT ON FUNCTION grant_work IS 'Gives a role the rights that processes of Farol need. Only the owner of the schema can; migrations renew it.';
REVOKE EXECUTE ON FUNCTION grant_audit(regrole), grant_work(regrole), grant_roles() FROM PUBLIC;

-- As farol_admin in 00010.
-- +goose StatementBegin
DO $$
BEGIN
	IF to_regrole('farol_auditor') IS NULL THEN
		CREATE ROLE farol_auditor NOLOGIN;
	END IF;
EXCEPTION
	WHEN duplicate_object OR unique_violation THEN NULL;
	WHEN insufficient_privilege THEN
		RAISE NOTICE 'the role farol_auditor was not made: % may not; docs/auditors.md says how', current_user;
END
$$;
-- +goose StatementEnd
SELECT grant_roles();

-- +goose Down
-- The roles stay: other databases of the cluster may use them.
-- +goose StatementBegin
DO $$
DECLARE
	r auditor_rights;
BEGIN
	IF to_regrole('farol_auditor') IS NOT NULL THEN
		FOR r IN SELECT * FROM auditor_rights LOOP
			EXECUTE format('REVOKE ALL ON %I FROM farol_auditor', r.on_table);
		END LOOP;
	END IF;
END
$$;
-- +goose StatementEnd
DROP FUNCTION grant_roles();
DROP FUNCTION grant_work(regrole);
DROP FUNCTION grant_audit(regrole);
DROP TABLE auditor_rights;
