package browse

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// State is what changes of an item while it is in the queue. InstitutionID says whose it is:
// states are read for all who look, and shown to those in whose scope they are.
type State struct {
	ID            int64           `json:"id"`
	InstitutionID int64           `json:"-"`
	Stage         registry.Stage  `json:"stage"`
	Status        registry.Status `json:"status"`
	ErrorCode     string          `json:"code"`
	ClaimToken    int64           `json:"token"`
	UpdatedAt     time.Time       `json:"at"`
}

// States are those of items in the queue, and of the items that are newer than one of them.
type States struct {
	Items map[int64]State
	New   []State // newest first
}

// TakeStates reads what has become of items, in one statement. Those that have gone to the
// archive are left out. With newest it also returns the items above that ID, up to most.
func TakeStates(ctx context.Context, r *registry.Registry, ids []int64, newest int64, most int) (s States, err error) {
	s.Items = map[int64]State{}
	// work_items_pkey, twice
	rows, _ := r.DB().Query(ctx, `
		SELECT id, institution_id, stage, status, error_code, claim_token, updated_at FROM work_items WHERE id = ANY (@ids)
		UNION ALL
		(SELECT id, institution_id, stage, status, error_code, claim_token, updated_at FROM work_items WHERE @newest > 0 AND id > @newest ORDER BY id DESC LIMIT @most)`,
		pgx.NamedArgs{"ids": ids, "newest": newest, "most": most})
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[State])
	if err != nil {
		return s, fmt.Errorf("read the states of items: %w", err)
	}
	for _, one := range found {
		s.Items[one.ID] = one
		if newest > 0 && one.ID > newest {
			s.New = append(s.New, one)
		}
	}
	return s, nil
}
