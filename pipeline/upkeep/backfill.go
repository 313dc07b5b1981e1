package upkeep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/registry/formats"
	"github.com/farol-preservation/farol/storage"
)

// A Backfill identifies stored files again, as Format Identification does, by reading ranges
// of a copy. It writes to the registry and to no bucket. Any number may run at once, also
// during ingests of the same objects, and may be stopped at any moment: each does what is left.
type Backfill struct {
	Registry *registry.Registry
	Targets  copies.Targets
	Formats  *format.Identifier
	Files    int // at once
}

// Left is a file that could not be identified.
type Left struct {
	Identifier string `json:"identifier"`
	Reason     string `json:"reason"`
}

// Backfilled is what a backfill came to.
type Backfilled struct {
	Identified int64 `json:"identified"`
	Changed    int64 `json:"changed"`   // of these: files that have another PUID or MIME type now
	Overtaken  int64 `json:"overtaken"` // were deleted, ingested or identified again by others in the meantime
	Archived   int64 `json:"archived"`  // have no copy that can be read without a restoration, and were skipped
	Left       int64 `json:"left"`
}

// backfillBatch is how many files go on record in one transaction. A killed backfill loses so
// many results.
const backfillBatch = 100

// mostUnreadable is how many files in a row may fail for a transient reason before the storage
// is taken to be at fault.
const mostUnreadable = 30

// errInARow says that the storage is at fault and not the files.
var errInARow = fmt.Errorf("%d files in a row could not be identified", mostUnreadable)

// Run identifies the files that a filter takes and that nobody has changed since
// began. left is called for each file that is left as it was, and done how many are
// through.
func (b *Backfill) Run(ctx context.Context, f formats.Filter, count formats.Count, done func(files int64), left func(Left)) (sum Backfilled, err error) {
	var after *formats.File
	through, inARow := int64(0), 0
	for {
		batch, err := formats.In(b.Registry).ToIdentify(ctx, f, count.At, after, backfillBatch)
		if err != nil || len(batch) == 0 {
			return sum, err
		}
		results, err := b.batch(ctx, batch)
		if err != nil {
			return sum, err
		}
		if err := b.write(ctx, results, &sum); err != nil {
			return sum, err
		}
		for _, r := range results {
			if r.left == nil {
				inARow = 0
				continue
			}
			if r.cold {
				sum.Archived++ // which is no failure: nothing but a restoration would change it
				continue
			}
			sum.Left++
			left(Left{Identifier: r.file.Identifier, Reason: r.left.Error()})
			if inARow++; !r.passing {
				inARow = 0
			}
			if inARow >= mostUnreadable {
				return sum, errInARow
			}
		}
		through += int64(len(batch))
		done(through)
		after = &batch[len(batch)-1]
	}
}

// backfilled is one file of a batch.
type backfilled struct {
	file    formats.File
	found   lists.Format
	left    error // why it was not identified
	passing bool  // left may be nil the next time
	cold    bool  // all copies are archived
}

func (b *Backfill) batch(ctx context.Context, files []formats.File) ([]backfilled, error) {
	results := make([]backfilled, len(files))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(b.Files)
	for i, f := range files {
		group.Go(func() error {
			results[i] = b.one(groupCtx, f)
			if groupCtx.Err() != nil {
				return context.Cause(groupCtx)
			}
			if errors.Is(results[i].left, format.ErrClosed) {
				return results[i].left
			}
			return nil
		})
	}
	return results, group.Wait()
}

// write puts on record what was found.
func (b *Backfill) write(ctx context.Context, results []backfilled, sum *Backfilled) error {
	var found []formats.Identified
	for _, r := range results {
		if r.left == nil {
			found = append(found, formats.Identified{File: r.file, Format: r.found.Format()})
		}
	}
	if len(found) == 0 {
		return nil
	}
	ids, err := formats.In(b.Registry).Identify(ctx, found)
	if err != nil {
		return err
	}
	written := map[int64]bool{}
	for _, id := range ids {
		written[id] = true
	}
	for _, f := range found {
		switch {
		case !written[f.File.ID]:
			sum.Overtaken++
		case f.PUID != f.File.PUID || f.MIME != f.File.MIME:
			sum.Changed++
			fallthrough
		default:
			sum.Identified++
		}
	}
	return nil
}

// one reads a file from the first of its copies that can be read without a
// restore.
func (b *Backfill) one(ctx context.Context, f formats.File) backfilled {
	out := backfilled{file: f}
	var reasons []error
	out.cold = len(b.copies(f)) > 0
	for _, c := range b.copies(f) {
		result, err := b.read(ctx, f, c)
		if err == nil {
			out.found, out.cold = lists.AsIdentified(result), false
			if broke(result) && f.PUID != "" {
				out.left = fmt.Errorf("the identifier reports %s; the recorded format is kept: %s", result.Reason, lists.CleanText(result.Detail))
			}
			return out
		}
		out.cold = out.cold && errors.Is(err, storage.ErrArchived)
		out.passing = out.passing || !errors.Is(err, storage.ErrArchived) && !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrChanged) &&
			!errors.Is(err, cause.ErrElsewhere)
		if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrChanged) { // a fixity check proves it, and puts it on record
			_, asked := fixity.In(b.Registry).Request(ctx, f.Identifier, f.Targets[c], true)
			err = errors.Join(err, asked)
		}
		reasons = append(reasons, fmt.Errorf("%s: %w", f.Targets[c], explained(err)))
	}
	if out.left = errors.Join(reasons...); out.left == nil {
		out.left = errors.New("no copy of it is on record")
	}
	return out
}

// broke tells whether the identifier crashed, so that an earlier result may be better.
func broke(r format.Result) bool {
	return r.Reason == format.Crashed || r.Reason == format.TimedOut || r.Reason == format.Refused
}

// copies are the places of a file's copies in its lists, the preferred one first.
func (b *Backfill) copies(f formats.File) []int {
	order := make([]int, len(f.Targets))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int {
		return cmp.Compare(b.Targets.Priority(f.Targets[x]), b.Targets.Priority(f.Targets[y]))
	})
	return order
}

// read identifies a file by a copy of it, which must be the one on record.
func (b *Backfill) read(ctx context.Context, f formats.File, c int) (format.Result, error) {
	bucket, ok := b.Targets[f.Targets[c]]
	if !ok || bucket.Name() != f.Buckets[c] {
		return format.Result{}, fmt.Errorf("%w: %s", cause.ErrElsewhere, f.Buckets[c])
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a reading that the identifier has left behind
	return b.Formats.Identify(ctx, f.Path, f.Size, bucket.ReaderAt(ctx, f.Keys[c], f.Size, f.ETags[c]))
}

// explained says what to do about a copy that cannot be read as it is.
func explained(err error) error {
	switch {
	case errors.Is(err, storage.ErrArchived):
		return fmt.Errorf("it has to be restored before it can be read: %w", err)
	case errors.Is(err, storage.ErrNotFound):
		return fmt.Errorf("the copy is missing: %w", err)
	case errors.Is(err, storage.ErrChanged):
		return fmt.Errorf("the copy is not the one on record: %w", err)
	}
	return err
}
