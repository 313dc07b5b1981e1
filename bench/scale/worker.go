package scale

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/fixity"
	"github.com/farol-preservation/farol/pipeline/steps"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
	"github.com/farol-preservation/farol/retry"
)

// orders are what a worker is started with: the first line of its standard input.
type orders struct {
	Environment map[string]string // the settings of farol work
	Durations   string
}

// counts are what a worker has done since it began. It answers each further line with them.
type counts struct {
	Claims   int64   // calls of Claim
	Empty    int64   // of these that got nothing
	Warnings int64   // that were logged
	CPU      float64 // seconds
}

func (c *counts) add(more counts) {
	c.Claims += more.Claims
	c.Empty += more.Empty
	c.Warnings += more.Warnings
	c.CPU += more.CPU
}

// asleep is a stage that does nothing, for as long as a real one would take.
type asleep struct {
	durations durations
	stage     string
}

func (s asleep) Run(ctx context.Context, w *pipeline.Work) error {
	if !retry.Pause(ctx, s.durations.draw(s.stage, w.Item.Size)) {
		return context.Cause(ctx)
	}
	return nil
}

// work is a worker: farol work with other stages, and without anything that asks for storage. It
// runs until its standard input ends, and so no longer than the program that started it.
func work(ctx context.Context, in io.Reader, out io.Writer) error {
	debug.SetGCPercent(400) // as farol work does
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var o orders
	lines, err := rig.Orders(in, &o)
	if err != nil {
		return err
	}
	durations, err := parseDurations(o.Durations)
	if err != nil {
		return err
	}
	t := &tally{ready: make(chan struct{})}
	var group errgroup.Group
	group.Go(func() error {
		defer stop()
		return t.answer(ctx, lines, out)
	})
	group.Go(func() error {
		defer stop()
		return runWorker(ctx, o, durations, t)
	})
	return group.Wait()
}

// grace is enough for most stages to end; the others are given back.
const grace = time.Second

func runWorker(ctx context.Context, o orders, d durations, t *tally) error {
	c, err := settings.Load(o.Environment, settings.Worker{})
	if err != nil {
		return fmt.Errorf("read the settings: %w", err)
	}
	log := slog.New(counted{slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}), &t.warnings})
	options := claim.DefaultOptions()
	if c.Database.Pooler != "" {
		if options.Direct, err = dial.Session(string(c.Database.Direct), "scale-work"); err != nil {
			return err
		}
	}
	db, err := dial.Connect(ctx, string(c.Database.URL), "scale-work", dial.Through(c.Database.Pooler))
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := progress.Connect(ctx, string(c.Redis.URL), progress.Prefix)
	if err != nil {
		return fmt.Errorf("connect to Redis: %w", err)
	}
	defer store.Close() //nolint:errcheck // the process ends
	options.Lease, options.Heartbeat, options.Poll, options.Log, options.Observer = c.Lease, c.Heartbeat, c.Poll, log, t
	engine, err := claim.New(ctx, db, options)
	if err != nil {
		return err
	}
	defer engine.Close()
	deps := pipeline.Deps{Registry: registry.New(db), Progress: store, Log: log}
	list := steps.All(deps)
	for i, s := range list {
		list[i].Run = asleep{durations: d, stage: s.Name()}
	}
	pools := c.Pools.List
	if len(pools) == 0 {
		pools = settings.DefaultPools()
	}
	runner, err := pipeline.NewRunner(engine, deps, list, pipeline.RunnerOptions{
		Pools: pools, StageSlots: c.StageSlots, ClaimMost: c.ClaimCeiling, Grace: grace, Log: log,
	})
	if err != nil {
		return err
	}
	checker := &fixity.Checker{
		Registry: deps.Registry, Log: log, Worker: engine.Worker(), Slots: c.Fixity.Slots, Batch: c.Fixity.Batch,
		Attempts: c.Fixity.Attempts, Days: c.Fixity.Days,
	}
	close(t.ready)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return runner.Run(ctx) })
	group.Go(func() error { return checker.Run(ctx) })
	return group.Wait()
}

// tally observes an engine.
type tally struct {
	claims, empty, warnings atomic.Int64
	ready                   chan struct{} // closed when the worker is about to claim
}

func (t *tally) Claimed(_ time.Duration, items int) {
	t.claims.Add(1)
	if items == 0 {
		t.empty.Add(1)
	}
}

func (*tally) Settled(time.Duration, int) {}
func (*tally) Ended(claim.End)            {}
func (*tally) Lost(string)                {}

// answer answers each line with a line, until there are no more. It answers nothing before the
// worker is ready.
func (t *tally) answer(ctx context.Context, lines *bufio.Reader, out io.Writer) error {
	for {
		if _, err := lines.ReadString('\n'); err != nil {
			return nil //nolint:nilerr // that is how a worker is asked to stop
		}
		select {
		case <-t.ready:
		case <-ctx.Done():
			return nil
		}
		err := json.NewEncoder(out).Encode(counts{
			Claims: t.claims.Load(), Empty: t.empty.Load(), Warnings: t.warnings.Load(), CPU: rig.CPU(syscall.RUSAGE_SELF),
		})
		if err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
}

// counted counts what is logged, and prints the first of it only: when a database has too much to
// do, all workers say so.
type counted struct {
	slog.Handler

	n *atomic.Int64
}

func (c counted) Handle(ctx context.Context, r slog.Record) error {
	if c.n.Add(1) > 1 {
		return nil
	}
	return c.Handler.Handle(ctx, r) //nolint:wrapcheck // as its own
}

func (c counted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return counted{c.Handler.WithAttrs(attrs), c.n}
}

func (c counted) WithGroup(name string) slog.Handler { return counted{c.Handler.WithGroup(name), c.n} }
