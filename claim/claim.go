// Package claim is the queue: it hands out work items from the registry's own
// table, each to one worker at a time.
//
// A claim is a lease. A process renews all of its leases in one statement every
// heartbeat; one that lapses is ended by whichever process looks next, and the
// item goes to the next worker that asks. Work therefore survives its worker,
// and must be safe to repeat.
//
// A worker may not notice that its lease has lapsed. So an item carries a token
// that grows with every transition, and every write names the token it was
// claimed with: the write of a stale claim changes nothing and is [ErrLost].
//
// A transition is one statement: it moves the item, ends the attempt in the
// ledger, and appends the topic message. The only clock is the database's.
package claim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/registry"
)

// ErrLost says that an item is no longer this worker's to change: its lease
// lapsed, a person requeued or cancelled it, or a newer version replaced it.
var ErrLost = registry.ErrLost

// Item is one claimed piece of work.
type Item struct {
	ID               int64
	Token            int64
	Entered          int64 // token with which the item came to this stage: the same for all attempts since
	Action           string
	Stage            string
	Topic            string // of this stage
	Attempt          int    // claims of this stage that count, this one included
	MaxAttempts      int
	Name             string // key of the tar in the receiving bucket
	Bucket           string
	ETag             string
	Size             int64
	BagDate          time.Time
	ObjectIdentifier string
	InstitutionID    int64
	Institution      string // identifier
}

// Options is how a process works the queue.
type Options struct {
	Lease       time.Duration  // how long a claim lasts unless renewed
	Heartbeat   time.Duration  // between two renewals; at most a third of Lease
	Poll        time.Duration  // between two looks at a queue that nothing was heard from, with jitter
	MaxAttempts map[string]int // by stage; a stage that is not there goes by stage_settings
	Log         *slog.Logger
}

// DefaultOptions are those of a worker that nobody configured.
func DefaultOptions() Options {
	return Options{Lease: 30 * time.Second, Heartbeat: 10 * time.Second, Poll: 2 * time.Second}
}

// Validate refuses a lease that a single late heartbeat would lose.
func (o Options) Validate() error {
	switch {
	case o.Heartbeat <= 0 || o.Lease <= 0 || o.Poll <= 0:
		return errors.New("lease, heartbeat and poll must be longer than nothing")
	case o.Lease < 3*o.Heartbeat:
		return fmt.Errorf("the lease (%v) is shorter than three heartbeats (3 × %v): one late heartbeat would lose live work", o.Lease, o.Heartbeat)
	}
	return nil
}

// Engine is the queue as one process sees it. It is safe for concurrent use.
type Engine struct {
	db      *pgxpool.Pool
	options Options
	log     *slog.Logger
	node    string
	worker  string // unique to this start of the process

	wake   *wake
	capped atomic.Pointer[map[string]bool] // stages with a cap across processes

	mu   sync.Mutex
	held map[int64]*Hold // by item
	beat time.Time       // when the leases were last renewed, by this process's monotonic clock
}

// New returns the queue in db. Nothing is renewed, reaped or heard of until
// [Engine.Run] is called.
func New(ctx context.Context, db *pgxpool.Pool, o Options) (*Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	node, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name this node: %w", err)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	e := &Engine{
		db: db, options: o, log: o.Log, node: node,
		worker: fmt.Sprintf("%s-%d-%s", node, os.Getpid(), uuid.NewString()[:8]),
		wake:   newWake(),
		held:   map[int64]*Hold{},
	}
	return e, e.readCaps(ctx)
}

// Worker names this start of this process in the rows that it claims.
func (e *Engine) Worker() string { return e.worker }

// Lease is how long a claim lasts unless renewed.
func (e *Engine) Lease() time.Duration { return e.options.Lease }

// Want is how many items of a stage may be claimed.
type Want struct {
	Stage string
	Most  int
}

// Filter says which items a pool takes.
type Filter struct {
	Stages  []Want // in the order of preference
	MinSize int64  // bytes
	MaxSize int64  // bytes, exclusive; 0: no bound
}

// claimSQL walks one cell after the other (a stage in a size band), each by
// work_items_ready exactly in its order, and stops as soon as it has enough.
// The caps of stages that have one are counted from live leases; the caller
// then holds the stage's advisory lock.
const claimSQL = `
WITH cell AS MATERIALIZED (
	SELECT want.ord, s.stage, b.band,
		CASE WHEN s.cap IS NULL THEN want.most
		     ELSE least(want.most, s.cap - (SELECT count(*) FROM work_items r WHERE r.status = 'Started' AND r.stage = s.stage))
		END AS room
	FROM unnest(@stages::text[], @most::int[]) WITH ORDINALITY AS want (stage, most, ord)
	JOIN stage_settings s ON s.stage = want.stage AND NOT s.paused
	CROSS JOIN size_bands b
	WHERE b.min_size < @max_size
	  AND b.band >= (SELECT max(band) FROM size_bands WHERE min_size <= @min_size)
	ORDER BY want.ord, b.band
), ready AS MATERIALIZED (
	SELECT i.id
	FROM cell
	CROSS JOIN LATERAL (
		SELECT w.id FROM work_items w
		WHERE w.status = 'Pending' AND w.retry
		  AND w.stage = cell.stage AND w.size_band = cell.band
		  AND w.run_at <= now() AND w.size >= @min_size AND w.size < @max_size
		ORDER BY w.priority, w.run_at, w.id
		LIMIT greatest(cell.room, 0)
		FOR UPDATE SKIP LOCKED
	) i
	LIMIT @n
), claimed AS (
	UPDATE work_items w SET
		status           = 'Started',
		claim_token      = claim_token + 1,
		attempt          = attempt + 1,
		node             = @node,
		pid              = @pid,
		worker           = @worker,
		stage_started_at = now(),
		lease_expires_at = now() + @lease::interval,
		note             = 'Item has started stage '
			|| (SELECT s.topic FROM stage_settings s WHERE s.action = w.action AND s.stage = w.stage),
		updated_at       = now()
	WHERE w.id = ANY (ARRAY(SELECT id FROM ready)) AND w.status = 'Pending'
	RETURNING w.*
), ledger AS (
	INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker)
	SELECT id, claim_token, stage, attempt, node, pid, worker FROM claimed
)
SELECT c.id, c.claim_token AS token, c.entered_token AS entered, c.action, c.stage, s.topic, c.attempt, s.max_attempts,
	c.name, c.bucket, c.etag, c.size, c.bag_date, c.object_identifier, c.institution_id, i.identifier AS institution
FROM claimed c
JOIN institutions i ON i.id = c.institution_id
JOIN stage_settings s ON s.action = c.action AND s.stage = c.stage`

// lockCapSQL makes the claims of a capped stage take turns, so that its live
// leases can be counted.
const lockCapSQL = `SELECT pg_advisory_xact_lock(hashtextextended('farol stage cap ' || $1, 0))`

// Claim takes up to n items that f allows and that are due, each for the time of
// a lease. It does not wait: not for items to come, nor for other workers. The
// caller holds each with [Engine.Hold] and ends it with [Hold.Settle].
func (e *Engine) Claim(ctx context.Context, f Filter, n int) ([]Item, error) {
	capped := *e.capped.Load()
	var free []Want
	var items []Item
	for _, w := range f.Stages {
		if !capped[w.Stage] {
			free = append(free, w)
			continue
		}
		got, err := e.claimCapped(ctx, f, w, n-len(items))
		if err != nil {
			return items, err
		}
		items = append(items, got...)
	}
	if len(free) == 0 || len(items) >= n {
		return items, nil
	}
	got, err := e.claim(ctx, e.db, f, free, n-len(items))
	return append(items, got...), err
}

func (e *Engine) claimCapped(ctx context.Context, f Filter, w Want, n int) (items []Item, err error) {
	if n <= 0 {
		return nil, nil
	}
	err = pgx.BeginFunc(ctx, e.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockCapSQL, w.Stage); err != nil {
			return fmt.Errorf("take turns for %s: %w", w.Stage, err)
		}
		items, err = e.claim(ctx, tx, f, []Want{w}, n)
		return err
	})
	return items, err
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func (e *Engine) claim(ctx context.Context, db querier, f Filter, wants []Want, n int) ([]Item, error) {
	stages, most := make([]string, len(wants)), make([]int, len(wants))
	for i, w := range wants {
		stages[i], most[i] = w.Stage, min(w.Most, n)
	}
	maxSize := f.MaxSize
	if maxSize == 0 {
		maxSize = 1<<63 - 1
	}
	rows, _ := db.Query(ctx, claimSQL, pgx.NamedArgs{ // CollectRows returns the error
		"stages": stages, "most": most, "n": n, "min_size": f.MinSize, "max_size": maxSize,
		"node": e.node, "pid": os.Getpid(), "worker": e.worker, "lease": e.options.Lease,
	})
	items, err := pgx.CollectRows(rows, pgx.RowToStructByName[Item])
	if err != nil {
		return nil, fmt.Errorf("claim work: %w", err)
	}
	for i := range items {
		if m, ok := e.options.MaxAttempts[items[i].Stage]; ok {
			items[i].MaxAttempts = m
		}
	}
	return items, nil
}

func (e *Engine) readCaps(ctx context.Context) error {
	rows, _ := e.db.Query(ctx, `SELECT stage FROM stage_settings WHERE cap IS NOT NULL`)
	stages, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("read the stages' caps: %w", err)
	}
	capped := map[string]bool{}
	for _, s := range stages {
		capped[s] = true
	}
	e.capped.Store(&capped)
	return nil
}
