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
	Deps
	w   *work
	far int64 // -1: not known yet
}

// markName is the name of the mark in Redis.
const markName = "mark"

// gotOn compares what earlier attempts have finished, as this one has found it so
// far, with the mark. Without Redis every attempt counts.
func (m *mark) gotOn(ctx context.Context, before int64) {
	if m.far < 0 && m.read(ctx, before) != nil {
		return
	}
	if before <= m.far || m.w.item.Attempt > 1 && !m.forgive(ctx) {
		return
	}
	if m.keep(ctx, before) == nil {
		m.far = before
	}
}

// read reads the mark. If there is none, this attempt makes the first.
func (m *mark) read(ctx context.Context, before int64) error {
	text, err := m.Progress.Get(ctx, m.w.item.ID, m.w.passOf(), markName)
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
	forgiven, err := m.Registry.ForgiveAttempts(ctx, m.w.item.ID, m.w.item.Token)
	if err != nil {
		m.w.log.WarnContext(ctx, "attempts that got on are not forgiven yet", "err", err)
		return false
	}
	if forgiven {
		m.w.log.InfoContext(ctx, "the attempts before got on, and do not count", "attempts", m.w.item.Attempt-1)
		m.w.hold.Item.Attempt = 1
	}
	return true
}

func (m *mark) keep(ctx context.Context, before int64) error {
	return m.Progress.Put(ctx, m.w.claim(), m.w.passOf(), markName, strconv.FormatInt(before, 10))
}
