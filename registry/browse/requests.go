package browse

import (
	"context"
	"fmt"
	"time"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
)

// DeletionFilter narrows a list of deletion requests.
type DeletionFilter struct {
	Institution string // identifier
	State       string // open, approved or cancelled

	RequestedAfter  time.Time // then or later
	RequestedBefore time.Time
}

const deletionAdvice = "add institution"

// deletionPage shows requests that were found by deletion_requests_institution or _pkey.
func deletionPage(found string) string {
	return `WITH page AS MATERIALIZED (` + found + `)` + fmt.Sprintf(requests.SelectDeletions, `page`) + ` ORDER BY d.id DESC`
}

// Deletions lists deletion requests, newest first. The key of a page is an ID. An unknown
// state is [registry.ErrRefused].
func (r Records) Deletions(ctx context.Context, f DeletionFilter, p Page) ([]requests.DeletionRequest, Key, error) {
	return list(ctx, r, "deletion requests", f, p, deletionPage,
		func(d requests.DeletionRequest) Key { return Key{ID: d.ID} })
}

// Deletion returns the deletion request with an ID, or [registry.ErrNotFound].
func (r Records) Deletion(ctx context.Context, id int64) (requests.DeletionRequest, error) {
	q := in(r.scope, "", deletionAdvice)
	q.where(`d.id = @id`, "id", id)
	q.within(`d.institution_id`)
	q.sql = deletionPage(`SELECT d.* FROM deletion_requests d WHERE ` + q.all())
	return one[requests.DeletionRequest](ctx, r, fmt.Sprintf("deletion request %d", id), q)
}

func (f DeletionFilter) find(s registry.Scope, after Key) (*query, error) {
	q := in(s, f.Institution, deletionAdvice)
	states := map[string]string{
		"": `true`, "open": `num_nonnulls(d.approved_at, d.cancelled_at) = 0`, "approved": `d.approved_at IS NOT NULL`, "cancelled": `d.cancelled_at IS NOT NULL`,
	}
	state, known := states[f.State]
	if !known {
		return nil, refused("a deletion request is open, approved or cancelled, and not %q", f.State)
	}
	q.conds = append(q.conds, state)
	q.since(`d.requested_at >= @requested_after`, "requested_after", f.RequestedAfter)
	q.since(`d.requested_at < @requested_before`, "requested_before", f.RequestedBefore)
	q.after(`d.id < @after`, after.ID)
	q.sql = q.newest(`deletion_requests`, `d`)
	return q, nil
}

// AlertFilter narrows a list of alerts.
type AlertFilter struct {
	Institution   string // identifier
	Type          string // such as Failed Fixity Check
	CreatedAfter  time.Time
	CreatedBefore time.Time
	For           int64 // ID of the person who reads: alerts for one person are read by that person only; 0: a program
}

// Alert is a message for the people of an institution, or for the archive's own staff.
type Alert struct {
	ID            int64     `json:"id"`
	InstitutionID *int64    `json:"institution_id"` // nil: it is for the staff
	Institution   string    `json:"institution_identifier"`
	Type          string    `json:"type"`
	Subject       string    `json:"subject"`
	Content       string    `json:"content"`
	DeletionID    *int64    `json:"deletion_request_id" db:"deletion_id"`
	Item          *int64    `json:"work_item_id"`
	FileID        *int64    `json:"generic_file_id" db:"file_id"`
	CreatedAt     time.Time `json:"created_at"`
}

const alertAdvice = "add institution"

// alertsSQL finds alerts by alerts_institution or alerts_pkey.
const alertsSQL = `
SELECT a.id, a.institution_id, coalesce(i.identifier, '') AS institution, a.type, a.subject, a.content, a.deletion_request_id AS deletion_id,
	a.work_item_id AS item, a.generic_file_id AS file_id, a.created_at
FROM (%s) a LEFT JOIN institutions i ON i.id = a.institution_id
ORDER BY a.id DESC`

// Alerts lists alerts, newest first. The key of a page is an ID. Those for the staff are
// in the scope of all institutions only.
func (r Records) Alerts(ctx context.Context, f AlertFilter, p Page) ([]Alert, Key, error) {
	return list(ctx, r, "alerts", f, p, func(found string) string { return found }, func(a Alert) Key { return Key{ID: a.ID} })
}

// Alert returns the alert with an ID, or [registry.ErrNotFound]. Those for one person are
// not there.
func (r Records) Alert(ctx context.Context, id int64) (Alert, error) {
	q := in(r.scope, "", alertAdvice)
	q.where(`a.id = @id AND a.user_id IS NULL`, "id", id)
	q.within(`a.institution_id`)
	q.sql = fmt.Sprintf(alertsSQL, `SELECT a.* FROM alerts a WHERE `+q.all())
	return one[Alert](ctx, r, fmt.Sprintf("alert %d", id), q)
}

func (f AlertFilter) find(s registry.Scope, after Key) (*query, error) {
	q := in(s, f.Institution, alertAdvice)
	q.where(`(a.user_id IS NULL OR a.user_id = @for)`, "for", f.For)
	q.equal(`a.type = @type`, "type", f.Type)
	q.since(`a.created_at >= @created_after`, "created_after", f.CreatedAfter)
	q.since(`a.created_at < @created_before`, "created_before", f.CreatedBefore)
	q.after(`a.id < @after`, after.ID)
	q.sql = fmt.Sprintf(alertsSQL, q.newest(`alerts`, `a`))
	return q, nil
}
