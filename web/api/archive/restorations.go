package archive

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// restorationActions are those of items that give something back.
//
//nolint:gochecknoglobals // a constant, but for Go
var restorationActions = []registry.Action{"Restore Object", "Restore File", "Glacier Restore"}

// restorations are objects and files that are given back.
func (a *handlers) restorations(t *ops.API) {
	op := func(id, method, path, summary string, needs permission.Permission) ops.Operation {
		return ops.Operation{ID: id, Method: method, Path: "/api/v1/restorations" + path, Summary: summary, Access: ops.Holders, Needs: needs}
	}
	ops.Register(t, op("restorations.list", http.MethodGet, "", "List restorations, newest first", permission.ItemsRead), a.listRestorations)
	ops.Register(t, op("restorations.show", http.MethodGet, "/{id}", "Show a restoration, by the ID of its item", permission.ItemsRead),
		func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Body[record.ShownRestoration], error) {
			return a.restoration(ctx, c, in.ID)
		})
	quote := op("restorations.quote", http.MethodPost, "/quote", "Estimate what a restoration costs and how long it takes", permission.RestorationsRequest)
	quote.About, quote.Person = "Nothing is changed.", true
	ops.Register(t, quote, func(ctx context.Context, c access.Caller, in *answer.Body[record.RestorationRequest]) (*answer.Body[record.Quote], error) {
		q, err := a.restorationOf(ctx, c, in.Body)
		if err != nil {
			return nil, err
		}
		found, err := requests.In(a.Registry).Quote(ctx, q)
		return answer.Of(found), err
	})
	request := op("restorations.request", http.MethodPost, "", "Request the restoration of an object or a file", permission.RestorationsRequest)
	request.Status, request.Person, request.Once, request.Audit = http.StatusCreated, true, true, true
	request.About = "It appears in the institution's restoration bucket. One that costs more than the cap waits for an approval."
	ops.Register(t, request, a.requestRestoration)
	approve := op("restorations.approve", http.MethodPost, "/{id}/approve", "Approve a restoration that costs more than the cap", permission.RestorationsApprove)
	approve.Person, approve.Audit = true, true
	approve.About = "An institutional admin does not approve the own request."
	ops.Register(t, approve, func(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Body[record.ShownRestoration], error) {
		entry := registry.AuditEntry{Operation: approve.ID, SubjectType: "item", SubjectID: fmt.Sprint(in.ID)}
		_, err := answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (record.WorkItem, error) {
			w, err := a.Registry.LockItem(ctx, c.Scope, in.ID)
			if err != nil {
				return w, err
			}
			entry.Institution = w.InstitutionID
			return requests.In(a.Registry).ApproveRetrieval(ctx, in.ID, c.Person.Email)
		})
		if err != nil {
			return nil, err
		}
		return a.restoration(ctx, c, in.ID)
	})
	cancel := op("restorations.cancel", http.MethodPost, "/{id}/cancel", "Cancel a restoration that no worker has begun", permission.RestorationsRequest)
	cancel.Person, cancel.Audit = true, true
	cancel.About = "What the storage provider has been asked for is charged nevertheless."
	ops.Register(t, cancel, a.cancelRestoration)
}

// cancelRestoration ends a restoration for the people of its institution. One that a worker
// runs may be delivered at any moment, so that it is not theirs to stop.
func (a *handlers) cancelRestoration(ctx context.Context, c access.Caller, in *struct {
	answer.ByID
	Body struct {
		Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Becomes part of the note of the item"`
	}
},
) (*answer.Body[record.ShownRestoration], error) {
	entry := registry.AuditEntry{Operation: "restorations.cancel", SubjectType: "item", SubjectID: fmt.Sprint(in.ID), Detail: map[string]any{"reason": in.Body.Reason}}
	_, err := answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (record.WorkItem, error) {
		w, err := a.Registry.LockItem(ctx, c.Scope, in.ID)
		if err != nil {
			return w, err
		}
		entry.Institution = w.InstitutionID
		switch {
		case !slices.Contains(restorationActions, w.Action):
			return w, ops.NotFound()
		case w.User == registry.ArchiveUser && !c.Holds(permission.ItemsDecide):
			return w, fmt.Errorf("%w: the archive has asked for it; an operator may cancel it", registry.ErrRefused)
		case w.Status == registry.Started:
			return w, fmt.Errorf("%w: a worker has begun it; wait for its end, or ask an operator", registry.ErrRefused)
		}
		note := "Cancelled by " + c.Person.Email + "."
		if in.Body.Reason != "" {
			note += " " + in.Body.Reason
		}
		return a.Registry.Cancel(ctx, in.ID, note)
	})
	if err != nil {
		return nil, err
	}
	return a.restoration(ctx, c, in.ID)
}

func (a *handlers) listRestorations(ctx context.Context, c access.Caller, in *struct {
	record.RestorationFilter
	answer.Paging
	answer.Counting
},
) (*answer.Body[answer.List[record.WorkItem]], error) {
	f := in.RestorationFilter
	out, err := answer.Page(ctx, a.Site, c, "restorations", browse.ItemFilter{ItemFilter: record.ItemFilter{
		Action:        restorationActions,
		Status:        f.Status,
		Institution:   f.Institution,
		Object:        f.Object,
		ErrorCode:     f.ErrorCode,
		UpdatedAfter:  f.UpdatedAfter,
		UpdatedBefore: f.UpdatedBefore,
	}}, in.Paging, in.Counting, browse.Records.Items)
	if err != nil {
		return nil, err
	}
	for i, w := range out.Body.Items {
		out.Body.Items[i] = answer.Seen(c, w)
	}
	return out, nil
}

func (a *handlers) restoration(ctx context.Context, c access.Caller, id int64) (*answer.Body[record.ShownRestoration], error) {
	w, err := a.Browse(c).Item(ctx, id)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(restorationActions, w.Action) {
		return nil, ops.NotFound()
	}
	of, err := requests.In(a.Registry).RequestOf(ctx, w)
	return answer.Of(record.ShownRestoration{Item: answer.Seen(c, w), Request: of}), err
}

// restorationOf is a request as the registry takes it. Whether something has to be restored
// from an archive first depends on where it is kept.
func (a *handlers) restorationOf(ctx context.Context, c access.Caller, b record.RestorationRequest) (requests.RestorationRequest, error) {
	q := requests.RestorationRequest{By: c.Person.Email, Identifier: b.Object + b.File, File: b.File != "", Tier: b.Tier, Days: b.Days, Priority: b.Priority}
	if err := answer.HereOnly(c, "priority", b.Priority != 0); err != nil {
		return q, err
	}
	if (b.Object == "") == (b.File == "") {
		return q, ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, "name an object or a file, and not both")
	}
	option, err := requests.In(a.Registry).StorageOptionOf(ctx, q)
	if err != nil {
		return q, err
	}
	if q.Class = a.ArchiveClass(option, b.FromArchive); b.FromArchive && q.Class == "" {
		return q, ops.Problem(http.StatusConflict, ops.CodeRefused, q.Identifier+" has no archived copy: it is kept under "+option+"; leave from_archive out")
	}
	return q, nil
}

func (a *handlers) requestRestoration(ctx context.Context, c access.Caller, in *answer.Body[record.RestorationRequest]) (*answer.Body[record.Restoration], error) {
	entry := registry.AuditEntry{Operation: "restorations.request", SubjectType: "item", Detail: map[string]any{"identifier": in.Body.Object + in.Body.File}}
	return answer.Act(ctx, a.Site, c, &entry, func(ctx context.Context) (*answer.Body[record.Restoration], error) {
		q, err := a.restorationOf(ctx, c, in.Body)
		if err != nil {
			return nil, err
		}
		done, err := requests.In(a.Registry).RequestRestoration(ctx, q)
		entry.SubjectID, entry.Institution = fmt.Sprint(done.Item.ID), done.Item.InstitutionID
		done.Item = answer.Seen(c, done.Item)
		return answer.Of(done), err
	})
}
