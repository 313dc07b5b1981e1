package upkeep

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/fixity"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/storage/inventory"
	"github.com/farol-preservation/farol/storage/inventory/inventorytest"
)

// inventories are the reports of an archive's targets, and how often these were listed.
type inventories struct {
	*archive
	to     *storage.Bucket
	listed map[string]*atomic.Int64 // requests, by the name of a bucket
	asked  atomic.Int64             // requests for the object no-record
}

// withInventories stores a bag two days ago, in targets whose listings are counted.
func withInventories(t *testing.T, targets ...string) *inventories {
	t.Helper()
	a := &inventories{archive: newArchive(t), listed: map[string]*atomic.Int64{}}
	a.Ingested(bagtest.Spec{Name: "good", Files: []bagtest.File{{Path: "data/a.bin", Size: 1000}, {Path: "data/b.bin", Size: 2000}, {Path: "data/c.bin", Size: 3000}}})
	a.Exec(`UPDATE storage_records SET stored_at = now() - interval '2 days'`)
	a.to = a.Created(a.S3.Prefix + "reports")
	for _, name := range targets {
		a.listed[a.Deps.Targets[name].Name()] = &atomic.Int64{}
	}
	forward := a.S3.Proxy(t)
	gate := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := a.listed[strings.Trim(r.URL.Path, "/")]; n != nil && r.URL.Query().Get("list-type") == "2" {
			n.Add(1)
		}
		if strings.HasSuffix(r.URL.Path, "/no-record") {
			a.asked.Add(1)
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(gate.Close)
	caFile := testenv.CAFile(t, gate)
	a.Deps = a.With(func(target *storage.Target) { target.Endpoint, target.CAFile = gate.URL, caFile })
	return a
}

func (a *inventories) sources() map[string]inventory.Source {
	list := map[string]inventory.Source{}
	for name := range storeNames(a.listed, a.Deps.Targets) {
		list[name] = inventory.Source{Bucket: a.to, Folder: "daily/" + name + "/farol/", Setting: "FAROL_TARGET_X_INVENTORY"}
	}
	return list
}

// storeNames are the targets whose listings are counted.
func storeNames(listed map[string]*atomic.Int64, targets map[string]*storage.Bucket) map[string]bool {
	names := map[string]bool{}
	for name, b := range targets {
		if listed[b.Name()] != nil {
			names[name] = true
		}
	}
	return names
}

// report is an inventory of a target, of an hour ago, that has what the target has.
func (a *inventories) report(target string) inventorytest.Report {
	a.T.Helper()
	b := a.Deps.Targets[target]
	r := inventorytest.Report{
		Source: b.Name(), Destination: a.to.Name(), Folder: a.sources()[target].Folder, Taken: time.Now().Add(-time.Hour), Files: 3, Versions: true,
	}
	for _, key := range a.Keys(a.Bucket(b.Name())) {
		r.Rows = append(r.Rows, inventorytest.Row{Key: key, Size: must.Get(b.Head(a.T.Context(), key))(a.T).Size})
	}
	slices.Reverse(r.Rows)
	return r
}

// without is the report without some keys.
func without(r inventorytest.Report, keys ...string) inventorytest.Report {
	r.Rows = slices.DeleteFunc(r.Rows, func(row inventorytest.Row) bool { return slices.Contains(keys, row.Key) })
	return r
}

func (a *inventories) publish(objects map[string][]byte) {
	a.T.Helper()
	for key, content := range objects {
		a.Overwrite(a.to, key, content)
	}
}

func (a *inventories) examine() *Report {
	return (&Doctor{Janitor: a.janitor(), Inventories: a.sources()}).Examine(context.Background())
}

func (a *inventories) compare() Job {
	jobs := a.jobs()
	jobs.Inventories = a.sources()
	return jobs.CompareInventories(time.Hour)
}

// lists is how often the targets were listed.
func (a *inventories) lists() (n int64) {
	for _, one := range a.listed {
		n += one.Load()
	}
	return n
}

func (a *inventories) keyOf(target, path string) string {
	return pipelinetest.Value[string](a, `SELECT key FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id
		WHERE s.target = $1 AND f.identifier = 'test.edu/good/' || $2`, target, path)
}

// The doctor finds by the inventory what it finds by a listing, and asks the bucket about every
// difference: an inventory is hours old. What was stored later it leaves for the next one.
func TestDoctorReadsAnInventoryInPlaceOfTheBucket(t *testing.T) {
	t.Parallel()
	const va = "Standard-VA"
	a := withInventories(t, va)
	b := a.Deps.Targets[va]
	a.publish(a.report(va).Objects(nil))
	report := a.examine()
	if len(report.Findings)+len(report.Unchecked) > 0 || len(report.Inventories) != 1 || report.Inventories[0].Same != 5 || report.Inventories[0].Newer != 0 {
		t.Fatalf("of an archive in order: %+v", report)
	}

	const orphan = "zebra/notes & räder+1.txt"
	a.Put(b, orphan)
	gone, cut, newer, late, misread := a.keyOf(va, "data/a.bin"), a.keyOf(va, "data/b.bin"), a.keyOf(va, "data/c.bin"), a.keyOf(va, "aptrust-info.txt"), a.keyOf(va, "bag-info.txt")
	must.Do(t, b.Delete(t.Context(), gone, newer))
	a.Overwrite(b, cut, make([]byte, 1999))
	a.Exec(`UPDATE storage_records SET stored_at = now() WHERE key = '` + newer + `'`)
	r := without(a.report(va), late)
	for i := range r.Rows {
		if r.Rows[i].Key == misread {
			r.Rows[i].Size++
		}
	}
	r.Taken = time.Now().Add(-2 * time.Minute)
	r.Rows = append(r.Rows, inventorytest.Row{Key: "deleted-since", Size: 7}, inventorytest.Row{Key: "deleted-before", Marker: true}, inventorytest.Row{Key: gone, Size: 1000, Old: true})
	a.publish(r.Objects(nil))

	report = a.examine()
	got := map[string]string{}
	for _, f := range report.Findings {
		got[f.Store+" "+f.Why] += strings.Join(f.Names, " ")
	}
	want := map[string]string{va + " missing": gone, va + " resized": cut, va + " orphan": orphan}
	if len(got) != 3 || got[va+" missing"] != gone || got[va+" resized"] != cut || got[va+" orphan"] != orphan || len(report.Unchecked) > 0 {
		t.Errorf("found %q, want %q; unchecked %+v", got, want, report.Unchecked)
	}
	if len(report.Inventories) != 1 || report.Inventories[0].Newer != 1 || report.Inventories[0].Wrong != 2 || report.Inventories[0].Same != 0 || report.Inventories[0].Manifest != r.Dated()+"manifest.json" {
		t.Errorf("compared with %+v", report.Inventories)
	}
	if n := a.lists(); n > 0 {
		t.Errorf("the target was listed by %d requests", n)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM fixity_checks`); n > 0 {
		t.Errorf("the doctor has requested %d checks", n)
	}
}

// An object that is gone since is no orphan, also among more of them than are asked for their owners.
func TestObjectThatIsGoneSinceIsNoOrphan(t *testing.T) {
	t.Parallel()
	const va = "Standard-VA"
	a := withInventories(t, va)
	r := a.report(va)
	r.Rows = append(r.Rows, inventorytest.Row{Key: "deleted-since", Size: 7})
	a.publish(r.Objects(nil))
	c := &comparison{
		Doctor: &Doctor{Janitor: a.janitor(), Inventories: a.sources()}, report: &Report{}, name: va, target: a.Deps.Targets[va], now: time.Now(),
		owners: map[string]owner{}, asked: mostAsked,
	}
	must.Do(t, c.run(t.Context()))
	if len(c.report.Findings) > 0 {
		t.Errorf("found %+v", c.report.Findings)
	}
}

// An inventory that cannot be read leaves its target unchecked: nothing is missing by it, and
// nobody pays for a listing that they have an inventory to avoid.
func TestUnreadableInventoryLeavesItsTargetUnchecked(t *testing.T) {
	t.Parallel()
	const va = "Standard-VA"
	for name, tc := range map[string]struct {
		publish func(a *inventories)
		want    string
	}{
		"none":    {func(*inventories) {}, "it has no complete report: set FAROL_TARGET_X_INVENTORY"},
		"too old": {func(a *inventories) { r := a.report(va); r.Taken = r.Taken.Add(-9 * days); a.publish(r.Objects(nil)) }, "more than 8 days"},
		"Parquet": {func(a *inventories) {
			a.publish(a.report(va).Objects(func(m map[string]any) { m["fileFormat"] = "Parquet" }))
		}, "to CSV"},
		"truncated": {func(a *inventories) {
			for key, content := range a.report(va).Objects(nil) {
				if strings.HasSuffix(key, "-2.csv.gz") {
					content = content[:len(content)/2]
				}
				a.publish(map[string][]byte{key: content})
			}
		}, "-2.csv.gz"},
		"the bucket is gone": {func(a *inventories) {
			a.publish(a.report(va).Objects(nil))
			target := storage.Target{Name: va, Bucket: a.Deps.Targets[va].Name() + "-gone"}
			a.Deps.Targets[va] = a.Opened(target)
		}, "check bucket Standard-VA"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := withInventories(t, va)
			sources := a.sources()
			tc.publish(a)
			report := (&Doctor{Janitor: a.janitor(), Inventories: sources}).Examine(t.Context())
			i := slices.IndexFunc(report.Unchecked, func(u Unchecked) bool { return strings.Contains(u.Error, tc.want) })
			if i < 0 || report.Unchecked[i].Store != va || len(report.Findings) > 0 || len(report.Inventories) > 0 || a.lists() > 0 {
				t.Errorf("%d listings, report %+v; want %q", a.lists(), report, tc.want)
			}
			jobs := a.jobs()
			jobs.Inventories = sources
			run, err := (&Scheduler{Registry: a.Deps.Registry, Log: a.Deps.Log}).Now(t.Context(), jobs.CompareInventories(time.Hour))
			if err != nil || run.Outcome != Failed || !strings.Contains(run.Err.Error(), tc.want) || pipelinetest.Value[int](a, `SELECT count(*) FROM fixity_checks`) > 0 {
				t.Errorf("run = %+v, %v", run, err)
			}
		})
	}
}

// A copy that an inventory lacks, or has in part, is checked at once, in a target of an archive
// class too, whose copies nobody reads. The check decides; once it has, it is not asked for again.
func TestLostCopiesArePutForwardForChecks(t *testing.T) {
	t.Parallel()
	const va, or = "Standard-VA", "Standard-OR"
	a := withInventories(t, va, or)
	gone, cut, cold := a.keyOf(va, "data/a.bin"), a.keyOf(va, "data/b.bin"), a.keyOf(or, "data/c.bin")
	must.Do(t, a.Deps.Targets[va].Delete(t.Context(), gone))
	must.Do(t, a.Deps.Targets[or].Delete(t.Context(), cold))
	a.Overwrite(a.Deps.Targets[va], cut, make([]byte, 1999))
	a.Put(a.Deps.Targets[va], "no-record")
	r := without(a.report(va), a.keyOf(va, "data/c.bin")) // which is there
	a.publish(r.Objects(nil))
	a.publish(a.report(or).Objects(nil))
	of := "S3 Inventory of " + r.Taken.UTC().Format("2006-01-02 15:04 MST")
	a.asked.Store(0)
	if got, want := a.does(a.compare()), or+": "+of+", put forward for checks: 1, newer: 0; "+va+": "+of+", put forward for checks: 2, newer: 0"; got != want {
		t.Errorf("result = %q, want %q", got, want)
	}
	if got := a.Rows(`SELECT s.key FROM fixity_checks c JOIN storage_records s ON s.id = c.storage_record_id WHERE requested AND run_at <= now() ORDER BY key`); !slices.Equal(got, slices.Sorted(slices.Values([]string{gone, cut, cold}))) {
		t.Errorf("checks are due of %q", got)
	}
	if got := a.does(a.compare()); strings.Count(got, "put forward for checks: 0") != 2 {
		t.Errorf("result of another run = %q", got)
	}

	ctx, cancel := context.WithCancel(context.Background())
	checker := &fixity.Checker{Registry: a.Deps.Registry, Targets: a.Deps.Targets, Log: a.Deps.Log, Worker: "w", Slots: 2, Attempts: 3, Days: 90, Poll: 20 * time.Millisecond, Again: time.Millisecond}
	var running sync.WaitGroup
	running.Go(func() { _ = checker.Run(ctx) })
	testenv.Eventually(t, "the checks", func() bool { return pipelinetest.Value[int](a, `SELECT count(*) FROM fixity_checks`) == 0 })
	cancel()
	running.Wait()
	if got := a.Rows(`SELECT s.key || ' ' || b.problem FROM fixity_failures b JOIN storage_records s ON s.id = b.storage_record_id WHERE b.state = 'open' ORDER BY 1`); !slices.Equal(got, slices.Sorted(slices.Values([]string{gone + " missing", cut + " altered", cold + " missing"}))) {
		t.Errorf("bad copies: %q", got)
	}
	if n := pipelinetest.Value[int](a, `SELECT coalesce(sum(checks), 0) FROM fixity_done`); n != 3 {
		t.Errorf("%d fixity checks were made, want those 3", n)
	}
	if got := a.does(a.compare()); strings.Count(got, "put forward for checks: 0") != 2 || pipelinetest.Value[int](a, `SELECT count(*) FROM fixity_checks`) > 0 {
		t.Errorf("result once all is known = %q", got)
	}
	if n := a.asked.Load(); n > 0 {
		t.Errorf("%d requests for an object without a record, which is the doctor's", n)
	}
	if n := a.lists(); n > 0 {
		t.Errorf("targets were listed by %d requests", n)
	}
}

// A check that failed and waits for its next try is put forward; one in progress stays its
// worker's.
func TestPutForwardLeavesChecksInProgress(t *testing.T) {
	t.Parallel()
	const va = "Standard-VA"
	a := withInventories(t, va)
	waits, runs := a.keyOf(va, "data/a.bin"), a.keyOf(va, "data/b.bin")
	must.Do(t, a.Deps.Targets[va].Delete(t.Context(), waits, runs))
	a.publish(a.report(va).Objects(nil))
	a.Exec(`INSERT INTO fixity_checks (storage_record_id, target, token, run_at, worker)
		SELECT id, target, 1, now() + interval '1 hour', CASE key WHEN '` + runs + `' THEN 'w' ELSE '' END FROM storage_records WHERE target = '` + va + `' AND key IN ('` + waits + `', '` + runs + `')`)
	a.does(a.compare())
	got := a.Rows(`SELECT concat_ws(' ', s.key, requested, run_at <= now(), token, worker) FROM fixity_checks c JOIN storage_records s ON s.id = c.storage_record_id ORDER BY 1`)
	if want := slices.Sorted(slices.Values([]string{waits + " t t 1 ", runs + " t f 1 w"})); !slices.Equal(got, want) {
		t.Errorf("checks %q, want %q", got, want)
	}
}

// An inventory with a filter lacks most of a bucket. That is found out before each copy has cost a
// request.
func TestInventoryOfAPartIsRefused(t *testing.T) {
	t.Parallel()
	c := &comparison{Doctor: &Doctor{}, name: "Standard-VA", inventory: &inventory.Report{Manifest: "2026-11-29T01-00Z/manifest.json"}, wrong: 10_001}
	for _, tc := range []struct {
		same int64
		part bool
	}{{0, true}, {100_000, true}, {100_010, false}} {
		c.same = tc.same
		if err := c.trusted(); (err != nil) != tc.part {
			t.Errorf("%d as on record: %v", tc.same, err)
		}
	}
	c.same, c.wrong = 0, 10_000
	if err := c.trusted(); err != nil {
		t.Error(err)
	}
}
