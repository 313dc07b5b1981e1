-- Deletions: what is written when files are gone, and what a deletion that is cancelled gives
-- back. While one has not ended, a copy is in preservation until its removal begins
-- (deletion_receipts.begun_at).

-- files_deleted ends files whose copies are gone: state, receipts, failures, copies and events.
-- seen says that the caller has asked for each copy and found nothing.
CREATE OR REPLACE FUNCTION files_deleted(item bigint, files bigint[], seen boolean, requester text, approver text, agent_object text, agent text)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	IF seen THEN
		UPDATE deletion_receipts SET absent_at = now()
		WHERE work_item_id = item AND generic_file_id = ANY (files) AND kept = '' AND absent_at IS NULL;
	END IF;
	UPDATE generic_files SET state = 'D', deleted_by_item = item, updated_at = now() WHERE id = ANY (files) AND state = 'A';
	UPDATE fixity_failures b SET state = 'deleted', closed_at = now()
	FROM storage_records s WHERE s.generic_file_id = ANY (files) AND b.storage_record_id = s.id AND b.state = 'open';
	DELETE FROM storage_records WHERE generic_file_id = ANY (files);
	INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time,
		detail, outcome, outcome_detail, outcome_information, object, agent)
	SELECT event_identifier(item, f.identifier, 'deletion', requester), f.institution_id, f.intellectual_object_id, f.id, 'deletion', now(),
		'All copies of this file have been deleted from preservation storage', 'Success', requester,
		'File deleted at the request of ' || requester || '. Institutional approver: ' || approver
			|| CASE WHEN seen THEN '. This event confirms all preservation copies have been deleted.'
				ELSE '. The storage services have confirmed that all preservation copies were removed; the deletion was cancelled before it asked for them once more.' END
			|| coalesce((
			SELECT ' Before that, it was found that these were missing: ' || string_agg(r.url, ', ' ORDER BY r.url)
				|| '. ' || string_agg(DISTINCT r.accepted_by, ', ') || ' let the deletion go on.'
			FROM deletion_receipts r WHERE r.work_item_id = item AND r.generic_file_id = f.id AND r.found_missing), ''),
		agent_object, files_deleted.agent
	FROM generic_files f WHERE f.id = ANY (files);
END
$$;

-- object_deleted ends an object, if none of its files is left, and says whether it has.
CREATE OR REPLACE FUNCTION object_deleted(item bigint, object_id bigint, requester text, approver text, agent_object text, agent text)
RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	UPDATE intellectual_objects o SET state = 'D', deleted_by_item = item, updated_at = now()
	WHERE o.id = object_id AND NOT EXISTS (SELECT FROM generic_files f WHERE f.intellectual_object_id = o.id AND f.state = 'A');
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, event_type, date_time,
		detail, outcome, outcome_detail, outcome_information, object, agent)
	SELECT event_identifier(item, o.identifier, 'deletion', requester), o.institution_id, o.id, 'deletion', now(),
		'Object deleted from preservation storage', 'Success', requester,
		'Object deleted at the request of ' || requester || '. Institutional approver: ' || approver || '.', agent_object, object_deleted.agent
	FROM intellectual_objects o WHERE o.id = object_id;
	RETURN true;
END
$$;

-- removed_copies_are_missing puts copies on record as missing that a deletion removed before it
-- was cancelled, as a fixity check would, so that they are repaired from the others.
CREATE OR REPLACE FUNCTION removed_copies_are_missing(item bigint, files bigint[]) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
	WITH removed AS MATERIALIZED (
		SELECT s.id, s.generic_file_id, s.url, s.target, p.provider, f.institution_id, f.intellectual_object_id, f.identifier,
			coalesce(k.digest, '') AS expected, format('Fixity did not match at %s. Expected %s, and there is no such object: item %s removed it, and was cancelled',
				s.url, coalesce(k.digest, 'a digest'), item) AS information
		FROM deletion_receipts r
		JOIN storage_records s ON s.generic_file_id = r.generic_file_id AND s.target = r.target AND s.key = r.key
		JOIN generic_files f ON f.id = r.generic_file_id
		JOIN fixity_policies p ON p.target = s.target
		LEFT JOIN LATERAL (SELECT digest FROM checksums c WHERE c.generic_file_id = f.id AND c.algorithm = 'sha256' ORDER BY c.datetime DESC LIMIT 1) k ON true
		WHERE r.work_item_id = item AND r.generic_file_id = ANY (files) AND r.removed_at IS NOT NULL
		  AND NOT EXISTS (SELECT FROM fixity_failures b WHERE b.storage_record_id = s.id AND b.state = 'open' AND b.found = '')
	), ended AS (
		DELETE FROM fixity_checks c USING removed r WHERE c.storage_record_id = r.id
	), event AS (
		INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time,
			detail, outcome, outcome_detail, outcome_information, object, agent)
		SELECT event_identifier(item, url, 'fixity check', 'not found'), institution_id, intellectual_object_id, generic_file_id, 'fixity check', now(),
			'Fixity check against registered hash', 'Failure', 'not found', information, 'Farol', 'https://github.com/farol-preservation/farol'
		FROM removed
	), copy AS (
		UPDATE storage_records s SET last_fixity_at = now(), fixity_since = NULL, updated_at = now() FROM removed r WHERE s.id = r.id
	), file AS (
		UPDATE generic_files f SET last_fixity_check = now(), updated_at = now() WHERE f.id IN (SELECT generic_file_id FROM removed)
	), failure AS (
		INSERT INTO fixity_failures AS b (storage_record_id, generic_file_id, target, provider, url, problem, algorithm, expected, found_at, seen_at)
		SELECT id, generic_file_id, target, provider, url, 'missing', 'sha256', expected, now(), now() FROM removed ORDER BY id
		ON CONFLICT (storage_record_id) WHERE state = 'open' DO UPDATE SET seen_at = now(), noted_at = now(), problem = 'missing', found = ''
	), announced AS (
		INSERT INTO topic_messages (topic, body) SELECT DISTINCT 'fixity_check', generic_file_id::text FROM removed
	)
	INSERT INTO alerts (institution_id, type, subject, content, generic_file_id)
	SELECT institution_id, 'Failed Fixity Check', format('Failed fixity check: %s', identifier),
		format('The copy of %s in %s is not what was stored. %s.', identifier, target, information), generic_file_id
	FROM removed;
$$;

-- deletion_gives_back ends the intent of a deletion that was cancelled. Of the files whose
-- removal has begun, those without a copy are deleted; all others are in preservation again.
-- The caller has locked the item.
-- A copy that may be gone is held from checks and repairs until the last worker of the item
-- cannot remove it any more, and then is checked.
CREATE OR REPLACE FUNCTION deletion_gives_back(w work_items, begun bigint[], quiet_from timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	people record;
	gone   bigint[] := ARRAY(SELECT d.file FROM unnest(begun) d (file) WHERE NOT EXISTS (
			SELECT FROM storage_records s WHERE s.generic_file_id = d.file AND NOT EXISTS (
				SELECT FROM deletion_receipts r WHERE r.work_item_id = w.id AND r.generic_file_id = d.file AND r.target = s.target AND r.key = s.key
				  AND (r.removed_at IS NOT NULL OR r.kept <> '' OR r.accepted_by <> '')))
		AND EXISTS (SELECT FROM deletion_receipts r WHERE r.work_item_id = w.id AND r.generic_file_id = d.file AND r.removed_at IS NOT NULL));
	back   bigint[] := ARRAY(SELECT d.file FROM unnest(begun) d (file) WHERE d.file <> ALL (gone));
BEGIN
	SELECT r.email AS requester, a.email AS approver INTO people
	FROM deletion_requests d JOIN users r ON r.id = d.requested_by JOIN users a ON a.id = d.approved_by WHERE d.id = w.deletion_request_id;
	IF gone <> '{}' THEN
		PERFORM files_deleted(w.id, gone, false, people.requester, people.approver, 'Farol', 'https://github.com/farol-preservation/farol');
	END IF;
	PERFORM removed_copies_are_missing(w.id, back);
	UPDATE generic_files SET deleted_by_item = NULL, updated_at = now() WHERE id = ANY (back);
	INSERT INTO fixity_checks AS c (storage_record_id, target, requested, token, worker, run_at)
	SELECT s.id, s.target, true, nextval('fixity_tokens'), 'item ' || w.id, quiet_from
	FROM deletion_receipts r JOIN storage_records s ON s.generic_file_id = r.generic_file_id AND s.target = r.target AND s.key = r.key
	WHERE r.work_item_id = w.id AND r.generic_file_id = ANY (back) AND r.begun_at IS NOT NULL AND r.removed_at IS NULL
	ORDER BY s.id
	ON CONFLICT (storage_record_id) DO UPDATE SET requested = true, token = excluded.token, worker = excluded.worker, run_at = excluded.run_at;
	PERFORM FROM intellectual_objects WHERE id = w.intellectual_object_id AND state = 'A'
		AND w.generic_file_id IS NULL AND (deleted_by_item = w.id OR gone <> '{}');
	IF FOUND AND NOT object_deleted(w.id, w.intellectual_object_id, people.requester, people.approver, 'Farol', 'https://github.com/farol-preservation/farol') THEN
		UPDATE intellectual_objects SET deleted_by_item = NULL, updated_at = now() WHERE id = w.intellectual_object_id AND deleted_by_item = w.id;
	END IF;
END
$$;

-- deletion_so_far says how far a deletion has come that has ended before its end; '': nowhere.
CREATE OR REPLACE FUNCTION deletion_so_far(w work_items) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	deleted bigint;
	kept    bigint;
	halves  bigint;
	said    text;
BEGIN
	IF NOT EXISTS (SELECT FROM deletion_receipts r WHERE r.work_item_id = w.id AND r.begun_at IS NOT NULL) THEN
		RETURN '';
	END IF;
	SELECT count(*) FILTER (WHERE f.state = 'D' AND f.deleted_by_item = w.id), count(*) FILTER (WHERE f.state = 'A'),
		count(*) FILTER (WHERE f.state = 'A' AND EXISTS (SELECT FROM deletion_receipts r
			WHERE r.work_item_id = w.id AND r.generic_file_id = f.id AND r.begun_at IS NOT NULL))
	INTO deleted, kept, halves
	FROM generic_files f
	WHERE f.intellectual_object_id = w.intellectual_object_id AND (w.generic_file_id IS NULL OR f.id = w.generic_file_id);
	said := format('. %s deleted before that; %s kept.', counted(deleted, 'file was', 'files were'), counted(kept, 'file is', 'files are'));
	IF halves > 0 THEN
		said := said || format(' Of these, copies of %s may be gone%s.', counted(halves, 'file', 'files'),
			CASE WHEN w.status = 'Cancelled' THEN '; they are checked and repaired' ELSE '' END);
	END IF;
	RETURN said;
END
$$;

-- counted is a number with its noun.
CREATE OR REPLACE FUNCTION counted(n bigint, one text, many text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN n || ' ' || CASE n WHEN 1 THEN one ELSE many END;

-- deletion_ended gives back what a cancelled deletion has left, and notes how far one came that
-- has not completed. quiet_from is when its last worker cannot remove a copy any more: it learns
-- of the end within its lease, and then a request to the store may still be under way.
CREATE OR REPLACE FUNCTION deletion_ended(w work_items, lease_ended timestamptz) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	said text;
BEGIN
	IF w.status = 'Cancelled' THEN
		PERFORM deletion_gives_back(w, ARRAY(SELECT f.id FROM generic_files f WHERE f.intellectual_object_id = w.intellectual_object_id
			AND f.state = 'A' AND f.deleted_by_item = w.id ORDER BY f.id FOR NO KEY UPDATE), -- generic_files_deleting
			greatest(now(), lease_ended) + interval '5 minutes');
	END IF;
	said := deletion_so_far(w);
	IF said <> '' THEN
		w.note := ltrim(rtrim(w.note, '.') || said, '. ');
		UPDATE work_items SET note = w.note WHERE id = w.id;
	END IF;
	RETURN w.note;
END
$$;

-- deletion_was_late has the worker of a deletion that was cancelled put on record what it had
-- removed by then. Nobody has checked, repaired or stored these copies again: they are held.
CREATE OR REPLACE FUNCTION deletion_was_late(item bigint, files bigint[], targets text[], keys text[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	w     work_items;
	said  text;
	begun bigint[];
BEGIN
	SELECT * INTO w FROM work_items WHERE id = item AND status = 'Cancelled' FOR UPDATE;
	said := deletion_so_far(w);
	WITH removed AS (
		UPDATE deletion_receipts r SET removed_at = now()
		FROM unnest(files, targets, keys) d (file, target, key)
		JOIN storage_records s ON s.generic_file_id = d.file AND s.target = d.target AND s.key = d.key
		JOIN fixity_checks c ON c.storage_record_id = s.id AND c.worker = 'item ' || item AND c.run_at > now()
		WHERE r.work_item_id = w.id AND r.generic_file_id = d.file AND r.target = d.target AND r.key = d.key
		  AND r.begun_at IS NOT NULL AND r.removed_at IS NULL AND NOT r.found_missing
		RETURNING r.generic_file_id
	)
	SELECT array_agg(DISTINCT f.id) INTO begun FROM removed r JOIN generic_files f ON f.id = r.generic_file_id AND f.deleted_by_item IS NULL;
	IF begun IS NOT NULL THEN
		PERFORM deletion_gives_back(w, begun, now() + interval '5 minutes');
		UPDATE work_items SET note = replace(note, said, deletion_so_far(w)) WHERE id = item;
	END IF;
END
$$;

REVOKE EXECUTE ON FUNCTION files_deleted, object_deleted, removed_copies_are_missing, deletion_gives_back, deletion_so_far,
	deletion_ended, deletion_was_late, counted FROM PUBLIC;
