package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/storage"
)

// work is one item in the hands of one stage.
type work struct {
	item          claim.Item
	hold          *claim.Hold
	log           *slog.Logger
	objectID      int64  // set by the last stage
	storageOption string // set by the stage that learns it
	note, outcome string // of a stage that is done; requests set them
	next          string // stage that follows; "": as the order of stages has it
	remark        string // on a stage that is done, for the ledger
	memoryNeed    int64  // of the lists of its files, see [MemoryNeed]; 0: not known here, or little
	had           bool   // an earlier pass has finished this stage
	inRoom        func() // gives back the room that the bag has in memory; nil if it needs none
	count         counting
}

// done is what follows when the stage's work is done; next is the stage that the order
// of stages has.
func (w *work) done(next string) claim.Done {
	return claim.Done{
		Next: cmp.Or(w.next, next), Note: w.note, Outcome: w.outcome, Remark: w.remark,
		ObjectID: w.objectID, StorageOption: w.storageOption, MemoryNeed: w.memoryNeed,
	}
}

func (w *work) claim() progress.Claim { return progress.Claim{Item: w.item.ID, Token: w.item.Token} }

// passOf names the stage for Redis: an item that is requeued or sent back to a
// stage begins it anew, one that is tried again takes it up where it stood.
func (w *work) passOf() string { return fmt.Sprintf("%s@%d", w.item.Stage, w.item.Entered) }

// staged is the key of something of this item in the staging bucket. Cleanup
// deletes what begins with staged("").
func (w *work) staged(name string) string { return fmt.Sprintf("%d/%s", w.item.ID, name) }

// maxErrors is how many files may fail before a stage gives up on the others. It
// also gives up when as many as are done at a time fail one after the other: it
// is not the files then, but what they go to.
const maxErrors = 30

// each runs do for all files that the stage has not finished yet, several groups
// at a time, and returns the result of each by its place in the inventory. What
// is finished goes to Redis as it comes: a worker that is killed loses the files
// in hand, and those of the last saveEvery. After a failure the other files are still done.
func (w *work) each(ctx context.Context, d Deps, groups [][]*file, do doGroup) (map[int]string, error) {
	results, err := d.Progress.Begin(ctx, w.claim(), w.passOf())
	if err != nil {
		return nil, w.progressErr(err)
	}
	todo, figures := left(groups, results)
	w.count.begin(ctx, d, w, figures)
	if len(todo) == 0 {
		return results, nil
	}
	if results == nil {
		results = map[int]string{}
	}

	saver := newSaver(func(batch map[int]string) error {
		return w.progressErr(d.Progress.Done(ctx, w.claim(), w.passOf(), batch))
	})
	failed := &failures{mostInARow: max(d.Files, 2)}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(d.Files)
	for _, files := range todo {
		group.Go(func() error {
			if failed.tooMany() {
				return nil
			}
			return w.hold.Do(func(context.Context) error { return w.tryGroup(groupCtx, files, do, saver, failed) })
		})
	}
	err = group.Wait()
	saved, saveErr := saver.close()
	maps.Copy(results, saved)
	if err := errors.Join(err, failed.err(), saveErr); err != nil {
		return nil, err
	}
	return results, nil
}

// left returns what of the groups is not finished yet, and the figures to begin
// with.
func left(groups [][]*file, results map[int]string) (todo [][]*file, c progress.Counters) {
	for _, files := range groups {
		var some []*file
		for _, f := range files {
			c.FilesTotal++
			c.BytesTotal += f.size
			if _, done := results[f.index]; done {
				c.FilesBefore++
				c.BytesBefore += f.size
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
type doGroup func(ctx context.Context, files []*file, finished func(f *file, result string)) error

// tries is how often a stage tries a file before it reports the failure; the
// item's own attempts come on top, with longer waits.
const tries = 3

func (w *work) tryGroup(ctx context.Context, files []*file, do doGroup, s *saver, failed *failures) error {
	hand := w.count.take(files)
	defer w.count.drop(hand)
	for try := 1; ; try++ {
		w.hold.CurrentFile(files[0].path)
		if err := w.hold.Check(ctx); err != nil {
			return err
		}
		done := map[*file]bool{}
		err := do(ctx, files, func(f *file, result string) {
			done[f] = true
			s.add(f.index, result)
			w.count.finish(hand, f)
		})
		if err == nil {
			failed.success()
			return nil
		}
		var left []*file
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
			return about(files[0].path, err)
		case try == tries:
			failed.add(about(files[0].path, fmt.Errorf("%s: %w", files[0].path, err)))
			return nil
		}
		w.log.WarnContext(ctx, "file will be tried again", "path", files[0].path, "try", try, "err", err)
		if !pause(ctx, time.Duration(try*try)*200*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// final tells whether another try within the stage is pointless.
func final(err error) bool {
	return !claim.IsTransient(err) ||
		errors.Is(err, storage.ErrDenied) || errors.Is(err, storage.ErrChanged) || errors.Is(err, storage.ErrNotFound)
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// progressErr gives errors of Redis their meaning. Its word that a newer claim
// writes there is the loss of this one.
func (w *work) progressErr(err error) error {
	switch {
	case err == nil, classified(err):
		return err
	case errors.Is(err, progress.ErrLost):
		return fmt.Errorf("progress of item %d: %w", w.item.ID, claim.ErrLost)
	}
	return claim.Transient("progress-unavailable", err)
}

// storageErr gives errors of preservation and staging buckets their meaning. What
// has one already keeps it, as what is the bucket's own failure does.
func storageErr(err error) error {
	switch {
	case err == nil, classified(err), errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrChanged):
		return err
	case errors.Is(err, storage.ErrDigest):
		return claim.Transient("storage-digest", err)
	}
	return claim.Transient("storage-unavailable", err)
}

// classified tells whether an error says already what it comes to. That work was
// stopped is for who stopped it to say.
func classified(err error) bool {
	code := claim.Code(err)
	return code != "transient" && code != "timeout" || errors.Is(err, context.Canceled)
}

// receivingErr gives errors of the receiving bucket their meaning: the bag that
// was to be ingested is there no more, or is another one. A process that looks into
// the wrong bucket says the same.
func (w *work) receivingErr(err error) error {
	service := fault.Bucket(w.item.Bucket)
	switch {
	case fault.In(err) != nil, claim.Code(err) == "memory-need":
		return err
	case errors.Is(err, storage.ErrNotFound):
		return claim.Doubt(service, claim.Suspend("bag-gone", fmt.Sprintf(
			"The bag %s is no longer in the receiving bucket %s. Upload it again to have it ingested.", w.item.Name, w.item.Bucket)))
	case errors.Is(err, storage.ErrChanged):
		return claim.Doubt(service, claim.Cancel("bag-changed", fmt.Sprintf(
			"The bag %s in the receiving bucket %s was replaced while it was being ingested. The new upload is ingested instead.",
			w.item.Name, w.item.Bucket)))
	}
	return storageErr(err)
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

func (f *failures) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.errs...)
}

// saveEvery is the pause between two writes of results. What a worker that is
// killed had finished in it is done again.
const saveEvery = 3 * time.Millisecond

// saver writes results to Redis in the batches that come together while the
// write before is under way and for saveEvery after it, so that few are unsaved
// at any moment and many small files cost few round trips.
type saver struct {
	save func(map[int]string) error
	more chan struct{}
	end  chan struct{}

	mu      sync.Mutex
	pending map[int]string
	all     map[int]string
	err     error
}

func newSaver(save func(map[int]string) error) *saver {
	s := &saver{
		save: save, more: make(chan struct{}, 1), end: make(chan struct{}),
		pending: map[int]string{}, all: map[int]string{},
	}
	go s.run()
	return s
}

func (s *saver) add(index int, result string) {
	s.mu.Lock()
	s.pending[index] = result
	s.all[index] = result
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

func (s *saver) run() {
	defer close(s.end)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for range s.more {
		<-pause.C
		s.flush()
		pause.Reset(saveEvery)
	}
	s.flush()
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
	s.err = err // the last word: progress that cannot be kept now may be kept later
	s.mu.Unlock()
}

// close waits for the last write and returns all results. Only the loss of the
// claim is an error: progress that Redis would not keep costs time after a
// crash, nothing more.
func (s *saver) close() (map[int]string, error) {
	close(s.more)
	<-s.end
	if errors.Is(s.err, claim.ErrLost) {
		return s.all, s.err
	}
	return s.all, nil
}
