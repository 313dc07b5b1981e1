package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/retry"
	"github.com/farol-preservation/farol/storage"
)

// maxErrors is how many files may fail before a stage gives up on the others. It also gives
// up when as many as are done at a time fail in a row: then the service is at fault and not
// the files.
const maxErrors = 30

// each runs do for all files that the stage has not finished yet, several groups
// at a time, and returns the result of each by its place in the inventory. Results go to
// Redis every saveEvery: a worker that is killed loses the files in progress, and those that were
// finished since. After a failure the other files are still done.
func (w *work) each(ctx context.Context, atOnce int, groups [][]*lists.File, do doGroup) (map[int]string, error) {
	results, err := w.Finished(ctx)
	if err != nil {
		return nil, err
	}
	todo, figures := w.left(groups, results)
	w.StartCounting(ctx, figures)
	if len(todo) == 0 {
		return results, nil
	}
	if results == nil {
		results = map[int]string{}
	}

	saver := newSaver(results, func(batch map[int]string) error {
		return w.ProgressErr(w.Progress.Done(ctx, w.Claim(), w.Pass(), batch))
	})
	failed := &failures{mostInARow: max(atOnce, 2)}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, files := range todo {
		group.Go(func() error {
			if failed.tooMany() {
				return nil
			}
			return w.Hold.Do(func(context.Context) error { return w.tryGroup(groupCtx, files, do, saver, failed) })
		})
	}
	err = errors.Join(group.Wait(), errors.Join(failed.errs...))
	if err := errors.Join(err, saver.close(err != nil)); err != nil {
		return nil, err
	}
	return results, nil
}

// left returns what of the groups is not finished yet, and the figures to begin
// with.
func (w *work) left(groups [][]*lists.File, results map[int]string) (todo [][]*lists.File, c progress.Counters) {
	for _, files := range groups {
		var some []*lists.File
		for _, f := range files {
			c.FilesTotal++
			c.BytesTotal += f.Size
			if _, done := results[f.Index]; done {
				c.FilesBefore++
				c.BytesBefore += f.Size
				continue
			}
			some = append(some, f)
		}
		if len(some) > 0 {
			todo = append(todo, some)
		}
	}
	return todo, c
}

// doGroup does the files of a group and reports each that is finished.
type doGroup func(ctx context.Context, files []*lists.File, finished func(f *lists.File, result string)) error

// tries is how often a stage tries a file before it reports the failure; the
// item's own attempts come on top, with longer waits.
const tries = 3

func (w *work) tryGroup(ctx context.Context, files []*lists.File, do doGroup, s *saver, failed *failures) error {
	size := int64(0)
	for _, f := range files {
		size += f.Size
	}
	hand := w.Count.Take(files[0].Index, files[0].Path, len(files), size)
	defer w.Count.Drop(hand)
	for try := 1; ; try++ {
		w.Hold.CurrentFile(files[0].Path)
		if err := w.Hold.Check(ctx); err != nil {
			return err
		}
		done := map[*lists.File]bool{}
		err := do(ctx, files, func(f *lists.File, result string) {
			done[f] = true
			s.add(f.Index, result)
			w.Count.Finish(hand, f.Size)
		})
		if err == nil {
			failed.success()
			return nil
		}
		var left []*lists.File
		for _, f := range files {
			if !done[f] {
				left = append(left, f)
			}
		}
		files = left
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case len(files) == 0:
			return err
		case final(err):
			return aboutFile(files[0], err, err)
		case try == tries:
			failed.add(aboutFile(files[0], err, fmt.Errorf("%s: %w", files[0].Path, err)))
			return nil
		}
		w.Log.WarnContext(ctx, "file failed; retrying", "path", files[0].Path, "try", try, "err", err)
		if !retry.Pause(ctx, time.Duration(try*try)*200*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// aboutFile names the file that an error of a group is about, if the error does not say that
// itself: the first that is not finished. It then has this text.
func aboutFile(first *lists.File, err, text error) error {
	if said, _ := cause.All[*cause.FileError](err); len(said) > 0 {
		return err
	}
	return cause.InFile(first.Path, text)
}

// final tells whether another try within the stage is pointless.
func final(err error) bool {
	return !claim.IsTransient(err) ||
		errors.Is(err, storage.ErrDenied) || errors.Is(err, storage.ErrChanged) || errors.Is(err, storage.ErrNotFound)
}

// failures collects what went wrong with files while others go on.
type failures struct {
	mostInARow int

	mu     sync.Mutex
	errs   []error
	inARow int
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
	f.inARow++
}

func (f *failures) success() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inARow = 0
}

func (f *failures) tooMany() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.errs) >= maxErrors || f.inARow >= f.mostInARow
}

// saveEvery is for how long results are gathered before they are written: a small bag is done sooner,
// and writes none. The files that a killed worker had finished since are done again.
const saveEvery = 50 * time.Millisecond

// saver writes results to Redis in batches, so that many small files cost few round trips.
type saver struct {
	save   func(map[int]string) error
	closed chan struct{}
	end    chan struct{}

	mu      sync.Mutex
	pending map[int]string
	all     map[int]string
	err     error
}

// newSaver adds to the results that there are.
func newSaver(all map[int]string, save func(map[int]string) error) *saver {
	s := &saver{save: save, closed: make(chan struct{}), end: make(chan struct{}), pending: map[int]string{}, all: all}
	go s.run()
	return s
}

func (s *saver) add(index int, result string) {
	s.mu.Lock()
	s.pending[index] = result
	s.all[index] = result
	s.mu.Unlock()
}

func (s *saver) run() {
	defer close(s.end)
	pause := time.NewTicker(saveEvery)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
			s.flush()
		case <-s.closed:
			return
		}
	}
}

func (s *saver) flush() {
	s.mu.Lock()
	batch := s.pending
	s.pending = map[int]string{}
	s.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	err := s.save(batch)
	s.mu.Lock()
	s.err = err // the last error counts: a later write may save what this one could not
	s.mu.Unlock()
}

// close writes what is left, if another attempt has to go on with it. Only the loss of the claim is an
// error: progress that Redis does not accept costs time after a crash, and nothing more.
func (s *saver) close(again bool) error {
	close(s.closed)
	<-s.end
	if again {
		s.flush()
	}
	if errors.Is(s.err, claim.ErrLost) {
		return s.err
	}
	return nil
}
