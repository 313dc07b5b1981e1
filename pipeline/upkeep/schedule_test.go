package upkeep

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/injure"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
	"github.com/farol-preservation/farol/registry/upkeep"
)

// clock is a database in which jobs are scheduled.
type clock struct {
	*archive
	url string
}

func newClock(t testing.TB) *clock {
	t.Helper()
	url := testenv.DatabaseURL(t)
	db := must.Get(pgxpool.New(context.Background(), url))(t)
	t.Cleanup(db.Close)
	a := &pipelinetest.Archive{T: t, DB: db, Log: &pipelinetest.SyncBuffer{}}
	a.Deps = pipeline.Deps{Registry: registry.New(db), Log: a.Logger()}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", a.Log)
		}
	})
	return &clock{&archive{a}, url}
}

// throughProxy is the clock's database behind a proxy.
func (c *clock) throughProxy(t *testing.T) (*pgxpool.Pool, *injure.Proxy) {
	t.Helper()
	u := must.Get(url.Parse(c.url))(t)
	proxy := testenv.NewProxy(t, u.Host)
	u.Host = proxy.Addr()
	db := must.Get(pgxpool.New(t.Context(), u.String()))(t)
	t.Cleanup(db.Close)
	return db, proxy
}

func (c *clock) scheduler(holder string, jobs ...Job) *Scheduler {
	return &Scheduler{Registry: c.Deps.Registry, Jobs: jobs, Holder: holder, Log: c.Deps.Log, poll: 20 * time.Millisecond}
}

// run runs a scheduler until the function that it returns is called.
func (c *clock) run(s *Scheduler) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

func (c *clock) of(job string) record.Schedule {
	c.T.Helper()
	list := must.Get(upkeep.In(c.Deps.Registry).Schedules(context.Background()))(c.T)
	for _, s := range list {
		if s.Job == job {
			return s
		}
	}
	return record.Schedule{}
}

// blocked is a daily job that runs until it is asked to stop, or let go.
func blocked() (j Job, begun, goOn chan struct{}, cause chan error) {
	begun, goOn, cause = make(chan struct{}, 100), make(chan struct{}), make(chan error, 100)
	return Job{"blocked", 24 * time.Hour, func(ctx context.Context) (string, error) {
		begun <- struct{}{}
		select {
		case <-goOn:
			return "went on", nil
		case <-ctx.Done():
			cause <- context.Cause(ctx)
			return "was stopped", ctx.Err()
		}
	}}, begun, goOn, cause
}

// However many schedulers there are, by way of a pooler too, a job is in one hand,
// and each of its runs is on record.
func TestSchedulersNeverDoubleAJob(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	const schedulers, runs = 4, 100
	var inHand, made atomic.Int64
	enough := make(chan struct{})
	job := Job{"tick", 3 * time.Millisecond, func(context.Context) (string, error) {
		if n := inHand.Add(1); n != 1 {
			t.Errorf("%d at once", n)
		}
		defer inHand.Add(-1)
		if made.Add(1) == runs {
			close(enough)
		}
		return "", nil
	}}
	pooled := must.Get(dial.Connect(t.Context(), testenv.Pooled(t, c.url), "pooled", dial.Through("transaction")))(t)
	defer pooled.Close()
	var stops []func()
	for i := range schedulers {
		s := c.scheduler(fmt.Sprint("scheduler ", i), job)
		s.poll = time.Millisecond
		if i%2 == 1 {
			s.Registry = registry.New(pooled)
		}
		stops = append(stops, c.run(s))
	}
	<-enough
	for _, stop := range stops {
		stop()
	}
	if s := c.of("tick"); s.Runs != made.Load() || s.Failures != 0 || s.Running {
		t.Errorf("%d runs were made; the schedule is %+v", made.Load(), s)
	}
}

// A scheduler that was killed keeps others from the job until its lease has lapsed,
// and no longer; one that lives keeps it for as long as it needs.
func TestKilledSchedulerIsReplacedAndASlowOneIsNot(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	ctx := context.Background()
	const lease = 5 * time.Second // a slow machine needs a good part of it
	job, begun, goOn, cause := blocked()
	must.Do(t, upkeep.In(c.Deps.Registry).SetSchedule(ctx, job.Name, job.Every))
	if _, began, err := upkeep.In(c.Deps.Registry).BeginRun(ctx, upkeep.RunBegin{Job: job.Name, Holder: "killed", Every: job.Every, Lease: lease}); err != nil || !began {
		t.Fatal(began, err)
	}
	until := pipelinetest.Value[time.Time](c.Archive, `SELECT held_until FROM schedules WHERE job = 'blocked'`)
	first, second := c.scheduler("first", job), c.scheduler("second", job)
	first.lease, second.lease = lease, lease
	stops := []func(){c.run(first), c.run(second)}
	<-begun
	s := c.of("blocked")
	if s.BeganAt.Before(until) || s.BeganAt.After(until.Add(testenv.AtOnce)) || s.Failures != 1 || s.Runs != 2 {
		t.Errorf("held until %v; the schedule is %+v", until, s)
	}
	testenv.Eventually(t, "two leases", func() bool {
		return pipelinetest.Value[bool](c.Archive, `SELECT now() > began_at + interval '10 seconds' FROM schedules WHERE job = 'blocked'`)
	})
	if now := c.of("blocked"); now.Holder != s.Holder || now.Runs != 2 || !now.Running || len(begun)+len(cause) > 0 {
		t.Errorf("the schedule is %+v", now)
	}
	close(goOn)
	testenv.Eventually(t, "the result", func() bool { return c.of("blocked").Result == "went on" })
	for _, stop := range stops {
		stop()
	}
	if now := c.of("blocked"); now.Running || now.Runs != 2 || now.Failures != 1 || time.Until(now.NextRunAt) < 23*time.Hour {
		t.Errorf("the schedule is %+v", now)
	}
}

// A run whose lease another process has is stopped, and its result is not recorded.
func TestJobThatLostItsLeaseIsStopped(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	job, begun, _, cause := blocked()
	s := c.scheduler("slow", job)
	s.lease = 2 * time.Second
	ended := make(chan JobRun, 1)
	s.Observe = func(r JobRun) { ended <- r }
	must.Do(t, upkeep.In(c.Deps.Registry).SetSchedule(t.Context(), job.Name, job.Every))
	var running sync.WaitGroup
	running.Go(func() {
		if _, err := s.Now(context.Background(), job); err != nil {
			t.Error(err)
		}
	})
	<-begun
	c.Exec(`UPDATE schedules SET held_until = now() + interval '1 hour', runs = runs + 1, holder = 'other' WHERE job = 'blocked'`)
	if err := <-cause; !errors.Is(err, registry.ErrLost) {
		t.Errorf("it was stopped because of %v", err)
	}
	running.Wait()
	if r := <-ended; r.Outcome != Lost || !errors.Is(r.Err, registry.ErrLost) {
		t.Errorf("the run is %+v", r)
	}
	if now := c.of("blocked"); now.Holder != "other" || !now.Running || now.Result != "" || now.EndedAt != nil {
		t.Errorf("the schedule is %+v", now)
	}
}

// A run that cannot renew its lease, whether the database refuses or does not answer,
// stops before another begins.
func TestJobThatCannotBeRenewedIsStopped(t *testing.T) {
	t.Parallel()
	for name, breakOff := range map[string]func(*injure.Proxy){
		"cut off": (*injure.Proxy).Cut, "silent": func(p *injure.Proxy) { p.Delay(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClock(t)
			db, proxy := c.throughProxy(t)
			job, begun, _, cause := blocked()
			must.Do(t, upkeep.In(c.Deps.Registry).SetSchedule(t.Context(), job.Name, job.Every))
			s := c.scheduler("lonely", job)
			s.Registry, s.lease = registry.New(db), 4*time.Second
			ended := make(chan JobRun, 1)
			go func() {
				r, err := s.Now(context.Background(), job)
				if err != nil {
					t.Error(err)
				}
				ended <- r
			}()
			<-begun
			breakOff(proxy)
			if err := <-cause; !errors.Is(err, registry.ErrLost) {
				t.Errorf("it was stopped because of %v", err)
			}
			if !pipelinetest.Value[bool](c.Archive, `SELECT held_until > now() FROM schedules WHERE job = 'blocked'`) {
				t.Error("it was stopped after another process could begin")
			}
			proxy.Resume()
			if r := <-ended; r.Outcome != Lost {
				t.Errorf("the run is %+v", r)
			}
		})
	}
}

// A scheduler that is asked to end gives back what it has: the job is due at once.
func TestStoppedSchedulerGivesItsRunBack(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	job, begun, goOn, cause := blocked()
	stop := c.run(c.scheduler("first", job))
	<-begun
	stop()
	<-cause
	if s := c.of("blocked"); s.Running || s.Failures != 0 || s.EndedAt != nil || s.NextRunAt.After(*s.BeganAt) {
		t.Errorf("the schedule is %+v", s)
	}
	close(goOn)
	runs, err := c.scheduler("second", job).Once(t.Context())
	if err != nil || len(runs) != 1 || runs[0].Outcome != Ran || c.of("blocked").Holder != "second" {
		t.Errorf("Once = %+v, %v", runs, err)
	}
}

// What goes wrong with one job is on record, and no other's trouble.
// A scheduler that is asked to stop while it begins a run leaves no lease behind.
func TestStoppedWhileItBeginsARunItLeavesNoLease(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	job := Job{"tick", time.Hour, func(ctx context.Context) (string, error) { return "", ctx.Err() }}
	must.Do(t, upkeep.In(c.Deps.Registry).SetSchedule(t.Context(), job.Name, job.Every))
	holder := must.Get(c.DB.Begin(t.Context()))(t)
	defer holder.Rollback(context.Background()) //nolint:errcheck // it has ended, unless the test failed
	must.Get(holder.Exec(t.Context(), `SELECT FROM schedules FOR UPDATE`))(t)
	waiting := func() (n int) {
		must.Do(t, c.DB.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`).Scan(&n))
		return n
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.scheduler("one", job).Now(ctx, job) //nolint:errcheck // whatever it says: what it leaves is looked at
	}()
	testenv.Eventually(t, "a run that is being begun", func() bool { return waiting() == 1 })
	stop()
	select { // who does not wait for the answer is gone by now
	case <-ended:
	case <-time.After(200 * time.Millisecond):
	}
	must.Do(t, holder.Rollback(t.Context()))
	testenv.Eventually(t, "the statement's end", func() bool { return waiting() == 0 })
	<-ended
	if s := c.of(job.Name); s.Running {
		t.Errorf("the scheduler that was asked to stop still has the job: %+v", s)
	}
}

func TestFailingJobKeepsNoOtherFromItsTime(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	jobs := []Job{
		{"fails", time.Hour, func(context.Context) (string, error) { return "half of it", errors.New("the rest is gone") }},
		{"panics", time.Hour, func(context.Context) (string, error) { return strings.Repeat("a mistake", -1), nil }},
		{"works", time.Hour, func(context.Context) (string, error) { return "all of it", nil }},
	}
	s := c.scheduler("one", jobs...)
	runs, err := s.Once(t.Context())
	if err != nil || len(runs) != 3 || runs[0].Outcome != Failed || runs[1].Outcome != Failed || runs[2].Outcome != Ran {
		t.Fatalf("Once = %+v, %v", runs, err)
	}
	for job, want := range map[string][2]string{
		"fails": {"half of it", "the rest is gone"}, "panics": {"", "panic: strings: negative Repeat count"}, "works": {"all of it", ""},
	} {
		s := c.of(job)
		if got := [2]string{s.Result, s.Error}; got != want || s.Running || time.Until(s.NextRunAt) < 59*time.Minute || (s.Failures == 0) != (want[1] == "") {
			t.Errorf("the schedule is %+v", s)
		}
	}
	if runs, err := s.Once(t.Context()); err != nil || len(runs) != 0 {
		t.Errorf("Once, before the next time = %+v, %v", runs, err)
	}
	c.Exec(`UPDATE schedules SET next_run_at = now(), paused = job <> 'works'`)
	if runs, err := s.Once(t.Context()); err != nil || len(runs) != 1 || runs[0].Job != "works" {
		t.Errorf("Once, while others are paused = %+v, %v", runs, err)
	}
	if run, err := s.Now(t.Context(), jobs[0]); err != nil || run.Result != "half of it" || run.Err == nil {
		t.Errorf("Now, of one that is paused = %+v, %v", run, err)
	}
}

// A running scheduler sees what people type: a job that was paused goes on, and one
// that is wanted now is run.
func TestSchedulerSeesWhatPeopleType(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	var made atomic.Int64
	job := Job{"daily", 24 * time.Hour, func(context.Context) (string, error) { return fmt.Sprint("run ", made.Add(1)), nil }}
	must.Do(t, upkeep.In(c.Deps.Registry).SetSchedule(t.Context(), job.Name, job.Every))
	c.Exec(`UPDATE schedules SET paused = true`)
	var looks atomic.Int64
	other := Job{"often", time.Millisecond, func(context.Context) (string, error) { looks.Add(1); return "the same", nil }}
	stop := c.run(c.scheduler("one", job, other))
	defer stop()
	testenv.Eventually(t, "some looks", func() bool { return looks.Load() > 20 })
	if n := made.Load(); n != 0 {
		t.Errorf("a job that is paused was run %d times", n)
	}
	c.Exec(`UPDATE schedules SET paused = false`)
	testenv.Eventually(t, "the first run", func() bool { return c.of("daily").Result == "run 1" })
	c.Exec(`UPDATE schedules SET next_run_at = now() WHERE job = 'daily'`)
	testenv.Eventually(t, "another run", func() bool { return c.of("daily").Result == "run 2" })
	stop()
	if said := strings.Count(c.Log.String(), "job=often"); said != 1 {
		t.Errorf("the log says %d times that nothing has changed", said)
	}
	if said := strings.Count(c.Log.String(), "job=daily"); said != 2 {
		t.Errorf("the log says %d times that something has changed", said)
	}
}

// A scheduler that starts before its database waits for it. After a failure it looks again
// soon, and the lease of a run whose answer was lost keeps others off, but not itself.
func TestSchedulerOutlivesItsDatabase(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	db, proxy := c.throughProxy(t)
	proxy.Cut()
	var made atomic.Int64
	s := c.scheduler("early", Job{"tick", time.Millisecond, func(context.Context) (string, error) { made.Add(1); return "", nil }})
	s.Registry, s.poll = registry.New(db), time.Hour
	defer c.run(s)()
	testenv.Eventually(t, "a try in vain", func() bool { return proxy.Refused() > 0 })
	proxy.Resume()
	testenv.Eventually(t, "a run", func() bool { return made.Load() > 0 })
	proxy.Cut()
	refused := proxy.Refused()
	testenv.Eventually(t, "another try in vain", func() bool { return proxy.Refused() > refused })
	before := made.Load()
	proxy.Resume()
	testenv.Eventually(t, "another run", func() bool { return made.Load() > before })
}
