-- Mail: who gets one for an alert, and when. An alert and its mails are written in one
-- transaction, whichever program writes the alert.

-- mail_choice is the column of mail_settings that decides about a type of alerts; account:
-- what concerns the own account is sent at once, since it may not be the person who acts.
CREATE OR REPLACE FUNCTION mail_choice(a alerts) RETURNS text LANGUAGE sql IMMUTABLE
RETURN CASE
	WHEN a.type IN ('Account Locked', 'New Sign-in', 'Password Changed', 'Token Made', 'Second Factor Changed') THEN 'account'
	WHEN a.type LIKE 'Deletion %' OR a.type = 'Approval Waits' AND a.deletion_request_id IS NOT NULL THEN 'deletions'
	WHEN a.type LIKE '%Restoration %' OR a.type = 'Approval Waits' THEN 'restorations'
	WHEN a.type IN ('Failed Fixity Check', 'Fixity Promise Broken', 'Repair Stopped') THEN 'fixity'
	ELSE 'problems' END;

-- second_person_is_staff says whether an institution has nobody but the requester who
-- could approve a deletion: then the admins of the archive do.
CREATE OR REPLACE FUNCTION second_person_is_staff(request bigint) RETURNS boolean LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN (SELECT EXISTS (SELECT FROM second_people(d.institution_id, d.requested_by, false) p WHERE p.staff)
	FROM deletion_requests d WHERE d.id = request AND d.approved_at IS NULL AND d.cancelled_at IS NULL);

-- retrieval_requester is who has requested a restoration that costs something and waits.
CREATE OR REPLACE FUNCTION retrieval_requester(item bigint) RETURNS bigint LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN (SELECT coalesce(q.requested_by, (SELECT u.id FROM work_items w JOIN users u ON lower(u.email) = lower(w."user") WHERE w.id = item))
	FROM retrievals q WHERE q.work_item_id = item);

-- cost_is_for_staff says whether the institution of an item has nobody but the requester who
-- could approve what it costs: then the admins of the archive do.
CREATE OR REPLACE FUNCTION cost_is_for_staff(item bigint) RETURNS boolean LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN (SELECT NOT EXISTS (SELECT FROM second_people(w.institution_id, retrieval_requester(item), true) p WHERE NOT p.staff)
	FROM retrievals q JOIN work_items w ON w.id = q.work_item_id WHERE q.work_item_id = item AND q.price > q.cap AND q.approved_at IS NULL);

-- gets_mail says whether a person may get a mail for an alert. It is asked when the alert
-- is written, and again when the mail is sent: people change.
CREATE OR REPLACE FUNCTION gets_mail(u users, a alerts) RETURNS boolean LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN u.deactivated_at IS NULL AND CASE
	WHEN a.user_id IS NOT NULL THEN u.id = a.user_id
	WHEN a.institution_id IS NULL THEN u.role = 'admin' AND NOT (a.type = 'Mail Not Delivered' AND a.error_code IS NOT DISTINCT FROM u.id::text)
		OR u.role = 'operator' AND a.type IN ('Item Failed', 'Item Suspended', 'Worker Lost', 'Queue Overdue', 'Service Held')
	WHEN u.role = 'admin' THEN a.type IN ('Deletion Requested', 'Approval Waits')
		AND coalesce(second_person_is_staff(a.deletion_request_id), cost_is_for_staff(a.work_item_id), false)
	WHEN u.institution_id IS DISTINCT FROM a.institution_id THEN false
	WHEN a.type = 'Approval Waits' THEN u.role = 'institutional_admin'
		AND NOT EXISTS (SELECT FROM deletion_requests d WHERE d.id = a.deletion_request_id AND d.requested_by = u.id)
		AND retrieval_requester(a.work_item_id) IS DISTINCT FROM u.id
	ELSE CASE mail_choice(a)
		WHEN 'deletions' THEN u.role = 'institutional_admin'
		WHEN 'fixity' THEN u.role IN ('institutional_admin', 'institutional_user', 'auditor')
		ELSE u.role IN ('institutional_admin', 'institutional_user') END
	END;

-- next_digest is the next 07:00 in a time zone; in UTC if there is no such zone.
CREATE OR REPLACE FUNCTION next_digest(zone text) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
DECLARE
	seven timestamp := date_trunc('day', now() AT TIME ZONE zone) + interval '7 hours';
BEGIN
	RETURN CASE WHEN seven AT TIME ZONE zone > now() THEN seven AT TIME ZONE zone ELSE (seven + interval '1 day') AT TIME ZONE zone END;
END
$$;

-- alert_made writes the mails for an alert. One that may get more of its kind waits a
-- minute for them.
CREATE OR REPLACE FUNCTION alert_made() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	INSERT INTO mail_outbox (alert_id, user_id, kind, due_at)
	SELECT NEW.id, r.id, CASE r.choice WHEN 'now' THEN 'alert' ELSE 'daily' END,
		CASE WHEN r.choice = 'daily' THEN digest_of(r.time_zone) WHEN NEW.type IN ('Item Failed', 'Item Suspended') THEN now() + interval '1 minute' ELSE now() END
	FROM (SELECT u.id, u.time_zone, coalesce(CASE mail_choice(NEW) WHEN 'deletions' THEN s.deletions WHEN 'restorations' THEN s.restorations
			WHEN 'fixity' THEN s.fixity WHEN 'problems' THEN s.problems END, 'now') AS choice
		FROM users u LEFT JOIN mail_settings s ON s.user_id = u.id
		WHERE u.deactivated_at IS NULL AND (u.id = NEW.user_id OR u.institution_id IS NOT DISTINCT FROM NEW.institution_id OR u.role = 'admin')
			AND gets_mail(u, NEW)) r
	WHERE r.choice <> 'never';
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER alert_made AFTER INSERT ON alerts FOR EACH ROW EXECUTE FUNCTION alert_made();

-- digest_of is next_digest() for a zone that may not be one.
CREATE OR REPLACE FUNCTION digest_of(zone text) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
	RETURN next_digest(zone);
EXCEPTION WHEN invalid_parameter_value THEN
	RETURN next_digest('UTC');
END
$$;

-- raise_alert alerts people to something that may happen often: within a time only
-- the first makes an alert, and the others add to its count. It waits for no other
-- transaction. While one makes the alert, or if that is rolled back, the row in
-- alert_repeats is enough for count_repeats() to make it.
CREATE OR REPLACE FUNCTION raise_alert(of_type text, institution bigint, subject text, content text, at_stage text, code text,
	item bigint DEFAULT NULL, within interval DEFAULT '15 minutes') RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	IF pg_try_advisory_xact_lock(hashtextextended(concat_ws('|', 'farol alert', of_type, coalesce(institution, 0), at_stage, code), 0))
		AND NOT EXISTS (SELECT FROM alerts a WHERE a.type = of_type AND a.institution_id IS NOT DISTINCT FROM institution
			AND a.stage = at_stage AND a.error_code = code AND a.created_at > now() - within) THEN
		INSERT INTO alerts (type, institution_id, subject, content, stage, error_code, work_item_id)
		VALUES (of_type, institution, $3, $4, at_stage, code, item);
	ELSE
		INSERT INTO alert_repeats (type, institution_id, subject, content, stage, error_code, work_item_id)
		VALUES (of_type, institution, $3, $4, at_stage, code, item);
	END IF;
END
$$;

-- count_repeats adds up to 10,000 repeats to their alerts, and returns how many. Each
-- belongs to the first alert from at most 15 minutes before it (alerts_grouped).
CREATE OR REPLACE FUNCTION count_repeats() RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	g     record;
	total bigint := 0;
BEGIN
	FOR g IN WITH gone AS (
			DELETE FROM alert_repeats WHERE id IN (SELECT id FROM alert_repeats ORDER BY id LIMIT 10000 FOR UPDATE SKIP LOCKED) RETURNING *
		), placed AS (
			SELECT r.*, (SELECT a.id FROM alerts a WHERE a.type = r.type AND a.institution_id IS NOT DISTINCT FROM r.institution_id
				AND a.stage = r.stage AND a.error_code = r.error_code AND a.created_at > r.at - interval '15 minutes'
				ORDER BY a.created_at, a.id LIMIT 1) AS alert
			FROM gone r)
		SELECT alert, type, institution_id, stage, error_code, count(*) AS n, max(at) AS last,
			(array_agg(subject ORDER BY id))[1] AS subject, (array_agg(content ORDER BY id))[1] AS content, min(work_item_id) AS item
		FROM placed GROUP BY alert, type, institution_id, stage, error_code LOOP
		UPDATE alerts SET count = count + g.n, last_at = greatest(last_at, g.last) WHERE id = g.alert;
		IF NOT FOUND THEN -- its transaction was rolled back
			INSERT INTO alerts (type, institution_id, subject, content, stage, error_code, work_item_id, count, last_at)
			VALUES (g.type, g.institution_id, g.subject, g.content, g.stage, g.error_code, g.item, g.n, g.last);
		END IF;
		total := total + g.n;
	END LOOP;
	RETURN total;
END
$$;

-- alert_of_parked alerts the institution and the archive's staff to an item that was given
-- up, and the staff to one about which a person has to decide. Spot restorations have
-- alerts of their own.
CREATE OR REPLACE FUNCTION alert_of_parked(w work_items) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	kind  text := CASE w.status WHEN 'Failed' THEN 'Item Failed' ELSE 'Item Suspended' END;
	title text := format('Item %s %s at %s: %s', w.id, CASE w.status WHEN 'Failed' THEN 'failed' ELSE 'is suspended' END, w.stage, w.name);
	about text := format('%s of %s. Error code: %s. %s', w.action, w.object_identifier, coalesce(nullif(w.error_code, ''), 'none'), w.note);
BEGIN
	IF EXISTS (SELECT FROM spot_restores s WHERE s.work_item_id = w.id) THEN
		RETURN;
	END IF;
	IF w.status = 'Failed' THEN
		PERFORM raise_alert(kind, w.institution_id, title, about, w.stage, w.error_code, w.id);
	END IF;
	PERFORM raise_alert(kind, NULL, title, about, w.stage, w.error_code, w.id);
END
$$;

-- alert_staff alerts the archive's staff to a state that a job has found, unless it has
-- done so within a time. It returns how many alerts it made. Of two that find the state at
-- once the second waits until it sees the alert of the first.
CREATE OR REPLACE FUNCTION alert_staff(of_type text, subject text, content text, at_stage text, code text, within interval) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(hashtextextended(concat_ws('|', 'farol alert', of_type, 0, at_stage, code), 0));
	IF EXISTS (SELECT FROM alerts a WHERE a.type = of_type AND a.institution_id IS NULL AND a.stage = at_stage AND a.error_code = code
		AND a.created_at > now() - within) THEN
		RETURN 0;
	END IF;
	INSERT INTO alerts (type, subject, content, stage, error_code) VALUES (of_type, $2, $3, at_stage, code);
	RETURN 1;
END
$$;

-- alert_of_requests alerts an institution to approvals that have waited for 24 and for 72
-- hours, and to archived copies that stop being readable within a day although their
-- restoration has not ended.
CREATE OR REPLACE FUNCTION alert_of_requests() RETURNS bigint
LANGUAGE sql SET search_path FROM CURRENT AS $$
	WITH due AS (
		SELECT d.institution_id, 'Approval Waits' AS type, format('Deletion request %s waits for approval', d.id) AS subject,
			format('%s requested a deletion on %s. It waits until another person approves or cancels it.', u.email,
				to_char(d.requested_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI "UTC"')) AS content,
			d.id AS request, NULL::bigint AS item, 'deletion ' || d.id AS stage,
			CASE WHEN d.requested_at < now() - interval '72 hours' THEN '72h' ELSE '24h' END AS code
		FROM deletion_requests d JOIN users u ON u.id = d.requested_by
		WHERE d.approved_at IS NULL AND d.cancelled_at IS NULL AND d.requested_at < now() - interval '24 hours'
		UNION ALL
		SELECT w.institution_id, 'Approval Waits', format('The cost of a retrieval waits for approval: item %s', w.id),
			format('To restore %s costs $%s, more than the cap of $%s. It waits until an admin approves it.', w.object_identifier, q.price, q.cap),
			NULL, w.id, 'retrieval ' || w.id, CASE WHEN w.created_at < now() - interval '72 hours' THEN '72h' ELSE '24h' END
		FROM retrievals q JOIN work_items w ON w.id = q.work_item_id
		WHERE q.price > q.cap AND q.approved_at IS NULL AND w.status = 'Suspended' AND w.created_at < now() - interval '24 hours'
		UNION ALL
		SELECT n.institution_id, 'Restoration Ready Soon To Expire', format('Archived copies expire soon: item %s', n.id),
			format('The copies of %s can be read until %s, and item %s, which restores them, is %s.', n.object_identifier,
				to_char(q.readable_until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI "UTC"'), n.id, n.status),
			NULL, n.id, 'retrieval ' || q.work_item_id, 'expires'
		FROM retrievals q JOIN work_items n ON n.id = q.next_item
		WHERE q.readable_until > now() AND q.readable_until < now() + interval '24 hours' AND n.status NOT IN ('Success', 'Cancelled')
	), made AS (
		INSERT INTO alerts (institution_id, type, subject, content, deletion_request_id, work_item_id, stage, error_code)
		SELECT institution_id, type, subject, content, request, item, stage, code FROM due
		WHERE NOT EXISTS (SELECT FROM alerts a WHERE a.type = due.type AND a.stage = due.stage AND a.error_code = due.code)
		RETURNING 1
	)
	SELECT count(*) FROM made;
$$;

-- raise_due_alerts alerts people to states that no transaction brings about: time does.
-- fixity_days is the time between two checks in targets whose policy has none.
CREATE OR REPLACE FUNCTION raise_due_alerts(fixity_days integer) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	made bigint;
	f    record;
BEGIN
	PERFORM pg_advisory_xact_lock(hashtextextended('farol due alerts', 0)); -- of two calls one makes the alerts
	made := alert_of_requests();
	SELECT count(*) AS n, string_agg(format('%s: %s', worker, ending), E'\n' ORDER BY ended_at) AS list INTO f
	FROM worker_processes WHERE ended_at > now() - interval '1 hour' AND ending IN ('killed', 'oom', 'panic', 'silent');
	IF f.n >= 3 THEN
		made := made + alert_staff('Worker Lost', format('%s workers were lost within an hour', f.n), f.list, 'workers', 'lost', '1 hour');
	END IF;
	FOR f IN SELECT p.target, (SELECT min(s.fixity_from) FROM storage_records s WHERE s.target = p.target AND s.active) AS oldest,
			coalesce(p.interval_days, fixity_days) AS days FROM fixity_policies p WHERE p.mode <> 'off' LOOP
		CONTINUE WHEN f.oldest IS NULL OR f.oldest > now() - make_interval(days => f.days + 1);
		made := made + alert_staff('Fixity Promise Broken', 'Fixity checks are overdue in ' || f.target,
			format('A copy in %s was due for a check after %s days and has waited since %s.', f.target, f.days,
				to_char(f.oldest AT TIME ZONE 'UTC', 'YYYY-MM-DD')), 'fixity', f.target, '1 day');
	END LOOP;
	FOR f IN SELECT s.action, s.stage, s.overdue, min(q.run_at) AS oldest FROM stage_settings s CROSS JOIN size_bands b
			CROSS JOIN LATERAL (SELECT w.run_at FROM work_items w WHERE w.status = 'Pending' AND w.retry AND w.stage = s.stage
				AND w.action = s.action AND w.size_band = b.band LIMIT 10000) q -- by work_items_ready
			WHERE NOT s.paused GROUP BY s.action, s.stage, s.overdue HAVING min(q.run_at) < now() - s.overdue LOOP
		made := made + alert_staff('Queue Overdue', format('Items wait for too long: %s, %s', f.action, f.stage),
			format('An item has been due since %s, longer than the %s that its stage allows.',
				to_char(f.oldest AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI "UTC"'), f.overdue), f.stage, f.action, '1 day');
	END LOOP;
	RETURN made;
END
$$;

REVOKE EXECUTE ON FUNCTION mail_choice, second_person_is_staff, retrieval_requester, cost_is_for_staff, gets_mail, next_digest, digest_of, alert_made, raise_alert, count_repeats,
	alert_of_parked, alert_staff, alert_of_requests, raise_due_alerts FROM PUBLIC;
