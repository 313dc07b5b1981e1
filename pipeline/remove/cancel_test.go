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
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/fixity"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	records "github.com/farol-preservation/farol/registry/fixity"
)

// A watch sees the requests of a deletion to the preservation buckets, and calls hit once, at
// the one that when chooses: by how many removals were asked for, and how many looks since.
type watch struct {
	when   func(removals, looks int) bool
	late   bool // hit is called when the request was served
	denied int  // from which removal on they are refused; 0: none is
	hit    func()

	mu              sync.Mutex
	removals, looks int
	done            bool
}

func (g *watch) way(proxy *httputil.ReverseProxy) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		removes := r.Method == http.MethodDelete || r.URL.Query().Has("delete")
		g.mu.Lock()
		switch {
		case removes:
			g.removals, g.looks = g.removals+1, 0
		case r.Method == http.MethodHead:
			g.looks++
		}
		hit := !g.done && (removes || r.Method == http.MethodHead) && g.when != nil && g.when(g.removals, g.looks)
		g.done = g.done || hit
		refused := removes && g.denied != 0 && g.removals >= g.denied
		g.mu.Unlock()
		if hit && !g.late {
			g.hit()
		}
		if refused {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `<Error><Code>AccessDenied</Code><Message>Object is WORM protected</Message></Error>`)
			return
		}
		proxy.ServeHTTP(w, r)
		if hit && g.late {
			g.hit()
		}
	})
}

// watched puts a watch before both buckets of Standard.
func (a *archive) watched(g *watch) (direct func()) {
	was := map[string]string{}
	for _, name := range []string{"Standard-VA", "Standard-OR"} {
		b := a.Deps.Targets[name]
		was[name] = b.Name()
		a.Deps.Targets[name] = a.Behind(b, g.way)
	}
	return func() {
		for name, bucket := range was {
			a.Deps.Targets[name] = a.Bucket(bucket)
		}
	}
}

// Whenever a deletion is cancelled, what it has left is in preservation again: it is checked,
// repaired, restored, deposited and deleted like anything else. What was removed is on record
// as removed, and the item says how much that was.
func TestCancelledDeletionGivesBack(t *testing.T) {
	t.Parallel()
	at := func(removals, looks int) func(int, int) bool {
		return func(r, l int) bool { return r == removals && l == looks }
	}
	const files = 4 // a.txt, b.txt, bag-info.txt, aptrust-info.txt
	for name, tc := range map[string]*struct {
		watch

		lost    bool // a copy, before
		deleted int  // files
	}{
		"during the first look":      {watch: watch{when: at(0, 1)}},
		"a copy was missing":         {lost: true},
		"the stores refuse":          {watch: watch{denied: 1}},
		"one of two stores refuses":  {watch: watch{denied: 2}},
		"before the first removal":   {watch: watch{when: at(1, 0)}},
		"after the first removal":    {watch: watch{when: at(1, 0), late: true}},
		"after the second removal":   {watch: watch{when: at(2, 0), late: true}, deleted: 1},
		"when a file is removed":     {watch: watch{when: at(2, 1)}, deleted: 1},
		"in the second round":        {watch: watch{when: at(3, 0)}, deleted: 1},
		"when all files are removed": {watch: watch{when: at(2*files, 1)}, deleted: files},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.BothReadable()
			spec := bagtest.Spec{Name: "whole", Files: []bagtest.File{{Path: "data/a.txt", Content: "a"}, {Path: "data/b.txt", Content: "b"}}}
			a.Ingested(spec)
			if n := pipelinetest.Value[int](a, `SELECT count(*) FROM generic_files`); n != files {
				t.Fatalf("%d files, want %d", n, files)
			}
			if tc.lost {
				must.Do(t, a.Deps.Targets["Standard-OR"].Delete(t.Context(), a.CopyKey("b.txt")))
			}
			a.Doomed("test.edu/whole")
			id := pipelinetest.Value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`)
			g := &watch{when: tc.when, late: tc.late, denied: tc.denied, hit: func() { a.cancelled(id) }}
			direct := a.watched(g)
			a.Request(a.Engine(), "Delete")
			direct()
			if a.Item(id).Status != "Cancelled" {
				a.whatIsThereIsChecked()
				a.cancelled(id)
			}
			a.whatIsThereIsChecked()
			a.givenBack(id, tc.deleted, files)

			a.checkedAndRepaired()
			if tc.deleted < files {
				if item := a.Restored("test.edu/whole"); item.Status != "Success" {
					t.Errorf("restored: %s: %s", item.Status, item.Note)
				}
			}
			spec.Tags = []bagtest.Tag{{File: "aptrust-info.txt", Name: "Title", Value: "Another title"}}
			a.Ingested(spec)
			if item := a.Restored("test.edu/whole"); item.Status != "Success" {
				t.Errorf("restored what was deposited again: %s: %s", item.Status, item.Note)
			}
			a.deletedAnew(id)
		})
	}
}

func (a *archive) cancelled(id int64) {
	a.Exec(fmt.Sprintf(`SELECT cancel(%d, 'It was a mistake.')`, id))
}

// whatIsThereIsChecked fails the test if a copy that is there is not in preservation, or one
// that is not there is, unless it is on record as bad, or about to be checked.
func (a *archive) whatIsThereIsChecked() {
	a.T.Helper()
	there := a.AllCopies()
	for _, c := range pipelinetest.Value[[]string](a, `
		SELECT coalesce(array_agg(s.target || ' ' || s.key), '{}') FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id
		WHERE f.state = 'A' AND s.active AND NOT EXISTS (SELECT FROM bad_copies b WHERE b.storage_record_id = s.id AND b.problem = 'missing')
		  AND NOT EXISTS (SELECT FROM fixity_checks c WHERE c.storage_record_id = s.id AND c.requested)`) {
		if !slices.Contains(there, c) {
			a.T.Errorf("%s is gone, and the record does not say so", c)
		}
	}
	for _, c := range pipelinetest.Value[[]string](a, `SELECT coalesce(array_agg(target || ' ' || key), '{}') FROM storage_records WHERE NOT active`) {
		if slices.Contains(there, c) {
			a.T.Errorf("%s is there, and nobody checks it", c)
		}
	}
}

// givenBack fails the test unless a cancelled deletion has left no mark on what it has not
// deleted, and says how much it has.
func (a *archive) givenBack(id int64, deleted, files int) {
	a.T.Helper()
	item := a.Item(id)
	want := "It was a mistake."
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM deletion_receipts WHERE begun_at IS NOT NULL`); n > 0 {
		want = fmt.Sprintf("It was a mistake. %d files were deleted before that; %d files are kept.", deleted, files-deleted)
		if deleted == 1 {
			want = fmt.Sprintf("It was a mistake. 1 file was deleted before that; %d files are kept.", files-deleted)
		}
	}
	if item.Status != "Cancelled" || !strings.HasPrefix(item.Note, want) {
		a.T.Errorf("item = %s: %q, want %q", item.Status, item.Note, want)
	}
	for sql, want := range map[string]int{
		`SELECT count(*) FROM generic_files WHERE state = 'D' AND deleted_by_item IS NOT NULL`:                                            deleted,
		`SELECT count(*) FROM generic_files WHERE state = 'A' AND deleted_by_item IS NULL`:                                                files - deleted,
		`SELECT count(*) FROM premis_events WHERE event_type = 'deletion' AND generic_file_id IS NOT NULL`:                                deleted,
		`SELECT count(*) FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id WHERE f.state = 'D'`:                     0,
		`SELECT count(*) FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id WHERE f.state = 'A' AND s.active`:        2 * (files - deleted),
		`SELECT count(*) FROM intellectual_objects WHERE state = 'A' AND deleted_by_item IS NULL OR state = 'D' AND deleted_by_item <> 0`: 1,
	} {
		if n := pipelinetest.Value[int](a, sql); n != want {
			a.T.Errorf("%s = %d, want %d", sql, n, want)
		}
	}
	if o, err := a.Deps.Registry.Object(a.T.Context(), "test.edu/whole"); err != nil || o.Deleting || (o.State == "D") != (deleted == files) {
		a.T.Errorf("object = %+v, %v", o, err)
	}
}

// checkedAndRepaired lets the time pass for which copies are held, and has what is asked for
// checked, and what is bad repaired. Then all copies are there.
func (a *archive) checkedAndRepaired() {
	a.T.Helper()
	a.Exec(`UPDATE fixity_checks SET run_at = now() - interval '1 second'`)
	f := &fixity.Checker{
		Registry: a.Deps.Registry, Targets: a.Deps.Targets, Log: a.Deps.Log, Worker: "w", Slots: 2, Batch: 5, Attempts: 3, Days: 90,
		Lease: 20 * time.Second, Poll: 20 * time.Millisecond, Again: time.Millisecond,
	}
	ctx, cancel := context.WithCancel(a.T.Context())
	var all sync.WaitGroup
	all.Go(func() {
		if err := f.Run(ctx); err != nil {
			a.T.Error(err)
		}
	})
	testenv.Eventually(a.T, "the copies that may be gone to be checked", func() bool { return pipelinetest.Value[int](a, `SELECT count(*) FROM fixity_checks`) == 0 })
	cancel()
	all.Wait()
	r := &fixity.Repairer{
		Registry: a.Deps.Registry, Targets: a.Deps.Targets, Log: a.Deps.Log, Worker: "r", Quarantine: a.Bucket(a.S3.Prefix + "quarantine"), Again: time.Millisecond,
		Limits: records.RepairLimits{Failures: 100, Share: 100, Least: 100},
	}
	bad := must.Get(records.In(a.Deps.Registry).BadCopies(a.T.Context(), "", 0, 0, 100))(a.T)
	for _, b := range bad {
		if d := r.Repair(a.T.Context(), b); d.Result != fixity.RepairDone {
			a.T.Errorf("%s in %s: %s: %s", b.File, b.Target, d.Result, d.Reason)
		}
	}
	there := a.AllCopies()
	for _, c := range pipelinetest.Value[[]string](a, `SELECT coalesce(array_agg(target || ' ' || key), '{}') FROM storage_records`) {
		if !slices.Contains(there, c) {
			a.T.Errorf("%s is not repaired", c)
		}
	}
}

// deletedAnew has two people decide once more, and fails the test unless nothing is left.
func (a *archive) deletedAnew(id int64) {
	a.T.Helper()
	a.Doomed("test.edu/whole")
	a.Work()
	again := a.Item(pipelinetest.Value[int64](a, `SELECT max(id) FROM work_items WHERE action = 'Delete'`))
	if again.ID == id || again.Status != "Success" {
		a.T.Errorf("deleted anew: %s: %s", again.Status, again.Note)
	}
	if left := a.AllCopies(); len(left) != 0 {
		a.T.Errorf("left: %v", left)
	}
}
