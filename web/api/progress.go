package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// Interim is where the stages of items in progress leave how far they are. A server may have
// no settings for some of it.
type Interim struct {
	Progress func(context.Context) (*progress.Store, error) // opens Redis, or returns what is open; nil: no settings
	Reader   interim.Reader                                 // without Progress; its Staging is nil without settings for S3
	Measures map[registry.Stage]progress.Measure
}

const (
	// mostListing is how long the files of an item may be looked up.
	mostListing = 30 * time.Second
	// mostListings is how many items are looked up at the same time: the lists of a large bag
	// are fetched from the staging bucket.
	mostListings = 2
)

type (
	groupsView struct {
		Items    []browse.Group `json:"items"`
		Complete bool           `json:"complete" doc:"false: more than 10,000 items are parked, and so many were read"`
	}
	progressView struct {
		Time    time.Time         `json:"time"`
		Item    registry.WorkItem `json:"item"`
		State   string            `json:"state" doc:"What happens next, or must"`
		Current explain.Stage     `json:"current"`
	}
	// itemFile is a file of an item, and what has become of it.
	itemFile struct {
		Path    string   `json:"path" doc:"In the bag"`
		Size    int64    `json:"size"`
		State   string   `json:"state"`
		Code    string   `json:"code" doc:"Of what failed"`
		Message string   `json:"message"`
		UUID    string   `json:"uuid"`
		Format  string   `json:"format" doc:"Media type"`
		PUID    string   `json:"puid"`
		Targets []string `json:"targets" doc:"Storage targets that have a copy"`
	}
	itemFiles struct {
		Items []itemFile `json:"items"`
		Next  *string    `json:"next" doc:"URL of the next page; null: this is the last"`
		Known bool       `json:"known" doc:"false: the bag was not read far enough, or what was known of its files was removed"`
	}
)

// ItemFileFilter narrows the list of an item's files.
type ItemFileFilter struct {
	State string `query:"state" maxLength:"20" doc:"Only files in this state, as farol item files --help lists them"`
}

type itemFilesQuery struct {
	ByID
	ItemFileFilter
	Paging
}

// progress is how far items are.
func (a *API) progress(t *ops.API) {
	ops.Register(t, reads("items.groups", "/api/v1/items/groups", "Group parked items by error code, stage and action", "", permission.ItemsRead),
		func(ctx context.Context, c access.Caller, _ *empty) (*body[groupsView], error) {
			groups, complete, err := a.browse(c).Groups(ctx)
			return &body[groupsView]{groupsView{groups, complete}}, err
		})
	ops.Register(t, reads("items.progress", "/api/v1/items/{id}/progress", "Show how far an item is: files, bytes, rate, time left, and files in progress",
		"503 if the server does not reach Redis, which has the figures.", permission.ItemsRead), a.itemProgress)
	slots := make(chan struct{}, mostListings)
	ops.Register(t, reads("items.files", "/api/v1/items/{id}/files", "List the files of an item with their states",
		"The same as `farol item files`. 503 while the files of other items are looked up, or if the server does not reach Redis or the staging bucket.", permission.ItemsRead),
		func(ctx context.Context, c access.Caller, in *itemFilesQuery) (*body[itemFiles], error) {
			item, err := a.browse(c).Item(ctx, in.ID)
			if err != nil {
				return nil, err
			}
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			default:
				return nil, later("the files of other items are being looked up; try again in a moment")
			}
			ctx, cancel := context.WithTimeout(ctx, mostListing)
			defer cancel()
			return a.itemFiles(ctx, in, item)
		})
}

// later asks a caller to try again.
func later(detail string) error {
	p := ops.Problem(http.StatusServiceUnavailable, ops.CodeTryLater, detail)
	p.RetryAfter = "5"
	return p
}

// redis opens Redis.
func (a *API) redis(ctx context.Context) (*progress.Store, error) {
	if a.Interim.Progress == nil {
		return nil, later("this server has no connection to Redis, which has the progress of items: its administrator sets FAROL_REDIS_URL")
	}
	store, err := a.Interim.Progress(ctx)
	if err != nil {
		return nil, a.unread(ctx, err)
	}
	return store, nil
}

// unread is what a caller reads of Redis or of a bucket that do not answer.
func (a *API) unread(ctx context.Context, err error) error {
	a.Log.WarnContext(ctx, "the progress of an item is not known", "err", err)
	return later("the progress of items is not known now; try again in a moment")
}

func (a *API) itemProgress(ctx context.Context, c access.Caller, in *ByID) (*body[progressView], error) {
	if _, err := a.browse(c).Item(ctx, in.ID); err != nil {
		return nil, err
	}
	store, err := a.redis(ctx)
	if err != nil {
		return nil, err
	}
	var unread error
	s, err := explain.Source{
		Registry: a.Registry, Progress: store, Measures: a.Interim.Measures, NoHosts: !c.Holds(permission.ItemsWorkers), Unread: func(err error) { unread = err },
	}.Snapshot(ctx, in.ID)
	if err == nil && unread != nil {
		err = a.unread(ctx, unread)
	}
	return &body[progressView]{progressView{s.Time, s.Item, s.State, s.Current}}, err
}

// itemFiles lists a page of the files of an item from where they are known: in the staging
// bucket and Redis while it is being ingested, and afterwards in the records.
func (a *API) itemFiles(ctx context.Context, in *itemFilesQuery, item registry.WorkItem) (*body[itemFiles], error) {
	filter := struct {
		ID int64
		ItemFileFilter
	}{in.ID, in.ItemFileFilter}
	after, err := decodeCursor[string]("item-files", filter, in.After)
	if err != nil {
		return nil, err
	}
	attempts, err := a.Registry.Attempts(ctx, item.ID)
	if err != nil {
		return nil, err
	}
	page := interim.Page{State: in.State, After: after, Limit: in.Limit + 1}
	var found []itemFile
	known := item.Action != "Ingest" || item.Stage == registry.Cleanup
	if item.Action == "Ingest" && item.Status != "Success" {
		var inWork bool
		if found, inWork, err = a.filesInWork(ctx, item, attempts, page); err != nil {
			return nil, err
		}
		if inWork {
			return filesPage(ctx, found, in, filter, true), nil
		}
	}
	if known {
		found, err = a.filesOnRecord(ctx, item, attempts, page)
	}
	return filesPage(ctx, found, in, filter, known), err
}

func filesPage(ctx context.Context, found []itemFile, in *itemFilesQuery, filter any, known bool) *body[itemFiles] {
	p := pageOf(ctx, append([]itemFile{}, found...), in.Limit, func(f itemFile) string { return encodeCursor("item-files", filter, f.Path) })
	return &body[itemFiles]{itemFiles{p.Body.Items, p.Body.Next, known}}
}

// filesInWork lists files by what the stages have left.
func (a *API) filesInWork(ctx context.Context, item registry.WorkItem, attempts []registry.Attempt, page interim.Page) (found []itemFile, known bool, err error) {
	r := a.Interim.Reader
	if r.Progress, err = a.redis(ctx); err != nil {
		return nil, false, err
	}
	if r.Staging == nil {
		return nil, false, later("this server does not read the staging bucket, which has the lists of files: its administrator sets up the S3 service")
	}
	m, err := r.Read(ctx, item, attempts)
	if err != nil {
		return nil, false, a.unlessAsked(ctx, err)
	}
	defer m.Close()
	files, err := page.Of(m.Files(ctx))
	if err != nil {
		return nil, false, a.unlessAsked(ctx, err)
	}
	for _, f := range files {
		of := itemFile{Path: f.Path, Size: f.Size, State: f.State, Code: f.Code, Message: f.Message, UUID: f.UUID, Format: f.Format, PUID: f.PUID, Targets: []string{}}
		for _, c := range f.Copies {
			of.Targets = append(of.Targets, c.Target)
		}
		found = append(found, of)
	}
	return found, m.Known() || len(files) > 0, nil
}

// unlessAsked is an error of Redis or a bucket, unless the caller has given up.
func (a *API) unlessAsked(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("list files: %w", err)
	}
	return a.unread(ctx, err)
}

// filesOnRecord lists files by their records.
func (a *API) filesOnRecord(ctx context.Context, item registry.WorkItem, attempts []registry.Attempt, page interim.Page) (found []itemFile, err error) {
	f := registry.ItemFileFilter{Item: item, Ended: time.Now(), State: page.State, After: page.After, Limit: page.Limit}
	if n := len(attempts); n > 0 && attempts[n-1].EndedAt != nil {
		f.Ended = *attempts[n-1].EndedAt
	}
	files, err := a.Registry.ItemFiles(ctx, f)
	for _, x := range files {
		found = append(found, itemFile{
			Path: x.Path, Size: x.Size, State: x.State, Message: x.Message, UUID: x.UUID, Format: x.Format, PUID: x.PUID, Targets: append([]string{}, x.Targets...),
		})
	}
	return found, err
}
