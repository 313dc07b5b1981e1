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
//
// The slots of a process meet in its [Engine]: claims that come while another is
// under way go into the next statement together, and so do ends of claims.
// Callers have a call for each item and pay the price of a batch.
package claim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	Timeout          time.Duration // how long the stage may take; 0: as long as it needs
	Name             string        // key of the tar in the receiving bucket
	Bucket           string
	ETag             string
	Size             int64
	BagDate          time.Time
	ObjectIdentifier string
	InstitutionID    int64
	Institution      string // identifier
	StorageOption    string // "" until the bag has been read
	Request          Request

	band  int16
	at    position
	lease time.Duration // as it was granted
	asked time.Time     // when the claim was sent, by this process's monotonic clock
}

// Request is what only items have that are no ingests.
type Request struct {
	ObjectID   int64
	FileID     int64 // 0: the whole object
	User       string
	Approver   string // of a deletion
	DeletionID int64  // deletion request
	CreatedAt  time.Time
}

// Options is how a process works the queue. What is zero goes by stage_settings,
// which administrators may change at run time.
type Options struct {
	Lease       time.Duration            // how long a claim of any stage lasts unless renewed
	Heartbeat   time.Duration            // between two renewals; at most a third of any lease
	Leases      map[string]time.Duration // by [StepOf], before Lease
	Timeouts    map[string]time.Duration // how long a stage may take; likewise
	MaxAttempts map[string]int           // likewise
	Unrenewed   bool                     // this process cannot heartbeat: leases then last three processing timeouts at least
	Poll        time.Duration            // between two looks at a queue that nothing was heard from, with jitter
	Archive     time.Duration            // age at which ended items leave the queue's table; 0: they stay
	Log         *slog.Logger
	Observer    Observer // may be nil

	// Direct is how to reach the database itself where the pool leads to a pooler,
	// in whose sessions nobody can listen. Without it work is found by polling.
	Direct *pgx.ConnConfig
}

// DefaultOptions are those of a worker that nobody configured.
func DefaultOptions() Options {
	return Options{Poll: 2 * time.Second, Archive: 30 * 24 * time.Hour}
}

// Validate refuses what contradicts itself, whatever the database says: a lease
// that a single late heartbeat would lose.
func (o Options) Validate() error {
	switch {
	case o.Poll <= 0:
		return errors.New("poll must be longer than nothing")
	case o.Lease < 0 || o.Heartbeat < 0:
		return errors.New("lease and heartbeat must be longer than nothing")
	case o.Lease > 0 && o.Heartbeat > 0 && o.Lease < 3*o.Heartbeat:
		return fmt.Errorf("the lease (%v) is shorter than three heartbeats (3 × %v): one late heartbeat would lose live work", o.Lease, o.Heartbeat)
	}
	return nil
}

// Engine is the queue as one process sees it. It is safe for concurrent use.
type Engine struct {
	store   store
	options Options
	log     *slog.Logger
	self    process
	kernel  kernel
	deaf    bool                                    // there is no session to listen in
	jitter  func(below time.Duration) time.Duration // so that processes do not all do the same at once

	wake     *wake
	polls    polls
	known    atomic.Pointer[settings]
	services atomic.Pointer[[]ServiceHold]
	ends     batcher[move, error]
	draining chan struct{} // closed when the process is asked to stop
	changed  chan struct{} // gets a value when settings are to be read anew
	hurry    chan struct{} // gets a value when a heartbeat is due at once

	reaps   reaps
	watch   watch
	setBack chan struct{} // gets a value when the database's clock was set back

	asking chan struct{} // full while a heartbeat out of turn is under way; there is one at a time

	aside     func(do func(context.Context)) // does what nobody waits for, until Close
	stopAside func()                         // and waits for it

	mu       sync.Mutex
	held     map[int64]*Hold // by item
	givenUp  []givenUp       // that the ledger has yet to hear of
	cutOff   bool            // the last heartbeat did not get through
	claimers map[string]*claimer
	turns    map[int16]int64 // the latest that was claimed, by band
	told     map[int16]int64 // what of it is in the database
	recorder *recorder
	slots    []int // of the recorder, that are free
	drain    sync.Once
}

// New returns the queue in db. Nothing is renewed, reaped or heard of until
// [Engine.Run] is called. Settings under which live work could be lost are an
// error. Close gives back the engine's connections.
func New(ctx context.Context, db *pgxpool.Pool, o Options) (*Engine, error) {
	s, err := newPostgres(db, o.Direct) //nolint:contextcheck // its connections live as long as the engine
	if err != nil {
		return nil, err
	}
	e, err := newEngine(ctx, s, linux(), o)
	if err != nil {
		s.close()
		return nil, err
	}
	e.deaf = s.direct == nil
	return e, nil
}

func newEngine(ctx context.Context, s store, k kernel, o Options) (*Engine, error) {
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
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	pid := os.Getpid()
	self := process{
		identity: identity{node: node, pid: pid, worker: fmt.Sprintf("%s-%d-%s", node, pid, uuid.NewString()[:8])},
		host:     k.host(), cgroup: k.group(), pools: []byte("[]"),
	}
	if self.started, err = k.startTime(pid); err != nil {
		self.host = "" // nobody could tell whether this process lives
	}
	e := &Engine{
		store: s, options: o, log: o.Log, self: self, kernel: k, jitter: rand.N[time.Duration],
		wake: newWake(), draining: make(chan struct{}), changed: make(chan struct{}, 1), hurry: make(chan struct{}, 1), setBack: make(chan struct{}, 1), asking: make(chan struct{}, 1),
		held: map[int64]*Hold{}, claimers: map[string]*claimer{}, turns: map[int16]int64{}, told: map[int16]int64{},
	}
	e.ends = batcher[move, error]{do: e.settleBatch, lanes: 2, most: 256}
	besides, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	e.aside = func(do func(context.Context)) { running.Go(func() { do(besides) }) }
	e.stopAside = func() {
		stop()
		running.Wait()
	}
	return e, e.readSettings(ctx)
}

// Close gives back the engine's connections. Nothing may be called afterwards.
func (e *Engine) Close() {
	e.stopAside()
	e.store.close()
}

// Worker names this start of this process in the rows that it claims.
func (e *Engine) Worker() string { return e.self.worker }

// Draining is closed when the process has been asked to stop, by drain_worker in
// the database.
func (e *Engine) Draining() <-chan struct{} { return e.draining }

// Describe says which work this process takes, for worker_processes and
// why_not. The value is written as JSON. Call it before Run.
func (e *Engine) Describe(pools []byte) { e.self.pools = pools }

// readSettings reads how stages are treated. Settings that this process cannot
// work under are an error, and the last ones stay.
func (e *Engine) readSettings(ctx context.Context) error {
	r, err := e.store.rules(ctx)
	if err != nil {
		return err
	}
	s, err := newSettings(r.stages, r.bands, e.options)
	if err != nil {
		return fmt.Errorf("settings of stages: %w", err)
	}
	e.services.Store(&r.holds)
	if before := e.known.Swap(s); before != nil && s.heartbeat() < before.heartbeat() {
		select {
		case e.hurry <- struct{}{}:
		default:
		}
	}
	return nil
}

// Claim takes up to n items that f allows and that are due, each for the time of
// a lease. It does not wait: not for items to come, nor for other workers. The
// caller holds each with [Engine.Hold] and ends it with [Hold.Settle]. Items may
// come with an error, if only a part of the claims failed.
func (e *Engine) Claim(ctx context.Context, f Filter, n int) ([]Item, error) {
	return e.claimAs(ctx, f, n, claimant{})
}

func (e *Engine) claimAs(ctx context.Context, f Filter, n int, who claimant) ([]Item, error) {
	if f = f.walked(); len(f.Stages) == 0 {
		return nil, nil
	}
	key := f.key()
	e.mu.Lock()
	c := e.claimers[key]
	if c == nil {
		if len(e.claimers) >= mostFilters {
			clear(e.claimers)
			e.wake.untell()
		}
		c = newClaimer(e, f)
		e.claimers[key] = c
	}
	e.mu.Unlock()
	begun := time.Now()
	got, err := c.asks.ask(ctx, request{wants: f.Stages, n: n, as: who})
	if err != nil {
		return nil, err
	}
	e.options.Observer.Claimed(time.Since(begun), len(got.items))
	return got.items, got.err
}

// mostFilters bounds for how many filters an engine remembers where to start. A
// process has few pools.
const mostFilters = 256

// Peek lists the items that a claim would take now, in their order, and takes
// none.
func (e *Engine) Peek(ctx context.Context, f Filter, n int) ([]int64, error) {
	if f = f.walked(); len(f.Stages) == 0 {
		return nil, nil
	}
	known := e.known.Load()
	var probes []probe
	for _, w := range f.Stages {
		for _, band := range known.bandsWithin(f.MinSize, f.MaxSize) {
			probes = append(probes, probe{cell: cell{w.Stage, band}, most: w.Most, from: start()})
		}
	}
	return e.store.peek(ctx, f, probes, n)
}
