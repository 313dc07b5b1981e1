// Package nsqcompat is the NSQ mirror: it publishes every message of the topic log to
// nsqd, a decimal work item id on the topic of the stage, and consumes one channel of
// each topic, so that nsqd's figures are those of the queue.
//
// Nothing waits for it. The log is appended by the transitions themselves; the mirror
// reads behind them, and the database keeps its position. While nsqd is away the log
// grows; when nsqd is back, the mirror continues where it stopped, in order.
//
// A message is published at least once: a mirror that dies between nsqd's answer and
// the move of its position publishes that batch again. None is skipped, except one that
// nsqd would refuse forever.
//
// Each file calls only those below it: mirror.go and status.go; lead.go, the loop of the
// mirror that publishes; link.go, what it keeps to one nsqd, with compare.go, refill.go,
// pauses.go and requests.go; channel.go, adjust.go, rescan.go and own.go, the account of
// one channel; outlet.go, records.go and counts.go; consumer.go, publisher.go, wire.go
// and nsqd.go, the protocols.
package nsqcompat

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/registry/topiclog"
	"github.com/farol-preservation/farol/retry"
)

// Mirror publishes the topic log to one nsqd. Its methods are safe for concurrent use,
// but Run must not run twice.
type Mirror struct {
	db      *pgxpool.Pool
	o       MirrorOptions
	records records
	counted counters
}

// NewMirror returns a mirror of the topic log in db.
func NewMirror(db *pgxpool.Pool, o MirrorOptions) *Mirror {
	o = o.withDefaults()
	return &Mirror{db: db, o: o, records: records{db: db, log: o.Log, noOrders: o.NoOrders}}
}

// Stats returns the counts so far.
func (m *Mirror) Stats() Stats { return m.counted.stats() }

// Lag reads how far the mirror is behind, whether it runs here, elsewhere or not at all.
func (m *Mirror) Lag(ctx context.Context) (topiclog.Lag, error) {
	return topiclog.ReadLag(ctx, m.db, m.o.Reader)
}

// Figures returns the figures of all topics at the last comparison, with the drift that
// two comparisons in a row have found; none if this mirror does not lead.
func (m *Mirror) Figures() []TopicFigures {
	if figures := m.counted.figures.Load(); m.counted.leads.Load() && figures != nil {
		return *figures
	}
	return nil
}

// Requests lists the messages that others published on the pipeline's topics, the last
// first.
func (m *Mirror) Requests(ctx context.Context, most int) ([]TopicRequest, error) {
	return m.records.requests(ctx, most)
}

// Run publishes until ctx is done, and returns nil then. Failures of the database or
// nsqd are logged and retried. Of several mirrors with the same Reader one publishes
// and the others stand by.
func (m *Mirror) Run(ctx context.Context) error {
	retry.Forever(ctx, m.session, func(err error, wait time.Duration) {
		m.o.Log.WarnContext(ctx, "mirror lost its database session; reconnecting", "reader", m.o.Reader, "retry_in", wait, "err", err)
	})
	return nil
}

// session is one connection's life: it waits for the lock, then publishes until the
// connection breaks. The lock belongs to the connection, and every move of the position
// uses it, so a mirror that has lost the lock cannot move the position.
func (m *Mirror) session(ctx context.Context, succeeded func()) error {
	pace := newPace(m.o.Poll)
	conn, err := m.connect(ctx, pace)
	if err != nil {
		return err
	}
	defer topiclog.Close(ctx, conn)
	log := topiclog.NewReader(conn, m.o.Reader)
	if locked, err := m.lock(ctx, log); err != nil || !locked {
		return err
	}
	succeeded()
	m.counted.leads.Store(true)
	defer m.counted.leads.Store(false)
	if err := m.register(ctx, log); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return newLeader(m.o, m.records, pace, &m.counted).lead(ctx, queueReader{log, conn}) })
	group.Go(func() error { return m.trim(ctx) })
	group.Go(func() error { return m.notify(ctx, pace) })
	return group.Wait()
}

// lock waits until this mirror leads. It reports false once ctx is done.
func (m *Mirror) lock(ctx context.Context, log topiclog.Reader) (bool, error) {
	for {
		locked, err := log.Lock(ctx)
		if err != nil || locked {
			return locked, err
		}
		if !retry.Pause(ctx, standByPoll*3/4+rand.N(standByPoll/2)) {
			return false, nil
		}
	}
}

// standByPoll is about how often a standby tries to lock: it takes over within two
// seconds, and costs little while the other lives.
const standByPoll = time.Second

// mirrorChannel is the channel of NOTIFY for those who wait for the figures.
const mirrorChannel = "farol_mirror"

// setUpSQL has the server close the session of a host that vanished, so that a standby
// gets the lock. A live session is never idle as long. Planning the counts takes ten times
// as long as counting, so they are planned once; and since that may be while the tables are
// empty, their indexes are used whatever their size.
const setUpSQL = `SET idle_session_timeout = '60s'; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off; LISTEN ` + mirrorChannel

// connect opens a connection outside the pool. It must be a direct one: behind a pooler
// that gives each transaction another server the lock would be lost.
func (m *Mirror) connect(ctx context.Context, pace *pace) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	config := m.db.Config().ConnConfig
	config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { pace.hurry() }
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	if _, err := conn.Exec(ctx, setUpSQL); err != nil {
		return nil, errors.Join(fmt.Errorf("set up the mirror's session: %w", err), conn.Close(ctx))
	}
	return conn, nil
}

func (m *Mirror) register(ctx context.Context, log topiclog.Reader) error {
	renumbered, err := log.Register(ctx)
	if err != nil {
		return err
	}
	if renumbered {
		m.o.Log.WarnContext(ctx, "the database came from another cluster; all readers were moved to the new numbering",
			"reader", m.o.Reader)
	}
	m.o.Log.InfoContext(ctx, "mirror publishes", "reader", m.o.Reader, "nsqd", m.o.NSQDTCPAddr)
	return nil
}

// notify notifies the leader of work until ctx is done. While it fails, the leader polls,
// so it is not logged as a warning.
func (m *Mirror) notify(ctx context.Context, pace *pace) error {
	retry.Forever(ctx, func(ctx context.Context, succeeded func()) error {
		conn, end, err := topiclog.Listen(ctx, m.db.Config().ConnConfig, topiclog.Channel, mirrorChannel)
		if err != nil {
			return err
		}
		defer end()
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return fmt.Errorf("wait for a notification: %w", err)
			}
			succeeded()
			pace.notify()
		}
	}, func(err error, wait time.Duration) {
		m.o.Log.DebugContext(ctx, "LISTEN failed; the mirror polls until it is retried", "retry_in", wait, "err", err)
	})
	return nil
}

// trimEvery is about how often old requests are deleted.
const trimEvery = time.Minute

// trim deletes old requests, at once and then every minute.
func (m *Mirror) trim(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := m.records.trimRequests(ctx); err != nil && ctx.Err() == nil {
			m.o.Log.WarnContext(ctx, "cannot delete old requests; retrying in 1m", "err", err)
		}
		retry.Pause(ctx, trimEvery*9/10+rand.N(trimEvery/5))
	}
	return nil
}
