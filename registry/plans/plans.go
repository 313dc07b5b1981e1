package plans

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Request says what to do to which work items.
type Request struct {
	Action   string         // "requeue", "cancel" or "set priority"
	Stage    registry.Stage // to requeue to; "" is where each item has come to
	Priority *int           // to set
	Reason   string         // of a cancel; "" names who cancelled

	// Which items: a condition as it could stand behind WHERE in a query of work_items, and
	// a filter. Both narrow.
	Where  string
	Filter record.PlanFilter
}

const planColumns = `
	p.id, p.action, p.to_stage, p.priority, p.reason, p.condition, p.items, p.refused, p.bytes, p.set_hash, p.state, p.counts, p.in_work,
	p.created_at, p.created_by, p.begun_at, p.begun_by, p.applied_at, p.undone_at, p.undone_by,
	p.approved_by, p.approved_at, p.carry, p.carry_for`

// makeSQL keeps a condition that stands alone as it was typed.
const makeSQL = `
WITH filter AS MATERIALIZED (
	SELECT string_agg(format(e.part->>'piece', VARIADIC ARRAY(SELECT jsonb_array_elements_text(e.part->'values'))), ' AND ' ORDER BY e.n) AS narrows
	FROM jsonb_array_elements(@pieces::jsonb) WITH ORDINALITY AS e (part, n)
), whole AS MATERIALIZED (
	SELECT CASE WHEN @condition = '' THEN narrows WHEN narrows IS NULL THEN @condition ELSE concat_ws(' AND ', narrows, condition_alone(@condition)) END AS condition
	FROM filter
)
SELECT p.id
FROM whole CROSS JOIN LATERAL plan_make(@action, whole.condition, nullif(@stage, ''), @priority, nullif(@reason, '')) p`

// Make stores a plan and changes no work item. What is wrong with its
// condition is ErrRefused; that no item meets it, ErrNotFound.
func (r Records) Make(ctx context.Context, q Request) (record.Plan, error) {
	var id int64
	narrows, err := piecesOf(q.Filter).asJSON()
	if err == nil {
		err = r.db.QueryRow(ctx, makeSQL, pgx.NamedArgs{
			"action": q.Action, "stage": q.Stage, "priority": q.Priority, "reason": q.Reason, "condition": q.Where, "pieces": narrows,
		}).Scan(&id)
	}
	if err != nil {
		return record.Plan{}, fmt.Errorf("plan to %s: %w", q.Action, registry.Refusal(err))
	}
	return r.Plan(ctx, id)
}

// Plan returns one plan, or ErrNotFound.
func (r Records) Plan(ctx context.Context, id int64) (record.Plan, error) {
	return registry.One[record.Plan](ctx, r.db, fmt.Sprintf("show plan %d", id), `SELECT `+planColumns+` FROM plans p WHERE p.id = $1`, id)
}

// List lists up to n plans, newest first: those in one of some states, or all if none is
// given, and only those with a lower ID, unless before is 0 (plans_pkey).
func (r Records) List(ctx context.Context, states []string, before int64, n int) ([]record.Plan, error) {
	return registry.Collect[record.Plan](ctx, r.db, "list plans", `SELECT `+planColumns+`
		FROM plans p WHERE (coalesce(cardinality($1::text[]), 0) = 0 OR p.state = ANY ($1)) AND ($2::bigint = 0 OR p.id < $2) ORDER BY p.id DESC LIMIT $3`, states, before, n)
}

// Delete deletes a plan that is not applied, or was undone (plans_pkey): what an applied one
// did is on record in it.
func (r Records) Delete(ctx context.Context, id int64) error {
	p, err := r.Plan(ctx, id)
	if err != nil {
		return err
	}
	tag, err := r.db.Exec(ctx, `DELETE FROM plans WHERE id = $1 AND state IN ('ready', 'undone') AND carry IS NULL`, id)
	if err == nil && tag.RowsAffected() == 0 {
		err = fmt.Errorf("%w: it is %s; a plan can be deleted before it is applied, and after it is undone", registry.ErrRefused, p.State)
	}
	if err != nil {
		return fmt.Errorf("delete plan %d: %w", id, registry.Refusal(err))
	}
	return nil
}

// View returns a plan with some of its items.
func (r Records) View(ctx context.Context, p record.Plan) (v record.PlanView, err error) {
	const some = 10
	v = record.PlanView{Plan: p, Sample: []record.PlanItem{}, Causes: []record.PlanCause{}} // null is no list in JSON
	if p.State == "ready" || p.State == "applying" {
		sample, err := r.Items(ctx, p.ID, "planned", 0, some)
		if err != nil {
			return v, err
		}
		v.Sample = append(v.Sample, sample...)
	}
	causes, err := r.Causes(ctx, p.ID)
	v.Causes = append(v.Causes, causes...)
	return v, err
}

const itemsSQL = `
SELECT i.work_item_id AS id, coalesce(w.name, '') AS name, i.stage, i.status, i.size, i.state, i.detail
FROM plan_items i LEFT JOIN all_work_items w ON w.id = i.work_item_id
WHERE i.plan_id = @id AND i.work_item_id > @after AND (@state = '' OR i.state = @state)
ORDER BY i.work_item_id
LIMIT @n`

// Items lists up to n items of a plan with IDs beyond after, in their order:
// those in a state, or all if it is empty.
func (r Records) Items(ctx context.Context, plan int64, state string, after int64, n int) ([]record.PlanItem, error) {
	return registry.Collect[record.PlanItem](ctx, r.db, fmt.Sprintf("list items of plan %d", plan), itemsSQL, pgx.NamedArgs{"id": plan, "state": state, "after": after, "n": n})
}

const causesSQL = `
SELECT state, regexp_replace(detail, '\mitem \d+', 'item N', 'g') AS cause, count(*) AS items, min(work_item_id) AS example
FROM plan_items
WHERE plan_id = $1 AND detail <> ''
GROUP BY 1, 2
ORDER BY 1, 3 DESC, 2`

// Causes sums up why items of a plan are not as planned.
func (r Records) Causes(ctx context.Context, plan int64) ([]record.PlanCause, error) {
	return registry.Collect[record.PlanCause](ctx, r.db, fmt.Sprintf("sum up plan %d", plan), causesSQL, plan)
}
