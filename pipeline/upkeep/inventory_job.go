package upkeep

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/registry/fixity"
)

// mostForward is how many copies of a target a run puts forward for fixity checks. Where more are
// lost, people have to know before anything reads the others.
const mostForward = 10_000

// CompareInventories has copies checked at once that are missing or resized, which the S3 Inventory
// of their target shows. It is no fixity check by itself: an inventory has no digests.
func (d Jobs) CompareInventories(every time.Duration) Job {
	return Job{InventoryJob, every, func(ctx context.Context) (string, error) {
		if len(d.Inventories) == 0 {
			return "no target has an S3 Inventory", nil
		}
		var said []string
		var failed cause.Few
		for _, name := range slices.Sorted(maps.Keys(d.Inventories)) {
			text, err := d.compareInventory(ctx, name)
			said = append(said, name+": "+text)
			if err != nil {
				err = fmt.Errorf("%s: %w", name, err)
			}
			if failed.TooMany(err) || ctx.Err() != nil {
				break
			}
		}
		return strings.Join(said, "; "), failed.With(ctx.Err())
	}}
}

func (d Jobs) compareInventory(ctx context.Context, name string) (text string, err error) {
	target, ok := d.Targets[name]
	if !ok {
		return "not compared", cause.NoTarget(name)
	}
	var forward int64
	c := &comparison{
		Doctor: &Doctor{Janitor: &Janitor{Registry: d.Registry}, Inventories: d.Inventories}, report: &Report{}, name: name, target: target, now: time.Now(),
	}
	c.lost = func(ctx context.Context, keys []string) error {
		n, err := fixity.In(d.Registry).PutForward(ctx, name, keys)
		if forward += n; err == nil && forward >= mostForward {
			err = fmt.Errorf("stopped: %d copies are missing or resized; run `farol doctor`, and see who removed them", forward)
		}
		return err
	}
	err = c.run(ctx)
	if forward > 0 {
		d.Log.ErrorContext(ctx, "copies are missing or resized; their fixity checks are due now", "target", name, "copies", forward, "to_do", "run `farol doctor`, and see who removed or changed them")
	}
	if c.inventory == nil {
		return "not compared", err
	}
	return fmt.Sprintf("S3 Inventory of %s, put forward for checks: %d, newer: %d", c.inventory.Taken.Format("2006-01-02 15:04 MST"), forward, c.newer), err
}
