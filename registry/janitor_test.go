package registry_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/upkeep"
)

func (a *archive) state(id int64) upkeep.ItemState {
	a.t.Helper()
	states, err := upkeep.In(a.Registry).ItemStates(context.Background(), []int64{id, 4711})
	if err != nil || len(states) != 1 {
		a.t.Fatalf("ItemStates = %v, %v", states, err)
	}
	return states[id]
}

// While something is done to an ended item, nobody requeues or cancels it, and nobody
// brings another of its object; all come to their end once it is done.
func TestNobodyInterferesWhileAnItemIsAlone(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.upload(etag1, time.Now(), "bag.tar")[0]
	a.exec(`UPDATE work_items SET status = 'Failed'`)
	s := a.state(id)
	holds, done, ended := make(chan bool), make(chan bool), make(chan error, 4)
	release := sync.OnceFunc(func() { close(done) })
	t.Cleanup(release)
	go func() {
		alone, err := upkeep.In(a.Registry).WhileAlone(context.Background(), s, func(context.Context) error {
			close(holds)
			<-done
			return nil
		})
		if !alone {
			t.Error("the item was not alone")
		}
		ended <- err
	}()
	<-holds
	inLine := func(n int) func() bool {
		return func() bool {
			return value[int](a, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == n
		}
	}
	go func() {
		_, err := a.Cancel(context.Background(), id, "")
		ended <- err
	}()
	testenv.Eventually(t, "who cancels it to stand in line", inLine(1))
	go func() {
		_, err := a.Requeue(context.Background(), id, "")
		if errors.Is(err, registry.ErrRefused) { // another of them was quicker
			err = nil
		}
		ended <- err
	}()
	go func() {
		_, err := a.CreateIngests(context.Background(), a.in, time.Now(), []registry.Upload{{Key: "bag.tar", ETag: etag2, LastModified: time.Now()}})
		ended <- err
	}()
	testenv.Eventually(t, "all to stand in line", inLine(3))
	if n := value[int](a, `SELECT count(*) FROM work_items WHERE retry`); n != 0 || len(ended) > 0 {
		t.Errorf("%d items are live", n)
	}
	release()
	for range 4 {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(testenv.Patience):
			t.Fatal("somebody still waits")
		}
	}
	if n := value[int](a, `SELECT count(*) FROM work_items WHERE retry AND etag = $1`, etag2); n != 1 {
		t.Errorf("%d items of the newer upload are live, want 1", n)
	}
}

// What is no longer as it was is left alone.
func TestChangedItemIsNotAlone(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, change := range map[string]string{
		"nothing changed":          ``,
		"requeued":                 `SELECT requeue(id) FROM work_items`,
		"requeued and failed anew": `SELECT requeue(id) FROM work_items; UPDATE work_items SET status = 'Failed'`,
		"another of the object":    `INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date) SELECT institution_id, 'Ingest', 'Receive', 'bag.b1.of2.tar', bucket, 'x', 1, now() FROM work_items`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			id := a.upload(etag1, time.Now(), "bag.tar")[0]
			a.exec(`UPDATE work_items SET status = 'Failed'`)
			s := a.state(id)
			if change != "" {
				a.exec(change)
			}
			called := false
			alone, err := upkeep.In(a.Registry).WhileAlone(t.Context(), s, func(context.Context) error {
				called = true
				return boom
			})
			if want := change == ""; called != want || alone || errors.Is(err, boom) != want {
				t.Errorf("WhileAlone = %v, %v, called %v", alone, err, called)
			}
			still, err := upkeep.In(a.Registry).StillEnded(t.Context(), s)
			if want := change == "" || name == "another of the object"; err != nil || still != want {
				t.Errorf("StillEnded = %v, %v", still, err)
			}
		})
	}
}

// An item that was archived is as it ended, for good.
func TestArchivedItemHasAState(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.upload(etag1, time.Now(), "bag.tar")[0]
	a.start(id, 5, "Store")
	a.exec(`UPDATE work_items SET status = 'Cancelled'`)
	before := a.state(id)
	a.scene(`INSERT INTO work_items_archive SELECT * FROM work_items`)
	a.scene(`DELETE FROM work_items`)
	a.scene(`INSERT INTO work_item_attempts_archive SELECT * FROM work_item_attempts`)
	a.scene(`DELETE FROM work_item_attempts`)
	after := a.state(id)
	after.Rested = before.Rested
	if after != before || !after.Stored || after.Live || after.Status != "Cancelled" {
		t.Errorf("in the archive it is %+v, before %+v", after, before)
	}
	alone, err := upkeep.In(a.Registry).WhileAlone(t.Context(), after, func(context.Context) error { return nil })
	if err != nil || !alone {
		t.Errorf("WhileAlone = %v, %v", alone, err)
	}
}

// The record of what a bucket lists is read in the same order, by an index.
func TestCopyKeysComeInTheOrderOfTheirBytes(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(etag1, fileRecord("data/a.txt", 1))
	a.scene(`INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at)
		SELECT 1000 + n, 'https://x/' || n, 'Wasabi-VA', 'b', k, now(), now()
		FROM unnest(ARRAY['b', 'B', 'a.1', 'a', 'é', 'Z', '-', 'a-1']) WITH ORDINALITY AS x (k, n)`)
	a.scene(`INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at)
		SELECT 5000 + n, 'https://y/' || n, 'Wasabi-VA', 'b', 'a/' || lpad(n::text, 6, '0'), now(), now() FROM generate_series(1, 5000) n`)
	last, n := "", 0
	for key, err := range upkeep.In(a.Registry).CopyKeys(t.Context(), "Wasabi-VA") {
		if err != nil {
			t.Fatal(err)
		}
		if n++; key <= last {
			t.Errorf("%q comes after %q", key, last)
		}
		last = key
	}
	if n != 5008 {
		t.Errorf("%d keys, want 5008", n)
	}
	// The database of this test may have that order anyway.
	order := value[string](a, `SELECT coalesce(collation_name, 'the database''s') FROM information_schema.columns WHERE table_name = 'storage_records' AND column_name = 'key'`)
	if order != "C" {
		t.Errorf("the order of keys is %s", order)
	}
	a.exec(`ANALYZE storage_records`)
	plan := value[string](a, `EXPLAIN (FORMAT JSON) SELECT key FROM storage_records WHERE target = 'Wasabi-VA' AND key > 'a' ORDER BY target, key LIMIT 2000`)
	if !strings.Contains(plan, "storage_records_copy") || strings.Contains(plan, `"Sort"`) {
		t.Errorf("plan: %s", plan)
	}
}

// All items of an object may have copies that are not on record: the live ones, and those that
// ended without success, those of a bag in several tars as well. Requests make none.
func TestItemsOfAnObject(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.exec(`INSERT INTO work_items (institution_id, action, stage, status, retry, name, bucket, etag, size, bag_date, object_identifier)
		SELECT 1, x.action, x.stage, x.status, x.status = 'Pending', x.name, 'b', 'e', 1, now(), 'test.edu/bag' FROM (VALUES
			('Ingest', 'Store', 'Failed', 'bag.tar'), ('Ingest', 'Store', 'Cancelled', 'bag.b1.of2.tar'), ('Ingest', 'Receive', 'Pending', 'bag.b2.of2.tar'),
			('Ingest', 'Cleanup', 'Success', 'bag.tar'), ('Restore Object', 'Requested', 'Failed', 'bag.tar'), ('Ingest', 'Store', 'Failed', 'bag2.tar')
		) x (action, stage, status, name)`)
	ids := must.Get(upkeep.In(a.Registry).ItemsOf(context.Background(), "test.edu/bag"))(t)
	got := value[[]string](a, `SELECT array_agg(action || ' ' || status || ' ' || name ORDER BY name) FROM work_items WHERE id = ANY ($1)`, ids)
	if want := []string{"Ingest Cancelled bag.b1.of2.tar", "Ingest Pending bag.b2.of2.tar", "Ingest Failed bag.tar"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
