package pipeline

import (
	"context"

	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
)

// NewMark is the mark of a claim whose attempts are on record.
func NewMark(w *Work, r *registry.Registry) *mark {
	w.forgive = r.ForgiveAttempts
	return &mark{w, -1}
}

func (m *mark) GotOn(ctx context.Context, before int64) { m.gotOn(ctx, before) }

func (c *Counting) Now() progress.Counters { return c.now() }

func (c *Counting) End(ctx context.Context, finished bool) { c.end(ctx, finished) }
