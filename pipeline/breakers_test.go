package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/storage"
)

// worker starts a worker of its own with some dependencies, until the test ends.
func (a *archive) worker(d Deps) {
	a.t.Helper()
	o := claim.DefaultOptions()
	// One that is silent for three heartbeats has no vote; a slow machine needs a second.
	o.Heartbeat, o.Lease, o.Poll, o.Log = 2*time.Second, 20*time.Second, 100*time.Millisecond, d.Log
	engine, err := claim.New(context.Background(), a.db, o)
	if err != nil {
		a.t.Fatal(err)
	}
	steps := Steps(d)
	var stages []string
	for _, s := range steps {
		stages = append(stages, s.Name())
	}
	r, err := NewRunner(engine, d, steps, RunnerOptions{Pools: []Pool{{Name: "all", Stages: stages, Slots: 4}}, Log: d.Log})
	if err != nil {
		a.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var worker sync.WaitGroup
	worker.Go(func() {
		if err := r.Run(ctx); err != nil {
			a.t.Error(err)
		}
	})
	a.t.Cleanup(func() { stop(); worker.Wait(); engine.Close() })
}

// bags deposits small bags.
func (a *archive) bags(n int) {
	a.t.Helper()
	for i := range n {
		name := fmt.Sprintf("bag%d", i)
		tar := a.bag(bagtest.Spec{Name: name, Files: []bagtest.File{{Path: "data/a.txt", Size: int64(1000 + i)}}})
		if _, err := a.receiving.Put(context.Background(), name+".tar", bytes.NewReader(tar), storage.Upload{Size: int64(len(tar))}); err != nil {
			a.t.Fatal(err)
		}
	}
	reader := &BucketReader{Registry: a.deps.Registry, Receiving: a.deps.Receiving, Log: a.deps.Log}
	if got, err := reader.ReadAll(context.Background()); err != nil || got != n {
		a.t.Fatalf("ReadAll = %d, %v; want %d", got, err, n)
	}
}

// unharmed waits until all items are at rest, and fails the test unless all are
// Success and no attempt was spent on what was not theirs.
func (a *archive) unharmed(n int) {
	a.t.Helper()
	a.atRest()
	if got := value[int](a, `SELECT count(*) FROM work_items WHERE status = 'Success'`); got != n {
		a.t.Errorf("%d of %d items are Success: %s", got, n,
			value[string](a, `SELECT coalesce(string_agg(DISTINCT status || ' at ' || stage || ': ' || note, E'\n'), '') FROM work_items WHERE status <> 'Success'`))
	}
	if spent := value[string](a, `SELECT coalesce(string_agg(DISTINCT outcome || ' ' || error_code || ': ' || error, E'\n'), '') FROM work_item_attempts
		WHERE outcome NOT IN ('done', 'held', 'released')`); spent != "" {
		a.t.Errorf("attempts were spent: %s", spent)
	}
}

// with is the test's dependencies with every bucket changed.
func (a *archive) with(change func(t *storage.Target)) Deps {
	a.t.Helper()
	open := func(name string) *storage.Bucket {
		t := storage.Target{
			Name: name, Bucket: name, Endpoint: a.s3.Endpoint, Region: a.s3.Region, CAFile: a.s3.CAFile, PathStyle: true,
			AccessKeyID: a.s3.AccessKeyID, SecretAccessKey: storage.Secret(a.s3.SecretAccessKey),
		}
		change(&t)
		b, err := a.client.Bucket(t)
		if err != nil {
			a.t.Fatal(err)
		}
		return b
	}
	d := a.deps
	d.Staging = open(a.deps.Staging.Name())
	d.Targets = map[string]*storage.Bucket{}
	for name, b := range a.deps.Targets {
		d.Targets[name] = open(b.Name())
	}
	d.Receiving = func(bucket string) (*storage.Bucket, error) { return open(bucket), nil }
	return d
}

// One worker whose credentials are wrong fails in milliseconds, so it would claim
// everything. It holds itself, and the others do the work.
func TestWorkerWithAWrongSecretHoldsItself(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const n = 40
	a.bags(n)
	bad := a.with(func(t *storage.Target) { t.SecretAccessKey = "wrong" })
	a.worker(bad)
	testenv.Eventually(t, "the bad worker to hold itself", func() bool {
		return value[int](a, `SELECT count(*) FROM services WHERE state = 'held' AND code = 'storage-denied'`) > 0
	})
	a.worker(a.deps)
	a.worker(a.deps)
	a.unharmed(n)
	if held := value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'held'`); held == 0 || held > n {
		t.Errorf("%d attempts were held; want some, and far fewer than would be without a breaker", held)
	}
	if states := value[string](a, `SELECT string_agg(DISTINCT state, ' ') FROM services WHERE workers_failing > 0`); states != "failing" {
		t.Errorf("services that one of three workers sees fail are %q", states)
	}
}

// While S3 is away nothing is claimed, nothing is spent, and all goes on by itself.
func TestOutageOfS3IsWaitedOut(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const n = 30
	a.bags(n)
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.s3.Endpoint, "https://"))
	d := a.with(func(t *storage.Target) { t.Endpoint = "https://" + proxy.Addr() })
	a.worker(d)
	a.worker(d)
	testenv.Eventually(t, "some work to be done", func() bool {
		return value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'done'`) > 5
	})
	proxy.Cut()
	testenv.Eventually(t, "the bucket to be held", func() bool { return value[int](a, `SELECT count(*) FROM services WHERE state = 'held'`) > 0 })
	id := value[int64](a, `SELECT min(w.id) FROM work_items w WHERE status = 'Pending' AND EXISTS (
		SELECT FROM services s WHERE s.state = 'held' AND needs_service(w, s.scopes))`)
	if why := value[string](a, fmt.Sprintf(`SELECT coalesce(string_agg(reason || ': ' || detail, E'\n'), '') FROM why_not(%d)`, id)); !strings.Contains(why, "held: S3 target ") ||
		!strings.Contains(why, "seen by ") {
		t.Errorf("why_not(%d) = %q", id, why)
	}
	held := value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'held'`)
	<-time.After(3 * time.Second)
	if more := value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'held'`); more > held+16 {
		t.Errorf("%d attempts were made while the bucket was held", more-held)
	}
	proxy.Resume()
	back := time.Now()
	testenv.Eventually(t, "the services to work again", func() bool { return value[int](a, `SELECT count(*) FROM services WHERE state <> 'ok'`) == 0 })
	t.Logf("all were ok again after %v", time.Since(back))
	a.unharmed(n)
}

// What a person holds nobody claims, and it goes on when it is released.
func TestPersonHoldsAService(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.worker(a.deps)
	target := a.deps.Targets["Standard-OR"].Service()
	testenv.Eventually(t, "the services to be known", func() bool {
		return value[int](a, `SELECT count(*) FROM services WHERE service = '`+target+`'`) == 1
	})
	a.exec(`SELECT hold_service('` + target + `', 'new disks.')`)
	a.bags(3)
	testenv.Eventually(t, "the items to wait before Store", func() bool {
		return value[int](a, `SELECT count(*) FROM work_items WHERE stage = 'Store' AND status = 'Pending'`) == 3
	})
	why := value[string](a, `SELECT string_agg(detail, ' ') FROM work_items w, why_not(w.id) WHERE reason = 'held'`)
	if !strings.Contains(why, "new disks") {
		t.Errorf("why_not = %q", why)
	}
	a.exec(`SELECT release_service('` + target + `')`)
	a.unharmed(3)
}

// A Redis that is away holds what needs it, and costs nothing.
func TestOutageOfRedisIsWaitedOut(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const n = 20
	a.bags(n)
	url := testenv.RedisURL(t)
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := testenv.NewProxy(t, options.Addr)
	d := a.deps
	if d.Progress, err = progress.Connect(t.Context(), strings.Replace(url, options.Addr, proxy.Addr(), 1), "outage"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Progress.Close() }) //nolint:errcheck // the test is over
	a.worker(d)
	testenv.Eventually(t, "some work to be done", func() bool {
		return value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'done'`) > 5
	})
	proxy.Cut()
	testenv.Eventually(t, "Redis to be held", func() bool {
		return value[int](a, `SELECT count(*) FROM services WHERE service = 'redis' AND state = 'held'`) == 1
	})
	proxy.Resume()
	a.unharmed(n)
}

// A worker that has another bucket for a target than most others have leaves that
// target alone, and never puts a copy on record that is elsewhere.
func TestWorkerWithAnotherBucketLeavesTheTarget(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.worker(a.deps)
	a.worker(a.deps)
	testenv.Eventually(t, "the others to live", func() bool { return value[int](a, `SELECT count(*) FROM workers`) == 2 })
	wrong := a.created(a.s3.Prefix + "elsewhere")
	target := a.deps.Targets["Standard-OR"]
	bad := a.deps
	bad.Targets = maps.Clone(a.deps.Targets)
	bad.Targets["Standard-OR"] = a.opened(storage.Target{Name: target.TargetName(), Bucket: wrong.Name()})
	a.worker(bad)
	testenv.Eventually(t, "the worker to leave the target", func() bool {
		return value[int](a, `SELECT count(*) FROM services WHERE service = '`+target.Service()+`' AND workers_failing = 1 AND state = 'failing'`) == 1
	})
	const n = 12
	a.bags(n)
	a.unharmed(n)
	if got := a.keys(wrong); len(got) != 0 {
		t.Errorf("the other bucket has %v", got)
	}
	if n := value[int](a, `SELECT count(*) FROM storage_records WHERE bucket = '`+wrong.Name()+`'`); n != 0 {
		t.Errorf("%d copies are on record in the other bucket", n)
	}
}

// Record writes no bucket but that in which the copies were verified.
func TestRecordNamesTheBucketThatWasVerified(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.deposit("sample.tar", a.sample())
	engine := a.engine()
	a.upTo(engine, "Record")
	good := a.deps.Targets
	a.deps.Targets = maps.Clone(good)
	a.deps.Targets["Standard-OR"] = a.created(a.s3.Prefix + "elsewhere")
	a.one(engine, "Record")
	if item := a.item(id); item.Stage != "Record" || item.Status != "Pending" || item.ErrorCode != "settings-missing" || item.Attempt != 0 {
		t.Fatalf("item = %+v", item)
	}
	a.deps.Targets = good
	a.exec(`UPDATE work_items SET run_at = now()`)
	a.one(engine, "Record")
	a.one(engine, "Cleanup")
	a.intact(id)
}

// A worker that takes another bucket for a target than the record of a copy names
// neither reads nor deletes there: what it does not find says nothing of the copy.
func TestWorkerWithAnotherBucketTouchesNoCopy(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		option string
		ask    func(a *archive) error
	}{
		"deletion":    {"Standard", func(a *archive) error { a.doomed("test.edu/here"); return nil }},
		"restoration": {"Standard", func(a *archive) error { a.ask("test.edu/here"); return nil }},
		"retrieval from an archive": {"Glacier-Deep-OH", func(a *archive) error {
			_, err := requests.In(a.deps.Registry).RequestRestoration(context.Background(), requests.RestorationRequest{
				Identifier: "test.edu/here", Class: "DEEP_ARCHIVE", Tier: "Bulk", Days: 10,
			})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.deps.ColdPoll = 50 * time.Millisecond
			spec := aBag("here")
			spec.StorageOption = tc.option
			a.ingested(spec)
			before := a.allCopies()
			good := a.deps.Targets
			a.deps.Targets = maps.Clone(good)
			for name, b := range good {
				elsewhere := a.created(b.Name() + "-elsewhere").Name()
				a.deps.Targets[name] = a.opened(storage.Target{Name: name, Bucket: elsewhere, Provider: b.Provider(), StorageClass: b.Class()})
			}
			if err := tc.ask(a); err != nil {
				t.Fatal(err)
			}
			stop := a.start()
			testenv.Eventually(t, "the worker to give the item back", func() bool {
				return value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'held' AND error_code = 'settings-missing'`) > 0
			})
			stop()
			a.deps.Targets = good
			if got := a.allCopies(); !slices.Equal(got, before) {
				t.Errorf("copies: %v, want %v", got, before)
			}
			if n := value[int](a, `SELECT count(*) FROM work_items WHERE action <> 'Ingest' AND (NOT retry OR attempt > 0)`); n != 0 {
				t.Error("the item was ended, or an attempt was spent")
			}
			a.exec(`UPDATE work_items SET run_at = now() WHERE retry`)
			a.work()
			if n := value[int](a, `SELECT count(*) FROM work_items WHERE status <> 'Success'`); n != 0 {
				t.Errorf("%d items did not succeed with the right worker", n)
			}
		})
	}
}

// An object at which its provider always fails holds up no other: the service answers
// each probe, and the item that then fails on trial waits longer each time, so that
// the next trial is another's.
func TestItemThatFailsOnTrialWaitsLonger(t *testing.T) {
	t.Parallel()
	item := claim.Item{ID: 7, Action: "Ingest", Stage: "Store", StorageOption: "Standard"}
	bad := &fault.Error{Service: "s3:Standard-OR", Kind: fault.Unavailable, Err: errors.New("500 InternalError")}
	g := newBreakers(Deps{}, nil, silentBoard{}, slog.New(slog.DiscardHandler))
	one := &breaker{service: bad.Service, state: claim.ServiceOK, scopes: []claim.Scope{{Steps: []string{item.Step()}}}}
	g.byName[bad.Service] = one
	for one.state == claim.ServiceOK {
		g.judge(item, bad)
	}
	before := g.items[item.ID].n
	g.judge(item, bad) // it was claimed before the breaker was shut
	if n := g.items[item.ID].n; n != before {
		t.Errorf("what was under way when the service failed waits as if it had failed %d times, want %d", n, before)
	}
	for n := 1; n <= 4; n++ {
		one.probed(time.Now(), nil)
		one.trial = item.ID
		g.judge(item, bad)
		if got := g.items[item.ID].n; got != before+n || one.state != claim.ServiceFailing {
			t.Fatalf("after %d failures on trial it waits as if it had failed %d times, and the service is %s", n, got, one.state)
		}
	}
}

// A worker whose settings do not fit an item leaves the like of it to others for
// longer than the item is held: it knows first when that is due again.
func TestWorkerWithWrongSettingsLeavesItemsToOthers(t *testing.T) {
	t.Parallel()
	item := claim.Item{ID: 1, Action: "Ingest", Stage: "Record", StorageOption: "Standard"}
	for name, tc := range map[string]struct {
		fault error
		want  int
	}{
		"settings": {otherBucket("Standard-OR", "mistyped", "right"), 1},
		"a target": {noTarget("Standard-OR"), 1},
		"Redis":    {&fault.Error{Service: fault.Redis, Kind: fault.Unavailable, Err: errors.New("away")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newBreakers(Deps{}, nil, silentBoard{}, slog.New(slog.DiscardHandler))
			g.judge(item, tc.fault)
			got := g.without(false)
			if len(got) != tc.want || tc.want == 1 && (!slices.Equal(got[0].Steps, []string{item.Step()}) || !slices.Equal(got[0].StorageOptions, []string{"Standard"})) {
				t.Errorf("after %v it leaves out %+v", tc.fault, got)
			}
		})
	}
}

// silentBoard is a board on which nobody writes.
type silentBoard struct{}

func (silentBoard) ServiceHolds() []claim.ServiceHold                 { return nil }
func (silentBoard) Report(context.Context, claim.ServiceReport) error { return nil }
func (silentBoard) Wake()                                             {}
