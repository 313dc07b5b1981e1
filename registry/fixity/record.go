package fixity

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// A Result is what was found of a copy.
type Result struct {
	Hold // a report of the provider, and who reads a copy for another purpose, has no claim: its token is 0

	Key       string // under which it was looked at
	Algorithm string // sha256, or another one of a report
	Expected  string // digest on record, in lower-case hex
	Found     string // digest of its bytes; "" if there is no such object
	Bytes     int64  // that were read for it
	Wavered   bool   // a first look had another result

	// Without a claim it must be known which bytes were looked at: those that were
	// stored at StoredAt, as is on record, or, if that is not known, before At.
	StoredAt time.Time
	At       time.Time // when it was looked at; zero: just now

	// What computed the digest, as it goes on record. "" is this program.
	Object, Agent string
}

// An End is what became of a result.
type End string

const (
	// Recorded says that it is on record.
	Recorded End = "recorded"
	// FixityKnown says that this result was on record already: of a report, or of who reads a
	// copy without a claim and finds it as bad as it was found before.
	FixityKnown End = "known"
	// Dropped says that the result is not about the copy that is on record now. The file
	// was ingested again or deleted in the meantime, or the claim was lost.
	Dropped End = "dropped"
	// Busy says that someone is changing the file at this moment. Try again.
	Busy End = "busy"
)

// validSQL selects those results that are about a copy as it is on record
// (storage_records_pkey, fixity_checks_pkey,
// checksums_generic_file_id_algorithm_digest_key). A report is older than its import,
// and does not know of bytes that were stored since; nor does who reads without a claim.
const validSQL = `
SELECT s.id
FROM unnest(@ids::bigint[], @tokens::bigint[], @keys::text[], @algorithms::text[], @expected::text[], @at::timestamptz[], @stored::timestamptz[])
	AS r (id, token, key, algorithm, expected, at, stored)
JOIN storage_records s ON s.id = r.id AND s.key = r.key AND s.active
JOIN generic_files f ON f.id = s.generic_file_id
WHERE CASE r.token WHEN 0 THEN CASE WHEN r.stored IS NULL THEN s.stored_at <= r.at ELSE s.stored_at = r.stored END
		ELSE EXISTS (SELECT FROM fixity_checks c WHERE c.storage_record_id = s.id AND c.token = r.token AND c.worker <> '') END
  AND r.expected = (SELECT k.digest FROM checksums k WHERE k.generic_file_id = f.id AND k.algorithm = r.algorithm
	ORDER BY k.datetime DESC LIMIT 1)
`

// lockRecordsSQL locks them: anyone who records or deletes a file comes before or
// after. What is locked already is left for later, so that nobody waits in a ring.
const lockRecordsSQL = validSQL + `ORDER BY f.id, s.id FOR NO KEY UPDATE OF f, s SKIP LOCKED`

// recordFixitySQL puts results on record. All but the first follow from there being a
// new event, whose identifier is made of the copy and the claim, or the report's
// date: the same result counts once, and so does what readers without a claim find. The system before Farol wrote the outcome
// "Failed" where PREMIS, its own list and this schema have "Failure".
const recordFixitySQL = `
WITH result AS MATERIALIZED (
	SELECT r.id, r.token, r.algorithm, r.expected, r.found, r.bytes, r.wavered, coalesce(r.at, now()) AS at,
		s.generic_file_id, s.url, s.target, p.provider, f.institution_id, f.intellectual_object_id, f.identifier,
		r.found = r.expected AS good, r.object, r.agent,
		CASE r.found WHEN '' THEN 'not found' ELSE r.algorithm || ':' || r.found END AS outcome_detail,
		CASE r.found
			WHEN r.expected THEN format('Fixity matches at %s: %s', s.url, r.found)
			WHEN '' THEN format('Fixity did not match at %s. Expected %s, and there is no such object', s.url, r.expected)
			ELSE format('Fixity did not match at %s. Expected %s, got %s', s.url, r.expected, r.found) END AS information
	FROM unnest(@ids::bigint[], @tokens::bigint[], @algorithms::text[], @expected::text[], @found::text[], @bytes::bigint[],
		@wavered::boolean[], @at::timestamptz[], @objects::text[], @agents::text[])
		AS r (id, token, algorithm, expected, found, bytes, wavered, at, object, agent)
	JOIN storage_records s ON s.id = r.id
	JOIN generic_files f ON f.id = s.generic_file_id
	JOIN fixity_policies p ON p.target = s.target
	-- Who comes upon a bad copy once more has found nothing that is not on record (fixity_failures_open).
	WHERE r.token > 0 OR r.at IS NOT NULL OR NOT EXISTS (SELECT FROM fixity_failures b WHERE b.storage_record_id = r.id AND b.state = 'open'
		AND b.found = r.found AND (b.algorithm = r.algorithm OR b.found = ''))
), held AS MATERIALIZED ( -- locked in one order, as by who renews them
	SELECT c.storage_record_id AS id FROM fixity_checks c JOIN result r
		ON c.storage_record_id = r.id AND (c.token = r.token OR r.token = 0 AND c.worker = '')
	ORDER BY c.storage_record_id FOR UPDATE OF c
), ended AS (
	DELETE FROM fixity_checks c USING held h WHERE c.storage_record_id = h.id
	RETURNING c.storage_record_id AS id, c.token
), event AS (
	INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time,
		detail, outcome, outcome_detail, outcome_information, object, agent)
	SELECT event_identifier(r.token, r.url || CASE r.token WHEN 0 THEN ' ' || extract(epoch FROM r.at) ELSE '' END, 'fixity check', r.outcome_detail),
		r.institution_id, r.intellectual_object_id, r.generic_file_id, 'fixity check', r.at,
		'Fixity check against registered hash', CASE WHEN r.good THEN 'Success' ELSE 'Failure' END, r.outcome_detail, r.information, r.object, r.agent
	FROM result r
	WHERE r.token = 0 OR EXISTS (SELECT FROM ended e WHERE e.id = r.id AND e.token = r.token)
	RETURNING generic_file_id, outcome_information
), results AS MATERIALIZED ( -- which has the URL in it
	SELECT r.* FROM result r JOIN event e ON e.generic_file_id = r.generic_file_id AND e.outcome_information = r.information
), copy AS (
	UPDATE storage_records s SET last_fixity_at = greatest(s.last_fixity_at, t.at), fixity_since = NULL, updated_at = now() FROM results t WHERE s.id = t.id
), file AS (
	UPDATE generic_files f SET last_fixity_check = greatest(f.last_fixity_check, t.at), updated_at = now()
	FROM (SELECT generic_file_id, max(at) AS at FROM results GROUP BY 1) t WHERE f.id = t.generic_file_id
), failure AS (
	INSERT INTO fixity_failures AS b (storage_record_id, generic_file_id, target, provider, url, problem, algorithm, expected, found, found_at, seen_at)
	SELECT id, generic_file_id, target, provider, url, CASE found WHEN '' THEN 'missing' ELSE 'altered' END, algorithm, expected, found, at, at
	FROM results WHERE NOT good ORDER BY id
	ON CONFLICT (storage_record_id) WHERE state = 'open' DO UPDATE SET seen_at = greatest(b.seen_at, excluded.seen_at), noted_at = now(),
		problem = excluded.problem, algorithm = excluded.algorithm, expected = excluded.expected, found = excluded.found
	RETURNING storage_record_id AS id, xmax = 0 AS is_new
), good_again AS (
	UPDATE fixity_failures b SET state = 'good again', closed_at = now()
	FROM results t WHERE t.good AND b.storage_record_id = t.id AND b.state = 'open' AND b.seen_at <= t.at
), alert AS (
	INSERT INTO alerts (institution_id, type, subject, content, generic_file_id)
	SELECT t.institution_id, 'Failed Fixity Check', format('Failed fixity check: %s', t.identifier),
		format('The copy of %s in %s is not what was stored. %s.', t.identifier, t.target, t.information), t.generic_file_id
	FROM results t JOIN failure USING (id) WHERE is_new
), announced AS (
	INSERT INTO topic_messages (topic, body)
	SELECT DISTINCT 'fixity_check', generic_file_id::text FROM results WHERE NOT good
), done AS (
	INSERT INTO fixity_done AS d (target, minute, checks, failures, wavered, bytes)
	SELECT target, date_trunc('minute', now()), count(*), count(*) FILTER (WHERE NOT good), count(*) FILTER (WHERE wavered), sum(bytes)
	FROM results WHERE token > 0 GROUP BY target ORDER BY target
	ON CONFLICT (target, minute) DO UPDATE SET checks = d.checks + excluded.checks, failures = d.failures + excluded.failures,
		wavered = d.wavered + excluded.wavered, bytes = d.bytes + excluded.bytes
), answers AS ( -- the target does: what it has failed for is over
	UPDATE fixity_policies p SET failures = 0, paused_until = '-infinity', pause_reason = ''
	FROM (SELECT target FROM results WHERE token > 0 GROUP BY target) t WHERE p.target = t.target AND p.failures > 0
), retried AS (
	UPDATE fixity_checks c SET run_at = now(), attempts = 0
	FROM fixity_policies p
	WHERE p.target = c.target AND p.failures >= @few::int AND c.worker = '' AND c.run_at > now()
	  AND p.target IN (SELECT target FROM results WHERE token > 0)
)
SELECT id FROM results`

// Record puts on record what was found of copies, and says what became of each
// result, in their order: the event, when copy and file were checked last, and of a
// bad copy the failure, an alert if it is a new one, and a topic message, all in one
// transaction. It ends the claims of what it records.
func (r Records) Record(ctx context.Context, results ...Result) (ends []End, err error) {
	err = registry.Again(func() error {
		return pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
			ends, err = recordResults(ctx, tx, results)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("record the results of %d checks: %w", len(results), err)
	}
	return ends, nil
}

func recordResults(ctx context.Context, tx pgx.Tx, results []Result) ([]End, error) {
	args := resultArgs(results)
	ours, err := idSet(ctx, tx, lockRecordsSQL, args)
	if err != nil {
		return nil, err
	}
	valid := ours
	if len(ours) < len(results) {
		if valid, err = idSet(ctx, tx, validSQL, args); err != nil {
			return nil, err
		}
	}
	var noted []Result
	for _, f := range results {
		if ours[f.ID] {
			noted = append(noted, f)
		}
	}
	recorded := map[int64]bool{}
	if len(noted) > 0 {
		if recorded, err = idSet(ctx, tx, recordFixitySQL, resultArgs(noted)); err != nil {
			return nil, err
		}
	}
	ends := make([]End, len(results))
	for i, f := range results {
		switch {
		case recorded[f.ID]:
			ends[i] = Recorded
		case ours[f.ID] && f.Token == 0:
			ends[i] = FixityKnown
		case valid[f.ID] && !ours[f.ID]:
			ends[i] = Busy
		default:
			ends[i] = Dropped
		}
	}
	return ends, nil
}

func idSet(ctx context.Context, tx pgx.Tx, sql string, args pgx.NamedArgs) (map[int64]bool, error) {
	rows, _ := tx.Query(ctx, sql, args)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	set := make(map[int64]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set, err
}

// resultArgs are the columns of results.
func resultArgs(results []Result) pgx.NamedArgs {
	var ids, tokens, bytes []int64
	var keys, algorithms, expected, found, objects, agents []string
	var wavered []bool
	var at, stored []*time.Time
	for _, f := range results {
		object, agent := f.Object, f.Agent
		if object == "" {
			object, agent = "Go language crypto/"+f.Algorithm, "http://golang.org/pkg/crypto/"+f.Algorithm+"/"
		}
		ids, tokens, bytes = append(ids, f.ID), append(tokens, f.Token), append(bytes, f.Bytes)
		keys, algorithms = append(keys, f.Key), append(algorithms, f.Algorithm)
		expected, found = append(expected, strings.ToLower(f.Expected)), append(found, strings.ToLower(f.Found))
		objects, agents = append(objects, object), append(agents, agent)
		wavered, at = append(wavered, f.Wavered), append(at, registry.TimeOrNull(f.At))
		stored = append(stored, registry.TimeOrNull(f.StoredAt))
	}
	return pgx.NamedArgs{
		"ids": ids, "tokens": tokens, "bytes": bytes, "keys": keys, "algorithms": algorithms, "expected": expected, "found": found,
		"objects": objects, "agents": agents, "wavered": wavered, "at": at, "stored": stored, "few": Few,
	}
}
