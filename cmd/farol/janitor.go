package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/process/build"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/ingest"
	"github.com/farol-preservation/farol/pipeline/upkeep"
)

func janitorCommand() *cobra.Command {
	return op.Command{
		Use:   "janitor",
		Short: "Remove leftovers of ended and failed items",
		Long: `Run the janitor once, now. ` + "`farol schedule`" + ` runs it every FAROL_JANITOR_INTERVAL.

It removes what items left in staging, Redis and the preservation buckets, when they
have ended, or failed more than FAROL_RETENTION ago: objects, progress, unfinished
uploads, and unrecorded copies that provably belong to the item. An invalid bag is
removed from its receiving bucket after the same time. Items in progress are never
touched. The table removals lists what was removed.

Exit codes: 0 success; 1 something could not be removed, or another janitor is running.`,
		Example: `  farol janitor --dry-run
  farol janitor
  farol janitor --yes
  farol janitor --json`,
		Asks: true,
	}.Alone(runJanitor)
}

func runJanitor(c *op.Call) error {
	ctx := c.Cmd.Context()
	does, err := c.Care.Allows(c.Cmd, "Remove what is due", true)
	if err != nil {
		return err
	}
	j, done, err := connectDoctor(ctx, "janitor")
	if err != nil {
		return err
	}
	defer done()
	var report *upkeep.Report
	if !does {
		report = j.Look(ctx)
	} else if report, err = j.Round(ctx); errors.Is(err, upkeep.ErrBusy) {
		return cli.Failure{Code: cli.ExitFailed, Err: errors.New("another janitor is running"), Next: "`farol schedule list` shows which process runs it; try again when it has ended"}
	}
	if report == nil {
		return err
	}
	if does { // the doctor reports what stays
		report.Findings = thatJanitor(report.Findings, upkeep.Removed)
	} else {
		report.Findings = thatJanitor(report.Findings, upkeep.Removes, upkeep.Waits)
	}
	if err = errors.Join(err, cli.Print(c.Cmd, c.JSON, report, writeFindings)); err == nil && len(report.Unchecked) > 0 {
		err = cli.Failure{
			Code: cli.ExitFailed, Err: errors.New("not everything could be checked or removed"),
			Next: "fix what is named above; the next run continues with the rest",
		}
	}
	return err
}

// newJanitor returns a janitor that holds its lease under a name.
func newJanitor(s *connect.Services, c settings.Janitor, name string, log *slog.Logger) *upkeep.Janitor {
	d := pipeline.Deps{
		Registry: s.Registry, Progress: s.Progress, Staging: s.Staging, Kept: s.Kept, Version: build.This().Version, Log: log,
	}
	return &upkeep.Janitor{
		Registry: s.Registry, Progress: s.Progress, Receiving: s.Receiving, Staging: s.Staging, Targets: s.Targets,
		Keep: ingest.Keeper(d), Log: log,
		Retention: c.Retention, OrphanAge: c.OrphanAge, Holder: name,
	}
}

// connectDoctor opens all stores for a command that inspects them. The janitor is within.
func connectDoctor(ctx context.Context, command string) (*upkeep.Doctor, func(), error) {
	d, _, done, err := connectStores(ctx, command)
	return d, done, err
}

// connectStores is connectDoctor, with the profiles that bags may follow.
func connectStores(ctx context.Context, command string) (*upkeep.Doctor, bag.Profiles, func(), error) {
	config, err := connect.Load(settings.Stores{})
	if err != nil {
		return nil, bag.Profiles{}, nil, err
	}
	log := connect.NewLogger(config.Log)
	s, err := connect.Open(ctx, command, connect.Needs{Database: &config.Database, Redis: &config.Redis, Storage: &config.Storage, Log: log})
	if err != nil {
		return nil, bag.Profiles{}, nil, err
	}
	return &upkeep.Doctor{Janitor: newJanitor(s, config.Janitor, holderName(command), log), Inventories: s.Inventories}, config.Profiles.All, s.Close, nil
}

func thatJanitor(list []upkeep.Finding, kinds ...string) []upkeep.Finding {
	kept := []upkeep.Finding{}
	for _, f := range list {
		if slices.Contains(kinds, f.Janitor) {
			kept = append(kept, f)
		}
	}
	return kept
}
