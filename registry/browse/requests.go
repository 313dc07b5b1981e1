package browse

import (
	"context"
	"fmt"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
)

// DeletionFilter narrows a list of deletion requests.
type DeletionFilter struct {
	Institution string `query:"institution" maxLength:"255" doc:"Identifier of the institution"`
	State       string `query:"state" enum:"open,waiting,approved,cancelled" doc:"waiting: approved, and nothing may be removed yet; approved: waiting ones, too"`

	RequestedAfter  time.Time `query:"requested_after" doc:"Then or later"`
	RequestedBefore time.Time `query:"requested_before" doc:"Before then"`
}

const deletionAdvice = "add institution"

// deletionPage shows requests that were found by deletion_requests_institution or _pkey.
func deletionPage(found string) string {
	return `WITH page AS MATERIALIZED (` + found + `)` + fmt.Sprintf(requests.SelectDeletions, `page`) + ` ORDER BY d.id DESC`
}

// Deletions lists deletion requests, newest first. The key of a page is an ID. An unknown
// state is [registry.ErrRefused].
func (r Records) Deletions(ctx context.Context, f DeletionFilter, p Page) ([]record.DeletionRequest, Key, error) {
	return list(ctx, r, "deletion requests", f, p, deletionPage,
		func(d record.DeletionRequest) Key { return Key{ID: d.ID} })
}

// Deletion returns the deletion request with an ID, or [registry.ErrNotFound].
func (r Records) Deletion(ctx context.Context, id int64) (record.DeletionRequest, error) {
	q := in(r.scope, "", deletionAdvice)
	q.where(`d.id = @id`, "id", id)
	q.within(`d.institution_id`)
	q.sql = deletionPage(`SELECT d.* FROM deletion_requests d WHERE ` + q.all())
	return one[record.DeletionRequest](ctx, r, fmt.Sprintf("deletion request %d", id), q)
}

func (f DeletionFilter) find(s registry.Scope, after Key) (*query, error) {
	q := in(s, f.Institution, deletionAdvice)
	states := map[string]string{
		"": `true`, "open": `num_nonnulls(d.approved_at, d.cancelled_at) = 0`, "approved": `d.approved_at IS NOT NULL AND d.cancelled_at IS NULL`,
		"waiting": `d.begins_at > now() AND d.cancelled_at IS NULL`, "cancelled": `d.cancelled_at IS NOT NULL`,
	}
	state, known := states[f.State]
	if !known {
		return nil, refused("a deletion request is open, waiting, approved or cancelled, and not %q", f.State)
	}
	q.conds = append(q.conds, state)
	q.since(`d.requested_at >= @requested_after`, "requested_after", f.RequestedAfter)
	q.since(`d.requested_at < @requested_before`, "requested_before", f.RequestedBefore)
	q.after(`d.id < @after`, after.ID)
	q.sql = q.newest(`deletion_requests`, `d`)
	return q, nil
}
