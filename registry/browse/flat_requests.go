package browse

import (
	"context"
	"fmt"
)

// FlatDeletion is a deletion request with its people. What is absent is zero.
type FlatDeletion struct {
	ID                    int64  `json:"id"`
	InstitutionID         int64  `json:"institution_id"`
	InstitutionName       string `json:"institution_name"`
	InstitutionIdentifier string `json:"institution_identifier"`
	RequestedByID         int64  `json:"requested_by_id"`
	RequestedByName       string `json:"requested_by_name"`
	RequestedByEmail      string `json:"requested_by_email"`
	RequestedAt           Time   `json:"requested_at"`
	ConfirmedByID         int64  `json:"confirmed_by_id"`
	ConfirmedByName       string `json:"confirmed_by_name"`
	ConfirmedByEmail      string `json:"confirmed_by_email"`
	ConfirmedAt           Time   `json:"confirmed_at"`
	CancelledByID         int64  `json:"cancelled_by_id"`
	CancelledByName       string `json:"cancelled_by_name"`
	CancelledByEmail      string `json:"cancelled_by_email"`
	CancelledAt           Time   `json:"cancelled_at"`
	FileCount             int64  `json:"file_count"`
	ObjectCount           int64  `json:"object_count"`
}

// flatDeletionsSQL counts what each request on a page names
// (deletion_requests_intellectual_objects_pkey, deletion_requests_generic_files_pkey).
const flatDeletionsSQL = `
WITH page AS MATERIALIZED (%s)
SELECT p.id, p.institution_id, i.name AS institution_name, i.identifier AS institution_identifier,
	r.id AS requested_by_id, r.name AS requested_by_name, r.email AS requested_by_email, p.requested_at,
	coalesce(a.id, 0) AS confirmed_by_id, coalesce(a.name, '') AS confirmed_by_name, coalesce(a.email, '') AS confirmed_by_email, p.approved_at AS confirmed_at,
	coalesce(c.id, 0) AS cancelled_by_id, coalesce(c.name, '') AS cancelled_by_name, coalesce(c.email, '') AS cancelled_by_email, p.cancelled_at,
	(SELECT count(*) FROM deletion_requests_generic_files f WHERE f.deletion_request_id = p.id) AS file_count,
	(SELECT count(*) FROM deletion_requests_intellectual_objects o WHERE o.deletion_request_id = p.id) AS object_count
FROM page p
JOIN institutions i ON i.id = p.institution_id
JOIN users r ON r.id = p.requested_by
LEFT JOIN users a ON a.id = p.approved_by
LEFT JOIN users c ON c.id = p.cancelled_by`

func flatDeletions() flat[FlatDeletion] {
	return flat[FlatDeletion]{
		what: "deletion requests", from: `(%s) p`, row: `p`, show: flatDeletionsSQL, columns: map[string]string{"id": `p.id`, "requested_at": `p.requested_at`},
		own: Order{"id", true}, ownSQL: `p.id DESC`, tie: `p.id`, key: func(d FlatDeletion) Key { return Key{ID: d.ID} },
	}
}

// FlatDeletions lists deletion requests with their people, newest first or as the slice
// says. The errors are those of [Records.Deletions].
func (r Records) FlatDeletions(ctx context.Context, f DeletionFilter, s Slice) (Part[FlatDeletion], error) {
	return part(ctx, r, flatDeletions(), f, s)
}

// FlatDeletion returns a deletion request with its people, or [registry.ErrNotFound].
func (r Records) FlatDeletion(ctx context.Context, id int64) (FlatDeletion, error) {
	q := in(r.scope, "", deletionAdvice)
	q.where(`d.id = @id`, "id", id)
	q.within(`d.institution_id`)
	return single(ctx, r, flatDeletions(), fmt.Sprintf("deletion request %d", id), `SELECT d.* FROM deletion_requests d`, q)
}

// FlatAlert is an alert as a person has it. What is absent is zero.
type FlatAlert struct {
	ID                    int64  `json:"id"`
	InstitutionID         int64  `json:"institution_id"`
	InstitutionName       string `json:"institution_name"`
	InstitutionIdentifier string `json:"institution_identifier"`
	Type                  string `json:"type"`
	Subject               string `json:"subject"`
	Content               string `json:"content"`
	DeletionRequestID     int64  `json:"deletion_request_id"`
	CreatedAt             Time   `json:"created_at"`
	UserID                int64  `json:"user_id"`
	UserName              string `json:"user_name"`
	UserEmail             string `json:"user_email"`
	SentAt                Time   `json:"sent_at"` // zero: it was not mailed, or more than 30 days ago
	ReadAt                Time   `json:"read_at"`
}

// flatAlertsSQL shows alerts to the person of the argument (mail_outbox_alert,
// alert_reads_pkey).
const flatAlertsSQL = `
WITH page AS MATERIALIZED (%s)
SELECT p.id, coalesce(p.institution_id, 0) AS institution_id, coalesce(i.name, '') AS institution_name, coalesce(i.identifier, '') AS institution_identifier,
	p.type, p.subject, p.content, coalesce(p.deletion_id, 0) AS deletion_request_id, p.created_at,
	coalesce(u.id, 0) AS user_id, coalesce(u.name, '') AS user_name, coalesce(u.email, '') AS user_email,
	(SELECT max(m.sent_at) FROM mail_outbox m WHERE m.alert_id = p.id AND m.user_id = u.id) AS sent_at,
	(SELECT a.read_at FROM alert_reads a WHERE a.alert_id = p.id AND a.user_id = u.id) AS read_at
FROM page p
LEFT JOIN institutions i ON i.id = p.institution_id
LEFT JOIN users u ON u.id = @for`

func flatAlerts() flat[FlatAlert] {
	return flat[FlatAlert]{
		what: "alerts", from: `(%s) p`, row: `p`, show: flatAlertsSQL, columns: map[string]string{"id": `p.id`, "created_at": `p.created_at`},
		own: Order{"id", true}, ownSQL: `p.id DESC`, tie: `p.id`, key: func(a FlatAlert) Key { return Key{ID: a.ID} },
	}
}

// FlatAlerts lists alerts as the person of the filter has them, newest first or as the
// slice says. The errors are those of [Records.Alerts].
func (r Records) FlatAlerts(ctx context.Context, f AlertFilter, s Slice) (Part[FlatAlert], error) {
	return part(ctx, r, flatAlerts(), f, s)
}

// FlatAlert returns an alert as the person of a filter has it, or [registry.ErrNotFound]. Of
// the filter, For and Staff count.
func (r Records) FlatAlert(ctx context.Context, id int64, f AlertFilter) (FlatAlert, error) {
	return single(ctx, r, flatAlerts(), fmt.Sprintf("alert %d", id), `SELECT a.*, a.deletion_request_id AS deletion_id FROM alerts a`, f.theOne(r.scope, id))
}
