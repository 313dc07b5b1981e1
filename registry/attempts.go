package registry

import (
	"context"
	"fmt"
)

// ResetAttempts makes a running attempt the first that counts towards its stage's
// maximum, because earlier attempts made progress. It reports whether the claim holds and
// there were any; a second call resets nothing.
func (r *Registry) ResetAttempts(ctx context.Context, item, token int64) (reset bool, err error) {
	tag, err := r.db.Exec(ctx, `
		INSERT INTO attempt_resets (work_item_id, claim_token, attempts) VALUES ($1, $2, 0)
		ON CONFLICT DO NOTHING`, item, token)
	if err != nil {
		return false, fmt.Errorf("reset the attempt counter of item %d: %w", item, err)
	}
	return tag.RowsAffected() == 1, nil
}

// StageDone reports whether an item has been through a stage before, on an earlier
// pass.
func (r *Registry) StageDone(ctx context.Context, item int64, stage Stage) (bool, error) {
	return Value[bool](ctx, r.db, fmt.Sprintf("check whether item %d has passed %s", item, stage), `
		SELECT EXISTS (SELECT FROM work_item_attempts WHERE work_item_id = $1 AND stage = $2 AND outcome = 'done')`, item, stage)
}
