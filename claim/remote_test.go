package claim_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/claim/remote"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/span"
)

// scanned is a queue with a stage behind Validate that programs work over HTTP.
func scanned(t *testing.T) (*queue, *claim.Engine, *remote.Queue) {
	t.Helper()
	q := newQueue(t)
	q.exec(`SELECT add_stage('Virus Scan', 'Validate')`)
	e := q.engine()
	return q, e, remote.New(e, q.db)
}

func anna() remote.Worker { return remote.Worker{Name: "anna", Node: "attic", PID: 7} }

// one claims an item at Virus Scan.
func one(t *testing.T, r *remote.Queue, w remote.Worker) remote.Leased {
	t.Helper()
	items, err := r.Claim(t.Context(), at("Virus Scan", 1), 1, w)
	if err != nil || len(items) != 1 {
		t.Fatalf("Claim = %d items, %v; want one", len(items), err)
	}
	return items[0]
}

// An item comes to an added stage from the one before it and leaves it for the one
// behind it, and in between the row says who has it.
func TestAddedStageIsEnteredAndLeft(t *testing.T) {
	t.Parallel()
	q, e, r := scanned(t)
	id := q.put("Validate", 10)
	h := q.claimOne(e, "Validate")
	q.settle(h, claim.Done{Next: e.NextStage("Ingest", "Validate")}, nil)
	if got := q.row(id); got.Stage != "Virus Scan" || got.Status != "Pending" {
		t.Fatalf("behind Validate the item is %+v", got)
	}
	c := one(t, r, anna())
	if c.ID != id || c.Lease != 30*time.Second || c.Heartbeat != 10*time.Second || c.Attempt != 1 || c.MaxAttempts != 3 || c.Institution != "test.edu" {
		t.Errorf("claimed %+v", c)
	}
	if who := value[string](q, `SELECT concat_ws(' ', worker, node, pid, lease_expires_at = $2) FROM work_items WHERE id = $1`, id, c.Expires); who != "anna attic 7 t" {
		t.Errorf("the row says %q", who)
	}
	stage, status, err := r.Settle(t.Context(), id, c.Token, claim.Done{Note: "Clean."}, nil)
	if err != nil || stage != "Reingest Check" || status != "Pending" {
		t.Errorf("Settle = %s, %s, %v", stage, status, err)
	}
	if topics := value[string](q, `SELECT string_agg(topic, ' ' ORDER BY id) FROM topic_messages`); topics != "ingest02_bag_validation ingest_virus_scan ingest03_reingest_check" {
		t.Errorf("the topics are %s", topics)
	}
}

// Of the attempt of another program, who ends it knows what it was. Of one of its own, its worker does.
func TestEndsNameTheAttemptsOfOtherPrograms(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.exec(`SELECT add_stage('Virus Scan', 'Validate')`)
	seen := make(ended, 2)
	e := q.engine(func(o *claim.Options) { o.Observer = seen })
	r := remote.New(e, q.db)
	id := q.put("Virus Scan", 10)
	c := one(t, r, anna())
	if _, _, err := r.Settle(t.Context(), id, c.Token, claim.Done{}, nil); err != nil {
		t.Fatal(err)
	}
	want := &span.Attempt{
		Item: id, Token: c.Token, Created: value[time.Time](q, `SELECT created_at FROM work_items`), Began: value[time.Time](q, `SELECT claimed_at FROM work_item_attempts`),
		Institution: "test.edu", Size: 10, Worker: "anna",
	}
	if diff := cmp.Diff(want, (<-seen).Of); diff != "" {
		t.Errorf("the attempt is (-want, +got):\n%s", diff)
	}
	q.settle(q.claimOne(e, "Reingest Check"), claim.Done{Next: "Copy To Staging"}, nil)
	if end := <-seen; end.Of != nil || !c.CreatedAt.Equal(want.Created) {
		t.Errorf("an attempt of this process is %+v; claimed %+v", end, c)
	}
}

// What a remote worker's work comes to is treated as any other's.
func TestRemoteOutcomes(t *testing.T) {
	t.Parallel()
	q, _, r := scanned(t)
	for name, tc := range map[string]struct {
		result error
		want   row
	}{
		"transient": {claim.Transient("scanner-away", errors.New("no scanner")), row{Stage: "Virus Scan", Status: "Pending", Attempt: 1, Retry: true, Note: "no scanner", Code: "scanner-away"}},
		"fatal":     {claim.Fatal("virus", "It has a virus."), row{Stage: "Virus Scan", Status: "Failed", Attempt: 1, Review: true, Due: true, Note: "It has a virus.", Code: "virus"}},
		"released":  {claim.Release("Stopping."), row{Stage: "Virus Scan", Status: "Pending", Retry: true, Due: true, Note: "Stopping.", Code: "released"}},
	} {
		id := q.put("Virus Scan", 10)
		c := one(t, r, anna())
		if _, _, err := r.Settle(t.Context(), id, c.Token, claim.Done{}, tc.result); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := q.row(id); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
		var ended *remote.EndedError
		if _, _, err := r.Settle(t.Context(), id, c.Token, claim.Done{}, nil); !errors.As(err, &ended) || ended.Code != tc.want.Code || !errors.Is(err, claim.ErrLost) {
			t.Errorf("%s: a second end is %v", name, err)
		}
		q.exec(`SELECT cancel($1)`, id)
	}
}

// A token is good for the claim it was given with, and for nothing else.
func TestRemoteTokenIsOfOneClaim(t *testing.T) {
	t.Parallel()
	q, e, r := scanned(t)
	ctx := t.Context()
	id := q.put("Virus Scan", 10)
	if _, _, err := r.Settle(ctx, id, 0, claim.Done{}, nil); !errors.Is(err, claim.ErrLost) {
		t.Errorf("an item that nobody has claimed was moved by its token: %v", err)
	}
	c := one(t, r, anna())
	q.lapse()
	if n := q.reap(e); n != 1 {
		t.Fatalf("%d were reaped", n)
	}
	var ended *remote.EndedError
	if _, _, err := r.Settle(ctx, id, c.Token, claim.Done{}, nil); !errors.Is(err, claim.ErrLost) || errors.As(err, &ended) {
		t.Errorf("Settle of a lapsed claim = %v, want lost", err)
	}
	if _, _, err := r.Renew(ctx, id, c.Token, ""); !errors.Is(err, claim.ErrLost) {
		t.Errorf("Renew of a lapsed claim = %v, want lost", err)
	}
	q.put("Store", 10)
	own := q.claimOne(e, "Store")
	if _, _, err := r.Settle(ctx, own.Item.ID, own.Item.Token, claim.Done{}, nil); !errors.Is(err, remote.ErrNotRemote) {
		t.Errorf("Settle of Farol's own work = %v, want ErrNotRemote", err)
	}
	if _, _, err := r.Renew(ctx, own.Item.ID, own.Item.Token, ""); !errors.Is(err, claim.ErrLost) {
		t.Errorf("Renew of Farol's own work = %v, want lost", err)
	}
	if _, err := r.Claim(ctx, at("Store", 1), 1, anna()); !errors.Is(err, remote.ErrNotRemote) {
		t.Errorf("Claim of a stage of Farol's own = %v", err)
	}
	if _, err := r.Claim(ctx, at("Stroe", 1), 1, anna()); !errors.Is(err, remote.ErrNoStage) {
		t.Errorf("Claim of no stage = %v", err)
	}
}

// A heartbeat extends the lease and leaves the current file in the ledger; a stage
// that takes longer than it may is ended at the next.
func TestRemoteLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	q, _, r := scanned(t)
	id := q.put("Virus Scan", 10)
	c := one(t, r, anna())
	q.exec(`UPDATE work_items SET lease_expires_at = now() + interval '1 second'`)
	lasts, expires, err := r.Renew(t.Context(), id, c.Token, "data/a.txt")
	if err != nil || lasts != 30*time.Second || !value[bool](q, `SELECT lease_expires_at = $1 AND lease_expires_at > now() + interval '20 seconds' FROM work_items`, expires) {
		t.Errorf("Renew = %v, %v, %v", lasts, expires, err)
	}
	if file := value[string](q, `SELECT current_file FROM work_item_attempts`); file != "data/a.txt" {
		t.Errorf("the current file is %q", file)
	}
	q.exec(`UPDATE stage_settings SET processing_timeout = '1 microsecond' WHERE stage = 'Virus Scan'`)
	if _, _, err := r.Renew(t.Context(), id, c.Token, ""); !errors.Is(err, claim.ErrLost) {
		t.Errorf("Renew of a stage that takes too long = %v", err)
	}
	if got := q.row(id); got.Status != "Pending" || got.Code != "timeout" || got.Attempt != 1 {
		t.Errorf("it is %+v", got)
	}
}

// A worker that cannot heartbeat has three times the time that it needs.
func TestRemoteWorkerWithoutHeartbeats(t *testing.T) {
	t.Parallel()
	q, _, r := scanned(t)
	q.put("Virus Scan", 10)
	w := anna()
	w.Timeout = 2 * time.Minute
	if c := one(t, r, w); c.Lease != 6*time.Minute || c.Heartbeat != 0 {
		t.Errorf("lease %v, heartbeat %v; want 6m and none", c.Lease, c.Heartbeat)
	}
}

// Claims that meet in one statement are each in the name of who asked.
func TestRemoteClaimsThatMeetKeepTheirNames(t *testing.T) {
	t.Parallel()
	q, _, r := scanned(t)
	const workers = 60
	for range workers {
		q.put("Virus Scan", 10)
	}
	var wg sync.WaitGroup
	var got atomic.Int32
	for i := range workers {
		wg.Go(func() {
			name := fmt.Sprint("worker ", i%7)
			items, err := r.Claim(context.Background(), at("Virus Scan", 1), 1, remote.Worker{Name: name, Node: "n", Timeout: time.Duration(1+i%2) * time.Minute})
			if err != nil {
				t.Error(err)
			}
			for _, c := range items {
				got.Add(1)
				if c.Lease != 3*time.Duration(1+i%2)*time.Minute || value[string](q, `SELECT worker FROM work_items WHERE id = $1`, c.ID) != name {
					t.Errorf("%s has item %d with a lease of %v", name, c.ID, c.Lease)
				}
			}
		})
	}
	wg.Wait()
	if got.Load() != workers {
		t.Errorf("%d items were claimed, want %d", got.Load(), workers)
	}
}

// Other processes are notified of a stage that is added or removed; an item that was on its
// way to it at that moment goes on to the next.
func TestStagesAreAddedAndRemovedUnderWay(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	e := q.engine()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := e.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer stop()
	q.exec(`SELECT add_stage('Virus Scan', 'Validate')`)
	testenv.Eventually(t, "the stage that was added", func() bool { return e.NextStage("Ingest", "Validate") == "Virus Scan" })
	id := q.put("Validate", 10)
	h := q.claimOne(e, "Validate")
	q.exec(`SELECT remove_stage('Virus Scan')`)
	q.settle(h, claim.Done{Next: "Virus Scan"}, nil) // as a process does that was not notified
	testenv.Eventually(t, "the stage to be gone", func() bool { return e.NextStage("Ingest", "Validate") == "Reingest Check" })
	if got := q.row(id); got.Stage != "Virus Scan" {
		t.Fatalf("the item is %+v", got)
	}
	// The engine tidies too, and passes over what another is moving.
	testenv.Eventually(t, "the item to go on", func() bool {
		must.Do(t, e.Tidy(ctx))
		return q.row(id).Stage != "Virus Scan" //nolint:contextcheck // like all reads of the tests
	})
	if got := q.row(id); got.Stage != "Reingest Check" || got.Status != "Pending" || !got.Due {
		t.Errorf("the item is %+v, want it to go on", got)
	}
}

// How a process works its own stages is not how others work theirs: its settings
// neither change their leases nor refuse them, and it beats no faster for them.
func TestOwnSettingsAreNotForRemoteStages(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.exec(`SELECT add_stage('Virus Scan', 'Validate', lease => '3 seconds', heartbeat => '0.5 seconds')`)
	e := q.engine(func(o *claim.Options) { o.Heartbeat, o.Lease = 10*time.Second, 40*time.Second })
	q.put("Virus Scan", 10)
	r := remote.New(e, q.db)
	c := one(t, r, anna())
	if c.Lease != 3*time.Second || c.Heartbeat != 500*time.Millisecond {
		t.Errorf("lease %v, heartbeat %v; want those of the stage", c.Lease, c.Heartbeat)
	}
	if lasts, _, err := r.Renew(t.Context(), c.ID, c.Token, ""); err != nil || lasts != 3*time.Second {
		t.Errorf("Renew = %v, %v", lasts, err)
	}
	if beat := e.HeartbeatEvery(); beat != 10*time.Second {
		t.Errorf("it beats every %v", beat)
	}
}
