package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/plans"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

type planApply struct {
	answer.ByID
	answer.Condition
	Body struct {
		Tolerance float64 `json:"tolerance,omitempty" default:"5" minimum:"0" maximum:"100" doc:"Per cent of the items that may have changed since the plan was made"`
	}
}

// PlanItemFilter narrows the list of a plan's items.
type PlanItemFilter struct {
	State string `query:"state" enum:"planned,done,refused,changed,undone,not undone" doc:"Only items in this state"`
}

// planAnswer is a plan with its version.
type planAnswer struct {
	ETag string `header:"ETag"`
	Body record.PlanView
}

// plans are bulk changes.
func (a *handlers) plans(t *ops.API) {
	op := func(id, method, path, summary string, needs permission.Permission) ops.Operation {
		return ops.Operation{ID: id, Method: method, Path: "/api/v1/plans" + path, Summary: summary, Access: ops.Holders, Needs: needs, Audit: method != http.MethodGet}
	}
	ops.Register(t, op("plans.list", http.MethodGet, "", "List plans, newest first", permission.PlansRead), a.listPlans)
	made := op("plans.make", http.MethodPost, "", "Make a plan, which changes nothing", permission.PlansMake)
	made.Status, made.Body = http.StatusCreated, 4<<20
	ops.Register(t, made, a.makePlan)
	ops.Register(t, op("plans.show", http.MethodGet, "/{id}", "Show a plan, how far it is, and why items are not as planned", permission.PlansRead),
		func(ctx context.Context, _ access.Caller, in *answer.ByID) (*planAnswer, error) {
			return a.plan(ctx, in.ID)
		})
	ops.Register(t, op("plans.items", http.MethodGet, "/{id}/items", "List the items of a plan, by ID", permission.PlansRead), a.planItems)
	ops.Register(t, op("plans.delete", http.MethodDelete, "/{id}", "Delete a plan that was not applied, or was undone", permission.PlansMake),
		func(ctx context.Context, c access.Caller, in *decideInput) (*answer.Empty, error) {
			_, err := a.changePlan(ctx, c, "plans.delete", in.ID, in.Condition, func(ctx context.Context, p record.Plan) (record.Plan, error) {
				return p, plans.In(a.Registry).Delete(ctx, p.ID)
			})
			return &answer.Empty{}, err
		})
	approve := op("plans.approve", http.MethodPost, "/{id}/approve", "Approve a large plan of another person's", permission.PlansApprove)
	approve.Person, approve.Fresh = true, true
	ops.Register(t, approve, func(ctx context.Context, c access.Caller, in *decideInput) (*planAnswer, error) {
		return a.shownPlan(ctx, c, approve.ID, in.ID, in.Condition, func(ctx context.Context, p record.Plan) (record.Plan, error) {
			return plans.In(a.Registry).Approve(ctx, p.ID)
		})
	})
	apply := op("plans.apply", http.MethodPost, "/{id}/apply", "Have a server apply a plan, or the rest of it", permission.PlansApply)
	apply.Status, apply.Once = http.StatusAccepted, true
	apply.About = "It goes on in batches after the answer; the plan shows how far it is. A plan of many items has to be approved by another person first, and applied with a fresh proof."
	ops.Register(t, apply, a.applyPlan)
	undo := op("plans.undo", http.MethodPost, "/{id}/undo", "Have a server undo a plan", permission.PlansUndo)
	undo.Status = http.StatusAccepted
	undo.About = "A plan that is being applied is applied no further."
	ops.Register(t, undo, func(ctx context.Context, c access.Caller, in *decideInput) (*planAnswer, error) {
		if c.Operator {
			return a.runPlan(ctx, c, undo.ID, in.ID, func(report func(int)) (record.Plan, error) { return plans.In(a.Registry).Undo(ctx, in.ID, report) })
		}
		return a.shownPlan(ctx, c, undo.ID, in.ID, in.Condition, func(ctx context.Context, p record.Plan) (record.Plan, error) {
			return plans.In(a.Registry).AskToUndo(ctx, p.ID)
		})
	})
}

func (a *handlers) listPlans(ctx context.Context, _ access.Caller, in *struct {
	record.PlanListFilter
	answer.Paging
	answer.Before
},
) (*answer.Body[answer.List[record.Plan]], error) {
	before, err := answer.DecodeCursor[int64]("plans", in.PlanListFilter, in.After)
	if err != nil {
		return nil, err
	}
	found, err := plans.In(a.Registry).List(ctx, in.State, cmp.Or(before, in.BeforeID), in.Limit+1)
	if err != nil {
		return nil, err
	}
	return answer.PageOf(ctx, found, in.Limit, func(p record.Plan) string { return answer.EncodeCursor("plans", in.PlanListFilter, p.ID) }), nil
}

func (a *handlers) makePlan(ctx context.Context, c access.Caller, in *answer.Body[record.PlanRequest]) (*planAnswer, error) {
	b := in.Body
	q := plans.Request{Action: b.Action, Stage: b.Stage, Priority: b.Priority, Reason: b.Reason, Filter: b.Filter, Where: b.Where}
	switch {
	case b.Where != "" && !c.Operator:
		return nil, ops.Problem(http.StatusForbidden, ops.CodeNotAllowed, "where is for commands with the registry's own URL; use the filter")
	case plans.Empty(q.Filter) && b.Where == "":
		return nil, ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, "filter is empty; say which items, such as by status")
	case (b.Action == "set priority") != (b.Priority != nil):
		return nil, ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, "priority belongs to the action set priority, and to no other")
	case b.Stage != "" && b.Action != "requeue" || b.Reason != "" && b.Action != "cancel":
		return nil, ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, "stage belongs to the action requeue, and reason to cancel")
	}
	entry := registry.AuditEntry{Operation: "plans.make", SubjectType: "plan", Detail: map[string]any{"action": b.Action}}
	p, err := answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (record.Plan, error) {
		p, err := plans.In(a.Registry).Make(ctx, q)
		entry.SubjectID = strconv.FormatInt(p.ID, 10)
		if c.Operator {
			entry.Detail["condition"], entry.Detail["items"] = p.Condition, p.Items
		}
		return p, err
	})
	if errors.Is(err, registry.ErrNotFound) && !c.Operator {
		return nil, ops.Problem(http.StatusNotFound, ops.CodeNotFound, "no item meets the filter")
	}
	if err != nil {
		return nil, err
	}
	return a.viewPlan(ctx, p)
}

func (a *handlers) plan(ctx context.Context, id int64) (*planAnswer, error) {
	p, err := plans.In(a.Registry).Plan(ctx, id)
	if err != nil {
		return nil, err
	}
	return a.viewPlan(ctx, p)
}

func (a *handlers) viewPlan(ctx context.Context, p record.Plan) (*planAnswer, error) {
	v, err := plans.In(a.Registry).View(ctx, p)
	return &planAnswer{planTag(p), v}, err
}

// planTag changes with what decisions about a plan depend on.
func planTag(p record.Plan) string {
	return fmt.Sprintf(`"%.12s.%s.%t"`, p.SetHash, p.State, p.ApprovedAt != nil)
}

func (a *handlers) planItems(ctx context.Context, _ access.Caller, in *struct {
	answer.ByID
	PlanItemFilter
	answer.Paging
},
) (*answer.Body[answer.List[record.PlanItem]], error) {
	name := fmt.Sprintf("plan %d", in.ID)
	after, err := answer.DecodeCursor[int64](name, in.PlanItemFilter, in.After)
	if err != nil {
		return nil, err
	}
	if _, err := plans.In(a.Registry).Plan(ctx, in.ID); err != nil {
		return nil, err
	}
	found, err := plans.In(a.Registry).Items(ctx, in.ID, in.State, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return answer.PageOf(ctx, found, in.Limit, func(i record.PlanItem) string { return answer.EncodeCursor(name, in.PlanItemFilter, i.ID) }), nil
}

func (a *handlers) applyPlan(ctx context.Context, c access.Caller, in *planApply) (*planAnswer, error) {
	if c.Operator {
		return a.runPlan(ctx, c, "plans.apply", in.ID, func(report func(int)) (record.Plan, error) {
			return plans.In(a.Registry).Apply(ctx, in.ID, in.Body.Tolerance, report)
		})
	}
	return a.shownPlan(ctx, c, "plans.apply", in.ID, in.Condition, func(ctx context.Context, p record.Plan) (record.Plan, error) {
		if p.Items-p.Refused > a.PlanAlone && !c.Session.Fresh {
			return p, ops.FreshProof(c)
		}
		return plans.In(a.Registry).AskToApply(ctx, p.ID, in.Body.Tolerance, a.PlanAlone)
	})
}

// runPlan applies a plan or undoes it, until it is done or the command ends.
func (a *handlers) runPlan(ctx context.Context, c access.Caller, operation string, id int64, run func(report func(int)) (record.Plan, error)) (*planAnswer, error) {
	dealtWith := 0
	p, err := run(func(items int) { dealtWith += items })
	entry := registry.AuditEntry{Operation: operation, SubjectType: "plan", SubjectID: strconv.FormatInt(id, 10), Detail: map[string]any{"items": dealtWith}}
	if err := a.Registry.Noted(ctx, c.Actor(), entry, err); err != nil {
		return nil, err
	}
	return a.viewPlan(ctx, p)
}

// changePlan decides about a plan, unless it is another than the one that was looked at.
func (a *handlers) changePlan(ctx context.Context, c access.Caller, operation string, id int64, m answer.Condition, do func(context.Context, record.Plan) (record.Plan, error)) (record.Plan, error) {
	entry := registry.AuditEntry{Operation: operation, SubjectType: "plan", SubjectID: strconv.FormatInt(id, 10)}
	return answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (record.Plan, error) {
		p, err := plans.In(a.Registry).Lock(ctx, id)
		if err != nil {
			return p, err
		}
		if m.IfMatch != "" && m.IfMatch != "*" && m.IfMatch != planTag(p) {
			return p, registry.ErrChanged
		}
		return do(ctx, p)
	})
}

func (a *handlers) shownPlan(ctx context.Context, c access.Caller, operation string, id int64, m answer.Condition, do func(context.Context, record.Plan) (record.Plan, error)) (*planAnswer, error) {
	p, err := a.changePlan(ctx, c, operation, id, m, do)
	if err != nil {
		return nil, err
	}
	return a.viewPlan(ctx, p)
}
