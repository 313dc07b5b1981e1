package fixity

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/storage"
)

// warm makes the second copy of a file one that can be read like the first.
func (a *archive) warm() {
	a.T.Helper()
	was := a.Deps.Targets["Standard-OR"]
	a.Deps.Targets["Standard-OR"] = a.Bucket(was.Name())
}

func (a *archive) repairer() *Repairer {
	return &Repairer{
		Registry: a.Deps.Registry, Targets: a.Deps.Targets, Log: a.Deps.Log, Worker: "r", Quarantine: a.Bucket(a.S3.Prefix + "quarantine"), Again: time.Millisecond,
		Limits: fixity.RepairLimits{Failures: 10, Share: 5, Least: 100},
	}
}

func (a *archive) bad() []record.FixityBadCopy {
	a.T.Helper()
	return must.Get(fixity.In(a.Deps.Registry).BadCopies(context.Background(), "", 0, 0, 1000))(a.T)
}

// repaired has all bad copies repaired, and returns what became of each by its path.
func (a *archive) repaired(r *Repairer) map[string]Repair {
	a.T.Helper()
	results := map[string]Repair{}
	for _, b := range a.bad() {
		results[strings.TrimPrefix(b.File, "test.edu/bag/data/")] = r.Repair(context.Background(), b)
	}
	return results
}

// foundBad has all copies of some files in Standard-VA checked.
func (a *archive) foundBad(like string) {
	a.T.Helper()
	a.MakeDue(like)
	a.checked(a.checker())
}

func (a *archive) head(b *storage.Bucket, key string) storage.Object {
	a.T.Helper()
	return must.Get(b.Head(context.Background(), key))(a.T)
}

const repairEvents = `SELECT concat_ws(' | ', substr(f.identifier, 19), e.detail, e.outcome, e.outcome_detail, e.outcome_information) FROM premis_events e
	JOIN generic_files f ON f.id = e.generic_file_id WHERE e.detail LIKE 'Replaced%' ORDER BY f.identifier`

// A bad copy becomes what it was, under the same key, with all that an ingest gives
// it; what it had become is kept, and the record tells of both.
func TestBadCopiesAreReplacedByGoodOnes(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.warm()
	large := strings.Repeat("0123456789abcdef", 1<<20)
	contents := map[string]string{"altered": "content of altered", "missing": "content of missing", "empty": "", "large": large, "good": "good", "ödd  name": "odd"}
	a.Stored(contents)
	first := a.Deps.Targets["Standard-VA"]
	was := map[string]storage.Object{}
	for path := range contents {
		was[path] = a.head(first, a.CopyKey(path))
	}
	spoilt := a.Spoil(first, "altered")
	a.Spoil(first, "large")
	a.Spoil(first, "ödd  name")
	a.Overwrite(first, a.CopyKey("empty"), []byte("not empty"))
	must.Do(t, first.Delete(t.Context(), a.CopyKey("missing")))
	a.foundBad("%/data/%")
	a.Exec(`UPDATE storage_records SET verified_at = '2020-01-01', stored_at = '2020-01-01', etag = 'old'`)
	r := a.repairer()
	r.parts = 5 << 20
	results := a.repaired(r)
	if len(results) != 5 {
		t.Errorf("%d bad copies, want 5", len(results))
	}
	for path, d := range results {
		key := a.CopyKey(path)
		if d.Result != RepairDone || d.From != a.Deps.Targets["Standard-OR"].URL(key) || (d.QuarantinedAs == "") != (path == "missing") {
			t.Errorf("%s: %+v", path, d)
		}
		if got := string(a.Content(first, key)); got != contents[path] {
			t.Errorf("%s has %d bytes now, want the %d that were ingested", path, len(got), len(contents[path]))
		}
		if diff := cmp.Diff(was[path], a.head(first, key), cmpopts.IgnoreFields(storage.Object{}, "LastModified", "ETag", "SHA256")); diff != "" {
			t.Errorf("%s (-as the ingest +now):\n%s", path, diff)
		}
	}
	kept := a.Keys(r.Quarantine)
	prefix := "Standard-VA/" + a.CopyKey("altered") + "/20"
	for _, key := range kept {
		if strings.HasPrefix(key, prefix) && string(a.Content(r.Quarantine, key)) != string(spoilt) {
			t.Errorf("%s does not have the bad bytes", key)
		}
	}
	if len(kept) != 4 || !strings.Contains(strings.Join(kept, " "), prefix) {
		t.Errorf("in quarantine: %q", kept)
	}
	events := a.Rows(repairEvents)
	want := "altered | Replaced a damaged copy from a verified one | Success | " + first.URL(a.CopyKey("altered")) + " | Copied from " + results["altered"].From +
		". The damaged bytes are at " + results["altered"].QuarantinedAs + "."
	if len(events) != 5 || events[0] != want || !strings.Contains(events[3], "missing | Replaced a missing copy from a verified one | ") ||
		!strings.HasSuffix(events[3], "There were no bytes to keep.") {
		t.Errorf("events %q, want five like %s", events, want)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM fixity_failures WHERE state = 'repaired' AND closed_at IS NOT NULL`); n != 5 {
		t.Errorf("%d failures are repaired, want 5", n)
	}
	for _, path := range []string{"altered", "large"} {
		got := pipelinetest.Value[string](a, `SELECT concat_ws(' ', etag, verified_at > now() - interval '1 minute', stored_at > '2020-01-01', last_fixity_at > now() - interval '1 minute')
			FROM storage_records WHERE target = 'Standard-VA' AND key = $1`, a.CopyKey(path))
		if got != a.head(first, a.CopyKey(path)).ETag+" t t t" {
			t.Errorf("%s is on record as %s", path, got)
		}
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM storage_records WHERE etag <> 'old'`) + pipelinetest.Value[int](a, `SELECT count(*) FROM fixity_checks WHERE worker <> ''`); n != 5 {
		t.Errorf("%d records changed, want 5", n)
	}
	a.foundBad("%/data/%")
	if left := a.bad(); len(left) > 0 {
		t.Errorf("bad copies afterwards: %+v", left)
	}
}

// Nothing is written where there is nothing good to write, and people read what they
// can do about it.
func TestRepairThatCannotBe(t *testing.T) {
	t.Parallel()
	a := newArchive(t) // with the second copy archived
	a.Stored(map[string]string{"cold": "cold", "both": "both", "healed": "healed", "held": "held", "gone": "gone"})
	first, second := a.Deps.Targets["Standard-VA"], a.Deps.Targets["Standard-OR"]
	for _, path := range []string{"cold", "both", "healed", "held", "gone"} {
		a.Spoil(first, path)
	}
	a.foundBad("%/data/%")
	a.Overwrite(first, a.CopyKey("healed"), []byte("healed"))
	must.Get(second.Put(t.Context(), a.CopyKey("both"), strings.NewReader("hotb"), storage.Upload{Size: 4}))(t)
	if state, err := second.Restore(t.Context(), a.CopyKey("both"), storage.Retrieval{Days: 1}); err != nil {
		t.Fatal(state, err)
	}
	testenv.Eventually(t, "the copy to be readable", func() bool { return a.head(second, a.CopyKey("both")).Readable(time.Now()) })
	a.Exec(`INSERT INTO fixity_checks (storage_record_id, target, token, worker, run_at) SELECT storage_record_id, target, 1, 'other', now() + interval '1 minute'
		FROM bad_copies WHERE file LIKE '%/held'`)
	a.Exec(`DELETE FROM storage_records WHERE target = 'Standard-OR' AND generic_file_id = (SELECT id FROM generic_files WHERE identifier LIKE '%/gone')`)
	before := a.Everything()
	results := a.repaired(a.repairer())
	for path, want := range map[string][]string{
		"cold":   {RepairLeft, "Standard-OR", "archived", "made readable first, which costs money"},
		"both":   {RepairLeft, "Standard-OR", "digest mismatch"},
		"healed": {RepairGood},
		"held":   {RepairLeft, "another worker or person is repairing it"},
		"gone":   {RepairLeft, "there is no good copy"},
	} {
		for _, part := range want[1:] {
			if !strings.Contains(results[path].Reason, part) {
				t.Errorf("%s is left for %q, want %q", path, results[path].Reason, part)
			}
		}
		if results[path].Result != want[0] {
			t.Errorf("%s is %s: %s", path, results[path].Result, results[path].Reason)
		}
	}
	after := a.Everything()
	for name, was := range before {
		if strings.Contains(name, "preservation") && after[name] != was {
			t.Errorf("%s changed", name)
		}
	}
	if got := a.Rows(`SELECT file || ' ' || problem FROM bad_copies WHERE target = 'Standard-OR'`); len(got) != 1 || !strings.HasSuffix(got[0], "/both altered") {
		t.Errorf("on record of the second copies: %q, want the one that is bad too", got)
	}
	if got := a.Rows(`SELECT state FROM fixity_failures WHERE state <> 'open'`); len(got) != 1 || got[0] != "good again" {
		t.Errorf("failures that are no more: %q", got)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM fixity_checks WHERE worker NOT IN ('', 'other') OR worker = '' AND run_at > now()`); n > 0 {
		t.Errorf("%d copies were not given back", n)
	}
	// Made readable, it is repaired.
	r := a.repairer()
	r.Retrieve = "Standard"
	if d := a.repaired(r)["cold"]; !strings.Contains(d.Reason, "it was asked for (started)") {
		t.Errorf("asked to make it readable: %+v", d)
	}
	testenv.Eventually(t, "the copy to be readable", func() bool { return a.head(second, a.CopyKey("cold")).Readable(time.Now()) })
	if d := a.repaired(a.repairer())["cold"]; d.Result != RepairDone || string(a.Content(first, a.CopyKey("cold"))) != "cold" {
		t.Errorf("once it is readable: %+v", d)
	}
}

// A repair may die at any request. The next repair does the rest, and the
// record tells of one repair.
func TestRepairMayDieAnywhere(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.warm()
	const files = 24
	contents := map[string]string{}
	for i := range files {
		contents[fmt.Sprintf("%02d", i)] = fmt.Sprintf("the content of %02d", i)
	}
	a.Stored(contents)
	gates := []*s3Gate{a.gatedTarget("Standard-VA"), a.gatedTarget("Standard-OR")}
	first := a.Deps.Targets["Standard-VA"]
	spoilt := map[string]string{}
	for path := range contents {
		spoilt[path] = string(a.Spoil(first, path))
	}
	a.foundBad("%/data/%")
	r := a.repairer()
	r.Limits.Failures, r.Limits.Least = 1000, 1000
	most := 0
	for i, b := range a.bad() {
		ctx, die := context.WithCancel(t.Context())
		var mu sync.Mutex
		n := 0
		for _, g := range gates {
			g.set(func(w http.ResponseWriter, q *http.Request, pass http.Handler) {
				mu.Lock()
				n++
				most = max(most, n)
				dies, after := n == 1+i/2, i%2 == 1
				mu.Unlock()
				if dies && !after { // before the request arrives
					die()
					panic(http.ErrAbortHandler)
				}
				pass.ServeHTTP(w, q)
				if dies { // or before its answer does
					die()
				}
			})
		}
		r.Repair(ctx, b)
		die()
	}
	for _, g := range gates {
		g.set(nil)
	}
	if most < 6 || 2*most > files+2 {
		t.Errorf("a repair takes %d requests; %d files let it die at %d", most, files, files/2)
	}
	for path, d := range a.repaired(r) {
		if d.Result != RepairDone {
			t.Errorf("%s: %+v", path, d)
		}
	}
	for path, content := range contents {
		if got := string(a.Content(first, a.CopyKey(path))); got != content {
			t.Errorf("%s is %q", path, got)
		}
	}
	if n := len(a.Rows(repairEvents)); n != files {
		t.Errorf("%d events, want %d", n, files)
	}
	kept := map[string]string{}
	for _, key := range a.Keys(r.Quarantine) {
		kept[strings.Split(key, "/")[1]] += string(a.Content(r.Quarantine, key))
	}
	for path, bytes := range spoilt {
		if kept[a.CopyKey(path)] != bytes {
			t.Errorf("of %s quarantine has %q", path, kept[a.CopyKey(path)])
		}
	}
}

// Two never write one copy.
func TestRepairersShareTheWork(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.warm()
	contents := map[string]string{}
	for i := range 8 {
		contents[fmt.Sprint(i)] = fmt.Sprint("content ", i)
	}
	a.Stored(contents)
	first := a.Deps.Targets["Standard-VA"]
	for path := range contents {
		a.Spoil(first, path)
	}
	a.foundBad("%/data/%")
	g := a.gatedTarget("Standard-VA")
	var mu sync.Mutex
	writes := map[string]int{}
	g.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Method == http.MethodPut {
			mu.Lock()
			writes[r.URL.Path]++
			mu.Unlock()
		}
		pass.ServeHTTP(w, r)
	})
	list := a.bad()
	var all sync.WaitGroup
	for w := range 3 {
		r := a.repairer()
		r.Worker = fmt.Sprint(w)
		all.Go(func() {
			for _, b := range list {
				r.Repair(context.Background(), b)
			}
		})
	}
	all.Wait()
	for path, n := range writes {
		if n != 1 {
			t.Errorf("%s was written %d times", path, n)
		}
	}
	if len(writes) != len(contents) || len(a.bad()) > 0 || len(a.Rows(repairEvents)) != len(contents) {
		t.Errorf("%d copies were written, %d are bad, %d events", len(writes), len(a.bad()), len(a.Rows(repairEvents)))
	}
}

// goingSQL has a deletion begin to remove all copies.
const goingSQL = `INSERT INTO deletion_receipts (work_item_id, generic_file_id, target, bucket, key, url, begun_at) SELECT 1, generic_file_id, target, bucket, key, url, now() FROM storage_records ON CONFLICT DO NOTHING;
	UPDATE generic_files SET deleted_by_item = 1`

// Bytes that come back to where a deletion has just been are removed again.
func TestRepairLeavesNothingOfADeletedFile(t *testing.T) {
	t.Parallel()
	for name, deleted := range map[string]string{
		"being deleted": goingSQL,
		"deleted":       `DELETE FROM storage_records WHERE generic_file_id = (SELECT id FROM generic_files WHERE identifier LIKE '%/a')`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.warm()
			a.Stored(map[string]string{"a": "content"})
			first, key := a.Deps.Targets["Standard-VA"], a.CopyKey("a")
			a.Spoil(first, "a")
			a.foundBad("%/data/a")
			list := a.bad()
			g := a.gatedTarget("Standard-VA")
			r := a.repairer()
			g.set(func(w http.ResponseWriter, q *http.Request, pass http.Handler) {
				if q.Method == http.MethodPut {
					a.Exec(deleted)
				}
				pass.ServeHTTP(w, q)
			})
			if d := r.Repair(t.Context(), list[0]); d.Result != RepairLeft {
				t.Errorf("it is %+v", d)
			}
			if keys := strings.Join(a.Keys(first), " "); strings.Contains(keys, key) {
				t.Errorf("%s is there", key)
			}
			if n := len(a.Rows(repairEvents)); n > 0 {
				t.Errorf("%d events", n)
			}
		})
	}
	// Marked a moment earlier, nothing is written at all.
	a := newArchive(t)
	a.warm()
	a.Stored(map[string]string{"a": "content"})
	spoilt := a.Spoil(a.Deps.Targets["Standard-VA"], "a")
	a.foundBad("%/data/a")
	list := a.bad()
	g := a.gatedTarget("Standard-OR")
	r := a.repairer()
	g.set(func(w http.ResponseWriter, q *http.Request, pass http.Handler) {
		a.Exec(goingSQL)
		pass.ServeHTTP(w, q)
	})
	if d := r.Repair(t.Context(), list[0]); !strings.Contains(d.Reason, "claim lost") {
		t.Errorf("it is %+v", d)
	}
	if got := a.Content(a.Deps.Targets["Standard-VA"], a.CopyKey("a")); string(got) != string(spoilt) {
		t.Errorf("it was overwritten: %q", got)
	}
}

// A provider that returns wrong bytes for one copy in twenty is an incident. None of
// its copies is overwritten, people are notified once, and one of them has to say so
// before it goes on.
func TestRepairStopsByItself(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.warm()
	contents := map[string]string{}
	for i := range 300 {
		contents[fmt.Sprintf("%03d", i)] = fmt.Sprint("content ", i)
	}
	a.Stored(contents)
	lied := map[string]bool{}
	for i := 0; i < 300; i += 20 {
		lied[a.CopyKey(fmt.Sprintf("%03d", i))] = true
	}
	g := a.gatedTarget("Standard-VA")
	var mu sync.Mutex
	writes, lies := 0, 0
	g.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		lie := reads(r) && lied[path.Base(r.URL.Path)]
		mu.Lock()
		if lie {
			lies++
		}
		if r.Method == http.MethodPut {
			writes++
		}
		mu.Unlock()
		if lie {
			altered(w, r, pass, 1)
			return
		}
		pass.ServeHTTP(w, r)
	})
	a.foundBad("%/data/%")
	list := a.bad()
	if len(list) != 15 || lies != 30 {
		t.Fatalf("%d copies seem bad, of %d reads", len(list), lies)
	}
	for path, d := range a.repaired(a.repairer()) {
		if d.Result != RepairLeft || !strings.Contains(d.Reason, "repair has stopped at this provider") {
			t.Errorf("%s: %+v", path, d)
		}
	}
	if writes > 0 || len(a.Keys(a.Deps.Staging)) > 0 {
		t.Errorf("%d copies were overwritten", writes)
	}
	if got := a.Rows(`SELECT subject FROM alerts WHERE type = 'Repair Stopped' AND institution_id IS NULL`); len(got) != 1 || got[0] != "Repair has stopped at AWS" {
		t.Errorf("alerts %q", got)
	}
	if d := a.repairer().Plan(t.Context(), list[0]); d.Result != RepairLeft || !strings.Contains(d.Reason, "copies failed within an hour") {
		t.Errorf("the plan is %+v", d)
	}
	a.Exec(`INSERT INTO users (email, name, role) VALUES ('admin@test.edu', 'Admin', 'admin')`)
	a.Exec(`INSERT INTO users (email, name, role, institution_id) VALUES ('user@test.edu', 'User', 'institutional_admin', 1)`)
	for by, want := range map[string]string{"nobody@test.edu": "there is no user", "user@test.edu": "is no admin"} {
		if err := fixity.In(a.Deps.Registry).AllowRepair(t.Context(), "AWS", by); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("released by %s: %v", by, err)
		}
	}
	if err := fixity.In(a.Deps.Registry).AllowRepair(t.Context(), "AWS", "admin@test.edu"); err != nil {
		t.Error(err)
	}
	if err := fixity.In(a.Deps.Registry).AllowRepair(t.Context(), "AWS", "admin@test.edu"); err == nil {
		t.Error("released twice")
	}
	// It was the way to the bytes; once that is repaired, they are good.
	g.set(nil)
	for path, d := range a.repaired(a.repairer()) {
		if d.Result != RepairGood {
			t.Errorf("%s: %+v", path, d)
		}
	}
	if got := pipelinetest.Value[string](a, `SELECT concat_ws(' ', count(*), count(released_at), (SELECT count(*) FROM alerts WHERE type = 'Repair Stopped')) FROM repair_stops`); got != "1 1 1" {
		t.Errorf("stops, those released, and alerts: %s", got)
	}
}

// One that repairs by itself waits until it is known whether more fails.
func TestRepairByItselfWaits(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.warm()
	a.Stored(map[string]string{"old": "old", "new": "new"})
	for _, path := range []string{"old", "new"} {
		a.Spoil(a.Deps.Targets["Standard-VA"], path)
	}
	a.foundBad("%/data/%")
	a.Exec(`UPDATE fixity_failures SET noted_at = now() - interval '2 hours' WHERE generic_file_id = (SELECT id FROM generic_files WHERE identifier LIKE '%/old')`)
	r := a.repairer()
	r.every = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		if err := r.Run(ctx, time.Hour); err != nil {
			t.Error(err)
		}
	})
	testenv.Eventually(t, "the older failure to be repaired", func() bool { return len(a.Rows(repairEvents)) == 1 })
	cancel()
	all.Wait()
	if left := a.bad(); len(left) != 1 || !strings.HasSuffix(left[0].File, "/new") {
		t.Errorf("bad copies %+v, want the newer one", left)
	}
}
