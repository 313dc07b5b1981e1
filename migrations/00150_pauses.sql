-- A pause is a record of its own: who, why, since when. A stage had one flag, so that a
-- second pause overwrote the reason of the first, and one person's end of a pause ended
-- another's. The flag stays for claims, and follows from the records. Services that people
-- hold are the same.

-- +goose Up
CREATE SEQUENCE pauses_id;
CREATE TABLE pauses (
	number    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id        bigint      NOT NULL DEFAULT nextval('pauses_id'), -- of all stages that were paused together
	action    text        NOT NULL COLLATE "C", -- Service: a service is held
	stage     text        NOT NULL COLLATE "C",
	paused_by text        NOT NULL DEFAULT acting_user(),
	paused_at timestamptz NOT NULL DEFAULT now() CHECK (isfinite(paused_at)),
	reason    text,
	of_all    boolean     NOT NULL DEFAULT false,
	in_nsq    boolean     NOT NULL DEFAULT false,
	lifted_by text,
	lifted_at timestamptz,
	CONSTRAINT who_lifts_a_pause CHECK ((lifted_by IS NULL) = (lifted_at IS NULL))
);
ALTER SEQUENCE pauses_id OWNED BY pauses.id;
CREATE UNIQUE INDEX pauses_in_force ON pauses (action, stage, paused_by, of_all, in_nsq) WHERE lifted_at IS NULL;
CREATE INDEX pauses_id_in_force ON pauses (id) WHERE lifted_at IS NULL;

ALTER TYPE stage_pause ADD ATTRIBUTE pauses jsonb;
DROP FUNCTION IF EXISTS pause_has_an_origin CASCADE;
DROP FUNCTION IF EXISTS set_paused;

-- What all stages were paused by together is a pause of all: resume_all() ends it.
WITH was AS (
	SELECT action::text, stage::text, paused, paused_by, paused_at, pause_reason, paused_in_nsq FROM stage_settings
	UNION ALL SELECT 'Fixity Check', 'Fixity Check', paused, paused_by, paused_at, pause_reason, paused_in_nsq FROM fixity_feed
), of_all AS (
	SELECT coalesce(nextval('pauses_id'), 0) AS id, max(paused_at) AS since FROM was HAVING bool_and(paused AND NOT paused_in_nsq)
)
INSERT INTO pauses (id, action, stage, paused_by, paused_at, reason, of_all, in_nsq)
SELECT CASE WHEN w.paused_at = a.since THEN a.id ELSE nextval('pauses_id') END, w.action, w.stage, coalesce(w.paused_by, 'unknown'),
	coalesce(w.paused_at, now()), w.pause_reason, coalesce(w.paused_at = a.since, false), w.paused_in_nsq
FROM was w LEFT JOIN of_all a ON true WHERE w.paused
UNION ALL
SELECT nextval('pauses_id'), 'Service', service, coalesce(held_by, 'unknown'), held_at, held_reason, false, false FROM known_services WHERE held_at IS NOT NULL;

INSERT INTO administration_rights (privilege, on_table) VALUES ('SELECT', 'pauses');
INSERT INTO auditor_rights (on_table) VALUES ('pauses');
