package claim

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/registry"
)

// recordServed records how far the virtual start times have come, where this process has
// moved them since the last time.
func (c *claims) recordServed(ctx context.Context) error {
	moved := map[int16]int64{}
	c.mu.Lock()
	for band, start := range c.starts {
		if before, ok := c.recorded[band]; !ok || start > before {
			moved[band] = start
		}
	}
	c.mu.Unlock()
	if len(moved) == 0 {
		return nil
	}
	if err := c.store.serve(ctx, moved); err != nil {
		return err
	}
	c.mu.Lock()
	for band, start := range moved {
		c.recorded[band] = start
	}
	c.mu.Unlock()
	return nil
}

// findOverdue finds the priorities that have waited too long behind better
// ones, for each filter that this process claims by.
func (c *claims) findOverdue(ctx context.Context) error {
	if c.isQuiet() {
		return nil // items that are not due are not overdue
	}
	for _, claimer := range c.all() {
		scans := claimer.cursors.Used()
		if len(scans) == 0 {
			continue
		}
		found, err := c.store.overdue(ctx, claimer.filter.action(), scans)
		if err != nil {
			return err
		}
		for _, p := range scans {
			claimer.cursors.SetOverdue(p.Partition, found[p.Partition])
		}
	}
	return nil
}

func (p *postgres) overdue(ctx context.Context, action registry.Action, scans []cursor.Scan) (map[cursor.Partition][]int16, error) {
	stages, bands, priorities, starts := columns(scans)
	rows, _ := p.upkeep.Query(ctx, ofAction(action, overdueIngestSQL, overdueRequestsSQL), stages, bands, action, priorities, starts)
	found := map[cursor.Partition][]int16{}
	var c cursor.Partition
	var priority int16
	_, err := pgx.ForEachRow(rows, []any{&c.Stage, &c.Band, &priority}, func() error {
		found[c] = append(found[c], priority)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find items that have waited too long: %w", err)
	}
	return found, nil
}

func (p *postgres) serve(ctx context.Context, starts map[int16]int64) error {
	var bands []int16
	var come []int64
	for b, t := range starts {
		bands, come = append(bands, b), append(come, t)
	}
	_, err := p.upkeep.Exec(ctx, servedSQL, bands, come)
	if err != nil {
		return fmt.Errorf("record virtual start times: %w", err)
	}
	return nil
}
