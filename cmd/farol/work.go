package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/internal/commands/archive"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/process/build"
	"github.com/farol-preservation/farol/internal/process/memory"
	"github.com/farol-preservation/farol/internal/process/monitor"
	"github.com/farol-preservation/farol/internal/process/scalein"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/process/tracing"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/fixity"
	"github.com/farol-preservation/farol/pipeline/steps"
)

func workCommand() *cobra.Command {
	var f workFlags
	c := &cobra.Command{
		Use:   "work",
		Short: "Run a worker: claim work items and process their stages",
		Long: `Claim work items and process their stages, until SIGTERM, Ctrl-C or farol drain. The
worker then claims nothing more, gives running stages FAROL_GRACE to end, and returns
the other items to the queue. Any number of workers may run, on any host.

` + settings.PoolHelp + `

Without --pool, the pools come from FAROL_POOLS or FAROL_POOLS_FILE. By default,
ingest has eight slots for bags below 1 GiB and two for larger ones; restorations and
deletions have four and two. --stages, --slots and the sizes define a single pool.`,
		Example: `  farol work
  farol work --pool 'small=Receive..Cleanup;max=1GiB;slots=8' --pool 'large=*;min=1GiB;slots=2'
  farol work --pool 'wasabi=Store;provider=Wasabi;slots=4'
  farol work --stages Record --slots 1
  farol work --stages 'Restore File,Restore Object,Glacier Restore,Delete,Export' --slots 4
  farol work --min-size 1GiB --slots 2`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return orderly(cmd.Context(), runWork(cmd.Context(), f)) },
	}
	c.Flags().StringArrayVar(&f.pools, "pool", nil, "a pool, such as 'small=*;max=1GiB;slots=8'; may be given several times")
	c.Flags().StringSliceVar(&f.stages, "stages", nil, "only these stages, separated by commas: "+strings.Join(settings.StepNames(), ", "))
	c.Flags().StringVar(&f.minSize, "min-size", "", "only items of at least this size, such as 64MiB")
	c.Flags().StringVar(&f.maxSize, "max-size", "", "only items below this size, such as 1GiB")
	c.Flags().IntVar(&f.slots, "slots", 0, "items in progress at the same time (default 8 below 1 GiB and 2 above)")
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

// choose makes pools of the flags; configured are those of the environment.
func (f workFlags) choose(configured []pipeline.Pool) ([]pipeline.Pool, error) {
	const gib, small, large = 1 << 30, 8, 2
	single := len(f.stages) > 0 || f.minSize != "" || f.maxSize != "" || f.slots != 0
	switch {
	case len(f.pools) > 0 && single:
		return nil, errors.New("--pool cannot be used with --stages, --slots or the sizes: it has them all")
	case len(f.pools) > 0:
		return settings.ParsePools(strings.Join(f.pools, "\n"))
	case !single && len(configured) > 0:
		return configured, nil
	case !single:
		return settings.DefaultPools(), nil
	}
	p := pipeline.Pool{Name: "flags", Stages: settings.StepNames(), Slots: f.slots}
	var stagesErr, minErr, maxErr error
	if len(f.stages) > 0 {
		p.Stages, stagesErr = settings.ParseStages(strings.Join(f.stages, ","))
	}
	p.MinSize, minErr = settings.ParseSize("--min-size", f.minSize)
	p.MaxSize, maxErr = settings.ParseSize("--max-size", f.maxSize)
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
	config, err := connect.Load(settings.Worker{})
	if err != nil {
		return err
	}
	pools, err := f.choose(config.Pools.List)
	if err != nil {
		return cli.Usage(err, help)
	}
	memory := memory.Fit(400, config.Identify.Workers) // the live heap is small, so it is collected seldom
	log := connect.NewLogger(config.Log)
	warnOfHost(ctx, config, log)
	s, err := f.wait.open(ctx, surroundingsOf(&config), config.HTTP, log)
	if err != nil {
		return err
	}
	defer s.Close()
	traces, err := tracing.Start(ctx, config.Traces, "work", build.This().Version, log)
	if err != nil {
		return err
	}
	defer traces.Close(ctx)
	metrics := monitor.NewWork()
	engine, err := startEngine(ctx, s.DB, config, traces.Observe(metrics), log)
	if err != nil {
		return err
	}
	defer engine.Close()
	formats, err := connect.Identifier(ctx, config.Identify)
	if err != nil {
		return err
	}
	defer formats.Close()
	deps := pipeline.Deps{
		Registry: s.Registry, Progress: s.Progress, Receiving: s.Receiving, Staging: s.Staging, Kept: s.Kept, Targets: s.Targets,
		Profiles: config.Profiles.All, MaxFiles: config.MaxFiles, Memory: memory, Formats: formats, Viruses: config.Virus.Scanner, Files: config.Files, ColdPoll: config.ColdPoll,
		ReadBack: config.Verify == "read",
		Version:  build.This().Version, Log: log,
	}
	runner, err := pipeline.NewRunner(engine, deps, steps.All(deps), pipeline.RunnerOptions{
		Pools: pools, StageSlots: config.StageSlots, ClaimMost: config.ClaimCeiling, Grace: config.Grace,
		Memory: memory, Observe: metrics.Observe, Tracer: traces.Tracer(), Log: log,
	})
	if err != nil {
		return cli.Usage(err, help)
	}
	log.InfoContext(ctx, "working", "worker", engine.Worker(), "pools", pools, "memory_for_lists", memory)
	metrics.Registry.MustRegister(monitor.NewLeases(engine), monitor.NewStores(s.Detours, s.Slowdowns))
	audits, err := auditing(deps, s, config, engine.Worker(), metrics)
	if err != nil {
		return err
	}
	if guard := scalein.New(config.ScaleIn.Platform(), log); guard != nil {
		audits = append(audits, func(ctx context.Context) error {
			return guard.Run(ctx, func() int { return len(engine.Held()) })
		})
	}
	return runWatched(ctx, runner, audits, s, config, metrics, log)
}

// warnOfHost warns of settings without effect, and of what the kernel lacks.
func warnOfHost(ctx context.Context, config settings.Worker, log *slog.Logger) {
	if len(config.Idle) > 0 {
		log.WarnContext(ctx, "settings without effect: this version has no such worker, or the same setting is set under another name", "settings", config.Idle)
	}
	if lacks := format.Unconfined(); len(lacks) > 0 {
		log.WarnContext(ctx, "the kernel cannot fully confine the processes that identify formats", "lacks", lacks)
	}
}

// auditing is what a worker does in addition to items: it checks copies, and repairs bad
// ones if FAROL_AUTO_REPAIR is on.
func auditing(deps pipeline.Deps, s *connect.Services, config settings.Worker, worker string, metrics *monitor.Work) ([]func(context.Context) error, error) {
	audits := []func(context.Context) error{newFixity(deps, config.Fixity, worker, metrics.Fixity).Run}
	if config.Repair.Auto != "on" {
		return audits, nil
	}
	repairer, err := archive.NewRepairer(s, config.Repair, worker, deps.Log)
	if err != nil {
		return nil, err
	}
	return append(audits, func(ctx context.Context) error { return repairer.Run(ctx, config.Repair.After) }), nil
}

// newFixity is what checks copies in a worker of this name.
func newFixity(deps pipeline.Deps, c settings.Fixity, worker string, metrics monitor.Fixity) *fixity.Checker {
	return &fixity.Checker{
		Registry: deps.Registry, Targets: deps.Targets, Log: deps.Log,
		Worker: worker, Slots: c.Slots, Batch: c.Batch, Attempts: c.Attempts, Days: c.Days, Observe: metrics.Observe,
	}
}

// runWatched runs the worker with its metrics and health, until ctx is done or the worker
// was asked to drain. The audits end with it.
func runWatched(
	ctx context.Context, runner *pipeline.Runner, audits []func(context.Context) error, s *connect.Services, config settings.Worker, metrics *monitor.Work, log *slog.Logger,
) error {
	figures, err := monitor.NewQueue(ctx, "work", config.Database, log)
	if err != nil {
		return err
	}
	defer figures.Close()
	metrics.Registry.MustRegister(figures, monitor.NewServices(runner))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		figures.Watch(groupCtx)
		return nil
	})
	for _, run := range audits {
		group.Go(func() error { return run(groupCtx) })
	}
	group.Go(func() error {
		defer stop() // a worker that was asked to drain is done
		return runner.Run(groupCtx)
	})
	return watched(groupCtx, stop, group.Wait, func(ctx context.Context, ready readiness) error {
		return monitor.Serve(ctx, config.HTTP.Addr, metrics.Registry, ready(workReady(s.Registry.Ping, runner)), log)
	})
}

// workReady is a worker's readiness: the database answers, and the services that fail
// leave something to claim. It names the services that do not work.
func workReady(ping func(context.Context) error, runner *pipeline.Runner) monitor.Readiness {
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

func startEngine(ctx context.Context, db *pgxpool.Pool, config settings.Worker, observer claim.Observer, log *slog.Logger) (*claim.Engine, error) {
	direct, err := connect.Session(config.Database, "farol-work")
	if err != nil {
		return nil, err
	}
	engine, err := claim.New(ctx, db, claim.Options{
		Direct: direct, Poll: config.Poll, Archive: config.Archive, Log: log, Observer: observer,
		Overrides: stages.Overrides{
			Lease: config.Lease, Heartbeat: config.Heartbeat, MaxAttempts: config.MaxAttempts, Leases: config.Leases, Timeouts: config.Timeouts,
		},
	})
	var wrong *stages.SettingError
	if errors.As(err, &wrong) {
		err = cli.Usage(fmt.Errorf("settings do not fit: %w", err), "change "+strings.Join(config.Blamed(wrong), " or "))
	}
	return engine, err
}
