package upkeep

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Violation is something in the database that should never be so.
type Violation struct {
	Code  string
	Count int64    // up to a bound
	Names []string // of the first of them
}

// mostViolations is how many of a kind are counted.
const mostViolations = 10_000

// Rules are the codes of what Violations looks for.
func Rules() []string {
	return []string{"lapsed-lease", "claim-without-attempt", "attempt-without-claim", "waits-for-nobody", "upload-without-item", "item-without-upload", "success-without-object", "deletion-unfinished", "open-review"}
}

// ruleSQL selects the names of what violates a rule. All but two go by the partial
// indexes of what is live; attempt-without-claim and success-without-object read
// the ledger and the queue's table once.
func ruleSQL(code string) string {
	switch code {
	case "lapsed-lease": // a reaper comes every few seconds
		return `SELECT 'item ' || id FROM work_items WHERE status = 'Started' AND lease_expires_at < now() - interval '10 minutes'`
	case "open-review": // work_items_review
		return `SELECT 'item ' || id FROM work_items WHERE needs_admin_review`
	case "claim-without-attempt":
		return `SELECT 'item ' || w.id FROM work_items w WHERE w.status = 'Started' AND NOT EXISTS (
			SELECT FROM work_item_attempts a WHERE a.work_item_id = w.id AND a.claim_token = w.claim_token AND a.ended_at IS NULL)`
	case "attempt-without-claim":
		return `SELECT 'item ' || a.work_item_id FROM work_item_attempts a WHERE a.ended_at IS NULL AND NOT EXISTS (
			SELECT FROM work_items w WHERE w.id = a.work_item_id AND w.claim_token = a.claim_token AND w.status = 'Started')`
	case "waits-for-nobody":
		return `SELECT 'item ' || w.id FROM work_items w WHERE w.waits_for IS NOT NULL AND NOT EXISTS (
			SELECT FROM work_items o WHERE o.id = w.waits_for AND o.retry)`
	case "upload-without-item":
		return `SELECT u.name FROM uploads_in_work u WHERE NOT EXISTS (SELECT FROM work_items w WHERE w.id = u.work_item_id AND w.retry)`
	case "item-without-upload":
		return `SELECT 'item ' || w.id FROM work_items w WHERE w.action = 'Ingest' AND w.status IN ('Pending', 'Started') AND NOT EXISTS (
			SELECT FROM uploads_in_work u WHERE u.object_identifier = w.object_identifier AND u.name = w.name AND u.etag = w.etag AND u.work_item_id = w.id)`
	case "deletion-unfinished": // its item was parked or cancelled; generic_files_deleting, intellectual_objects_deleting
		return `SELECT d.identifier FROM (
				SELECT identifier, deleted_by_item AS item FROM generic_files WHERE state = 'A' AND deleted_by_item IS NOT NULL
				UNION ALL
				SELECT identifier, deleted_by_item FROM intellectual_objects WHERE state = 'A' AND deleted_by_item IS NOT NULL) d
			WHERE NOT EXISTS (SELECT FROM work_items w WHERE w.id = d.item AND w.retry)`
	default: // success-without-object
		return `SELECT 'item ' || w.id FROM work_items w WHERE w.action = 'Ingest' AND w.status = 'Success' AND NOT EXISTS (
			SELECT FROM intellectual_objects o WHERE o.id = w.intellectual_object_id)`
	}
}

// Violations looks for what violates one of the Rules; none is a count of 0.
func (r Records) Violations(ctx context.Context, code string) (Violation, error) {
	v := Violation{Code: code}
	err := r.db.QueryRow(ctx, `
		WITH bad (name) AS MATERIALIZED (SELECT * FROM (`+ruleSQL(code)+`) found LIMIT $1)
		SELECT count(*), coalesce((array_agg(name))[1:10], '{}') FROM bad`, mostViolations).Scan(&v.Count, &v.Names)
	if err != nil {
		return v, fmt.Errorf("look for %s: %w", code, err)
	}
	return v, nil
}

// incompleteSQL walks the files by their ids (generic_files_pkey,
// storage_records_generic_file_id_url_key, checksums_generic_file_id_algorithm_digest_key).
const incompleteSQL = `
WITH page AS MATERIALIZED (
	SELECT id, identifier, state, storage_option FROM generic_files WHERE id > $1 ORDER BY id LIMIT $2
)
SELECT coalesce(max(id), 0), coalesce(array_agg(identifier) FILTER (WHERE state = 'A' AND (
	EXISTS (SELECT FROM unnest($3::text[], $4::text[]) AS promised (option, target)
		WHERE promised.option = storage_option AND NOT EXISTS (
			SELECT FROM storage_records s WHERE s.generic_file_id = page.id AND s.target = promised.target))
	OR NOT EXISTS (SELECT FROM checksums c WHERE c.generic_file_id = page.id))), '{}')
FROM page`

// IncompleteFiles walks the files on record, some thousands at a time, and yields
// of each page those that have fewer copies on record than their storage option
// promises, or no checksum. targets are by storage option.
func (r Records) IncompleteFiles(ctx context.Context, targets map[string][]string) iter.Seq2[[]string, error] {
	var options, names []string
	for option, list := range targets {
		for _, target := range list {
			options, names = append(options, option), append(names, target)
		}
	}
	return func(yield func([]string, error) bool) {
		const page = 5000
		for after := int64(0); ; {
			var last int64
			var files []string
			if err := r.db.QueryRow(ctx, incompleteSQL, after, page, options, names).Scan(&last, &files); err != nil {
				yield(nil, fmt.Errorf("read the recorded files: %w", err))
				return
			}
			if last == 0 || !yield(files, nil) {
				return
			}
			after = last
		}
	}
}

// CopyKeys walks the keys of all copies on record in a target, in the order of
// their bytes, a page at a time (storage_records_copy).
func (r Records) CopyKeys(ctx context.Context, target string) iter.Seq2[string, error] {
	return inPages(ctx, r, target, `SELECT key FROM storage_records WHERE target = $1 AND key > $2 ORDER BY target, key LIMIT $3`,
		pgx.RowTo[string], func(key string) string { return key })
}

// A RecordedCopy is a copy on record in a target.
type RecordedCopy struct {
	Key      string
	Size     int64     // of its file; -1 if it is not known
	StoredAt time.Time // by the provider's clock
}

// CopySizes is [Records.CopyKeys] with the sizes, which the index does not have: it reads the rows
// of copies and files too, one by one.
func (r Records) CopySizes(ctx context.Context, target string) iter.Seq2[RecordedCopy, error] {
	return inPages(ctx, r, target, `
		SELECT key, coalesce((SELECT f.size FROM generic_files f WHERE f.id = generic_file_id), -1) AS size, stored_at
		FROM storage_records WHERE target = $1 AND key > $2 ORDER BY target, key LIMIT $3`,
		pgx.RowToStructByName[RecordedCopy], func(c RecordedCopy) string { return c.Key })
}

// inPages walks the copies of a target page by page, each after the last key of the one before.
func inPages[T any](ctx context.Context, r Records, target, sql string, scan pgx.RowToFunc[T], keyOf func(T) string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		const page = 2000
		for after := ""; ; {
			rows, _ := r.db.Query(ctx, sql, target, after, page)
			list, err := pgx.CollectRows(rows, scan)
			if err != nil {
				var none T
				yield(none, fmt.Errorf("read the recorded copies in %s: %w", target, err))
				return
			}
			for _, one := range list {
				if !yield(one, nil) {
					return
				}
			}
			if len(list) < page {
				return
			}
			after = keyOf(list[len(list)-1])
		}
	}
}

// A KeyUse is what the registry knows of a key in a target.
type KeyUse struct {
	Recorded bool // a copy is on record under it
	Retired  bool // a copy that was under it has been replaced
	Found    bool // the next ingest of its bag takes the copy over
	Noted    bool // an item that has ended without being recorded may have made one
}

// KeyUses looks some keys up (storage_records_copy, retired_copies_pkey,
// found_copies_key, unrecorded_copies_keys).
func (r Records) KeyUses(ctx context.Context, target string, keys []string) (map[string]KeyUse, error) {
	rows, _ := r.db.Query(ctx, `
		SELECT k, EXISTS (SELECT FROM storage_records s WHERE s.target = $1 AND s.key = k),
			EXISTS (SELECT FROM retired_copies c WHERE c.target = $1 AND c.key = k),
			EXISTS (SELECT FROM found_copies f WHERE f.key = k),
			EXISTS (SELECT FROM unrecorded_copies u WHERE u.keys @> ARRAY[k] AND $1 = ANY (u.targets))
		FROM unnest($2::text[]) k`, target, keys)
	uses := map[string]KeyUse{}
	var key string
	var use KeyUse
	_, err := pgx.ForEachRow(rows, []any{&key, &use.Recorded, &use.Retired, &use.Found, &use.Noted}, func() error {
		uses[key] = use
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("compare %d keys in %s with the records: %w", len(keys), target, err)
	}
	return uses, nil
}

// ItemsOf returns the IDs of the items of an object: those that are live, and those
// that ended without being recorded (one_live_ingest, work_items_ended_object,
// work_items_archive_object).
func (r Records) ItemsOf(ctx context.Context, object string) ([]int64, error) {
	rows, _ := r.db.Query(ctx, `
		SELECT work_item_id FROM uploads_in_work WHERE object_identifier = $1
		UNION
		SELECT w.id FROM all_work_items w WHERE w.object_identifier = $1 AND w.action = 'Ingest' AND NOT w.retry AND w.status <> 'Success'`, object)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("look up the items of %q: %w", object, err)
	}
	return ids, nil
}

// CopyingSince returns how long ago the first of the items that are live now came
// to Store; 0 if none has. No copy that is older is a live item's.
func (r Records) CopyingSince(ctx context.Context) (time.Duration, error) {
	var since time.Duration
	err := r.db.QueryRow(ctx, `
		SELECT coalesce(now() - min(a.claimed_at), interval '0') FROM work_items w
		JOIN work_item_attempts a ON a.work_item_id = w.id AND a.stage = 'Store'
		WHERE w.status IN ('Pending', 'Started')`).Scan(&since)
	if err != nil {
		return 0, fmt.Errorf("read since when live items have made copies: %w", err)
	}
	return max(since, 0), nil
}
