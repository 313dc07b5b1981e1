package claim

import (
	"context"
	"fmt"
	"slices"

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
	batch.Queue(stageSettingsSQL).Query(func(rows pgx.Rows) (err error) {
		r.stages, err = pgx.CollectRows(rows, pgx.RowToStructByName[StageSettings])
		return err
	})
	batch.Queue(`SELECT band, min_size FROM size_bands`).Query(func(rows pgx.Rows) (err error) {
		r.bands, err = pgx.CollectRows(rows, pgx.RowToStructByName[sizeBand])
		return err
	})
	batch.Queue(servicesSQL).Query(func(rows pgx.Rows) (err error) {
		r.holds, err = pgx.CollectRows(rows, serviceHold)
		return err
	})
	if err := p.upkeep.SendBatch(ctx, batch).Close(); err != nil {
		return r, fmt.Errorf("read the settings of stages, the size bands and the services that are held: %w", err)
	}
	return r, nil
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
	rows, _ := p.hot.Query(ctx, ofAction(f.action(), peekIngestSQL, peekRequestsSQL), append(f.readyArgs(probes, n), f.narrowing()...)...)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("look at claimable work: %w", err)
	}
	return ids, nil
}

func (p *postgres) behind(ctx context.Context, f Filter, probes []probe) (map[cell]position, error) {
	stages, bands, priorities, turns := columns(probes)
	args := append([]any{stages, bands, priorities, turns, f.action(), f.MinSize, f.mostSize()}, f.narrowing()...)
	rows, _ := p.upkeep.Query(ctx, ofAction(f.action(), behindCursorIngestSQL, behindCursorRequestsSQL), args...)
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

// readyArgs are the first ten arguments of a statement that claims or peeks.
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
	args := append(append(f.readyArgs(probes, n), f.narrowing()...), who.node, who.pid, who.worker, leaseOf, leaseFor)
	rows, _ := db.Query(ctx, ofAction(f.action(), claimIngestSQL, claimRequestsSQL), args...) // AppendRows returns the error
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
	rows, _ := db.Query(ctx, requestDetailsSQL, ids)
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
