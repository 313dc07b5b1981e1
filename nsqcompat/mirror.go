// Package nsqcompat keeps what was built around NSQ working: it publishes every
// message of the topic log to nsqd as the pipeline's predecessor did, a decimal
// work item id on the topic of the stage, and consumes them from one channel of
// each topic as its workers did, so that nsqd's figures are those of the queue.
//
// Nothing waits for it. The log is appended by the transitions themselves; the
// mirror reads behind them and remembers in the database how far it has come.
// With nsqd away, the log grows and the pipeline does not notice; when nsqd is
// back, the mirror goes on where it stopped, in order, and compares.
//
// A message is published at least once: a mirror that dies between nsqd's answer
// and the move of its cursor publishes that batch again. None is passed over,
// save one that nsqd would refuse for ever.
package nsqcompat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/registry/topiclog"
	"github.com/farol-preservation/farol/retry"
)

// MirrorOptions say where a mirror publishes and how it reads. All but the
// addresses have defaults: those of nsqd, or that of nsqlookupd.
type MirrorOptions struct {
	NSQDTCPAddr  string        // host:port of nsqd's protocol
	NSQDHTTPAddr string        // host:port of nsqd's HTTP API; "": it publishes, and nothing else
	LookupdAddr  string        // host:port of the HTTP API of nsqlookupd, which knows where nsqd is
	MsgTimeout   time.Duration // after which messages in flight come back if the mirror is gone; 0 is 15 s
	Reader       string        // name of the cursor in topic_readers; "" is nsq-mirror
	Batch        int           // messages read at once; 0 is 500
	Poll         time.Duration // about how often an idle mirror looks; 0 is 250 ms
	FixityDays   int           // between two fixity checks, in targets whose policy leaves it open; 0 is 90
	NoOrders     bool          // nsqd shows the queue, and what is done there changes nothing
	Log          *slog.Logger  // nil discards
}

// Mirror publishes the topic log to one nsqd. Its methods are safe for
// concurrent use, but Run must not run twice.
type Mirror struct {
	db       *pgxpool.Pool
	o        MirrorOptions
	nsqd     publisher
	nsqdHTTP string // host:port of its HTTP API

	// Of the one that follows the log alone.
	link       *link            // nil while there is none
	echoes     map[string]*echo // by topic
	attachAt   time.Time        // not before
	attempts   int              // to attach, in a row
	attachWait *retry.Backoff
	hurry      time.Time     // somebody waits for the figures until then
	lastStir   time.Time     // something happened
	work       chan struct{} // gets a value when there may be something to publish

	leads                atomic.Bool
	published, discarded atomic.Int64
	failures             atomic.Int64
	figures              atomic.Pointer[[]TopicFigures]
}

// Stats are what a mirror has done since it was made.
type Stats struct {
	Leads     bool  // it is the one that publishes, not a standby
	Published int64 // messages that nsqd has taken
	Discarded int64 // messages passed over, because nsqd can never take them
	Failures  int64 // attempts to publish that will be made again
}

// NewMirror returns a mirror of the topic log in db.
func NewMirror(db *pgxpool.Pool, o MirrorOptions) *Mirror {
	if o.Reader == "" {
		o.Reader = "nsq-mirror"
	}
	if o.Batch <= 0 {
		o.Batch = 500
	}
	if o.Poll <= 0 {
		o.Poll = 250 * time.Millisecond
	}
	if o.MsgTimeout <= 0 {
		o.MsgTimeout = 15 * time.Second
	}
	if o.FixityDays <= 0 {
		o.FixityDays = 90
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Mirror{db: db, o: o, nsqd: publisher{addr: o.NSQDTCPAddr}, attachWait: retry.NewBackoff(), work: make(chan struct{}, 1)}
}

// Stats returns the counts so far.
func (m *Mirror) Stats() Stats {
	return Stats{
		Leads: m.leads.Load(), Published: m.published.Load(),
		Discarded: m.discarded.Load(), Failures: m.failures.Load(),
	}
}

// Lag reads how far the mirror is behind, whether it runs here, elsewhere or not at all.
func (m *Mirror) Lag(ctx context.Context) (topiclog.Lag, error) {
	return topiclog.ReadLag(ctx, m.db, m.o.Reader)
}

// Figures returns the figures of all topics as this mirror has found them last,
// with the drift that two looks in a row have found; none if it does not lead.
func (m *Mirror) Figures() []TopicFigures {
	if figures := m.figures.Load(); m.leads.Load() && figures != nil {
		return *figures
	}
	return nil
}

func (m *Mirror) keep(figures []TopicFigures) { m.figures.Store(&figures) }

// mirrors tells whether nsqd's figures can be seen and so be made right.
func (m *Mirror) mirrors() bool { return m.o.NSQDHTTPAddr != "" || m.o.LookupdAddr != "" }

// Run publishes until ctx is done, and returns nil then. Trouble with the
// database or nsqd is logged and waited out. Of several mirrors with the same
// Reader one publishes and the others stand by.
func (m *Mirror) Run(ctx context.Context) error {
	defer m.nsqd.drop()
	retry.Forever(ctx, m.session, func(err error, wait time.Duration) {
		m.o.Log.WarnContext(ctx, "mirror lost its database session; reconnecting", "reader", m.o.Reader, "retry_in", wait, "err", err)
	})
	return nil
}

// callTimeout bounds a statement on the session's connection.
const callTimeout = 10 * time.Second

// session is one connection's life: it waits for the lock, then publishes until
// the connection breaks. The lock belongs to the connection and every move of
// the cursor goes through it, so one who has lost the lock cannot move it.
func (m *Mirror) session(ctx context.Context, succeeded func()) error {
	conn, err := m.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		conn.Close(end) //nolint:errcheck // the server drops the lock either way
	}()
	log := topiclog.NewReader(conn, m.o.Reader)
	for {
		locked, err := log.Lock(ctx)
		if err != nil {
			return err
		}
		if locked {
			break
		}
		if !m.standBy(ctx) {
			return ctx.Err()
		}
	}
	succeeded()
	m.leads.Store(true)
	defer m.leads.Store(false)
	if err := m.register(ctx, log); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return m.follow(ctx, queueReader{log, conn}) })
	group.Go(func() error { return m.upkeep(ctx) })
	group.Go(func() error { return m.hear(ctx) })
	return group.Wait()
}

// connect opens a connection beside the pool, which must be a direct one: a
// pooler that gives each transaction another server would lose the lock.
func (m *Mirror) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	config := m.db.Config().ConnConfig
	config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { m.hurry = time.Now().Add(hurryFor) }
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	// A machine that vanishes leaves a session that nobody closes; the server
	// then does, and a standby gets the lock. A live one is never idle so long.
	if _, err := conn.Exec(ctx, `SET idle_session_timeout = '60s'; SET plan_cache_mode = force_custom_plan; LISTEN `+mirrorChannel); err != nil {
		return nil, errors.Join(fmt.Errorf("set up the mirror's session: %w", err), conn.Close(ctx))
	}
	return conn, nil
}

func (m *Mirror) register(ctx context.Context, log topiclog.Reader) error {
	moved, err := log.Register(ctx)
	if err != nil {
		return err
	}
	if moved {
		m.o.Log.WarnContext(ctx, "the database came from another cluster, all readers were moved to the new numbering",
			"reader", m.o.Reader)
	}
	m.o.Log.InfoContext(ctx, "mirror publishes", "reader", m.o.Reader, "nsqd", m.o.NSQDTCPAddr)
	return nil
}

// step publishes a batch and moves the cursor past what nsqd has taken of it;
// more says that the log goes on. Nothing is open in the database meanwhile: a
// transaction that waited for nsqd would hold up every reader of the log.
func (m *Mirror) step(ctx context.Context, log topiclog.Reader) (more bool, err error) {
	at, err := log.Position(ctx)
	if err != nil {
		return false, err
	}
	batch, err := log.After(ctx, at, m.o.Batch)
	if err != nil {
		return false, err
	}
	n, failure := m.publish(ctx, batch)
	if len(batch) > 0 {
		m.stirred()
	}
	if n > 0 {
		// If we die before this, the next one publishes these again.
		if err := log.Move(ctx, at, batch[n-1].Position); err != nil {
			return false, err
		}
	}
	return n < len(batch) || len(batch) == m.o.Batch, failure
}

// standByPoll is about how often a standby asks for the lock: it takes over within two
// seconds, and asks little for as long as the other lives.
const standByPoll = time.Second

// standBy waits until it is time to ask for the lock again, and tells whether ctx
// lasted as long.
func (m *Mirror) standBy(ctx context.Context) bool {
	return retry.Pause(ctx, standByPoll*3/4+rand.N(standByPoll/2))
}

// upkeepEvery is about how often old requests go.
const upkeepEvery = time.Minute

// upkeep does what the disk needs from time to time, at once and then every
// minute.
func (m *Mirror) upkeep(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := m.trimRequests(ctx); err != nil && ctx.Err() == nil {
			m.o.Log.WarnContext(ctx, "old requests are still there, will try again", "err", err)
		}
		retry.Pause(ctx, upkeepEvery*9/10+rand.N(upkeepEvery/5))
	}
	return nil
}
