package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

// Pass is the attempt with which an item was through with a stage, or that which runs.
type Pass struct {
	Item         int64
	Action       Action
	Stage        Stage
	SizeBand     int16
	Size         int64 // bytes
	Priority     int
	VirtualStart int64
	Ready        time.Time // since when it could be claimed, as far as the ledger says
	Claimed      time.Time
	Ended        *time.Time // nil: it runs
	Succeeded    bool       // the item did
}

// Recent is how the queue was served lately, and how it stands.
type Recent struct {
	At     time.Time // by the database's clock
	Passes []Pass
	Bands  []BandFigures
	Fronts []Front
	Stages []record.StageSettings
	Pools  []record.Pool
}

// Place is a place in the order of claims within a queue partition.
type Place struct {
	Priority     int
	VirtualStart int64
	RunAt        time.Time
	ID           int64 // of the item
}

// Compare orders places as claims do.
func (p Place) Compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Priority, q.Priority), cmp.Compare(p.VirtualStart, q.VirtualStart), p.RunAt.Compare(q.RunAt), cmp.Compare(p.ID, q.ID))
}

// Front is a place in a queue partition that is due, with how many items are claimed before it.
// Not each is read: of those that have n before them, one in n/64.
type Front struct {
	Action   Action
	Stage    Stage
	SizeBand int16
	Ahead    int64
	Place
}

const (
	// mostRecent is how many of the items that ended last are looked through, and mostAlike
	// how many of an action and a size band are read with their attempts.
	mostRecent, mostAlike = 10_000, 500
	// mostPassing is how many live items are read: those that run, and those that wait at each
	// stage but the first in each size band.
	mostPassing = 500
	// MostAhead is how far it is counted what is claimed before an item.
	MostAhead = 10_000
)

// recentSQL goes by work_items_ended for the items that ended last, by work_items_lease
// and work_items_ready for those that have come to a later stage, and by the primary key of
// work_item_attempts. After an attempt that failed, an item is ready when the next one begins:
// its wait says nothing of the queue.
const recentSQL = `
WITH ended AS (
	SELECT w.id, w.action, w.size_band, w.status, w.updated_at FROM work_items w
	WHERE w.status IN ('Success', 'Cancelled') AND w.updated_at > now() - interval '7 days'
	ORDER BY w.updated_at DESC LIMIT $1
), chosen AS (
	SELECT id FROM (
		SELECT id, row_number() OVER (PARTITION BY action, size_band ORDER BY updated_at DESC) AS n FROM ended WHERE status = 'Success'
	) e WHERE n <= $2
	UNION
	(SELECT id FROM work_items WHERE status = 'Started' LIMIT $3)
	UNION
	SELECT q.id FROM stage_settings s CROSS JOIN size_bands b CROSS JOIN LATERAL (
		SELECT w.id FROM work_items w WHERE w.status = 'Pending' AND w.retry AND w.stage = s.stage AND w.size_band = b.band
		ORDER BY w.priority, w.virtual_start, w.run_at, w.id LIMIT $3
	) q
	WHERE s.action = 'Ingest' AND s.ordinal > (SELECT min(f.ordinal) FROM stage_settings f WHERE f.action = 'Ingest')
)
SELECT w.id AS item, w.action, a.stage, w.size_band, w.size, w.priority, w.virtual_start, a.ready, a.claimed_at AS claimed, a.ended_at AS ended,
	w.status = 'Success' AS succeeded
FROM chosen c
CROSS JOIN LATERAL (SELECT * FROM work_items WHERE id = c.id OFFSET 0) w -- not all of them
CROSS JOIN LATERAL (
	SELECT a.stage, a.outcome, a.claimed_at, a.ended_at, CASE
			WHEN lag(a.claim_token) OVER before IS NULL THEN w.created_at
			WHEN lag(a.outcome) OVER before = 'done' THEN lag(a.ended_at) OVER before
			ELSE a.claimed_at END AS ready
	FROM work_item_attempts a WHERE a.work_item_id = w.id
	WINDOW before AS (ORDER BY a.claim_token)
) a
WHERE a.outcome IS NULL OR a.outcome = 'done'`

// Recent reads how the queue was served lately. What it reads is bounded, however much has
// ended and however much waits; it is meant to be read once a minute.
func (r *Registry) Recent(ctx context.Context) (v Recent, err error) {
	err = r.Look(ctx, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, recentSQL, mostRecent, mostAlike, mostPassing)
		if v.Passes, err = pgx.CollectRows(rows, pgx.RowToStructByName[Pass]); err != nil {
			return fmt.Errorf("read recent attempts: %w", err)
		}
		rows, _ = tx.Query(ctx, bandsSQL, MostAhead)
		if v.Bands, err = pgx.CollectRows(rows, pgx.RowToStructByPos[BandFigures]); err != nil {
			return fmt.Errorf("count the queue: %w", err)
		}
		rows, _ = tx.Query(ctx, frontsSQL, MostAhead)
		if v.Fronts, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Front]); err != nil {
			return fmt.Errorf("read what is claimed first: %w", err)
		}
		rows, _ = tx.Query(ctx, `SELECT `+settingsColumns+` FROM stage_settings s ORDER BY s.action, s.ordinal`)
		if v.Stages, err = pgx.CollectRows(rows, pgx.RowToStructByName[record.StageSettings]); err != nil {
			return fmt.Errorf("read the settings of stages: %w", err)
		}
		var pools json.RawMessage
		if err := tx.QueryRow(ctx, `
			SELECT now(), coalesce((SELECT jsonb_agg(p) FROM workers w CROSS JOIN LATERAL jsonb_array_elements(w.pools) p WHERE NOT w.draining), '[]')`,
		).Scan(&v.At, &pools); err != nil {
			return fmt.Errorf("read the pools of live workers: %w", err)
		}
		if err := json.Unmarshal(pools, &v.Pools); err != nil {
			return fmt.Errorf("read the pools of live workers: %w", err)
		}
		return nil
	})
	return v, err
}

// Standing is how an item stands in the queue.
type Standing struct {
	Place

	At            time.Time // when that was so, by the database's clock
	Institution   string
	Action        Action
	Stage         Stage
	Status        Status
	SizeBand      int16
	Size          int64 // bytes
	StorageOption *string
	Started       *time.Time // when the running attempt began
	Due           *time.Time // when it can be claimed; nil: when another item of its object has ended
	Paused        bool       // the stage
	Held          bool       // a service that it needs fails
	Snoozed       bool       // the stage has postponed it
}

// standingSQL finds the items by their primary key.
const standingSQL = `
SELECT w.priority, w.virtual_start, CASE WHEN isfinite(w.run_at) THEN w.run_at ELSE 'epoch' END AS run_at, w.id, now() AS at,
	i.identifier AS institution, w.action, w.stage, w.status, w.size_band, w.size, w.storage_option,
	CASE WHEN w.status = 'Started' THEN w.stage_started_at END AS started,
	CASE WHEN isfinite(w.run_at) THEN w.run_at END AS due,
	EXISTS (SELECT FROM stage_settings s WHERE s.action = w.action AND s.stage = w.stage AND s.paused) AS paused,
	w.status = 'Pending' AND EXISTS (SELECT FROM services s WHERE s.state = 'held' AND needs_service(w, s.scopes)) AS held,
	w.status = 'Pending' AND w.run_at > now() AND coalesce((
		SELECT t.outcome = 'snoozed' FROM work_item_attempts t WHERE t.work_item_id = w.id ORDER BY t.claim_token DESC LIMIT 1), false) AS snoozed
FROM work_items w JOIN institutions i ON i.id = w.institution_id
WHERE w.id = ANY (@ids) AND (@all OR w.institution_id = @institution)`

// Standings reads how items within a scope stand in the queue, those that there are and that
// are not in the archive.
func (r *Registry) Standings(ctx context.Context, s Scope, ids []int64) (list []Standing, err error) {
	if len(ids) == 0 || s.None() {
		return nil, nil
	}
	err = r.Look(ctx, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, standingSQL, pgx.NamedArgs{"ids": ids, "all": s.all, "institution": s.institution})
		list, err = pgx.CollectRows(rows, pgx.RowToStructByName[Standing])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read how items stand in the queue: %w", err)
	}
	return list, nil
}
