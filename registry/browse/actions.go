package browse

import (
	"context"
	"fmt"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// ActionFilter narrows a list of actions.
type ActionFilter struct {
	Institution string    `query:"institution" maxLength:"255" doc:"Identifier of the institution: of the record, or of the person who acted"`
	Actor       string    `query:"actor" maxLength:"300" doc:"E-mail of a person, or token and the name of a token"`
	SubjectType string    `query:"subject_type" maxLength:"100" doc:"Kind of the record, such as user"`
	SubjectID   string    `query:"subject_id" maxLength:"300" doc:"ID or name of the record; only with subject_type"`
	Operation   string    `query:"operation" maxLength:"100" doc:"Such as users.add"`
	Outcome     string    `query:"outcome" enum:"done,refused"` // done or refused
	Since       time.Time `query:"since" doc:"Then or later"`
	Before      time.Time `query:"before" doc:"Before then"`
	Queue       bool      // only what was done to the queue and the machinery
}

const actionAdvice = "add actor, subject_type and subject_id, institution, or since and before"

const actionsSQL = `
SELECT a.id, a.at, a.actor, coalesce(a.on_behalf_of, '') AS on_behalf_of, a.user_id, a.token_id,
	CASE WHEN @whole OR a.actor_institution_id = @reader THEN coalesce(host(a.ip), '') ELSE '' END AS ip,
	a.operation, a.subject_type, a.subject_id, a.institution_id, coalesce(i.identifier, '') AS institution, a.outcome, a.detail
FROM (%s) a LEFT JOIN institutions i ON i.id = a.institution_id
ORDER BY a.at DESC, a.id DESC`

// machinery are the groups of operations about the queue, the checks of copies, and what works them.
func machinery() []string {
	return []string{"items", "plans", "queue", "queues", "stages", "workers", "schedules", "services", "fixity", "repair", "brakes"}
}

// Actions lists what people did, newest first. The key of a page is a time and an ID. In the
// scope of an institution are actions of its people and tokens, and those about its records.
func (r Records) Actions(ctx context.Context, f ActionFilter, p Page) ([]record.ListedAction, Key, error) {
	return list(ctx, r, "actions", f, p, func(found string) string { return found }, func(a record.ListedAction) Key { return Key{ID: a.ID, At: a.At} })
}

func (f ActionFilter) find(s registry.Scope, after Key) (*query, error) {
	q := in(s, f.Institution, actionAdvice)
	if f.SubjectID != "" && f.SubjectType == "" {
		return nil, refused("subject_id is given without subject_type")
	}
	q.args["whole"] = s.All()
	q.args["reader"], _ = s.Institution()
	q.since(`a.at >= @since`, "since", f.Since)
	q.since(`a.at < @before`, "before", f.Before)
	q.equal(`a.actor <= @actor AND a.actor >= @actor`, "actor", f.Actor)
	q.equal(`a.subject_type = @subject_type`, "subject_type", f.SubjectType)
	q.equal(`a.subject_id <= @subject_id AND a.subject_id >= @subject_id`, "subject_id", f.SubjectID)
	q.equal(`a.operation = @operation`, "operation", f.Operation)
	q.equal(`a.outcome = @outcome`, "outcome", f.Outcome)
	if f.Queue {
		q.where(`split_part(a.operation, '.', 1) = ANY (@machinery)`, "machinery", machinery())
	}
	if after.ID != 0 {
		q.args["after"], q.args["after_at"] = after.ID, after.At
		q.key = `(a.at, a.id) < (@after_at::timestamptz, @after::bigint)`
	}
	q.ordered = true
	q.sql = fmt.Sprintf(actionsSQL, f.newest(q))
	return q, nil
}

// newest finds actions by the index that the filter needs: actions_institution and
// actions_actor_institution, actions_actor, actions_subject, or actions_at. The value that
// leads an index is a range, and part of the order, as in [query.newest].
func (f ActionFilter) newest(q *query) string {
	by := func(first, more string) string {
		return `(SELECT a.* FROM actions a WHERE ` + q.all() + more + ` ORDER BY ` + first + `a.at DESC, a.id DESC LIMIT @n)`
	}
	of := func(column string) string {
		return ` AND ` + column + ` <= ` + q.inside.id + ` AND ` + column + ` >= ` + q.inside.id
	}
	switch {
	case q.inside.one:
		return `SELECT * FROM (` + by(`a.institution_id DESC, `, of(`a.institution_id`)) + ` UNION ALL ` +
			by(`a.actor_institution_id DESC, `, of(`a.actor_institution_id`)+` AND a.institution_id IS DISTINCT FROM `+q.inside.id) +
			`) a ORDER BY a.at DESC, a.id DESC LIMIT @n`
	case f.Actor != "":
		return by(`a.actor DESC, `, ``)
	case f.SubjectID != "":
		return by(`a.subject_id DESC, `, ``)
	}
	return by(``, ``)
}
