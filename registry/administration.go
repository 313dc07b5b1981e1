package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

// What follows calls the functions and views of docs/sql.md, where the rules
// are: anyone who uses them in psql comes to the same.

// FixityStage is what fixity checks are called where they can be paused.
const FixityStage Stage = "Fixity Check"

// Pause stops claims of a stage, in each action that has it, or of all stages if
// it is "". What runs goes on. The reason may be "".
func (r *Registry) Pause(ctx context.Context, stage Stage, reason string) ([]record.StagePause, error) {
	sql := `SELECT * FROM pause_stage(@stage, nullif(@reason, ''))`
	if stage == "" {
		sql = `SELECT * FROM pause_all(nullif(@reason, ''))`
	}
	return Collect[record.StagePause](ctx, r.db, "pause stages", sql, pgx.NamedArgs{"stage": stage, "reason": reason})
}

// SetPaused pauses a stage of one action, or ends the caller's pauses of it. The reason of a
// pause may be "".
func (r *Registry) SetPaused(ctx context.Context, action Action, stage Stage, paused bool, reason string) ([]record.StagePause, error) {
	sql := `SELECT * FROM resume_stage(@stage, @action)`
	if paused {
		sql = `SELECT * FROM pause_stage(@stage, nullif(@reason, ''), @action)`
	}
	return Collect[record.StagePause](ctx, r.db, "pause or resume a stage", sql, pgx.NamedArgs{"action": action, "stage": stage, "reason": reason})
}

// Pauses returns how each stage stands, and the checks of stored copies.
func (r *Registry) Pauses(ctx context.Context) ([]record.StagePause, error) {
	return Collect[record.StagePause](ctx, r.db, "list pauses",
		`SELECT action, stage, paused, paused_by, paused_at, pause_reason, pauses FROM stage_pauses ORDER BY action, stage`, pgx.NamedArgs{})
}

// Resume ends the caller's pauses of a stage, or the caller's pauses of all stages if it is
// "". What it returns is still paused where other pauses are left.
func (r *Registry) Resume(ctx context.Context, stage Stage) ([]record.StagePause, error) {
	sql := `SELECT * FROM resume_stage(@stage)`
	if stage == "" {
		sql = `SELECT * FROM resume_all()`
	}
	return Collect[record.StagePause](ctx, r.db, "resume stages", sql, pgx.NamedArgs{"stage": stage})
}

// LiftPause ends one pause, whoever made it, or one hold of a service. One that is not in
// force is ErrNotFound.
func (r *Registry) LiftPause(ctx context.Context, pause int64) ([]record.StagePause, error) {
	return Collect[record.StagePause](ctx, r.db, fmt.Sprintf("lift pause %d", pause), `SELECT * FROM lift_pause(@pause)`, pgx.NamedArgs{"pause": pause})
}

// Release takes a running item from its worker. It is Pending at once, at the
// same stage, keeps what the stage has finished, and the attempt does not count.
func (r *Registry) Release(ctx context.Context, id int64) (record.WorkItem, error) {
	return r.oneItem(ctx, "release", `SELECT `+WorkItemColumns+`
		FROM release(@id) w JOIN institutions i ON i.id = w.institution_id`, pgx.NamedArgs{"id": id})
}

// SetPriority lets an item go before others or after them: from -100, which goes
// first, to 100.
func (r *Registry) SetPriority(ctx context.Context, id int64, priority int) (record.WorkItem, error) {
	return r.oneItem(ctx, "set the priority of", `SELECT `+WorkItemColumns+`
		FROM set_priority(@id, @priority) w JOIN institutions i ON i.id = w.institution_id`,
		pgx.NamedArgs{"id": id, "priority": priority})
}

// ItemChange is what is to be different about an item; what is nil stays.
type ItemChange struct {
	Priority *int
	Note     *string
	Review   *bool // whether a person has to look at it
}

// SetItem changes what people may change of an item without moving it. An item that has
// succeeded or was cancelled is ErrRefused.
func (r *Registry) SetItem(ctx context.Context, id int64, c ItemChange) (record.WorkItem, error) {
	if c.Note != nil {
		clean := CleanText(*c.Note)
		c.Note = &clean
	}
	set, err := r.oneItem(ctx, "set", `
		WITH w AS (
			UPDATE work_items w SET priority = coalesce(@priority::int, w.priority), note = coalesce(@note::text, w.note),
				needs_admin_review = coalesce(@review::boolean, w.needs_admin_review)
			FROM item_to_change(@id) k WHERE w.id = k.id AND k.status NOT IN ('Success', 'Cancelled')
			RETURNING w.*
		)
		SELECT `+WorkItemColumns+` FROM w JOIN institutions i ON i.id = w.institution_id`,
		pgx.NamedArgs{"id": id, "priority": c.Priority, "note": c.Note, "review": c.Review})
	if errors.Is(err, ErrNotFound) {
		if w, found := r.WorkItem(ctx, id); found == nil {
			err = fmt.Errorf("set item %d: %w: it has ended (%s) and cannot be changed", id, ErrRefused, w.Status)
		}
	}
	return set, err
}

// WhyNot returns all that keeps an item from being claimed now.
func (r *Registry) WhyNot(ctx context.Context, id int64) ([]record.Obstacle, error) {
	return Collect[record.Obstacle](ctx, r.db, fmt.Sprintf("ask about item %d", id), `SELECT * FROM why_not(@id)`, pgx.NamedArgs{"id": id})
}

// RequeueWhere requeues the items that a condition of SQL holds for, at a stage
// or else at the last that each attempted. Without yes it only reports what it would do.
func (r *Registry) RequeueWhere(ctx context.Context, condition string, stage Stage, yes bool) ([]record.RequeueLine, error) {
	return Collect[record.RequeueLine](ctx, r.db, "requeue items", `SELECT * FROM requeue_where(@filter, nullif(@stage, ''), NOT @yes)`,
		pgx.NamedArgs{"filter": condition, "stage": stage, "yes": yes})
}

const workerColumns = `worker, node, pid, pools, slots, running, extract(epoch FROM heartbeat_ago)::float8 AS heartbeat_ago, draining, started`

const workersSQL = `SELECT ` + workerColumns + ` FROM workers ORDER BY node, started, worker`

// Workers lists the worker processes that live.
func (r *Registry) Workers(ctx context.Context) ([]record.Worker, error) {
	return Collect[record.Worker](ctx, r.db, "list workers", workersSQL)
}

// WorkersIn is [Registry.Workers] as a transaction sees them.
func WorkersIn(ctx context.Context, tx pgx.Tx) ([]record.Worker, error) {
	rows, _ := tx.Query(ctx, workersSQL)
	return pgx.CollectRows(rows, pgx.RowToStructByName[record.Worker])
}

// EndedWorkers lists up to n worker processes that have ended, the last first. All rows are
// read: upkeep deletes them after a week.
func (r *Registry) EndedWorkers(ctx context.Context, n int) ([]record.EndedWorker, error) {
	return Collect[record.EndedWorker](ctx, r.db, "list workers that have ended", `
		SELECT worker, node, pid, started_at AS started, heartbeat_at AS last_beat, ended_at AS ended, ending
		FROM worker_processes WHERE ended_at IS NOT NULL ORDER BY ended_at DESC, worker LIMIT @n`, pgx.NamedArgs{"n": n})
}

// Drain asks a worker to claim nothing more, end what it has, and stop.
func (r *Registry) Drain(ctx context.Context, worker string) (record.Worker, error) {
	return One[record.Worker](ctx, r.db, fmt.Sprintf("drain worker %s", worker), `SELECT `+workerColumns+` FROM drain_worker($1)`, worker)
}
