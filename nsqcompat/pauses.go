package nsqcompat

import (
	"context"
	"crypto/rand"

	"github.com/jackc/pgx/v5"
)

// syncPauses carries a pause from one side to the other: the side that differs from what
// both had last has changed. NSQ asks for no credential, so it cannot end a pause that
// was made in Farol: nsqd is paused again.
func (l *link) syncPauses(ctx context.Context, c *channel, f TopicFigures) error {
	if f.PausedInFarol == f.PausedInNSQ && l.paused[c.topic] == f.PausedInNSQ {
		c.pauseOrder = ""
		return nil
	}
	paused := f.PausedInFarol
	if paused == l.paused[c.topic] && f.PausedInNSQ != paused { // nsqd's has changed
		var err error
		if paused, err = l.applyPause(ctx, c, f.PausedInNSQ); err != nil {
			return err
		}
	}
	if f.PausedInNSQ != paused {
		if err := l.at.pause(ctx, c.topic, paused); err != nil {
			l.o.Log.WarnContext(ctx, "cannot copy a pause to nsqd; retrying", "topic", c.topic, "err", err)
			return nil
		}
		l.o.Log.InfoContext(ctx, "pause copied to nsqd", "topic", c.topic, "paused", paused)
	}
	if err := l.o.records.rememberPause(ctx, c.topic, paused); err != nil {
		return err
	}
	l.paused[c.topic], c.pauseOrder = paused, ""
	return nil
}

// applyPause carries out the order from NSQ to pause or resume a topic, as far as NSQ may
// give it, and returns whether the topic is paused then. The order has an id, so that it
// is answered once however often nsqd cannot be reached.
func (l *link) applyPause(ctx context.Context, c *channel, pause bool) (paused bool, err error) {
	if c.pauseOrder == "" {
		c.pauseOrder = rand.Text()
	}
	var accepted bool
	var answer string
	err = l.o.records.asNSQ(ctx, "carry a pause over from nsqd", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `SELECT accepted, answer, still_paused FROM pause_from_nsq($1, $2, $3, $4)`,
			c.topic, c.pauseOrder, pause, !l.o.NoOrders).Scan(&accepted, &answer, &paused)
	})
	switch {
	case err != nil:
		return false, err
	case accepted:
		l.o.Log.InfoContext(ctx, "pause copied from nsqd", "topic", c.topic, "paused", pause, "answer", answer)
	default:
		l.o.Log.WarnContext(ctx, "pause in nsqd refused; resetting it there", "topic", c.topic, "paused", pause, "answer", answer)
	}
	return paused, nil
}
