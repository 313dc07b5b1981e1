package oracle

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A question finds records that are not true. It is a query over the database and over there:
// what the buckets hold (target, key, sha256), with the target "" for the buckets to which is
// restored. It returns a sentence for each.
type question struct{ kind, sql string }

// questions are all that this oracle asks. They are written from the documented meaning of the
// columns, and not from the code that writes them.
func questions() []question {
	return slices.Concat(ofCopies(), ofAddresses(), ofDeletions())
}

// ofCopies asks whether copies are as recorded, and bad copies explained.
func ofCopies() []question {
	return []question{
		{"copy-missing", `
			SELECT s.url || ' is on record, and not there' FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id
			WHERE f.state = 'A' AND NOT EXISTS (SELECT FROM there t WHERE t.target = s.target AND t.key = s.key)
			  AND NOT EXISTS (SELECT FROM fixity_failures b WHERE b.storage_record_id = s.id AND b.state = 'open' AND b.problem = 'missing')`},
		{"copy-altered", `
			SELECT s.url || ' has other bytes than are on record' FROM storage_records s JOIN there t ON t.target = s.target AND t.key = s.key
			WHERE t.sha256 <> (SELECT digest FROM checksums c WHERE c.generic_file_id = s.generic_file_id AND algorithm = 'sha256' ORDER BY datetime DESC LIMIT 1)
			  AND NOT EXISTS (SELECT FROM fixity_failures b WHERE b.storage_record_id = s.id AND b.state = 'open')`},
		{"failure-untrue", `
			SELECT s.url || ' is good, and is on record as bad' FROM fixity_failures b JOIN storage_records s ON s.id = b.storage_record_id
			JOIN there t ON t.target = s.target AND t.key = s.key
			WHERE b.state = 'open' AND t.sha256 = (
				SELECT digest FROM checksums c WHERE c.generic_file_id = s.generic_file_id AND algorithm = 'sha256' ORDER BY datetime DESC LIMIT 1)`},
		{"failure-unexplained", `
			SELECT b.url || ' was bad and is ' || b.state || ', and no event says so' FROM fixity_failures b
			WHERE NOT EXISTS (SELECT FROM premis_events e WHERE e.generic_file_id = b.generic_file_id AND CASE b.state
				WHEN 'repaired'   THEN e.event_type = 'replication' AND e.outcome_detail = b.url AND e.detail LIKE 'Replaced%from a verified one'
				WHEN 'replaced'   THEN e.event_type = 'replication' AND e.outcome_information LIKE '%' || b.url
				WHEN 'good again' THEN e.event_type = 'fixity check' AND e.outcome = 'Success' AND e.outcome_information LIKE '%' || b.url || ':%' AND e.date_time >= b.seen_at
				WHEN 'deleted'    THEN e.event_type = 'deletion' AND e.outcome_detail LIKE '%@%'
				ELSE e.event_type = 'fixity check' AND e.outcome = 'Failure' AND strpos(e.outcome_information, b.url) > 0 END)`},
		{"failure-without-alert", `
			SELECT b.url || ' was bad, and nobody was told' FROM fixity_failures b
			WHERE NOT EXISTS (SELECT FROM alerts a WHERE a.generic_file_id = b.generic_file_id AND a.type = 'Failed Fixity Check' AND strpos(a.content, b.url) > 0)`},
	}
}

// ofAddresses asks whether all objects are on record, and whether events and columns agree.
func ofAddresses() []question {
	return []question{
		{"object-unaccounted", `
			SELECT t.target || ' has ' || t.key || ', and no record says so' FROM there t
			WHERE t.target <> '' AND NOT EXISTS (SELECT FROM storage_records s WHERE s.target = t.target AND s.key = t.key)
			  AND NOT EXISTS (SELECT FROM retired_copies r WHERE r.target = t.target AND r.key = t.key)`},
		{"read-without-event", `
			SELECT s.url || ' was read at ' || s.last_fixity_at || ', and no event says so' FROM storage_records s
			WHERE s.last_fixity_at IS NOT NULL AND s.verified_by <> 'read' AND NOT EXISTS (
				SELECT FROM premis_events e WHERE e.generic_file_id = s.generic_file_id AND e.event_type = 'fixity check'
				  AND strpos(e.outcome_information, s.url) > 0 AND e.date_time = s.last_fixity_at)`},
		{"event-without-read", `
			SELECT s.url || ' was read by an event, and not on record' FROM storage_records s JOIN premis_events e ON e.generic_file_id = s.generic_file_id
			WHERE e.event_type = 'fixity check' AND strpos(e.outcome_information, s.url) > 0 AND coalesce(s.last_fixity_at, '-infinity') < e.date_time`},
		{"address-unexplained", `
			SELECT e.outcome_detail || ' is named by an event, and nobody says what became of it' FROM premis_events e
			WHERE e.event_type IN ('replication', 'identifier assignment') AND e.outcome_detail LIKE '%://%'
			  AND NOT EXISTS (SELECT FROM storage_records s WHERE s.url = e.outcome_detail)
			  AND NOT EXISTS (SELECT FROM premis_events d WHERE d.generic_file_id = e.generic_file_id AND d.event_type = 'deletion' AND (
				d.outcome_detail = e.outcome_detail OR EXISTS (SELECT FROM deletion_receipts r WHERE r.generic_file_id = d.generic_file_id AND r.url = e.outcome_detail)))`},
		{"copy-without-origin", `
			SELECT s.url || ' is on record, and no event made it' FROM storage_records s
			WHERE NOT EXISTS (SELECT FROM premis_events e WHERE e.generic_file_id = s.generic_file_id
				AND e.event_type IN ('replication', 'identifier assignment') AND e.outcome_detail = s.url)`},
	}
}

// ofDeletions asks whether deleted files are gone, and whether items say how they ended.
func ofDeletions() []question {
	return []question{
		{"deleted-but-there", `
			SELECT r.url || ' has a receipt, and is there' FROM deletion_receipts r JOIN there t ON t.target = r.target AND t.key = r.key
			WHERE r.absent_at IS NOT NULL AND NOT EXISTS (SELECT FROM storage_records s WHERE s.target = r.target AND s.key = r.key)`},
		{"receipt-unproven", `
			SELECT r.url || ' is deleted by its file, and not by its receipt' FROM deletion_receipts r JOIN generic_files f ON f.id = r.generic_file_id
			WHERE f.state = 'D' AND f.deleted_by_item = r.work_item_id AND r.kept = '' AND (
				r.absent_at IS NULL AND NOT EXISTS (SELECT FROM all_work_items w WHERE w.id = r.work_item_id AND w.status = 'Cancelled') OR (r.removed_at IS NULL) <> r.found_missing OR r.found_missing AND r.accepted_by = '')`},
		{"deleted-without-word", `
			SELECT f.identifier || ' is deleted, without an event or a receipt' FROM generic_files f
			WHERE f.state = 'D' AND (NOT EXISTS (SELECT FROM deletion_receipts r WHERE r.generic_file_id = f.id)
				OR NOT EXISTS (SELECT FROM premis_events e WHERE e.generic_file_id = f.id AND e.event_type = 'deletion' AND e.outcome_detail LIKE '%@%')
				OR EXISTS (SELECT FROM storage_records s WHERE s.generic_file_id = f.id))`},
		{"outcome-untrue", `
			SELECT 'item ' || id || ' is ' || status || ' and says: ' || outcome FROM all_work_items
			WHERE status IN ('Success', 'Failed', 'Cancelled', 'Suspended') AND (outcome = '' OR outcome LIKE '%pending%'
				OR status <> 'Success' AND (outcome LIKE '%complete%' OR outcome LIKE 'Already%') OR status <> 'Failed' AND outcome LIKE '%failed%')`},
		{"restored-nowhere", `
			SELECT 'item ' || id || ' says: ' || note FROM all_work_items
			WHERE action IN ('Restore Object', 'Restore File') AND status = 'Success' AND NOT EXISTS (
				SELECT FROM there t WHERE t.target = '' AND strpos(note, '/' || t.key) > 0)`},
		{"success-without-copies", `
			SELECT f.identifier || ' has ' || count(s.id) || ' copies' FROM generic_files f LEFT JOIN storage_records s ON s.generic_file_id = f.id
			WHERE f.state = 'A' GROUP BY f.id HAVING count(s.id) < CASE f.storage_option WHEN 'Standard' THEN 2 ELSE 1 END`},
	}
}

// Records asks all questions, and returns nothing if all records are true. buckets are the
// preservation buckets by their targets, and given the buckets to which is restored. No item
// may be in work.
func Records(ctx context.Context, db *pgxpool.Pool, client *s3.Client, buckets map[string]string, given []string) (found []Violation, err error) {
	var targets, keys, sums []string
	read := func(target, bucket string) error {
		objects, err := readBucket(ctx, client, bucket)
		for _, o := range objects {
			targets, keys, sums = append(targets, target), append(keys, o.Key), append(sums, o.SHA256)
		}
		return err
	}
	for target, bucket := range buckets {
		err = errors.Join(err, read(target, bucket))
	}
	for _, bucket := range given {
		err = errors.Join(err, read("", bucket))
	}
	if err != nil {
		return nil, err
	}
	for _, q := range questions() {
		rows, _ := db.Query(ctx, `WITH there (target, key, sha256) AS (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]))`+q.sql, targets, keys, sums)
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("look for %s: %w", q.kind, err)
		}
		for _, said := range list {
			found = append(found, Violation{Kind: q.kind, Detail: said})
		}
	}
	return found, nil
}
