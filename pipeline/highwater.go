package pipeline

import (
	"context"
	"strconv"
)

// highWater is how far the attempts before the last one had brought a stage, in files
// and bytes together. It is kept in Redis for the next attempt to compare with: if
// that finds more, the last one made progress, and the item is not the cause of its end.
// A bag of a week's work may lose its worker many times; one that kills its workers makes
// no progress, and is parked.
type highWater struct {
	w   *Work
	far int64 // -1: not known yet
}

// resetAttempts is [registry.Registry.ResetAttempts].
type resetAttempts func(ctx context.Context, item, token int64) (bool, error)

// highWaterName is the name of the high-water mark in Redis.
const highWaterName = "mark"

// compare compares what earlier attempts have finished, as this one has found it so
// far, with the high-water mark. Without Redis every attempt counts.
func (m *highWater) compare(ctx context.Context, before int64) {
	if m.far < 0 && m.read(ctx, before) != nil {
		return
	}
	if before <= m.far || m.w.Item.Attempt > 1 && !m.reset(ctx) {
		return
	}
	if m.keep(ctx, before) == nil {
		m.far = before
	}
}

// read reads the high-water mark. If there is none, this attempt makes the first.
func (m *highWater) read(ctx context.Context, before int64) error {
	text, err := m.w.Progress.Get(ctx, m.w.Item.ID, m.w.Pass(), highWaterName)
	if err != nil {
		return err
	}
	far, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		far = before
		if err := m.keep(ctx, before); err != nil {
			return err
		}
	}
	m.far = far
	return nil
}

func (m *highWater) reset(ctx context.Context) bool {
	if m.w.reset == nil {
		return true
	}
	reset, err := m.w.reset(ctx, m.w.Item.ID, m.w.Item.Token)
	if err != nil {
		m.w.Log.WarnContext(ctx, "cannot reset the attempt counter; retrying", "err", err)
		return false
	}
	if reset {
		m.w.Log.InfoContext(ctx, "earlier attempts made progress; attempt counter reset", "attempts", m.w.Item.Attempt-1)
		m.w.Hold.Item.Attempt = 1
	}
	return true
}

func (m *highWater) keep(ctx context.Context, before int64) error {
	return m.w.Progress.Put(ctx, m.w.Claim(), m.w.Pass(), highWaterName, strconv.FormatInt(before, 10))
}
