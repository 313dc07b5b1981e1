package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/explain/estimate"
	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

const (
	// mostListing is how long the files of an item may be looked up.
	mostListing = 30 * time.Second
	// mostListings is how many items are looked up at the same time: the lists of a large bag
	// are fetched from the staging bucket.
	mostListings = 2
)

type (
	// ProgressView is how far an item is.
	ProgressView struct {
		estimate.Times

		Time    time.Time       `json:"time"`
		Item    record.WorkItem `json:"item"`
		State   string          `json:"state" doc:"What happens next, or must"`
		Current explain.Stage   `json:"current"`
	}
	// ItemFile is a file of an item, and what has become of it.
	ItemFile struct {
		interim.File

		Targets []string `json:"targets" doc:"Storage targets that have a copy"`
	}
	// ItemFiles is a page of the files of an item.
	ItemFiles struct {
		Items []ItemFile `json:"items"`
		Next  *string    `json:"next" doc:"URL of the next page; null: this is the last"`
		Known bool       `json:"known" doc:"false: the bag was not read far enough, or what was known of its files was removed"`
		Note  string     `json:"note" doc:"Where the files are known from, or why nothing is known; empty: there is nothing to say"`
	}
)

// ItemFileFilter narrows the list of an item's files.
type ItemFileFilter struct {
	State string `query:"state" maxLength:"20" doc:"Only files in this state, as farol item files --help lists them"`
}

type itemFilesQuery struct {
	answer.ByID
	ItemFileFilter
	answer.Paging

	AfterPath string `query:"after_path" maxLength:"1100" doc:"Begin behind the file with this path; after goes before it"`
}

// progress is how far items are.
func (a *handlers) progress(t *ops.API) {
	ops.Register(t, answer.Reads("items.groups", "/api/v1/items/groups", "Group parked items by error code, stage and action", "", permission.ItemsRead),
		func(ctx context.Context, c access.Caller, _ *answer.Empty) (*answer.Body[record.GroupsView], error) {
			id, _ := c.Scope.Institution()
			v, age, err := a.figures.groups.Of(id).Glance(ctx, answer.QueueAge, func(ctx context.Context) (v record.GroupsView, err error) {
				v.Items, v.Complete, err = a.Browse(c).Groups(ctx)
				return v, err
			})
			v.Age = age.Seconds()
			return answer.Of(v), err
		})
	ops.Register(t, answer.Reads("items.progress", "/api/v1/items/{id}/progress", "Show how far an item is: files, bytes, rate, time left, and files in progress",
		"503 if the server does not reach Redis, which has the figures.", permission.ItemsRead), a.itemProgress)
	slots := make(chan struct{}, mostListings)
	ops.Register(t, answer.Reads("items.files", "/api/v1/items/{id}/files", "List the files of an item with their states",
		"The same as `farol item files`. 503 while the files of other items are looked up, or if the server does not reach Redis or the staging bucket.", permission.ItemsRead),
		func(ctx context.Context, c access.Caller, in *itemFilesQuery) (*answer.Body[ItemFiles], error) {
			item, err := a.Browse(c).Item(ctx, in.ID)
			if err != nil {
				return nil, err
			}
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			default:
				return nil, answer.Later("the files of other items are being looked up; try again in a moment")
			}
			if !c.Operator {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, mostListing)
				defer cancel()
			}
			return a.itemFiles(ctx, in, item)
		})
}

// redis opens Redis.
func (a *handlers) redis(ctx context.Context) (*progress.Store, error) {
	if a.Interim.Progress == nil {
		return nil, answer.Later("this server has no connection to Redis, which has the progress of items: its administrator sets FAROL_REDIS_URL")
	}
	store, err := a.Interim.Progress(ctx)
	if err != nil {
		return nil, a.unread(ctx, err)
	}
	return store, nil
}

// unread is what a caller reads of Redis or of a bucket that do not answer.
func (a *handlers) unread(ctx context.Context, err error) error {
	if ops.Operated(ctx) {
		return answer.Later(err.Error())
	}
	a.Log.WarnContext(ctx, "the progress of an item is not known", "err", err)
	return answer.Later("the progress of items is not known now; try again in a moment")
}

func (a *handlers) itemProgress(ctx context.Context, c access.Caller, in *answer.ByID) (*answer.Body[ProgressView], error) {
	if _, err := a.Browse(c).Item(ctx, in.ID); err != nil {
		return nil, err
	}
	store, err := a.redis(ctx)
	if err != nil {
		return nil, err
	}
	var unread error
	s, err := explain.Source{
		Registry: a.Registry, Progress: store, Measures: a.Interim.Measures, NoHosts: !c.Holds(permission.ItemsWorkers), Model: a.model,
		Unread: func(err error) { unread = err },
	}.Snapshot(ctx, in.ID)
	if err == nil && unread != nil {
		err = a.unread(ctx, unread)
	}
	return answer.Of(ProgressView{s.Times, s.Time, s.Item, s.State, s.Current}), err
}

// itemFiles lists a page of the files of an item from where they are known.
func (a *handlers) itemFiles(ctx context.Context, in *itemFilesQuery, item record.WorkItem) (*answer.Body[ItemFiles], error) {
	filter := struct {
		ID int64
		ItemFileFilter
	}{in.ID, in.ItemFileFilter}
	after, err := answer.DecodeCursor[string]("item-files", filter, in.After)
	if err != nil {
		return nil, err
	}
	after = cmp.Or(after, in.AfterPath)
	from := a.Interim.Sources
	from.Registry, from.InWork = a.Registry, a.inWork
	l, err := from.List(ctx, item, interim.Page{State: in.State, After: after, Limit: in.Limit + 1})
	var unread interim.UnreadError
	if errors.As(err, &unread) {
		err = a.unlessAsked(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	found := []ItemFile{}
	for _, f := range l.Files {
		of := ItemFile{File: f, Targets: []string{}}
		for _, c := range f.Copies {
			of.Targets = append(of.Targets, c.Target)
		}
		found = append(found, of)
	}
	p := answer.PageOf(ctx, found, in.Limit, func(f ItemFile) string { return answer.EncodeCursor("item-files", filter, f.Path) })
	return answer.Of(ItemFiles{p.Body.Items, p.Body.Next, l.Known, l.Note}), nil
}

// inWork reads what the stages of an ingest have left.
func (a *handlers) inWork(ctx context.Context) (interim.Reader, error) {
	r := a.Interim.Reader
	var err error
	if r.Progress, err = a.redis(ctx); err != nil {
		return r, err
	}
	if r.Staging == nil && a.Interim.Unset != nil && ops.Operated(ctx) {
		return r, answer.Later(a.Interim.Unset.Error())
	}
	if r.Staging == nil {
		return r, answer.Later("this server does not read the staging bucket, which has the lists of files: its administrator sets up the S3 service")
	}
	return r, nil
}

// unlessAsked is an error of Redis or a bucket, unless the caller has given up.
func (a *handlers) unlessAsked(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("list files: %w", err)
	}
	return a.unread(ctx, err)
}
