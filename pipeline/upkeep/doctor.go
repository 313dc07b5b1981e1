package upkeep

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/pipeline/many"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/inventory"
)

// Doctor looks whether what must hold does, in the database and between it and all
// stores. It changes nothing, and needs as much memory for a hundred files as for
// ten million.
type Doctor struct {
	*Janitor

	Inventories map[string]inventory.Source // by target; the others are listed

	Names int // that the report has of each finding at most; 0: ten

	// Orphans takes the copies in a target that no record names and no item will record, with their
	// metadata, in place of the report; noted has the keys of those that an ingest is to take over. It may be nil.
	Orphans func(ctx context.Context, target string, list []storage.Object, noted map[string]bool) error
}

// Examine looks at everything. What it could not reach is in the report as
// unchecked, never as empty.
func (d *Doctor) Examine(ctx context.Context) *Report {
	report := d.Look(ctx)
	report.names = d.Names
	d.rules(ctx, report)
	d.files(ctx, report)
	gone := d.bags(ctx, report)
	for _, option := range storage.OptionNames() {
		for _, name := range storage.TargetsOf(option) {
			target, ok := d.Targets[name]
			if !ok || ctx.Err() != nil {
				report.failed(name, errors.Join(ctx.Err(), errors.New("not checked")))
				continue
			}
			c := &comparison{Doctor: d, report: report, name: name, target: target, now: time.Now(), owners: map[string]owner{}, gone: gone}
			if err := c.run(ctx); err != nil {
				report.failed(name, err)
			} else if c.inventory != nil {
				report.Inventories = append(report.Inventories, c.compared())
			}
		}
	}
	report.Sort()
	return report
}

// rules looks for rows that should not be.
func (d *Doctor) rules(ctx context.Context, report *Report) {
	const most = time.Minute // for each
	for _, code := range upkeep.Rules() {
		bounded, cancel := context.WithTimeout(ctx, most)
		v, err := upkeep.In(d.Registry).Violations(bounded, code)
		cancel()
		if err != nil {
			report.failed("database", err)
			continue
		}
		if v.Count > 0 {
			report.Findings = append(report.Findings, Finding{
				Store: "database", What: "rows", Why: code, Count: v.Count, Names: v.Names, Janitor: Leaves, Person: true,
			})
		}
	}
}

// bags looks for items whose bag is gone although they need it, and returns their IDs. After a restore
// it looks at all: else at those that may have made copies, and the others notice by themselves.
func (d *Doctor) bags(ctx context.Context, report *Report) map[int64]bool {
	restore, err := upkeep.In(d.Registry).Restored(ctx)
	switch {
	case err != nil:
		report.failed("database", err)
	case restore != nil && d.Orphans == nil: // else it is being seen to
		report.add(thing{store: "database", what: "rows", why: whyRestored, count: 1, since: restore.NotedAt, janitor: Leaves, person: true})
	}
	gone := map[int64]bool{}
	for page, err := range d.BagsGone(ctx, restore != nil || d.Orphans != nil) {
		if err != nil {
			report.failed("receiving", err)
			return nil // then nothing is said to be without an owner
		}
		for _, s := range page {
			gone[s.ID] = true
			report.add(thing{store: "receiving", what: "bags", why: whyBagGone, name: s.Bucket + "/" + s.Name, count: 1, janitor: Leaves, person: true})
		}
	}
	return gone
}

// BagsGone yields the ingests that cannot end, because their bag is not in the receiving bucket any more,
// a page at a time; unless all, only those that may have made copies. An item whose copies are made needs
// the bag no longer, as long as its lists are there.
func (d *Doctor) BagsGone(ctx context.Context, all bool) iter.Seq2[[]upkeep.ItemState, error] {
	return func(yield func([]upkeep.ItemState, error) bool) {
		for after := int64(0); ; {
			ids, err := upkeep.In(d.Registry).IngestsAfter(ctx, after, atATime)
			var gone []upkeep.ItemState
			if err == nil {
				gone, err = d.gone(ctx, ids, all)
			}
			if err != nil || len(gone) > 0 {
				if !yield(gone, err) || err != nil {
					return
				}
			}
			if len(ids) < atATime {
				return
			}
			after = ids[len(ids)-1]
		}
	}
}

// gone returns those of some items whose bag is gone. They are looked at twice: the bag is deleted
// while an item ends.
func (d *Doctor) gone(ctx context.Context, ids []int64, all bool) (gone []upkeep.ItemState, err error) {
	states, err := upkeep.In(d.Registry).ItemStates(ctx, ids)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var doubtful []int64
	err = many.AtOnce(ctx, 8, slices.Collect(maps.Keys(states)), func(ctx context.Context, id int64) error {
		needs, err := d.NeedsBag(ctx, states[id])
		if err != nil || !needs || !all && !states[id].Stored {
			return err
		}
		there, err := d.HasBag(ctx, states[id])
		if err != nil || there {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		doubtful = append(doubtful, id)
		return nil
	})
	if err != nil || len(doubtful) == 0 {
		return nil, err
	}
	if states, err = upkeep.In(d.Registry).ItemStates(ctx, doubtful); err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(states)) {
		needs, err := d.NeedsBag(ctx, states[id])
		if err != nil {
			return nil, err
		}
		if needs {
			gone = append(gone, states[id])
		}
	}
	return gone, nil
}

// HasBag tells whether the upload that an item is about is in the receiving bucket.
func (d *Doctor) HasBag(ctx context.Context, s upkeep.ItemState) (bool, error) {
	bucket, err := d.Receiving(s.Bucket)
	if err != nil {
		return false, err
	}
	o, err := bucket.Head(ctx, s.Name)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil && o.ETag == s.ETag, err
}

// NeedsBag tells whether an item that is worked on cannot end without its bag.
func (d *Doctor) NeedsBag(ctx context.Context, s upkeep.ItemState) (bool, error) {
	if !s.Live && s.ErrorCode != "bag-gone" {
		return false, nil
	}
	switch s.Stage {
	case registry.Cleanup:
		return false, nil
	case registry.StorageValidation, registry.Record:
		if s.Live {
			at, err := (&lists.Area{Bucket: d.Staging, Registry: d.Registry, Item: s.ID}).Written(ctx, lists.InventoryName)
			return at.IsZero(), err
		}
	}
	return true, nil
}

// files looks for files that should have more copies on record.
func (d *Doctor) files(ctx context.Context, report *Report) {
	promised := map[string][]string{}
	for _, option := range storage.OptionNames() {
		promised[option] = storage.TargetsOf(option)
	}
	for files, err := range upkeep.In(d.Registry).IncompleteFiles(ctx, promised) {
		if err != nil {
			report.failed("database", err)
			return
		}
		for _, f := range files {
			report.add(thing{store: "database", what: "rows", why: "incomplete", name: f, count: 1, janitor: Leaves, person: true})
		}
	}
}

// A comparison holds what is in a bucket against what is on record of it, both in
// the order of their keys. In place of the bucket it reads the S3 Inventory, if there is one:
// whatever that does not settle, the bucket is asked for.
type comparison struct {
	*Doctor
	report *Report
	name   string
	target *storage.Bucket
	now    time.Time

	gone    map[int64]bool   // items that will record nothing, since their bag is gone
	owners  map[string]owner // by object, as the copies found so far say
	asked   int              // copies whose owner was asked for
	copying time.Duration    // since the first live item came to Store; 0: none has

	unnamed []storage.Object      // in the bucket, and perhaps not on record
	absent  []upkeep.RecordedCopy // on record, and perhaps not in the bucket, or not as it should be

	inventory *inventory.Report // nil: the bucket is listed
	same      int64             // copies that the inventory has as they are on record
	wrong     int64             // those that it has not, and the bucket has
	newer     int64             // those that it cannot have

	// lost takes the keys of copies that are missing or resized. With it, objects without a
	// record are passed over. It may be nil.
	lost func(ctx context.Context, keys []string) error
}

// atATime is how many doubtful keys are looked at together.
const atATime = 500

func (c *comparison) run(ctx context.Context) (err error) {
	if c.copying, err = upkeep.In(c.Registry).CopyingSince(ctx); err != nil {
		return err
	}
	objects, records, err := c.sides(ctx)
	if err != nil {
		return err
	}
	next, stop := iter.Pull2(records)
	defer stop()
	copied, err, more := next()
	for o, listErr := range objects {
		if listErr != nil {
			return listErr
		}
		for more && err == nil && copied.Key < o.Key {
			if err := c.misses(ctx, copied); err != nil {
				return err
			}
			copied, err, more = next()
		}
		if more && copied.Key == o.Key {
			c.matches(copied, o)
			copied, err, more = next()
		} else {
			c.exceeds(o)
		}
		if err = errors.Join(err, c.settle(ctx, atATime)); err != nil {
			return err
		}
	}
	for ; more && err == nil; copied, err, more = next() {
		if err := c.misses(ctx, copied); err != nil {
			return err
		}
	}
	return errors.Join(err, c.settle(ctx, 1))
}

// exceeds notes an object that was not seen on record.
func (c *comparison) exceeds(o storage.Object) {
	if c.lost == nil {
		c.unnamed = append(c.unnamed, o)
	}
}

// misses notes a copy that the bucket was not seen to have.
func (c *comparison) misses(ctx context.Context, copied upkeep.RecordedCopy) error {
	c.doubts(copied)
	return c.settle(ctx, atATime)
}

// settle looks again at what is doubtful, if there is so much of it: bucket and
// records were not read at the same moment.
func (c *comparison) settle(ctx context.Context, least int) error {
	if len(c.absent) >= least {
		if err := c.settleAbsent(ctx); err != nil {
			return err
		}
		c.absent = c.absent[:0]
		if err := c.trusted(); err != nil {
			return err
		}
	}
	if len(c.unnamed) >= least {
		if err := c.settleUnnamed(ctx); err != nil {
			return err
		}
		c.unnamed = c.unnamed[:0]
	}
	return nil
}

func (c *comparison) settleAbsent(ctx context.Context) error {
	keys := make([]string, len(c.absent))
	for i, copied := range c.absent {
		keys[i] = copied.Key
	}
	there, err := heads(ctx, c.target, keys)
	if err != nil {
		return err
	}
	found := map[string]storage.Object{}
	for _, o := range there {
		found[o.Key] = o
	}
	uses, err := upkeep.In(c.Registry).KeyUses(ctx, c.name, keys) // after the bucket: it may have been replaced
	if err != nil {
		return err
	}
	var bad []string
	for _, copied := range c.absent {
		t := thing{store: c.name, what: "copies", why: whyMissing, name: copied.Key, count: 1, janitor: Leaves, person: true}
		o, there := found[copied.Key]
		switch {
		case !uses[copied.Key].Recorded:
			continue
		case there && (copied.Size < 0 || copied.Size == o.Size):
			c.wrong++
			continue
		case there:
			t.why, t.bytes, t.since = whyResized, o.Size, o.LastModified
		}
		c.report.add(t)
		bad = append(bad, copied.Key)
	}
	if c.lost != nil && len(bad) > 0 {
		return c.lost(ctx, bad)
	}
	return nil
}

// settleUnnamed asks for the owners first and for the records last, so that an item
// that comes on record in the meantime is seen in one place or the other.
func (c *comparison) settleUnnamed(ctx context.Context) error {
	if c.inventory != nil { // they may be gone since
		keys := make([]string, len(c.unnamed))
		for i, o := range c.unnamed {
			keys[i] = o.Key
		}
		var err error
		if c.unnamed, err = heads(ctx, c.target, keys); err != nil {
			return err
		}
	}
	clear(c.owners) // what was found out before these copies were listed may be wrong by now
	owners := make([]owner, len(c.unnamed))
	keys := make([]string, len(c.unnamed))
	for i, o := range c.unnamed {
		keys[i] = o.Key
		var err error
		if owners[i], err = c.ownerOf(ctx, o); err != nil {
			return err
		}
	}
	uses, err := upkeep.In(c.Registry).KeyUses(ctx, c.name, keys)
	if err != nil {
		return err
	}
	return c.settleBy(ctx, owners, uses)
}

// settleBy reports the copies that are nobody's, or hands them over.
func (c *comparison) settleBy(ctx context.Context, owners []owner, uses map[string]upkeep.KeyUse) error {
	var orphans []string
	noted := map[string]bool{}
	for i, o := range c.unnamed {
		t := thing{
			store: c.name, what: "copies", why: whyOrphan, name: o.Key, count: 1, bytes: o.Size, since: o.LastModified, janitor: Leaves, person: true,
		}
		use, own := uses[o.Key], !strings.Contains(o.Key, ".") // a key that no other item uses
		switch w := owners[i]; {
		case use.Recorded, use.Retired, w.live, w.known && own, w.unread: // or the janitor has a word of it
			continue
		case w.failed:
			t.why, t.person = whyKept, w.expired
		case c.Orphans != nil && (use.Found || !use.Noted):
			orphans, noted[o.Key] = append(orphans, o.Key), use.Found
			continue
		case use.Found:
			t.why, t.person = whyFound, false
		case use.Noted:
			continue
		}
		c.report.add(t)
	}
	if len(orphans) == 0 {
		return nil
	}
	list, err := heads(ctx, c.target, orphans)
	if err != nil {
		return err
	}
	return c.Orphans(ctx, c.name, list, noted)
}

// An owner is who may have made a copy that is not on record.
type owner struct {
	live    bool // an item in work, or it is unknown that it is none
	failed  bool // one that failed and can be requeued
	expired bool // longer ago than the retention
	known   bool // one that ended, and whose copies the janitor knows
	unread  bool // likewise, but it has yet to find them out
}

// mostAsked is how many copies of a target are asked for their owners. Of the
// others, the time decides: none that is older than what live items have done at
// Store is theirs.
const mostAsked = 1000

func (c *comparison) ownerOf(ctx context.Context, o storage.Object) (owner, error) {
	byTime := owner{live: c.copying > 0 && c.now.Sub(o.LastModified) <= c.copying+time.Hour}
	if c.asked >= mostAsked && c.Orphans == nil {
		return byTime, nil
	}
	c.asked++
	o, err := c.target.Head(ctx, o.Key)
	if errors.Is(err, storage.ErrNotFound) {
		return owner{live: true}, nil // gone by now, and no orphan
	}
	if err != nil {
		return owner{}, err
	}
	object := copies.ObjectOf(o)
	switch {
	case object != "":
	case o.Metadata["bag-encoded-beginning"] != "":
		return byTime, nil
	default:
		return owner{}, nil // Store would have named one
	}
	if known, ok := c.owners[object]; ok {
		return known, nil
	}
	found, err := c.itemsOf(ctx, object)
	if err != nil {
		return owner{}, fmt.Errorf("look up the item that made %s: %w", o.Key, err)
	}
	c.owners[object] = found
	return found, nil
}

func (c *comparison) itemsOf(ctx context.Context, object string) (w owner, err error) {
	ids, err := upkeep.In(c.Registry).ItemsOf(ctx, object)
	if err != nil {
		return w, err
	}
	states, err := upkeep.In(c.Registry).ItemStates(ctx, ids)
	if err != nil {
		return w, err
	}
	w.expired = true
	for _, s := range states {
		switch {
		case !s.Stored, c.gone[s.ID], s.Live && s.Stage == registry.Cleanup: // what that has made is on record
		case s.Live:
			w.live = true
		case s.Status == "Failed", s.Status == "Suspended":
			w.failed, w.expired = true, w.expired && s.Rested >= c.Retention
		case s.Noted:
			w.known = true
		default:
			at, err := (&lists.Area{Bucket: c.Staging, Registry: c.Registry, Item: s.ID}).Written(ctx, lists.InventoryName)
			if err != nil {
				return w, err
			}
			w.unread = w.unread || !at.IsZero()
		}
	}
	return w, nil
}
