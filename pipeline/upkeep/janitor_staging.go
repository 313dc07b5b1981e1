package upkeep

import (
	"context"
	"time"

	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/pipeline/many"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

// atOnce is how many items are looked up at a time.
const atOnce = 200

// staging removes what items have under <id>/ in the staging bucket.
func (r *round) staging(ctx context.Context) error {
	var wrong cause.Few
	for tops, err := range many.Pages(atOnce, r.Staging.Tops(ctx)) {
		if err != nil {
			return err
		}
		var ids []int64
		for _, top := range tops {
			id := itemOf(top.Key)
			if id > 0 {
				ids = append(ids, id)
			} else if err := r.foreign(ctx, top.Key); err != nil {
				return err
			}
		}
		states, err := upkeep.In(r.Registry).ItemStates(ctx, ids)
		if err != nil {
			return wrong.With(err)
		}
		for _, id := range ids {
			if wrong.TooMany(r.stagedBy(ctx, r.fateOf(id, states))) {
				return wrong.With(nil)
			}
		}
	}
	return wrong.With(nil)
}

// lists removes what items have left of small lists, which are not in the staging bucket.
func (r *round) lists(ctx context.Context) error {
	return r.eachItem(ctx, upkeep.In(r.Registry).ItemsWithLists, func(s upkeep.ItemState) error {
		f := r.fateOf(s.ID, map[int64]upkeep.ItemState{s.ID: s})
		if f.live {
			return nil
		}
		here, err := upkeep.In(r.Registry).Lists(ctx, s.ID)
		if err != nil {
			return err
		}
		if here.Count == 0 { // its lists were in the staging bucket
			if !r.act || !f.removes {
				return nil
			}
			return upkeep.In(r.Registry).DropLists(ctx, s)
		}
		t := f.described(thing{store: "registry", what: "lists", count: here.Count, bytes: here.Bytes, since: here.Oldest})
		return r.removeListed(ctx, f, t, func() (int64, int64, error) {
			return here.Count, here.Bytes, upkeep.In(r.Registry).DropLists(ctx, s)
		})
	})
}

// removeListed removes what says which copies an item may have made. These are noted first.
func (r *round) removeListed(ctx context.Context, f fate, t thing, remove func() (count, bytes int64, err error)) error {
	if f.removes {
		if err := r.noteCopies(ctx, f); err != nil {
			return err
		}
	}
	if !r.act || !f.removes {
		r.report.add(t)
		return nil
	}
	err := r.keepFirst(ctx, f)
	if err != nil {
		return err
	}
	t.count, t.bytes, err = remove()
	if t.count == 0 {
		return err
	}
	if noteErr := r.removed(ctx, f.item, t); noteErr != nil {
		return noteErr
	}
	return err
}

// foreign reports what is in the staging bucket and not of any item.
func (r *round) foreign(ctx context.Context, top string) error {
	s, err := survey(ctx, r.Staging, top)
	if err != nil {
		return err
	}
	r.report.add(thing{
		store: "staging", what: "objects", why: whyForeign, name: top, count: s.count, bytes: s.bytes, since: s.oldest, janitor: Leaves, person: true,
	})
	return nil
}

// surveyed is what is under a prefix.
type surveyed struct {
	count, bytes   int64
	oldest, newest time.Time
}

func survey(ctx context.Context, b *storage.Bucket, prefix string) (s surveyed, err error) {
	for o, err := range b.List(ctx, prefix, "") {
		if err != nil {
			return s, err
		}
		s.count++
		s.bytes += o.Size
		if s.oldest.IsZero() || o.LastModified.Before(s.oldest) {
			s.oldest = o.LastModified
		}
		if o.LastModified.After(s.newest) {
			s.newest = o.LastModified
		}
	}
	return s, nil
}

func (r *round) stagedBy(ctx context.Context, f fate) error {
	if f.live {
		return nil
	}
	prefix := lists.Key(f.item, "") // with its slash: item 12 is not item 123
	s, err := survey(ctx, r.Staging, prefix)
	if err != nil || s.count == 0 {
		return err
	}
	f = r.aged(f, s.newest)
	t := f.described(thing{store: "staging", what: "objects", count: s.count, bytes: s.bytes, since: s.oldest})
	return r.removeListed(ctx, f, t, func() (int64, int64, error) { return r.unstage(ctx, f, prefix) })
}

// unstage deletes what is under a prefix, and stops if the item is wanted again. It
// says how much it deleted, also with an error.
func (r *round) unstage(ctx context.Context, f fate, prefix string) (count, bytes int64, err error) {
	const most = 1000 // keys in one request
	for page, err := range many.Pages(most, r.Staging.List(ctx, prefix, "")) {
		if err != nil {
			return count, bytes, err
		}
		if ok, err := r.still(ctx, f); err != nil || !ok {
			return count, bytes, err
		}
		var keys []string
		var size int64
		for _, o := range page {
			keys, size = append(keys, o.Key), size+o.Size
		}
		if err := r.Staging.Delete(ctx, keys...); err != nil {
			return count, bytes, err
		}
		count, bytes = count+int64(len(keys)), bytes+size
	}
	return count, bytes, nil
}

// stagingUploads aborts the multipart uploads that items have in staging.
func (r *round) stagingUploads(ctx context.Context) error {
	for uploads, err := range many.Pages(atOnce, r.Staging.OpenUploads(ctx)) {
		if err != nil {
			return err
		}
		ids := make([]int64, len(uploads))
		for i, u := range uploads {
			ids[i] = itemOf(u.Key)
		}
		states, err := upkeep.In(r.Registry).ItemStates(ctx, ids)
		if err != nil {
			return err
		}
		for i, u := range uploads {
			if err := r.stagedUpload(ctx, u, r.fateOf(ids[i], states)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *round) stagedUpload(ctx context.Context, u storage.OpenUpload, f fate) error {
	t := thing{store: "staging", what: "uploads", count: 1, since: u.Begun}
	if f.live {
		return nil
	}
	if f.item == 0 {
		t.why, t.name, t.janitor, t.person = whyForeign, u.Key, Leaves, true
		r.report.add(t)
		return nil
	}
	f = r.aged(f, u.Begun)
	t = f.described(t)
	t.name = u.Key
	if !r.act || !f.removes {
		r.report.add(t)
		return nil
	}
	if ok, err := r.still(ctx, f); err != nil || !ok {
		return err
	}
	if err := r.Staging.Abort(ctx, u); err != nil {
		return err
	}
	return r.removed(ctx, f.item, t)
}
