package pipeline

import (
	"context"

	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
)

// NewHighWater is the high-water mark of a claim whose attempts are on record.
func NewHighWater(w *Work, r *registry.Registry) *highWater {
	w.reset = r.ResetAttempts
	return &highWater{w, -1}
}

func (m *highWater) Compare(ctx context.Context, before int64) { m.compare(ctx, before) }

func (c *Counting) Now() progress.Counters { return c.now() }

func (c *Counting) End(ctx context.Context, finished bool) { c.end(ctx, finished) }
