package upkeep

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

// does runs a job at once and returns its result.
func (a *archive) does(j Job) string {
	a.T.Helper()
	run, err := (&Scheduler{Registry: a.Deps.Registry, Holder: "test", Log: a.Deps.Log}).Now(context.Background(), j)
	if err != nil || run.Err != nil {
		a.T.Fatalf("%s: %+v, %v", j.Name, run, err)
	}
	return run.Result
}

func TestReaderMakesItemsOnSchedule(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	reader := &BucketReader{Registry: a.Deps.Registry, Receiving: a.Deps.Receiving, Log: a.Deps.Log}
	a.DepositRaw("one.tar")
	a.DepositRaw("two.tar")
	if got := a.does(reader.Job(time.Hour)); got != "items made: 2" || pipelinetest.Value[int](a, `SELECT count(*) FROM work_items`) != 2 {
		t.Errorf("result = %q", got)
	}
	if got := a.does(reader.Job(time.Hour)); got != "items made: 0" {
		t.Errorf("result of another look = %q", got)
	}
	// A missing bucket is reported, and the others are read.
	must.Get(a.Deps.Registry.AddInstitution(t.Context(), record.Institution{
		Name: "Absent", Identifier: "absent.edu", ReceivingBucket: a.S3.Prefix + "absent", RestoreBucket: a.S3.Prefix + "none",
	}))(t)
	a.DepositRaw("three.tar")
	run, err := (&Scheduler{Registry: a.Deps.Registry, Log: a.Deps.Log}).Now(t.Context(), reader.Job(time.Hour))
	if err != nil || run.Outcome != Failed || run.Result != "items made: 1" || !strings.Contains(run.Err.Error(), "absent.edu") {
		t.Errorf("run = %+v, %v", run, err)
	}
}

func TestFixityIsFedOnSchedule(t *testing.T) {
	t.Parallel()
	a := newClock(t)
	const allowance = `SELECT allowance || ' ' || every FROM fixity_feed`
	if got := a.does(a.jobs().FixityFeed(30*time.Minute, 0, 90)); !strings.HasPrefix(got, "2500 copies released for checks; 0 were left") || pipelinetest.Value[string](a.Archive, allowance) != "2500 00:30:00" {
		t.Errorf("result = %q, and the feed is %s", got, pipelinetest.Value[string](a.Archive, allowance))
	}
	a.Exec(`UPDATE fixity_feed SET allowance = 7`)
	if got := a.does(a.jobs().FixityFeed(time.Hour, 100, 90)); got != "100 copies released for checks; 7 were left of the last feed" || pipelinetest.Value[string](a.Archive, allowance) != "100 01:00:00" {
		t.Errorf("result = %q, and the feed is %s", got, pipelinetest.Value[string](a.Archive, allowance))
	}
}

func TestJanitorCleansOnSchedule(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.DepositRaw("one.tar")
	a.does((&BucketReader{Registry: a.Deps.Registry, Receiving: a.Deps.Receiving, Log: a.Deps.Log}).Job(time.Hour))
	a.Put(a.Deps.Staging, "1/left")
	var told *Report
	job := a.janitor().Job(time.Hour, func(r *Report) { told = r })
	if got := a.does(job); got != "nothing to remove" || len(a.Keys(a.Deps.Staging)) != 1 {
		t.Errorf("result while the item is in work = %q", got)
	}
	a.Exec(`SELECT cancel(1)`)
	if got := a.does(job); got != "removed 1 objects from staging" || len(a.Keys(a.Deps.Staging)) != 0 || told == nil {
		t.Errorf("result = %q, %+v", got, told)
	}
	a.Deps.Staging = a.Bucket(a.S3.Prefix + "nowhere")
	run, err := (&Scheduler{Registry: a.Deps.Registry, Log: a.Deps.Log}).Now(t.Context(), a.janitor().Job(time.Hour, func(*Report) {}))
	if err != nil || run.Outcome != Failed || !strings.Contains(run.Err.Error(), "staging: ") {
		t.Errorf("run without a staging bucket = %+v, %v", run, err)
	}
}

// thaws asks for a cold bag, and lets its item ask its provider once.
func (a *archive) thaws(names ...string) (ids []int64) {
	a.T.Helper()
	for _, name := range names {
		a.Ingested(bagtest.Spec{Name: name, StorageOption: "Glacier-OH", Files: []bagtest.File{{Path: "data/a", Content: name}, {Path: "data/z", Content: name}}})
	}
	for _, name := range names {
		r := must.Get(requests.In(a.Deps.Registry).RequestRestoration(context.Background(), requests.RestorationRequest{
			Identifier: "test.edu/" + name, Class: "GLACIER", Tier: "Bulk", Days: 10,
		}))(a.T)
		ids = append(ids, r.Item.ID)
	}
	stop := a.Start()
	testenv.Eventually(a.T, "all to wait", func() bool {
		return pipelinetest.Value[int](a, `SELECT count(*) FROM work_items WHERE action = 'Glacier Restore' AND status = 'Pending' AND run_at > now() + interval '30 minutes'`) == len(names)
	})
	stop()
	return ids
}

// due tells whether a worker would take an item now.
func (a *archive) due(id int64) bool {
	a.T.Helper()
	return pipelinetest.Value[bool](a, `SELECT status = 'Pending' AND run_at <= now() FROM work_items WHERE id = $1`, id)
}

// A retrieval that is finished is not waited for until its class's pace is over; one
// that is not is left alone, and so is what waits for something else.
func TestFinishedRetrievalIsWoken(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Deps.ColdPoll = time.Hour
	ids := a.thaws("early", "late", "failed")
	early, late, failed := ids[0], ids[1], ids[2]
	b := a.Deps.Targets["Glacier-OH"]
	last := func(name string) string { return a.KeyOf("test.edu/" + name + "/data/z") }
	for _, name := range []string{"early", "failed"} {
		testenv.Eventually(t, "the provider", func() bool {
			o, err := b.Head(t.Context(), last(name))
			return err == nil && o.Readable(time.Now().Add(24*time.Hour))
		})
	}
	// A copy that is written again has been restored by nobody.
	must.Get(b.Put(t.Context(), last("late"), bytes.NewReader([]byte("late")), storage.Upload{Size: 4}))(t)
	a.Exec(fmt.Sprintf(`UPDATE work_items SET claim_token = claim_token + 1, error_code = 'storage-unavailable' WHERE id = %d`, failed))
	tokens := `SELECT sum(claim_token) FROM work_items WHERE id <> ` + fmt.Sprint(early)
	before, attempts, audited := pipelinetest.Value[int64](a, tokens), pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_attempts`), pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_audit`)
	if list, err := upkeep.In(a.Deps.Registry).WaitingRetrievals(t.Context(), early, 10); err != nil || len(list) != 1 || list[0].Item != late || list[0].File != "test.edu/late/data/z" {
		t.Errorf("after the first there wait %+v, %v", list, err)
	}
	poll := a.jobs().GlacierPoll(time.Hour)
	if got := a.does(poll); got != "waiting items: 2; woken: 1" || !a.due(early) || a.due(late) || a.due(failed) {
		t.Errorf("result = %q; due are %v, %v, %v", got, a.due(early), a.due(late), a.due(failed))
	}
	if pipelinetest.Value[int64](a, tokens) != before || pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_attempts`) != attempts || pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_audit`) != audited {
		t.Error("other items were touched, or it counts as a person's change")
	}
	if got := a.does(poll); got != "waiting items: 1; woken: 0" { // what is due does not wait
		t.Errorf("result of the next poll = %q", got)
	}
	a.Exec(fmt.Sprintf(`SELECT cancel(id) FROM work_items WHERE id IN (%d, %d)`, late, failed))
	a.Work()
	if item := a.Item(early); item.Status != "Success" {
		t.Errorf("item = %s: %s", item.Status, item.Note)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM work_items WHERE action = 'Restore Object' AND status = 'Success'`); n != 1 {
		t.Errorf("%d were restored then", n)
	}
}

// An item whose last file is ready and another is not is woken once within its
// class's pace, and not at every poll: each look of its own asks about all files.
func TestRetrievalIsWokenOnceInItsPace(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Deps.ColdPoll = time.Hour
	id := a.thaws("half")[0]
	b := a.Deps.Targets["Glacier-OH"]
	testenv.Eventually(t, "the provider", func() bool {
		o, err := b.Head(t.Context(), a.KeyOf("test.edu/half/data/z"))
		return err == nil && o.Readable(time.Now().Add(24*time.Hour))
	})
	poll := a.jobs().GlacierPoll(time.Hour)
	if got := a.does(poll); got != "waiting items: 1; woken: 1" {
		t.Errorf("result = %q", got)
	}
	again := fmt.Sprintf(`UPDATE work_items SET claim_token = claim_token + 1, run_at = now() + interval '1 hour' WHERE id = %d`, id)
	a.Exec(again)
	if got := a.does(poll); got != "waiting items: 1; woken: 0" {
		t.Errorf("result of the next poll = %q", got)
	}
	a.Exec(`UPDATE retrievals SET woken_at = now() - interval '3 hours'`) // Bulk is looked at every four
	if got := a.does(poll); got != "waiting items: 1; woken: 0" {
		t.Errorf("result after three hours = %q", got)
	}
	a.Exec(`UPDATE retrievals SET woken_at = now() - interval '5 hours'`)
	if got := a.does(poll); got != "waiting items: 1; woken: 1" {
		t.Errorf("result after five hours = %q", got)
	}
	// A worker that has had the item since it was listed is not disturbed.
	a.Exec(again)
	list, err := upkeep.In(a.Deps.Registry).WaitingRetrievals(t.Context(), 0, 10)
	if err != nil || len(list) != 1 {
		t.Fatalf("WaitingRetrievals = %+v, %v", list, err)
	}
	a.Exec(again)
	if woken, err := upkeep.In(a.Deps.Registry).WakeRetrieval(t.Context(), list[0]); woken || err != nil {
		t.Errorf("WakeRetrieval of what has moved on = %v, %v", woken, err)
	}
	// Of a file that was asked for alone, that is asked about.
	a.Exec(`UPDATE work_items SET claim_token = claim_token + 1, generic_file_id = (SELECT id FROM generic_files WHERE identifier = 'test.edu/half/data/a')
		WHERE action = 'Glacier Restore'`)
	if list, err := upkeep.In(a.Deps.Registry).WaitingRetrievals(t.Context(), 0, 10); err != nil || len(list) != 1 || list[0].File != "test.edu/half/data/a" {
		t.Errorf("of one file there waits %+v, %v", list, err)
	}
	a.Exec(`UPDATE work_items SET claim_token = claim_token + 1, generic_file_id = NULL WHERE action = 'Glacier Restore'`)
	// A file that was deleted in the meantime is not the last.
	a.Exec(`UPDATE generic_files SET state = 'D' WHERE identifier = 'test.edu/half/data/z'`)
	if list, err := upkeep.In(a.Deps.Registry).WaitingRetrievals(t.Context(), 0, 10); err != nil || len(list) != 1 || list[0].File != "test.edu/half/data/a" {
		t.Errorf("without its last file there waits %+v, %v", list, err)
	}
	a.Exec(`UPDATE generic_files SET state = 'A'`)
	// A failing provider is reported.
	a.Exec(`UPDATE retrievals SET woken_at = NULL`)
	must.Do(t, b.Erase(t.Context(), a.KeyOf("test.edu/half/data/z")))
	run, err := (&Scheduler{Registry: a.Deps.Registry, Log: a.Deps.Log}).Now(t.Context(), poll)
	if err != nil || run.Outcome != Failed || run.Result != "waiting items: 1; woken: 0" || !strings.Contains(run.Err.Error(), "test.edu/half/data/z") {
		t.Errorf("run = %+v, %v", run, err)
	}
}

// jobs are the recurring jobs of the test's archive.
func (a *archive) jobs() Jobs {
	return Jobs{Registry: a.Deps.Registry, Targets: a.Deps.Targets, Log: a.Deps.Log}
}
