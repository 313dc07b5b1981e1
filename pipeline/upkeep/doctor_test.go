package upkeep

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry/upkeep"
)

func (a *archive) examine() *Report {
	return (&Doctor{Janitor: a.janitor()}).Examine(context.Background())
}

// found returns the names of a finding; nil if it is not there.
func found(r *Report, store, what, why string) []string {
	for _, f := range r.Findings {
		if f.Store == store && f.What == what && f.Why == why {
			return f.Names
		}
	}
	return nil
}

// The doctor finds what was planted, each thing by its name, and before that
// nothing, also while items are in work.
func TestDoctorFindsWhatWasPlanted(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Deposit("good.tar", a.Bag(bagtest.Spec{Name: "good", Files: []bagtest.File{{Path: "data/a.txt", Content: "hello"}}}))
	a.Work()
	a.healthy()
	engine := a.Engine()
	running := a.halfStored("running", engine) // with copies that are on no record yet
	a.healthy()

	va, or := a.Deps.Targets["Standard-VA"], a.Deps.Targets["Standard-OR"]
	const orphan = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
	ctx := t.Context()
	a.Put(va, orphan)
	a.Put(va, "zebra/notes.txt")
	a.Put(a.Deps.Staging, "999/data")
	a.Put(a.Deps.Staging, "notes/of-somebody")
	a.Upload(a.Deps.Staging, "999/large")
	a.Upload(va, "not-ours")
	must.Do(t, a.Deps.Progress.Put(ctx, progress.Claim{Item: 999, Token: 1}, "Store@1", "upload", "x"))
	a.DepositRaw("README")
	gone := pipelinetest.Value[string](a, `SELECT key FROM storage_records WHERE target = 'Standard-OR' ORDER BY key LIMIT 1`)
	must.Do(t, or.Delete(ctx, gone))
	a.Exec(`DELETE FROM storage_records WHERE target = 'Standard-VA' AND key = (SELECT max(key) FROM storage_records)`)
	a.Exec(`UPDATE work_item_attempts SET ended_at = now(), outcome = 'released' WHERE ended_at IS NULL`)
	testenv.Scene(t, a.DB, `INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker) VALUES (4711, 1, 'Store', 1, 'n', 1, 'w')`)
	testenv.Scene(t, a.DB, `UPDATE work_items SET lease_expires_at = now() - interval '1 hour' WHERE status = 'Started'`)
	testenv.Scene(t, a.DB, `INSERT INTO uploads_in_work VALUES ('test.edu/ghost', 'ghost.tar', 'e', 4711)`)
	testenv.Scene(t, a.DB, `DELETE FROM uploads_in_work WHERE work_item_id = $1`, running)
	testenv.Scene(t, a.DB, `UPDATE generic_files SET deleted_by_item = 4711 WHERE identifier = 'test.edu/good/data/a.txt'`)
	testenv.Scene(t, a.DB, `UPDATE generic_files SET deleted_by_item = $1 WHERE identifier = 'test.edu/good/bag-info.txt'`, running) // by a running deletion

	report := a.examine()
	for kind, want := range map[[3]string]string{
		{"Standard-VA", "copies", "orphan"}:           orphan,
		{"Standard-VA", "uploads", "foreign"}:         "not-ours",
		{"Standard-OR", "copies", "missing"}:          gone,
		{"staging", "objects", "unknown-item"}:        "999/",
		{"staging", "objects", "foreign"}:             "notes/",
		{"staging", "uploads", "unknown-item"}:        "999/large",
		{"redis", "keys", "unknown-item"}:             "999",
		{"receiving", "bags", "no-bag"}:               a.In.ReceivingBucket + "/README",
		{"database", "rows", "incomplete"}:            "test.edu/good/",
		{"database", "rows", "lapsed-lease"}:          fmt.Sprint("item ", running),
		{"database", "rows", "claim-without-attempt"}: fmt.Sprint("item ", running),
		{"database", "rows", "attempt-without-claim"}: "item 4711",
		{"database", "rows", "upload-without-item"}:   "ghost.tar",
		{"database", "rows", "item-without-upload"}:   fmt.Sprint("item ", running),
		{"database", "rows", "deletion-unfinished"}:   "test.edu/good/data/a.txt",
	} {
		names := found(report, kind[0], kind[1], kind[2])
		if !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, want) }) {
			t.Errorf("%v: %v, want %s", kind, names, want)
		}
	}
	if !slices.Contains(found(report, "Standard-VA", "copies", "orphan"), "zebra/notes.txt") || !report.NeedsPerson() || len(report.Unchecked) > 0 {
		t.Errorf("report = %+v", report)
	}
	if unfinished := found(report, "database", "rows", "deletion-unfinished"); len(unfinished) != 1 {
		t.Errorf("unfinished deletions: %v", unfinished)
	}
	if n := len(report.Findings); n > 16 {
		t.Errorf("%d findings:\n%+v", n, report.Findings)
	}
}

// A store that does not answer is not an empty one.
func TestDoctorSaysWhatItCouldNotReach(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	absent := a.Bucket(a.S3.Prefix + "absent")
	a.Deps.Targets["Wasabi-TX"] = absent
	delete(a.Deps.Targets, "Glacier-OH")
	a.Deps.Staging = absent
	report := a.examine()
	stores := map[string]bool{}
	for _, u := range report.Unchecked {
		stores[u.Store] = true
	}
	if !stores["Wasabi-TX"] || !stores["Glacier-OH"] || !stores["staging"] || len(stores) != 3 {
		t.Errorf("unchecked: %+v", report.Unchecked)
	}
}

// A bucket and its records are walked side by side, also where more than a page of
// either has no counterpart.
func TestDoctorComparesMoreThanAPage(t *testing.T) {
	t.Parallel()
	const many = 2300
	a := newArchive(t)
	a.Deposit("good.tar", a.Bag(bagtest.Spec{Name: "good"}))
	a.Work()
	testenv.Scene(t, a.DB, `INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at)
		SELECT 1000000 + n, 'https://x/' || n, 'Wasabi-VA', 'b', 'key-' || lpad(n::text, 5, '0'), now(), now() FROM generate_series(1, $1::int) n`, many)
	for i := 1; i <= many; i += 100 { // some of them are there
		a.Put(a.Deps.Targets["Wasabi-VA"], fmt.Sprintf("key-%05d", i))
	}
	a.Put(a.Deps.Targets["Wasabi-VA"], "KEY") // bytes, not words: it comes before all others
	a.Put(a.Deps.Targets["Wasabi-VA"], "key-00000")
	a.Put(a.Deps.Targets["Wasabi-VA"], "key-00101x")
	a.Put(a.Deps.Targets["Wasabi-VA"], "key-99999")
	report := a.examine()
	got := map[string]int64{}
	for _, f := range report.Findings {
		got[f.Why] += f.Count
	}
	if got["missing"] != many-many/100 || got["orphan"] != 4 || len(got) != 2 || len(report.Unchecked) > 0 {
		t.Errorf("findings: %v\n%+v", got, report)
	}
}

// Copies whose owner cannot be asked for any more are distinguished by their time.
func TestCopyThatIsYoungerThanItemsInWorkMayBeTheirs(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	engine := a.Engine()
	id := a.halfStored("running", engine)
	d := &Doctor{Janitor: a.janitor()}
	compare := func() int64 {
		t.Helper()
		copying := must.Get(upkeep.In(a.Deps.Registry).CopyingSince(t.Context()))(t)
		report := &Report{}
		c := &comparison{
			Doctor: d, report: report, name: "Standard-VA", target: a.Deps.Targets["Standard-VA"], now: time.Now(),
			owners: map[string]owner{}, asked: mostAsked, copying: copying,
		}
		must.Do(t, c.run(t.Context()))
		return counts(report, Leaves)["Standard-VA copies orphan"]
	}
	if n := compare(); n != 0 {
		t.Errorf("%d copies of an item in work are called orphans", n)
	}
	a.Exec(fmt.Sprintf(`SELECT cancel(%d)`, id))
	if n := compare(); n != 5 {
		t.Errorf("%d orphans, want 5", n)
	}
}
