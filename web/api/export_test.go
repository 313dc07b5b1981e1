package api

import (
	"context"
	"time"
)

// Kept is a value that is kept.
type Kept struct{ kept[int] }

// Get is get.
func (k *Kept) Get(ctx context.Context, least time.Duration, compute func(context.Context) (int, error)) (int, time.Duration, error) {
	return k.get(ctx, least, compute)
}

// Glance is glance.
func (k *Kept) Glance(ctx context.Context, least time.Duration, compute func(context.Context) (int, error)) (int, time.Duration, error) {
	return k.glance(ctx, least, compute)
}
