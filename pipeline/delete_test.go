package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
)

const requester, approver = "first@test.edu", "second@test.edu"

// doomed has two people decide on a deletion; its items are in the queue.
func (a *archive) doomed(identifiers ...string) requests.DeletionRequest {
	a.t.Helper()
	ctx := context.Background()
	for _, email := range []string{requester, approver} {
		_, err := a.deps.Registry.AddUser(ctx, registry.User{Email: email, Name: "Some Body", Role: registry.RoleInstitutionalAdmin, Institution: "test.edu"})
		if err != nil && !strings.Contains(err.Error(), "users_email") {
			a.t.Fatal(err)
		}
	}
	a.exec(`UPDATE intellectual_objects SET created_at = now() - interval '1 year'; UPDATE generic_files SET created_at = now() - interval '1 year'`)
	d, token, err := requests.In(a.deps.Registry).RequestDeletion(ctx, requester, identifiers)
	if err != nil {
		a.t.Fatal(err)
	}
	if d, err = requests.In(a.deps.Registry).ApproveDeletion(ctx, d.ID, approver, token); err != nil {
		a.t.Fatal(err)
	}
	return d
}

// copiesOf are all objects in preservation buckets.
func (a *archive) allCopies() (keys []string) {
	a.t.Helper()
	for name, b := range a.deps.Targets {
		for _, key := range a.keys(b) {
			keys = append(keys, name+" "+key)
		}
	}
	slices.Sort(keys)
	return keys
}

// isDeleted fails the test unless files are deleted with all that goes with it.
func (a *archive) isDeleted(d requests.DeletionRequest, files ...string) {
	a.t.Helper()
	for _, identifier := range files {
		got := value[string](a, `
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
			a.t.Errorf("%s:\n%s\nwant\n%s", identifier, got, want)
		}
	}
	now, err := requests.In(a.deps.Registry).DeletionRequest(context.Background(), d.ID)
	if err != nil || now.Done != now.Items || now.Items == 0 {
		a.t.Errorf("request = %+v, %v", now, err)
	}
	if n := value[int](a, `SELECT count(*) FROM alerts WHERE type = 'Deletion Completed' AND deletion_request_id = $1`, d.ID); n != 1 {
		a.t.Errorf("%d alerts say that it is completed", n)
	}
}

// A deleted file is gone from every bucket, and the record says who wanted it; what
// else the object has stays.
func TestDeletedFileIsGone(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(aBag("less"))
	before := a.allCopies()
	key := a.keyOf("test.edu/less/data/a.txt")
	d := a.doomed("test.edu/less/data/a.txt")
	a.work()
	a.isDeleted(d, "test.edu/less/data/a.txt")
	item := a.item(value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`))
	if item.Status != "Success" || item.Stage != "Resolve" || item.Outcome != "File deletion complete" ||
		item.Note != "Deletion completed at the request of first@test.edu, approved by second@test.edu." {
		t.Errorf("item = %s at %s: %s (%s)", item.Status, item.Stage, item.Note, item.Outcome)
	}
	left := slices.DeleteFunc(before, func(k string) bool { return strings.HasSuffix(k, key) })
	if got := a.allCopies(); !slices.Equal(got, left) {
		t.Errorf("copies: %v\nwant %v", got, left)
	}
	// What is left can be given back, without the file.
	if item := a.restored("test.edu/less"); item.Status != "Success" {
		t.Errorf("restored: %s: %s", item.Status, item.Note)
	}
}

// A deleted object is gone whole; uploaded again it is ingested anew, with the uuids
// that its files had.
func TestDeletedObjectIsGoneAndMayComeBack(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	spec := aBag("whole")
	a.ingested(spec)
	a.ingested(bagtest.Spec{Name: "other"})
	others := value[int](a, `SELECT count(*) FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id WHERE f.identifier LIKE 'test.edu/other/%'`)
	uuid := value[string](a, `SELECT uuid::text FROM generic_files WHERE identifier = 'test.edu/whole/data/a.txt'`)
	d := a.doomed("test.edu/whole")
	a.work()
	a.isDeleted(d, "test.edu/whole/data/a.txt", "test.edu/whole/data/empty", "test.edu/whole/bag-info.txt")
	if n := value[int](a, `SELECT count(*) FROM generic_files WHERE state = 'A' AND identifier LIKE 'test.edu/whole/%'`); n != 0 {
		t.Errorf("%d files are active", n)
	}
	got := value[string](a, `SELECT o.state || '; ' || string_agg(concat_ws(', ', e.detail, e.outcome_detail, e.outcome_information), ' | ')
		FROM intellectual_objects o JOIN premis_events e ON e.intellectual_object_id = o.id AND e.generic_file_id IS NULL AND e.event_type = 'deletion'
		WHERE o.identifier = 'test.edu/whole' GROUP BY o.state`)
	if want := "D; Object deleted from preservation storage, first@test.edu, Object deleted at the request of first@test.edu. Institutional approver: second@test.edu."; got != want {
		t.Errorf("object: %s\nwant %s", got, want)
	}
	if left := a.allCopies(); len(left) != others {
		t.Errorf("%d copies are left, want the other object's %d: %v", len(left), others, left)
	}
	item := a.item(value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`))
	if item.Outcome != "Object deletion complete" || item.IntellectualObjectID == nil {
		t.Errorf("item = %+v", item)
	}
	a.ingested(spec)
	if got := value[string](a, `SELECT uuid::text || ' ' || state || ' ' || (deleted_by_item IS NULL) FROM generic_files WHERE identifier = 'test.edu/whole/data/a.txt'`); got != uuid+" A true" {
		t.Errorf("came back as %s, want %s", got, uuid)
	}
	if item := a.restored("test.edu/whole"); item.Status != "Success" {
		t.Errorf("restored: %s: %s", item.Status, item.Note)
	}
}

// A worker that dies at any moment of a deletion leaves nothing half deleted that
// does not say so, and the next one ends it.
func TestDeletionSurvivesCrashes(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(aBag("crash"))
	files := value[[]string](a, `SELECT array_agg(identifier ORDER BY identifier) FROM generic_files`)
	d := a.doomed("test.edu/crash")
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.s3.Endpoint, "https://"))
	a.through(proxy)
	a.exec(`UPDATE stage_settings SET max_attempts = 1000, backoff_first = '1 millisecond', backoff_most = '2 milliseconds'`)
	engine := a.engine()
	item := value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`)
	attempts := 0
	for budget := int64(2000); a.item(item).Status == "Pending"; budget += 3000 {
		attempts++
		proxy.Resume()
		proxy.CutAfter(budget) // each comes a little further
		a.exec(`UPDATE work_items SET run_at = now()`)
		a.request(engine, "Delete")
		a.halfDeletedSaysSo()
	}
	proxy.Resume()
	if attempts < 3 {
		t.Errorf("it took %d attempts", attempts)
	}
	a.isDeleted(d, files...)
	if left := a.allCopies(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// halfDeletedSaysSo fails the test if the copy of a file is gone that nothing marks.
func (a *archive) halfDeletedSaysSo() {
	a.t.Helper()
	there := map[string]bool{}
	for _, name := range []string{"Standard-VA", "Standard-OR"} {
		direct := a.bucket(a.deps.Targets[name].Name())
		for _, key := range a.keys(direct) {
			there[name+" "+key] = true
		}
	}
	missing := value[[]string](a, `
		SELECT coalesce(array_agg(s.target || ' ' || s.key), '{}') FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id
		JOIN intellectual_objects o ON o.id = f.intellectual_object_id
		WHERE f.state = 'A' AND f.deleted_by_item IS NULL AND o.deleted_by_item IS NULL`)
	for _, c := range missing {
		if !there[c] {
			a.t.Errorf("%s is gone, and the record does not say that it is being deleted", c)
		}
	}
}

// A key that the record of another living file names stays, and so does the reason.
func TestDeletionLeavesWhatOthersName(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(bagtest.Spec{Name: "shared", Files: []bagtest.File{{Path: "data/a.txt", Content: "a"}, {Path: "data/b.txt", Content: "b"}}})
	key := a.keyOf("test.edu/shared/data/a.txt")
	a.exec(`UPDATE storage_records s SET key = '` + key + `' FROM generic_files f WHERE f.id = s.generic_file_id AND f.identifier LIKE '%/b.txt' AND s.target = 'Standard-VA'`)
	a.doomed("test.edu/shared/data/a.txt")
	a.work()
	if keys := a.keys(a.deps.Targets["Standard-VA"]); !slices.Contains(keys, key) {
		t.Error("the bytes of another file were deleted")
	}
	if keys := a.keys(a.deps.Targets["Standard-OR"]); slices.Contains(keys, key) {
		t.Error("the other copy is there")
	}
	if kept := value[string](a, `SELECT kept FROM deletion_receipts WHERE target = 'Standard-VA'`); !strings.Contains(kept, "test.edu/shared/data/b.txt") {
		t.Errorf("receipt: %q", kept)
	}
}

// What is not authorised any more when a worker comes to it is not deleted.
func TestUnauthorisedDeletionDeletesNothing(t *testing.T) {
	t.Parallel()
	for what, sql := range map[string]string{
		"approved":            `UPDATE deletion_requests SET approved_at = NULL, approved_by = NULL`,
		"names it":            `DELETE FROM deletion_requests_intellectual_objects`,
		"must be kept until":  `UPDATE storage_options SET retention_days = 3650`,
		"ingests the object":  `INSERT INTO uploads_in_work VALUES ('test.edu/safe', 'safe.tar', 'e', 77)`,
		"there is no request": `UPDATE work_items SET deletion_request_id = NULL WHERE action = 'Delete'`,
	} {
		a := newArchive(t)
		a.ingested(bagtest.Spec{Name: "safe"})
		before := a.allCopies()
		a.doomed("test.edu/safe")
		testenv.Scene(t, a.db, sql)
		a.work()
		item := a.item(value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`))
		if item.Status != "Failed" || item.ErrorCode != "deletion-unauthorised" {
			t.Errorf("%s: %s (%s): %s", what, item.Status, item.ErrorCode, item.Note)
		}
		if after := a.allCopies(); !slices.Equal(before, after) {
			t.Errorf("%s: copies were deleted", what)
		}
		if n := value[int](a, `SELECT count(*) FROM intellectual_objects WHERE state = 'A' AND deleted_by_item IS NULL`); n != 1 {
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
	a.ingested(spec)
	a.doomed("test.edu/again/data/a.txt")
	a.exec(`UPDATE stage_settings SET paused = true WHERE action = 'Delete'`)
	spec.Tags = []bagtest.Tag{{File: "aptrust-info.txt", Name: "Title", Value: "Another title"}}
	id := a.deposit("again.tar", a.bag(spec))
	stop := a.start()
	wait(t, time.Minute, "the new version to wait", func() bool {
		item := a.item(id)
		return item.Stage == "Reingest Check" && item.Status == "Pending" && item.ErrorCode == "snoozed"
	})
	a.exec(`UPDATE stage_settings SET paused = false WHERE action = 'Delete'`)
	wait(t, time.Minute, "the deletion", func() bool {
		return value[int](a, `SELECT count(*) FROM work_items WHERE action = 'Delete' AND retry`) == 0
	})
	a.exec(fmt.Sprintf(`SELECT requeue(%d)`, id))
	a.atRest()
	stop()
	if item := a.item(id); item.Status != "Success" {
		t.Fatalf("%s: %s", item.Status, item.Note)
	}
	for _, path := range []string{"data/a.txt", "data/b.txt"} {
		key := a.keyOf("test.edu/again/" + path)
		for _, target := range []string{"Standard-VA", "Standard-OR"} {
			if _, err := a.deps.Targets[target].Head(context.Background(), key); err != nil {
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
	a.ingested(spec)
	spec.Tags = []bagtest.Tag{{File: "aptrust-info.txt", Name: "Title", Value: "Another title"}}
	id := a.deposit("late.tar", a.bag(spec))
	engine := a.engine()
	a.upTo(engine, "Record")
	a.exec(fmt.Sprintf(`UPDATE work_items SET status = 'Suspended' WHERE id = %d`, id))
	a.doomed("test.edu/late/data/a.txt")
	a.request(engine, "Delete")
	a.exec(fmt.Sprintf(`SELECT requeue(%d)`, id))
	a.work()
	if item := a.item(id); item.Status != "Success" {
		t.Fatalf("%s: %s", item.Status, item.Note)
	}
	key := a.keyOf("test.edu/late/data/a.txt")
	if _, err := a.deps.Targets["Standard-VA"].Head(context.Background(), key); err != nil {
		t.Errorf("the file that was unchanged: %v", err)
	}
}

// A provider that says it has deleted a copy and has not is found out, and nothing
// is recorded as deleted.
func TestCopyThatStaysIsNotDeleted(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(bagtest.Spec{Name: "stays"})
	a.doomed("test.edu/stays")
	a.deps.Targets["Standard-OR"] = a.behind(a.deps.Targets["Standard-OR"], func(proxy *httputil.ReverseProxy) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			proxy.ServeHTTP(w, r)
		})
	})
	a.exec(`UPDATE stage_settings SET max_attempts = 1`)
	a.work()
	item := a.item(value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`))
	if item.Status != "Suspended" || item.ErrorCode != "copy-still-there" || !strings.Contains(item.Note, "Standard-OR") {
		t.Errorf("item = %s (%s): %s", item.Status, item.ErrorCode, item.Note)
	}
	for sql, want := range map[string]int{
		`SELECT count(*) FROM generic_files WHERE state = 'D'`:                        0,
		`SELECT count(*) FROM premis_events WHERE event_type = 'deletion'`:            0,
		`SELECT count(*) FROM deletion_receipts WHERE absent_at IS NOT NULL`:          0,
		`SELECT count(*) FROM intellectual_objects WHERE deleted_by_item IS NOT NULL`: 1,
	} {
		if n := value[int](a, sql); n != want {
			t.Errorf("%s = %d, want %d", sql, n, want)
		}
	}
	// What is half deleted is given back to nobody, and a new version waits for a person.
	_, err := requests.In(a.deps.Registry).RequestRestoration(context.Background(), requests.RestorationRequest{Identifier: "test.edu/stays"})
	if !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), "being deleted") {
		t.Errorf("restoration: %v", err)
	}
	id := a.deposit("stays.tar", a.bag(bagtest.Spec{Name: "stays", Title: "Again"}))
	a.work()
	if item := a.item(id); item.Status != "Suspended" || item.ErrorCode != "deletion-unfinished" {
		t.Errorf("new version: %s (%s): %s", item.Status, item.ErrorCode, item.Note)
	}
}

// A bucket that serves us and denies the deletion has its reasons, which a person has
// to know; but one worker's word is not enough, since its key may be the wrong one.
func TestDeniedDeletionIsForAPerson(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(bagtest.Spec{Name: "locked"})
	before := a.allCopies()
	d := a.doomed("test.edu/locked")
	good := a.deps.Targets["Standard-OR"]
	a.deps.Targets["Standard-OR"] = a.behind(good, func(proxy *httputil.ReverseProxy) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete || r.URL.Query().Has("delete") {
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprint(w, `<Error><Code>AccessDenied</Code><Message>Object is WORM protected</Message></Error>`)
				return
			}
			proxy.ServeHTTP(w, r)
		})
	})
	a.work()
	id := value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`)
	if item := a.item(id); item.Status != "Suspended" || item.ErrorCode != "storage-denied" || !strings.Contains(item.Note, "may be locked") {
		t.Errorf("item = %s (%s): %s", item.Status, item.ErrorCode, item.Note)
	}
	if ends := value[string](a, `SELECT string_agg(outcome || ' ' || error_code, ', ' ORDER BY claim_token) FROM work_item_attempts
		WHERE work_item_id = (SELECT id FROM work_items WHERE action = 'Delete')`); ends != "held storage-denied, fatal storage-denied" {
		t.Errorf("the ledger says %s", ends)
	}
	if n := value[int](a, `SELECT count(*) FROM generic_files WHERE state = 'D'`); n != 0 {
		t.Errorf("%d files are on record as deleted", n)
	}
	left := slices.DeleteFunc(slices.Clone(before), func(c string) bool { return !strings.HasPrefix(c, "Standard-OR ") })
	for _, copied := range left {
		if !slices.Contains(a.allCopies(), copied) {
			t.Errorf("%s is gone", copied)
		}
	}
	// The person unlocks it.
	a.deps.Targets["Standard-OR"] = good
	a.exec(`SELECT requeue(id) FROM work_items WHERE status = 'Suspended'`)
	a.work()
	if item := a.item(id); item.Status != "Success" {
		t.Errorf("item = %s (%s): %s", item.Status, item.ErrorCode, item.Note)
	}
	if now, err := requests.In(a.deps.Registry).DeletionRequest(t.Context(), d.ID); err != nil || now.Done != now.Items {
		t.Errorf("request = %+v, %v", now, err)
	}
}
