package claim

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/lane"
	"github.com/farol-preservation/farol/registry"
)

// recordServed records how far the virtual start times have come, where this process has
// moved them since the last time.
func (c *claims) recordServed(ctx context.Context) error {
	c.mu.Lock()
	moved := maps.Clone(c.starts)
	maps.DeleteFunc(moved, func(band int16, start int64) bool { return start <= c.recorded[band] })
	c.mu.Unlock()
	if len(moved) == 0 {
		return nil
	}
	err := c.store.serve(ctx, moved)
	if err == nil {
		c.mu.Lock()
		maps.Copy(c.recorded, moved)
		c.mu.Unlock()
	}
	return err
}

// findOverdue finds the priorities that have waited too long behind better
// ones, for each filter that this process claims by.
func (c *claims) findOverdue(ctx context.Context) error {
	if c.polls.IsQuiet() {
		return nil // items that are not due are not overdue
	}
	c.mu.Lock()
	claimers := slices.Collect(maps.Values(c.claimers))
	c.mu.Unlock()
	for _, claimer := range claimers {
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
	bands := slices.Collect(maps.Keys(starts))
	come := lane.Column(bands, func(band *int16) int64 { return starts[*band] })
	if _, err := p.upkeep.Exec(ctx, servedSQL, bands, come); err != nil {
		return fmt.Errorf("record virtual start times: %w", err)
	}
	return nil
}
