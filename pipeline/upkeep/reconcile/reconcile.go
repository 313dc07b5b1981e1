// Package reconcile brings a registry up to date that was restored from a backup while the buckets are
// ahead of it. What the copies in preservation prove goes back into a receiving bucket as a bag, and
// from there through all stages of an ingest, which takes the copies over. The rest is for people.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/pipeline/upkeep"
	"github.com/farol-preservation/farol/registry"
	records "github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

// Reconciler is the one-time work after a restore. It may be stopped at any time, and run again.
type Reconciler struct {
	*upkeep.Doctor

	Profiles bag.Profiles
	Most     int          // copies that are held in memory; of more, those of the first objects
	Said     func(string) // takes what is being done, for people who wait; it may be nil
}

// A Result is what was found, and what becomes of it.
type Result struct {
	Restore *records.Restore `json:"restore"` // null: the database does not show that it was restored
	Bags    []Bag            `json:"bags"`
	Items   []Item           `json:"items"`
	More    bool             `json:"more"` // further objects are left for another run
	*upkeep.Report

	retired []retired // that are not to be deleted
}

// retired is a replaced copy, and the item that has replaced it.
type retired struct {
	item int64
	records.RetiredCopy
}

// A Bag is an object that has copies without a record.
type Bag struct {
	Object string `json:"object"`
	Files  int    `json:"files"` // without a record
	Bytes  int64  `json:"bytes"`
	Does   string `json:"does"` // Takes, Waits or Person
	Why    string `json:"why"`  // of what is for a person

	copies map[string]*found // by path
	tar    *tarball          // nil: the bag is in the receiving bucket
	in     string            // that bucket

	ended    []records.ItemState // items that wait for this bag in vain
	replaced []place             // copies on record that the bag has newer ones of, and that are gone
}

// An Item is an ingest whose copies have to be looked at once more before it goes on.
type Item struct {
	ID     int64  `json:"id"`
	Object string `json:"object"`
	Stage  string `json:"stage"`
}

// What is done about the copies of a bag.
const (
	Takes  = "takes"  // the bag is made of them, and ingested again
	Waits  = "waits"  // the bag is in the receiving bucket, and its ingest takes them over
	Person = "person" // a person has to decide
)

// Look finds out what there is to do, and changes nothing.
func (r *Reconciler) Look(ctx context.Context) (*Result, error) {
	c := &collection{most: r.Most, objects: map[string]*Bag{}, settled: r.waits, waits: map[string]bool{}}
	doctor := *r.Doctor
	doctor.Orphans, doctor.Names = c.take, r.Most
	out := &Result{Report: doctor.Examine(ctx), Bags: []Bag{}, Items: []Item{}}
	var err error
	if out.Restore, err = r.records().Restored(ctx); err != nil {
		return nil, err
	}
	out.More = c.cut != ""
	out.nameless(c)
	if err := r.findRetired(ctx, out); err != nil {
		return nil, err
	}
	if out.Items, err = r.toVerify(ctx); err != nil {
		return nil, err
	}
	ended, err := r.waitInVain(ctx)
	if err != nil {
		return nil, err
	}
	for _, object := range slices.Sorted(maps.Keys(c.objects)) {
		b := c.objects[object]
		b.ended = ended[object]
		if err := r.judge(ctx, b); err != nil {
			return nil, fmt.Errorf("%s: %w", object, err)
		}
		out.Bags = append(out.Bags, *b)
	}
	out.explain()
	out.Sort()
	return out, nil
}

// explain takes out of the report what the bags settle that are ingested again.
func (out *Result) explain() {
	settled := map[[2]string]map[string]bool{}
	settle := func(store, why, name string) {
		if settled[[2]string{store, why}] == nil {
			settled[[2]string{store, why}] = map[string]bool{}
		}
		settled[[2]string{store, why}][name] = true
	}
	for _, b := range out.Bags {
		if b.Does == Person {
			continue
		}
		for _, s := range b.ended {
			settle("receiving", "bag-gone", s.Bucket+"/"+s.Name)
		}
		for _, p := range b.replaced {
			settle(p.target, "missing", p.key)
		}
	}
	for kind, names := range settled {
		out.Explain(kind[0], kind[1], names)
	}
}

// ForPeople tells whether something is left that no ingest will settle.
func (out *Result) ForPeople() bool {
	return out.More || slices.ContainsFunc(out.Bags, func(b Bag) bool { return b.Does == Person }) ||
		slices.ContainsFunc(out.Findings, func(f upkeep.Finding) bool { return f.Person })
}

func (r *Reconciler) records() records.Records { return records.In(r.Registry) }

// nameless reports copies whose metadata do not say what they are of.
func (out *Result) nameless(c *collection) {
	for target, keys := range c.nameless {
		out.Orphan(target, keys)
	}
}

// Do does what Look has found, and says in it what turns out to be for people. If we die, another run does
// the rest.
func (r *Reconciler) Do(ctx context.Context, found *Result) error {
	for _, c := range found.retired {
		if err := r.records().KeepRetired(ctx, c.item, c.RetiredCopy); err != nil {
			return err
		}
	}
	for _, i := range found.Items {
		if _, err := r.Registry.Requeue(ctx, i.ID, registry.StorageValidation); err != nil {
			return fmt.Errorf("have the copies of item %d verified again: %w", i.ID, err)
		}
	}
	for i := range found.Bags {
		b := &found.Bags[i]
		if b.Does == Person {
			continue
		}
		err := r.take(ctx, *b)
		if rotten, ok := errors.AsType[rottenError](err); ok { // which nobody knows before all bytes are read
			b.Does, b.Why = Person, rotten.Error()
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", b.Object, err)
		}
	}
	if len(found.Unchecked) > 0 || found.More || found.Restore == nil {
		return nil
	}
	return r.records().Reconciled(ctx)
}

// take has a bag ingested. The copies are noted first: else the janitor might remove those of an item
// that is cancelled. The items that wait for the bag are cancelled last: the new one waits for them.
func (r *Reconciler) take(ctx context.Context, b Bag) error {
	var list []records.FoundCopy
	for _, path := range slices.Sorted(maps.Keys(b.copies)) {
		f := b.copies[path]
		list = append(list, records.FoundCopy{Path: path, Key: f.key, SHA256: f.sha256})
	}
	if err := r.records().TakeFound(ctx, b.Object, list); err != nil {
		return err
	}
	if b.tar != nil {
		if r.Said != nil {
			r.Said("making " + b.Object + " again from its copies")
		}
		if err := r.deposit(ctx, b); err != nil {
			return err
		}
	}
	for _, s := range b.ended {
		if _, err := r.Registry.Cancel(ctx, s.ID, "its bag is gone; farol reconcile makes the bag again from its copies"); err != nil {
			return fmt.Errorf("cancel item %d: %w", s.ID, err)
		}
	}
	return nil
}

// toVerify are the items that would end without looking at their copies again: a deletion that is
// not on record any more may have removed them since.
func (r *Reconciler) toVerify(ctx context.Context) ([]Item, error) {
	list := []Item{}
	err := r.eachIngest(ctx, func(s records.ItemState) error {
		if !s.Live || s.Stage != registry.Record && s.Stage != registry.Cleanup {
			return nil
		}
		if s.Stage == registry.Cleanup { // without its bag it has nothing left to remove that could be needed
			there, err := r.HasBag(ctx, s)
			if err != nil || !there {
				return err
			}
		}
		list = append(list, Item{ID: s.ID, Object: s.ObjectIdentifier, Stage: string(s.Stage)})
		return nil
	})
	return list, err
}

// waitInVain are the items whose bag is gone, by object.
func (r *Reconciler) waitInVain(ctx context.Context) (map[string][]records.ItemState, error) {
	byObject := map[string][]records.ItemState{}
	for page, err := range r.BagsGone(ctx, true) {
		if err != nil {
			return nil, err
		}
		for _, s := range page {
			byObject[s.ObjectIdentifier] = append(byObject[s.ObjectIdentifier], s)
		}
	}
	return byObject, nil
}

func (r *Reconciler) eachIngest(ctx context.Context, do func(records.ItemState) error) error {
	const page = 500
	for after := int64(0); ; {
		ids, err := r.records().IngestsAfter(ctx, after, page)
		if err != nil {
			return err
		}
		states, err := r.records().ItemStates(ctx, ids)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := do(states[id]); err != nil {
				return err
			}
		}
		if len(ids) < page {
			return nil
		}
		after = ids[len(ids)-1]
	}
}

// findRetired finds replaced copies whose replacements are not all there: an ingest that is not on
// record any more may have brought them back. They are for people.
func (r *Reconciler) findRetired(ctx context.Context, out *Result) error {
	for after := int64(0); ; {
		const page = 100
		items, err := r.records().RetiredItems(ctx, after, page)
		if err != nil {
			return err
		}
		for _, item := range items {
			list, err := r.records().RetiredCopies(ctx, item)
			if err != nil {
				return err
			}
			for _, c := range list {
				if err := r.judgeRetired(ctx, out, retired{item, c}); err != nil {
					return err
				}
			}
		}
		if len(items) < page {
			return nil
		}
		after = items[len(items)-1]
	}
}

func (r *Reconciler) judgeRetired(ctx context.Context, out *Result, c retired) error {
	o, err := r.head(ctx, c.Target, c.Bucket, c.Key)
	if err != nil || o == nil {
		return err
	}
	instead, err := r.records().CopiesInstead(ctx, c.item, c.RetiredCopy)
	if err != nil {
		return err
	}
	there := len(instead) > 0
	for _, s := range instead {
		newer, err := r.head(ctx, s.Target, s.Bucket, s.Key)
		if err != nil {
			return err
		}
		there = there && newer != nil
	}
	if !there {
		out.retired = append(out.retired, c)
		out.Orphan(c.Target, []storage.Object{*o})
	}
	return nil
}

// head describes a copy; nil: it is not there.
func (r *Reconciler) head(ctx context.Context, target, in, key string) (*storage.Object, error) {
	bucket, err := r.Targets.Holding(target, in)
	if err != nil {
		return nil, err
	}
	o, err := bucket.Head(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil //nolint:nilnil // as said above
	}
	return &o, err //nolint:wrapcheck // it names bucket and key
}

// splitObject splits the identifier of an object.
func splitObject(object string) (institution, name string) {
	institution, name, _ = strings.Cut(object, "/")
	return institution, name
}
