package remove

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/many"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/storage"
)

// deletion deletes a file or an object that two people have decided to delete. In
// this order: it is authorised, and all of its copies are looked for. While a store keeps one
// under Object Lock, it waits, and nothing is removed. Then, for some files at
// a time, it is on record that their copies go, they go, with a receipt for each, each is seen
// to be gone, and the record says so. A worker that dies at any point leaves the receipts; the
// next repeats the procedure and skips the copies that are already gone. What no receipt says
// is about to go stays in preservation: it is checked, and given back if the item is cancelled.
type deletion struct {
	Registry *registry.Registry
	Targets  copies.Targets
	Files    int // that are looked for at once
	round    int // files that are deleted in one round; 0 is deleteAtOnce
}

// deleteAtOnce is how many files are deleted in one round.
const deleteAtOnce = 500

func (s *deletion) Run(ctx context.Context, w *pipeline.Work) error {
	r := w.Item.Request
	d := requests.DeletionWork{Item: w.Item.ID, Token: w.Item.Token, ObjectID: r.ObjectID, FileID: r.FileID, DeletionID: r.DeletionID}
	order, err := requests.In(s.Registry).AuthoriseDeletion(ctx, d)
	if err != nil {
		return meaning(err)
	}
	if order.Waits != "" { // it was requeued, or its time was changed by hand
		return claim.Snooze(order.For+time.Second, order.Waits)
	}
	w.StartCounting(ctx, progress.Counters{BytesTotal: w.Item.Size})
	if !order.Done {
		if err := s.lookForAll(ctx, w, d); err != nil {
			return meaning(err)
		}
	}
	for !order.Done {
		files, err := requests.In(s.Registry).DoomedFiles(ctx, d, 0, cmp.Or(s.round, deleteAtOnce))
		if err != nil {
			return err
		}
		if len(files) == 0 {
			break
		}
		if err := s.files(ctx, w, d, order, files); err != nil {
			return meaning(err)
		}
	}
	w.ObjectID = r.ObjectID
	w.Note = fmt.Sprintf("Deletion completed at the request of %s, approved by %s.", order.Requester, order.Approver)
	w.Outcome = "File deletion complete"
	if r.FileID != 0 {
		return nil
	}
	w.Outcome = "Object deletion complete"
	if order.Done {
		return nil
	}
	return meaning(requests.In(s.Registry).RecordObjectDeletion(ctx, d, order))
}

// meaning gives the registry's errors their meaning: the claim has moved on, or the item may not
// delete.
func meaning(err error) error {
	switch {
	case errors.Is(err, registry.ErrLost):
		return fmt.Errorf("%w: %w", claim.ErrLost, err)
	case errors.Is(err, requests.ErrUnauthorised):
		return claim.Fatal("deletion-unauthorised", "The deletion was stopped: %w", err)
	}
	return err
}

// lookForAll checks that all copies exist before the first is deleted, and that no store keeps
// one. A missing copy that Farol has not deleted was lost, and the others may be the last: then
// nothing is deleted until a person has accepted that.
func (s *deletion) lookForAll(ctx context.Context, w *pipeline.Work, d requests.DeletionWork) error {
	var misled string
	for after := int64(0); ; {
		files, err := requests.In(s.Registry).DoomedFiles(ctx, d, after, deleteAtOnce)
		if err != nil {
			return err
		}
		if len(files) == 0 {
			break
		}
		after = files[len(files)-1].ID
		w.Hold.CurrentFile(files[0].Identifier)
		receipts, err := s.lookFor(ctx, files)
		if err != nil {
			return err
		}
		for _, r := range receipts {
			if r.Missing {
				misled = s.Targets[r.Target].Service()
			}
		}
		if len(receipts) > 0 {
			if err := requests.In(s.Registry).NoteLook(ctx, d, receipts); err != nil {
				return err
			}
		}
		if err := s.released(ctx, d, files); err != nil {
			return err
		}
	}
	const most = 20
	names, all, err := requests.In(s.Registry).MissingCopies(ctx, d.Item, most)
	if err != nil || all == 0 {
		return err
	}
	more := ""
	if n := all - int64(len(names)); n > 0 {
		more = fmt.Sprintf(", and %d more", n)
	}
	return claim.Doubt(misled, claim.Suspend("copies-missing", fmt.Sprintf(
		"Copies are missing that Farol has not deleted, so nothing was deleted: %s%s. Find out why before you delete the others.",
		strings.Join(names, ", "), more)))
}

// lookFor asks the providers for copies that no deletion may have removed. One that is missing
// goes on record as a fixity check would put it there.
func (s *deletion) lookFor(ctx context.Context, files []requests.DoomedFile) (receipts []requests.Receipt, err error) {
	sums := map[int64]string{}
	var all []requests.Receipt
	for _, f := range files {
		sums[f.ID] = f.SHA256
		for _, c := range f.Copies {
			if c.Kept == "" && !c.Ours {
				all = append(all, requests.Receipt{FileID: f.ID, DoomedCopy: c})
			}
		}
	}
	there, missing, err := s.ask(ctx, all)
	for i, r := range missing {
		if err != nil {
			break
		}
		missing[i].Missing = true
		_, err = s.Targets.Prove(ctx, s.Registry, r.StoredCopy, sums[r.FileID], storage.ErrNotFound)
	}
	return append(there, missing...), cause.Storage(err)
}

// ask asks the providers which copies are there.
func (s *deletion) ask(ctx context.Context, all []requests.Receipt) (there, missing []requests.Receipt, err error) {
	var mu sync.Mutex
	err = many.AtOnce(ctx, s.Files, all, func(ctx context.Context, r requests.Receipt) error {
		is, err := s.there(ctx, r.DoomedCopy)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			return err
		case is:
			there = append(there, r)
		default:
			missing = append(missing, r)
		}
		return nil
	})
	return there, missing, err
}

// there tells whether a copy exists.
func (s *deletion) there(ctx context.Context, c requests.DoomedCopy) (bool, error) {
	b, err := s.Targets.Holding(c.Target, c.Bucket)
	if err != nil {
		return false, err
	}
	_, err = copies.Head(ctx, b, c.Key)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil, cause.Storage(err)
}

// going sorts the copies that are to go by their buckets, and lists the receipts of all.
func (s *deletion) going(files []requests.DoomedFile) (going map[*storage.Bucket][]requests.Receipt, receipts []requests.Receipt, err error) {
	going = map[*storage.Bucket][]requests.Receipt{}
	for _, f := range files {
		for _, c := range f.Copies {
			receipts = append(receipts, requests.Receipt{FileID: f.ID, DoomedCopy: c})
			if c.Kept != "" || c.Removed {
				continue
			}
			b, err := s.Targets.Holding(c.Target, c.Bucket)
			if err != nil {
				return nil, nil, err
			}
			going[b] = append(going[b], receipts[len(receipts)-1])
		}
	}
	return going, receipts, nil
}

func keysOf(list []requests.Receipt) []string {
	keys := make([]string, len(list))
	for i, r := range list {
		keys[i] = r.Key
	}
	return keys
}

// files deletes some files. All their copies go before the first is recorded, so a
// failure leaves them on record as what they are: being deleted.
func (s *deletion) files(ctx context.Context, w *pipeline.Work, d requests.DeletionWork, order requests.DeletionOrder, files []requests.DoomedFile) error {
	going, receipts, err := s.going(files)
	if err != nil {
		return err
	}
	ids := make([]int64, len(files))
	for i, f := range files {
		ids[i] = f.ID
	}
	w.Hold.CurrentFile(files[0].Identifier)
	if err := requests.In(s.Registry).BeginDeletions(ctx, d, ids, receipts); err != nil {
		return err
	}
	for b, list := range going {
		if err := s.erase(ctx, w, d, b, list); err != nil {
			switch claim.Code(err) {
			case "storage-denied":
				s.withdraw(ctx, w, d, receipts)
			case "kept-by-store": // since we looked
				s.withdraw(ctx, w, d, receipts)
				return cmp.Or(s.released(ctx, d, files), err)
			}
			return err
		}
	}
	if err := s.absent(ctx, receipts); err != nil {
		if errors.Is(err, storage.ErrStillThere) {
			s.withdraw(ctx, w, d, receipts)
		}
		return err
	}
	return requests.In(s.Registry).RecordDeletions(ctx, d, order, ids)
}

// erase deletes copies in a bucket, and writes their receipts.
func (s *deletion) erase(ctx context.Context, w *pipeline.Work, d requests.DeletionWork, b *storage.Bucket, going []requests.Receipt) error {
	if err := w.Hold.Check(ctx); err != nil {
		return err
	}
	if err := b.Erase(ctx, keysOf(going)...); err != nil {
		return undeleted(ctx, b, err)
	}
	err := requests.In(s.Registry).NoteReceipts(ctx, d, going)
	if errors.Is(err, registry.ErrLost) || ctx.Err() != nil {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateTime)
		defer cancel()
		err = errors.Join(err, requests.In(s.Registry).NoteLate(late, d, going))
	}
	return err
}

// lateTime is how long a worker that has lost its item takes to put on record what it has
// deleted.
const lateTime = 10 * time.Second

// withdraw gives back the copies that a provider does not delete, so that they are checked while
// a person decides. Those that it cannot see stay on record as being deleted.
func (s *deletion) withdraw(ctx context.Context, w *pipeline.Work, d requests.DeletionWork, receipts []requests.Receipt) {
	receipts = slices.DeleteFunc(slices.Clone(receipts), func(r requests.Receipt) bool { return r.Kept != "" })
	there, _, err := s.ask(ctx, receipts)
	if len(there) > 0 {
		err = errors.Join(err, requests.In(s.Registry).WithdrawDeletions(ctx, d, there))
	}
	if err != nil {
		w.Log.WarnContext(ctx, "cannot see which copies are left; they are not checked until the deletion goes on", "err", err)
	}
}

// absent checks that no copy is left.
func (s *deletion) absent(ctx context.Context, receipts []requests.Receipt) error {
	return many.AtOnce(ctx, s.Files, receipts, func(ctx context.Context, c requests.Receipt) error {
		if c.Kept != "" {
			return nil
		}
		err := s.Targets[c.Target].Absent(ctx, c.Key)
		if errors.Is(err, storage.ErrStillThere) {
			return claim.Transient("copy-still-there", fmt.Errorf("the copy in %s still exists after its deletion: %w", c.Target, err))
		}
		return cause.Storage(err)
	})
}

// undeleted explains why a bucket refuses a deletion. What it keeps under Object Lock is waited
// for. If the bucket serves us and denies only this, a person has to decide: an object may be
// locked, or too young for its provider to delete. A bucket that denies everything is a failing
// service.
func undeleted(ctx context.Context, b *storage.Bucket, err error) error {
	if kept, ok := errors.AsType[*storage.Kept](err); ok {
		return postponed(kept, b.TargetName())
	}
	if !cause.DeniedAlone(ctx, b, err) {
		return fmt.Errorf("delete copies in %s: %w", b.TargetName(), cause.Storage(err))
	}
	why := "An object may be locked, or the key lacks the right"
	if strings.HasPrefix(b.Provider(), "Wasabi") {
		why = "Wasabi refuses it for objects younger than its minimum of 30 days, and where the key lacks the right"
	}
	return claim.Doubt(b.Service(), claim.Suspend("storage-denied", fmt.Sprintf("The copies in %s cannot be deleted. %s: %v", b.TargetName(), why, err)))
}
