-- Roles: who may do what. Only the owner of the schema can give rights.

-- schema_of_farol is the schema that the tables are in.
CREATE OR REPLACE FUNCTION schema_of_farol() RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN (SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'work_items'::regclass);

CREATE OR REPLACE FUNCTION grant_administration(to_role regrole) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	r administration_rights;
BEGIN
	EXECUTE format('GRANT USAGE ON SCHEMA %s TO %s', schema_of_farol(), to_role);
	EXECUTE format('GRANT EXECUTE ON FUNCTION
		requeue, requeue_refusal, requeue_stage, again, have_again, cancel, release, note_item, set_priority, why_not, requeue_where,
		plan_store, plan_begin, plan_apply, plan_apply_whole, plan_undo,
		pause_stage, resume_stage, pause_all, resume_all, pause_schedule, lift_pause, add_stage, remove_stage, drain_worker,
		hold_service, release_service, needs_service, service_text, scaling_items, scaling_signal, note_action, whom_to_ask TO %s', to_role);
	FOR r IN SELECT * FROM administration_rights LOOP
		EXECUTE format('GRANT %s ON %I TO %s', r.privilege, r.on_table, to_role);
	END LOOP;
END
$$;
COMMENT ON FUNCTION grant_administration IS 'Gives a role the rights that farol_admin has. Only the owner of the schema can.';

CREATE OR REPLACE FUNCTION grant_audit(to_role regrole) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	r auditor_rights;
BEGIN
	EXECUTE format('GRANT USAGE ON SCHEMA %s TO %s', schema_of_farol(), to_role);
	EXECUTE format('GRANT EXECUTE ON FUNCTION whom_to_ask TO %s', to_role);
	FOR r IN SELECT * FROM auditor_rights LOOP
		EXECUTE format('GRANT SELECT %s ON %I TO %s', CASE WHEN r.columns = '' THEN '' ELSE '(' || r.columns || ')' END, r.on_table, to_role);
	END LOOP;
END
$$;
COMMENT ON FUNCTION grant_audit IS 'Gives a role the rights that farol_auditor has: to read. Only the owner of the schema can.';

-- Processes read which migrations were applied, and write none.
CREATE OR REPLACE FUNCTION grant_work(to_role regrole) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	part regclass;
BEGIN
	EXECUTE format('GRANT USAGE ON SCHEMA %s TO %s', schema_of_farol(), to_role);
	EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s TO %s', schema_of_farol(), to_role);
	EXECUTE format('GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA %s TO %s', schema_of_farol(), to_role);
	EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %s TO %s', schema_of_farol(), to_role);
	EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON goose_db_version, schema_repeatables, administration_rights, auditor_rights, means_given, admins_left FROM %s', to_role);
	FOR part IN SELECT relid FROM pg_partition_tree('actions') LOOP -- note_action() writes there
		EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON %s FROM %s', part, to_role);
	END LOOP;
END
$$;
COMMENT ON FUNCTION grant_work IS 'Gives a role the rights that processes of Farol need. Only the owner of the schema can; migrations renew it.';

-- grant_roles gives each role its rights to everything that exists now: farol_admin,
-- farol_auditor, farol, farol_web, and roles that were given the rights of work by hand. It ends
-- every migration. Called by a role that does not own the schema, it changes nothing.
CREATE OR REPLACE FUNCTION grant_roles() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	owner oid := (SELECT relowner FROM pg_class WHERE oid = 'work_items'::regclass);
	works regrole;
BEGIN
	IF NOT pg_has_role(current_user, owner, 'USAGE') THEN
		RETURN;
	END IF;
	IF to_regrole('farol_admin') IS NOT NULL THEN
		PERFORM grant_administration('farol_admin');
	END IF;
	FOR works IN SELECT r.oid FROM pg_roles r
		WHERE r.oid <> owner AND NOT r.rolsuper AND (r.rolname IN ('farol', 'farol_web') OR EXISTS (SELECT FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
			WHERE c.oid = 'work_items'::regclass AND a.grantee = r.oid AND a.privilege_type = 'INSERT'))
	LOOP
		PERFORM grant_work(works);
	END LOOP;
	IF to_regrole('farol_auditor') IS NOT NULL THEN
		PERFORM grant_audit('farol_auditor');
	END IF;
END
$$;

REVOKE EXECUTE ON FUNCTION schema_of_farol, grant_administration, grant_audit, grant_work, grant_roles FROM PUBLIC;
