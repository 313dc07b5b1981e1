package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// WorkItem is something that the pipeline does or has done with a bag or a stored object.
// The times are UTC.
type WorkItem struct {
	ID                   int64      `json:"id"`
	Action               string     `json:"action"`
	Stage                string     `json:"stage"`
	Status               string     `json:"status"` // Pending, Started, Success, Failed, Cancelled or Suspended
	Name                 string     `json:"name"`   // key in the receiving bucket
	ETag                 string     `json:"etag"`
	Bucket               string     `json:"bucket"`
	Size                 int64      `json:"size"` // bytes
	Institution          string     `json:"institution_identifier"`
	InstitutionID        int64      `json:"institution_id"`
	ObjectIdentifier     string     `json:"object_identifier"`
	IntellectualObjectID *int64     `json:"intellectual_object_id"`
	Note                 string     `json:"note"`
	Outcome              string     `json:"outcome"`
	ErrorCode            string     `json:"error_code"`
	Retry                bool       `json:"retry"` // it is live
	NeedsAdminReview     bool       `json:"needs_admin_review"`
	Attempt              int        `json:"attempt"`
	Node                 *string    `json:"node"` // nil: none, or it is not shown to this caller
	PID                  *int       `json:"pid"`
	Worker               *string    `json:"worker"`
	ClaimToken           int64      `json:"claim_token"`
	Priority             int        `json:"priority"`
	RunAt                *time.Time `json:"run_at"` // nil while it waits for another item
	WaitsFor             *int64     `json:"waits_for"`
	LeaseExpiresAt       *time.Time `json:"lease_expires_at"`
	StageStartedAt       *time.Time `json:"stage_started_at"`
	BagDate              time.Time  `json:"bag_date"`
	DateProcessed        time.Time  `json:"date_processed"`
	QueuedAt             *time.Time `json:"queued_at"`
	CreatedAt            time.Time  `json:"created_at"`
	UpdatedAt            time.Time  `json:"updated_at"`
	User                 string     `json:"user"`
	GenericFileID        *int64     `json:"generic_file_id"` // of a request for a single file
	InstApprover         *string    `json:"inst_approver"`   // of a deletion
	DeletionRequestID    *int64     `json:"deletion_request_id"`
}

// ShownItem is an item with what keeps it from being claimed, and its version.
type ShownItem struct {
	WorkItem
	Estimate

	Stages  []string   `json:"stages"` // those of its action, in their order
	Why     []Obstacle `json:"why"`
	Version string     `json:"-"` // ETag of the record, for a decision
}

// Interval is when something ends: in one case of ten before Low, in five before Likely, in
// nine before High.
type Interval struct {
	Low    time.Time `json:"low"`
	Likely time.Time `json:"likely"`
	High   time.Time `json:"high"`
}

// Estimate is when an item ends, and when it is through with the stage that it is at. What is
// nil is not known, for the reason given.
type Estimate struct {
	End          *Interval `json:"estimate"`
	Unknown      string    `json:"estimate_unknown"`
	StageEnd     *Interval `json:"stage_estimate"`
	StageUnknown string    `json:"stage_estimate_unknown"`
}

// ItemEstimate is the estimate of an item.
type ItemEstimate struct {
	Estimate

	ID int64 `json:"id"`
}

// Obstacle is something that keeps an item from being claimed now.
type Obstacle struct {
	Reason string `json:"reason"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy"`
}

// ItemFilter narrows a list of items. What is zero narrows nothing.
type ItemFilter struct {
	Status                                    []string // any of these
	Stage                                     []string // any of these
	Action                                    []string // any of these
	Institution                               string   // identifier
	Name                                      string   // key in the receiving bucket
	Object                                    string   // identifier
	Worker                                    string   // that runs it
	ErrorCode                                 string
	StorageOption                             string
	Plan, Deletion                            int64  // ID
	Review                                    bool   // only items that wait for a person
	SizeMin                                   int64  // bytes
	SizeMax                                   *int64 // bytes
	UpdatedAfter, UpdatedBefore, CreatedAfter time.Time
}

func (f ItemFilter) query() url.Values {
	q := query{}
	q.text("status", f.Status...)
	q.text("stage", f.Stage...)
	q.text("action", f.Action...)
	q.text("institution", f.Institution)
	q.text("name", f.Name)
	q.text("object", f.Object)
	q.text("worker", f.Worker)
	q.text("error_code", f.ErrorCode)
	q.text("storage_option", f.StorageOption)
	q.number("plan", f.Plan)
	q.number("deletion", f.Deletion)
	q.truth("review", f.Review)
	q.number("size_min", f.SizeMin)
	q.bound("size_max", f.SizeMax)
	q.time("updated_after", f.UpdatedAfter)
	q.time("updated_before", f.UpdatedBefore)
	q.time("created_after", f.CreatedAfter)
	return url.Values(q)
}

// Items lists items, newest first.
func (r Registry) Items(ctx context.Context, f ItemFilter) iter.Seq2[WorkItem, error] {
	return Pages[WorkItem](ctx, r, "items", f.query(), 0)
}

// Item shows an item.
func (r Registry) Item(ctx context.Context, id int64) (v ShownItem, err error) {
	v.Version, err = r.Do(ctx, Call{Path: about("items", id, "")}, &v)
	return v, err
}

// Estimates says when up to 200 items end. Those that are not in the queue are left out.
func (r Registry) Estimates(ctx context.Context, ids ...int64) ([]ItemEstimate, error) {
	q := url.Values{}
	for _, id := range ids {
		q.Add("id", strconv.FormatInt(id, 10))
	}
	var answer struct{ Items []ItemEstimate }
	_, err := r.Do(ctx, Call{Path: "items/estimates", Query: q}, &answer)
	return answer.Items, err
}

// decide changes an item. ifMatch is the Version of the item when that was decided; "": whatever
// it is now.
func (r Registry) decide(ctx context.Context, method string, id int64, what, ifMatch string, body any) (v ShownItem, err error) {
	v.Version, err = r.Do(ctx, Call{Method: method, Path: about("items", id, what), Body: body, IfMatch: ifMatch}, &v)
	return v, err
}

// RequeueItem puts an item back into the queue, at a stage or, if that is "", at the one that
// it is at. ifMatch is its Version when that was decided, or "".
func (r Registry) RequeueItem(ctx context.Context, id int64, stage, ifMatch string) (ShownItem, error) {
	return r.decide(ctx, http.MethodPost, id, "/requeue", ifMatch, map[string]string{"stage": stage})
}

// CancelItem cancels an item, with a note for the depositor.
func (r Registry) CancelItem(ctx context.Context, id int64, reason, ifMatch string) (ShownItem, error) {
	return r.decide(ctx, http.MethodPost, id, "/cancel", ifMatch, map[string]string{"reason": reason})
}

// ReleaseItem takes a running item from its worker.
func (r Registry) ReleaseItem(ctx context.Context, id int64, ifMatch string) (ShownItem, error) {
	return r.decide(ctx, http.MethodPost, id, "/release", ifMatch, nil)
}

// SetPriority sets the priority of an item, from -100, which goes first, to 100.
func (r Registry) SetPriority(ctx context.Context, id int64, priority int, ifMatch string) (ShownItem, error) {
	return r.decide(ctx, http.MethodPatch, id, "", ifMatch, map[string]int{"priority": priority})
}
