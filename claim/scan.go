package claim

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/lane"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/registry"
)

// scanStore is how items are claimed.
type scanStore interface {
	// claim takes items, in one transaction, and returns those of each take. Items that come
	// with an error are claimed, and cannot be used.
	claim(ctx context.Context, takes []take) ([][]Item, error)
	// peek lists what claim would take.
	peek(ctx context.Context, f Filter, scans []cursor.Scan, n int) ([]int64, error)
	// behind finds, in partitions whose first items were claimed, the first item that is
	// due and lies before a scan's start.
	behind(ctx context.Context, f Filter, scans []cursor.Scan) (map[cursor.Partition]cursor.Position, error)
	// overdue lists the priorities of the partitions scanned whose first item has waited
	// too long.
	overdue(ctx context.Context, action registry.Action, scans []cursor.Scan) (map[cursor.Partition][]int16, error)
	// serve records how far the virtual start times of the size bands have come.
	serve(ctx context.Context, starts map[int16]int64) error
}

// take is what one statement of a claim takes: up to n items from the partitions scanned.
type take struct {
	filter Filter
	scans  []cursor.Scan
	n      int
	who    identity
	over   stages.LeaseTimes // leases that differ from the settings
}

// mostSize is MaxSize for a statement.
func (f Filter) mostSize() int64 {
	if f.MaxSize == 0 {
		return math.MaxInt64
	}
	return f.MaxSize
}

// narrowing are the arguments of a statement for what more the filter looks at than
// action, stage and size.
func (f Filter) narrowing() []any {
	memory := f.Memory
	if memory == 0 {
		memory = math.MaxInt64
	}
	var without any
	if len(f.Without) > 0 {
		without = f.Without
	}
	return []any{memory, f.MinAge, append([]string{}, f.Institutions...), append([]string{}, f.StorageOptions...), without}
}

func (p *postgres) claim(ctx context.Context, takes []take) (got [][]Item, err error) {
	var capped []registry.Stage
	for _, t := range takes {
		for _, s := range t.scans {
			if s.Capped {
				capped = append(capped, s.Stage)
			}
		}
	}
	err = registry.Again(func() error {
		got, err = p.claimAfter(ctx, lockCaps(capped), takes)
		return err
	})
	return got, err
}

// lockCaps let one transaction at a time take items of capped stages, so that live leases can be
// counted. All transactions lock them in the same order.
func lockCaps(of []registry.Stage) (locks []lane.Statement) {
	slices.Sort(of)
	for _, stage := range slices.Compact(of) {
		locks = append(locks, lane.Statement{SQL: `SELECT pg_advisory_xact_lock(hashtextextended('farol stage cap ' || $1, 0))`, Args: []any{stage}})
	}
	return locks
}

func (p *postgres) peek(ctx context.Context, f Filter, scans []cursor.Scan, n int) ([]int64, error) {
	rows, _ := p.hot.Query(ctx, ofAction(f.action(), peekIngestSQL, peekRequestsSQL), append(f.scanArgs(scans, n), f.narrowing()...)...)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("list claimable work: %w", err)
	}
	return ids, nil
}

func (p *postgres) behind(ctx context.Context, f Filter, scans []cursor.Scan) (map[cursor.Partition]cursor.Position, error) {
	stages, bands, priorities, starts := columns(scans)
	args := append([]any{stages, bands, priorities, starts, f.action(), f.MinSize, f.mostSize()}, f.narrowing()...)
	rows, _ := p.upkeep.Query(ctx, ofAction(f.action(), behindCursorIngestSQL, behindCursorRequestsSQL), args...)
	found := map[cursor.Partition]cursor.Position{}
	var c cursor.Partition
	var at cursor.Position
	_, err := pgx.ForEachRow(rows, []any{&c.Stage, &c.Band, &at.Priority, &at.VirtualStart}, func() error {
		found[c] = at
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("scan before the cursors: %w", err)
	}
	return found, nil
}

// columns are partitions and where their scans start, column by column.
func columns(scans []cursor.Scan) (stages []string, bands, priorities []int16, starts []int64) {
	return lane.Column(scans, func(s *cursor.Scan) string { return string(s.Stage) }), lane.Column(scans, func(s *cursor.Scan) int16 { return s.Band }),
		lane.Column(scans, func(s *cursor.Scan) int16 { return s.From.Priority }), lane.Column(scans, func(s *cursor.Scan) int64 { return s.From.VirtualStart })
}

// scanArgs are the first ten arguments of a statement that claims or peeks.
func (f Filter) scanArgs(scans []cursor.Scan, n int) []any {
	var stages []string
	var most []int32
	parts, bands, priorities, starts := columns(scans)
	for i, pr := range scans {
		if i == 0 || parts[i] != parts[i-1] { // a stage's partitions come together
			stages, most = append(stages, parts[i]), append(most, int32(min(pr.Most, n))) //nolint:gosec // n is small
		}
	}
	return []any{stages, most, parts, bands, priorities, starts, f.action(), f.MinSize, f.mostSize(), n}
}

// usualClaim is for how many items a claim allocates memory before it knows how many there
// are.
const usualClaim = 128

func (p *postgres) claimAfter(ctx context.Context, locks []lane.Statement, takes []take) ([][]Item, error) {
	got := make([][]Item, len(takes))
	err := p.hot.QueryAll(ctx, locks, lane.Column(takes, (*take).statement), func(i int, rows pgx.Rows) (err error) {
		action := takes[i].filter.action()
		got[i], err = pgx.AppendRows(make([]Item, 0, min(takes[i].n, usualClaim)), rows, func(row pgx.CollectableRow) (i Item, err error) {
			err = row.Scan(&i.ID, &i.Token, &i.Entered, &i.Stage, &i.Attempt, &i.Name, &i.Bucket, &i.ETag, &i.Size, &i.BagDate,
				&i.ObjectIdentifier, &i.InstitutionID, &i.Band, &i.At.Priority, &i.At.VirtualStart, &i.Lease, &i.StorageOption, &i.CreatedAt)
			i.Action = action
			return i, err
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim work: %w", err)
	}
	if err := p.nameInstitutions(ctx, got); err != nil {
		return got, fmt.Errorf("name the institutions of claimed items: %w", err)
	}
	if err := p.readRequests(ctx, got); err != nil {
		return got, fmt.Errorf("read the objects and files of claimed items: %w", err)
	}
	return got, nil
}

func (t *take) statement() lane.Statement {
	leaseOf, leaseFor := t.over.Of(t.filter.action())
	args := append(append(t.filter.scanArgs(t.scans, t.n), t.filter.narrowing()...), t.who.node, t.who.pid, t.who.worker, leaseOf, leaseFor)
	return lane.Statement{SQL: ofAction(t.filter.action(), claimIngestSQL, claimRequestsSQL), Args: args}
}

// readRequests fills in what only requests have. It is a statement of its own, so
// that ingests pay nothing for it.
func (p *postgres) readRequests(ctx context.Context, claimed [][]Item) error {
	byID := map[int64]*Item{}
	var ids []int64
	for _, items := range claimed {
		for i := range items {
			if items[i].Action != registry.Ingest {
				ids, byID[items[i].ID] = append(ids, items[i].ID), &items[i]
			}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, _ := p.hot.Query(ctx, requestDetailsSQL, ids)
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
func (p *postgres) nameInstitutions(ctx context.Context, claimed [][]Item) error {
	var unknown []int64
	for _, items := range claimed {
		for _, i := range items {
			if _, ok := p.institutions.Load(i.InstitutionID); !ok && !slices.Contains(unknown, i.InstitutionID) {
				unknown = append(unknown, i.InstitutionID)
			}
		}
	}
	if len(unknown) > 0 {
		rows, _ := p.hot.Query(ctx, `SELECT id, identifier FROM institutions WHERE id = ANY ($1)`, unknown)
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
	for _, items := range claimed {
		for i := range items {
			name, _ := p.institutions.Load(items[i].InstitutionID)
			items[i].Institution, _ = name.(string)
		}
	}
	return nil
}
