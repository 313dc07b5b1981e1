package upkeep

import (
	"context"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/farol-preservation/farol/bag/finding"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/many"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

// receiving removes bags that were refused as invalid longer ago than the
// retention. Whatever else lies in the receiving buckets is reported and stays: it
// may be all that there is of a deposit.
func (r *round) receiving(ctx context.Context) error {
	return eachInstitution(ctx, r.Registry, false, "the receiving bucket of", r.depositsOf)
}

func (r *round) depositsOf(ctx context.Context, in record.Institution) error {
	bucket, err := r.Receiving(in.ReceivingBucket)
	if err != nil {
		return err
	}
	const most = 500
	var wrong cause.Few
	for page, err := range many.Pages(most, bucket.List(ctx, "", "")) {
		if err != nil {
			return err
		}
		bags := slices.DeleteFunc(page, func(o storage.Object) bool {
			if notABag(o) == "" {
				return false
			}
			t := deposit(o, in, whyNoBag)
			t.person = r.now.Sub(o.LastModified) >= r.OrphanAge // its depositor waits in vain
			r.report.add(t)
			return true
		})
		if err := r.deposits(ctx, in, bucket, bags, &wrong); err != nil || wrong.TooMany(nil) {
			return wrong.With(err)
		}
	}
	return wrong.With(nil)
}

// deposit is what a report says of an object in a receiving bucket, which stays.
func deposit(o storage.Object, in record.Institution, why string) thing {
	return thing{
		store: "receiving", what: "bags", why: why, name: in.ReceivingBucket + "/" + o.Key,
		count: 1, bytes: o.Size, since: o.LastModified, janitor: Leaves,
	}
}

func (r *round) deposits(ctx context.Context, in record.Institution, bucket *storage.Bucket, objects []storage.Object, wrong *cause.Few) error {
	uploads := make([]registry.Upload, len(objects))
	for i, o := range objects {
		uploads[i] = registry.Upload{Key: recordable(o.Key), ETag: o.ETag}
	}
	fates, err := upkeep.In(r.Registry).UploadFates(ctx, in, uploads)
	if err != nil {
		return err
	}
	var ids []int64
	for _, f := range fates {
		ids = append(ids, f.Ended)
	}
	states, err := upkeep.In(r.Registry).ItemStates(ctx, ids)
	if err != nil {
		return err
	}
	for i, o := range objects {
		if fates[i].Live {
			continue
		}
		t := deposit(o, in, "")
		s, known := states[fates[i].Ended]
		if !r.judge(&t, o, s, known) {
			continue
		}
		if r.act && t.janitor == Removes {
			if err := r.removeBag(ctx, bucket, o.Key, s, t); wrong.TooMany(err) {
				return nil
			}
			continue
		}
		r.report.add(t)
	}
	return nil
}

// judge says what is to become of a bag that no live item is about, and whether it
// is worth a word.
func (r *round) judge(t *thing, o storage.Object, s upkeep.ItemState, known bool) bool {
	expired := s.Rested >= r.Retention
	switch {
	case !known, o.LastModified.After(s.BagDate), s.Status == "Success":
		// It is new, whatever became of the same bytes before, and the next look into the
		// bucket makes an item of it.
		t.why, t.person = whyNoItem, true
		return r.now.Sub(o.LastModified) >= r.OrphanAge
	case s.Status == "Failed" && strings.ContainsRune(o.Key, utf8.RuneError): // its key is another one, and not known
		t.why, t.person = whyUndecided, true
	case s.Status == "Failed" && refused(s):
		t.why, t.janitor = whyRefused, Removes
		if !expired {
			t.janitor, t.due = Waits, r.now.Add(r.Retention-s.Rested)
		}
	default:
		t.why, t.person = whyUndecided, true
	}
	return true
}

// refused tells whether an item failed because its bag is invalid, and nothing else
// is the matter with the bag. One that failed because of the system may be all
// right; one with a virus in it is for a person to see.
func refused(s upkeep.ItemState) bool {
	return s.Stage == registry.Validate && s.ErrorCode == "invalid-bag" || s.Stage == registry.Receive && finding.Refuses(s.ErrorCode)
}

// removeBag deletes a bag if it is still the one that was refused, and nobody wants
// it tried again.
func (r *round) removeBag(ctx context.Context, bucket *storage.Bucket, key string, s upkeep.ItemState, t thing) error {
	_, err := upkeep.In(r.Registry).WhileAlone(ctx, s, func(ctx context.Context) error {
		if err := bucket.DeleteMatching(ctx, key, s.ETag); err != nil {
			return err
		}
		return r.removed(ctx, s.ID, t)
	})
	if errors.Is(err, storage.ErrChanged) {
		r.log.InfoContext(ctx, "receiving bucket has a newer upload; leaving it there", "key", key)
		return nil
	}
	return err
}
