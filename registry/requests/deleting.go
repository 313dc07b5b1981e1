package requests

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// A DeletionOrder is what an item of a deletion may do.
type DeletionOrder struct {
	Requester, Approver string // e-mails
	Done                bool   // it was done before

	Waits string        // why nothing may be removed yet; "": now it may
	For   time.Duration // until it may, by the database's clock
}

// DeletionWork names an item of a deletion and the claim that works on it.
type DeletionWork struct {
	Item, Token int64
	ObjectID    int64
	FileID      int64 // 0: the whole object
	DeletionID  int64 // request
}

// ErrUnauthorised says that a deletion is not one that two people have decided on,
// or that the time for it has not come. Nothing may be deleted.
var ErrUnauthorised = errors.New("not authorised")

// orderSQL sees once more to all that the approval saw to: what is deleted here is
// gone, no matter who has changed a row by hand in the meantime. A bag that was ingested
// since is not what two people have decided to delete.
const orderSQL = `
SELECT r.email AS requester, a.email AS approver, o.state AS object_state, coalesce(f.state, o.state) AS state,
	coalesce(deletion_waits(d.id), '') AS waits, greatest(d.begins_at - now(), '0') AS waits_for, d.approved_at IS NOT NULL AND d.cancelled_at IS NULL AND
	CASE WHEN $2::bigint = 0
		THEN EXISTS (SELECT FROM deletion_requests_intellectual_objects n WHERE n.deletion_request_id = d.id AND n.intellectual_object_id = o.id)
		ELSE EXISTS (SELECT FROM deletion_requests_generic_files n WHERE n.deletion_request_id = d.id AND n.generic_file_id = f.id
			AND f.intellectual_object_id = o.id) END AS named,
	k.until, k.until <= now() AS over,
	(SELECT u.work_item_id FROM uploads_in_work u WHERE u.object_identifier = o.identifier LIMIT 1) AS ingest,
	EXISTS (SELECT FROM premis_events e WHERE e.intellectual_object_id = o.id AND e.generic_file_id IS NULL
		AND e.event_type = 'ingestion' AND e.created_at > d.approved_at) AS changed
FROM deletion_requests d
JOIN users r ON r.id = d.requested_by
LEFT JOIN users a ON a.id = d.approved_by
JOIN intellectual_objects o ON o.id = $1 AND o.institution_id = d.institution_id
JOIN storage_options s ON s.name = o.storage_option
LEFT JOIN generic_files f ON f.id = $2::bigint
CROSS JOIN LATERAL (SELECT greatest(o.created_at, f.created_at, (
	SELECT max(g.created_at) FROM generic_files g WHERE $2::bigint = 0 AND g.intellectual_object_id = o.id AND g.state = 'A'
)) + s.retention_days * interval '1 day' AS until) k
WHERE d.id = $3`

// AuthoriseDeletion sees that an item may delete what it names. What must not be deleted is
// ErrUnauthorised with the reason; if the claim has moved on, it is ErrLost. Before the time at
// which the request begins the order says how long it waits.
func (r Records) AuthoriseDeletion(ctx context.Context, w DeletionWork) (order DeletionOrder, err error) {
	err = r.deleting(ctx, w, func(tx pgx.Tx) error {
		order, err = authorise(ctx, tx, w)
		return err
	})
	if err != nil {
		return DeletionOrder{}, fmt.Errorf("authorise the deletion of item %d: %w", w.Item, err)
	}
	return order, nil
}

func authorise(ctx context.Context, tx pgx.Tx, w DeletionWork) (order DeletionOrder, err error) {
	var object, state string
	var approver *string
	var isNamed, over, changed bool
	var kept time.Time
	var ingest *int64
	err = tx.QueryRow(ctx, orderSQL, w.ObjectID, w.FileID, w.DeletionID).Scan(
		&order.Requester, &approver, &object, &state, &order.Waits, &order.For, &isNamed, &kept, &over, &ingest, &changed)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return order, fmt.Errorf("%w: there is no deletion request %d", ErrUnauthorised, w.DeletionID)
	case err != nil:
		return order, err
	case approver == nil || !isNamed:
		return order, fmt.Errorf("%w: request %d was not approved, was stopped, or does not name it", ErrUnauthorised, w.DeletionID)
	}
	order.Approver, order.Done = *approver, state == "D"
	switch {
	case order.Done, order.Waits != "":
		return order, nil
	case ingest != nil: // its trigger and the request's keep each other out, but for hands
		return order, fmt.Errorf("%w: item %d ingests the object", ErrUnauthorised, *ingest)
	case !over:
		return order, fmt.Errorf("%w: it must be kept until %s", ErrUnauthorised, kept.UTC().Format(time.DateOnly))
	case changed:
		return order, fmt.Errorf("%w: a bag of the object was ingested after the approval; cancel this item and request the deletion again", ErrUnauthorised)
	}
	return order, nil
}

// beginSQL is the intent: which copies may be gone from here on. The mark of the files, and of
// an object that goes as a whole, says that the deletion has begun and not ended.
const (
	countedSQL = `
UPDATE intellectual_objects SET deletions = deletions + 1, deleted_by_item = CASE WHEN @file::bigint = 0 THEN @item ELSE deleted_by_item END
WHERE id = @object AND NOT EXISTS (SELECT FROM deletion_receipts r WHERE r.work_item_id = @item AND r.begun_at IS NOT NULL)`
	beginSQL = `
INSERT INTO deletion_receipts AS r (work_item_id, generic_file_id, target, bucket, key, url, kept, begun_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, CASE $7 WHEN '' THEN now() END)
ON CONFLICT (work_item_id, generic_file_id, target, key) DO UPDATE SET kept = excluded.kept, begun_at = coalesce(r.begun_at, excluded.begun_at)
WHERE r.removed_at IS NULL`
	markSQL = `UPDATE generic_files SET deleted_by_item = @item, updated_at = now() WHERE id = ANY (@files) AND state = 'A'`
)

// BeginDeletions puts on record that copies of some files are about to be removed, if the item
// still may. Until then they are in preservation like all others.
func (r Records) BeginDeletions(ctx context.Context, w DeletionWork, files []int64, receipts []Receipt) error {
	args := pgx.NamedArgs{"item": w.Item, "object": w.ObjectID, "file": w.FileID, "files": files}
	err := r.deleting(ctx, w, func(tx pgx.Tx) error {
		if _, err := authorise(ctx, tx, w); err != nil {
			return err
		}
		batch := &pgx.Batch{}
		batch.Queue(countedSQL, args)
		for _, c := range receipts {
			batch.Queue(beginSQL, w.Item, c.FileID, c.Target, c.Bucket, c.Key, c.URL, c.Kept)
		}
		batch.Queue(markSQL, args) // now: its trigger reads the receipts
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return fmt.Errorf("begin the deletion of %d files by item %d: %w", len(files), w.Item, err)
	}
	return nil
}

// withdrawSQL takes back the intent for copies, and the marks that nothing is left of.
const (
	keptSQL = `
INSERT INTO deletion_receipts (work_item_id, generic_file_id, target, bucket, key, url, kept_by_store) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (work_item_id, generic_file_id, target, key) DO UPDATE SET kept_by_store = excluded.kept_by_store, begun_at = NULL, removed_at = NULL`
	withdrawSQL = `
UPDATE deletion_receipts SET begun_at = NULL, removed_at = NULL
WHERE work_item_id = $1 AND generic_file_id = $2 AND target = $3 AND key = $4`
	unmarkSQL = `
UPDATE generic_files f SET deleted_by_item = CASE WHEN EXISTS (
	SELECT FROM deletion_receipts r WHERE r.work_item_id = @item AND r.generic_file_id = f.id AND r.begun_at IS NOT NULL) THEN @item::bigint END
WHERE f.id = ANY (@files) AND f.state = 'A' AND f.deleted_by_item = @item`
	unmarkObjectSQL = `
UPDATE intellectual_objects SET deleted_by_item = NULL
WHERE id = @object AND deleted_by_item = @item AND NOT EXISTS (SELECT FROM deletion_receipts r WHERE r.work_item_id = @item AND r.begun_at IS NOT NULL)`
)

// WithdrawDeletions puts on record that copies are still there which a store does not delete.
// They are in preservation again, until the deletion goes on. Receipts say of those that are
// kept until when.
func (r Records) WithdrawDeletions(ctx context.Context, w DeletionWork, there []Receipt) error {
	args := pgx.NamedArgs{"item": w.Item, "object": w.ObjectID}
	err := r.deleting(ctx, w, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		var files []int64
		for _, c := range there {
			files = append(files, c.FileID)
			if c.KeptByStore != "" {
				batch.Queue(keptSQL, w.Item, c.FileID, c.Target, c.Bucket, c.Key, c.URL, c.KeptByStore)
				continue
			}
			batch.Queue(withdrawSQL, w.Item, c.FileID, c.Target, c.Key)
		}
		args["files"] = files
		batch.Queue(unmarkSQL, args)
		batch.Queue(unmarkObjectSQL, args)
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return fmt.Errorf("record %d copies that item %d could not delete: %w", len(there), w.Item, err)
	}
	return nil
}

// deleting runs a transaction that only the current claim of an item makes. It locks the item
// first, as who cancels it does.
func (r Records) deleting(ctx context.Context, w DeletionWork, do func(tx pgx.Tx) error) error {
	return registry.Again(func() error {
		return pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
			if err := registry.Fence(ctx, tx, w.Item, w.Token); err != nil {
				return err
			}
			return do(tx)
		})
	})
}

// RecordDeletions ends files that have no copy left: state, receipts, events and
// storage records in one transaction.
func (r Records) RecordDeletions(ctx context.Context, w DeletionWork, order DeletionOrder, files []int64) error {
	args := r.registry.EventArgs()
	args["item"], args["files"], args["requester"], args["approver"] = w.Item, files, order.Requester, order.Approver
	err := r.deleting(ctx, w, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT files_deleted(@item, @files, true, @requester, @approver, @remove_object, @remove_agent)`, args)
		return err
	})
	if err != nil {
		return fmt.Errorf("record the deletion of %d files by item %d: %w", len(files), w.Item, err)
	}
	return nil
}

// RecordObjectDeletion ends an object, once none of its files is left.
func (r Records) RecordObjectDeletion(ctx context.Context, w DeletionWork, order DeletionOrder) error {
	args := r.registry.EventArgs()
	args["item"], args["object"], args["requester"], args["approver"] = w.Item, w.ObjectID, order.Requester, order.Approver
	err := r.deleting(ctx, w, func(tx pgx.Tx) error {
		var ended bool
		err := tx.QueryRow(ctx, `SELECT object_deleted(@item, @object, @requester, @approver, @remove_object, @remove_agent)`, args).Scan(&ended)
		if err == nil && !ended {
			err = fmt.Errorf("object %d still has files", w.ObjectID)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("record the deletion of the object by item %d: %w", w.Item, err)
	}
	return nil
}

// LiveRequests returns the first of the requests that are in work on an object, since when it
// is, and why it waits if it is a deletion that does. Zero is none. While an ingest of the object is live, no
// other can come (work_items_requests). A deletion that was cancelled counts while its worker
// may still remove a copy: see deletion_gives_back (work_items_ended_object).
func (r Records) LiveRequests(ctx context.Context, object string) (item int64, since time.Duration, waits string, err error) {
	err = r.db.QueryRow(ctx, `
		SELECT id, now() - created_at, waits FROM (
			SELECT id, created_at, coalesce(deletion_item_waits(work_items), '') AS waits FROM work_items WHERE object_identifier = $1 AND action <> 'Ingest' AND retry AND stage = 'Requested'
			UNION ALL
			SELECT id, updated_at, '' FROM work_items w WHERE object_identifier = $1 AND NOT retry AND action = 'Delete' AND status = 'Cancelled'
			  AND EXISTS (
				SELECT FROM deletion_receipts r
				JOIN storage_records s ON s.generic_file_id = r.generic_file_id AND s.target = r.target AND s.key = r.key
				JOIN fixity_checks c ON c.storage_record_id = s.id AND c.worker = 'item ' || w.id AND c.run_at > now()
				WHERE r.work_item_id = w.id AND r.begun_at IS NOT NULL AND r.removed_at IS NULL)
		) w ORDER BY id LIMIT 1`, object).Scan(&item, &since, &waits)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, 0, "", nil
	}
	if err != nil {
		return 0, 0, "", fmt.Errorf("find requests for %q: %w", object, err)
	}
	return item, since, waits, nil
}
