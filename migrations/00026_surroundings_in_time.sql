-- What an item does not pay for: a database whose clock is set, and a fault that
-- lasts for some minutes.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- The wait between attempts is 1 s, 1 min, 5 min: three attempts within three
-- seconds are one try. What somebody has set is waited for as before.
ALTER TABLE stage_settings DISABLE TRIGGER stage_settings_changed;
ALTER TABLE stage_settings
	ADD COLUMN backoff_factor integer NOT NULL DEFAULT 60 CHECK (backoff_factor BETWEEN 1 AND 1000), -- each wait is so many times the one before
	ALTER COLUMN backoff_most SET DEFAULT '5 minutes';
UPDATE stage_settings SET backoff_factor = 2 WHERE (backoff_first, backoff_most) IS DISTINCT FROM ('1 second', '10 minutes');
UPDATE stage_settings SET backoff_most = '5 minutes' WHERE backoff_factor = 60;
ALTER TABLE stage_settings ENABLE TRIGGER stage_settings_changed;
INSERT INTO administration_rights (privilege, on_table) VALUES ('UPDATE (backoff_factor)', 'stage_settings');
SELECT grant_to_administrators();

-- +goose StatementBegin
-- backoff_of is how long an item waits after its nth failure in a row.
CREATE FUNCTION backoff_of(s stage_settings, n integer) RETURNS interval LANGUAGE sql IMMUTABLE
RETURN least(s.backoff_most, make_interval(secs => least(
	extract(epoch FROM s.backoff_first)::float8 * s.backoff_factor::float8 ^ least(n - 1, 20), 4e7)));

-- failed_attempts counts the attempts of an item that ended in a way that spends
-- one, from when it came to its stage, or from when those before were forgiven, to
-- before a claim. A claim that was lost to a clock that was set is none.
CREATE FUNCTION failed_attempts(item bigint, entered bigint, before bigint, ways text[] DEFAULT '{transient,panic,lease expired,killed,oom}')
RETURNS bigint LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN (SELECT count(*) FROM work_item_attempts a
	WHERE a.work_item_id = item AND a.claim_token > entered AND a.claim_token < before
	  AND a.claim_token >= coalesce((SELECT max(f.claim_token) FROM attempts_forgiven f WHERE f.work_item_id = item), 0)
	  AND a.outcome = ANY (ways) AND a.error_code <> 'clock-set');
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION backoff_of(stage_settings, integer), failed_attempts(bigint, bigint, bigint, text[]) FROM PUBLIC;

-- +goose Down
DROP FUNCTION failed_attempts(bigint, bigint, bigint, text[]);
DROP FUNCTION backoff_of(stage_settings, integer);
DELETE FROM administration_rights WHERE (privilege, on_table) = ('UPDATE (backoff_factor)', 'stage_settings');
ALTER TABLE stage_settings DISABLE TRIGGER stage_settings_changed;
UPDATE stage_settings SET backoff_most = '10 minutes' WHERE (backoff_first, backoff_factor, backoff_most) = ('1 second', 60, '5 minutes');
ALTER TABLE stage_settings DROP COLUMN backoff_factor, ALTER COLUMN backoff_most SET DEFAULT '10 minutes';
ALTER TABLE stage_settings ENABLE TRIGGER stage_settings_changed;
SELECT grant_to_administrators();
