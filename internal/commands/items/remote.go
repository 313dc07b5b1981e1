package items

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/explain/estimate"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/plans"
)

// query are the flags of a list as the server takes them.
func (o *itemListOptions) query() url.Values {
	f := o.filter
	return remote.Query("status", string(o.status), "stage", string(o.stage), "action", string(o.action), "error_code", f.ErrorCode, "institution", f.Institution,
		"object", f.Object, "name", f.Name, "created_after", remote.Time(f.CreatedAfter), "review", remote.Truth(f.Review), "before", remote.ID(o.before))
}

// remoteItem is what a server has on record of an item, as [explain.Source.Item] reads it.
func remoteItem(ctx context.Context, s *remote.Server, id int64) (*explain.Item, error) {
	e, err := remoteExplanation(ctx, s, id)
	if err != nil {
		return nil, err
	}
	v := &explain.Item{
		Times: e.Times, Item: e.Item, Request: e.Request, State: explain.State(e.Item, time.Now()), Current: e.Current, Warnings: e.Odd, Events: []registry.Event{},
	}
	history, err := remote.Get[struct {
		Attempts []registry.Attempt
		Changes  []registry.Change
	}](ctx, s, remote.About("items", id, "/history"), nil)
	if err != nil {
		return nil, err
	}
	v.Attempts, v.Changes = history.Attempts, history.Changes
	object, err := remote.Get[explain.Object](ctx, s, "objects/by-identifier", url.Values{"identifier": {e.Item.ObjectIdentifier}})
	switch {
	case errors.Is(err, registry.ErrNotFound), remote.NotAllowed(err): // operators read no records
		return v, nil
	case err != nil:
		return nil, err
	}
	v.Object = &object
	v.Events, err = remote.List[registry.Event](ctx, s, "events", url.Values{"object": {strconv.FormatInt(object.ID, 10)}}, mostEntries)
	slices.Reverse(v.Events) // the newest come first
	return v, err
}

func remoteExplanation(ctx context.Context, s *remote.Server, id int64) (*explain.Explanation, error) {
	e, err := remote.Get[explain.Explanation](ctx, s, remote.About("items", id, "/explain"), nil)
	return &e, err
}

// remoteSnapshot is how far an item is; without Redis, the server knows its stage only.
func remoteSnapshot(ctx context.Context, s *remote.Server, id int64) (l explain.Snapshot, known bool, err error) {
	l, err = remote.Get[explain.Snapshot](ctx, s.Once(), remote.About("items", id, "/progress"), nil)
	var answer *client.Error
	if err == nil || !errors.As(err, &answer) || answer.Status != http.StatusServiceUnavailable {
		return l, err == nil, err
	}
	shown, err := remote.Get[struct {
		registry.WorkItem
		estimate.Times
	}](ctx, s.Once(), remote.About("items", id, ""), nil)
	if err != nil {
		return l, false, err
	}
	item := shown.WorkItem
	l = explain.Snapshot{Times: shown.Times, Time: time.Now(), Item: item, State: explain.State(item, time.Now())}
	l.Current.Stage = item.Stage
	return l, false, nil
}

// remoteFiles lists the files of an item.
func remoteFiles(ctx context.Context, s *remote.Server, id int64, page interim.Page) (l interim.Listing, err error) {
	path := remote.About("items", id, "/files")
	first, err := remote.Get[interim.Listing](ctx, s, path, remote.Query("state", page.State, "limit", "1"))
	if l.Known, l.Note = first.Known, first.Note; err != nil || !l.Known {
		return l, err
	}
	type file struct {
		interim.File
		Targets []string
	}
	list, err := remote.List[file](ctx, s, path, remote.Query("state", page.State, "after_path", page.After), page.Limit)
	for _, f := range list {
		for _, target := range f.Targets {
			f.Copies = append(f.Copies, interim.Copy{Target: target})
		}
		l.Files = append(l.Files, f.File)
	}
	return l, err
}

// remoteChange is the request by which a server changes an item as a command does.
func remoteChange(operation string, id int64, detail map[string]any) client.Call {
	switch operation {
	case "items.requeue", "items.cancel":
		return client.Call{Method: http.MethodPost, Path: remote.About("items", id, "/"+operation[len("items."):]), Body: detail}
	case "items.release":
		return client.Call{Method: http.MethodPost, Path: remote.About("items", id, "/release")}
	}
	return client.Call{Method: http.MethodPatch, Path: remote.About("items", id, ""), Body: detail["set"]}
}

// planBody is a plan as a server makes it.
func (q planRequest) planBody() client.PlanRequest {
	b := client.PlanRequest{Action: q.Action, Stage: string(q.Stage), Priority: q.Priority, Reason: q.Reason}
	b.Filter.Institution, b.Filter.ErrorCode = q.Filter.Institution, q.Filter.ErrorCode
	for _, status := range q.Filter.Status {
		b.Filter.Status = append(b.Filter.Status, string(status))
	}
	for _, stage := range q.Filter.Stage {
		b.Filter.Stage = append(b.Filter.Stage, string(stage))
	}
	return b
}

// pollPlan is the time between two looks at a plan that a server carries out.
const pollPlan = 500 * time.Millisecond

// remoteRun has a server apply a plan or undo it, and waits until it has. report receives how
// many of the items in a state were dealt with so far.
func remoteRun(ctx context.Context, s *remote.Server, call client.Call, state string, v plans.View, report func(items int)) (plans.View, error) {
	if _, err := s.Do(ctx, call, nil); err != nil {
		return v, err
	}
	for all := v.Counts[state]; ; {
		var err error
		if v, err = remote.Get[plans.View](ctx, s, remote.About("plans", v.ID, ""), nil); err != nil {
			return v, err
		}
		report(int(all - v.Counts[state]))
		if v.Carry == nil {
			return v, nil
		}
		select {
		case <-ctx.Done():
			return v, ctx.Err()
		case <-time.After(pollPlan):
		}
	}
}
