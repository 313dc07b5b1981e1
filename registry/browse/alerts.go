package browse

import (
	"context"
	"fmt"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// AlertFilter narrows a list of alerts.
type AlertFilter struct {
	Institution   string    `query:"institution" maxLength:"255" doc:"Identifier of the institution; without alerts for one person only"`
	Type          string    `query:"type" maxLength:"100" doc:"Such as Failed Fixity Check"`
	CreatedAfter  time.Time `query:"since" doc:"Then or later"`
	CreatedBefore time.Time `query:"before" doc:"Before then"`
	For           int64     // ID of the person who reads: alerts for one person are read by that person only; 0: a program
	Unread        bool      `query:"unread" doc:"Only those that you have not read; not for the token of a service"`
	Staff         bool      // only those for the archive's staff
}

const alertAdvice = "add institution, or since and before"

// alertsSQL shows alerts that were found by alerts_institution, alerts_user, alerts_staff or alerts_pkey (alert_reads_pkey).
const alertsSQL = `
SELECT a.id, a.institution_id, coalesce(i.identifier, '') AS institution, a.type, a.subject, a.content, a.deletion_request_id AS deletion_id,
	a.work_item_id AS item, a.generic_file_id AS file_id, a.count, a.created_at,
	(SELECT r.read_at FROM alert_reads r WHERE r.user_id = @for AND r.alert_id = a.id) AS read_at
FROM (%s) a LEFT JOIN institutions i ON i.id = a.institution_id
ORDER BY a.id DESC`

// Alerts lists alerts, newest first. The key of a page is an ID. Those for the staff are
// in the scope of all institutions only.
func (r Records) Alerts(ctx context.Context, f AlertFilter, p Page) ([]record.ListedAlert, Key, error) {
	return list(ctx, r, "alerts", f, p, func(found string) string { return found }, func(a record.ListedAlert) Key { return Key{ID: a.ID} })
}

// Alert returns an alert as the person of a filter has it, or [registry.ErrNotFound]. Of
// the filter, For and Staff count.
func (r Records) Alert(ctx context.Context, id int64, f AlertFilter) (record.ListedAlert, error) {
	q := f.theOne(r.scope, id)
	q.sql = fmt.Sprintf(alertsSQL, `SELECT a.* FROM alerts a WHERE `+q.all())
	return one[record.ListedAlert](ctx, r, fmt.Sprintf("alert %d", id), q)
}

// theOne finds the alert with an ID, by alerts_pkey, if the person of the filter has it.
func (f AlertFilter) theOne(s registry.Scope, id int64) *query {
	q := in(s, "", alertAdvice)
	q.where(`a.id = @id`, "id", id)
	q.args["for"] = f.For
	f.ofStaff(q)
	of := `true`
	if q.inside.one {
		of = `a.institution_id = ` + q.inside.id
	}
	q.conds = append(q.conds, `(a.user_id = @for OR a.user_id IS NULL AND `+of+`)`)
	return q
}

func (f AlertFilter) find(s registry.Scope, after Key) (*query, error) {
	q := in(s, f.Institution, alertAdvice)
	q.args["for"] = f.For
	q.equal(`a.type = @type`, "type", f.Type)
	q.since(`a.created_at >= @created_after`, "created_after", f.CreatedAfter)
	q.since(`a.created_at < @created_before`, "created_before", f.CreatedBefore)
	if f.Unread {
		q.conds = append(q.conds, `NOT EXISTS (SELECT FROM alert_reads r WHERE r.user_id = @for AND r.alert_id = a.id)`)
	}
	f.ofStaff(q)
	q.after(`a.id < @after`, after.ID)
	own := `a.user_id = @for AND ` + q.all()
	if q.inside.one && f.Institution == "" { // what is written to one person is of no institution
		q.conds = append(q.conds, `a.user_id IS NULL`)
		q.sql = fmt.Sprintf(alertsSQL, `SELECT * FROM ((`+q.newest(`alerts`, `a`)+`)
			UNION ALL (SELECT a.* FROM alerts a WHERE `+own+` ORDER BY a.id DESC LIMIT @n)) a ORDER BY a.id DESC LIMIT @n`)
		return q, nil
	}
	q.conds = append(q.conds, `(a.user_id IS NULL OR a.user_id = @for)`)
	q.sql = fmt.Sprintf(alertsSQL, q.newest(`alerts`, `a`))
	return q, nil
}

// ofStaff keeps to alerts for the staff, if the filter does.
func (f AlertFilter) ofStaff(q *query) {
	if f.Staff {
		q.conds = append(q.conds, `a.institution_id IS NULL`)
	}
}
