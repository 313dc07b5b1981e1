-- Which person did something by a command, beside the role of the database that did
-- it; and what the commands about objects and files go by.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- The commands of Farol call themselves "farol-item ann": application_name is what a
-- pooler in transaction mode hands on as well. What a person says of themselves is no
-- proof, so it never stands without the role, which is.
CREATE FUNCTION acting_program() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN regexp_replace(current_setting('application_name'), '^(farol-[a-z-]+) .*$', '\1');
COMMENT ON FUNCTION acting_program IS 'The program of this session, without the person who runs it.';

CREATE FUNCTION acting_person() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(current_setting('application_name') FROM '^farol-[a-z-]+ (.+)$');
COMMENT ON FUNCTION acting_person IS 'Who runs the command of this session, as the command says; NULL if none is named.';

CREATE FUNCTION acting_user() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN session_user || coalesce(' (' || acting_person() || ')', '');
COMMENT ON FUNCTION acting_user IS 'The role that logged in, and behind it in brackets the person, if one is named.';

-- In two steps, or the rows of before would get the person who migrates.
ALTER TABLE work_item_audit
	ADD COLUMN person text,
	ALTER COLUMN application_name SET DEFAULT acting_program();
ALTER TABLE work_item_audit ALTER COLUMN person SET DEFAULT acting_person();
ALTER TABLE stage_settings_audit
	ADD COLUMN person text,
	ALTER COLUMN application_name SET DEFAULT acting_program();
ALTER TABLE stage_settings_audit ALTER COLUMN person SET DEFAULT acting_person();
ALTER TABLE plans ALTER COLUMN created_by SET DEFAULT acting_user();
ALTER TABLE api_tokens ALTER COLUMN created_by SET DEFAULT acting_user();

-- These write who did something into a column; what they do stays as it is.
-- +goose StatementBegin
DO $$
DECLARE
	f regprocedure;
BEGIN
	FOREACH f IN ARRAY ARRAY['stage_settings_changed()', 'fixity_pause_changed()', 'hold_service(text, text)', 'release_service(text)',
		'plan_begin(bigint, numeric)', 'plan_undo(bigint, integer)']::regprocedure[] LOOP
		EXECUTE regexp_replace(pg_get_functiondef(f), '\msession_user\M', 'acting_user()', 'g');
	END LOOP;
END
$$;
-- +goose StatementEnd

CREATE INDEX fixity_failures_file ON fixity_failures (generic_file_id);
CREATE INDEX work_items_archive_object ON work_items_archive (object_identifier);
CREATE INDEX deletion_requests_object ON deletion_requests_intellectual_objects (intellectual_object_id);
CREATE INDEX deletion_requests_file ON deletion_requests_generic_files (generic_file_id);

-- +goose Down
DROP INDEX deletion_requests_file, deletion_requests_object, work_items_archive_object, fixity_failures_file;
-- +goose StatementBegin
DO $$
DECLARE
	f regprocedure;
BEGIN
	FOREACH f IN ARRAY ARRAY['stage_settings_changed()', 'fixity_pause_changed()', 'hold_service(text, text)', 'release_service(text)',
		'plan_begin(bigint, numeric)', 'plan_undo(bigint, integer)']::regprocedure[] LOOP
		EXECUTE replace(pg_get_functiondef(f), 'acting_user()', 'session_user');
	END LOOP;
END
$$;
-- +goose StatementEnd
ALTER TABLE api_tokens ALTER COLUMN created_by SET DEFAULT session_user;
ALTER TABLE plans ALTER COLUMN created_by SET DEFAULT session_user;
ALTER TABLE stage_settings_audit
	DROP COLUMN person,
	ALTER COLUMN application_name SET DEFAULT current_setting('application_name');
ALTER TABLE work_item_audit
	DROP COLUMN person,
	ALTER COLUMN application_name SET DEFAULT current_setting('application_name');
DROP FUNCTION acting_user();
DROP FUNCTION acting_person();
DROP FUNCTION acting_program();
