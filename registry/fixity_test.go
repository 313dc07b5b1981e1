package registry_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/fixity"
)

const day = 24 * time.Hour

// withCopies puts a bag of n files on record, each with a copy in Standard-VA and one
// in Standard-OR, which is read too, and allows many checks.
func (a *archive) withCopies(n int) {
	a.t.Helper()
	a.withFiles(n)
	a.exec(`UPDATE fixity_policies SET mode = 'read' WHERE target = 'Standard-OR'`)
	a.exec(`UPDATE generic_files SET last_fixity_check = now()`)
	a.exec(`UPDATE storage_records SET last_fixity_at = now()`)
	a.feed(1000)
}

func (a *archive) feed(n int) {
	a.t.Helper()
	must.Get(fixity.In(a.Registry).Feed(context.Background(), n, 30*time.Minute))(a.t)
}

// checked sets when the copy of a file in a target was checked last.
func (a *archive) checked(path, target string, ago time.Duration) {
	a.t.Helper()
	a.exec(`UPDATE storage_records s SET last_fixity_at = now() - $3::interval FROM generic_files f
		WHERE f.id = s.generic_file_id AND f.identifier = 'test.edu/bag/data/' || $1 AND s.target = $2`, path, target, ago)
}

func (a *archive) claims(c fixity.Claim) []fixity.Copy {
	a.t.Helper()
	if c.Worker == "" {
		c.Worker = "w"
	}
	if c.Targets == nil {
		c.Targets = []string{"Standard-VA", "Standard-OR", "Wasabi-VA"}
	}
	if c.Days == 0 {
		c.Days = 90
	}
	if c.Lease == 0 {
		c.Lease = time.Minute
	}
	return must.Get(fixity.In(a.Registry).Claim(context.Background(), c))(a.t)
}

// names are the paths and targets of copies, in their order.
func names(list []fixity.Copy) string {
	var out []string
	for _, c := range list {
		out = append(out, strings.TrimPrefix(c.Identifier, "test.edu/bag/data/")+" "+strings.TrimPrefix(c.Target, "Standard-"))
	}
	return strings.Join(out, ", ")
}

// The most overdue copy goes first, wherever it is and however long it has been; what
// is not due does not go at all.
func TestMostOverdueCopiesGoFirst(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(5)
	a.exec(`UPDATE fixity_policies SET interval_days = 30 WHERE target = 'Standard-OR'`)
	a.checked("0", "Standard-VA", 91*day)
	a.checked("1", "Standard-VA", 10*365*day)
	a.checked("2", "Standard-VA", 89*day)
	a.checked("3", "Standard-OR", 33*day)
	a.checked("1", "Standard-OR", 29*day)
	a.checked("4", "Standard-OR", 300*day)
	if got := names(a.claims(fixity.Claim{Most: 3})); got != "1 VA, 4 OR, 3 OR" {
		t.Errorf("first %s", got)
	}
	if got := names(a.claims(fixity.Claim{Most: 3})); got != "0 VA" {
		t.Errorf("then %s", got)
	}
	// A policy counts at once, in either direction.
	if got := names(a.claims(fixity.Claim{Most: 3, Days: 88})); got != "2 VA" {
		t.Errorf("with a shorter interval %s", got)
	}
	a.exec(`UPDATE fixity_policies SET interval_days = 28 WHERE target = 'Standard-OR'`)
	if got := names(a.claims(fixity.Claim{Most: 3, Targets: []string{"Standard-VA"}})); got != "" {
		t.Errorf("in a target that is not asked for %s", got)
	}
	if got := names(a.claims(fixity.Claim{Most: 3})); got != "1 OR" {
		t.Errorf("after the policy changed %s", got)
	}
}

// A claim has all that is needed to read the copy and to judge it.
func TestClaimedCopyIsTheOneOnRecord(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(etag1, fileRecord("data/a.txt", 1))
	a.ingested(etag2, fileRecord("data/a.txt", 2))
	a.feed(5)
	a.exec(`UPDATE storage_records SET last_fixity_at = now() - interval '1 year'`)
	list := a.claims(fixity.Claim{Most: 5})
	f := fileRecord("data/a.txt", 2)
	want := fixity.Copy{
		ID: value[int64](a, `SELECT id FROM storage_records WHERE target = 'Standard-VA'`), FileID: value[int64](a, `SELECT id FROM generic_files`),
		Identifier: f.Identifier, Target: "Standard-VA", Bucket: f.Copies[0].Bucket, Key: f.Copies[0].Key, URL: f.Copies[0].URL, Size: 2, SHA256: f.SHA256,
	}
	if len(list) == 1 {
		want.Token = list[0].Token
	}
	if diff := cmp.Diff([]fixity.Copy{want}, list); diff != "" || want.Token == 0 {
		t.Errorf("claimed (-want +got):\n%s", diff)
	}
}

// What is deleted, or has begun to be removed, is to be missing. What a deletion has not come to
// is checked: another copy of the same file, other files of an object that goes as a whole.
func TestDeletedFilesAreNotChecked(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(4)
	a.exec(`UPDATE storage_records SET last_fixity_at = now() - interval '1 year' WHERE target = 'Standard-VA'`)
	a.exec(`UPDATE generic_files SET state = 'D' WHERE identifier LIKE '%/0'`)
	a.exec(`INSERT INTO deletion_receipts (work_item_id, generic_file_id, target, bucket, key, url, begun_at)
		SELECT 7, s.generic_file_id, s.target, s.bucket, s.key, s.url, now() FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id
		WHERE f.identifier LIKE '%/1' AND s.target = 'Standard-VA';
		UPDATE intellectual_objects SET deleted_by_item = 7;
		UPDATE generic_files SET deleted_by_item = 7 WHERE identifier LIKE '%/1'`)
	if got := names(a.claims(fixity.Claim{Most: 1})); got != "2 VA" {
		t.Errorf("claimed %s", got)
	}
	a.exec(`UPDATE generic_files SET last_fixity_check = now() - interval '2 years'`)
	got := strings.Split(names(a.claims(fixity.Claim{Most: 9})), ", ")
	slices.Sort(got)
	if want := []string{"1 OR", "2 OR", "3 OR", "3 VA"}; !slices.Equal(got, want) {
		t.Errorf("of an object that is being deleted: %v, want %v", got, want)
	}
	a.exec(`UPDATE generic_files SET state = 'A', deleted_by_item = NULL`)
	if got := a.claims(fixity.Claim{Most: 9}); len(got) != 3 {
		t.Errorf("of files that came back: %s", names(got))
	}
}

// Who sets a file's last check back makes its copies due; any other change of the
// file does not.
func TestLastCheckThatIsSetBackMakesCopiesDue(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(3)
	a.exec(`UPDATE generic_files SET last_fixity_check = now() - interval '100 days' WHERE identifier LIKE '%/1'`)
	a.exec(`UPDATE generic_files SET mod_time = now(), updated_at = now() WHERE identifier LIKE '%/2'`)
	got := a.claims(fixity.Claim{Most: 9})
	if names(got) != "1 VA, 1 OR" {
		t.Errorf("claimed %s", names(got))
	}
	// It is no matter how late the next try would have been.
	for _, c := range got {
		must.Get(fixity.In(a.Registry).Retry(t.Context(), fixity.Trouble{Hold: fixity.Hold{ID: c.ID, Token: c.Token}, Wait: day}))(t)
	}
	if again := names(a.claims(fixity.Claim{Most: 9})); again != "" {
		t.Errorf("before the next try: %s", again)
	}
	a.exec(`UPDATE generic_files SET last_fixity_check = now() - interval '101 days' WHERE identifier LIKE '%/1'`)
	if again := names(a.claims(fixity.Claim{Most: 9})); again != "1 VA, 1 OR" {
		t.Errorf("set back again: %s", again)
	}
}

// No more copies are taken up than the scheduler allows, no matter who claims, and what it
// allowed before does not add up.
func TestAllowanceIsKept(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(60)
	a.exec(`UPDATE storage_records SET last_fixity_at = now() - interval '1 year' - interval '1 second' * id`)
	a.exec(`UPDATE fixity_feed SET allowance = 0`)
	seen := map[int64]bool{}
	for interval, want := range []int{0, 25, 25, 70} {
		if interval > 0 {
			a.feed([]int{0, 25, 25, 75}[interval])
		}
		var mu sync.Mutex
		var all sync.WaitGroup
		got := 0
		for w := range 8 {
			all.Go(func() {
				for {
					list := a.claims(fixity.Claim{Worker: fmt.Sprint(w), Most: 4, Lease: time.Hour})
					if len(list) == 0 {
						return
					}
					mu.Lock()
					got += len(list)
					for _, c := range list {
						if seen[c.ID] {
							t.Errorf("%s was claimed twice", names([]fixity.Copy{c}))
						}
						seen[c.ID] = true
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if got != want {
			t.Errorf("interval %d: %d copies, want %d", interval, got, want)
		}
	}
	left, err := fixity.In(a.Registry).Feed(t.Context(), 10, time.Minute)
	if err != nil || left != 5 {
		t.Errorf("FeedFixity = %d, %v; want the 5 that were not used", left, err)
	}
}

// Each file whose check begins has one message in the topic log.
func TestBeginOfAFilesCheckIsAnnounced(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(3)
	a.exec(`UPDATE storage_records SET last_fixity_at = now() - interval '1 year'`)
	list := a.claims(fixity.Claim{Most: 9})
	must.Do(t, fixity.In(a.Registry).Release(t.Context(), hold(list[0])))
	a.exec(`UPDATE fixity_checks SET run_at = now()`)
	a.exec(`UPDATE fixity_feed SET allowance = 0`)
	if again := a.claims(fixity.Claim{Most: 9}); len(again) != 6 {
		t.Errorf("%d copies were claimed again, want all 6, which the allowance does not count", len(again))
	}
	rows, _ := a.db.Query(t.Context(), `SELECT topic || ' ' || body FROM topic_messages WHERE topic LIKE 'fixity%' AND work_item_id IS NULL ORDER BY body`)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	var want []string
	for _, c := range list {
		want = append(want, fmt.Sprint("fixity_check ", c.FileID))
	}
	slices.Sort(want)
	if diff := cmp.Diff(slices.Compact(want), got); diff != "" || err != nil {
		t.Errorf("%v, topic log (-want +got):\n%s", err, diff)
	}
}

func hold(c fixity.Copy) fixity.Hold {
	return fixity.Hold{ID: c.ID, Token: c.Token}
}

// A claim lasts as long as it is renewed. Anyone who is late has lost it, and nothing
// that they say counts.
func TestClaimOnACopyIsALease(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := context.Background()
	a.withCopies(2)
	a.exec(`UPDATE storage_records SET last_fixity_at = now() - interval '1 year' WHERE target = 'Standard-VA'`)
	list := a.claims(fixity.Claim{Most: 9})
	stale := list[0]
	a.exec(`UPDATE fixity_checks SET run_at = now() - interval '1 second' WHERE storage_record_id = $1`, stale.ID)
	next := a.claims(fixity.Claim{Worker: "v", Most: 9})
	if len(next) != 1 || next[0].ID != stale.ID || next[0].Token == stale.Token {
		t.Fatalf("the other claims %+v, want the copy whose lease has lapsed, with another token", next)
	}
	kept, err := fixity.In(a.Registry).Keep(ctx, time.Minute, hold(list[0]), hold(list[1]))
	if err != nil || !slices.Equal(kept, []fixity.Hold{hold(list[1])}) {
		t.Errorf("KeepFixity = %v, %v; want that of the copy which was not lost", kept, err)
	}
	if err := fixity.In(a.Registry).Release(ctx, hold(stale)); err != nil {
		t.Error(err)
	}
	if attempts, err := fixity.In(a.Registry).Retry(ctx, fixity.Trouble{Hold: hold(stale), Error: "x", Outage: true}); err != nil || attempts != 0 {
		t.Errorf("RetryFixity = %d, %v", attempts, err)
	}
	if ends := a.recorded(matching(stale)); ends[0] != fixity.Dropped {
		t.Errorf("the result of a lost claim is %s", ends[0])
	}
	if got := value[string](a, `SELECT worker || attempts FROM fixity_checks WHERE storage_record_id = $1`, stale.ID); got != "v0" {
		t.Errorf("the copy is %s, want that of v", got)
	}
	if ends := a.recorded(matching(next[0])); ends[0] != fixity.Recorded {
		t.Errorf("the result of the claim is %s", ends[0])
	}
	a.exec(`UPDATE fixity_checks SET run_at = now() + interval '1 second'`)
	if _, err := fixity.In(a.Registry).Keep(ctx, time.Hour, hold(list[1])); err != nil {
		t.Error(err)
	}
	if !value[bool](a, `SELECT run_at > now() + interval '59 minutes' FROM fixity_checks`) {
		t.Error("the lease was not renewed")
	}
}

func matching(c fixity.Copy) fixity.Result {
	return fixity.Result{Hold: hold(c), Key: c.Key, Algorithm: "sha256", Expected: c.SHA256, Found: c.SHA256, Bytes: c.Size}
}

func (a *archive) recorded(results ...fixity.Result) []fixity.End {
	a.t.Helper()
	ends, err := fixity.In(a.Registry).Record(context.Background(), results...)
	if err != nil || len(ends) != len(results) {
		a.t.Fatalf("RecordFixity = %v, %v", ends, err)
	}
	return ends
}

// A copy that cannot be read is tried again: after a minute, after two, and, once it
// has been tried as often as it may, once a day.
func TestUnreadableCopyIsTriedAgainLater(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(1)
	a.exec(`UPDATE storage_records SET last_fixity_at = now() - interval '1 year' WHERE target = 'Standard-VA'`)
	for attempt, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, day, day} {
		list := a.claims(fixity.Claim{Most: 1})
		if len(list) != 1 || list[0].Attempts != attempt {
			t.Fatalf("attempt %d: %+v", attempt, list)
		}
		n, err := fixity.In(a.Registry).Retry(t.Context(), fixity.Trouble{Hold: hold(list[0]), Error: "broken", Most: 4})
		if err != nil || n != attempt+1 {
			t.Errorf("RetryFixity = %d, %v; want %d", n, err, attempt+1)
		}
		if got := value[time.Duration](a, `SELECT run_at - now() FROM fixity_checks WHERE error = 'broken' AND worker = ''`); (got - want).Abs() > time.Second*30 {
			t.Errorf("after attempt %d it waits for %v, want %v", n, got, want)
		}
		if again := a.claims(fixity.Claim{Most: 1}); len(again) > 0 {
			t.Errorf("it was claimed before that")
		}
		a.exec(`UPDATE fixity_checks SET run_at = now()`)
	}
}

// A provider that is out has few of its copies tried, and one at a time; those of
// others go on. Once it answers, what had failed is tried at once.
func TestProviderThatIsOutIsLeftAlone(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(30)
	a.exec(`UPDATE storage_records SET last_fixity_at = now() - interval '1 year'`)
	va := fixity.Claim{Most: 3, Targets: []string{"Standard-VA"}}
	fails := func(list []fixity.Copy) {
		t.Helper()
		for _, c := range list {
			must.Get(fixity.In(a.Registry).Retry(t.Context(), fixity.Trouble{Hold: hold(c), Error: "no answer", Outage: true, Most: 3}))(t)
		}
	}
	tried := 0
	for {
		list := a.claims(va)
		if len(list) == 0 {
			break
		}
		tried += len(list)
		fails(list)
	}
	if tried != 6 { // two claims of three
		t.Errorf("%d copies were tried before it was left alone, want 6", tried)
	}
	if got := a.claims(fixity.Claim{Most: 3}); len(got) != 3 || got[0].Target != "Standard-OR" {
		t.Errorf("of others %s was claimed", names(got))
	}
	policies, err := fixity.In(a.Registry).Policies(t.Context())
	if i := slices.IndexFunc(policies, func(p record.FixityPolicy) bool { return p.Target == "Standard-VA" }); err != nil || policies[i].PauseReason != "no answer" ||
		policies[i].PausedUntil == nil || time.Until(*policies[i].PausedUntil).Abs() > 6*time.Minute {
		t.Errorf("policies %+v, %v", policies, err)
	}
	for range 3 { // looks whether it is back
		a.exec(`UPDATE fixity_policies SET paused_until = now()`)
		list := a.claims(va)
		if len(list) != 1 {
			t.Fatalf("%d copies were tried, want one", len(list))
		}
		if more := a.claims(va); len(more) > 0 {
			t.Errorf("%d more were tried beside it", len(more))
		}
		fails(list)
	}
	a.exec(`UPDATE fixity_policies SET paused_until = now()`)
	list := a.claims(va)
	a.recorded(matching(list[0]))
	waited := value[int](a, `SELECT count(*) FROM fixity_checks WHERE target = 'Standard-VA'`)
	if got := a.claims(fixity.Claim{Most: 100, Targets: va.Targets}); len(got) != 29 || waited < 6 {
		t.Errorf("%d copies are claimed once it answers, want all 29; %d had failed", len(got), waited)
	}
}

// Failures that are a copy's own keep nobody from the others.
func TestCopiesThatCannotBeJudgedHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(20)
	a.exec(`UPDATE storage_records SET last_fixity_at = now() - interval '1 year' WHERE target = 'Standard-VA'`)
	for i := range 20 {
		list := a.claims(fixity.Claim{Most: 1})
		if len(list) != 1 {
			t.Fatalf("after %d failures there is nothing to claim", i)
		}
		must.Get(fixity.In(a.Registry).Retry(t.Context(), fixity.Trouble{Hold: hold(list[0]), Error: "odd", Wavered: true}))(t)
	}
	if n := value[int](a, `SELECT sum(wavered) FROM fixity_done WHERE checks = 0`); n != 20 {
		t.Errorf("%d copies were noted as read with two results, want 20", n)
	}
}

// A file that is being recorded or deleted this very moment is passed over.
func TestClaimDoesNotWaitForOthers(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.withCopies(3)
	a.exec(`UPDATE storage_records SET last_fixity_at = now() - interval '1 year' WHERE target = 'Standard-VA'`)
	tx := must.Get(a.db.Begin(t.Context()))(t)
	must.Get(tx.Exec(t.Context(), `UPDATE storage_records SET etag = 'new' WHERE id = (SELECT min(id) FROM storage_records)`))(t)
	if got := names(a.claims(fixity.Claim{Most: 9})); got != "1 VA, 2 VA" {
		t.Errorf("claimed %s", got)
	}
	must.Do(t, tx.Rollback(t.Context()))
	if got := names(a.claims(fixity.Claim{Most: 9})); got != "0 VA" {
		t.Errorf("then claimed %s", got)
	}
}
