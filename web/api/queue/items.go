package queue

import (
	"context"
	"fmt"
	"net/http"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

type itemQuery struct {
	browse.ItemFilter
	SizeMax ops.Bound `query:"size_max" minimum:"0" doc:"Bytes"`
	answer.Paging
	answer.Before
	answer.Counting
}

type (
	requeueBody struct {
		answer.ByID
		answer.Condition
		Body struct {
			Stage  registry.Stage `json:"stage,omitempty" maxLength:"100" doc:"Without it, the stage that the item is at"`
			Accept bool           `json:"accept_missing,omitempty" doc:"Continue a deletion although copies are missing"`
		}
	}
	reasonBody struct {
		answer.ByID
		answer.Condition
		Body struct {
			Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Note for the depositor" example:"The depositor sent the wrong bag."`
		}
	}
	decideInput struct {
		answer.ByID
		answer.Condition
	}
	noteBody struct {
		answer.ByID
		Body struct {
			Note string `json:"note" minLength:"1" maxLength:"1000" doc:"What colleagues should know" example:"The depositor sends the bag again on Monday."`
		}
	}
	itemPatch struct {
		answer.ByID
		answer.Condition
		Body struct {
			Priority *int    `json:"priority,omitempty" minimum:"-100" maximum:"100" doc:"-100 goes first"`
			Note     *string `json:"note,omitempty" maxLength:"1000"`
			Review   *bool   `json:"needs_admin_review,omitempty" doc:"Whether a person has to look at the item"`
		}
	}
)

// items are work items.
func (a *handlers) items(t *ops.API) {
	read := func(id, path, summary, about string) ops.Operation {
		return ops.Operation{ID: id, Method: http.MethodGet, Path: path, Summary: summary, About: about, Access: ops.Holders, Needs: permission.ItemsRead}
	}
	ops.Register(t, read("items.list", "/api/v1/items", "List work items, newest first",
		"institution, status, name, object, review, worker, plan and deletion are found by an index; the others narrow what these find."), a.listItems)
	ops.Register(t, read("items.show", "/api/v1/items/{id}", "Show a work item", ""),
		func(ctx context.Context, c access.Caller, in *answer.ByID) (*itemAnswer, error) {
			return a.item(ctx, c, in.ID)
		})
	ops.Register(t, read("items.history", "/api/v1/items/{id}/history", "List the attempts at an item, and what people decided about it", ""), a.itemHistory)
	ops.Register(t, read("items.explain", "/api/v1/items/{id}/explain", "Explain an item: what happened, whose fault it is, and what to do",
		"The same as `farol item explain`. What failed within a bag is known while the server reaches Redis."), a.explainItem)
	ops.Register(t, read("items.record", "/api/v1/items/{id}/record", "Show everything recorded about an item", "The same as `farol item show`: its attempts, changes by people, progress, and its object."), a.itemRecord)
	ops.Register(t, answer.Reads("items.requeue_stages", "/api/v1/items/{id}/requeue", "Show the stages that an item can be requeued to, and what is redone", "", permission.ItemsDecide),
		func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Body[answer.List[record.RequeueStage]], error) {
			if _, err := a.Browse(c).Item(ctx, in.ID); err != nil {
				return nil, err
			}
			found, err := a.Registry.RequeueStages(ctx, in.ID)
			return answer.All(found), err
		})
	a.decisions(t)
}

// decisions are what is decided about items.
func (a *handlers) decisions(t *ops.API) {
	decide := func(id, method, path, summary, about string) ops.Operation {
		return ops.Operation{ID: id, Method: method, Path: path, Summary: summary, About: about, Access: ops.Holders, Needs: permission.ItemsDecide, Audit: true}
	}
	ops.Register(t, decide("items.requeue", http.MethodPost, "/api/v1/items/{id}/requeue", "Requeue an item", "What is redone depends on the stage; the rules are those of requeue() in the database."),
		func(ctx context.Context, c access.Caller, in *requeueBody) (*itemAnswer, error) {
			return a.decide(ctx, c, "items.requeue", in.ID, in.Condition, map[string]any{"stage": in.Body.Stage, "accept_missing": in.Body.Accept}, func(ctx context.Context) (record.WorkItem, error) {
				if in.Body.Accept {
					if err := a.acceptMissing(ctx, in.ID); err != nil {
						return record.WorkItem{}, err
					}
				}
				return a.Registry.Requeue(ctx, in.ID, in.Body.Stage)
			})
		})
	where := decide("items.requeue_where", http.MethodPost, "/api/v1/items/requeue", "Requeue all items for which an SQL condition is true", "Items that are refused do not stop the others.")
	where.Access, where.Needs = ops.Here, ""
	ops.Register(t, where, a.requeueWhere)
	cancel := decide("items.cancel", http.MethodPost, "/api/v1/items/{id}/cancel", "Cancel an item", "A worker that processes it loses its lease. To ingest the bag after all, the depositor uploads it again. "+
		"Institutional admins cancel items of deletions. What an item has removed stays removed.")
	cancel.Or, cancel.Command = permission.DeletionsCancel, "item cancel ID"
	ops.Register(t, cancel, func(ctx context.Context, c access.Caller, in *reasonBody) (*itemAnswer, error) {
		return a.decide(ctx, c, "items.cancel", in.ID, in.Condition, map[string]any{"reason": in.Body.Reason}, func(ctx context.Context) (record.WorkItem, error) {
			if !c.Holds(permission.ItemsDecide) {
				w, err := a.Registry.WorkItem(ctx, in.ID)
				if err != nil {
					return w, err
				}
				if w.Action != "Delete" {
					return w, ops.Problem(http.StatusForbidden, ops.CodeNotAllowed, "your role cancels only items of deletions; others need the permission "+string(permission.ItemsDecide))
				}
			}
			return a.Registry.Cancel(ctx, in.ID, in.Body.Reason)
		})
	})
	release := decide("items.release", http.MethodPost, "/api/v1/items/{id}/release", "Take a running item from its worker",
		"For example when the worker hangs. The item is Pending at once, at the same stage, keeps what the stage has finished, and the attempt does not count. To restart the stage from its beginning, requeue the item.")
	release.Command = "item release ID"
	ops.Register(t, release,
		func(ctx context.Context, c access.Caller, in *decideInput) (*itemAnswer, error) {
			return a.decide(ctx, c, "items.release", in.ID, in.Condition, nil, func(ctx context.Context) (record.WorkItem, error) { return a.Registry.Release(ctx, in.ID) })
		})
	note := decide("items.add_note", http.MethodPost, "/api/v1/items/{id}/notes", "Add a note to an item", "It stands in the history of the item, which stays as it is. A note is never changed: a later one corrects it.")
	note.Command = "item note ID NOTE"
	ops.Register(t, note, func(ctx context.Context, c access.Caller, in *noteBody) (*itemAnswer, error) {
		return a.decide(ctx, c, "items.add_note", in.ID, answer.Condition{}, map[string]any{"note": in.Body.Note}, func(ctx context.Context) (record.WorkItem, error) {
			return a.Registry.AddNote(ctx, in.ID, in.Body.Note)
		})
	})
	ops.Register(t, decide("items.set", http.MethodPatch, "/api/v1/items/{id}", "Set the priority or the note of an item, or whether a person has to look at it", "What is left out stays."), a.setItem)
}

// itemAnswer is an item with its version.
type itemAnswer struct {
	ETag string `header:"ETag"`
	Body record.ItemView
}

// itemTag changes with whatever a decision depends on.
func itemTag(w record.WorkItem) string {
	return fmt.Sprintf(`"%d.%d.%t"`, w.ClaimToken, w.Priority, w.NeedsAdminReview)
}

func (a *handlers) listItems(ctx context.Context, c access.Caller, in *itemQuery) (*answer.Body[answer.List[record.WorkItem]], error) {
	if in.Worker != "" && !c.Holds(permission.ItemsWorkers) || in.Plan != 0 && !c.Holds(permission.PlansRead) {
		return nil, ops.Problem(http.StatusForbidden, ops.CodeNotAllowed, "the filters worker and plan need the permissions items.workers and plans.read")
	}
	in.ItemFilter.SizeMax = in.SizeMax.OrNil()
	out, err := answer.Page(ctx, a.Site, c, "items", in.ItemFilter, in.From("items", in.ItemFilter, browse.Key{ID: in.BeforeID}), in.Counting, browse.Records.Items)
	if err != nil {
		return nil, err
	}
	for i, w := range out.Body.Items {
		out.Body.Items[i] = answer.Seen(c, w)
	}
	return out, nil
}

func (a *handlers) item(ctx context.Context, c access.Caller, id int64) (*itemAnswer, error) {
	w, err := a.Browse(c).Item(ctx, id)
	if err != nil {
		return nil, err
	}
	v := record.ItemView{WorkItem: answer.Seen(c, w), Stages: append([]registry.Stage{}, w.Order...), Why: []record.Obstacle{}}
	why, err := explain.Obstacles(ctx, a.Registry, id)
	if err != nil {
		return nil, err
	}
	v.Why = a.obstacles(c, why)
	if w.Retry {
		ends, err := a.ends(ctx, c, id)
		if err != nil {
			return nil, err
		}
		v.Times = ends[id]
	}
	return &itemAnswer{itemTag(w), v}, nil
}

// obstacles leaves out what names the work of others: a reason may name items of other
// institutions, and hosts.
func (a *handlers) obstacles(c access.Caller, why []record.Obstacle) []record.Obstacle {
	if c.Scope.All() {
		return append([]record.Obstacle{}, why...)
	}
	list := []record.Obstacle{}
	for _, o := range why {
		list = append(list, record.Obstacle{Reason: o.Reason})
	}
	return list
}

func (a *handlers) itemHistory(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Body[record.ItemHistory], error) {
	if _, err := a.Browse(c).Item(ctx, in.ID); err != nil {
		return nil, err
	}
	attempts, err := a.Registry.Attempts(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	changes, err := a.Registry.Changes(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	h := record.ItemHistory{Attempts: append([]record.Attempt{}, attempts...), Changes: append([]record.Change{}, changes...)}
	if !c.Holds(permission.ItemsWorkers) {
		for i := range h.Attempts {
			h.Attempts[i].Node, h.Attempts[i].PID, h.Attempts[i].Worker = "", 0, ""
		}
	}
	return answer.Of(h), nil
}

// source explains items as far as a caller may know of them.
func (a *handlers) source(ctx context.Context, c access.Caller) explain.Source {
	s := explain.Source{Registry: a.Registry, Measures: a.Interim.Measures, NoHosts: !c.Holds(permission.ItemsWorkers), Model: a.model}
	s.Unread = func(err error) { a.Log.WarnContext(ctx, "The progress of files is not known", "err", err) }
	if a.Interim.Progress != nil {
		var err error
		if s.Progress, err = a.Interim.Progress(ctx); err != nil {
			s.Unread(err)
		}
	}
	return s
}

func (a *handlers) itemRecord(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Body[explain.Item], error) {
	if _, err := a.Browse(c).Item(ctx, in.ID); err != nil {
		return nil, err
	}
	v, err := a.source(ctx, c).Item(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if !c.Holds(permission.ObjectsRead) {
		v.Object, v.Events = nil, []record.Event{}
	}
	return answer.Of(*v), nil
}

func (a *handlers) explainItem(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Body[explain.Explanation], error) {
	if _, err := a.Browse(c).Item(ctx, in.ID); err != nil {
		return nil, err
	}
	e, err := a.source(ctx, c).Explain(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	e.Faults = interim.Redacted(e.Faults)
	e.Waits = a.obstacles(c, e.Waits)
	return answer.Of(*e), nil
}

func (a *handlers) requeueWhere(ctx context.Context, c access.Caller, in *answer.Body[struct {
	Where  string         `json:"where" doc:"Condition over the columns of work_items"`
	Stage  registry.Stage `json:"stage,omitempty" doc:"Without it, the stage that each item is at"`
	DryRun bool           `json:"dry_run,omitempty" doc:"Show what would happen"`
}],
) (*answer.Body[answer.List[record.RequeueLine]], error) {
	if in.Body.DryRun {
		lines, err := a.Registry.RequeueWhere(ctx, in.Body.Where, in.Body.Stage, false)
		return answer.All(lines), err
	}
	entry := registry.AuditEntry{Operation: "items.requeue_where", SubjectType: "items", Detail: map[string]any{"where": in.Body.Where, "stage": in.Body.Stage}}
	return answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (*answer.Body[answer.List[record.RequeueLine]], error) {
		lines, err := a.Registry.RequeueWhere(ctx, in.Body.Where, in.Body.Stage, true)
		entry.Detail["did"] = lines
		return answer.All(lines), err
	})
}

// acceptMissing has a person accept that copies are missing, so that a deletion goes on.
func (a *handlers) acceptMissing(ctx context.Context, id int64) error {
	n, err := requests.In(a.Registry).AcceptMissing(ctx, id, "")
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: item %d has no missing copies that are not accepted yet; requeue it without accepting any", registry.ErrRefused, id)
	}
	return err
}

func (a *handlers) setItem(ctx context.Context, c access.Caller, in *itemPatch) (*itemAnswer, error) {
	change := registry.ItemChange{Priority: in.Body.Priority, Note: in.Body.Note, Review: in.Body.Review}
	if change == (registry.ItemChange{}) {
		return nil, answer.NothingToSet("priority, note or needs_admin_review")
	}
	return a.decide(ctx, c, "items.set", in.ID, in.Condition, map[string]any{"set": in.Body}, func(ctx context.Context) (record.WorkItem, error) {
		return a.Registry.SetItem(ctx, in.ID, change)
	})
}

// decide changes an item, unless it is another than the one that the decision was about.
func (a *handlers) decide(ctx context.Context, c access.Caller, operation string, id int64, m answer.Condition, detail map[string]any, do func(context.Context) (record.WorkItem, error)) (*itemAnswer, error) {
	entry := registry.AuditEntry{Operation: operation, SubjectType: "item", SubjectID: fmt.Sprint(id), Detail: detail}
	_, err := answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (record.WorkItem, error) {
		before, err := a.Registry.LockItem(ctx, c.Scope, id)
		if err != nil {
			return before, err
		}
		entry.Institution = before.InstitutionID
		if m.IfMatch != "" && m.IfMatch != "*" && m.IfMatch != itemTag(before) {
			return before, registry.ErrChanged
		}
		return do(ctx)
	})
	if err != nil {
		return nil, err
	}
	return a.item(ctx, c, id)
}
