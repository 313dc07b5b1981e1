package upkeep

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

// Spot bounds what spot restorations are drawn from.
type Spot struct {
	Least, Most int64 // bytes of an object
}

// LeastSpot is the size below which a restoration proves nothing.
const LeastSpot = 10_000

// spotTries is how often another object is drawn for one that cannot be had.
const spotTries = 3

// spotPriority puts spot restorations behind all other items: nobody waits for them.
const spotPriority = 100

// SpotRestore draws an object of each institution that is due for it, and queues its
// restoration like any other. When the item ends, the database tells the institution the
// result.
func (d Jobs) SpotRestore(every time.Duration, s Spot) Job {
	return Job{SpotRestoreJob, every, func(ctx context.Context) (string, error) {
		due, err := upkeep.In(d.Registry).DueForSpotRestore(ctx)
		if err != nil {
			return "", err
		}
		var drawn, without []string
		var failed cause.Few
		options := d.readableOptions()
		for _, in := range due {
			object, err := d.spotRestore(ctx, upkeep.SpotChoice{Institution: in, Options: options, Least: s.Least, Most: s.Most})
			switch {
			case object != "":
				drawn = append(drawn, object)
			case err == nil:
				without = append(without, in.Identifier)
			}
			if failed.TooMany(err) || ctx.Err() != nil {
				break
			}
		}
		return fmt.Sprintf("chosen: %s; without a suitable object: %s", listed(drawn), listed(without)), failed.With(ctx.Err())
	}}
}

// listed names the first of many.
func listed(names []string) string {
	const most = 10
	switch n := len(names); {
	case n == 0:
		return "none"
	case n > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n-most)
	}
	return strings.Join(names, ", ")
}

// spotRestore draws an object and queues its restoration; "" if there is none that may be
// drawn. If the object was deleted, or got another item, after it was drawn, another is drawn.
func (d Jobs) spotRestore(ctx context.Context, c upkeep.SpotChoice) (object string, err error) {
	for range spotTries {
		if object, err = upkeep.In(d.Registry).Draw(ctx, c); err != nil || object == "" {
			return "", err
		}
		var item int64
		item, err = upkeep.In(d.Registry).RequestSpotRestore(ctx, c.Institution.ID, object, spotPriority)
		if err == nil && item > 0 {
			d.Log.InfoContext(ctx, "spot restoration queued", "institution", c.Institution.Identifier, "object", object, "item", item)
			return object, nil
		}
		if err == nil || !errors.Is(err, registry.ErrRefused) && !errors.Is(err, registry.ErrNotFound) {
			return "", err
		}
	}
	return "", err
}

// readableOptions are the storage options of which some copy can be read at once.
func (d Jobs) readableOptions() (list []string) {
	for _, option := range storage.OptionNames() {
		for _, name := range storage.TargetsOf(option) {
			if b := d.Targets[name]; b != nil && (storage.Object{StorageClass: b.Class()}).Readable(time.Now()) {
				list = append(list, option)
				break
			}
		}
	}
	return list
}
