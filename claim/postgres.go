package claim

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// rules are what the database has claims go by.
type rules struct {
	stages []StageSettings
	bands  []sizeBand
	holds  []ServiceHold // services that are held for all, and those that a person has released
}

func (p *postgres) rules(ctx context.Context) (r rules, err error) {
	batch := &pgx.Batch{}
	batch.Queue(`
		SELECT action, stage, ordinal, worker, topic, max_attempts, backoff_first, backoff_factor, backoff_most, overdue,
			coalesce(processing_timeout, '0') AS timeout, heartbeat, lease, cap IS NOT NULL AS capped,
			unrenewed_timeout, unrenewed_lease
		FROM stage_settings`).Query(func(rows pgx.Rows) (err error) {
		r.stages, err = pgx.CollectRows(rows, pgx.RowToStructByName[StageSettings])
		return err
	})
	batch.Queue(`SELECT band, min_size FROM size_bands`).Query(func(rows pgx.Rows) (err error) {
		r.bands, err = pgx.CollectRows(rows, pgx.RowToStructByName[sizeBand])
		return err
	})
	batch.Queue(serviceHoldsSQL).Query(func(rows pgx.Rows) (err error) {
		r.holds, err = pgx.CollectRows(rows, serviceHold)
		return err
	})
	if err := p.upkeep.SendBatch(ctx, batch).Close(); err != nil {
		return r, fmt.Errorf("read the settings of stages, the size bands and the services that are held: %w", err)
	}
	return r, nil
}

// readySQL walks one cell after the other, each by work_items_ready exactly in
// its order, and stops as soon as it has enough, of each stage and of all. Live
// leases of a stage with a cap are counted by work_items_lease, and those that
// the reaper has had little time for; the dead entries of all before them are
// passed by. The caller then holds the stage's advisory lock.
const readySQL = `
		FROM (
			SELECT c.stage, s.lease, s.topic,
				greatest(CASE WHEN s.cap IS NULL THEN c.most
				     ELSE least(c.most, s.cap - (SELECT count(*) FROM work_items r
						WHERE r.status = 'Started' AND r.stage = s.stage AND r.action = s.action AND r.lease_expires_at > now() - s.lease))
				END, 0) AS room
			FROM unnest($1::text[], $2::int[]) WITH ORDINALITY AS c (stage, most, ord)
			JOIN stage_settings s ON s.action = $7 AND s.stage = c.stage AND NOT s.paused
			ORDER BY c.ord
			OFFSET 0
		) stage
		CROSS JOIN LATERAL (
			SELECT first.place, first.id
			FROM unnest($3::text[], $4::smallint[], $5::smallint[], $6::bigint[]) AS cell (stage, band, priority, turn)
			CROSS JOIN LATERAL (
				SELECT w.ctid AS place, w.id FROM work_items w
				WHERE w.status = 'Pending' AND w.retry
				  AND w.stage = stage.stage AND w.size_band = cell.band
				  AND (w.priority, w.turn) >= (cell.priority, cell.turn)
				  AND w.run_at <= now() AND w.action = $7 AND w.size >= $8 AND w.size < $9
				  /* narrower */
				ORDER BY w.priority, w.turn, w.run_at, w.id
				LIMIT stage.room
				/* locked */
			) first
			WHERE cell.stage = stage.stage
			LIMIT stage.room
		) ready
		LIMIT $10`

// claimSQL locks what it finds and knows it by its place, so the UPDATE needs no
// other look-up; an item that changed since the statement began is not seen there
// and stays for the next claim.
const claimSQL = `
WITH claimed AS (
	UPDATE work_items w SET
		status           = 'Started',
		claim_token      = claim_token + 1,
		attempt          = attempt + 1,
		node             = $11,
		pid              = $12,
		worker           = $13,
		stage_started_at = now(),
		lease_expires_at = now() + found.lease,
		note             = found.note,
		updated_at       = now()
	FROM (
		SELECT ready.place, coalesce(($14::interval[])[array_position($15::text[], stage.stage)], stage.lease) AS lease,
			'Item has started stage ' || stage.topic AS note ` + readySQL + `
	) found
	WHERE w.ctid = found.place AND w.status = 'Pending' AND w.retry
	RETURNING w.id, w.claim_token, w.entered_token, w.stage, w.attempt, w.name, w.bucket, w.etag, w.size, w.bag_date,
		w.object_identifier, w.institution_id, w.size_band, w.priority, w.turn, w.lease_expires_at - w.updated_at AS lease,
		coalesce(w.storage_option::text, '') AS storage_option
), ledger AS (
	INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker)
	SELECT id, claim_token, stage, attempt, $11, $12, $13 FROM claimed
)
SELECT * FROM claimed`

// What a claim locks nobody else takes, and what others have locked it passes
// over.
//
//nolint:gochecknoglobals // a constant, but for Go
var lockedClaimSQL = strings.Replace(claimSQL, "/* locked */", "FOR UPDATE SKIP LOCKED", 1)

// peekSQL says what a claim would take, and takes nothing.
const peekSQL = `SELECT ready.id ` + readySQL

// narrowerSQL is added to the claims of a filter that looks at more than stage
// and size. Such claims pass over what they leave alone.
const narrowerSQL = `
				  AND (%[1]s::interval = '0' OR w.created_at <= now() - %[1]s)
				  AND (cardinality(%[2]s::text[]) = 0 OR w.institution_id IN (SELECT id FROM institutions WHERE identifier = ANY (%[2]s)))
				  AND (cardinality(%[3]s::text[]) = 0 OR w.storage_option IS NULL OR w.storage_option = ANY (%[3]s))`

// byAction is a statement for the filter's action. Requests are walked by
// work_items_requested, in which those of each action are together.
func (f Filter) byAction(sql string) string {
	if f.action() == ingest {
		return sql
	}
	return requestsOf.Replace(sql)
}

//nolint:gochecknoglobals // a constant, but for Go
var requestsOf = strings.NewReplacer("w.stage = stage.stage", "w.stage = 'Requested'", "w.stage = cell.stage", "w.stage = 'Requested'")

// narrowed returns a statement for the filter with the arguments that it needs
// besides those it has.
func (f Filter) narrowed(sql string, args []any) (string, []any) {
	sql = f.byAction(sql)
	if f.Memory > 0 {
		args = append(args, f.Memory)
		sql = strings.Replace(sql, "/* narrower */", fmt.Sprintf("AND w.memory_need <= $%d /* narrower */", len(args)), 1)
	}
	narrower, args := f.leavingOut(args)
	if f.MinAge > 0 || len(f.Institutions) > 0 || len(f.StorageOptions) > 0 {
		place := func(i int) string { return "$" + strconv.Itoa(len(args)+i) }
		narrower += fmt.Sprintf(narrowerSQL, place(1), place(2), place(3))
		args = append(args, f.MinAge, append([]string{}, f.Institutions...), append([]string{}, f.StorageOptions...))
	}
	if narrower == "" {
		return sql, args
	}
	return strings.Replace(sql, "/* narrower */", narrower, 1), args
}

// lockCapSQL makes the claims of a capped stage take turns, so that its live
// leases can be counted.
const lockCapSQL = `SELECT pg_advisory_xact_lock(hashtextextended('farol stage cap ' || $1, 0))`

func (p *postgres) claim(ctx context.Context, f Filter, probes []probe, n int, who identity, over leases) ([]Item, error) {
	capped := ""
	for _, pr := range probes {
		if pr.capped {
			capped = pr.stage
		}
	}
	var items []Item
	if capped == "" {
		err := registry.Again(func() (err error) {
			items, err = p.claimIn(ctx, p.hot, f, probes, n, who, over)
			return err
		})
		return items, err
	}
	err := p.hot.transact(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockCapSQL, capped); err != nil {
			return fmt.Errorf("take turns for %s: %w", capped, err)
		}
		var err error
		items, err = p.claimIn(ctx, tx, f, probes, n, who, over)
		return err
	})
	return items, err
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func (p *postgres) peek(ctx context.Context, f Filter, probes []probe, n int) ([]int64, error) {
	sql, args := f.narrowed(peekSQL, f.readyArgs(probes, n))
	rows, _ := p.hot.Query(ctx, sql, args...)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("look at claimable work: %w", err)
	}
	return ids, nil
}

// behindSQL goes through the dead entries of work_items_ready that claims pass by.
const behindSQL = `
SELECT cell.stage, cell.band, first.priority, first.turn
FROM unnest($1::text[], $2::smallint[], $3::smallint[], $4::bigint[]) AS cell (stage, band, priority, turn)
CROSS JOIN LATERAL (
	SELECT w.priority, w.turn FROM work_items w
	WHERE w.status = 'Pending' AND w.retry
	  AND w.stage = cell.stage AND w.size_band = cell.band
	  AND (w.priority, w.turn) < (cell.priority, cell.turn)
	  AND w.run_at <= now() AND w.action = $5 AND w.size >= $6 AND w.size < $7
	  /* narrower */
	ORDER BY w.priority, w.turn, w.run_at, w.id
	LIMIT 1
) first`

func (p *postgres) behind(ctx context.Context, f Filter, probes []probe) (map[cell]position, error) {
	stages, bands, priorities, turns := columns(probes)
	sql, args := f.narrowed(behindSQL, []any{stages, bands, priorities, turns, f.action(), f.MinSize, f.mostSize()})
	rows, _ := p.upkeep.Query(ctx, sql, args...)
	found := map[cell]position{}
	var c cell
	var at position
	_, err := pgx.ForEachRow(rows, []any{&c.stage, &c.band, &at.priority, &at.turn}, func() error {
		found[c] = at
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for what came late: %w", err)
	}
	return found, nil
}

// columns are cells and where their probes start, column by column.
func columns(probes []probe) (stages []string, bands, priorities []int16, turns []int64) {
	stages, bands = make([]string, len(probes)), make([]int16, len(probes))
	priorities, turns = make([]int16, len(probes)), make([]int64, len(probes))
	for i, p := range probes {
		stages[i], bands[i], priorities[i], turns[i] = p.stage, p.band, p.from.priority, p.from.turn
	}
	return stages, bands, priorities, turns
}

// readyArgs are the first ten arguments of a statement that has readySQL in it.
func (f Filter) readyArgs(probes []probe, n int) []any {
	var stages []string
	var most []int32
	cells, bands, priorities, turns := columns(probes)
	for i, pr := range probes {
		if i == 0 || pr.stage != cells[i-1] { // a stage's cells come together
			stages, most = append(stages, pr.stage), append(most, int32(min(pr.most, n))) //nolint:gosec // n is small
		}
	}
	return []any{stages, most, cells, bands, priorities, turns, f.action(), f.MinSize, f.mostSize(), n}
}

// usualClaim is for how many items a claim makes room before it knows how many
// there are.
const usualClaim = 128

func (p *postgres) claimIn(ctx context.Context, db querier, f Filter, probes []probe, n int, who identity, over leases) ([]Item, error) {
	leaseOf, leaseFor := over.of(f.action())
	sql, args := f.narrowed(lockedClaimSQL, append(f.readyArgs(probes, n), who.node, who.pid, who.worker, leaseOf, leaseFor))
	rows, _ := db.Query(ctx, sql, args...) // AppendRows returns the error
	items, err := pgx.AppendRows(make([]Item, 0, min(n, usualClaim)), rows, func(row pgx.CollectableRow) (i Item, err error) {
		err = row.Scan(&i.ID, &i.Token, &i.Entered, &i.Stage, &i.Attempt, &i.Name, &i.Bucket, &i.ETag, &i.Size, &i.BagDate,
			&i.ObjectIdentifier, &i.InstitutionID, &i.band, &i.at.priority, &i.at.turn, &i.lease, &i.StorageOption)
		i.Action = f.action()
		return i, err
	})
	if err != nil {
		return nil, fmt.Errorf("claim work: %w", err)
	}
	if err := p.nameInstitutions(ctx, db, items); err != nil {
		return items, fmt.Errorf("name the institutions of claimed items: %w", err)
	}
	if f.action() != ingest && len(items) > 0 {
		if err := readRequests(ctx, db, items); err != nil {
			return items, fmt.Errorf("read what claimed items are about: %w", err)
		}
	}
	return items, nil
}

// readRequests fills in what only requests have. It is a statement of its own, so
// that ingests pay nothing for it.
func readRequests(ctx context.Context, db querier, items []Item) error {
	byID := map[int64]*Item{}
	ids := make([]int64, len(items))
	for i := range items {
		ids[i], byID[items[i].ID] = items[i].ID, &items[i]
	}
	rows, _ := db.Query(ctx, `
		SELECT id, coalesce(intellectual_object_id, 0), coalesce(generic_file_id, 0), "user", coalesce(inst_approver, ''),
			coalesce(deletion_request_id, 0), created_at
		FROM work_items WHERE id = ANY ($1)`, ids)
	var id int64
	var r Request
	_, err := pgx.ForEachRow(rows, []any{&id, &r.ObjectID, &r.FileID, &r.User, &r.Approver, &r.DeletionID, &r.CreatedAt}, func() error {
		byID[id].Request = r
		return nil
	})
	return err
}

// nameInstitutions fills in the identifiers of items' institutions. They never
// change, so each is asked for once.
func (p *postgres) nameInstitutions(ctx context.Context, db querier, items []Item) error {
	var unknown []int64
	for _, i := range items {
		if _, ok := p.institutions.Load(i.InstitutionID); !ok && !slices.Contains(unknown, i.InstitutionID) {
			unknown = append(unknown, i.InstitutionID)
		}
	}
	if len(unknown) > 0 {
		rows, _ := db.Query(ctx, `SELECT id, identifier FROM institutions WHERE id = ANY ($1)`, unknown)
		var id int64
		var name string
		_, err := pgx.ForEachRow(rows, []any{&id, &name}, func() error {
			p.institutions.Store(id, name)
			return nil
		})
		if err != nil {
			return err
		}
	}
	for i := range items {
		name, _ := p.institutions.Load(items[i].InstitutionID)
		items[i].Institution, _ = name.(string)
	}
	return nil
}
