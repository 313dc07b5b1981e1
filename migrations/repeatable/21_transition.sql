-- The transition: how an item leaves a state. Everything that moves an item comes
-- through here: workers that end a claim, the reaper, changes that people type, release,
-- requeue, undo, uploads that are superseded, stages that are removed, and items that
-- are woken or parked. Only the claim is a statement of its own (claim/sql): it locks
-- what it finds by its place, and passes over what others have locked.

-- outcome_of is the outcome of an item that is given up or called off: not what it was
-- when the item came into the queue. NULL for other statuses.
CREATE OR REPLACE FUNCTION outcome_of(action text, status text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN action || CASE status WHEN 'Cancelled' THEN ' was cancelled' WHEN 'Failed' THEN ' was given up'
	WHEN 'Suspended' THEN ' was suspended: a person has to decide' END;

-- moved is what a transition makes of an item. It is inlined into the UPDATE, so it is
-- LANGUAGE sql, neither strict nor volatile, and returns base types.
CREATE OR REPLACE FUNCTION moved(w work_items, m work_item_move)
RETURNS TABLE (
	stage text, status text, claim_token bigint, entered_token bigint, attempt integer, run_at timestamptz,
	lease_expires_at timestamptz, node text, pid integer, worker text, retry boolean, needs_admin_review boolean,
	note text, outcome text, error_code text, waits_for bigint, virtual_start bigint,
	intellectual_object_id bigint, storage_option text, memory_need bigint, updated_at timestamptz)
LANGUAGE sql STABLE AS $$
	SELECT
		coalesce(m.stage, w.stage::text),
		coalesce(m.status, 'Pending'),
		w.claim_token + 1, -- the next write of a worker that holds the item is refused
		coalesce(m.entered_token, CASE WHEN m.stage <> w.stage THEN w.claim_token + 1 ELSE w.entered_token END),
		coalesce(m.attempt, CASE WHEN m.stage <> w.stage OR m.entered_token <> w.entered_token THEN 0 ELSE w.attempt END),
		CASE WHEN m.waits_for IS NULL THEN coalesce(m.run_at, now()) ELSE 'infinity' END,
		NULL::timestamptz, NULL::text, NULL::integer, NULL::text,
		coalesce(m.status, 'Pending') = 'Pending',
		coalesce(m.review, m.status IN ('Failed', 'Suspended'), false),
		coalesce(m.note, w.note),
		coalesce(m.outcome, CASE WHEN m.status <> w.status THEN outcome_of(w.action, m.status) END, w.outcome),
		coalesce(m.code, ''),
		m.waits_for,
		coalesce(m.virtual_start, w.virtual_start),
		coalesce(m.object, w.intellectual_object_id),
		coalesce(m.storage_option, w.storage_option::text),
		coalesce(nullif(m.memory_need, 0), w.memory_need),
		now()
$$;
COMMENT ON FUNCTION moved IS 'The columns of an item after a transition.';

-- record_moves writes what follows from transitions that were made: the end of the
-- attempt, the topic message, and the notice to other workers. by_worker says that the
-- worker itself ended the attempt, which counts as a heartbeat. The end of an attempt is later than its claim,
-- although this transaction may have begun before that.
CREATE OR REPLACE FUNCTION record_moves(moves work_item_move[], by_worker boolean, notify boolean) RETURNS void
LANGUAGE plpgsql AS $$ -- which is planned once; SQL would be each time
BEGIN
	WITH ended AS (
		UPDATE work_item_attempts a SET
			ended_at = clock_timestamp(), heartbeat_at = CASE WHEN by_worker THEN now() ELSE a.heartbeat_at END, outcome = m.ended,
			error_code = coalesce(m.end_code, m.code, ''), error = coalesce(m.error, a.error),
			current_file = coalesce(m.current_file, a.current_file), service = coalesce(m.service, a.service)
		FROM unnest(moves) m
		WHERE a.work_item_id = m.id AND a.claim_token = m.token AND m.ended IS NOT NULL
	)
	INSERT INTO topic_messages (topic, body, work_item_id)
	SELECT m.topic, m.id::text, m.id FROM unnest(moves) m WHERE m.topic <> '';
	IF notify THEN -- equal payloads of one transaction are sent once
		PERFORM pg_notify('farol_work', E'\n' || s.stage) FROM (
			SELECT DISTINCT m.stage FROM unnest(moves) m WHERE coalesce(m.status, 'Pending') = 'Pending') s;
	END IF;
END
$$;
COMMENT ON FUNCTION record_moves IS 'Writes what follows from transitions: the end of attempts, topic messages, notices.';

-- move_items makes transitions, those whose token is still the item's, and returns
-- these. A move that does not land changes nothing, and does no harm to the others.
-- Items that waited for one that ended are released by the trigger work_item_ended.
CREATE OR REPLACE FUNCTION move_items(moves work_item_move[], by_worker boolean DEFAULT false, notify boolean DEFAULT true) RETURNS SETOF work_item_move
LANGUAGE plpgsql AS $$
DECLARE
	landed work_item_move[];
	again  boolean; -- some are tried again at their stage
BEGIN
	WITH landing AS (
		UPDATE work_items w SET (
			stage, status, claim_token, entered_token, attempt, run_at, lease_expires_at, node, pid, worker, retry, needs_admin_review,
			note, outcome, error_code, waits_for, virtual_start, intellectual_object_id, storage_option, memory_need, updated_at)
			= (SELECT n.* FROM moved(w, m) n)
		FROM unnest(moves) m
		WHERE w.id = m.id AND w.claim_token = m.token
		RETURNING m AS move
	)
	SELECT array_agg(move), bool_or((move).ended IN ('transient', 'panic', 'lease expired', 'killed', 'oom') AND coalesce((move).status, 'Pending') = 'Pending')
	INTO landed, again FROM landing;
	IF landed IS NULL THEN
		RETURN;
	END IF;
	PERFORM record_moves(landed, by_worker, notify);
	IF again THEN -- the mirror shows retries in nsqd; no count of the queue says how many there were
		INSERT INTO topic_retries (topic, work_item_id)
		SELECT s.topic, m.id FROM unnest(landed) m JOIN work_items w ON w.id = m.id JOIN stage_settings s ON s.action = w.action AND s.stage = w.stage
		WHERE m.ended IN ('transient', 'panic', 'lease expired', 'killed', 'oom') AND coalesce(m.status, 'Pending') = 'Pending';
	END IF;
	RETURN QUERY SELECT * FROM unnest(landed);
END
$$;
COMMENT ON FUNCTION move_items IS 'Makes transitions of items whose claim_token is still the one that is named, and returns those that were made.';

-- unchanged is a move that leaves an item as it is, but for its token: callers then say
-- what it changes. It is for items that stay Pending, or become so.
CREATE OR REPLACE FUNCTION unchanged(w work_items) RETURNS work_item_move
LANGUAGE plpgsql STABLE AS $$
DECLARE
	m work_item_move;
BEGIN
	m.id := w.id;
	m.token := w.claim_token;
	m.stage := w.stage;
	m.attempt := w.attempt;
	m.run_at := w.run_at;
	m.code := w.error_code;
	m.waits_for := w.waits_for;
	m.review := w.needs_admin_review;
	RETURN m;
END
$$;

-- move_by_hand makes a transition that a person has asked for, and writes it to the
-- audit. The caller has locked the item.
CREATE OR REPLACE FUNCTION move_by_hand(was work_items, m work_item_move) RETURNS work_items
LANGUAGE plpgsql AS $$
DECLARE
	w work_items;
BEGIN
	PERFORM move_items(ARRAY[m]);
	SELECT * INTO w FROM work_items WHERE id = was.id;
	INSERT INTO work_item_audit (work_item_id, before, after) VALUES (was.id, to_jsonb(was), to_jsonb(w));
	RETURN w;
END
$$;

-- topic_of is the topic that the messages of a stage go to.
CREATE OR REPLACE FUNCTION topic_of(of_action text, of_stage text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN (SELECT s.topic FROM stage_settings s WHERE s.action = of_action AND s.stage = of_stage);
END
$$;

REVOKE EXECUTE ON FUNCTION moved, record_moves, move_items, move_by_hand, topic_of FROM PUBLIC;
