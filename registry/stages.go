package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

const stageColumns = `
	s.action, s.stage, s.ordinal, s.worker, s.topic, s.max_attempts, extract(epoch FROM s.lease)::float8 AS lease,
	extract(epoch FROM s.heartbeat)::float8 AS heartbeat, coalesce(extract(epoch FROM s.processing_timeout), 0)::float8 AS timeout,
	extract(epoch FROM s.overdue)::float8 AS overdue, coalesce(s.cap, 0) AS cap, s.paused,
	(SELECT p.pauses FROM stage_pauses p WHERE p.action = s.action AND p.stage = s.stage) AS pauses`

// stagesOf reads stages from rows of their settings, and counts what is at each as the views
// queue_depth and failed do.
func stagesOf(settings string) string {
	return `SELECT ` + stageColumns + `, q.waiting, q.running, p.parked FROM ` + settings + ` s
		CROSS JOIN LATERAL (SELECT coalesce(sum(d.due + d.delayed + d.waiting), 0)::bigint AS waiting, coalesce(sum(d.running), 0)::bigint AS running
			FROM queue_depth d WHERE d.action = s.action AND d.stage = s.stage) q
		CROSS JOIN LATERAL (SELECT count(*) AS parked FROM work_items w
			WHERE w.action = s.action AND w.stage = s.stage AND w.status IN ('Failed', 'Suspended')) p`
}

// Stages lists the stages of all actions in their order, those of ingests first,
// with how many items are at each.
func (r *Registry) Stages(ctx context.Context) ([]record.QueueStage, error) {
	return Collect[record.QueueStage](ctx, r.db, "list stages", stagesOf(`stage_settings`)+` ORDER BY s.action <> 'Ingest', s.action, s.ordinal`)
}

const settingsColumns = stageColumns + `, 0 AS waiting, 0 AS running, 0 AS parked, s.paused_by, s.paused_at, s.pause_reason`

// StageSettings lists the settings of all stages, in the order of [Registry.Stages].
func (r *Registry) StageSettings(ctx context.Context) ([]record.StageSettings, error) {
	return Collect[record.StageSettings](ctx, r.db, "list the settings of stages",
		`SELECT `+settingsColumns+` FROM stage_settings s ORDER BY s.action <> 'Ingest', s.action, s.ordinal`)
}

// LockStage returns the settings of one stage, and keeps others from changing them until
// the transaction of ctx ends. One that there is not is ErrNotFound.
func (r *Registry) LockStage(ctx context.Context, action Action, stage Stage) (record.StageSettings, error) {
	list, err := Collect[record.StageSettings](ctx, r.db, "lock a stage",
		`SELECT `+settingsColumns+` FROM stage_settings s WHERE s.action::text = @action AND s.stage::text = @stage FOR NO KEY UPDATE`,
		pgx.NamedArgs{"action": action, "stage": stage})
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("lock the stage %s of %s: %w", stage, action, ErrNotFound)
	}
	if err != nil {
		return record.StageSettings{}, err
	}
	return list[0], nil
}

// StageNames lists the names of all stages that there are in their order, then of
// those that were removed: what is on record may be at them.
func (r *Registry) StageNames(ctx context.Context) ([]Stage, error) {
	rows, _ := r.db.Query(ctx, `
		SELECT n.stage FROM stage_names n LEFT JOIN (SELECT stage, min((action <> 'Ingest')::int * 1000 + ordinal) AS place FROM stage_settings GROUP BY stage) s
			ON s.stage = n.stage
		ORDER BY s.place, n.stage`)
	names, err := pgx.CollectRows(rows, pgx.RowTo[Stage])
	if err != nil {
		return nil, fmt.Errorf("list the names of stages: %w", err)
	}
	return names, nil
}

// NewStage is a stage to be put into the order of an ingest. What is zero goes by
// the rules of add_stage.
type NewStage struct {
	Name        Stage
	After       Stage
	Topic       string
	MaxAttempts int
	Lease       time.Duration
	Heartbeat   time.Duration
	Timeout     time.Duration
}

// AddStage puts a stage that is worked over HTTP behind another. What the rules
// do not allow is ErrRefused.
func (r *Registry) AddStage(ctx context.Context, n NewStage) (record.QueueStage, error) {
	return r.oneStage(ctx, "add the stage "+string(n.Name), stagesOf(`add_stage(@name, @after, nullif(@topic, ''), coalesce(nullif(@attempts::int, 0), 3), coalesce(nullif(@lease::interval, '0'), '30 seconds'),
			nullif(@heartbeat::interval, '0'), nullif(@timeout::interval, '0'))`), pgx.NamedArgs{
		"name": n.Name, "after": n.After, "topic": n.Topic, "attempts": n.MaxAttempts, "lease": n.Lease, "heartbeat": n.Heartbeat, "timeout": n.Timeout,
	})
}

// StageChange is what is to be different about a stage; what is nil stays.
type StageChange struct {
	Action      Action         // "" is each that has the stage
	Cap         *int           // 0: any number
	Timeout     *time.Duration // 0: as long as it needs
	MaxAttempts *int
}

// SetStage changes the settings of a stage, which workers then go by.
func (r *Registry) SetStage(ctx context.Context, name Stage, c StageChange) ([]record.QueueStage, error) {
	return Collect[record.QueueStage](ctx, r.db, "set the stage "+string(name), `WITH changed AS (
		UPDATE stage_settings s SET
			cap                = CASE WHEN @cap::int IS NULL THEN s.cap ELSE nullif(@cap, 0) END,
			processing_timeout = CASE WHEN @timeout::interval IS NULL THEN s.processing_timeout ELSE nullif(@timeout, '0') END,
			max_attempts       = coalesce(@attempts::int, s.max_attempts)
		WHERE s.stage::text = @name AND (@action = '' OR s.action::text = @action)
		RETURNING s.*) `+stagesOf(`changed`),
		pgx.NamedArgs{"name": name, "action": c.Action, "cap": c.Cap, "timeout": c.Timeout, "attempts": c.MaxAttempts})
}

// RemoveStage takes an added stage out of the order again. Of items that are
// parked at it, which stay, it says how many there are.
func (r *Registry) RemoveStage(ctx context.Context, name Stage) (record.QueueStage, error) {
	return r.oneStage(ctx, "remove the stage "+string(name), stagesOf(`remove_stage(@name)`), pgx.NamedArgs{"name": name})
}

func (r *Registry) oneStage(ctx context.Context, verb, sql string, args pgx.NamedArgs) (record.QueueStage, error) {
	list, err := Collect[record.QueueStage](ctx, r.db, verb, sql, args)
	if err != nil {
		return record.QueueStage{}, err
	}
	return list[0], nil
}
