package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/ingest"
	"github.com/farol-preservation/farol/pipeline/steps"
)

func workCommand() *cobra.Command {
	var f workFlags
	c := &cobra.Command{
		Use:   "work",
		Short: "Claim work items and take them through their stages",
		Long: `Claim work items from the database and take them through their stages, until
SIGTERM, Ctrl-C or farol drain: then nothing more is claimed, running stages get
FAROL_GRACE to end, and what is left goes back at once. Start as many as you
like, anywhere.

` + poolHelp + `

Without --pool the pools are those of FAROL_POOLS or FAROL_POOLS_FILE, or else
eight slots for bags below 1 GiB that come in and two for larger ones, and four
and two for restorations and deletions. --stages, --slots and the sizes stand for
one pool of which they are the settings.`,
		Example: `  farol work
  farol work --pool 'small=Receive..Cleanup;max=1GiB;slots=8' --pool 'large=*;min=1GiB;slots=2'
  farol work --pool 'wasabi=Store;provider=Wasabi;slots=4'
  farol work --stages Record --slots 1
  farol work --stages 'Restore File,Restore Object,Glacier Restore,Delete' --slots 4
  farol work --min-size 1GiB --slots 2`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return orderly(cmd.Context(), runWork(cmd.Context(), f)) },
	}
	c.Flags().StringArrayVar(&f.pools, "pool", nil, "a pool, such as 'small=*;max=1GiB;slots=8'; may be given several times")
	c.Flags().StringSliceVar(&f.stages, "stages", nil, "only these stages, by comma: "+strings.Join(stepNames(), ", "))
	c.Flags().StringVar(&f.minSize, "min-size", "", "only items of at least this size, such as 64MiB")
	c.Flags().StringVar(&f.maxSize, "max-size", "", "only items below this size, such as 1GiB")
	c.Flags().IntVar(&f.slots, "slots", 0, "items in work at once (default 8 below 1 GiB and 2 above)")
	f.wait.flag(c, startWait)
	return c
}

type workFlags struct {
	pools            []string
	stages           []string
	minSize, maxSize string
	slots            int
	wait             waiting
}

// stageNames are the ingest stages in their order.
func stageNames() []string { return namesOf(ingest.Steps(pipeline.Deps{})) }

// stepNames are all that a worker can do: the ingest stages, and what is requested
// by its action.
func stepNames() []string { return namesOf(steps.All(pipeline.Deps{})) }

func namesOf(steps []pipeline.Step) (names []string) {
	for _, s := range steps {
		names = append(names, s.Name())
	}
	return names
}

// choose turns the flags into pools; configured are those of the environment.
func (f workFlags) choose(configured []pipeline.Pool) ([]pipeline.Pool, error) {
	const gib, small, large = 1 << 30, 8, 2
	single := len(f.stages) > 0 || f.minSize != "" || f.maxSize != "" || f.slots != 0
	switch {
	case len(f.pools) > 0 && single:
		return nil, errors.New("--pool says all that --stages, --slots and the sizes do; give one or the other")
	case len(f.pools) > 0:
		return parsePools(strings.Join(f.pools, "\n"))
	case !single && len(configured) > 0:
		return configured, nil
	case !single:
		return defaultPools(), nil
	}
	p := pipeline.Pool{Name: "flags", Stages: stepNames(), Slots: f.slots}
	var stagesErr, minErr, maxErr error
	if len(f.stages) > 0 {
		p.Stages, stagesErr = parseStages(strings.Join(f.stages, ","))
	}
	p.MinSize, minErr = parseSize("--min-size", f.minSize)
	p.MaxSize, maxErr = parseSize("--max-size", f.maxSize)
	if err := errors.Join(stagesErr, minErr, maxErr); err != nil {
		return nil, err
	}
	if p.Slots < 0 {
		return nil, fmt.Errorf("--slots is %d; it must be at least 1", f.slots)
	}
	if p.Slots == 0 {
		p.Slots = small
		if p.MinSize >= gib {
			p.Slots = large
		}
	}
	return []pipeline.Pool{p}, nil
}

func runWork(ctx context.Context, f workFlags) error {
	const help = "see `farol work --help`"
	config, err := loadWorkerConfig()
	if err != nil {
		return err
	}
	pools, err := f.choose(config.Pools)
	if err != nil {
		return usage(err, help)
	}
	memory := fitIntoMemory(400, config.Identify.Workers) // the live heap is small, so it is collected seldom
	log := newLogger(config.Log)
	if len(config.Idle) > 0 {
		log.WarnContext(ctx, "settings without effect: this version has no such worker, or another name of the same setting counts", "settings", config.Idle)
	}
	if err := f.wait.ready(ctx, config.surroundings(), config.HTTP.Addr, log); err != nil {
		return err
	}
	s, err := connect(ctx, "work", needs{Database: &config.Database, Redis: &config.Redis, Storage: &config.Storage})
	if err != nil {
		return err
	}
	defer s.close()
	metrics := newWorkMetrics()
	engine, err := startEngine(ctx, s.db, config, metrics, log)
	if err != nil {
		return err
	}
	defer engine.Close()
	if lacks := format.Unconfined(); len(lacks) > 0 {
		log.WarnContext(ctx, "the kernel confines the children that identify formats in part only", "lacks", lacks)
	}
	formats, err := startIdentifier(ctx, config.Identify)
	if err != nil {
		return err
	}
	defer formats.Close()
	deps := pipeline.Deps{
		Registry: s.registry, Progress: s.progress, Receiving: s.receiving, Staging: s.staging, Kept: s.kept, Targets: s.targets,
		Profiles: config.Profiles, MaxFiles: config.MaxFiles, Memory: memory, Formats: formats, Viruses: config.Viruses, Files: config.Files, ColdPoll: config.ColdPoll,
		ReadBack: config.Verify == "read",
		Version:  thisBuild().Version, Log: log,
	}
	runner, err := pipeline.NewRunner(engine, deps, steps.All(deps), pipeline.RunnerOptions{
		Pools: pools, StageSlots: config.StageSlots, ClaimMost: config.ClaimCeiling, Grace: config.Grace,
		Memory: memory, Observe: metrics.observe, Log: log,
	})
	if err != nil {
		return usage(err, help)
	}
	log.InfoContext(ctx, "working", "worker", engine.Worker(), "pools", pools, "memory_for_lists", memory)
	metrics.registry.MustRegister(heldLeases{engine})
	besides, err := auditing(deps, s, config, engine.Worker(), metrics)
	if err != nil {
		return err
	}
	return runWatched(ctx, runner, besides, s, config, metrics, log)
}

// auditing is what a worker does besides items: it checks copies, and repairs bad
// ones if it is told to.
func auditing(deps pipeline.Deps, s *services, config workerConfig, worker string, metrics *workMetrics) ([]func(context.Context) error, error) {
	besides := []func(context.Context) error{newFixity(deps, config.Fixity, worker, metrics.fixity).Run}
	if config.Repair.Auto != "on" {
		return besides, nil
	}
	repairer, err := newRepairer(s, config.Repair, worker, deps.Log)
	if err != nil {
		return nil, err
	}
	return append(besides, func(ctx context.Context) error { return repairer.Run(ctx, config.Repair.After) }), nil
}

// runWatched works, and tells how the work goes, until ctx is done or the worker
// was asked to drain. What it does besides ends as soon as that.
func runWatched(
	ctx context.Context, runner *pipeline.Runner, besides []func(context.Context) error, s *services, config workerConfig, metrics *workMetrics, log *slog.Logger,
) error {
	figures, err := newQueueFigures(ctx, "work", config.Database, log)
	if err != nil {
		return err
	}
	defer figures.close()
	metrics.registry.MustRegister(figures, serviceStates{runner})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return serveHTTP(groupCtx, config.HTTP.Addr, metrics.registry, workReady(s.registry.Ping, runner), log)
	})
	group.Go(func() error {
		figures.watch(groupCtx)
		return nil
	})
	for _, run := range besides {
		group.Go(func() error { return run(groupCtx) })
	}
	group.Go(func() error {
		defer stop() // a worker that was asked to drain is done
		return runner.Run(groupCtx)
	})
	return group.Wait()
}

// workReady is a worker's readiness: the database answers, and the services that fail
// leave something to claim. It names the services that do not work.
func workReady(ping func(context.Context) error, runner *pipeline.Runner) readiness {
	return func(ctx context.Context) (string, error) {
		views, idle := runner.Services()
		text := ""
		for _, v := range views {
			if !v.OK {
				text += "\n" + v.Service + " " + v.Text
			}
		}
		err := ping(ctx)
		if err == nil && idle {
			err = errors.New("services that fail leave nothing to claim:" + text)
		}
		return text, err
	}
}

func startEngine(ctx context.Context, db *pgxpool.Pool, config workerConfig, observer claim.Observer, log *slog.Logger) (*claim.Engine, error) {
	direct, err := config.Database.session("farol-work")
	if err != nil {
		return nil, err
	}
	engine, err := claim.New(ctx, db, claim.Options{
		Direct: direct, Lease: config.Lease, Heartbeat: config.Heartbeat, Poll: config.Poll, Archive: config.Archive, Log: log,
		MaxAttempts: config.MaxAttempts, Leases: config.Leases, Timeouts: config.Timeouts, Observer: observer,
	})
	return engine, config.blame(err)
}

// startIdentifier has this program identify formats in children of its own. They
// outlive ctx, as stages in work do; Close ends them.
func startIdentifier(ctx context.Context, config identifyConfig) (*format.Identifier, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	formats, err := format.Start(context.WithoutCancel(ctx), format.Options{
		Command: []string{self, "internal", "identify"}, Workers: config.Workers, Memory: config.Memory,
	})
	if err != nil {
		return nil, err
	}
	for range config.Workers { // children load their signatures now, and not while the first bag waits
		go formats.Identify(ctx, "first.txt", 5, strings.NewReader("first")) //nolint:errcheck // the first bag's file will tell
	}
	return formats, nil
}

// parseSize reads a number of bytes such as 64MiB; "" is 0.
func parseSize(flag, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	number, unit := text, int64(1)
	for i, suffix := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if n, ok := strings.CutSuffix(text, suffix); ok {
			number, unit = n, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%s is %q; it must be a number of bytes such as 1048576, 64MiB or 1GiB", flag, text)
	}
	return n * unit, nil
}
