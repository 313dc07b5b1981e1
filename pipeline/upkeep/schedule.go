// Package upkeep runs the recurring jobs: it reads receiving buckets, removes what items
// leave behind, draws spot restorations, and reports what is inconsistent.
package upkeep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/retry"
)

// A Job is done again and again, by one process at a time.
//
// Run must be safe to repeat: who ran it before may have died anywhere. What it
// could not do it returns as an error, and the rest as a result all the same; the
// next run comes to what is left.
type Job struct {
	Name  string
	Every time.Duration // between the beginnings of two runs
	Run   func(ctx context.Context) (result string, err error)
}

// JobRun is what came of a run.
type JobRun struct {
	Job     string
	Outcome string // Ran, Failed, Stopped or Lost
	Result  string
	Err     error
	Took    time.Duration
}

// How a run ends.
const (
	Ran     = "done"
	Failed  = "failed"  // it could not do all
	Stopped = "stopped" // its process was asked to end; the job is due for the next
	Lost    = "lost"    // its lease was gone, and its result is not on record
)

// Scheduler runs jobs when they are due. Any number may run at once: a run is a
// lease in the table schedules, which nobody else has. What is due, the database's
// clock says.
type Scheduler struct {
	Registry *registry.Registry
	Jobs     []Job
	Holder   string       // names this process, and no other
	Observe  func(JobRun) // called for each run that ended; may be nil
	Log      *slog.Logger

	lease, poll time.Duration // registry.RunLease and jobPoll if 0
}

// ErrBusy says that another process runs the job.
var ErrBusy = errors.New("another process runs it")

const (
	jobPoll  = 10 * time.Second // between two looks for what people have changed
	soon     = 50 * time.Millisecond
	again    = time.Second      // after a look that failed, as in a failover
	saveTime = 10 * time.Second // for the last word of a process that was asked to end
)

// Run runs the jobs whenever they are due, until ctx is done. A job that fails does
// not keep it from the others.
func (s *Scheduler) Run(ctx context.Context) {
	var jobs sync.WaitGroup
	for _, j := range s.Jobs {
		jobs.Go(func() { s.again(ctx, j) })
	}
	jobs.Wait()
}

// again runs a job whenever it is due. Errors are for the next look.
func (s *Scheduler) again(ctx context.Context, j Job) {
	scheduled, said := false, ""
	for wait := time.Duration(0); retry.Pause(ctx, wait); {
		var run *JobRun
		var err error
		if !scheduled {
			err = upkeep.In(s.Registry).SetSchedule(ctx, j.Name, j.Every)
			scheduled = err == nil
		}
		if wait = s.pollTime(); err == nil {
			run, wait, err = s.whenDue(ctx, j)
		}
		if err != nil && ctx.Err() == nil {
			wait = min(wait, again)
			s.Log.WarnContext(ctx, "cannot start the job; retrying", "job", j.Name, "err", err)
		}
		if run != nil {
			s.log(ctx, *run, run.Result == said)
			said = run.Result
		}
	}
}

// log tells of a run, the same as before at a lower level.
func (s *Scheduler) log(ctx context.Context, run JobRun, same bool) {
	log := s.Log.With("job", run.Job, "took", run.Took.Round(time.Millisecond), "result", run.Result)
	switch {
	case run.Outcome == Failed, run.Outcome == Lost:
		log.WarnContext(ctx, "job failed; will retry when it is due", "outcome", run.Outcome, "err", run.Err)
	case same:
		log.DebugContext(ctx, "job done", "outcome", run.Outcome)
	default:
		log.InfoContext(ctx, "job done", "outcome", run.Outcome)
	}
}

// whenDue runs a job if it is due, and says how long to wait before the next look.
func (s *Scheduler) whenDue(ctx context.Context, j Job) (*JobRun, time.Duration, error) {
	wait, known, err := upkeep.In(s.Registry).DueIn(ctx, j.Name, s.Holder)
	if err != nil || !known || wait > 0 {
		if err != nil || !known {
			wait = s.pollTime()
		}
		return nil, min(wait, s.pollTime()), err
	}
	run, err := s.begin(ctx, j, false)
	if errors.Is(err, ErrBusy) { // someone was quicker
		return nil, soon, nil
	}
	if err != nil {
		return nil, s.pollTime(), err
	}
	return run, 0, nil
}

func (s *Scheduler) pollTime() time.Duration { return cmp.Or(s.poll, jobPoll) }

// Once runs each job once that is due now, and returns what came of them.
func (s *Scheduler) Once(ctx context.Context) (runs []JobRun, err error) {
	for _, j := range s.Jobs {
		if err := upkeep.In(s.Registry).SetSchedule(ctx, j.Name, j.Every); err != nil {
			return runs, err
		}
		run, _, err := s.whenDue(ctx, j)
		if err != nil {
			return runs, err
		}
		if run != nil {
			runs = append(runs, *run)
		}
	}
	return runs, nil
}

// Now runs a job at once, whether or not it is due or paused. It returns ErrBusy if
// someone else runs it.
func (s *Scheduler) Now(ctx context.Context, j Job) (JobRun, error) {
	run, err := s.begin(ctx, j, true)
	if err != nil {
		return JobRun{}, err
	}
	return *run, nil
}

// begin makes a run, if it can be had, and puts on record what came of it.
func (s *Scheduler) begin(ctx context.Context, j Job, now bool) (*JobRun, error) {
	lease, asked := cmp.Or(s.lease, upkeep.RunLease), time.Now()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	// A scheduler that is asked to stop at this moment has to know whether it has begun a
	// run. Otherwise no scheduler could begin one until the lease lapses.
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTime)
	run, began, err := upkeep.In(s.Registry).BeginRun(asking, upkeep.RunBegin{Job: j.Name, Holder: s.Holder, Every: j.Every, Lease: lease, Now: now})
	cancel()
	if err != nil {
		return nil, err
	}
	if !began {
		return nil, ErrBusy
	}
	held, drop := context.WithCancelCause(ctx)
	defer drop(nil)
	// Also while a job comes to its end that was asked to stop, nobody else begins it.
	keepCtx, release := context.WithCancel(context.WithoutCancel(ctx))
	var keeper sync.WaitGroup
	keeper.Go(func() { s.keep(keepCtx, run, lease, asked, drop) })
	done := JobRun{Job: j.Name}
	done.Result, done.Err = s.do(held, j)
	done.Took = time.Since(asked)
	release()
	keeper.Wait()
	s.end(ctx, &done, run, context.Cause(held))
	if s.Observe != nil {
		s.Observe(done)
	}
	return &done, nil
}

// do runs a job. One that panics does not take the others with it.
func (s *Scheduler) do(ctx context.Context, j Job) (result string, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.Log.ErrorContext(ctx, "job panicked", "job", j.Name, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return j.Run(ctx)
}

// keep renews a run until ctx is done. It drops one that is ours no more, or may not
// be for much longer: before the lease lapses and someone else begins.
func (s *Scheduler) keep(ctx context.Context, run upkeep.Run, lease time.Duration, renewed time.Time, drop context.CancelCauseFunc) {
	for retry.Pause(ctx, lease/6) {
		asked := time.Now()
		bounded, cancel := context.WithTimeout(ctx, lease/6)
		err := upkeep.In(s.Registry).KeepRun(bounded, run, lease)
		cancel()
		switch {
		case err == nil:
			renewed = asked
		case ctx.Err() != nil:
		case errors.Is(err, registry.ErrLost):
			drop(err)
			return
		case time.Since(renewed) > lease/2:
			drop(fmt.Errorf("not renewed for %v: %w", time.Since(renewed).Round(time.Millisecond), registry.ErrLost))
			return
		default:
			s.Log.WarnContext(ctx, "cannot renew the lease of a run; retrying", "job", run.Job, "err", err)
		}
	}
}

// end puts on record what came of a run. One that was stopped is given up, so that
// it is due for anyone who comes first.
func (s *Scheduler) end(ctx context.Context, done *JobRun, run upkeep.Run, dropped error) {
	record := func(ctx context.Context) error {
		trouble := ""
		if done.Err != nil {
			trouble = done.Err.Error()
		}
		return upkeep.In(s.Registry).EndRun(ctx, run, done.Result, trouble)
	}
	switch {
	case done.Err == nil:
		done.Outcome = Ran
	case errors.Is(dropped, registry.ErrLost):
		done.Outcome, done.Err = Lost, dropped
	case ctx.Err() != nil:
		done.Outcome, done.Err = Stopped, context.Cause(ctx)
		record = func(ctx context.Context) error { return upkeep.In(s.Registry).GiveUpRun(ctx, run) }
	default:
		done.Outcome = Failed
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTime)
	defer cancel()
	for wait := 100 * time.Millisecond; ; wait *= 2 {
		err := record(bounded)
		if err == nil {
			return
		}
		if errors.Is(err, registry.ErrLost) || !retry.Pause(bounded, wait) {
			done.Outcome, done.Err = Lost, errors.Join(done.Err, err)
			return
		}
	}
}
