package upkeep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

const scheduleColumns = `
	job, every, paused, pauses_of('Schedule', job) AS pauses, held_until > now() AS running, holder, began_at, ended_at,
	CASE WHEN held_until = '-infinity' AND ended_at >= began_at THEN ended_at - began_at END AS took,
	next_run_at,
	CASE WHEN paused OR held_until > now() THEN interval '0' ELSE greatest(now() - next_run_at, interval '0') END AS late,
	result, error, runs, failures`

// Schedules lists the recurring jobs.
func (r Records) Schedules(ctx context.Context) ([]record.Schedule, error) {
	return registry.Collect[record.Schedule](ctx, r.db, "list the schedules", `SELECT `+scheduleColumns+` FROM schedules ORDER BY job`)
}

// PauseSchedule keeps a job from being run when it is due, or ends the caller's pauses of it.
// What it returns is still paused where other pauses are left. The reason may be "". A job that
// nobody has ever run is ErrNotFound.
func (r Records) PauseSchedule(ctx context.Context, job string, paused bool, reason string) (record.Schedule, error) {
	if _, err := r.db.Exec(ctx, `SELECT pause_schedule($1, $2, $3)`, job, paused, reason); err != nil {
		return record.Schedule{}, fmt.Errorf("pause or resume the job %s: %w", job, registry.Refusal(err))
	}
	return registry.One[record.Schedule](ctx, r.db, fmt.Sprintf("pause or resume the job %s", job), `SELECT `+scheduleColumns+` FROM schedules WHERE job = $1`, job)
}

// RunSoon has a job be due now, for the scheduler that polls next. A job that is in progress
// or paused is [registry.ErrRefused], and one that nobody has ever run ErrNotFound.
func (r Records) RunSoon(ctx context.Context, job string) (record.Schedule, error) {
	rows, _ := r.db.Query(ctx, `
		UPDATE schedules SET next_run_at = CASE WHEN paused OR held_until > now() THEN next_run_at ELSE now() END WHERE job = $1
		RETURNING `+scheduleColumns, job)
	s, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[record.Schedule])
	switch {
	case err != nil:
		err = registry.Refusal(err)
	case s.Running:
		err = fmt.Errorf("%w: %s is in progress; wait until it has ended", registry.ErrRefused, job)
	case s.Paused:
		err = fmt.Errorf("%w: %s is paused; resume it first", registry.ErrRefused, job)
	}
	if err != nil {
		return record.Schedule{}, fmt.Errorf("run the job %s: %w", job, err)
	}
	return s, nil
}

// setScheduleSQL leaves a time that someone has chosen, unless the new interval
// ends before it.
const setScheduleSQL = `
INSERT INTO schedules AS s (job, every) VALUES ($1, $2)
ON CONFLICT (job) DO UPDATE SET
	every       = excluded.every,
	next_run_at = CASE WHEN excluded.every < s.every THEN least(s.next_run_at, coalesce(s.began_at, now()) + excluded.every) ELSE s.next_run_at END
WHERE s.every <> excluded.every`

// SetSchedule says how often a job is to be run. One that is new is due at once.
func (r Records) SetSchedule(ctx context.Context, job string, every time.Duration) error {
	return registry.Do(ctx, r.db, fmt.Sprintf("schedule %s", job), setScheduleSQL, job, every)
}

// RunLease is how long a run is its holder's, unless that keeps it.
const RunLease = 2 * time.Minute

// dueInSQL clamps what lies further ahead than it can have been set, since the
// database's clock may have been set back: a job would rest, and a run of a process
// that died last.
const dueInSQL = `
WITH clamped AS (
	UPDATE schedules SET next_run_at = least(next_run_at, now() + every), held_until = least(held_until, now() + $2::interval)
	WHERE job = $1 AND (next_run_at > now() + every OR held_until > now() + $2)
	RETURNING next_run_at, held_until, paused, holder
)
SELECT greatest(s.next_run_at, CASE WHEN s.holder = $3 THEN '-infinity' ELSE s.held_until END) - now() FROM (
	SELECT * FROM clamped
	UNION ALL
	SELECT next_run_at, held_until, paused, holder FROM schedules WHERE job = $1 AND NOT EXISTS (SELECT FROM clamped)
) s WHERE NOT s.paused`

// DueIn returns how long it is until a holder can begin a job; ok is false while it is
// paused, or if it is not known.
func (r Records) DueIn(ctx context.Context, job, holder string) (wait time.Duration, ok bool, err error) {
	err = r.db.QueryRow(ctx, dueInSQL, job, RunLease, holder).Scan(&wait)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read when %s is due: %w", job, err)
	}
	return wait, true, nil
}

// A Run is one run of a job, which nobody else makes in the meantime.
type Run struct {
	Job    string
	Number int64 // each run of a job has a higher one
}

// RunBegin says who would begin a run, and how.
type RunBegin struct {
	Job    string
	Holder string        // names the process, and no other
	Every  time.Duration // between the beginnings of two runs; 0: as it is
	Lease  time.Duration // how long it is the holder's unless [Registry.KeepRun] is called
	Now    bool          // whether or not it is due or paused
}

// beginRunSQL makes it due as long as nobody has come to its end: anyone who takes
// over a run that was lost does not wait for its next time. A holder that begins a run while it
// has one has lost the answer to the beginning or the end of that, as in a failover.
const beginRunSQL = `
UPDATE schedules SET
	holder      = @holder,
	held_until  = now() + @lease::interval,
	began_at    = now(),
	next_run_at = least(next_run_at, now()),
	every       = coalesce(nullif(@every::interval, '0'), every),
	runs        = runs + 1,
	failures    = failures + CASE WHEN held_until > '-infinity' THEN 1 ELSE 0 END
WHERE job = @job AND (held_until < now() OR holder = @holder) AND (@now OR NOT paused AND next_run_at <= now())
RETURNING runs`

// BeginRun begins a run of a job if that is due and nobody else runs it.
func (r Records) BeginRun(ctx context.Context, b RunBegin) (run Run, began bool, err error) {
	run.Job = b.Job
	err = r.db.QueryRow(ctx, beginRunSQL, pgx.NamedArgs{
		"job": b.Job, "holder": b.Holder, "every": b.Every, "lease": b.Lease, "now": b.Now,
	}).Scan(&run.Number)
	if errors.Is(err, pgx.ErrNoRows) {
		return run, false, nil
	}
	if err != nil {
		return run, false, fmt.Errorf("begin a run of %s: %w", b.Job, err)
	}
	return run, true, nil
}

const keepRunSQL = `
UPDATE schedules SET held_until = now() + $3::interval
WHERE job = $1 AND runs = $2 AND held_until > '-infinity'`

// KeepRun keeps a run for another lease. If that has lapsed and someone else has
// begun one, it returns ErrLost.
func (r Records) KeepRun(ctx context.Context, run Run, lease time.Duration) error {
	return r.changeRun(ctx, "keep", keepRunSQL, run, lease)
}

// endRunSQL keeps the time that someone has typed since the run began. Runs that
// were missed are not made up for.
const endRunSQL = `
UPDATE schedules SET
	held_until  = '-infinity',
	ended_at    = now(),
	next_run_at = CASE WHEN next_run_at > began_at THEN next_run_at ELSE greatest(began_at + every, now()) END,
	failures    = failures + CASE WHEN $4 = '' THEN 0 ELSE 1 END,
	result      = $3,
	error       = $4
WHERE job = $1 AND runs = $2 AND held_until > '-infinity'`

// EndRun ends a run, with what came of it, and what it could not do. Of one that
// someone else has taken over it changes nothing and returns ErrLost.
func (r Records) EndRun(ctx context.Context, run Run, result, trouble string) error {
	return r.changeRun(ctx, "end", endRunSQL, run, textOf(result), textOf(trouble))
}

// textOf is what there is space for of a text that others have written parts of.
func textOf(s string) string {
	const most = 8 << 10
	if len(s) > most {
		s = s[:most] + "…"
	}
	return registry.StorableText(s)
}

const giveUpRunSQL = `
UPDATE schedules SET held_until = '-infinity'
WHERE job = $1 AND runs = $2 AND held_until > '-infinity'`

// GiveUpRun ends a run that was stopped for no fault of its own: the job is due for
// anyone who comes first.
func (r Records) GiveUpRun(ctx context.Context, run Run) error {
	return r.changeRun(ctx, "give up", giveUpRunSQL, run)
}

func (r Records) changeRun(ctx context.Context, verb, sql string, run Run, args ...any) error {
	tag, err := r.db.Exec(ctx, sql, append([]any{run.Job, run.Number}, args...)...)
	if err != nil {
		return fmt.Errorf("%s a run of %s: %w", verb, run.Job, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("%s run %d of %s: %w", verb, run.Number, run.Job, registry.ErrLost)
	}
	return nil
}

// JanitorJob is the name of the janitor's rounds among the recurring jobs.
const JanitorJob = "janitor"

// LastRound returns what is known of the rounds.
func (r Records) LastRound(ctx context.Context) (record.Round, error) {
	rows, _ := r.db.Query(ctx, `SELECT holder, held_until > now() AS running, began_at, ended_at, error FROM schedules WHERE job = $1`, JanitorJob)
	round, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[record.Round])
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return round, fmt.Errorf("look up the janitor's rounds: %w", err)
	}
	return round, nil
}
