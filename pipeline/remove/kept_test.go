package remove

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/requests"
)

// retained has the store of Standard-OR keep all copies of a bag until a time.
func (a *archive) retained(bag string, until time.Time) {
	a.T.Helper()
	a.eachKey(bag, func(bucket, key string) { a.S3.Retain(a.T, bucket, key, until) })
}

// held puts them under a legal hold, or lifts it.
func (a *archive) held(bag string, on bool) {
	a.T.Helper()
	a.eachKey(bag, func(bucket, key string) { a.S3.LegalHold(a.T, bucket, key, on) })
}

func (a *archive) eachKey(bag string, do func(bucket, key string)) {
	a.T.Helper()
	keys := pipelinetest.Value[[]string](a, `SELECT array_agg(s.key) FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id
		WHERE s.target = 'Standard-OR' AND f.identifier LIKE 'test.edu/' || $1 || '/%'`, bag)
	for _, key := range keys {
		do(a.Deps.Targets["Standard-OR"].Name(), key)
	}
}

// waitsForTheStore fails the test unless a deletion waits, has removed nothing and spent nothing,
// and everybody who may ask is told why.
func (a *archive) waitsForTheStore(d record.DeletionRequest, id int64, kept string) {
	a.T.Helper()
	ctx := context.Background()
	item := a.Item(id)
	want := "Copies are " + kept + ": Standard-OR. "
	if item.Status != "Pending" || item.Attempt != 0 || item.ErrorCode != "kept-by-store" || item.NeedsAdminReview || !strings.HasPrefix(item.Note, want) {
		a.T.Errorf("item = %s, attempt %d (%s): %q, want %q", item.Status, item.Attempt, item.ErrorCode, item.Note, want)
	}
	if ends := pipelinetest.Value[string](a, `SELECT string_agg(DISTINCT outcome || ' ' || error_code, ', ') FROM work_item_attempts WHERE work_item_id = $1`, id); ends != "snoozed kept-by-store" {
		a.T.Errorf("the ledger says %s", ends)
	}
	says := func(what, text string) {
		a.T.Helper()
		if !strings.Contains(text, kept) {
			a.T.Errorf("%s says %q, want %q", what, text, kept)
		}
	}
	now, err := requests.In(a.Deps.Registry).DeletionRequest(ctx, d.ID)
	says("the request", fmt.Sprint(now.Kept, err))
	receipts := must.Get(requests.In(a.Deps.Registry).Receipts(ctx, d.ID, 100))(a.T)
	for _, r := range receipts {
		if r.RemovedAt != nil || r.AbsentAt != nil || (r.Target == "Standard-OR") != (r.KeptByStore == kept) {
			a.T.Errorf("receipt = %+v", r)
		}
	}
	shown := must.Get(explain.Source{Registry: a.Deps.Registry, Progress: a.Deps.Progress}.Item(ctx, id))(a.T)
	says("the item's page", shown.State)
	says("the watch", explain.State(item, time.Now()))
	says("why_not", pipelinetest.Value[string](a, `SELECT string_agg(reason || ': ' || detail, ' ') FROM why_not($1)`, id))
	_, err = requests.In(a.Deps.Registry).RequestRestoration(ctx, requests.RestorationRequest{Identifier: item.ObjectIdentifier})
	says("a restoration", fmt.Sprint(err))
	_, _, waits, err := requests.In(a.Deps.Registry).LiveRequests(ctx, item.ObjectIdentifier)
	says("a new version", fmt.Sprint(waits, err))
	for _, sql := range []string{
		`SELECT count(*) FROM deletion_receipts WHERE begun_at IS NOT NULL`,
		`SELECT count(*) FROM generic_files WHERE state = 'D' OR deleted_by_item IS NOT NULL`,
		`SELECT count(*) FROM intellectual_objects WHERE state = 'D' OR deleted_by_item IS NOT NULL`,
		`SELECT count(*) FROM premis_events WHERE event_type = 'deletion'`,
		`SELECT count(*) FROM storage_records WHERE NOT active`,
	} {
		if n := pipelinetest.Value[int](a, sql); n != 0 {
			a.T.Errorf("%s = %d", sql, n)
		}
	}
}

// A deletion whose copies the store keeps waits for that, without a person: when the time is over,
// it ends by itself, and its receipts say until when the copies were kept.
func TestDeletionWaitsUntilTheStoreLetsGo(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Locked("Standard-OR")
	a.Ingested(bagtest.Spec{Name: "locked", Files: []bagtest.File{{Path: "data/a.txt", Content: "a"}, {Path: "data/b.txt", Content: "b"}}})
	files := pipelinetest.Value[[]string](a, `SELECT array_agg(identifier) FROM generic_files`)
	before := a.AllCopies()
	until := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	a.retained("locked", until)
	d := a.Doomed("test.edu/locked")
	id := pipelinetest.Value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`)
	a.Request(a.Engine(), "Delete")
	kept := "kept by the store until " + until.Format("2006-01-02 15:04:05") + " UTC"
	a.waitsForTheStore(d, id, kept)
	if after := a.AllCopies(); !slices.Equal(before, after) {
		t.Errorf("copies: %v\nwant %v", after, before)
	}
	if due := a.Item(id).RunAt; due == nil || due.Before(until) || due.After(until.Add(10*time.Second)) {
		t.Errorf("it is due at %v, want just after %s", due, until)
	}
	soon := time.Now().Add(3 * time.Second).Truncate(time.Second).UTC()
	a.retained("locked", soon)
	a.Exec(fmt.Sprintf(`SELECT requeue(%d)`, id)) // or else it would look in an hour
	a.Work()
	a.isDeleted(d, files...)
	if left := a.AllCopies(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	receipts, err := requests.In(a.Deps.Registry).Receipts(t.Context(), d.ID, 100)
	if err != nil || len(receipts) != 2*len(files) {
		t.Fatalf("%d receipts, %v", len(receipts), err)
	}
	for _, r := range receipts {
		said := r.KeptByStore == kept || r.KeptByStore == "kept by the store until "+soon.Format("2006-01-02 15:04:05")+" UTC"
		if said != (r.Target == "Standard-OR") || said && r.RemovedAt.Before(soon) {
			t.Errorf("receipt = %+v", r)
		}
	}
	if spent := pipelinetest.Value[string](a, `SELECT string_agg(DISTINCT outcome, ', ' ORDER BY outcome) FROM work_item_attempts WHERE work_item_id = $1`, id); spent != "done, snoozed" {
		t.Errorf("the ledger says %s", spent)
	}
	if now, err := requests.In(a.Deps.Registry).DeletionRequest(t.Context(), d.ID); err != nil || now.Kept != "" {
		t.Errorf("request = %+v, %v", now, err)
	}
}

// A legal hold has no end, so a deletion looks once a day. A requeue looks at once; a cancellation
// leaves everything as it was, and the deletion can be asked for again.
func TestDeletionUnderALegalHold(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.BothReadable()
	a.Locked("Standard-OR")
	a.Ingested(bagtest.Spec{Name: "hold", Files: []bagtest.File{{Path: "data/a.txt", Content: "a"}}})
	before := a.AllCopies()
	a.held("hold", true)
	const kept = "kept by the store under a legal hold"
	d := a.Doomed("test.edu/hold")
	id := pipelinetest.Value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`)
	engine := a.Engine()
	a.Request(engine, "Delete")
	a.waitsForTheStore(d, id, kept)
	if hours := pipelinetest.Value[float64](a, `SELECT (extract(epoch FROM run_at - now()) / 3600)::float8 FROM work_items WHERE id = $1`, id); hours < 23 || hours > 24 {
		t.Errorf("it looks again in %v hours, want once a day", hours)
	}
	a.Exec(fmt.Sprintf(`SELECT requeue(%d)`, id))
	a.Request(engine, "Delete")
	a.waitsForTheStore(d, id, kept)

	must.Get(requests.In(a.Deps.Registry).CancelDeletion(t.Context(), d.ID, "second@test.edu", "a mistake"))(t)
	if item := a.Item(id); item.Status != "Cancelled" || strings.Contains(item.Note, "deleted before that") {
		t.Errorf("item = %s: %s", item.Status, item.Note)
	}
	if after := a.AllCopies(); !slices.Equal(before, after) {
		t.Errorf("copies: %v\nwant %v", after, before)
	}
	a.whatIsThereIsChecked()
	if item := a.Restored("test.edu/hold"); item.Status != "Success" {
		t.Errorf("restored: %s: %s", item.Status, item.Note)
	}

	d = a.Doomed("test.edu/hold")
	id = pipelinetest.Value[int64](a, `SELECT max(id) FROM work_items WHERE action = 'Delete'`)
	a.Request(engine, "Delete")
	a.held("hold", false)
	a.Exec(fmt.Sprintf(`SELECT requeue(%d)`, id))
	a.Work()
	if item := a.Item(id); item.Status != "Success" {
		t.Errorf("item = %s (%s): %s", item.Status, item.ErrorCode, item.Note)
	}
	if left := a.AllCopies(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// A copy may be locked between the look and its removal. Then it is in preservation again while
// the deletion waits; what was removed before has its receipt, and is not removed again.
func TestCopyThatIsLockedAtItsRemoval(t *testing.T) {
	t.Parallel()
	for name, cancelled := range map[string]bool{"it goes on": false, "it is cancelled": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.BothReadable()
			a.Locked("Standard-OR")
			spec := bagtest.Spec{Name: "whole", Files: []bagtest.File{{Path: "data/a.txt", Content: "a"}, {Path: "data/b.txt", Content: "b"}}}
			a.Ingested(spec)
			a.Doomed("test.edu/whole")
			id := pipelinetest.Value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`)
			direct := map[string]string{}
			var once sync.Once
			lock := func() { a.held("whole", true) }
			for _, name := range []string{"Standard-VA", "Standard-OR"} {
				b := a.Deps.Targets[name]
				direct[name] = b.Name()
				a.Deps.Targets[name] = a.Behind(b, func(proxy *httputil.ReverseProxy) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.Method == http.MethodDelete {
							once.Do(lock)
						}
						proxy.ServeHTTP(w, r)
					})
				})
			}
			a.Request(a.Engine(), "Delete")
			for name, bucket := range direct {
				a.Deps.Targets[name] = a.Bucket(bucket)
			}
			item := a.Item(id)
			if item.Status != "Pending" || item.ErrorCode != "kept-by-store" || !strings.Contains(item.Note, "kept by the store under a legal hold: Standard-OR") {
				t.Fatalf("item = %s (%s): %s", item.Status, item.ErrorCode, item.Note)
			}
			a.whatIsThereIsChecked()
			if n := len(a.Keys(a.Deps.Targets["Standard-OR"])); n != 4 {
				t.Errorf("%d copies are left under the hold, want 4", n)
			}
			if n := pipelinetest.Value[int](a, `SELECT count(*) FROM deletion_receipts WHERE target = 'Standard-OR' AND kept_by_store <> '' AND begun_at IS NULL`); n == 0 {
				t.Error("no receipt says that its copy is kept")
			}
			a.held("whole", false)
			if cancelled {
				a.cancelled(id)
				a.whatIsThereIsChecked()
				a.givenBack(id, 0, 4)
				a.checkedAndRepaired()
				return
			}
			a.Exec(fmt.Sprintf(`SELECT requeue(%d)`, id))
			a.Work()
			if item := a.Item(id); item.Status != "Success" || len(a.AllCopies()) != 0 {
				t.Errorf("item = %s: %s; left: %v", item.Status, item.Note, a.AllCopies())
			}
		})
	}
}
