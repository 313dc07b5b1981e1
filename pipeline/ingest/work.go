package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/ability"
)

// work is the work of one claim, with what only stages of an ingest do.
type work struct {
	*pipeline.Work
	lists *lists.Area   // that the stages leave for each other
	had   bool          // an earlier pass has finished this stage
	read  *bytes.Buffer // what Receive has read of a small tar; nil: not all of it, or it is not small
}

// toStore reads the inventory and the plan and returns the files that go into
// preservation storage.
func (w *work) toStore(ctx context.Context) (p *lists.Plan, files []*lists.File, inventoryID string, err error) {
	_, id, err := w.lists.Inventory(ctx, func(i int, f *bag.File) {
		if i == 0 {
			files = nil
		}
		if lists.IsStored(f, lists.Known{}) {
			files = append(files, lists.NewFile(i, f))
		}
	})
	if err != nil {
		return nil, nil, "", err
	}
	p = &lists.Plan{}
	if p.Known, err = lists.Read(ctx, w.lists, lists.PlanName, id, p, func(k lists.Known) int { return k.Index }); err != nil {
		return nil, nil, "", err
	}
	files = slices.DeleteFunc(files, func(f *lists.File) bool { return p.Known[f.Index].Unchanged })
	for _, f := range files {
		f.Reingest(p.Known[f.Index])
	}
	return p, files, id, nil
}

// copyPlan is which files go where, and as what.
type copyPlan struct {
	files       []*lists.File
	names       []string // of the targets, the primary first
	targets     []*storage.Bucket
	inventoryID string
	bad         map[string]string // see badCopies
}

// toCopy reads what Store has to make and Storage Validation has to find.
func (w *work) toCopy(ctx context.Context, all copies.Targets) (c copyPlan, err error) {
	p, files, id, err := w.toStore(ctx)
	if err != nil {
		return copyPlan{}, err
	}
	c.files, c.inventoryID = files, id
	mimes, err := lists.Read(ctx, w.lists, lists.FormatsName, id, nil, func(f lists.MIME) int { return f.Index })
	if err != nil {
		return copyPlan{}, err
	}
	for _, f := range files {
		f.MIME = unique.Make(mimes[f.Index].MIME).Value()
	}
	c.names, c.targets, err = all.Of(p.StorageOption)
	return c, err
}

// isBad tells whether a copy was found bad, whatever its bucket says of it.
func (c copyPlan) isBad(target int, f *lists.File) bool {
	return c.bad[noteOf(c.names[target], f)] != ""
}

// upload describes a file to a bucket: its digests, so that the bytes are
// checked once more on their way, and what people find at a copy that has lost
// its registry.
func (w *work) upload(f *lists.File, encodePath bool) storage.Upload {
	return copies.UploadOf(w.Item.Institution, w.Item.ObjectIdentifier, &f.Content, f.MIME, encodePath)
}

// again tells whether the stage has had the item before: in this pass or, where that
// was looked up, in one that it has finished.
func (w *work) again() bool { return w.had || !w.First() }

// there tells whether a bucket already has a file, whole and as it should be, although Redis
// knows nothing of it: a worker may have died in between, or Redis have lost it. It asks only
// if the stage has had the item before, or a copy was found.
func (w *work) there(ctx context.Context, bucket *storage.Bucket, key string, f *lists.File, up storage.Upload) bool {
	if !w.again() && !f.Found {
		return false
	}
	o, err := bucket.Head(ctx, key)
	return err == nil && copies.CompareIn(ctx, bucket, o, up, &f.Content) == nil
}

// wantPartMD5 tells whether a bucket that copies go to is known to keep no SHA-256 of parts, or of
// those that it copies, so that an upload in parts is known there by the MD5 of each.
func wantPartMD5(all copies.Targets) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(all)), func(b *storage.Bucket) bool { return b.Lacks(ability.PartSHA256) || b.Lacks(ability.CopiedSHA256) })
}

// parts says how so many bytes are uploaded or copied: in parts if they are many, and then the
// upload of an earlier attempt is continued.
//
// Other uploads of this key are aborted first, since their parts would cost money without end.
func (w *work) parts(ctx context.Context, index int, size int64, target *storage.Bucket, key string) (storage.Parts, error) {
	inParts := storage.PartSize(size) > 0
	name, id := fmt.Sprintf("upload:%s/%s", target.Name(), key), ""
	if inParts {
		var err error
		if id, err = w.Progress.Get(ctx, w.Item.ID, w.Pass(), name); err != nil {
			return storage.Parts{}, w.ProgressErr(err)
		}
	}
	if id == "" && (inParts || w.again()) {
		if _, err := target.AbortUploads(ctx, key, time.Now().Add(24*time.Hour)); err != nil {
			return storage.Parts{}, fmt.Errorf("abort forgotten uploads: %w", cause.Storage(err))
		}
	}
	if !inParts {
		return storage.Parts{}, nil
	}
	return storage.Parts{
		Size: storage.PartSize(size), Resume: id, Sent: w.Count.Parts(index, target.Name()),
		SaveID: func(ctx context.Context, id string) error {
			return w.ProgressErr(w.Progress.Put(ctx, w.Claim(), w.Pass(), name, id))
		},
	}, nil
}

// afterRequests has an ingest wait while its object is being restored or deleted.
// Once an ingest is live no request begins, so that it does not wait without end.
func (w *work) afterRequests(ctx context.Context, r *registry.Registry) error {
	item, since, waits, err := requests.In(r).LiveRequests(ctx, w.Item.ObjectIdentifier)
	if err != nil || item == 0 {
		return err
	}
	const soonest, latest = 5 * time.Second, 10 * time.Minute
	why := fmt.Sprintf("Item %d, which restores or deletes the same object, runs first.", item)
	return claim.Snooze(min(max(since/10, soonest), latest), strings.TrimSpace(why+" "+waits))
}

// receivingErr gives errors of the receiving bucket their meaning: the bag of this item is no
// longer there, or was replaced. A process with the wrong bucket would find the same, so the
// bucket is doubted.
func (w *work) receivingErr(err error) error {
	service := fault.Bucket(w.Item.Bucket)
	switch {
	case fault.In(err) != nil, claim.Code(err) == "memory-need":
		return err
	case errors.Is(err, storage.ErrNotFound):
		return claim.Doubt(service, claim.Suspend("bag-gone", fmt.Sprintf(
			"The bag %s is no longer in the receiving bucket %s. Upload it again to have it ingested.", w.Item.Name, w.Item.Bucket)))
	case errors.Is(err, storage.ErrChanged):
		return claim.Doubt(service, claim.Cancel("bag-changed", fmt.Sprintf(
			"The bag %s in the receiving bucket %s was replaced while it was being ingested. The new upload is ingested instead.",
			w.Item.Name, w.Item.Bucket)))
	}
	return cause.Storage(err)
}

// badCopies is the name in Redis under which Storage Validation names the copies that Store
// has to make again although their bucket describes them as they should be. Without it, Store
// makes only missing copies again, and those that are described otherwise.
const badCopies = "bad-copies"

// noteOf is the name of a copy under badCopies.
func noteOf(target string, f *lists.File) string { return target + " " + f.Key() }
