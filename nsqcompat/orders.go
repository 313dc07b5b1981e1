package nsqcompat

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// pauses carries a pause from one side to the other: the side that differs from what
// both agreed on last has changed. NSQ asks for no credential, so what was paused in
// Farol is not for NSQ to end: nsqd is paused again.
func (l *link) pauses(ctx context.Context, c *channel, f TopicFigures) error {
	if f.PausedInFarol == f.PausedInNSQ && l.agreed[c.topic] == f.PausedInNSQ {
		c.pauseOrder = ""
		return nil
	}
	paused := f.PausedInFarol
	if paused == l.agreed[c.topic] && f.PausedInNSQ != paused { // nsqd's has changed
		var err error
		if paused, err = l.obey(ctx, c, f.PausedInNSQ); err != nil {
			return err
		}
	}
	if f.PausedInNSQ != paused {
		if err := l.at.pause(ctx, c.topic, paused); err != nil {
			l.m.o.Log.WarnContext(ctx, "a pause was not carried over to nsqd, will try again", "topic", c.topic, "err", err)
			return nil
		}
		l.m.o.Log.InfoContext(ctx, "a pause was carried over to nsqd", "topic", c.topic, "paused", paused)
	}
	if err := l.m.agreeOn(ctx, c.topic, paused); err != nil {
		return err
	}
	l.agreed[c.topic], c.pauseOrder = paused, ""
	return nil
}

// obey takes the order to pause a topic or let it go on, as far as it is NSQ's to
// give, and returns whether the topic is paused then. The order has an id, so that
// it is answered once however often nsqd cannot be told.
func (l *link) obey(ctx context.Context, c *channel, pause bool) (paused bool, err error) {
	if c.pauseOrder == "" {
		c.pauseOrder = rand.Text()
	}
	var accepted bool
	var answer string
	err = l.m.asNSQ(ctx, "carry a pause over from nsqd", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `SELECT accepted, answer, still_paused FROM pause_from_nsq($1, $2, $3, $4)`,
			c.topic, c.pauseOrder, pause, !l.m.o.NoOrders).Scan(&accepted, &answer, &paused)
	})
	switch {
	case err != nil:
		return false, err
	case accepted:
		l.m.o.Log.InfoContext(ctx, "a pause was carried over from nsqd", "topic", c.topic, "paused", pause, "answer", answer)
	default:
		l.m.o.Log.WarnContext(ctx, "a pause in nsqd was refused, it is set back there", "topic", c.topic, "paused", pause, "answer", answer)
	}
	return paused, nil
}

// noOrders is the answer while orders are off.
const noOrders = "orders from NSQ are off (FAROL_NSQ_ORDERS): nothing was changed"

// ignore puts a request on record that is not taken, since none is. The audit of its
// item says so, too.
func (m *Mirror) ignore(ctx context.Context, r request, item *int64) error {
	m.o.Log.WarnContext(ctx, "a request from a topic was refused, orders from NSQ are off", "topic", r.topic, "body", r.shown())
	return m.change(ctx, "record a request", `
		WITH noted AS (
			INSERT INTO topic_requests (topic, message, body, work_item_id, accepted, answer)
			VALUES ($1, $2, $3, (SELECT id FROM all_work_items WHERE id = $4 AND $1 <> 'fixity_check'), false, $5)
			ON CONFLICT DO NOTHING RETURNING work_item_id
		)
		INSERT INTO work_item_audit (work_item_id, before, after, refused)
		SELECT w.id, to_jsonb(w), to_jsonb(w), format('requeue asked for on the topic %s: %s', $1::text, $5::text)
		FROM noted JOIN all_work_items w ON w.id = noted.work_item_id`,
		r.topic, string(r.id[:]), r.shown(), item, noOrders)
}

// nsqName is what changes that come from nsqd are on record under, as the
// program's name.
const nsqName = "nsq"

// change makes a change that came from nsqd.
func (m *Mirror) change(ctx context.Context, what, sql string, args ...any) error {
	return m.asNSQ(ctx, what, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	})
}

// asNSQ does something that came from nsqd in a transaction of its own.
func (m *Mirror) asNSQ(ctx context.Context, what string, do func(pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := pgx.BeginFunc(ctx, m.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT set_config('application_name', $1, true)`, nsqName); err != nil {
			return err
		}
		return do(tx)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
