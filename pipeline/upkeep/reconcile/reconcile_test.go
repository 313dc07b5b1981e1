package reconcile

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/pipeline/steps"
	"github.com/farol-preservation/farol/pipeline/upkeep"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
	"github.com/farol-preservation/farol/registry/requests"
	upkeeprecords "github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

func TestMain(m *testing.M) { pipelinetest.Main(m) }

// drill is an archive whose database is restored from a backup.
type drill struct {
	*pipelinetest.Archive
	server *testenv.Server
}

func newDrill(t testing.TB) *drill {
	t.Helper()
	server := testenv.NewArchivingServer(t)
	db := must.Get(dial.Connect(t.Context(), server.URL, "test"))(t)
	t.Cleanup(db.Close)
	return &drill{Archive: pipelinetest.NewIn(t, db, steps.All), server: server}
}

// moment is the time of the database, between two transactions.
func (d *drill) moment() time.Time {
	d.T.Helper()
	at := pipelinetest.Value[time.Time](d, `SELECT clock_timestamp()`)
	testenv.Eventually(d.T, "the clock to go on", func() bool { return time.Since(at) > 20*time.Millisecond })
	return at
}

// restoredTo goes on with a backup as the database was at a moment. Buckets and Redis stay as they are.
func (d *drill) restoredTo(backup *testenv.Server, at time.Time) {
	d.T.Helper()
	d.DB.Close()
	backup.RestoreTo(d.server, at)
	d.server = backup
	d.DB = must.Get(dial.Connect(d.T.Context(), backup.URL, "test"))(d.T)
	d.T.Cleanup(d.DB.Close)
	d.Deps.Registry = registry.New(d.DB)
}

func (d *drill) reconciler() *Reconciler {
	return &Reconciler{Most: 100_000, Doctor: &upkeep.Doctor{Janitor: &upkeep.Janitor{
		Registry: d.Deps.Registry, Progress: d.Deps.Progress, Receiving: d.Deps.Receiving, Staging: d.Deps.Staging, Targets: d.Deps.Targets,
		Log: d.Deps.Log, Retention: 14 * 24 * time.Hour, OrphanAge: 24 * time.Hour, Holder: "test",
	}}}
}

// reconciled runs it dry first, which changes nothing.
func (d *drill) reconciled() *Result {
	d.T.Helper()
	before := d.everything()
	dry := must.Get(d.reconciler().Look(d.T.Context()))(d.T)
	if after := d.everything(); after != before {
		d.T.Errorf("a look has changed\n%s\nto\n%s", before, after)
	}
	r := d.reconciler()
	found := must.Get(r.Look(d.T.Context()))(d.T)
	if a, b := describe(dry), describe(found); a != b {
		d.T.Errorf("two looks found\n%s\nand\n%s", a, b)
	}
	must.Do(d.T, r.Do(d.T.Context(), found))
	return found
}

func (d *drill) everything() string {
	return strings.Join(append(d.AllCopies(), append(d.Keys(d.Receiving), d.Rows(`SELECT id || stage || status || claim_token FROM work_items ORDER BY id`)...)...), "\n")
}

func describe(r *Result) string {
	var lines []string
	for _, b := range r.Bags {
		lines = append(lines, fmt.Sprintf("%s %s %d %s", b.Does, b.Object, b.Files, b.Why))
	}
	for _, i := range r.Items {
		lines = append(lines, fmt.Sprintf("item %s at %s", i.Object, i.Stage))
	}
	for _, f := range r.Findings {
		if f.Person {
			lines = append(lines, fmt.Sprintf("%s %s %s %d", f.Store, f.What, f.Why, f.Count))
		}
	}
	return strings.Join(lines, "\n")
}

func (d *drill) is(what, got, want string) {
	d.T.Helper()
	if got != want {
		d.T.Errorf("%s:\n%s\nwant\n%s", what, got, want)
	}
}

// collect walks work in the meantime: read-buckets makes items of the bags that were made again.
func (d *drill) collect() {
	d.T.Helper()
	reader := &upkeep.BucketReader{Registry: d.Deps.Registry, Receiving: d.Deps.Receiving, Log: d.Deps.Log}
	must.Get(reader.ReadAll(context.Background()))(d.T)
}

// decay changes a byte of a copy, and nothing that its bucket says of it but its checksum.
func (d *drill) decay(b *storage.Bucket, key string) {
	d.T.Helper()
	o := must.Get(b.Head(d.T.Context(), key))(d.T)
	content := d.Content(b, key)
	content[3] ^= 1
	must.Get(b.Put(d.T.Context(), key, bytes.NewReader(content), storage.Upload{
		Size: o.Size, SHA256: sha256.Sum256(content), MD5: md5.Sum(content), ContentType: "text/plain", Metadata: o.Metadata,
	}))(d.T)
}

func spec(name, content string) bagtest.Spec {
	return bagtest.Spec{Name: name, Files: []bagtest.File{{Path: "data/a.txt", Content: content}, {Path: "data/b.txt", Content: "the same"}}}
}

// Bags that were ingested after the moment to which the registry was restored come back on record with the
// copies that they had, and nothing is stored twice.
func TestWhatWasIngestedSinceComesBack(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	d.Deposit("before.tar", d.Bag(spec("before", "one")))
	d.Deposit("updated.tar", d.Bag(spec("updated", "first")))
	d.Work()
	backup := d.server.Backup()
	engine := d.Engine()
	for name, content := range map[string]string{"began": "in work", "updated": "second"} {
		d.Deposit(name+".tar", d.Bag(spec(name, content)))
		d.UpTo(engine, registry.Store)
		d.Hold(engine, registry.Store)
	}
	waits := d.Bag(spec("waits", "never touched"))
	at := d.moment()

	d.Exec(`SELECT release(id) FROM work_items WHERE status = 'Started'`)
	d.Work()
	d.Deposit("since.tar", d.Bag(spec("since", "new")))
	d.Work()
	before, recorded := d.Everything(), d.recorded()
	d.PutRaw("waits.tar", waits)

	d.restoredTo(backup, at)
	d.is("what the doctor finds", describe(&Result{Report: d.reconciler().Examine(t.Context())}), strings.Join([]string{
		"Standard-OR copies missing 2", "Standard-OR copies orphan 10", "Standard-VA copies missing 2", "Standard-VA copies orphan 10",
		"database rows restored 1", "receiving bags bag-gone 2",
	}, "\n"))
	d.is("what was found", describe(d.reconciled()), "takes test.edu/began 4 \ntakes test.edu/since 4 \ntakes test.edu/updated 2 ")
	janitor := *d.reconciler().Janitor
	janitor.Retention, janitor.OrphanAge = 0, 0
	must.Get(janitor.Round(t.Context()))(t) // the copies of the item that was cancelled stay
	d.collect()
	d.Work()
	after := d.Everything()
	for name, was := range before {
		if strings.Contains(name, "/") && after[name] != was {
			t.Errorf("%s is %q, and was %q", name, after[name], was)
		}
	}
	again := slices.DeleteFunc(d.recorded(), func(line string) bool { return strings.HasPrefix(line, "test.edu/waits/") })
	d.is("what is on record", strings.Join(again, "\n"), strings.Join(recorded, "\n"))
	d.is("what is left", describe(must.Get(d.reconciler().Look(t.Context()))(t)), "")
}

// recorded are the files on record with their copies.
func (d *drill) recorded() []string {
	d.T.Helper()
	return d.Rows(`SELECT concat_ws(' ', f.identifier, f.uuid, f.size, f.file_format, s.target, s.key, c.digest) FROM generic_files f
		JOIN storage_records s ON s.generic_file_id = f.id JOIN checksums c ON c.generic_file_id = f.id AND c.algorithm = 'sha256'
		WHERE f.state = 'A' ORDER BY 1`)
}

// A deletion that was approved before the moment, and carried out or stopped since, is never carried out by
// the restored registry.
func TestDeletionsAreNotReplayed(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	for _, name := range []string{"carried-out", "stopped"} {
		d.Deposit(name+".tar", d.Bag(spec(name, name)))
	}
	d.Work()
	backup := d.server.Backup()
	d.Exec(`UPDATE request_settings SET deletion_wait = '0'`)
	d.Doomed("test.edu/carried-out")
	stopped := d.Doomed("test.edu/stopped")
	at := d.moment()

	must.Get(requests.In(d.Deps.Registry).CancelDeletion(t.Context(), stopped.ID, "first@test.edu", "not this one"))(t)
	d.Work()
	copies := d.AllCopies()
	if len(copies) != 2*4 {
		t.Fatalf("the buckets have %d copies: the deletion was not carried out", len(copies))
	}

	d.restoredTo(backup, at)
	d.is("what was found", describe(d.reconciled()), "Standard-OR copies missing 4\nStandard-VA copies missing 4")
	d.Work()
	if again := d.AllCopies(); !slices.Equal(again, copies) {
		t.Errorf("the buckets have\n%s\nwant\n%s", strings.Join(again, "\n"), strings.Join(copies, "\n"))
	}
	d.is("the items of deletions", strings.Join(d.Rows(`SELECT DISTINCT status || ': ' || note FROM all_work_items WHERE action = 'Delete'`), "\n"),
		"Cancelled: The registry was restored from a backup. Request the deletion again if it is still wanted.")
}

// A bag that was deleted and deposited again since has its bag in work: what was at its end when the
// backup was made looks at its copies once more, and makes them again.
func TestItemsAtTheirEndLookAgain(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	tar := d.Bag(spec("again", "again"))
	d.Deposit("again.tar", tar)
	d.UpTo(d.Engine(), registry.Cleanup)
	backup := d.server.Backup()
	at := d.moment()

	d.Work()
	for _, target := range d.Deps.Targets { // as a deletion does
		if keys := d.Keys(target); len(keys) > 0 {
			must.Do(t, target.Delete(t.Context(), keys...))
		}
	}
	d.PutRaw("again.tar", tar)

	d.restoredTo(backup, at)
	d.is("what was found", describe(d.reconciled()), "item test.edu/again at Cleanup\nStandard-OR copies missing 4\nStandard-VA copies missing 4")
	d.Work()
	d.is("the item", strings.Join(d.Rows(`SELECT status FROM all_work_items`), "\n"), "Success")
	if n := len(d.AllCopies()); n != 8 {
		t.Errorf("there are %d copies, want 8", n)
	}
}

// A version that was brought back since has the copies that the registry says are replaced. They stay.
func TestReplacedCopiesThatWereBroughtBackStay(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	second := d.Bag(spec("turned", "two"))
	for _, tar := range [][]byte{d.Bag(spec("turned", "one")), second} {
		d.Deposit("turned.tar", tar)
		d.Work()
	}
	d.Deposit("replaced.tar", d.Bag(spec("replaced", "one")))
	d.Work()
	d.Deposit("turned.tar", d.Bag(spec("turned", "three")))
	d.Deposit("replaced.tar", d.Bag(spec("replaced", "two")))
	must.Get(d.Deps.Registry.Pause(t.Context(), registry.Cleanup, "a drill"))(t)
	stop := d.Start()
	testenv.Eventually(t, "both to come to Cleanup", func() bool {
		return pipelinetest.Value[int](d, `SELECT count(*) FROM work_items WHERE stage = 'Cleanup' AND status = 'Pending'`) == 2
	})
	stop()
	backup := d.server.Backup()
	at := d.moment()

	must.Get(d.Deps.Registry.Resume(t.Context(), registry.Cleanup))(t)
	d.Work()
	d.Deposit("turned.tar", second)
	d.Work()
	copies := d.AllCopies()

	d.restoredTo(backup, at)
	d.is("what was found", describe(d.reconciled()), strings.Join([]string{
		"person test.edu/turned 1 no copy of data/a.txt, which is on record, is there",
		"Standard-OR copies missing 2", "Standard-OR copies orphan 1", "Standard-VA copies missing 2", "Standard-VA copies orphan 1",
	}, "\n"))
	must.Get(d.Deps.Registry.Resume(t.Context(), registry.Cleanup))(t) // the person's pause is older than the backup
	d.Work()
	if again := d.AllCopies(); !slices.Equal(again, copies) {
		t.Errorf("the buckets have\n%s\nwant\n%s", strings.Join(again, "\n"), strings.Join(copies, "\n"))
	}
}

// What the copies do not prove is for people, and stays as it is.
func TestWhatIsNotProvedIsForPeople(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	d.BothReadable()
	d.Deposit("both.tar", d.Bag(spec("both", "one")))
	d.Work()
	backup := d.server.Backup()
	at := d.moment()

	large := spec("decayed", "decayed")
	large.Files = append(large.Files, bagtest.File{Path: "data/large.bin", Size: 40 << 20}) // in parts
	d.Deposit("decayed.tar", d.Bag(large))
	d.Deposit("rotten.tar", d.Bag(spec("rotten", "rotten")))
	d.Deposit("half.tar", d.Bag(spec("half", "half")))
	d.Deposit("lost.tar", d.Bag(spec("lost", "lost")))
	uncounted := spec("uncounted", "uncounted")
	uncounted.Tags = []bagtest.Tag{{File: "bag-info.txt", Name: "Payload-Oxum", Value: bagtest.Omit}}
	d.Deposit("uncounted.tar", d.Bag(uncounted))
	uncounted.Name = "single"
	d.Deposit("single.tar", d.Bag(uncounted))
	other := spec("both", "two")
	d.Deposit("both.tar", d.Bag(other))
	d.Work()
	va, or := d.Deps.Targets["Standard-VA"], d.Deps.Targets["Standard-OR"]
	key := func(bag, path string) string { return d.KeyOf("test.edu/" + bag + "/" + path) }
	d.decay(va, key("decayed", "data/a.txt"))
	d.decay(va, key("decayed", "data/large.bin"))
	d.decay(va, key("rotten", "data/a.txt"))
	d.decay(or, key("rotten", "data/a.txt"))
	must.Do(t, va.Delete(t.Context(), key("half", "data/a.txt")))
	must.Do(t, errors.Join(va.Delete(t.Context(), key("lost", "data/a.txt")), or.Delete(t.Context(), key("lost", "data/a.txt"))))
	must.Do(t, va.Delete(t.Context(), key("single", "data/a.txt")))

	d.restoredTo(backup, at)
	d.Overwrite(va, d.KeyOf("test.edu/both/data/a.txt"), []byte("one")) // a bucket that keeps versions was set back
	found := d.reconciled()
	d.is("what was found", describe(found), strings.Join([]string{
		"person test.edu/both 1 another version of data/a.txt is on record, and its copies are there: it is not clear which is the newer",
		"takes test.edu/decayed 5 ",
		"takes test.edu/half 4 ",
		"person test.edu/lost 3 its bag-info.txt counts another payload (12.2) than there are copies of (8.1): files may be deleted or lost",
		"person test.edu/rotten 4 no copy of data/a.txt has the bytes that it was stored with",
		"person test.edu/single 4 its bag-info.txt has no Payload-Oxum, and there is only one copy of data/a.txt: nothing proves that these are all files",
		"takes test.edu/uncounted 4 ", "Standard-OR copies missing 1",
	}, "\n"))
	d.collect()
	d.Work()
	d.is("the items since", strings.Join(d.Rows(`SELECT name || ' ' || status FROM all_work_items WHERE id > 1000000 ORDER BY name`), "\n"),
		"decayed.tar Success\nhalf.tar Success\nuncounted.tar Success")
	for _, name := range []string{"decayed", "half"} {
		if got := string(d.Content(va, d.KeyOf("test.edu/"+name+"/data/a.txt"))); got != name {
			t.Errorf("the copy of %s is %q", name, got)
		}
	}
}

// A snapshot of a disk leaves no trace in the database: a person says so. What was paused stays paused
// until the reconciliation, which may be stopped at any time and takes as many rounds as it needs.
func TestReconcilesInRoundsAndAfterAStop(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	backup := d.server.Backup()
	at := d.moment()
	for i := range 4 {
		name := fmt.Sprintf("bag%d", i)
		d.Deposit(name+".tar", d.Bag(spec(name, name)))
	}
	d.Work()
	recorded := d.recorded()
	d.restoredTo(backup, at)
	d.Exec(`SELECT registry_reconciled()`) // as if nobody had noticed
	must.Do(t, upkeeprecords.In(d.Deps.Registry).NoteRestore(t.Context()))
	must.Do(t, upkeeprecords.In(d.Deps.Registry).NoteRestore(t.Context())) // twice is once

	rounds := 0
	for more := true; more; rounds++ {
		r := d.reconciler()
		r.Most = 2*8 + 1 // two bags of eight copies
		ctx, cancel := context.WithCancel(t.Context())
		if rounds == 0 {
			r.Said = func(string) { cancel() } // in the midst of the first bag
		}
		found := must.Get(r.Look(t.Context()))(t)
		err := r.Do(ctx, found)
		cancel()
		if rounds == 0 && !errors.Is(err, context.Canceled) || rounds > 0 && err != nil {
			t.Fatal(err)
		}
		paused := pipelinetest.Value[int](d, `SELECT count(*) FROM stage_settings WHERE paused`)
		if more = found.More || rounds == 0; more != (paused > 0) {
			t.Errorf("round %d: %d stages are paused, and there is more to do: %v", rounds, paused, more)
		}
		if rounds > 9 {
			t.Fatal("it does not end")
		}
		if found.More { // the bags that are there are ingested when work goes on
			continue
		}
	}
	d.collect()
	d.Work()
	d.is("what is on record", strings.Join(d.recorded(), "\n"), strings.Join(recorded, "\n"))
	d.is("pauses", strings.Join(d.Rows(`SELECT action || stage FROM pauses WHERE lifted_at IS NULL`), "\n"), "")
}
