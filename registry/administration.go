package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// What follows calls the functions and views of docs/sql.md, where the rules
// are: anyone who uses them in psql comes to the same.

// FixityStage is what fixity checks are called where they can be paused.
const FixityStage Stage = "Fixity Check"

// Pause is one pause of a stage. The stage is claimed again when no pause of it is left.
type Pause struct {
	ID     int64     `json:"id"` // the same for all stages that were paused together
	By     string    `json:"by"`
	Since  time.Time `json:"since"`
	Reason *string   `json:"reason"`
	OfAll  bool      `json:"of_all"` // it was made for all stages
	InNSQ  bool      `json:"in_nsq"` // it came from NSQ
}

// StagePause reports whether a stage is paused, and by whom. With several pauses, PausedBy
// and PauseReason name all, and PausedAt is of the first.
type StagePause struct {
	Action      Action     `json:"action"`
	Stage       Stage      `json:"stage"`
	Paused      bool       `json:"paused"`
	PausedBy    *string    `json:"paused_by"`
	PausedAt    *time.Time `json:"paused_at"`
	PauseReason *string    `json:"pause_reason"`
	Pauses      []Pause    `json:"pauses"`
}

// Pause stops claims of a stage, in each action that has it, or of all stages if
// it is "". What runs goes on. The reason may be "".
func (r *Registry) Pause(ctx context.Context, stage Stage, reason string) ([]StagePause, error) {
	sql := `SELECT * FROM pause_stage(@stage, nullif(@reason, ''))`
	if stage == "" {
		sql = `SELECT * FROM pause_all(nullif(@reason, ''))`
	}
	return Collect[StagePause](ctx, r.db, "pause stages", sql, pgx.NamedArgs{"stage": stage, "reason": reason})
}

// SetPaused pauses a stage of one action, or ends the caller's pauses of it. The reason of a
// pause may be "".
func (r *Registry) SetPaused(ctx context.Context, action Action, stage Stage, paused bool, reason string) ([]StagePause, error) {
	sql := `SELECT * FROM resume_stage(@stage, @action)`
	if paused {
		sql = `SELECT * FROM pause_stage(@stage, nullif(@reason, ''), @action)`
	}
	return Collect[StagePause](ctx, r.db, "pause or resume a stage", sql, pgx.NamedArgs{"action": action, "stage": stage, "reason": reason})
}

// Pauses returns how each stage stands, and the checks of stored copies.
func (r *Registry) Pauses(ctx context.Context) ([]StagePause, error) {
	return Collect[StagePause](ctx, r.db, "list pauses",
		`SELECT action, stage, paused, paused_by, paused_at, pause_reason, pauses FROM stage_pauses ORDER BY action, stage`, pgx.NamedArgs{})
}

// Resume ends the caller's pauses of a stage, or the caller's pauses of all stages if it is
// "". What it returns is still paused where other pauses are left.
func (r *Registry) Resume(ctx context.Context, stage Stage) ([]StagePause, error) {
	sql := `SELECT * FROM resume_stage(@stage)`
	if stage == "" {
		sql = `SELECT * FROM resume_all()`
	}
	return Collect[StagePause](ctx, r.db, "resume stages", sql, pgx.NamedArgs{"stage": stage})
}

// LiftPause ends one pause, whoever made it, or one hold of a service. One that is not in
// force is ErrNotFound.
func (r *Registry) LiftPause(ctx context.Context, pause int64) ([]StagePause, error) {
	return Collect[StagePause](ctx, r.db, fmt.Sprintf("lift pause %d", pause), `SELECT * FROM lift_pause(@pause)`, pgx.NamedArgs{"pause": pause})
}

// Release takes a running item from its worker. It is Pending at once, at the
// same stage, keeps what the stage has finished, and the attempt does not count.
func (r *Registry) Release(ctx context.Context, id int64) (WorkItem, error) {
	return r.oneItem(ctx, "release", `SELECT `+WorkItemColumns+`
		FROM release(@id) w JOIN institutions i ON i.id = w.institution_id`, pgx.NamedArgs{"id": id})
}

// SetPriority lets an item go before others or after them: from -100, which goes
// first, to 100.
func (r *Registry) SetPriority(ctx context.Context, id int64, priority int) (WorkItem, error) {
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
func (r *Registry) SetItem(ctx context.Context, id int64, c ItemChange) (WorkItem, error) {
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

// Obstacle is one reason why an item is not claimed now, and what to do about it.
type Obstacle struct {
	Reason string `json:"reason"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy"`
}

// WhyNot returns all that keeps an item from being claimed now.
func (r *Registry) WhyNot(ctx context.Context, id int64) ([]Obstacle, error) {
	return Collect[Obstacle](ctx, r.db, fmt.Sprintf("ask about item %d", id), `SELECT * FROM why_not(@id)`, pgx.NamedArgs{"id": id})
}

// RequeueLine is a line of what requeueing many items comes to.
type RequeueLine struct {
	What   string  `json:"what"`
	Count  *int64  `json:"count"`
	Item   *int64  `json:"item"` // an example
	Reason *string `json:"reason"`
}

// RequeueWhere requeues the items that a condition of SQL holds for, at a stage
// or else at the last that each attempted. Without yes it only reports what it would do.
func (r *Registry) RequeueWhere(ctx context.Context, condition string, stage Stage, yes bool) ([]RequeueLine, error) {
	return Collect[RequeueLine](ctx, r.db, "requeue items", `SELECT * FROM requeue_where(@filter, nullif(@stage, ''), NOT @yes)`,
		pgx.NamedArgs{"filter": condition, "stage": stage, "yes": yes})
}

// Worker is a worker process that lives.
type Worker struct {
	Worker       string          `json:"worker"`
	Node         string          `json:"node"`
	PID          int             `json:"pid" db:"pid"`
	Pools        json.RawMessage `json:"pools"`
	Slots        *int            `json:"slots"`   // of all pools
	Running      int             `json:"running"` // items
	HeartbeatAgo float64         `json:"heard_ago_seconds"`
	Draining     bool            `json:"draining"`
	Started      time.Time       `json:"started"`
}

const workerColumns = `worker, node, pid, pools, slots, running, extract(epoch FROM heartbeat_ago)::float8 AS heartbeat_ago, draining, started`

const workersSQL = `SELECT ` + workerColumns + ` FROM workers ORDER BY node, started, worker`

// Workers lists the worker processes that live.
func (r *Registry) Workers(ctx context.Context) ([]Worker, error) {
	return Collect[Worker](ctx, r.db, "list workers", workersSQL, nil)
}

// WorkersIn is [Registry.Workers] as a transaction sees them.
func WorkersIn(ctx context.Context, tx pgx.Tx) ([]Worker, error) {
	rows, _ := tx.Query(ctx, workersSQL)
	return pgx.CollectRows(rows, pgx.RowToStructByName[Worker])
}

// EndedWorker is a worker process that has ended.
type EndedWorker struct {
	Worker   string    `json:"worker"`
	Node     string    `json:"node"`
	PID      int       `json:"pid" db:"pid"`
	Started  time.Time `json:"started"`
	LastBeat time.Time `json:"last_heard_at"`
	Ended    time.Time `json:"ended"`
	Ending   string    `json:"ending"` // stopped, killed, oom, panic or silent
}

// EndedWorkers lists up to n worker processes that have ended, the last first. All rows are
// read: upkeep deletes them after a week.
func (r *Registry) EndedWorkers(ctx context.Context, n int) ([]EndedWorker, error) {
	return Collect[EndedWorker](ctx, r.db, "list workers that have ended", `
		SELECT worker, node, pid, started_at AS started, heartbeat_at AS last_beat, ended_at AS ended, ending
		FROM worker_processes WHERE ended_at IS NOT NULL ORDER BY ended_at DESC, worker LIMIT @n`, pgx.NamedArgs{"n": n})
}

// Drain asks a worker to claim nothing more, end what it has, and stop.
func (r *Registry) Drain(ctx context.Context, worker string) (Worker, error) {
	rows, _ := r.db.Query(ctx, `SELECT `+workerColumns+` FROM drain_worker($1)`, worker)
	w, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Worker])
	if err != nil {
		return Worker{}, fmt.Errorf("drain worker %s: %w", worker, Refusal(err))
	}
	return w, nil
}

// Collect reads the rows of a statement, and repeats it after a deadlock. The list is
// never nil. verb says what is done, for errors.
func Collect[T any](ctx context.Context, db Database, verb, sql string, args pgx.NamedArgs) ([]T, error) {
	var list []T
	err := db.again(ctx, func() (err error) {
		rows, _ := db.Query(ctx, sql, args)
		list, err = pgx.CollectRows(rows, pgx.RowToStructByName[T])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", verb, Refusal(err))
	}
	return append([]T{}, list...), nil // null is no list in JSON
}
