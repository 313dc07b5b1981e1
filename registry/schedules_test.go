package registry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/upkeep"
)

const someJob = "janitor"

// begin begins a run of a job, which has to be possible or not.
func (a *archive) begin(holder string, now, want bool) upkeep.Run {
	a.t.Helper()
	run, began, err := upkeep.In(a.Registry).BeginRun(context.Background(), upkeep.RunBegin{Job: someJob, Holder: holder, Every: time.Hour, Lease: time.Minute, Now: now})
	if err != nil || began != want {
		a.t.Fatalf("BeginRun of %s = %v, %v; want %v", holder, began, err, want)
	}
	return run
}

func (a *archive) endRun(run upkeep.Run, result, trouble string) {
	a.t.Helper()
	must.Do(a.t, upkeep.In(a.Registry).EndRun(context.Background(), run, result, trouble))
}

// lapse lets the lease of a run lapse, as when its holder was killed.
func (a *archive) lapse() {
	a.t.Helper()
	a.exec(`UPDATE schedules SET held_until = now() - interval '1 second' WHERE job = $1`, someJob)
}

func (a *archive) schedule() record.Schedule {
	a.t.Helper()
	list := must.Get(upkeep.In(a.Registry).Schedules(context.Background()))(a.t)
	i := slices.IndexFunc(list, func(s record.Schedule) bool { return s.Job == someJob })
	if i < 0 {
		a.t.Fatalf("there is no job %s in %+v", someJob, list)
	}
	return list[i]
}

// dueWithin fails the test unless the job is due in so long, by a second.
func (a *archive) dueWithin(want time.Duration) {
	a.t.Helper()
	wait, ok, err := upkeep.In(a.Registry).DueIn(context.Background(), someJob, "")
	if err != nil || !ok || wait < want-time.Second || wait > want+time.Second {
		a.t.Errorf("it is due in %v, %v, %v; want %v", wait, ok, err, want)
	}
}

// A holder that knows nothing of its run, whose answer was lost in a failover, begins another at
// once, and no one else does. What the first run would still write is refused.
func TestHolderTakesBackARunThatItLost(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := context.Background()
	lost := a.begin("one", false, true)
	a.dueWithin(time.Minute)
	if wait, ok, err := upkeep.In(a.Registry).DueIn(ctx, someJob, "one"); err != nil || !ok || wait > 0 {
		t.Errorf("it is due for its holder in %v, %v, %v", wait, ok, err)
	}
	a.begin("two", false, false)
	run := a.begin("one", false, true)
	if err := upkeep.In(a.Registry).EndRun(ctx, lost, "", ""); !errors.Is(err, registry.ErrLost) {
		t.Errorf("EndRun of the run that was lost = %v", err)
	}
	a.endRun(run, "", "")
	a.dueWithin(time.Hour)
	a.begin("one", false, false)
}

// However many ask, and however often, a run is in one hand, and begins no sooner
// after the last than it may.
func TestRunsOfAJobNeverMeet(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const processes, runs, every = 8, 60, 4 * time.Millisecond
	a.exec(`UPDATE schedules SET every = '4 milliseconds' WHERE job = $1`, someJob)
	var inHand, made atomic.Int64
	var mu sync.Mutex
	began := map[int64]time.Time{}
	var all sync.WaitGroup
	for i := range processes {
		all.Go(func() {
			for made.Load() < runs {
				run, mine, err := upkeep.In(a.Registry).BeginRun(context.Background(), upkeep.RunBegin{Job: someJob, Holder: fmt.Sprint(i), Every: every, Lease: time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				if !mine {
					continue
				}
				if n := inHand.Add(1); n != 1 {
					t.Errorf("%d runs at once", n)
				}
				made.Add(1)
				at := value[time.Time](a, `SELECT began_at FROM schedules WHERE job = $1`, someJob)
				if err := upkeep.In(a.Registry).KeepRun(context.Background(), run, time.Minute); err != nil {
					t.Error(err)
				}
				mu.Lock()
				began[run.Number] = at
				mu.Unlock()
				inHand.Add(-1)
				if err := upkeep.In(a.Registry).EndRun(context.Background(), run, "", ""); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if s := a.schedule(); s.Runs != made.Load() || int64(len(began)) != s.Runs || s.Failures != 0 {
		t.Errorf("%d runs were made, with %d numbers; the schedule is %+v", made.Load(), len(began), s)
	}
	for n := int64(2); n <= made.Load(); n++ {
		if apart := began[n].Sub(began[n-1]); apart < every {
			t.Errorf("run %d began %v after the last", n, apart)
		}
	}
}

// Who was thought dead and was replaced changes nothing any more; who was slow, and
// was not replaced, does.
func TestLostRunChangesNothing(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := context.Background()
	slow := a.begin("slow", false, true)
	a.dueWithin(time.Minute) // when its lease lapses
	a.begin("other", false, false)
	a.begin("person", true, false)
	a.lapse()
	if err := upkeep.In(a.Registry).KeepRun(ctx, slow, time.Minute); err != nil {
		t.Errorf("KeepRun of a run that nobody has taken over = %v", err)
	}
	a.begin("other", false, false)
	a.lapse()
	second := a.begin("other", false, true) // at once: anyone who takes over does not wait for the next time
	for name, err := range map[string]error{
		"KeepRun": upkeep.In(a.Registry).KeepRun(ctx, slow, time.Hour), "EndRun": upkeep.In(a.Registry).EndRun(ctx, slow, "stale", "stale"), "GiveUpRun": upkeep.In(a.Registry).GiveUpRun(ctx, slow),
	} {
		if !errors.Is(err, registry.ErrLost) {
			t.Errorf("%s of a run that was taken over = %v, want ErrLost", name, err)
		}
	}
	if s := a.schedule(); s.Holder != "other" || !s.Running || s.Result != "" || s.EndedAt != nil || s.Took != nil || s.Failures != 1 || s.Runs != 2 {
		t.Errorf("the schedule is %+v", s)
	}
	a.endRun(second, "well", "")
	for name, err := range map[string]error{
		"KeepRun": upkeep.In(a.Registry).KeepRun(ctx, second, time.Hour), "EndRun": upkeep.In(a.Registry).EndRun(ctx, second, "twice", ""), "GiveUpRun": upkeep.In(a.Registry).GiveUpRun(ctx, second),
	} {
		if !errors.Is(err, registry.ErrLost) {
			t.Errorf("%s of a run that has ended = %v, want ErrLost", name, err)
		}
	}
	if s := a.schedule(); s.Running || s.Result != "well" || s.Error != "" || s.EndedAt == nil || s.Took == nil || s.Failures != 1 {
		t.Errorf("the schedule is %+v", s)
	}
}

// A job that nobody ran for days runs once, and then at its time again.
func TestMissedRunsDoNotPileUp(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.exec(`UPDATE schedules SET next_run_at = now() - interval '10 days'`)
	if s := a.schedule(); s.Late < 239*time.Hour {
		t.Errorf("it is late by %v", s.Late)
	}
	a.endRun(a.begin("one", false, true), "", "it went wrong")
	if s := a.schedule(); s.Late != 0 || s.Error != "it went wrong" || s.Failures != 1 || s.Every != time.Hour {
		t.Errorf("the schedule is %+v", s)
	}
	a.dueWithin(time.Hour) // also after what went wrong
	a.begin("two", false, false)

	// One that took longer than it may is due at once, and once.
	a.exec(`UPDATE schedules SET next_run_at = now() - interval '10 days'`)
	run := a.begin("one", false, true)
	a.exec(`UPDATE schedules SET began_at = now() - interval '5 hours', next_run_at = now() - interval '6 hours' WHERE job = $1`, someJob)
	a.endRun(run, "", "")
	a.dueWithin(0)
	a.endRun(a.begin("two", false, true), "", "")
	a.dueWithin(time.Hour)
}

// A run that was stopped for no fault of its own is for anyone who comes first.
func TestRunThatWasGivenUpIsDue(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.endRun(a.begin("one", false, true), "first", "")
	run := a.begin("one", true, true)
	must.Do(t, upkeep.In(a.Registry).GiveUpRun(context.Background(), run))
	if s := a.schedule(); s.Running || s.Failures != 0 || s.Result != "first" || s.Took != nil {
		t.Errorf("the schedule is %+v", s)
	}
	a.begin("two", false, true)
}

// What a person has typed holds, and what nobody may type is refused.
func TestPeoplePauseJobsAndRunThem(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := context.Background()
	tx := must.Get(a.db.Begin(ctx))(t)
	defer tx.Rollback(ctx) //nolint:errcheck // it is committed below
	for _, sql := range []string{`SET LOCAL ROLE farol_admin`, `UPDATE schedules SET paused = true WHERE job = 'janitor'`, `SELECT * FROM schedules, spot_restores`} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	must.Do(t, tx.Commit(ctx))
	if _, ok, err := upkeep.In(a.Registry).DueIn(ctx, someJob, ""); ok || err != nil {
		t.Errorf("a job that is paused is due: %v, %v", ok, err)
	}
	a.begin("one", false, false)
	if s := a.schedule(); !s.Paused || s.Late != 0 {
		t.Errorf("the schedule is %+v", s)
	}
	a.endRun(a.begin("person", true, true), "", "") // by hand
	a.exec(`UPDATE schedules SET paused = false`)
	a.dueWithin(time.Hour)
	a.exec(`UPDATE schedules SET next_run_at = now()`)
	run := a.begin("one", false, true)
	a.exec(`UPDATE schedules SET next_run_at = now()`) // once more, while it runs
	a.endRun(run, "", "")
	a.dueWithin(0)
	a.exec(`UPDATE schedules SET next_run_at = now() + interval '3 days'`) // which is longer than it may rest
	a.dueWithin(time.Hour)
	a.begin("two", false, false)

	for sql, reason := range map[string]string{
		`UPDATE schedules SET next_run_at = 'infinity'`:                       "infinity is no point in time",
		`UPDATE schedules SET next_run_at = NULL`:                             "not-null",
		`UPDATE schedules SET paused = NULL`:                                  "paused is true or false",
		`UPDATE schedules SET every = '0'`:                                    "schedules_every_check",
		`UPDATE institutions SET spot_restore_days = -1`:                      "institutions_spot_restore_days_check",
		`UPDATE institutions SET spot_restore_days = 4000`:                    "institutions_spot_restore_days_check",
		`SET LOCAL ROLE farol_admin; UPDATE schedules SET held_until = now()`: "permission denied for table schedules",
		`SET LOCAL ROLE farol_admin; DELETE FROM schedules`:                   "permission denied for table schedules",
		`SET LOCAL ROLE farol_admin; SELECT wake_retrieval(1, 1)`:             "permission denied for function wake_retrieval",
	} {
		testenv.Refused(t, a.db, reason, sql)
	}
}

// The settings of who runs a job are its schedule; a shorter time counts at once.
func TestScheduleFollowsTheSettings(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := context.Background()
	set := func(job string, every time.Duration) {
		t.Helper()
		must.Do(t, upkeep.In(a.Registry).SetSchedule(ctx, job, every))
	}
	a.endRun(a.begin("one", false, true), "", "")
	set(someJob, time.Hour)
	a.dueWithin(time.Hour)
	set(someJob, 10*time.Minute)
	a.dueWithin(10 * time.Minute)
	set(someJob, 24*time.Hour)
	a.dueWithin(10 * time.Minute)
	if s := a.schedule(); s.Every != 24*time.Hour {
		t.Errorf("it is every %v", s.Every)
	}
	if _, ok, err := upkeep.In(a.Registry).DueIn(ctx, "new-job", ""); ok || err != nil {
		t.Errorf("DueIn of what is not known = %v, %v", ok, err)
	}
	set("new-job", time.Hour)
	if wait, ok, err := upkeep.In(a.Registry).DueIn(ctx, "new-job", ""); !ok || wait > 0 || err != nil {
		t.Errorf("a new job is due in %v, %v, %v", wait, ok, err)
	}
	if err := upkeep.In(a.Registry).SetSchedule(ctx, "No Name", time.Hour); !errors.Is(err, registry.ErrRefused) {
		t.Errorf("SetSchedule of a bad name = %v", err)
	}
	want := []string{"count-holdings", "fixity-feed", "glacier-poll", "inventories", "janitor", "new-job", "raise-alerts", "read-buckets", "send-mail", "spot-restore", "topic-log"}
	list, err := upkeep.In(a.Registry).Schedules(ctx)
	var names []string
	for _, s := range list {
		names = append(names, s.Job)
	}
	if diff := cmp.Diff(want, names); diff != "" || err != nil {
		t.Errorf("jobs (-want +got):\n%s%v", diff, err)
	}
}

// What others have named may be any bytes, and any number.
func TestResultsFitIntoTheirRow(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.endRun(a.begin("one", false, true), "a\x00b\xff", strings.Repeat("x", 1<<20))
	s := a.schedule()
	if s.Result != "a\uFFFDb\uFFFD" || len(s.Error) > 9000 || len(s.Error) < 8000 {
		t.Errorf("result %q, and an error of %d bytes", s.Result, len(s.Error))
	}
	if round, err := upkeep.In(a.Registry).LastRound(context.Background()); err != nil || round.Holder != "one" || round.Running || round.EndedAt == nil || round.Error != s.Error {
		t.Errorf("the last round is %+v, %v", round, err)
	}
}
