package requests

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// CancelDeletion cancels a request, for a reason that the institution reads. After the approval
// it ends the items of the request that have not ended, in the same transaction: what they have
// not removed stays. Any institutional admin of the institution may, and any admin of the
// archive. A request that was carried out is ErrRefused.
func (r Records) CancelDeletion(ctx context.Context, id int64, by, reason string) (record.DeletionRequest, error) {
	return r.decideDeletion(ctx, id, by, "cancel", func(ctx context.Context, tx pgx.Tx, u record.User, approved *time.Time) error {
		running, err := runningOf(ctx, tx, id)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE deletion_requests SET cancelled_by = $2, cancel_reason = nullif(btrim($3), '') WHERE id = $1`, id, u.ID, reason); err != nil {
			return err
		}
		text := u.Email + " has cancelled it. Nothing was deleted."
		if approved != nil {
			if text, err = stoppedText(ctx, tx, id, u.Email, running); err != nil {
				return err
			}
		}
		if strings.TrimSpace(reason) != "" {
			text += " Reason: " + reason
		}
		return alertOfDeletion(ctx, tx, id, "Deletion Cancelled", text)
	})
}

// runningOf counts the items of a request that a worker runs. They are locked.
func runningOf(ctx context.Context, tx pgx.Tx, id int64) (n int64, err error) {
	err = tx.QueryRow(ctx, `SELECT count(*) FROM work_items WHERE deletion_request_id = $1 AND status = 'Started'`, id).Scan(&n)
	return n, err
}

// stoppedText says what had been removed when a request was stopped.
func stoppedText(ctx context.Context, tx pgx.Tx, id int64, by string, running int64) (string, error) {
	var done, items, copies int64
	err := tx.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE w.status = 'Success'), count(*), coalesce(sum(c.n), 0)::bigint FROM all_work_items w CROSS JOIN LATERAL (
			SELECT count(*) AS n FROM deletion_receipts c WHERE c.work_item_id = w.id AND c.removed_at IS NOT NULL) c
		WHERE w.deletion_request_id = $1`, id).Scan(&done, &items, &copies)
	if err != nil {
		return "", err
	}
	text := by + " has stopped it after its approval. "
	if copies == 0 && done == 0 {
		text += "Nothing had been removed."
	} else {
		text += fmt.Sprintf("Before that, %d of its %d items were done, and %d copies had been removed. `farol delete show %d` lists them.", done, items, copies, id)
	}
	if running > 0 {
		text += fmt.Sprintf(" Workers ran %d of its items. What they were removing at that moment may be gone, too.", running)
	}
	return text, nil
}

// lockUnfinishedSQL locks the items of a request that have not ended, before the request: an
// item that ends locks them in this order, too.
const lockUnfinishedSQL = `
SELECT FROM work_items w JOIN deletion_requests d ON d.id = w.deletion_request_id
WHERE w.deletion_request_id = $1 AND ($2::bigint = 0 OR d.institution_id = $2) AND w.status IN ('Pending', 'Started', 'Failed', 'Suspended')
ORDER BY w.retry, w.id FOR UPDATE OF w`

// decideDeletion decides about a request that is not cancelled, and keeps others from it in the
// meantime. That of another institution is not there.
func (r Records) decideDeletion(ctx context.Context, id int64, by, verb string, decide func(context.Context, pgx.Tx, record.User, *time.Time) error) (record.DeletionRequest, error) {
	err := registry.Again(func() error {
		return pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
			u, err := r.registry.Actor(ctx, tx, by)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, lockUnfinishedSQL, id, u.InstitutionID); err != nil {
				return err
			}
			var approved, cancelled *time.Time
			err = tx.QueryRow(ctx, `SELECT approved_at, cancelled_at FROM deletion_requests WHERE id = $1 AND ($2::bigint = 0 OR institution_id = $2) FOR UPDATE`,
				id, u.InstitutionID).Scan(&approved, &cancelled)
			switch {
			case errors.Is(err, pgx.ErrNoRows):
				return registry.ErrNotFound
			case err != nil:
				return err
			case cancelled != nil:
				return fmt.Errorf("%w: it was cancelled already, at %s", registry.ErrRefused, cancelled.UTC().Format(time.RFC3339))
			}
			return decide(ctx, tx, u, approved)
		})
	})
	if err != nil {
		return record.DeletionRequest{}, fmt.Errorf("%s deletion request %d: %w", verb, id, registry.Refusal(err))
	}
	return r.DeletionRequest(ctx, id)
}
