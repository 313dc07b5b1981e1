package registry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
)

// bad has n files with a copy in Standard-VA that failed, and returns their failures.
func (a *archive) bad(n int) []record.FixityBadCopy {
	a.t.Helper()
	a.withCopies(n)
	for _, c := range a.due() {
		result := matching(c)
		result.Found = strings.Repeat("b", 64)
		a.recorded(result)
	}
	list, err := fixity.In(a.Registry).BadCopies(context.Background(), "", 0, 0, 1000)
	if err != nil || len(list) != n {
		a.t.Fatalf("%d bad copies, %v; want %d", len(list), err, n)
	}
	return list
}

func TestBadCopiesAreListed(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	list := a.bad(3)
	a.exec(`UPDATE fixity_failures SET noted_at = now() - interval '2 hours' WHERE id = $1`, list[1].Failure)
	a.exec(`UPDATE generic_files SET state = 'D' WHERE identifier = $1`, list[2].File)
	for name, tc := range map[string]struct {
		identifier string
		known      time.Duration
		after      int64
		want       int
	}{
		"all but what was deleted": {"", 0, 0, 2},
		"of the object":            {"test.edu/bag", 0, 0, 2},
		"of the file":              {list[0].File, 0, 0, 1},
		"of a directory":           {"test.edu/bag/data", 0, 0, 0},
		"of another object":        {"test.edu/ba", 0, 0, 0},
		"known for an hour":        {"", time.Hour, 0, 1},
		"behind the first":         {"", 0, list[0].Failure, 1},
	} {
		got, err := fixity.In(a.Registry).BadCopies(t.Context(), tc.identifier, tc.known, tc.after, 10)
		if err != nil || len(got) != tc.want {
			t.Errorf("%s: %d, %v; want %d", name, len(got), err, tc.want)
		}
	}
}

// A bad copy is in one pair of hands, those of who checks it included.
func TestBadCopyIsHeldOnce(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := context.Background()
	b := a.bad(1)[0]
	a.exec(`INSERT INTO fixity_failures (storage_record_id, generic_file_id, target, provider, url, problem, algorithm, expected, found_at, seen_at)
		SELECT id, generic_file_id, target, 'AWS', url, 'missing', 'sha256', 'x', now(), now() FROM storage_records WHERE target = 'Standard-OR'`)
	var mu sync.Mutex
	var all sync.WaitGroup
	var held []fixity.Repair
	for i := range 8 {
		all.Go(func() {
			w, err := fixity.In(a.Registry).HoldRepair(ctx, fmt.Sprint(i), b.Failure, time.Minute)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				held = append(held, w)
			case !errors.Is(err, fixity.ErrHeld):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(held) != 1 {
		t.Fatalf("%d hold it", len(held))
	}
	f, w := fileRecord("data/0", 1), held[0]
	want := fixity.Repair{
		Hold: w.Hold, FixityBadCopy: b, Bucket: f.Copies[0].Bucket, Key: f.Copies[0].Key, Object: "test.edu/bag", Path: "data/0",
		Size: 1, Format: "text/plain", MD5: f.MD5, SHA256: f.SHA256,
		Others: []record.FixityOtherCopy{{Bad: true, StoredCopy: record.StoredCopy{
			Target: "Standard-OR", Bucket: f.Copies[1].Bucket, Key: f.Copies[1].Key, URL: f.Copies[1].URL, ETag: f.Copies[1].ETag, StoredAt: f.Copies[1].StoredAt,
		}}},
	}
	if diff := cmp.Diff(want, w, cmpopts.IgnoreFields(record.StoredCopy{}, "ID"), cmpopts.EquateApproxTime(0)); diff != "" || w.ID == 0 || w.Token == 0 {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	a.exec(`UPDATE storage_records SET last_fixity_at = now() - interval '1 year' WHERE target = 'Standard-VA'`)
	if got := a.claims(fixity.Claim{Most: 5}); len(got) > 0 {
		t.Errorf("it is checked meanwhile: %s", names(got))
	}
	must.Do(t, fixity.In(a.Registry).Release(ctx, w.Hold))
	checked := a.claims(fixity.Claim{Most: 5})
	if _, err := fixity.In(a.Registry).HoldRepair(ctx, "r", b.Failure, time.Minute); !errors.Is(err, fixity.ErrHeld) || len(checked) != 1 {
		t.Errorf("while it is checked: %v, want ErrHeld", err)
	}
	// What is put off till tomorrow can be repaired today.
	must.Get(fixity.In(a.Registry).Retry(ctx, fixity.Trouble{Hold: hold(checked[0]), Wait: day}))(t)
	if _, err := fixity.In(a.Registry).HoldRepair(ctx, "r", b.Failure, time.Minute); err != nil {
		t.Error(err)
	}
	a.exec(`UPDATE fixity_failures SET state = 'repaired', closed_at = now() WHERE id = $1`, b.Failure)
	if _, err := fixity.In(a.Registry).HoldRepair(ctx, "r", b.Failure, time.Minute); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("repaired: %v, want ErrNotFound", err)
	}
}

// Nothing is noted or recorded by who has lost the copy, and nothing of a copy that
// is none any more.
func TestRepairOfWhatWasLostChangesNothing(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]string{
		"taken over":    `UPDATE fixity_checks SET token = token + 1`,
		"given back":    `UPDATE fixity_checks SET worker = ''`,
		"being deleted": goingSQL,
		"gone":          `DELETE FROM storage_records`,
		"closed":        `UPDATE fixity_failures SET state = 'good again', closed_at = now()`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			w := must.Get(fixity.In(a.Registry).HoldRepair(t.Context(), "r", a.bad(1)[0].Failure, time.Minute))(t)
			a.exec(lose)
			events := a.counts()["premis_events"]
			if err := fixity.In(a.Registry).NoteRepair(t.Context(), w, "q", "from"); !errors.Is(err, registry.ErrLost) {
				t.Errorf("NoteRepair = %v, want ErrLost", err)
			}
			if err := fixity.In(a.Registry).RecordRepair(t.Context(), fixity.Repaired{Repair: w, ETag: "e", StoredAt: time.Now()}); !errors.Is(err, registry.ErrLost) {
				t.Errorf("RecordRepair = %v, want ErrLost", err)
			}
			if n := a.counts()["premis_events"]; n != events || value[int](a, `SELECT count(*) FROM fixity_failures WHERE state = 'repaired' OR repaired_from <> ''`) > 0 ||
				value[int](a, `SELECT count(*) FROM storage_records WHERE etag = 'e'`) > 0 {
				t.Error("something was written")
			}
		})
	}
	a := newArchive(t)
	w := must.Get(fixity.In(a.Registry).HoldRepair(t.Context(), "r", a.bad(1)[0].Failure, time.Minute))(t)
	a.exec(`UPDATE fixity_checks SET run_at = now()`)
	if err := fixity.In(a.Registry).NoteRepair(t.Context(), w, "q", "from"); !errors.Is(err, registry.ErrLost) {
		t.Errorf("after the lease: NoteRepair = %v, want ErrLost", err)
	}
}

// The repair limit goes by number and by share, by provider and by the hour, and what failed
// before it was released counts no more.
func TestRepairLimit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		scene string
		stops bool
	}{
		"as many as may fail":      {``, false},
		"one more":                 {`UPDATE fixity_failures SET noted_at = now()`, true},
		"of another provider":      {`UPDATE fixity_failures SET noted_at = now(), provider = 'Wasabi-VA' WHERE id = 1`, false},
		"one was read in two ways": {`INSERT INTO fixity_done (target, minute, wavered) VALUES ('Standard-OR', date_trunc('minute', now()), 1)`, true},
		"that one an hour ago":     {`INSERT INTO fixity_done (target, minute, wavered) VALUES ('Standard-OR', date_trunc('minute', now()) - interval '61 minutes', 1)`, false},
		"that one is of another":   {`INSERT INTO fixity_done (target, minute, wavered) VALUES ('Wasabi-VA', date_trunc('minute', now()), 1)`, false},
		"one that was good again":  {`UPDATE fixity_failures SET noted_at = now(), state = 'good again', closed_at = now()`, true},
		"one that failed twice":    {`INSERT INTO fixity_failures (storage_record_id, generic_file_id, target, provider, url, problem, algorithm, expected, found_at, seen_at, state, closed_at) SELECT storage_record_id, generic_file_id, target, provider, url, problem, algorithm, expected, now(), now(), 'repaired', now() FROM fixity_failures`, true},
		"released after they failed": {`UPDATE fixity_failures SET noted_at = now() - interval '1 minute';
			INSERT INTO users (email, name, role) VALUES ('a@b.c', 'An Admin', 'admin');
			INSERT INTO repair_stops (provider, reason, stopped_at, released_by, released_at) VALUES ('AWS', 'x', now(), 1, now())`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.bad(5)
			a.exec(`UPDATE fixity_failures SET noted_at = now() - interval '61 minutes' WHERE id = 1`)
			a.exec(`UPDATE fixity_done SET minute = minute - interval '2 minutes'`)
			for statement := range strings.SplitSeq(tc.scene, ";") {
				a.exec(statement)
			}
			for range 2 {
				b, err := fixity.In(a.Registry).CheckRepairLimit(t.Context(), "AWS", fixity.RepairLimits{Failures: 4, Share: 5, Least: 100})
				if err != nil || (b != nil) != tc.stops {
					t.Errorf("CheckRepairLimit = %+v, %v; want a stop: %v", b, err, tc.stops)
				}
			}
			if n := value[int](a, `SELECT count(*) FROM alerts WHERE type = 'Repair Stopped'`); (n == 1) != tc.stops || n > 1 {
				t.Errorf("%d alerts", n)
			}
		})
	}
	// A share is of many.
	a := newArchive(t)
	a.bad(6)
	limits := fixity.RepairLimits{Failures: 100, Share: 5, Least: 100}
	for checks, stops := range map[int]bool{99: false, 120: false, 119: true} {
		a.exec(`DELETE FROM repair_stops`)
		a.exec(`UPDATE fixity_done SET checks = $1, minute = date_trunc('minute', now())`, checks)
		if b, err := fixity.In(a.Registry).CheckRepairLimit(t.Context(), "AWS", limits); err != nil || (b != nil) != stops {
			t.Errorf("6 of %d: %+v, %v", checks, b, err)
		}
	}
}
