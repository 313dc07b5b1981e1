package record

import "time"

// PlanFilter says which items a plan is about. Empty fields do not narrow.
type PlanFilter struct {
	IDs           []int64   `json:"ids,omitempty" maxItems:"100000" doc:"Any of these items"`
	Status        []Status  `json:"status,omitempty" maxItems:"6" enum:"Pending,Started,Success,Failed,Cancelled,Suspended" doc:"Any of these"`
	Stage         []Stage   `json:"stage,omitempty" maxItems:"30" doc:"Any of these"`
	Action        []Action  `json:"action,omitempty" maxItems:"5" doc:"Any of these"`
	Institution   string    `json:"institution,omitempty" maxLength:"255" doc:"Identifier of the institution"`
	ErrorCode     string    `json:"error_code,omitempty" maxLength:"100"`
	NoErrorCode   bool      `json:"no_error_code,omitempty" doc:"Only items without an error code"`
	Name          string    `json:"name,omitempty" maxLength:"1000" doc:"Key in the receiving bucket"`
	NamePrefix    string    `json:"name_prefix,omitempty" maxLength:"1000" doc:"With which the name begins"`
	Object        string    `json:"object,omitempty" maxLength:"1000" doc:"Identifier of the object"`
	Worker        string    `json:"worker,omitempty" maxLength:"255" doc:"Only items that this worker runs"`
	StorageOption string    `json:"storage_option,omitempty" maxLength:"100"`
	Review        bool      `json:"review,omitempty" doc:"Only items that wait for a person"`
	SizeMin       int64     `json:"size_min,omitempty" minimum:"0" doc:"Bytes"`
	SizeMax       *int64    `json:"size_max,omitempty" minimum:"0" doc:"Bytes"`
	UpdatedAfter  time.Time `json:"updated_after,omitzero" doc:"Then or later"`
	UpdatedBefore time.Time `json:"updated_before,omitzero" doc:"Before then"`
	CreatedAfter  time.Time `json:"created_after,omitzero" doc:"Then or later"`
	CreatedBefore time.Time `json:"created_before,omitzero" doc:"Before then"`
}

// Plan is a bulk action that is looked at before it is done.
type Plan struct {
	ID        int64            `json:"id"`
	Action    string           `json:"action"`
	ToStage   *Stage           `json:"to_stage"`
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

	ApprovedBy *string    `json:"approved_by"` // the second person; nil: nobody
	ApprovedAt *time.Time `json:"approved_at"`
	Carry      *string    `json:"carry"`     // what a server carries out now: apply or undo; nil: nothing
	CarryFor   *string    `json:"carry_for"` // who asked for that
}

// PlanView is a plan with what is to be looked at before it is applied.
type PlanView struct {
	Plan
	Sample []PlanItem  `json:"sample"` // the first of those to come
	Causes []PlanCause `json:"causes"` // of items that are not as planned
}

// PlanItem is what a plan says of one work item.
type PlanItem struct {
	ID     int64  `json:"id"`     // of the work item
	Name   string `json:"name"`   // key in the receiving bucket
	Stage  Stage  `json:"stage"`  // when the plan was made, as the next two
	Status Status `json:"status"` //
	Size   int64  `json:"size"`
	State  string `json:"state"`  // planned, done, refused, changed, undone or not undone
	Detail string `json:"detail"` // why, unless it is as planned
}

// PlanCause is how many items came to a state for the same reason.
type PlanCause struct {
	State   string `json:"state"`
	Cause   string `json:"cause"` // with items called N
	Items   int64  `json:"items"`
	Example int64  `json:"example"` // the first of them
}

// PlanRequest says what to do to which items.
type PlanRequest struct {
	Action   string     `json:"action" enum:"requeue,cancel,set priority"`
	Stage    Stage      `json:"stage,omitempty" maxLength:"100" doc:"To requeue to; without it, the stage that each item is at"`
	Priority *int       `json:"priority,omitempty" minimum:"-100" maximum:"100" doc:"To set; -100 goes first"`
	Reason   string     `json:"reason,omitempty" maxLength:"1000" doc:"Note of cancelled items, for the depositors"`
	Filter   PlanFilter `json:"filter" doc:"Which items"`
	Where    string     `json:"where,omitempty" hidden:"true" doc:"Only items for which this SQL condition is true; for commands with the registry's own URL"`
}
