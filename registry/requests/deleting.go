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
// gone, no matter who has changed a row by hand in the meantime.
const orderSQL = `
SELECT r.email AS requester, a.email AS approver, o.state AS object_state, coalesce(f.state, o.state) AS state, d.approved_at IS NOT NULL AND
	CASE WHEN $2::bigint = 0
		THEN EXISTS (SELECT FROM deletion_requests_intellectual_objects n WHERE n.deletion_request_id = d.id AND n.intellectual_object_id = o.id)
		ELSE EXISTS (SELECT FROM deletion_requests_generic_files n WHERE n.deletion_request_id = d.id AND n.generic_file_id = f.id
			AND f.intellectual_object_id = o.id) END AS named,
	greatest(o.created_at, f.created_at, (
		SELECT max(g.created_at) FROM generic_files g WHERE $2::bigint = 0 AND g.intellectual_object_id = o.id AND g.state = 'A'
	)) + s.retention_days * interval '1 day' AS kept_until,
	(SELECT u.work_item_id FROM uploads_in_work u WHERE u.object_identifier = o.identifier LIMIT 1) AS ingest
FROM deletion_requests d
JOIN users r ON r.id = d.requested_by
LEFT JOIN users a ON a.id = d.approved_by
JOIN intellectual_objects o ON o.id = $1 AND o.institution_id = d.institution_id
JOIN storage_options s ON s.name = o.storage_option
LEFT JOIN generic_files f ON f.id = $2::bigint
WHERE d.id = $3`

// AuthoriseDeletion sees that an item may delete what it names, and marks that as
// being deleted, so that nobody relies on its bytes from here on. It may be called
// again. What must not be deleted is ErrUnauthorised with the reason; if the claim
// has moved on, it is ErrLost.
func (r Records) AuthoriseDeletion(ctx context.Context, w DeletionWork) (DeletionOrder, error) {
	var order DeletionOrder
	err := r.deleting(ctx, w, func(tx pgx.Tx) error {
		var object, state string
		var approver *string
		var isNamed bool
		var kept time.Time
		var ingest *int64
		err := tx.QueryRow(ctx, orderSQL, w.ObjectID, w.FileID, w.DeletionID).Scan(
			&order.Requester, &approver, &object, &state, &isNamed, &kept, &ingest)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return fmt.Errorf("%w: there is no deletion request %d", ErrUnauthorised, w.DeletionID)
		case err != nil:
			return err
		case approver == nil || !isNamed:
			return fmt.Errorf("%w: request %d was not approved, or does not name it", ErrUnauthorised, w.DeletionID)
		}
		order.Approver, order.Done = *approver, state == "D"
		if order.Done {
			return nil
		}
		if ingest != nil { // its trigger and the request's keep each other out, but for hands
			return fmt.Errorf("%w: item %d ingests the object", ErrUnauthorised, *ingest)
		}
		return r.markDeleting(ctx, tx, w, kept)
	})
	if err != nil {
		return DeletionOrder{}, fmt.Errorf("authorise the deletion of item %d: %w", w.Item, err)
	}
	return order, nil
}

func (r Records) markDeleting(ctx context.Context, tx pgx.Tx, w DeletionWork, kept time.Time) error {
	var over bool
	if err := tx.QueryRow(ctx, `SELECT $1::timestamptz <= now()`, kept).Scan(&over); err != nil {
		return err
	}
	if !over {
		return fmt.Errorf("%w: it must be kept until %s", ErrUnauthorised, kept.UTC().Format(time.DateOnly))
	}
	table, id := "intellectual_objects", w.ObjectID
	if w.FileID != 0 {
		table, id = "generic_files", w.FileID
	}
	tag, err := tx.Exec(ctx, `UPDATE `+table+` SET deleted_by_item = $2, updated_at = now() WHERE id = $1 AND deleted_by_item IS DISTINCT FROM $2`, id, w.Item)
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	_, err = tx.Exec(ctx, `UPDATE intellectual_objects SET deletions = deletions + 1 WHERE id = $1`, w.ObjectID)
	return err
}

// deleting runs a transaction that only the current claim of an item makes.
func (r Records) deleting(ctx context.Context, w DeletionWork, do func(tx pgx.Tx) error) error {
	return registry.Again(func() error {
		return pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
			if err := do(tx); err != nil {
				return err
			}
			return registry.Fence(ctx, tx, w.Item, w.Token, "FOR UPDATE")
		})
	})
}

// deletedSQL ends files whose copies were all seen to be gone.
var deletedSQL = [...]string{ //nolint:gochecknoglobals // a constant, but for Go
	`UPDATE deletion_receipts SET absent_at = now()
	WHERE work_item_id = @item AND generic_file_id = ANY (@files) AND kept = '' AND absent_at IS NULL`,
	`UPDATE generic_files SET state = 'D', deleted_by_item = @item, updated_at = now() WHERE id = ANY (@files) AND state = 'A'`,
	`UPDATE fixity_failures b SET state = 'deleted', closed_at = now()
	FROM storage_records s WHERE s.generic_file_id = ANY (@files) AND b.storage_record_id = s.id AND b.state = 'open'`,
	`DELETE FROM storage_records WHERE generic_file_id = ANY (@files)`,
	`INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time,
		detail, outcome, outcome_detail, outcome_information, object, agent)
	SELECT event_identifier(@item, f.identifier, 'deletion', @requester), f.institution_id, f.intellectual_object_id, f.id, 'deletion', now(),
		'All copies of this file have been deleted from preservation storage', 'Success', @requester,
		'File deleted at the request of ' || @requester || '. Institutional approver: ' || @approver
			|| '. This event confirms all preservation copies have been deleted.' || coalesce((
			SELECT ' Before that, it was found that these were missing: ' || string_agg(r.url, ', ' ORDER BY r.url)
				|| '. ' || string_agg(DISTINCT r.accepted_by, ', ') || ' let the deletion go on.'
			FROM deletion_receipts r WHERE r.work_item_id = @item AND r.generic_file_id = f.id AND r.found_missing), ''),
		@remove_object, @remove_agent
	FROM generic_files f WHERE f.id = ANY (@files)`,
}

// RecordDeletions ends files that have no copy left: state, receipts, events and
// storage records in one transaction.
func (r Records) RecordDeletions(ctx context.Context, w DeletionWork, order DeletionOrder, files []int64) error {
	args := r.registry.EventArgs()
	args["item"], args["files"], args["requester"], args["approver"] = w.Item, files, order.Requester, order.Approver
	err := r.deleting(ctx, w, func(tx pgx.Tx) error {
		for _, sql := range deletedSQL {
			if _, err := tx.Exec(ctx, sql, args); err != nil {
				return err
			}
		}
		return nil
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
		tag, err := tx.Exec(ctx, `
			UPDATE intellectual_objects o SET state = 'D', updated_at = now()
			WHERE id = $1 AND NOT EXISTS (SELECT FROM generic_files f WHERE f.intellectual_object_id = o.id AND f.state = 'A')`, w.ObjectID)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("object %d still has files", w.ObjectID)
		}
		_, err = tx.Exec(ctx, `
			INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, event_type, date_time,
				detail, outcome, outcome_detail, outcome_information, object, agent)
			SELECT event_identifier(@item, o.identifier, 'deletion', @requester), o.institution_id, o.id, 'deletion', now(),
				'Object deleted from preservation storage', 'Success', @requester,
				'Object deleted at the request of ' || @requester || '. Institutional approver: ' || @approver || '.', @remove_object, @remove_agent
			FROM intellectual_objects o WHERE o.id = @object`, args)
		return err
	})
	if err != nil {
		return fmt.Errorf("record the deletion of the object by item %d: %w", w.Item, err)
	}
	return nil
}

// LiveRequests returns the first of the requests that are in work on an object, and since
// when it is. Zero is none. While an ingest of the object is live, no
// other can come (work_items_requests).
func (r Records) LiveRequests(ctx context.Context, object string) (item int64, since time.Duration, err error) {
	err = r.db.QueryRow(ctx, `
		SELECT id, now() - created_at FROM work_items
		WHERE object_identifier = $1 AND action <> 'Ingest' AND retry AND stage = 'Requested' ORDER BY id LIMIT 1`, object).Scan(&item, &since)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("find requests for %q: %w", object, err)
	}
	return item, since, nil
}
