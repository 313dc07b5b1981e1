package claim

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim/clock"
	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/lane"
	"github.com/farol-preservation/farol/claim/process"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/claim/wake"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/retry"
)

// Engine is the queue as one process sees it. It is safe for concurrent use.
type Engine struct {
	*core

	settler *settler
	leases  *leases
	claims  *claims
	notices *notices
	reaper  *reaper
	clock   *clock.Clock
	upkeep  upkeepStore
	reports serviceStore

	listens bool   // else there is no session to LISTEN in
	close   func() // ends what runs in the background, and waits for it
}

// stores are the parts of the database that the engine needs.
type stores struct {
	ruleStore
	endStore
	serviceStore
	leaseStore
	scanStore
	noticeStore
	reapStore
	clock.Store
	upkeepStore
}

// New returns the queue in db. Nothing is renewed, reaped or received until
// [Engine.Run] is called. Settings under which live work could be lost are an
// error. Close gives back the engine's connections.
func New(ctx context.Context, db *pgxpool.Pool, o Options) (*Engine, error) {
	return newOn(ctx, db, process.Linux(), o)
}

func newOn(ctx context.Context, db *pgxpool.Pool, k process.Kernel, o Options) (*Engine, error) {
	p, err := newPostgres(db, o.Direct) //nolint:contextcheck // its connections live as long as the engine
	if err != nil {
		return nil, err
	}
	e, err := newEngine(ctx, stores{p, p, p, p, p, p, p, p, p}, k, o)
	if err != nil {
		p.close()
		return nil, err
	}
	e.listens = p.Direct != nil
	end := e.close
	e.close = func() {
		end()
		p.close()
	}
	return e, nil
}

func newEngine(ctx context.Context, s stores, k process.Kernel, o Options) (*Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	self, err := newWorker(k)
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	all := &core{
		rules: s.ruleStore, options: o, log: o.Log, self: self, kernel: k, jitter: rand.N[time.Duration],
		wake: wake.New(), beatNow: make(chan struct{}, 1),
	}
	behind, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	background := func(do func(context.Context)) { running.Go(func() { do(behind) }) }
	e := &Engine{core: all, listens: true, close: func() {
		stop()
		running.Wait()
	}}
	e.settler = newSettler(all, s.endStore)
	e.clock = clock.New(s.Store, all.log, func() time.Duration { return all.settings.Load().Heartbeat() }, all.jitter, func() {
		all.wake.Reset("")
		all.wake.Ring()
	})
	e.leases = newLeases(e.settler, s.leaseStore, e.clock)
	e.notices = &notices{core: all, store: s.noticeStore, changed: make(chan struct{}, 1)}
	e.claims = newClaims(e.settler, s.scanStore, &e.notices.polls, background)
	e.reaper = &reaper{settler: e.settler, store: s.reapStore, clock: e.clock}
	e.upkeep, e.reports = s.upkeepStore, s.serviceStore
	return e, e.ReadSettings(ctx)
}

// Close gives back the engine's connections. Nothing may be called afterwards.
func (e *Engine) Close() { e.close() }

// Worker names this start of this process in the rows that it claims.
func (e *Engine) Worker() string { return e.self.worker }

// Describe says which work this process takes, for worker_processes and
// why_not. The value is written as JSON. Call it before Run.
func (e *Engine) Describe(pools []byte) { e.self.pools = pools }

// MaxAttempts are the allowed attempts that this process overrides, by [stages.StepOf].
func (e *Engine) MaxAttempts() map[string]int { return e.options.MaxAttempts }

// Draining is closed when the process has been asked to stop, by drain_worker in
// the database.
func (e *Engine) Draining() <-chan struct{} { return e.leases.draining }

// Stopping puts on record that this process was asked to stop: if it is killed before it has
// given back its items, neither do their attempts count nor is it a worker that was lost.
func (e *Engine) Stopping() {
	e.leases.stopping.Store(true)
	wake.Signal(e.beatNow)
}

// Claim takes up to n items that f allows and that are due, each for the time of
// a lease. It does not wait: not for items to come, nor for other workers. The
// caller holds each with [Engine.Hold] and ends it with [Hold.Settle]. Items may
// come with an error, if only a part of the claims failed.
func (e *Engine) Claim(ctx context.Context, f Filter, n int) ([]Item, error) {
	return e.claims.claimFor(ctx, f, n, Claimant{})
}

// ClaimFor is [Engine.Claim] for a worker that is no part of this process, which renews and
// ends its claims by the package remote.
func (e *Engine) ClaimFor(ctx context.Context, f Filter, n int, who Claimant) ([]Item, error) {
	return e.claims.claimFor(ctx, f, n, who)
}

// Release gives items back as if they had not been claimed. If it cannot, their leases lapse.
func (e *Engine) Release(ctx context.Context, items []Item, why string) {
	e.settler.giveBack(ctx, items, why)
}

// Settings are how stages are treated, as this process has read it last.
func (e *Engine) Settings() *stages.All { return e.settings.Load() }

// Peek lists the items that a claim would take now, in their order, and takes
// none.
func (e *Engine) Peek(ctx context.Context, f Filter, n int) ([]int64, error) {
	if f = f.scanned(); len(f.Stages) == 0 {
		return nil, nil
	}
	known := e.settings.Load()
	var scans []cursor.Scan
	for _, w := range f.Stages {
		for _, band := range known.BandsWithin(f.MinSize, f.MaxSize) {
			scans = append(scans, cursor.Scan{Partition: cursor.Partition{Stage: w.Stage, Band: band}, Most: w.Most, From: cursor.Beginning()})
		}
	}
	return e.claims.store.peek(ctx, f, scans, n)
}

// Hold starts renewing the item's lease with every heartbeat of the process. The
// caller works under [Hold.Context] and ends with [Hold.Settle].
func (e *Engine) Hold(ctx context.Context, item Item) *Hold { return e.leases.hold(ctx, item) }

// Held counts the leases that this process holds, by [stages.StepOf].
func (e *Engine) Held() map[string]int { return e.leases.count() }

// Settle ends several claims at once, each as [Hold.Settle] does and with an
// error of its own: one that is stale is reported alone.
func (e *Engine) Settle(ctx context.Context, endings []Ending) []error {
	ended := e.settler.settle(ctx, endings)
	for i, end := range endings {
		if s := ended[i]; s.err == nil && s.end.GaveUp() {
			s.end.LogGivenUp(ctx, e.log.With("item", end.Item.ID, "stage", s.end.Stage, "code", s.end.Code, "result", end.Result))
		}
	}
	return lane.Column(ended, func(s *settled) error { return s.err })
}

// ServiceHolds lists the known services, as this process has read them last: some
// seconds ago at most.
func (e *Engine) ServiceHolds() []ServiceHold { return *e.services.Load() }

// Report writes how this process sees a service, for the others and for people.
func (e *Engine) Report(ctx context.Context, r ServiceReport) error {
	return e.reports.reportService(ctx, e.self.worker, r)
}

// Wakes returns what is woken when there may be new work that one of the filters takes, or any
// work without filters: on a notification of such work, and at about every poll while anything
// is due. Call stop when done with it.
func (e *Engine) Wakes(ctx context.Context, filters ...Filter) (wakes *wake.Waiter, stop func()) {
	return e.notices.wakes(ctx, filters)
}

// Takes returns what reports whether one of some filters takes items of a partition, as far as
// its stage and size band tell.
func (e *Engine) Takes(filters ...Filter) func(cursor.Partition) bool {
	return e.notices.takes(filters)
}

// Wake makes all pools of this process poll for work now.
func (e *Engine) Wake() { e.wake.Ring() }

// NextStage is the stage that an item goes on to from another, in the order that this
// process has read last; "" behind the last. Stages may be added at run time.
func (e *Engine) NextStage(action registry.Action, stage registry.Stage) registry.Stage {
	return e.settings.Load().Next(action, stage)
}

// Capped reports whether there is a bound on how many items of a stage run at once in all
// processes, as this process has read it last.
func (e *Engine) Capped(action registry.Action, stage registry.Stage) bool {
	return e.settings.Load().Of(action, stage).Capped
}

// Reap ends the claims of workers that are gone, and returns how many. Claims of dead
// workers of this host end at once and with the cause of death, others when their lease
// has lapsed. Any number of processes may call it: one at a time does the work.
func (e *Engine) Reap(ctx context.Context) (int, error) { return e.reaper.reap(ctx) }

// Archive moves items that ended longer ago than after to the archive, together
// with their attempts, and returns how many. It stops at an hour's worth.
func (e *Engine) Archive(ctx context.Context, after time.Duration) (n int, err error) {
	for range 100 {
		moved, err := e.upkeep.archive(ctx, after, archiveMost)
		n += moved
		if err != nil || moved < archiveMost {
			return n, err
		}
	}
	return n, nil
}

// How often a process does what no single item needs.
const (
	settingsEvery = 5 * time.Second
	servedEvery   = time.Second
	tidyEvery     = time.Minute
	archiveEvery  = 10 * time.Minute
)

// Run keeps the process's leases alive, ends those of workers that died, listens
// for new work, and clears away what is over, until ctx is done. It returns only
// then. While the database fails, it logs and retries.
func (e *Engine) Run(ctx context.Context) error {
	crash, err := process.OpenCrashLog(e.self.worker)
	if err != nil {
		e.log.WarnContext(ctx, "cannot create crash log; a crash will not name the current file", "err", err)
	}
	e.leases.begin(crash)

	var group sync.WaitGroup
	if e.listens {
		group.Go(func() { e.notices.listen(ctx) })
	} else {
		e.log.WarnContext(ctx, "not listening: the database is reached through a pooler only; polling for work", "poll", e.options.Poll)
	}
	group.Go(func() { e.notices.announce(ctx) })
	group.Go(func() { e.leases.beatForEver(ctx) })
	group.Go(func() { e.rereadForEver(ctx) })
	group.Go(func() { e.clock.ClampForEver(ctx) })
	upkeep := func(every time.Duration, what string, do func(context.Context) error) {
		group.Go(func() { e.every(ctx, every, what, do) })
	}
	upkeep(e.settings.Load().ShortestLease()/6, "reaper", func(ctx context.Context) error {
		e.leases.returnGivenUp(ctx)
		_, err := e.Reap(ctx)
		return err
	})
	upkeep(settingsEvery, "settings", e.ReadSettings)
	upkeep(settingsEvery, "overdue priorities", e.claims.findOverdue)
	upkeep(servedEvery, "virtual start times", e.claims.recordServed)
	upkeep(tidyEvery, "tidying", e.upkeep.tidy)
	if e.options.Archive > 0 {
		upkeep(archiveEvery, "archive", func(ctx context.Context) error {
			_, err := e.Archive(ctx, e.options.Archive)
			return err
		})
	}
	group.Wait()
	e.leases.signOff(ctx)
	return nil
}

// Watch ends the attempts of workers that are gone, as every worker does, until ctx is done. It
// is for processes that claim nothing: items come back though no worker lives. It returns only
// then; without the database it retries.
func Watch(ctx context.Context, db *pgxpool.Pool, o Options) {
	for first := true; first || retry.Pause(ctx, settingsEvery); first = false {
		e, err := New(ctx, db, o)
		if err == nil {
			e.watch(ctx)
			e.Close()
			return
		}
		if ctx.Err() == nil {
			o.Log.WarnContext(ctx, "cannot start the reaper; retrying", "err", err)
		}
	}
}

// watch asks the database little: a worker reaps sooner.
func (e *Engine) watch(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { e.notices.announce(ctx) })
	group.Go(func() { e.every(ctx, time.Minute, "settings", e.ReadSettings) })
	known := e.settings.Load()
	e.every(ctx, min(known.ShortestLease()/3, known.Heartbeat()), "reaper", func(ctx context.Context) error {
		if err := e.clock.Look(ctx); err != nil {
			return err
		}
		_, err := e.Reap(ctx)
		return err
	})
}

// rereadForEver reads settings again when they have changed, and has a heartbeat sent, which
// learns whether this worker was asked to stop.
func (e *Engine) rereadForEver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.notices.changed:
		}
		call, cancel := context.WithTimeout(ctx, statementTime)
		err := e.ReadSettings(call)
		cancel()
		wake.Signal(e.beatNow)
		if err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "cannot read changed settings; retrying later", "err", err)
		}
		e.wake.Ring() // a stage may have been resumed
	}
}

// every calls do at once and then about once in d, each call with a deadline.
func (e *Engine) every(ctx context.Context, d time.Duration, what string, do func(context.Context) error) {
	for first := true; first || retry.Pause(ctx, d*9/10+e.jitter(d/10+1)); first = false {
		call, cancel := context.WithTimeout(ctx, max(d, statementTime))
		err := do(call)
		cancel()
		if err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "queue upkeep failed; retrying later", "what", what, "err", err)
		}
	}
}
