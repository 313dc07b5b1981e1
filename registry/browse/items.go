package browse

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// ItemFilter narrows a list of work items, those in the archive included.
type ItemFilter struct {
	record.ItemFilter
	ItemDetails

	Node *bool // whether a worker runs it now
}

const itemAdvice = "add institution, name, object, worker, plan, deletion request or review, or fewer of the other filters"

// Items lists work items, newest first. The key of a page is an ID. The error is
// [ErrTooBroad] if it takes too long, and [registry.ErrRefused] for a page that has no size.
func (r Records) Items(ctx context.Context, f ItemFilter, p Page) ([]record.WorkItem, Key, error) {
	return list(ctx, r, "work items", f, p, func(found string) string {
		return `WITH page AS MATERIALIZED (` + found + `)
			SELECT ` + registry.WorkItemColumns + ` FROM page w JOIN institutions i ON i.id = w.institution_id ORDER BY w.id DESC`
	}, func(w record.WorkItem) Key { return Key{ID: w.ID} })
}

// Item returns one work item, or [registry.ErrNotFound].
func (r Records) Item(ctx context.Context, id int64) (record.WorkItem, error) {
	q := in(r.scope, "", itemAdvice)
	q.where(`w.id = @id`, "id", id)
	q.within(`w.institution_id`)
	q.sql = `SELECT ` + registry.WorkItemColumns + ` FROM all_work_items w JOIN institutions i ON i.id = w.institution_id WHERE ` + q.all()
	return one[record.WorkItem](ctx, r, fmt.Sprintf("item %d", id), q)
}

// ItemsOf returns the items of the queue that have these IDs, in their order. It leaves out
// those that have ended.
func (r Records) ItemsOf(ctx context.Context, ids []int64) ([]record.WorkItem, error) {
	q := in(r.scope, "", itemAdvice)
	q.where(`w.id = ANY (@ids)`, "ids", ids) // work_items_pkey
	q.conds = append(q.conds, `w.retry`)
	q.within(`w.institution_id`)
	sql := `SELECT ` + registry.WorkItemColumns + ` FROM work_items w JOIN institutions i ON i.id = w.institution_id WHERE ` + q.all()
	rows, err := read(ctx, r.db, q, sql, pgx.RowToStructByName[record.WorkItem])
	if err != nil {
		return nil, fmt.Errorf("list work items: %w", err)
	}
	found := map[int64]record.WorkItem{}
	for _, w := range rows {
		found[w.ID] = w
	}
	list := []record.WorkItem{}
	for _, id := range ids {
		if w, ok := found[id]; ok {
			list = append(list, w)
		}
	}
	return list, nil
}

// find takes up to @n items from the queue and from the archive, each by an index, and the
// newest of both.
func (f ItemFilter) find(s registry.Scope, after Key) (*query, error) {
	q := in(s, f.Institution, itemAdvice)
	q.after(`w.id < @after`, after.ID)
	f.narrow(q)
	archive := f.archive(q) // before the institution is a condition among others
	q.ordered = true
	q.within(`w.institution_id`)
	if f.Plan != 0 {
		q.args["plan"] = f.Plan
		q.sql = fmt.Sprintf(planItemsSQL, cmp.Or(strings.Replace(q.key, `w.id`, `p.work_item_id`, 1), `true`), q.all())
		return q, nil
	}
	q.sql = newestOf(append(f.queue(q), archive...))
	return q, nil
}

// narrow adds the conditions that are the same for both tables.
func (f ItemFilter) narrow(q *query) {
	anyOf(q, `w.status = ANY (@status::text[])`, "status", f.Status)
	q.equal(`w.name = @name`, "name", f.Name)
	q.equal(`w.object_identifier = @object`, "object", f.Object)
	if f.Review {
		q.conds = append(q.conds, `w.needs_admin_review`)
	}
	q.equal(`w.worker = @worker`, "worker", f.Worker)
	if f.Deletion != 0 {
		q.where(`w.deletion_request_id = @deletion`, "deletion", f.Deletion)
	}
	anyOf(q, `w.stage = ANY (@stage::text[])`, "stage", f.Stage)
	anyOf(q, `w.action = ANY (@action::text[])`, "action", f.Action)
	if f.SizeMin != 0 {
		q.where(`w.size >= @size_min`, "size_min", f.SizeMin)
	}
	if f.SizeMax != nil {
		q.where(`w.size <= @size_max`, "size_max", *f.SizeMax)
	}
	q.since(`w.updated_at >= @updated_after`, "updated_after", f.UpdatedAfter)
	q.since(`w.updated_at < @updated_before`, "updated_before", f.UpdatedBefore)
	q.since(`w.created_at >= @created_after`, "created_after", f.CreatedAfter)
	q.equal(`w.error_code = @error_code`, "error_code", f.ErrorCode)
	q.equal(`w.storage_option = @storage_option`, "storage_option", f.StorageOption)
	if f.Node != nil {
		q.where(`(w.node IS NOT NULL) = @node`, "node", *f.Node)
	}
	f.ItemDetails.narrow(q)
}
