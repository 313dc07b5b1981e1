package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

// Upload is a tar in a receiving bucket.
type Upload struct {
	Key          string
	ETag         string // unquoted
	Size         int64  // bytes
	LastModified time.Time
	Seen         bool // it was uploaded by way of Farol, just now
}

// newUploadsSQL leaves out what has a live item (one_live_ingest), and uploads whose
// item has ended (work_items_ended_bag, work_items_archive_bag). What was uploaded once
// more, with the same bytes, is new: its object may be another version by now, or lack
// what was deleted. So is an upload that was listed after its item had succeeded, since
// Cleanup had removed the one before, however quickly it came.
//
// The time of an object says little: it is another one after its bucket was restored, moved
// or replicated. So bytes for which a Failed or Suspended item waits, and that nothing
// followed under their name, are what failed, unless they were gone, or Farol has seen the upload.
const newUploadsSQL = `
SELECT u.key, u.etag, u.size, u.modified AS last_modified, u.seen
FROM unnest(@keys::text[], @etags::text[], @sizes::bigint[], @modified::timestamptz[], @seen::boolean[]) AS u (key, etag, size, modified, seen)
LEFT JOIN LATERAL (
	SELECT w.id, w.status, w.size, w.error_code, w.updated_at, w.bag_date FROM all_work_items w
	WHERE w.institution_id = @institution AND w.name = u.key AND w.etag = u.etag AND w.action = 'Ingest' AND NOT w.retry
	ORDER BY w.id DESC LIMIT 1
) ended ON true
WHERE NOT EXISTS (
	SELECT FROM uploads_in_work w
	WHERE w.object_identifier = object_identifier_of(@identifier, u.key) AND w.name = u.key AND w.etag = u.etag)
  AND (ended IS NULL OR u.modified > ended.bag_date OR ended.status = 'Success' AND ended.updated_at < @listed)
  AND (ended IS NULL OR u.seen OR ended.status NOT IN ('Failed', 'Suspended') OR ended.error_code = 'bag-gone' OR ended.size <> u.size
	OR EXISTS (SELECT FROM all_work_items w WHERE w.institution_id = @institution AND w.name = u.key AND w.action = 'Ingest' AND w.id > ended.id))
ORDER BY u.modified, u.key`

const createIngestSQL = `
INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, note, outcome)
VALUES (@institution, 'Ingest', 'Receive', @key, @bucket, @etag, @size, @modified,
	'Bag is in receiving bucket', 'Item is pending ingest')
RETURNING id`

// CreateIngests makes a work item for each of the uploads that has none yet and
// returns their ids. They were listed from a time on, by the database's clock. Readers
// of the same institution run one after another here, so that an upload never gets two items
// however many of them see it at once. If one is [ErrRefused], none is made.
func (r *Registry) CreateIngests(ctx context.Context, in record.Institution, listed time.Time, uploads []Upload) (ids []int64, err error) {
	if len(uploads) == 0 {
		return nil, nil
	}
	err = Again(func() error {
		return pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) (err error) {
			ids, err = createIngests(ctx, tx, in, listed, uploads)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("create ingests for %s: %w", in.Identifier, Refusal(err))
	}
	return ids, nil
}

func createIngests(ctx context.Context, tx pgx.Tx, in record.Institution, listed time.Time, uploads []Upload) (ids []int64, err error) {
	var keys, etags []string
	var sizes []int64
	var modified []time.Time
	var seen []bool
	for _, u := range uploads {
		keys, etags, sizes, modified = append(keys, u.Key), append(etags, u.ETag), append(sizes, u.Size), append(modified, u.LastModified)
		seen = append(seen, u.Seen)
	}
	if _, err := tx.Exec(ctx, `SELECT lock_institution($1)`, in.ID); err != nil {
		return nil, err
	}
	rows, _ := tx.Query(ctx, newUploadsSQL, pgx.NamedArgs{
		"institution": in.ID, "identifier": in.Identifier, "keys": keys, "etags": etags, "sizes": sizes, "modified": modified,
		"seen": seen, "listed": listed,
	})
	fresh, err := pgx.CollectRows(rows, pgx.RowToStructByName[Upload])
	if err != nil {
		return nil, err
	}
	if err := lockObjects(ctx, tx, in, fresh); err != nil {
		return nil, err
	}
	for _, u := range fresh {
		rows, _ := tx.Query(ctx, createIngestSQL, pgx.NamedArgs{
			"institution": in.ID, "bucket": in.ReceivingBucket,
			"key": u.Key, "etag": u.ETag, "size": u.Size, "modified": u.LastModified,
		})
		id, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", u.Key, err)
		}
		ids = append(ids, id...)
	}
	return ids, nil
}

// lockObjects locks what uploads become in the order of names, as all do who lock
// several; the items are then made in the order of the uploads.
func lockObjects(ctx context.Context, tx pgx.Tx, in record.Institution, uploads []Upload) error {
	if len(uploads) < 2 {
		return nil
	}
	var keys []string
	for _, u := range uploads {
		keys = append(keys, u.Key)
	}
	_, err := tx.Exec(ctx, `
		SELECT lock_object(o.name) FROM (
			SELECT object_identifier_of($1, k) COLLATE "C" AS name FROM unnest($2::text[]) k GROUP BY 1 ORDER BY 1
		) o`, in.Identifier, keys)
	return err
}

// ArchiveUser is the user of items that no person has asked for.
const ArchiveUser = "system@aptrust.org"

// WorkItemColumns are the columns of a [WorkItem], for statements that read w, a row of
// work_items or of its archive, and i, its institution.
const WorkItemColumns = `
	w.id, w.action, w.stage, w.status, w.name, w.etag, w.bucket, w.size, i.identifier AS institution, w.institution_id,
	w.object_identifier, w.intellectual_object_id, w.note, w.outcome, w.error_code, w.retry, w.needs_admin_review,
	w.attempt, w.node, w.pid, w.worker, w.claim_token, w.priority,
	CASE WHEN isfinite(w.run_at) THEN w.run_at END AS run_at, -- Go has no infinite time
	w.waits_for, w.lease_expires_at, w.stage_started_at, w.bag_date, w.date_processed, w.queued_at,
	w.created_at, w.updated_at, w."user", w.generic_file_id, w.inst_approver, w.deletion_request_id,
	ARRAY(SELECT s.stage::text FROM stage_settings s WHERE s.action = w.action ORDER BY s.ordinal) AS stage_order`

// WorkItem returns one work item, or ErrNotFound.
func (r *Registry) WorkItem(ctx context.Context, id int64) (record.WorkItem, error) {
	return r.oneItem(ctx, "show", `SELECT `+WorkItemColumns+`
		FROM all_work_items w JOIN institutions i ON i.id = w.institution_id WHERE w.id = @id`, pgx.NamedArgs{"id": id})
}

// Requeue makes an item claimable again, at the stage named or else at the last
// one it attempted. What the rules do not allow is ErrRefused.
func (r *Registry) Requeue(ctx context.Context, id int64, stage Stage) (record.WorkItem, error) {
	return r.oneItem(ctx, "requeue", `SELECT `+WorkItemColumns+`
		FROM requeue(@id, nullif(@stage, '')) w JOIN institutions i ON i.id = w.institution_id`,
		pgx.NamedArgs{"id": id, "stage": stage})
}

// RequeueStages returns the stages of an item's action in their order, with what requeueing
// the item to each of them comes to. An item that has gone to the archive has none.
func (r *Registry) RequeueStages(ctx context.Context, id int64) ([]record.RequeueStage, error) {
	return Collect[record.RequeueStage](ctx, r.db, fmt.Sprintf("ask where item %d may be requeued to", id), `
		SELECT s.stage, b.stage AS begins_at, x.reason AS refused,
			ARRAY(SELECT n.stage::text FROM stage_settings n WHERE n.action = w.action AND n.ordinal >= b.ordinal ORDER BY n.ordinal) AS redone
		FROM work_items w
		JOIN stage_settings s ON s.action = w.action
		CROSS JOIN LATERAL requeue_refusal(w, s.stage) x
		JOIN stage_settings b ON b.action = w.action AND b.stage = requeue_stage(w, s.stage)
		WHERE w.id = @id ORDER BY s.ordinal`, pgx.NamedArgs{"id": id}) // work_items_pkey
}

// Cancel ends an item for good, with the reason as its note. A worker that holds
// it is refused its next write.
func (r *Registry) Cancel(ctx context.Context, id int64, reason string) (record.WorkItem, error) {
	return r.oneItem(ctx, "cancel", `SELECT `+WorkItemColumns+`
		FROM cancel(@id, nullif(@reason, '')) w JOIN institutions i ON i.id = w.institution_id`,
		pgx.NamedArgs{"id": id, "reason": reason})
}

// AddNote adds a note to the history of an item, which stays as it is.
func (r *Registry) AddNote(ctx context.Context, id int64, note string) (record.WorkItem, error) {
	return r.oneItem(ctx, "add a note to", `SELECT `+WorkItemColumns+`
		FROM note_item(@id, @note) w JOIN institutions i ON i.id = w.institution_id`,
		pgx.NamedArgs{"id": id, "note": note})
}

func (r *Registry) oneItem(ctx context.Context, verb, sql string, args pgx.NamedArgs) (record.WorkItem, error) {
	var item record.WorkItem
	err := r.db.again(ctx, func() (err error) {
		rows, _ := r.db.Query(ctx, sql, args)
		item, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[record.WorkItem])
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = NoSuch(fmt.Sprintf("item %d", args["id"]))
	}
	if err != nil {
		return record.WorkItem{}, fmt.Errorf("%s item %d: %w", verb, args["id"], Refusal(err))
	}
	return item, nil
}

// LockItem returns a live item within a scope, or one that has ended, and keeps others from
// changing it until the transaction of ctx ends.
func (r *Registry) LockItem(ctx context.Context, s Scope, id int64) (record.WorkItem, error) {
	if _, err := r.db.Exec(ctx, `SELECT FROM work_items WHERE id = $1 AND ($2 OR institution_id = $3) FOR UPDATE`, id, s.all, s.institution); err != nil {
		return record.WorkItem{}, fmt.Errorf("lock item %d: %w", id, Refusal(err))
	}
	w, err := r.WorkItem(ctx, id)
	if err == nil && !s.Has(w.InstitutionID) {
		err = ErrNotFound
	}
	return w, err
}

// Attempts returns every claim of an item there was, in their order.
func (r *Registry) Attempts(ctx context.Context, item int64) ([]record.Attempt, error) {
	return Collect[record.Attempt](ctx, r.db, fmt.Sprintf("list attempts of item %d", item), `
		SELECT claim_token, stage, attempt, node, pid, worker, claimed_at, heartbeat_at, ended_at, outcome, error_code, error, current_file
		FROM attempts WHERE work_item_id = $1 ORDER BY claim_token`, item)
}

// RemarkOf is what the ledger says of the bag's warnings since it was last found valid;
// "" if it has none.
func RemarkOf(attempts []record.Attempt) string {
	for _, a := range slices.Backward(attempts) {
		if a.Stage == Validate && a.Outcome != nil && *a.Outcome == "done" {
			return a.Error
		}
	}
	return ""
}

// Changes returns what persons changed of an item, in their order. The newest 200
// are all there are space for: an item is not decided about more often.
func (r *Registry) Changes(ctx context.Context, item int64) ([]record.Change, error) {
	// work_item_audit_item
	return Collect[record.Change](ctx, r.db, fmt.Sprintf("list changes of item %d by hand", item), `
		SELECT at, actor, session_user_is AS "user", person, application_name AS program,
			before->>'stage' AS stage_was, before->>'status' AS status_was,
			after->>'stage' AS stage_then, after->>'status' AS status_then, refused, note
		FROM (SELECT * FROM work_item_audit WHERE work_item_id = $1 ORDER BY id DESC LIMIT 200) a
		ORDER BY id`, item)
}
