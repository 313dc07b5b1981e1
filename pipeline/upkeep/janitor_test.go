package upkeep

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/ingest"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/retry"
	"github.com/farol-preservation/farol/storage"
)

const days = 24 * time.Hour

func (a *archive) janitor() *Janitor {
	return &Janitor{
		Registry: a.Deps.Registry, Progress: a.Deps.Progress, Receiving: a.Deps.Receiving, Staging: a.Deps.Staging, Targets: a.Deps.Targets,
		Keep: ingest.Keeper(a.Deps), Log: a.Deps.Log, Retention: 14 * days, OrphanAge: days, Holder: "test",
	}
}

// round makes a round in which nothing goes wrong.
func (a *archive) round() *Report {
	a.T.Helper()
	report, err := a.janitor().Round(a.T.Context())
	if err != nil || len(report.Unchecked) > 0 {
		a.T.Fatalf("Round = %+v, %v", report, err)
	}
	return report
}

// atStore takes a new item through all stages before Store, and lets it begin
// something everywhere.
func (a *archive) atStore(name string, engine *claim.Engine) int64 {
	a.T.Helper()
	id := a.Deposit(name+".tar", a.Bag(bagtest.Spec{Name: name, Files: []bagtest.File{
		{Path: "data/a.bin", Size: 100_000}, {Path: "data/b.bin", Size: 100_001}, {Path: "data/c.bin", Size: 300_000},
	}}))
	a.UpTo(engine, "Store")
	return id
}

// halfStored lets Store finish, and die before its end is on record. The item is
// Started, as that worker left it.
func (a *archive) halfStored(name string, engine *claim.Engine) int64 {
	a.T.Helper()
	id := a.atStore(name, engine)
	a.storesAndDies(engine)
	a.Upload(a.Deps.Staging, fmt.Sprintf("%d/large", id))
	return id
}

// storesAndDies lets Store finish an item, and its worker die before that is known.
func (a *archive) storesAndDies(engine *claim.Engine) {
	a.T.Helper()
	w := a.Hold(engine, "Store")
	step := ingest.Steps(a.Deps)[5]
	ctx, die := context.WithCancel(context.Background())
	defer die() // the dead write nothing
	must.Do(a.T, step.Run.Run(ctx, w))
	finished := map[int]string{} // as a stage of more than a moment writes it
	for i := range 30 {
		finished[i] = ""
	}
	must.Do(a.T, a.Deps.Progress.Done(context.Background(), w.Claim(), w.Pass(), finished))
}

func prefixed(keys []string, prefix string) (n int) {
	for _, k := range keys {
		if strings.HasPrefix(k, prefix) {
			n++
		}
	}
	return n
}

// leftovers is what an item has: lists or objects in staging, uploads to it, and keys in Redis.
func (a *archive) leftovers(id int64) [3]int {
	a.T.Helper()
	prefix := strconv.FormatInt(id, 10) + "/"
	redis := 0
	for _, k := range a.RedisKeys() {
		if strings.Contains(k, fmt.Sprintf("{%d}", id)) {
			redis++
		}
	}
	lists := pipelinetest.Value[int](a, `SELECT count(content) FROM work_item_lists WHERE work_item_id = $1`, id)
	return [3]int{lists + prefixed(a.Keys(a.Deps.Staging), prefix), prefixed(a.Uploads(a.Deps.Staging), prefix), redis}
}

// What an item has left behind goes when it was cancelled, or failed long ago, and
// not while it may be requeued or is in work, however old its things are.
func TestJanitorRemovesWhatNobodyNeeds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status string // "": it stays in work
		days   int
		stays  bool
		staged bool // its lists are not in the registry
	}{
		"failed long ago":      {status: "Failed", days: 15},
		"suspended long ago":   {status: "Suspended", days: 15, staged: true},
		"failed lately":        {status: "Failed", days: 13, stays: true},
		"suspended lately":     {status: "Suspended", days: 13, stays: true},
		"cancelled just now":   {status: "Cancelled"},
		"in work for long":     {days: 400, stays: true},
		"queued for long":      {status: "Pending", days: 400, stays: true, staged: true},
		"archived":             {status: "archived", days: 60},
		"archived, of a large": {status: "archived", days: 60, staged: true},
		"waiting for an older": {status: "waiting", days: 400, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			engine := a.Engine()
			id := a.halfStored("sample", engine)
			if tc.staged {
				a.InStaging()
			}
			switch tc.status {
			case "Failed", "Suspended", "Cancelled":
				a.Fails(id, tc.status, "by-hand", tc.days)
			case "Pending":
				a.Exec(`SELECT release(id) FROM work_items`)
			case "archived":
				a.Fails(id, "Cancelled", "by-hand", tc.days)
				testenv.Scene(t, a.DB, `INSERT INTO work_items_archive SELECT * FROM work_items`)
				testenv.Scene(t, a.DB, `DELETE FROM work_items`)
			case "waiting":
				a.Exec(`SELECT release(id) FROM work_items`)
				testenv.Scene(t, a.DB, `UPDATE work_items SET waits_for = 1000, run_at = 'infinity'`)
			}
			if tc.status != "archived" {
				a.Age(id, tc.days)
			}
			before := a.leftovers(id)
			if slices.Contains(before[:], 0) {
				t.Fatalf("the item has left %v", before)
			}
			sibling := fmt.Sprintf("%d0/data", id) // of another item: 12 is not 120
			a.Put(a.Deps.Staging, sibling)
			told := a.janitor().Look(t.Context())
			if after := a.leftovers(id); after != before {
				t.Errorf("a look removed something: %v, then %v", before, after)
			}
			report := a.round()
			want := before
			if !tc.stays {
				want = [3]int{}
			}
			if got := a.leftovers(id); got != want {
				t.Errorf("left %v, want %v\n%+v", got, want, report)
			}
			if !slices.Contains(a.Keys(a.Deps.Staging), sibling) {
				t.Errorf("%s is gone", sibling)
			}
			removes, removed := counts(told, Removes), counts(report, Removed)
			if !maps.Equal(removes, removed) {
				t.Errorf("it removed %v, and had said %v", removed, removes)
			}
			if n := pipelinetest.Value[int](a, `SELECT coalesce(sum(count), 0) FROM removals WHERE store IN ('staging', 'registry', 'redis')`); n != before[0]+before[1]+before[2]-want[0]-want[1]-want[2] {
				t.Errorf("%d removals on record, of %v", n, before)
			}
			if again := counts(a.round(), Removed); len(again) > 0 {
				t.Errorf("a second round removed %v", again)
			}
		})
	}
}

// counts is what a report says of things with which the janitor does something.
func counts(r *Report, does string) map[string]int64 {
	n := map[string]int64{}
	for _, f := range r.Findings {
		if f.Janitor == does {
			n[f.Store+" "+f.What+" "+f.Why] += f.Count
		}
	}
	return n
}

// An item that is requeued to where it stood, after all it had was removed, goes
// back by itself and succeeds. Its copies were left, or are made again.
func TestSweptItemCompletesOnceItIsRequeued(t *testing.T) {
	t.Parallel()
	for _, stage := range []string{"Store", "Storage Validation", "Record"} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			engine := a.Engine()
			id := a.Deposit("sample.tar", a.Sample())
			a.UpTo(engine, registry.Stage(stage))
			a.Fails(id, "Suspended", "transient", 15)
			a.round()
			if left := a.leftovers(id); left != [3]int{} {
				t.Fatalf("left %v", left)
			}
			must.Get(a.Deps.Registry.Requeue(t.Context(), id, registry.Stage(stage)))(t)
			a.Work()
			if item := a.Item(id); item.Status != "Success" {
				t.Fatalf("item = %+v", item)
			}
			if left := a.leftovers(id); left != [3]int{} {
				t.Errorf("left %v", left)
			}
			a.healthy()
			a.Age(id, 2)
			a.round()
			a.healthy()
			if n := pipelinetest.Value[int](a, `SELECT count(*) FROM unrecorded_copies`); n != 0 {
				t.Errorf("%d items with unrecorded copies", n)
			}
		})
	}
}

// healthy fails the test if the doctor finds anything that needs a person, or an
// orphan of any kind.
func (a *archive) healthy() {
	a.T.Helper()
	report := (&Doctor{Janitor: a.janitor()}).Examine(context.Background())
	if len(report.Findings) > 0 || len(report.Unchecked) > 0 {
		a.T.Errorf("the doctor found %+v", report)
	}
}

// A person who requeues an item while it is swept gets it done all the same.
func TestItemMayBeRequeuedWhileItIsSwept(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	engine := a.Engine()
	id := a.Deposit("sample.tar", a.Sample())
	a.UpTo(engine, "Record")
	for range 5 { // each time another moment
		a.Fails(id, "Failed", "record-refused", 15)
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := a.janitor().Round(context.Background()); err != nil {
				t.Errorf("Round = %v", err)
			}
		})
		both.Go(func() {
			if _, err := a.Deps.Registry.Requeue(context.Background(), id, ""); err != nil {
				t.Errorf("Requeue = %v", err)
			}
		})
		both.Wait()
	}
	a.Work()
	a.Intact(id)
	a.healthy()
}

// Copies of an item that was cancelled before Record are its own by their keys, and
// go; those of a failed item stay for anyone who requeues it. What a record names stays
// in any case.
func TestUnrecordedCopiesGoWithACancelledItem(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	engine := a.Engine()
	va, or := a.Deps.Targets["Standard-VA"], a.Deps.Targets["Standard-OR"]
	a.Deposit("other.tar", a.Bag(bagtest.Spec{Name: "other"}))
	a.Work()
	recorded := a.Keys(va)

	id := a.halfStored("sample", engine)
	stored := len(a.Keys(va)) - len(recorded)
	if stored != 5 || len(a.Keys(or)) != len(a.Keys(va)) {
		t.Fatalf("%d copies of the item in %d", stored, len(a.Keys(va)))
	}
	a.Fails(id, "Suspended", "transient", 15)
	a.round() // which takes all else
	if n := len(a.Keys(va)); n != stored+len(recorded) {
		t.Errorf("%d copies are left of an item that can be requeued, want %d", n-len(recorded), stored)
	}
	report := (&Doctor{Janitor: a.janitor()}).Examine(t.Context())
	if kept := counts(report, Leaves)["Standard-VA copies kept"]; kept != int64(stored) || !report.NeedsPerson() {
		t.Errorf("the doctor found %+v", report)
	}

	a.Fails(id, "Cancelled", "by-hand", 0)
	if waits := counts(a.round(), Waits)["Standard-VA copies unrecorded"]; waits != int64(stored) {
		t.Errorf("%d copies wait for a worker that does not know of the end yet, want %d", waits, stored)
	}
	a.Age(id, 2)
	// One is on record after all, no matter who did that.
	left := slices.DeleteFunc(a.Keys(va), func(k string) bool { return slices.Contains(recorded, k) })
	if len(left) != stored {
		t.Fatalf("%d copies are left, want %d", len(left), stored)
	}
	own := left[0]
	a.Exec(`UPDATE storage_records SET key = '` + own + `' WHERE id = (SELECT min(id) FROM storage_records WHERE target = 'Standard-VA')`)
	report = a.round()
	want := append(slices.Clone(recorded), own)
	slices.Sort(want)
	if got := a.Keys(va); !slices.Equal(got, want) {
		t.Errorf("in Standard-VA are %v, want %v\n%+v", got, want, report)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM removals WHERE what = 'copies' AND work_item_id = $1 AND name <> ''`, id); n != 2*(stored-1) {
		t.Errorf("%d copies on record as removed, want %d", n, 2*(stored-1))
	}
	if got := counts(a.round(), Removed); len(got) > 0 {
		t.Errorf("a second round removed %v", got)
	}
}

// Copies of a version that never came on record keep no other version from being
// recorded. They stay as long as the item can be requeued, and while another may bring
// the same content back; then they go.
func TestUnrecordedVersionIsInNobodysWay(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Exec(`UPDATE stage_settings SET max_attempts = 1`)
	engine := a.Engine()
	uploads := 0
	version := func(content string) int64 {
		uploads++
		return a.Deposit("letters.tar", a.Bag(bagtest.Spec{
			Name: "letters", Title: strconv.Itoa(uploads), Files: []bagtest.File{{Path: "data/changes", Content: content}},
		}))
	}
	targets := []*storage.Bucket{a.Deps.Targets["Standard-VA"], a.Deps.Targets["Standard-OR"]}
	holds := func(content string) (n int) {
		a.T.Helper()
		digest := sha256.Sum256([]byte(content))
		for _, b := range targets {
			for _, key := range a.Keys(b) {
				o := must.Get(b.Head(t.Context(), key))(t)
				if o.Metadata["sha256"] == hex.EncodeToString(digest[:]) {
					n++
				}
			}
		}
		return n
	}
	version("one")
	a.Work()
	dead := version("two")
	a.UpTo(engine, "Store")
	a.storesAndDies(engine)
	a.Fails(dead, "Suspended", "transient", 3)
	if n := holds("two"); n != 2 {
		t.Fatalf("%d copies of the version that dies", n)
	}
	next := version("three")
	a.Work()
	if item := a.Item(next); item.Status != "Success" {
		t.Fatalf("item = %+v", item)
	}
	kept := func(report *Report) int64 { return counts(report, Leaves)["Standard-VA copies kept"] }
	if report := a.examine(); kept(report) == 0 || found(report, "database", "rows", "open-review") == nil {
		t.Errorf("the doctor found %+v", report)
	}
	a.Fails(dead, "Suspended", "transient", 15)
	a.round() // which takes what is in staging
	if n := holds("two"); n != 2 {
		t.Errorf("%d copies of an item that can be requeued", n)
	}

	a.Fails(dead, "Cancelled", "by-hand", 2)
	again := version("two")
	a.UpTo(engine, "Store")
	a.round()
	if n := holds("two"); n != 2 {
		t.Errorf("%d copies while an item brings the content back", n)
	}
	a.Exec(fmt.Sprintf(`SELECT cancel(%d)`, again))
	a.Age(again, 2)
	if report := a.examine(); found(report, "receiving", "bags", whyUndecided) == nil || counts(report, Removes)["Standard-VA copies unrecorded"] == 0 {
		t.Errorf("the doctor found %+v", report)
	}
	a.round()
	if two, three := holds("two"), holds("three"); two != 0 || three != 2 {
		t.Errorf("%d copies of the cancelled version, %d of the one on record", two, three)
	}
	if report := a.examine(); len(report.Findings) != 1 || found(report, "receiving", "bags", whyUndecided) == nil {
		t.Errorf("besides the bag of the cancelled item the doctor found %+v", report)
	}

	dead = version("four")
	a.UpTo(engine, "Store")
	a.storesAndDies(engine)
	a.Fails(dead, "Cancelled", "by-hand", 2)
	version("four") // goes on record under the same keys
	a.Work()
	a.round()
	if n := holds("four"); n != 2 {
		t.Errorf("%d copies of a version on record", n)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM unrecorded_copies`); n != 0 {
		t.Errorf("%d items are still to be seen to", n)
	}
	a.healthy()
}

// Replaced copies of an item that died before its Cleanup go, unless an item of the
// object is in work: it may store the old content again, under the old key.
func TestReplacedCopiesOfADeadItemGo(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	engine := a.Engine()
	version := func(n int) []byte {
		return a.Bag(bagtest.Spec{Name: "letters", Title: strconv.Itoa(n), Files: []bagtest.File{{Path: "data/changes", Content: strconv.Itoa(n)}}})
	}
	a.Deposit("letters.tar", version(1))
	a.Work()
	id := a.Deposit("letters.tar", version(2))
	a.UpTo(engine, "Cleanup")
	replaced := pipelinetest.Value[int](a, `SELECT count(*) FROM retired_copies WHERE target = 'Standard-VA'`)
	before := len(a.Keys(a.Deps.Targets["Standard-VA"]))
	if replaced == 0 {
		t.Fatal("nothing was replaced")
	}
	a.Fails(id, "Suspended", "transient", 13)
	if got := counts(a.round(), Waits)["Standard-VA copies replaced"]; got != int64(replaced) {
		t.Errorf("%d wait, want %d", got, replaced)
	}
	a.Age(id, 15)
	live := a.Deposit("letters.tar", version(3))
	a.round()
	if n := len(a.Keys(a.Deps.Targets["Standard-VA"])); n != before {
		t.Errorf("%d objects while an item of the object is in work, want %d", n, before)
	}
	a.Exec(fmt.Sprintf(`SELECT cancel(%d)`, live))
	a.round()
	if n := len(a.Keys(a.Deps.Targets["Standard-VA"])); n != before-replaced {
		t.Errorf("%d objects, want %d", n, before-replaced)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM retired_copies`); n != 0 {
		t.Errorf("%d copies still to be deleted", n)
	}
	must.Get(a.Deps.Registry.Requeue(t.Context(), id, ""))(t)
	a.Work()
	if item := a.Item(id); item.Status != "Success" {
		t.Errorf("item = %+v", item)
	}
}

// An invalid bag goes when its retention has ended, if it is still that bag and
// nobody wants it tried again. Whatever else failed stays.
func TestInvalidBagStaysUntilItsRetentionEnds(t *testing.T) {
	t.Parallel()
	invalid := bagtest.Spec{Name: "bad", Files: []bagtest.File{{Path: "data/a.txt", Content: "a"}}, Corrupt: []string{"data/a.txt"}}
	for name, tc := range map[string]struct {
		tar    []byte
		status string
		code   string
		days   int
		then   func(a *archive, id int64)
		goes   bool
	}{
		"invalid, and old":            {code: "invalid-bag", days: 15, goes: true},
		"no tar, and old":             {tar: []byte("this is no tar"), code: "not-a-tar", days: 15, goes: true},
		"invalid, and not old enough": {code: "invalid-bag", days: 13},
		"infected":                    {code: "infected", days: 100},
		"failed for the system":       {code: "storage-denied", days: 100},
		"suspended":                   {status: "Suspended", code: "transient", days: 100},
		"cancelled":                   {status: "Cancelled", code: "by-hand", days: 100},
		"replaced by a newer upload": {code: "invalid-bag", days: 15, then: func(a *archive, _ int64) {
			a.Put(a.Receiving, "bad.tar")
		}},
		"requeued": {code: "invalid-bag", days: 15, then: func(a *archive, id int64) {
			must.Get(a.Deps.Registry.Requeue(context.Background(), id, ""))(a.T)
		}},
		"of an object with another item in work": {code: "invalid-bag", days: 15, then: func(a *archive, _ int64) {
			testenv.Scene(a.T, a.DB, `INSERT INTO uploads_in_work SELECT object_identifier, 'bad.b01.of02.tar', 'other', 1000 FROM work_items`)
		}},
		"uploaded again lately, the same": {code: "invalid-bag", days: 15, then: func(a *archive, _ int64) {
			testenv.Scene(a.T, a.DB, `UPDATE work_items SET bag_date = now() - interval '20 days'`)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			tar := tc.tar
			if tar == nil {
				tar = a.Bag(invalid)
			}
			id := a.Deposit("bad.tar", tar)
			a.Work()
			if item := a.Item(id); item.Status != "Failed" {
				t.Fatalf("item = %+v", item)
			}
			if tc.status != "" {
				a.Exec(fmt.Sprintf(`UPDATE work_items SET status = '%s'`, tc.status))
			}
			testenv.Scene(t, a.DB, `UPDATE work_items SET error_code = $1`, tc.code)
			a.Age(id, tc.days)
			if tc.then != nil {
				tc.then(a, id)
			}
			report := a.round()
			if there := len(a.Keys(a.Receiving)) > 0; there == tc.goes {
				t.Errorf("the bag is there: %v\n%+v", there, report)
			}
			if n := pipelinetest.Value[int](a, `SELECT count(*) FROM removals WHERE what = 'bags' AND work_item_id = $1`, id); (n == 1) != tc.goes {
				t.Errorf("%d bags on record as removed", n)
			}
			if n := pipelinetest.Value[int](a, `SELECT count(*) FROM objects_in_work WHERE object_identifier NOT IN (SELECT object_identifier FROM uploads_in_work)`); n != 0 {
				t.Errorf("%d objects are left locked", n)
			}
		})
	}
}

// A newer upload that comes in the last moment, after the look at the bag, stays.
func TestNewerUploadSurvivesTheDeletionOfTheOlder(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.DepositRaw("bad.tar")
	old := must.Get(a.Receiving.Head(t.Context(), "bad.tar"))(t)
	must.Get(a.Receiving.Put(t.Context(), "bad.tar", bytes.NewReader([]byte("newer")), storage.Upload{Size: 5}))(t)
	if err := a.Receiving.DeleteMatching(t.Context(), "bad.tar", old.ETag); !errors.Is(err, storage.ErrChanged) {
		t.Errorf("DeleteMatching = %v, want ErrChanged", err)
	}
	if got := string(a.Content(a.Receiving, "bad.tar")); got != "newer" {
		t.Errorf("in receiving is %q", got)
	}
}

// What no item owns is not wiped at once: it may be another system's, or an item's
// that a restored database does not know yet.
func TestThingsOfUnknownItemsWait(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Put(a.Deps.Staging, "777/inventory.jsonl.zst")
	a.Upload(a.Deps.Staging, "777/large")
	must.Do(t, a.Deps.Progress.Put(t.Context(), progress.Claim{Item: 777, Token: 1}, "Store@1", "upload", "x"))
	a.Put(a.Deps.Staging, "notes.txt")
	a.Put(a.Deps.Staging, "0777/notes.txt")
	before := a.leftovers(777)
	report := a.round()
	if got := a.leftovers(777); got != before {
		t.Errorf("left %v, want %v", got, before)
	}
	if got := counts(report, Waits); got["staging objects unknown-item"] != 1 || got["staging uploads unknown-item"] != 1 || got["redis keys unknown-item"] == 0 || !report.NeedsPerson() {
		t.Errorf("Round = %+v", report)
	}
	j := a.janitor()
	j.Retention = time.Nanosecond
	testenv.Eventually(t, "all to be old enough", func() bool {
		if report, err := j.Round(t.Context()); err != nil || len(report.Unchecked) > 0 {
			t.Fatalf("Round = %+v, %v", report, err)
		}
		return a.leftovers(777) == [3]int{}
	})
	if got, want := a.Keys(a.Deps.Staging), []string{"0777/notes.txt", "notes.txt"}; !slices.Equal(got, want) {
		t.Errorf("in staging are %v, want %v", got, want)
	}
}

// Multipart uploads in preservation buckets are aborted when no pass through Store
// can still own them.
func TestForgottenUploadsToPreservationAreAborted(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	va := a.Deps.Targets["Standard-VA"]
	const key = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
	a.Upload(va, key)
	a.Upload(va, "somebody-elses")
	a.round()
	if got := a.Uploads(va); len(got) != 2 {
		t.Errorf("left %v: too young", got)
	}
	j := a.janitor()
	j.OrphanAge = time.Nanosecond
	engine := a.Engine()
	a.atStore("sample", engine)
	w := a.Hold(engine, "Store") // it may have begun the upload
	clean := func() {
		t.Helper()
		if report, err := j.Round(t.Context()); err != nil || len(report.Unchecked) > 0 {
			t.Fatalf("Round = %+v, %v", report, err)
		}
	}
	clean()
	if got := a.Uploads(va); len(got) != 2 {
		t.Errorf("left %v while an item is at Store", got)
	}
	must.Do(t, w.Hold.Settle(t.Context(), claim.Done{}, claim.Transient("away", errors.New("a target is away"))))
	clean()
	if got := a.Uploads(va); len(got) != 2 {
		t.Errorf("left %v while an item waits to go on at Store", got)
	}
	a.Exec(`SELECT cancel(id) FROM work_items`)
	testenv.Eventually(t, "the upload to be old enough", func() bool {
		clean()
		return slices.Equal(a.Uploads(va), []string{"somebody-elses"})
	})
}

// Of many janitors one makes the round. One that died keeps the others from theirs
// until its lease has lapsed, and no longer.
func TestOneJanitorAtATime(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const many = 8
	var all sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for i := range many {
		all.Go(func() {
			j := a.janitor()
			s := Scheduler{Registry: j.Registry, Jobs: []Job{j.Job(time.Hour, func(*Report) {})}, Holder: fmt.Sprint("janitor ", i), Log: j.Log}
			runs, err := s.Once(context.Background())
			if err != nil {
				t.Errorf("Once = %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			made += len(runs)
		})
	}
	all.Wait()
	if made != 1 {
		t.Errorf("%d janitors made a round, want 1", made)
	}

	dead, began, err := upkeep.In(a.Deps.Registry).BeginRun(t.Context(), upkeep.RunBegin{Job: JanitorJob, Holder: "dead", Lease: upkeep.RunLease, Now: true})
	if err != nil || !began {
		t.Fatalf("BeginRun = %v, %v", began, err)
	}
	if _, err := a.janitor().Round(t.Context()); !errors.Is(err, ErrBusy) {
		t.Errorf("Round beside another = %v, want ErrBusy", err)
	}
	a.Exec(`UPDATE schedules SET held_until = now() - interval '1 second' WHERE job = 'janitor'`)
	a.round()
	if err := upkeep.In(a.Deps.Registry).KeepRun(t.Context(), dead, upkeep.RunLease); !errors.Is(err, registry.ErrLost) {
		t.Errorf("KeepRun of the dead one = %v, want ErrLost", err)
	}
}

// A round that S3 breaks off says so, and the next comes to its end.
func TestRoundGoesOnWhereAnotherBrokeOff(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.S3.Endpoint, "https://"))
	direct := a.Deps
	var ids []int64
	engine := a.Engine()
	for i := range 3 {
		id := a.halfStored(fmt.Sprint("sample", i), engine)
		a.Fails(id, "Cancelled", "by-hand", 2)
		ids = append(ids, id)
	}
	left := func() (n int) {
		for _, id := range ids {
			for _, k := range a.leftovers(id) {
				n += k
			}
		}
		return n
	}
	before := left()
	a.Through(proxy)
	cut := a.janitor()
	a.Deps = direct
	const told = "cleanup failed; the janitor will retry in its next round"
	rounds := 0
	for after := int64(12_000); left() > 0; after *= 2 { // each round comes further
		proxy.CutAfter(after)
		said := strings.Count(a.Log.String(), told)
		ctx, cancel := context.WithCancel(t.Context())
		var mender sync.WaitGroup
		mender.Go(func() {
			for strings.Count(a.Log.String(), told) == said && retry.Pause(ctx, 10*time.Millisecond) {
			}
			proxy.Resume()
		})
		report, err := cut.Round(ctx)
		cancel()
		mender.Wait()
		if err != nil {
			t.Fatalf("Round = %v", err)
		}
		if len(report.Unchecked) > 0 {
			rounds++
		}
		if after > 1<<20 {
			t.Fatalf("%d things are left of %d: %+v", left(), before, report)
		}
	}
	if rounds == 0 {
		t.Error("no round was broken off")
	}
	a.round() // the copies of what was swept in a broken round, too
	if got := len(a.Keys(a.Deps.Targets["Standard-VA"])); got != 0 {
		t.Errorf("%d copies are left", got)
	}
	if report := a.examine(); len(report.Findings) != 1 || found(report, "receiving", "bags", whyUndecided) == nil || len(report.Unchecked) > 0 {
		t.Errorf("the doctor found more than the bags of the cancelled items: %+v", report)
	}
}
