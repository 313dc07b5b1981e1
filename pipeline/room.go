package pipeline

import (
	"cmp"
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/farol-preservation/farol/bag"
)

// A room bounds what the lists of large bags need of this process's memory at
// once: as much as the largest bag that there may be. Bags of few files need so
// little that they never wait.
type room struct {
	files *semaphore.Weighted
	all   int64
}

// fewFiles is the number of files, at about 1 KB a file, up to which a bag does
// not count.
const fewFiles = 20_000

func newRoom(maxFiles int) *room {
	all := int64(cmp.Or(maxFiles, bag.DefaultMaxFiles))
	return &room{semaphore.NewWeighted(all), all}
}

// enter waits until there is room for a bag of so many files; who came first
// goes first. The room is the item's until leave.
func (w *work) enter(ctx context.Context, r *room, files int) error {
	weight := min(int64(files), r.all)
	if weight <= fewFiles || w.inRoom != nil {
		return nil
	}
	if !r.files.TryAcquire(weight) {
		w.log.InfoContext(ctx, "waits for memory, which other large bags have", "files", files)
		if err := r.files.Acquire(ctx, weight); err != nil {
			return context.Cause(ctx)
		}
	}
	w.inRoom = func() { r.files.Release(weight) }
	return nil
}

func (w *work) leave() {
	if w.inRoom != nil {
		w.inRoom()
	}
}
