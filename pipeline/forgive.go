package pipeline

import (
	"context"
	"strconv"
)

// A mark is how far the attempts before the last one had brought a stage, in files
// and bytes together. It is kept in Redis for the next attempt to compare with: if
// that finds more, the last one got the item further, and whatever ended it is not
// the item's doing. A bag of a week's work may lose its worker many times; one that
// kills its workers gets no further, and is parked.
type mark struct {
	w   *Work
	far int64 // -1: not known yet
}

// forgive makes the attempts before the one of a claim not count, if they are not yet
// forgiven: see [registry.Registry.ForgiveAttempts].
type forgive func(ctx context.Context, item, token int64) (bool, error)

// markName is the name of the mark in Redis.
const markName = "mark"

// gotOn compares what earlier attempts have finished, as this one has found it so
// far, with the mark. Without Redis every attempt counts.
func (m *mark) gotOn(ctx context.Context, before int64) {
	if m.far < 0 && m.read(ctx, before) != nil {
		return
	}
	if before <= m.far || m.w.Item.Attempt > 1 && !m.forgive(ctx) {
		return
	}
	if m.keep(ctx, before) == nil {
		m.far = before
	}
}

// read reads the mark. If there is none, this attempt makes the first.
func (m *mark) read(ctx context.Context, before int64) error {
	text, err := m.w.Progress.Get(ctx, m.w.Item.ID, m.w.Pass(), markName)
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

func (m *mark) forgive(ctx context.Context) bool {
	if m.w.forgive == nil {
		return true
	}
	forgiven, err := m.w.forgive(ctx, m.w.Item.ID, m.w.Item.Token)
	if err != nil {
		m.w.Log.WarnContext(ctx, "cannot reset the attempt counter; retrying", "err", err)
		return false
	}
	if forgiven {
		m.w.Log.InfoContext(ctx, "earlier attempts made progress; attempt counter reset", "attempts", m.w.Item.Attempt-1)
		m.w.Hold.Item.Attempt = 1
	}
	return true
}

func (m *mark) keep(ctx context.Context, before int64) error {
	return m.w.Progress.Put(ctx, m.w.Claim(), m.w.Pass(), markName, strconv.FormatInt(before, 10))
}
