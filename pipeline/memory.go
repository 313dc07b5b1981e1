package pipeline

import (
	"cmp"
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
)

// A memoryBudget bounds the memory that the lists of large bags use at once: what the process
// has, or as much as the largest allowed bag needs. Bags of few files need so little that they
// never wait.
type memoryBudget struct {
	files *semaphore.Weighted
	all   int64 // files
	least bool  // a larger bag is for another process
}

// perFile is how many bytes a file takes in the lists of a bag: an upper bound of the average.
const perFile = 640

// MemoryNeed is how many bytes the lists of a bag of so many files need; 0 of one
// that fits anywhere.
func MemoryNeed(files int) int64 {
	if files <= fewFiles {
		return 0
	}
	return int64(files) * perFile
}

// FilesWithin is how many files a bag may have whose lists fit into so many bytes.
func FilesWithin(memory int64) int64 { return max(memory/perFile, fewFiles) }

// fewFiles is the number of files up to which a bag does
// not count.
const fewFiles = 20_000

func newMemoryBudget(maxFiles int, memory int64) *memoryBudget {
	all := int64(cmp.Or(maxFiles, bag.DefaultMaxFiles))
	if memory > 0 {
		all = FilesWithin(memory)
	}
	return &memoryBudget{semaphore.NewWeighted(all), all, memory > 0}
}

// fits says whether the lists of so many files can be in this process's memory. The
// error gives the item back for another.
func (r *memoryBudget) fits(files int) error {
	if r != nil && r.least && int64(files) > r.all {
		return claim.NeedMemory(MemoryNeed(files))
	}
	return nil
}

// Fits says whether the lists of a bag of so many files can be in this process's
// memory. The error gives the item back for another process.
func (w *Work) Fits(files int) error { return w.memory.fits(files) }

// EnterMany is [Work.Enter] for a bag that has many files, nobody knows yet how many.
func (w *Work) EnterMany(ctx context.Context) error {
	if w.memory == nil {
		return nil
	}
	return w.Enter(ctx, int(w.memory.all))
}

// Enter waits until there is memory for a bag of so many files; waiters are served in their
// order. The memory is the item's until the stage has ended.
func (w *Work) Enter(ctx context.Context, files int) error {
	r := w.memory
	if err := r.fits(files); err != nil || r == nil {
		return err
	}
	weight := min(int64(files), r.all)
	if weight <= fewFiles || w.leaveMemory != nil {
		return nil
	}
	if !r.files.TryAcquire(weight) {
		w.Log.InfoContext(ctx, "waiting for memory: other bags use the whole file-list budget", "files", files)
		if err := w.acquire(ctx, weight); err != nil {
			return err
		}
	}
	w.leaveMemory = func() { r.files.Release(weight) }
	return nil
}

// acquire waits for memory. What waits has not begun: it is given back at once when the worker is asked to stop.
func (w *Work) acquire(ctx context.Context, weight int64) error {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	if w.claiming != nil {
		defer context.AfterFunc(w.claiming, stop)() //nolint:contextcheck // it waits for the end of two
	}
	if err := w.memory.files.Acquire(waiting, weight); err == nil {
		return nil
	}
	if ctx.Err() == nil {
		return claim.Release(errStopping.Error())
	}
	return context.Cause(ctx)
}

func (w *Work) leave() {
	if w.leaveMemory != nil {
		w.leaveMemory()
	}
}
