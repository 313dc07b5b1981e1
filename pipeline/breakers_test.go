package pipeline_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/storage"
)

// One worker whose credentials are wrong fails in milliseconds, so it would claim
// everything. It holds itself, and the others do the work.
func TestWorkerWithAWrongSecretHoldsItself(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const n = 40
	a.Bags(n)
	bad := a.With(func(t *storage.Target) { t.SecretAccessKey = "wrong" })
	a.Worker(bad)
	testenv.Eventually(t, "the bad worker to hold itself", func() bool {
		return pipelinetest.Value[int](a, `SELECT count(*) FROM services WHERE state = 'held' AND code = 'storage-denied'`) > 0
	})
	a.Worker(a.Deps)
	a.Worker(a.Deps)
	a.Unharmed(n)
	if held := pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'held'`); held == 0 || held > n {
		t.Errorf("%d attempts were held; want some, and far fewer than would be without a breaker", held)
	}
	if states := pipelinetest.Value[string](a, `SELECT string_agg(DISTINCT state, ' ') FROM services WHERE workers_failing > 0`); states != "failing" {
		t.Errorf("services that one of three workers sees fail are %q", states)
	}
}

// While S3 is away nothing is claimed, nothing is spent, and all goes on by itself.
func TestOutageOfS3IsWaitedOut(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const n = 30
	a.Bags(n)
	proxy := testenv.NewProxy(t, strings.TrimPrefix(a.S3.Endpoint, "https://"))
	d := a.With(func(t *storage.Target) { t.Endpoint = "https://" + proxy.Addr() })
	a.Worker(d)
	a.Worker(d)
	testenv.Eventually(t, "some work to be done", func() bool {
		return pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'done'`) > 5
	})
	proxy.Cut()
	testenv.Eventually(t, "the bucket to be held", func() bool {
		return pipelinetest.Value[int](a, `SELECT count(*) FROM services WHERE state = 'held'`) > 0
	})
	id := pipelinetest.Value[int64](a, `SELECT min(w.id) FROM work_items w WHERE status = 'Pending' AND EXISTS (
		SELECT FROM services s WHERE s.state = 'held' AND needs_service(w, s.scopes))`)
	if why := pipelinetest.Value[string](a, fmt.Sprintf(`SELECT coalesce(string_agg(reason || ': ' || detail, E'\n'), '') FROM why_not(%d)`, id)); !strings.Contains(why, "held: S3 target ") ||
		!strings.Contains(why, "seen by ") {
		t.Errorf("why_not(%d) = %q", id, why)
	}
	held := pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'held'`)
	<-time.After(3 * time.Second)
	if more := pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'held'`); more > held+16 {
		t.Errorf("%d attempts were made while the bucket was held", more-held)
	}
	proxy.Resume()
	back := time.Now()
	testenv.Eventually(t, "the services to work again", func() bool {
		return pipelinetest.Value[int](a, `SELECT count(*) FROM services WHERE state <> 'ok'`) == 0
	})
	t.Logf("all were ok again after %v", time.Since(back))
	a.Unharmed(n)
}

// What a person holds nobody claims, and it goes on when it is released.
func TestPersonHoldsAService(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	worker := a.Worker(a.Deps)
	target := a.Deps.Targets["Standard-OR"].Service()
	testenv.Eventually(t, "the services to be known", func() bool {
		return pipelinetest.Value[int](a, `SELECT count(*) FROM services WHERE service = '`+target+`'`) == 1
	})
	a.Exec(`SELECT hold_service('` + target + `', 'new disks.')`)
	testenv.Eventually(t, "the worker to learn of the hold", func() bool {
		views, _ := worker.Services()
		return slices.ContainsFunc(views, func(v pipeline.ServiceView) bool { return v.Service == target && !v.OK })
	})
	a.Bags(3)
	testenv.Eventually(t, "the items to wait before Store", func() bool {
		return pipelinetest.Value[int](a, `SELECT count(*) FROM work_items WHERE stage = 'Store' AND status = 'Pending'`) == 3
	})
	why := pipelinetest.Value[string](a, `SELECT string_agg(detail, ' ') FROM work_items w, why_not(w.id) WHERE reason = 'held'`)
	if !strings.Contains(why, "new disks") {
		t.Errorf("why_not = %q", why)
	}
	a.Exec(`SELECT release_service('` + target + `')`)
	a.Unharmed(3)
}

// A Redis that is away holds what needs it, and costs nothing.
func TestOutageOfRedisIsWaitedOut(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const n = 20
	a.Bags(n)
	url := testenv.RedisURL(t)
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := testenv.NewProxy(t, options.Addr)
	d := a.Deps
	if d.Progress, err = progress.Connect(t.Context(), strings.Replace(url, options.Addr, proxy.Addr(), 1), "outage"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Progress.Close() }) //nolint:errcheck // the test is over
	a.Worker(d)
	testenv.Eventually(t, "some work to be done", func() bool {
		return pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'done'`) > 5
	})
	proxy.Cut()
	testenv.Eventually(t, "Redis to be held", func() bool {
		return pipelinetest.Value[int](a, `SELECT count(*) FROM services WHERE service = 'redis' AND state = 'held'`) == 1
	})
	proxy.Resume()
	a.Unharmed(n)
}

// A worker that has another bucket for a target than most others have leaves that
// target alone, and never puts a copy on record that is elsewhere.
func TestWorkerWithAnotherBucketLeavesTheTarget(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Worker(a.Deps)
	a.Worker(a.Deps)
	testenv.Eventually(t, "the others to live", func() bool { return pipelinetest.Value[int](a, `SELECT count(*) FROM workers`) == 2 })
	wrong := a.Created(a.S3.Prefix + "elsewhere")
	target := a.Deps.Targets["Standard-OR"]
	bad := a.Deps
	bad.Targets = maps.Clone(a.Deps.Targets)
	bad.Targets["Standard-OR"] = a.Opened(storage.Target{Name: target.TargetName(), Bucket: wrong.Name()})
	a.Worker(bad)
	testenv.Eventually(t, "the worker to leave the target", func() bool {
		return pipelinetest.Value[int](a, `SELECT count(*) FROM services WHERE service = '`+target.Service()+`' AND workers_failing = 1 AND state = 'failing'`) == 1
	})
	const n = 12
	a.Bags(n)
	a.Unharmed(n)
	if got := a.Keys(wrong); len(got) != 0 {
		t.Errorf("the other bucket has %v", got)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM storage_records WHERE bucket = '`+wrong.Name()+`'`); n != 0 {
		t.Errorf("%d copies are on record in the other bucket", n)
	}
}

// Record writes no bucket but that in which the copies were verified.
func TestRecordNamesTheBucketThatWasVerified(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.Deposit("sample.tar", a.Sample())
	engine := a.Engine()
	a.UpTo(engine, "Record")
	good := a.Deps.Targets
	a.Deps.Targets = maps.Clone(good)
	a.Deps.Targets["Standard-OR"] = a.Created(a.S3.Prefix + "elsewhere")
	a.One(engine, "Record")
	if item := a.Item(id); item.Stage != "Record" || item.Status != "Pending" || item.ErrorCode != "settings-missing" || item.Attempt != 0 {
		t.Fatalf("item = %+v", item)
	}
	a.Deps.Targets = good
	a.Exec(`UPDATE work_items SET run_at = now()`)
	a.One(engine, "Record")
	a.One(engine, "Cleanup")
	a.Intact(id)
}

// A worker that takes another bucket for a target than the record of a copy names
// neither reads nor deletes there: what it does not find says nothing of the copy.
func TestWorkerWithAnotherBucketTouchesNoCopy(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		option string
		ask    func(a *archive) error
	}{
		"deletion":    {"Standard", func(a *archive) error { a.Doomed("test.edu/here"); return nil }},
		"restoration": {"Standard", func(a *archive) error { a.Ask("test.edu/here"); return nil }},
		"retrieval from an archive": {"Glacier-Deep-OH", func(a *archive) error {
			_, err := requests.In(a.Deps.Registry).RequestRestoration(context.Background(), requests.RestorationRequest{
				Identifier: "test.edu/here", Class: "DEEP_ARCHIVE", Tier: "Bulk", Days: 10,
			})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.Deps.ColdPoll = 50 * time.Millisecond
			spec := pipelinetest.ABag("here")
			spec.StorageOption = tc.option
			a.Ingested(spec)
			before := a.AllCopies()
			good := a.Deps.Targets
			a.Deps.Targets = maps.Clone(good)
			for name, b := range good {
				elsewhere := a.Created(b.Name() + "-elsewhere").Name()
				a.Deps.Targets[name] = a.Opened(storage.Target{Name: name, Bucket: elsewhere, Provider: b.Provider(), StorageClass: b.Class()})
			}
			must.Do(t, tc.ask(a))
			stop := a.Start()
			testenv.Eventually(t, "the worker to give the item back", func() bool {
				return pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'held' AND error_code = 'settings-missing'`) > 0
			})
			stop()
			a.Deps.Targets = good
			if got := a.AllCopies(); !slices.Equal(got, before) {
				t.Errorf("copies: %v, want %v", got, before)
			}
			if n := pipelinetest.Value[int](a, `SELECT count(*) FROM work_items WHERE action <> 'Ingest' AND (NOT retry OR attempt > 0)`); n != 0 {
				t.Error("the item was ended, or an attempt was spent")
			}
			a.Exec(`UPDATE work_items SET run_at = now() WHERE retry`)
			a.Work()
			if n := pipelinetest.Value[int](a, `SELECT count(*) FROM work_items WHERE status <> 'Success'`); n != 0 {
				t.Errorf("%d items did not succeed with the right worker", n)
			}
		})
	}
}
