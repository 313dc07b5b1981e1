package client

import (
	"context"
	"iter"
	"net/url"
	"time"
)

// RestorationRequest asks for an object or a file back.
type RestorationRequest struct {
	Object      string `json:"object,omitempty"`       // identifier, or
	File        string `json:"file,omitempty"`         // identifier
	Tier        string `json:"tier,omitempty"`         // Expedited, Standard or Bulk; "": Standard
	Days        int    `json:"days,omitempty"`         // for which archived copies stay readable; 0: ten
	FromArchive bool   `json:"from_archive,omitempty"` // from the archived copy, if the others are bad
}

// Quote is what a restoration costs, and how long the provider takes.
type Quote struct {
	Files         int64         `json:"files"`
	Bytes         int64         `json:"bytes"`
	Class         string        `json:"storage_class"` // "": the copies can be read as they are, for nothing
	Tier          string        `json:"tier"`
	Days          int           `json:"days"`
	Price         string        `json:"price_usd"` // exact, such as 1774.00
	Cap           string        `json:"cap_usd"`
	NeedsApproval bool          `json:"needs_approval"`
	Takes         time.Duration `json:"takes_ns"` // at most
}

// Restoration is what came of a request.
type Restoration struct {
	Item  WorkItem `json:"item"`
	Quote Quote    `json:"quote"`
}

// QuoteRestoration estimates a restoration, and changes nothing.
func (r Registry) QuoteRestoration(ctx context.Context, q RestorationRequest) (Quote, error) {
	return post[Quote](ctx, r, "restorations/quote", q)
}

// Restore requests a restoration. It needs a personal token.
func (r Registry) Restore(ctx context.Context, q RestorationRequest) (Restoration, error) {
	return post[Restoration](ctx, r, "restorations", q)
}

// RestorationFilter narrows a list of restorations. What is zero narrows nothing.
type RestorationFilter struct {
	Status                      []string // any of these
	Institution, Object         string   // identifiers
	ErrorCode                   string   // such as cost-approval
	UpdatedAfter, UpdatedBefore time.Time
}

// Restorations lists the items of restorations, newest first.
func (r Registry) Restorations(ctx context.Context, f RestorationFilter) iter.Seq2[WorkItem, error] {
	q := query{}
	q.text("status", f.Status...)
	q.text("institution", f.Institution)
	q.text("object", f.Object)
	q.text("error_code", f.ErrorCode)
	q.time("updated_after", f.UpdatedAfter)
	q.time("updated_before", f.UpdatedBefore)
	return Pages[WorkItem](ctx, r, "restorations", url.Values(q), 0)
}

// ApproveRestoration lets a restoration go on that costs more than the cap. It needs a
// personal token.
func (r Registry) ApproveRestoration(ctx context.Context, item int64) error {
	_, err := post[struct{}](ctx, r, about("restorations", item, "/approve"), nil)
	return err
}

// CancelRestoration cancels a restoration that no worker has begun. The reason, if there is one,
// becomes part of the note of the item. It needs a personal token.
func (r Registry) CancelRestoration(ctx context.Context, item int64, reason string) (WorkItem, error) {
	found, err := post[Restoration](ctx, r, about("restorations", item, "/cancel"), map[string]string{"reason": reason})
	return found.Item, err
}

// DeletionCheck is what a request for a deletion would be about.
type DeletionCheck struct {
	Objects      int64         `json:"objects"`
	Files        int64         `json:"files"` // single ones, in addition to those of the objects
	Bytes        int64         `json:"bytes"`
	Unknown      []string      `json:"unknown"` // the first of those that there are not
	UnknownCount int64         `json:"unknown_count"`
	Refused      []Undeletable `json:"refused"` // the first of those that cannot be deleted now
	RefusedCount int64         `json:"refused_count"`
}

// Undeletable is what cannot be deleted now.
type Undeletable struct {
	Identifier string `json:"identifier"`
	Why        string `json:"why"`
}

// CheckDeletion reports what a request for a deletion would be refused for, and changes
// nothing.
func (r Registry) CheckDeletion(ctx context.Context, identifiers []string) (DeletionCheck, error) {
	return post[DeletionCheck](ctx, r, "deletions/check", map[string][]string{"identifiers": identifiers})
}

// Deletion is a request for a deletion, and what was decided about it.
type Deletion struct {
	ID          int64      `json:"id"`
	Institution string     `json:"institution_identifier"`
	RequestedBy string     `json:"requested_by"` // e-mail
	RequestedAt time.Time  `json:"requested_at"`
	ApprovedBy  string     `json:"approved_by"` // "": nobody
	ApprovedAt  *time.Time `json:"approved_at"`
	RequestedAs string     `json:"requested_as"` // who acted
	ApprovedAs  string     `json:"approved_as"`  // who acted
	OnPaper     string     `json:"on_paper"`
	BeginsAt    *time.Time `json:"begins_at"` // nothing is removed before; nil: it is not approved
	CancelledBy string     `json:"cancelled_by"`
	CancelledAt *time.Time `json:"cancelled_at"`
	Reason      string     `json:"cancel_reason"` // why it was cancelled
	Objects     int64      `json:"objects"`
	Files       int64      `json:"files"`
	Items       int64      `json:"items"` // work items that it became
	Done        int64      `json:"done"`  // of these
	Failed      int64      `json:"failed"`
	Cancelled   int64      `json:"cancelled"`
	Removed     bool       `json:"removed_before_cancelled"` // it was cancelled when copies had been removed
	Ask         string     `json:"whom_to_ask"`              // who may approve it, or from when somebody may; "": it is decided
	Kept        string     `json:"kept_by_store"`            // until when stores keep copies, for which items of it wait; "": none does
}

// RequestDeletion asks for the deletion of objects and files of one's own institution. It
// needs a personal token. Another person approves it, with a browser.
func (r Registry) RequestDeletion(ctx context.Context, identifiers []string) (Deletion, error) {
	return post[Deletion](ctx, r, "deletions", map[string][]string{"identifiers": identifiers})
}

// Deletion shows a request, and how far it is.
func (r Registry) Deletion(ctx context.Context, id int64) (Deletion, error) {
	return get[Deletion](ctx, r, about("deletions", id, ""), nil)
}

// CancelDeletion cancels a request, or stops it after its approval, for a reason that the
// institution reads. It needs a personal token.
func (r Registry) CancelDeletion(ctx context.Context, id int64, reason string) (Deletion, error) {
	return post[Deletion](ctx, r, about("deletions", id, "/cancel"), map[string]string{"reason": reason})
}

// Deletions lists requests, newest first: those of an institution, and in a state (open,
// waiting, approved or cancelled), or all.
func (r Registry) Deletions(ctx context.Context, institution, state string) iter.Seq2[Deletion, error] {
	q := query{}
	q.text("institution", institution)
	q.text("state", state)
	return Pages[Deletion](ctx, r, "deletions", url.Values(q), 0)
}

// NamedRecord is an object or a file that a deletion names.
type NamedRecord struct {
	Kind       string     `json:"kind"` // object or file
	ID         int64      `json:"id"`
	Identifier string     `json:"identifier"`
	State      string     `json:"state"`      // A: active, D: deleted
	Size       int64      `json:"size"`       // bytes; of an object, those of its active files
	KeptUntil  *time.Time `json:"kept_until"` // when its retention ends; nil: it has none, or is an object with more than 1,000 files
}

// NamedBy lists what a deletion names: objects first, then files.
func (r Registry) NamedBy(ctx context.Context, deletion int64) iter.Seq2[NamedRecord, error] {
	return Pages[NamedRecord](ctx, r, about("deletions", deletion, "/named"), nil, 0)
}

// Receipt is what a deletion did to a copy.
type Receipt struct {
	Item       int64      `json:"work_item_id"`
	FileID     int64      `json:"generic_file_id"`
	Identifier string     `json:"identifier"` // of the file
	Target     string     `json:"target"`
	Bucket     string     `json:"bucket"`
	Key        string     `json:"key"`
	URL        string     `json:"url"`
	SeenAt     *time.Time `json:"seen_at"`
	Missing    bool       `json:"found_missing"`
	AcceptedBy string     `json:"accepted_by"`
	RemovedAt  *time.Time `json:"removed_at"` // nil: it was not deleted
	Kept       string     `json:"kept"`       // why its bytes stay; "": they are gone
	AbsentAt   *time.Time `json:"absent_at"`  // nil: not seen to be gone

	KeptByStore string `json:"kept_by_store"` // until when its store kept it, as it said last; "": it did not
}

// Receipts lists what was done to each copy.
func (r Registry) Receipts(ctx context.Context, deletion int64) iter.Seq2[Receipt, error] {
	return Pages[Receipt](ctx, r, about("deletions", deletion, "/receipts"), nil, 0)
}
