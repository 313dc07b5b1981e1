package items

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/explain/estimate"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/registry"
)

// snapshotOf is how far an item is. unread is why no more than its stage is known.
func snapshotOf(ctx context.Context, s *remote.Server, id int64) (l explain.Snapshot, unread, err error) {
	l, err = remote.Get[explain.Snapshot](ctx, s.Once(), remote.About("items", id, "/progress"), nil)
	var answer *client.Error
	if err == nil || !errors.As(err, &answer) || answer.Status != http.StatusServiceUnavailable {
		return l, nil, err
	}
	unread = answer
	shown, err := remote.Get[struct {
		registry.WorkItem
		estimate.Times
	}](ctx, s.Once(), remote.About("items", id, ""), nil)
	if err != nil {
		return l, nil, err
	}
	item := shown.WorkItem
	l = explain.Snapshot{Times: shown.Times, Time: time.Now(), Item: item, State: explain.State(item, time.Now())}
	l.Current.Stage = item.Stage
	return l, unread, nil
}

// filesOf lists the files of an item.
func filesOf(ctx context.Context, s *remote.Server, id int64, page interim.Page) (l interim.Listing, err error) {
	path := remote.About("items", id, "/files")
	first, err := remote.Get[interim.Listing](ctx, s, path, remote.Query("state", page.State, "limit", "1"))
	if l.Known, l.Note = first.Known, first.Note; err != nil || !l.Known {
		return l, err
	}
	l.Files, err = remote.List[interim.File](ctx, s, path, remote.Query("state", page.State, "after_path", page.After), page.Limit)
	return l, err
}
