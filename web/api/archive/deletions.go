package archive

import (
	"context"
	"fmt"
	"net/http"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// deletionBody names what is to be deleted.
type deletionBody struct {
	Identifiers []string `json:"identifiers" minItems:"1" maxItems:"100000" doc:"Of objects and of files"`
}

// deletionBytes is how large a request for a deletion may be.
const deletionBytes = 16 << 20

// deletions are requests for deletions, and what two people decide about them.
func (a *handlers) deletions(t *ops.API) {
	op := func(id, method, path, summary string, needs permission.Permission) ops.Operation {
		return ops.Operation{ID: id, Method: method, Path: "/api/v1/deletions" + path, Summary: summary, Access: ops.Holders, Needs: needs}
	}
	ops.Register(t, op("deletions.list", http.MethodGet, "", "List deletion requests, newest first", permission.DeletionsRead),
		func(ctx context.Context, c access.Caller, in *struct {
			browse.DeletionFilter
			answer.Paging
			answer.Before
			answer.Counting
		},
		) (*answer.Body[answer.List[record.DeletionRequest]], error) {
			return answer.Page(ctx, a.Site, c, "deletions", in.DeletionFilter, in.From("deletions", in.DeletionFilter, browse.Key{ID: in.BeforeID}), in.Counting, browse.Records.Deletions)
		})
	ops.Register(t, op("deletions.show", http.MethodGet, "/{id}", "Show a deletion request, and how far it is", permission.DeletionsRead),
		func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Body[record.DeletionRequest], error) {
			return a.deletion(ctx, c, in.ID)
		})
	review := op("deletions.review", http.MethodGet, "/{id}/review", "Show what a deletion would delete now, what stands in its way, and what has changed since it was requested", permission.DeletionsRead)
	ops.Register(t, review, func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Body[record.DeletionReview], error) {
		found, err := a.Browse(c).DeletionReview(ctx, in.ID)
		return answer.Of(found), err
	})
	ops.Register(t, op("deletions.named", http.MethodGet, "/{id}/named", "List the objects and files that a deletion request names", permission.DeletionsRead), a.named)
	ops.Register(t, op("deletions.receipts", http.MethodGet, "/{id}/receipts", "List what was done to each copy", permission.DeletionsRead), a.receipts)

	check := op("deletions.check", http.MethodPost, "/check", "Check what a deletion would be about, and what would be refused", permission.DeletionsRequest)
	check.About, check.Body, check.Person = "Nothing is changed.", deletionBytes, true
	ops.Register(t, check, func(ctx context.Context, c access.Caller, in *answer.Body[deletionBody]) (*answer.Body[record.DeletionCheck], error) {
		found, err := requests.In(a.Registry).CheckDeletion(ctx, c.Person.Email, in.Body.Identifiers)
		return answer.Of(found), err
	})
	request := op("deletions.request", http.MethodPost, "", "Request the deletion of objects and files of your institution", permission.DeletionsRequest)
	request.Status, request.Body, request.Person, request.Once, request.Audit = http.StatusCreated, deletionBytes, true, true, true
	request.About = "Nothing is deleted before another person approves it. What is refused of one is refused of all."
	ops.Register(t, request, func(ctx context.Context, c access.Caller, in *answer.Body[deletionBody]) (*answer.Body[record.DeletionRequest], error) {
		entry := registry.AuditEntry{Operation: request.ID, SubjectType: "deletion", Institution: c.Person.InstitutionID, Detail: map[string]any{"named": len(in.Body.Identifiers)}}
		return answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (*answer.Body[record.DeletionRequest], error) {
			d, err := requests.In(a.Registry).RequestDeletion(ctx, c.Person.Email, in.Body.Identifiers)
			entry.SubjectID = fmt.Sprint(d.ID)
			return answer.Of(d), err
		})
	})
	a.decideDeletions(t, op)
}

// decideDeletions are what people decide about requests.
func (a *handlers) decideDeletions(t *ops.API, op func(id, method, path, summary string, needs permission.Permission) ops.Operation) {
	approve := op("deletions.approve", http.MethodPost, "/{id}/approve", "Approve a deletion that another person has requested", permission.DeletionsApprove)
	approve.Person, approve.Fresh, approve.Audit = true, true, true
	approve.About = "The deletion begins after the wait of the institution. Until then it can be cancelled; what was removed cannot be undone. Nobody approves the own request. Staff approve where the institution has no second active admin. " +
		"Retention and pending work are checked again: either everything that the request names goes into the queue, or nothing."
	cancel := op("deletions.cancel", http.MethodPost, "/{id}/cancel", "Cancel a deletion request: refuse it, or stop it after its approval", permission.DeletionsCancel)
	cancel.Person, cancel.Audit = true, true
	cancel.About = "Any institutional admin of the institution may, and any admin of the archive. After the approval its items end as Cancelled, " +
		"and what they have not removed stays. The institution is alerted, with the reason and with what was removed before."
	ops.Register(t, approve, func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Body[record.DeletionRequest], error) {
		return a.decideDeletion(ctx, c, approve.ID, in.ID, nil, func(ctx context.Context) (record.DeletionRequest, error) {
			return requests.In(a.Registry).ApproveDeletion(ctx, in.ID, c.Person.Email, c.OnPaper)
		})
	})
	try := op("deletions.check_approval", http.MethodPost, "/{id}/approve/check", "Find out whether the approval of a deletion would be refused", "")
	try.Access = ops.Here
	ops.Register(t, try, func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Body[record.DeletionRequest], error) {
		d, err := requests.In(a.Registry).MayApproveDeletion(ctx, in.ID, c.Person.Email, c.OnPaper)
		return answer.Of(d), err
	})
	ops.Register(t, cancel, func(ctx context.Context, c access.Caller, in *deletionCancel) (*answer.Body[record.DeletionRequest], error) {
		reason := ""
		if in.Body != nil {
			reason = in.Body.Reason
		}
		return a.decideDeletion(ctx, c, cancel.ID, in.ID, map[string]any{"reason": reason}, func(ctx context.Context) (record.DeletionRequest, error) {
			return requests.In(a.Registry).CancelDeletion(ctx, in.ID, c.Person.Email, reason)
		})
	})
}

// deletionCancel says why a request is cancelled.
type deletionCancel struct {
	answer.ByID
	Body *struct {
		Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Which the requester reads"`
	}
}

func (a *handlers) decideDeletion(ctx context.Context, c access.Caller, operation string, id int64, detail map[string]any, do func(context.Context) (record.DeletionRequest, error)) (*answer.Body[record.DeletionRequest], error) {
	entry := registry.AuditEntry{Operation: operation, SubjectType: "deletion", SubjectID: fmt.Sprint(id), Detail: detail}
	return answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (*answer.Body[record.DeletionRequest], error) {
		decided, err := do(ctx)
		entry.Institution = c.Person.InstitutionID // of staff none: the database looks up that of the request
		return answer.Of(decided), err
	})
}

func (a *handlers) deletion(ctx context.Context, c access.Caller, id int64) (*answer.Body[record.DeletionRequest], error) {
	d, err := a.Browse(c).Deletion(ctx, id)
	return answer.Of(d), err
}

// pagedByID is a request for a page of what belongs to one record.
type pagedByID struct {
	answer.ByID
	answer.Paging
}

func (a *handlers) named(ctx context.Context, c access.Caller, in *pagedByID) (*answer.Body[answer.List[record.ListedNamed]], error) {
	if _, err := a.Browse(c).Deletion(ctx, in.ID); err != nil {
		return nil, err
	}
	return answer.Page(ctx, a.Site, c, "named", browse.NamedFilter{Deletion: in.ID}, in.Paging, answer.Counting{}, browse.Records.Named)
}

func (a *handlers) receipts(ctx context.Context, c access.Caller, in *pagedByID) (*answer.Body[answer.List[record.DeletedCopy]], error) {
	if _, err := a.Browse(c).Deletion(ctx, in.ID); err != nil {
		return nil, err
	}
	return answer.Page(ctx, a.Site, c, "receipts", browse.ReceiptFilter{Deletion: in.ID}, in.Paging, answer.Counting{}, browse.Records.Receipts)
}
