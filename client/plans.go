package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// PlanFilter says which items a plan is about. What is zero narrows nothing; something has to
// be set.
type PlanFilter struct {
	IDs           []int64   `json:"ids,omitempty"`
	Status        []string  `json:"status,omitempty"` // any of these
	Stage         []string  `json:"stage,omitempty"`  // any of these
	Action        []string  `json:"action,omitempty"` // any of these
	Institution   string    `json:"institution,omitempty"`
	ErrorCode     string    `json:"error_code,omitempty"`
	NoErrorCode   bool      `json:"no_error_code,omitempty"` // only items without one
	Name          string    `json:"name,omitempty"`
	NamePrefix    string    `json:"name_prefix,omitempty"`
	Object        string    `json:"object,omitempty"`
	Worker        string    `json:"worker,omitempty"`
	StorageOption string    `json:"storage_option,omitempty"`
	Review        bool      `json:"review,omitempty"`
	SizeMin       int64     `json:"size_min,omitempty"` // bytes
	SizeMax       *int64    `json:"size_max,omitempty"` // bytes
	UpdatedAfter  time.Time `json:"updated_after,omitzero"`
	UpdatedBefore time.Time `json:"updated_before,omitzero"`
	CreatedAfter  time.Time `json:"created_after,omitzero"`
	CreatedBefore time.Time `json:"created_before,omitzero"`
}

// PlanRequest says what a plan does to which items.
type PlanRequest struct {
	Action   string     `json:"action"`             // requeue, cancel or set priority
	Stage    string     `json:"stage,omitempty"`    // to requeue to; "": where each item is
	Priority *int       `json:"priority,omitempty"` // to set
	Reason   string     `json:"reason,omitempty"`   // of a cancel
	Filter   PlanFilter `json:"filter"`
}

// Plan is a change of many items that is looked at before it is done.
type Plan struct {
	ID         int64            `json:"id"`
	Action     string           `json:"action"`
	ToStage    *string          `json:"to_stage"`
	Priority   *int             `json:"priority"`
	Reason     *string          `json:"reason"`
	Condition  string           `json:"condition"`
	Items      int64            `json:"items"`
	Refused    int64            `json:"refused"` // of the items, from the start
	InWork     int64            `json:"in_work"` // of the others: a worker had them
	Bytes      int64            `json:"bytes"`   // of the others
	SetHash    string           `json:"set_hash"`
	State      string           `json:"state"`  // ready, applying, applied, undoing or undone
	Counts     map[string]int64 `json:"counts"` // of the items, by their state in the plan
	CreatedAt  time.Time        `json:"created_at"`
	CreatedBy  string           `json:"created_by"`
	BegunAt    *time.Time       `json:"begun_at"`
	BegunBy    *string          `json:"begun_by"`
	AppliedAt  *time.Time       `json:"applied_at"`
	UndoneAt   *time.Time       `json:"undone_at"`
	UndoneBy   *string          `json:"undone_by"`
	ApprovedBy *string          `json:"approved_by"`
	ApprovedAt *time.Time       `json:"approved_at"`
	Carry      *string          `json:"carry"` // what a server carries out now: apply or undo
	CarryFor   *string          `json:"carry_for"`
}

// ShownPlan is a plan with some of its items, and its version.
type ShownPlan struct {
	Plan

	Sample  []PlanItem  `json:"sample"` // the first of those to come
	Causes  []PlanCause `json:"causes"` // of items that are not as planned
	Version string      `json:"-"`      // ETag of the record, for a decision
}

// PlanItem is what a plan says of one item.
type PlanItem struct {
	ID     int64  `json:"id"` // of the work item
	Name   string `json:"name"`
	Stage  string `json:"stage"`  // when the plan was made
	Status string `json:"status"` // when the plan was made
	Size   int64  `json:"size"`
	State  string `json:"state"` // planned, done, refused, changed, undone or not undone
	Detail string `json:"detail"`
}

// PlanCause is how many items came to a state for the same reason.
type PlanCause struct {
	State   string `json:"state"`
	Cause   string `json:"cause"`
	Items   int64  `json:"items"`
	Example int64  `json:"example"` // the first of them
}

// MakePlan makes a plan, which changes nothing.
func (r Registry) MakePlan(ctx context.Context, q PlanRequest) (ShownPlan, error) {
	return r.plan(ctx, Call{Method: http.MethodPost, Path: "plans", Body: q})
}

func (r Registry) plan(ctx context.Context, call Call) (p ShownPlan, err error) {
	p.Version, err = r.Do(ctx, call, &p)
	return p, err
}

// Plans lists plans, newest first: those in a state, or all if it is empty.
func (r Registry) Plans(ctx context.Context, state string) iter.Seq2[Plan, error] {
	q := query{}
	q.text("state", state)
	return Pages[Plan](ctx, r, "plans", url.Values(q), 0)
}

// Plan shows a plan, and how far it is.
func (r Registry) Plan(ctx context.Context, id int64) (ShownPlan, error) {
	return r.plan(ctx, Call{Path: about("plans", id, "")})
}

// PlanItems lists the items of a plan, by ID: those in a state, or all if it is empty.
func (r Registry) PlanItems(ctx context.Context, id int64, state string) iter.Seq2[PlanItem, error] {
	q := query{}
	q.text("state", state)
	return Pages[PlanItem](ctx, r, about("plans", id, "/items"), url.Values(q), 0)
}

// ApplyPlan has the server apply a plan, and returns at once; [Registry.Plan] shows how far it
// is. tolerance is how many per cent of the items may have changed since the plan was made.
// ifMatch is the Version of the plan that was looked at, or "".
func (r Registry) ApplyPlan(ctx context.Context, id int64, tolerance float64, ifMatch string) (ShownPlan, error) {
	return r.plan(ctx, Call{Method: http.MethodPost, Path: about("plans", id, "/apply"), Body: map[string]float64{"tolerance": tolerance}, IfMatch: ifMatch})
}

// UndoPlan has the server undo a plan, and returns at once.
func (r Registry) UndoPlan(ctx context.Context, id int64, ifMatch string) (ShownPlan, error) {
	return r.plan(ctx, Call{Method: http.MethodPost, Path: about("plans", id, "/undo"), IfMatch: ifMatch})
}

// DeletePlan deletes a plan that was not applied, or was undone.
func (r Registry) DeletePlan(ctx context.Context, id int64, ifMatch string) error {
	_, err := r.Do(ctx, Call{Method: http.MethodDelete, Path: about("plans", id, ""), IfMatch: ifMatch}, nil)
	return err
}
