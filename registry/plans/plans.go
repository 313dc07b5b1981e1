package plans

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// Request says what to do to which work items.
type Request struct {
	Action   string         // "requeue", "cancel" or "set priority"
	Stage    registry.Stage // to requeue to; "" is where each item has come to
	Priority *int           // to set
	Reason   string         // of a cancel; "" names who cancelled

	// Which items: a condition as it could stand behind WHERE in a query of
	// work_items, and what else they have in common. Empty fields do not narrow.
	Where       string
	Status      registry.Status
	AtStage     registry.Stage
	Institution string // identifier
	ErrorCode   string
}

// Plan is a bulk action that is looked at before it is done.
type Plan struct {
	ID        int64            `json:"id"`
	Action    string           `json:"action"`
	ToStage   *registry.Stage  `json:"to_stage"`
	Priority  *int             `json:"priority"`
	Reason    *string          `json:"reason"`
	Condition string           `json:"condition"`
	Items     int64            `json:"items"`    // that met the condition
	Refused   int64            `json:"refused"`  // of these, from the start
	InWork    int64            `json:"in_work"`  // of the others: a worker had them when the plan was made
	Bytes     int64            `json:"bytes"`    // of the others
	SetHash   string           `json:"set_hash"` // of the items and how they stood
	State     string           `json:"state"`    // ready, applying, applied, undoing or undone
	Counts    map[string]int64 `json:"counts"`   // of the items by their state in the plan
	CreatedAt time.Time        `json:"created_at"`
	CreatedBy string           `json:"created_by"`
	BegunAt   *time.Time       `json:"begun_at"`
	BegunBy   *string          `json:"begun_by"`
	AppliedAt *time.Time       `json:"applied_at"`
	UndoneAt  *time.Time       `json:"undone_at"`
	UndoneBy  *string          `json:"undone_by"`
}

const planColumns = `
	p.id, p.action, p.to_stage, p.priority, p.reason, p.condition, p.items, p.refused, p.bytes, p.set_hash, p.state,
	(SELECT coalesce(jsonb_object_agg(c.state, c.n), '{}') FROM (
		SELECT i.state, count(*) AS n FROM plan_items i WHERE i.plan_id = p.id GROUP BY i.state
	) c) AS counts,
	(SELECT count(*) FROM plan_items i WHERE i.plan_id = p.id AND i.status = 'Started' AND i.state <> 'refused') AS in_work,
	p.created_at, p.created_by, p.begun_at, p.begun_by, p.applied_at, p.undone_at, p.undone_by`

// makeSQL keeps a condition that stands alone as it was typed.
const makeSQL = `
WITH filter AS MATERIALIZED (
	SELECT concat_ws(' AND ',
		CASE WHEN @status <> '' THEN format('status = %L', @status::text) END,
		CASE WHEN @at_stage <> '' THEN format('stage = %L', @at_stage::text) END,
		CASE WHEN @institution <> '' THEN format('institution_id = (SELECT id FROM institutions WHERE identifier = %L)', @institution::text) END,
		CASE WHEN @code <> '' THEN format('error_code = %L', @code::text) END,
		CASE WHEN @condition = '' THEN NULL
		     WHEN concat(@status::text, @at_stage::text, @institution::text, @code::text) = '' THEN @condition
		     ELSE condition_alone(@condition) END) AS condition
)
SELECT p.id
FROM filter CROSS JOIN LATERAL plan_make(@action, filter.condition, nullif(@stage, ''), @priority, nullif(@reason, '')) p`

// Make stores a plan and changes no work item. What is wrong with its
// condition is ErrRefused; that no item meets it, ErrNotFound.
func (r Records) Make(ctx context.Context, q Request) (Plan, error) {
	var id int64
	err := r.db.QueryRow(ctx, makeSQL, pgx.NamedArgs{
		"action": q.Action, "stage": q.Stage, "priority": q.Priority, "reason": q.Reason,
		"condition": q.Where, "status": q.Status, "at_stage": q.AtStage, "institution": q.Institution, "code": q.ErrorCode,
	}).Scan(&id)
	if err != nil {
		return Plan{}, fmt.Errorf("plan to %s: %w", q.Action, registry.Refusal(err))
	}
	return r.Plan(ctx, id)
}

// Plan returns one plan, or ErrNotFound.
func (r Records) Plan(ctx context.Context, id int64) (Plan, error) {
	rows, _ := r.db.Query(ctx, `SELECT `+planColumns+` FROM plans p WHERE p.id = $1`, id)
	p, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Plan])
	if err != nil {
		return Plan{}, fmt.Errorf("show plan %d: %w", id, registry.Refusal(err))
	}
	return p, nil
}

// List lists up to n plans, newest first; only those with a lower ID, unless
// before is 0.
func (r Records) List(ctx context.Context, before int64, n int) ([]Plan, error) {
	rows, _ := r.db.Query(ctx, `SELECT `+planColumns+`
		FROM plans p WHERE $1 = 0 OR p.id < $1 ORDER BY p.id DESC LIMIT $2`, before, n)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Plan])
	if err != nil {
		return nil, fmt.Errorf("list plans: %w", err)
	}
	return list, nil
}

// Item is what a plan says of one work item.
type Item struct {
	ID     int64           `json:"id"`     // of the work item
	Name   string          `json:"name"`   // key in the receiving bucket
	Stage  registry.Stage  `json:"stage"`  // when the plan was made, as the next two
	Status registry.Status `json:"status"` //
	Size   int64           `json:"size"`
	State  string          `json:"state"`  // planned, done, refused, changed, undone or not undone
	Detail string          `json:"detail"` // why, unless it is as planned
}

const itemsSQL = `
SELECT i.work_item_id AS id, coalesce(w.name, '') AS name, i.stage, i.status, i.size, i.state, i.detail
FROM plan_items i LEFT JOIN all_work_items w ON w.id = i.work_item_id
WHERE i.plan_id = @id AND i.work_item_id > @after AND (@state = '' OR i.state = @state)
ORDER BY i.work_item_id
LIMIT @n`

// Items lists up to n items of a plan with IDs beyond after, in their order:
// those in a state, or all if it is empty.
func (r Records) Items(ctx context.Context, plan int64, state string, after int64, n int) ([]Item, error) {
	rows, _ := r.db.Query(ctx, itemsSQL, pgx.NamedArgs{"id": plan, "state": state, "after": after, "n": n})
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Item])
	if err != nil {
		return nil, fmt.Errorf("list items of plan %d: %w", plan, err)
	}
	return list, nil
}

// Cause is how many items came to a state for the same reason.
type Cause struct {
	State   string `json:"state"`
	Cause   string `json:"cause"` // with items called N
	Items   int64  `json:"items"`
	Example int64  `json:"example"` // the first of them
}

const causesSQL = `
SELECT state, regexp_replace(detail, '\mitem \d+', 'item N', 'g') AS cause, count(*) AS items, min(work_item_id) AS example
FROM plan_items
WHERE plan_id = $1 AND detail <> ''
GROUP BY 1, 2
ORDER BY 1, 3 DESC, 2`

// Causes sums up why items of a plan are not as planned.
func (r Records) Causes(ctx context.Context, plan int64) ([]Cause, error) {
	rows, _ := r.db.Query(ctx, causesSQL, plan)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Cause])
	if err != nil {
		return nil, fmt.Errorf("sum up plan %d: %w", plan, err)
	}
	return list, nil
}
