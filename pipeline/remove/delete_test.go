package remove

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
)

// isDeleted fails the test unless files are deleted with all that goes with it.
func (a *archive) isDeleted(d record.DeletionRequest, files ...string) {
	a.T.Helper()
	for _, identifier := range files {
		got := pipelinetest.Value[string](a, `
			SELECT concat_ws('; ', f.state, (SELECT count(*) FROM storage_records s WHERE s.generic_file_id = f.id),
				(SELECT string_agg(concat_ws(', ', e.outcome, e.detail, e.outcome_detail, e.outcome_information, e.object, e.agent), ' | ') FROM premis_events e
					WHERE e.generic_file_id = f.id AND e.event_type = 'deletion'),
				(SELECT string_agg(r.target || CASE WHEN r.absent_at >= r.removed_at THEN ' gone' ELSE ' there' END, ', ' ORDER BY r.target)
					FROM deletion_receipts r WHERE r.generic_file_id = f.id))
			FROM generic_files f WHERE f.identifier = $1`, identifier)
		want := "D; 0; Success, All copies of this file have been deleted from preservation storage, first@test.edu, " +
			"File deleted at the request of first@test.edu. Institutional approver: second@test.edu. " +
			"This event confirms all preservation copies have been deleted., Farol, https://github.com/farol-preservation/farol; " +
			"Standard-OR gone, Standard-VA gone"
		if got != want {
			a.T.Errorf("%s:\n%s\nwant\n%s", identifier, got, want)
		}
	}
	now, err := requests.In(a.Deps.Registry).DeletionRequest(context.Background(), d.ID)
	if err != nil || now.Done != now.Items || now.Items == 0 {
		a.T.Errorf("request = %+v, %v", now, err)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM alerts WHERE type = 'Deletion Completed' AND deletion_request_id = $1`, d.ID); n != 1 {
		a.T.Errorf("%d alerts say that it is completed", n)
	}
}

// A deleted file is gone from every bucket, and the record says who wanted it; what
// else the object has stays.
func TestDeletedFileIsGone(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Ingested(pipelinetest.ABag("less"))
	before := a.AllCopies()
	key := a.KeyOf("test.edu/less/data/a.txt")
	d := a.Doomed("test.edu/less/data/a.txt")
	a.Work()
	a.isDeleted(d, "test.edu/less/data/a.txt")
	item := a.Item(pipelinetest.Value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`))
	if item.Status != "Success" || item.Stage != "Resolve" || item.Outcome != "File deletion complete" ||
		item.Note != "Deletion completed at the request of first@test.edu, approved by second@test.edu." {
		t.Errorf("item = %s at %s: %s (%s)", item.Status, item.Stage, item.Note, item.Outcome)
	}
	left := slices.DeleteFunc(before, func(k string) bool { return strings.HasSuffix(k, key) })
	if got := a.AllCopies(); !slices.Equal(got, left) {
		t.Errorf("copies: %v\nwant %v", got, left)
	}
	// What is left can be given back, without the file.
	if item := a.Restored("test.edu/less"); item.Status != "Success" {
		t.Errorf("restored: %s: %s", item.Status, item.Note)
	}
}

// A deleted object is gone whole; uploaded again it is ingested again, with the uuids
// that its files had.
func TestDeletedObjectIsGoneAndMayComeBack(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	spec := pipelinetest.ABag("whole")
	a.Ingested(spec)
	a.Ingested(bagtest.Spec{Name: "other"})
	others := pipelinetest.Value[int](a, `SELECT count(*) FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id WHERE f.identifier LIKE 'test.edu/other/%'`)
	uuid := pipelinetest.Value[string](a, `SELECT uuid::text FROM generic_files WHERE identifier = 'test.edu/whole/data/a.txt'`)
	d := a.Doomed("test.edu/whole")
	a.Work()
	a.isDeleted(d, "test.edu/whole/data/a.txt", "test.edu/whole/data/empty", "test.edu/whole/bag-info.txt")
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM generic_files WHERE state = 'A' AND identifier LIKE 'test.edu/whole/%'`); n != 0 {
		t.Errorf("%d files are active", n)
	}
	got := pipelinetest.Value[string](a, `SELECT o.state || '; ' || string_agg(concat_ws(', ', e.detail, e.outcome_detail, e.outcome_information), ' | ')
		FROM intellectual_objects o JOIN premis_events e ON e.intellectual_object_id = o.id AND e.generic_file_id IS NULL AND e.event_type = 'deletion'
		WHERE o.identifier = 'test.edu/whole' GROUP BY o.state`)
	if want := "D; Object deleted from preservation storage, first@test.edu, Object deleted at the request of first@test.edu. Institutional approver: second@test.edu."; got != want {
		t.Errorf("object: %s\nwant %s", got, want)
	}
	if left := a.AllCopies(); len(left) != others {
		t.Errorf("%d copies are left, want the other object's %d: %v", len(left), others, left)
	}
	item := a.Item(pipelinetest.Value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`))
	if item.Outcome != "Object deletion complete" || item.IntellectualObjectID == nil {
		t.Errorf("item = %+v", item)
	}
	a.Ingested(spec)
	if got := pipelinetest.Value[string](a, `SELECT uuid::text || ' ' || state || ' ' || (deleted_by_item IS NULL) FROM generic_files WHERE identifier = 'test.edu/whole/data/a.txt'`); got != uuid+" A true" {
		t.Errorf("came back as %s, want %s", got, uuid)
	}
	if item := a.Restored("test.edu/whole"); item.Status != "Success" {
		t.Errorf("restored: %s: %s", item.Status, item.Note)
	}
}

// A worker that dies at any moment of a deletion leaves nothing half deleted that
// does not say so, and the next one ends it.
func TestDeletionSurvivesCrashes(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Ingested(pipelinetest.ABag("crash"))
	files := pipelinetest.Value[[]string](a, `SELECT array_agg(identifier ORDER BY identifier) FROM generic_files`)
	d := a.Doomed("test.edu/crash")
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.S3.Endpoint, "https://"))
	a.Through(proxy)
	a.Exec(`UPDATE stage_settings SET max_attempts = 1000, backoff_first = '1 millisecond', backoff_most = '2 milliseconds'`)
	engine := a.Engine()
	item := pipelinetest.Value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`)
	attempts := 0
	for budget := int64(2000); a.Item(item).Status == "Pending"; budget += 3000 {
		attempts++
		proxy.Resume()
		proxy.CutAfter(budget) // each comes a little further
		a.Exec(`UPDATE work_items SET run_at = now()`)
		a.Request(engine, "Delete")
		a.halfDeletedSaysSo()
	}
	proxy.Resume()
	if attempts < 3 {
		t.Errorf("it took %d attempts", attempts)
	}
	a.isDeleted(d, files...)
	if left := a.AllCopies(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// halfDeletedSaysSo fails the test if a copy is gone that is still in preservation.
func (a *archive) halfDeletedSaysSo() {
	a.T.Helper()
	there := map[string]bool{}
	for _, name := range []string{"Standard-VA", "Standard-OR"} {
		direct := a.Bucket(a.Deps.Targets[name].Name())
		for _, key := range a.Keys(direct) {
			there[name+" "+key] = true
		}
	}
	missing := pipelinetest.Value[[]string](a, `
		SELECT coalesce(array_agg(s.target || ' ' || s.key), '{}') FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id
		WHERE f.state = 'A' AND s.active`)
	for _, c := range missing {
		if !there[c] {
			a.T.Errorf("%s is gone, and the record does not say that it is being deleted", c)
		}
	}
}

// A key that the record of another living file names stays, and so does the reason.
func TestDeletionLeavesWhatOthersName(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Ingested(bagtest.Spec{Name: "shared", Files: []bagtest.File{{Path: "data/a.txt", Content: "a"}, {Path: "data/b.txt", Content: "b"}}})
	key := a.KeyOf("test.edu/shared/data/a.txt")
	a.Exec(`UPDATE storage_records s SET key = '` + key + `' FROM generic_files f WHERE f.id = s.generic_file_id AND f.identifier LIKE '%/b.txt' AND s.target = 'Standard-VA'`)
	a.Doomed("test.edu/shared/data/a.txt")
	a.Work()
	if keys := a.Keys(a.Deps.Targets["Standard-VA"]); !slices.Contains(keys, key) {
		t.Error("the bytes of another file were deleted")
	}
	if keys := a.Keys(a.Deps.Targets["Standard-OR"]); slices.Contains(keys, key) {
		t.Error("the other copy is there")
	}
	if kept := pipelinetest.Value[string](a, `SELECT kept FROM deletion_receipts WHERE target = 'Standard-VA'`); !strings.Contains(kept, "test.edu/shared/data/b.txt") {
		t.Errorf("receipt: %q", kept)
	}
}

// What is not authorised any more when a worker comes to it is not deleted.
func TestUnauthorisedDeletionDeletesNothing(t *testing.T) {
	t.Parallel()
	for what, sql := range map[string]string{
		"approved":            `UPDATE deletion_requests SET approved_at = NULL, approved_by = NULL, begins_at = NULL`,
		"names it":            `DELETE FROM deletion_requests_intellectual_objects`,
		"must be kept until":  `UPDATE storage_options SET retention_days = 3650`,
		"ingested since":      `UPDATE deletion_requests SET approved_at = approved_at - interval '1 day'`,
		"ingests the object":  `INSERT INTO uploads_in_work VALUES ('test.edu/safe', 'safe.tar', 'e', 77)`,
		"there is no request": `UPDATE work_items SET deletion_request_id = NULL WHERE action = 'Delete'`,
	} {
		a := newArchive(t)
		a.Ingested(bagtest.Spec{Name: "safe"})
		before := a.AllCopies()
		a.Doomed("test.edu/safe")
		testenv.Scene(t, a.DB, sql)
		a.Work()
		item := a.Item(pipelinetest.Value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`))
		if item.Status != "Failed" || item.ErrorCode != "deletion-unauthorised" {
			t.Errorf("%s: %s (%s): %s", what, item.Status, item.ErrorCode, item.Note)
		}
		if after := a.AllCopies(); !slices.Equal(before, after) {
			t.Errorf("%s: copies were deleted", what)
		}
		if n := pipelinetest.Value[int](a, `SELECT count(*) FROM intellectual_objects WHERE state = 'A' AND deleted_by_item IS NULL`); n != 1 {
			t.Errorf("%s: the object is marked", what)
		}
	}
}

// A new version waits until what is requested of the old one is over, and then is
// compared with what is left.
func TestIngestWaitsForTheDeletion(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	spec := bagtest.Spec{Name: "again", Files: []bagtest.File{{Path: "data/a.txt", Content: "a"}, {Path: "data/b.txt", Content: "b"}}}
	a.Ingested(spec)
	a.Doomed("test.edu/again/data/a.txt")
	a.Exec(`UPDATE stage_settings SET paused = true WHERE action = 'Delete'`)
	spec.Tags = []bagtest.Tag{{File: "aptrust-info.txt", Name: "Title", Value: "Another title"}}
	id := a.Deposit("again.tar", a.Bag(spec))
	stop := a.Start()
	testenv.Eventually(t, "the new version to wait", func() bool {
		item := a.Item(id)
		return item.Stage == "Reingest Check" && item.Status == "Pending" && item.ErrorCode == "snoozed"
	})
	a.Exec(`UPDATE stage_settings SET paused = false WHERE action = 'Delete'`)
	testenv.Eventually(t, "the deletion", func() bool {
		return pipelinetest.Value[int](a, `SELECT count(*) FROM work_items WHERE action = 'Delete' AND retry`) == 0
	})
	a.Exec(fmt.Sprintf(`SELECT requeue(%d)`, id))
	a.AtRest()
	stop()
	if item := a.Item(id); item.Status != "Success" {
		t.Fatalf("%s: %s", item.Status, item.Note)
	}
	for _, path := range []string{"data/a.txt", "data/b.txt"} {
		key := a.KeyOf("test.edu/again/" + path)
		for _, target := range []string{"Standard-VA", "Standard-OR"} {
			if _, err := a.Deps.Targets[target].Head(context.Background(), key); err != nil {
				t.Errorf("%s in %s: %v", path, target, err)
			}
		}
	}
}

// An ingest that was prepared before a deletion is compared with the registry again:
// what it took for stored is not.
func TestIngestFromBeforeADeletionIsComparedAgain(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	spec := bagtest.Spec{Name: "late", Files: []bagtest.File{{Path: "data/a.txt", Content: "a"}, {Path: "data/b.txt", Content: "b"}}}
	a.Ingested(spec)
	spec.Tags = []bagtest.Tag{{File: "aptrust-info.txt", Name: "Title", Value: "Another title"}}
	id := a.Deposit("late.tar", a.Bag(spec))
	engine := a.Engine()
	a.UpTo(engine, "Record")
	a.Exec(fmt.Sprintf(`UPDATE work_items SET status = 'Suspended' WHERE id = %d`, id))
	a.Doomed("test.edu/late/data/a.txt")
	a.Request(engine, "Delete")
	a.Exec(fmt.Sprintf(`SELECT requeue(%d)`, id))
	a.Work()
	if item := a.Item(id); item.Status != "Success" {
		t.Fatalf("%s: %s", item.Status, item.Note)
	}
	key := a.KeyOf("test.edu/late/data/a.txt")
	if _, err := a.Deps.Targets["Standard-VA"].Head(context.Background(), key); err != nil {
		t.Errorf("the file that was unchanged: %v", err)
	}
}

// A provider that says it has deleted a copy and has not is found out, and nothing
// is recorded as deleted.
func TestCopyThatStaysIsNotDeleted(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Ingested(bagtest.Spec{Name: "stays"})
	a.Doomed("test.edu/stays")
	a.Deps.Targets["Standard-OR"] = a.Behind(a.Deps.Targets["Standard-OR"], func(proxy *httputil.ReverseProxy) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			proxy.ServeHTTP(w, r)
		})
	})
	a.Exec(`UPDATE stage_settings SET max_attempts = 1`)
	a.Work()
	item := a.Item(pipelinetest.Value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`))
	if item.Status != "Suspended" || item.ErrorCode != "copy-still-there" || !strings.Contains(item.Note, "Standard-OR") {
		t.Errorf("item = %s (%s): %s", item.Status, item.ErrorCode, item.Note)
	}
	for sql, want := range map[string]int{
		`SELECT count(*) FROM generic_files WHERE state = 'D'`:                        0,
		`SELECT count(*) FROM premis_events WHERE event_type = 'deletion'`:            0,
		`SELECT count(*) FROM deletion_receipts WHERE absent_at IS NOT NULL`:          0,
		`SELECT count(*) FROM intellectual_objects WHERE deleted_by_item IS NOT NULL`: 1,
	} {
		if n := pipelinetest.Value[int](a, sql); n != want {
			t.Errorf("%s = %d, want %d", sql, n, want)
		}
	}
	// What is half deleted is given back to nobody, and a new version waits for a person.
	_, err := requests.In(a.Deps.Registry).RequestRestoration(context.Background(), requests.RestorationRequest{Identifier: "test.edu/stays"})
	if !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), "being deleted") {
		t.Errorf("restoration: %v", err)
	}
	id := a.Deposit("stays.tar", a.Bag(bagtest.Spec{Name: "stays", Title: "Again"}))
	a.Work()
	if item := a.Item(id); item.Status != "Suspended" || item.ErrorCode != "deletion-unfinished" {
		t.Errorf("new version: %s (%s): %s", item.Status, item.ErrorCode, item.Note)
	}
}

// A bucket that serves us and denies the deletion has its reasons, which a person has
// to know; but one worker's word is not enough, since its key may be the wrong one.
func TestDeniedDeletionIsForAPerson(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Ingested(bagtest.Spec{Name: "locked"})
	before := a.AllCopies()
	d := a.Doomed("test.edu/locked")
	good := a.Deps.Targets["Standard-OR"]
	a.Deps.Targets["Standard-OR"] = a.Behind(good, func(proxy *httputil.ReverseProxy) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete || r.URL.Query().Has("delete") {
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprint(w, `<Error><Code>AccessDenied</Code><Message>Object is WORM protected</Message></Error>`)
				return
			}
			proxy.ServeHTTP(w, r)
		})
	})
	a.Work()
	id := pipelinetest.Value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`)
	if item := a.Item(id); item.Status != "Suspended" || item.ErrorCode != "storage-denied" || !strings.Contains(item.Note, "may be locked") {
		t.Errorf("item = %s (%s): %s", item.Status, item.ErrorCode, item.Note)
	}
	if ends := pipelinetest.Value[string](a, `SELECT string_agg(outcome || ' ' || error_code, ', ' ORDER BY claim_token) FROM work_item_attempts
		WHERE work_item_id = (SELECT id FROM work_items WHERE action = 'Delete')`); ends != "held storage-denied, fatal storage-denied" {
		t.Errorf("the ledger says %s", ends)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM generic_files WHERE state = 'D'`); n != 0 {
		t.Errorf("%d files are on record as deleted", n)
	}
	left := slices.DeleteFunc(slices.Clone(before), func(c string) bool { return !strings.HasPrefix(c, "Standard-OR ") })
	for _, copied := range left {
		if !slices.Contains(a.AllCopies(), copied) {
			t.Errorf("%s is gone", copied)
		}
	}
	// The person unlocks it.
	a.Deps.Targets["Standard-OR"] = good
	a.Exec(`SELECT requeue(id) FROM work_items WHERE status = 'Suspended'`)
	a.Work()
	if item := a.Item(id); item.Status != "Success" {
		t.Errorf("item = %s (%s): %s", item.Status, item.ErrorCode, item.Note)
	}
	if now, err := requests.In(a.Deps.Registry).DeletionRequest(t.Context(), d.ID); err != nil || now.Done != now.Items {
		t.Errorf("request = %+v, %v", now, err)
	}
}

// A deletion whose item becomes due before its time removes nothing, and postpones itself: not
// even what has run before, or what is set by hand, gets around the wait. Stopped then, the
// object is as it was.
func TestDeletionBeforeItsTimeRemovesNothing(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Ingested(pipelinetest.ABag("waits"))
	before := a.AllCopies()
	a.Exec(`UPDATE request_settings SET deletion_wait = '1 hour'`)
	d := a.Doomed("test.edu/waits")
	id := pipelinetest.Value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`)
	engine := a.Engine()
	due := claim.Filter{Action: "Delete", Stages: []claim.Want{{Stage: "Requested", Most: 1}}}
	if items, err := engine.Claim(t.Context(), due, 1); err != nil || len(items) != 0 {
		t.Fatalf("%d items are due before the time, %v", len(items), err)
	}
	a.Exec(fmt.Sprintf(`SELECT requeue(%d)`, id))
	a.Request(engine, "Delete")
	got := pipelinetest.Value[string](a, `SELECT concat_ws(' ', w.status, w.attempt, w.run_at >= d.begins_at, a.outcome, a.error) FROM work_items w
		JOIN deletion_requests d ON d.id = w.deletion_request_id JOIN work_item_attempts a ON a.work_item_id = w.id WHERE w.id = $1`, id)
	if want := fmt.Sprintf("Pending 0 t snoozed Deletion request %d begins in ", d.ID); !strings.HasPrefix(got, want) {
		t.Errorf("item: %s\nwant %s", got, want)
	}
	must.Get(requests.In(a.Deps.Registry).CancelDeletion(context.Background(), d.ID, "second@test.edu", "a mistake"))(t)
	if after := a.AllCopies(); !slices.Equal(before, after) {
		t.Errorf("copies: %v\nwant %v", after, before)
	}
	if n := pipelinetest.Value[int](a, `SELECT (SELECT count(*) FROM deletion_receipts) + (SELECT count(*) FROM intellectual_objects WHERE deleted_by_item IS NOT NULL)`); n != 0 {
		t.Errorf("%d receipts and markers", n)
	}
	if item := a.Restored("test.edu/waits"); item.Status != "Success" {
		t.Errorf("restored: %s: %s", item.Status, item.Note)
	}
}
