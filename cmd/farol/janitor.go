package main

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/build"
	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/ingest"
	"github.com/farol-preservation/farol/pipeline/upkeep"
)

func janitorCommand() *cobra.Command {
	var care cli.Caution
	var asJSON bool
	c := &cobra.Command{
		Use:   "janitor",
		Short: "Remove leftovers of ended and failed items",
		Long: `Make one round of the janitor at once. ` + "`farol schedule`" + ` makes one every
FAROL_JANITOR_INTERVAL.

It removes from staging, Redis and preservation buckets what is left of items that
ended, or failed longer ago than FAROL_RETENTION: objects, progress, unfinished
uploads, and copies that never came on record, if they are provably the item's own.
A bag that was refused as invalid goes from its receiving bucket after the same
time. Items in work are never touched. The table removals has what was removed.

Exit codes: 0 done; 1 something could not be removed, or another janitor is at work.`,
		Example: `  farol janitor --dry-run
  farol janitor
  farol janitor --yes
  farol janitor --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			does, err := care.Allows(cmd, "Remove what is due", true)
			if err != nil {
				return err
			}
			return runJanitor(cmd.Context(), cmd.OutOrStdout(), !does, asJSON)
		},
	}
	care.Flags(c)
	cli.JSONFlag(c, &asJSON)
	return c
}

func runJanitor(ctx context.Context, out io.Writer, dryRun, asJSON bool) error {
	j, done, err := connectJanitor(ctx, "janitor")
	if err != nil {
		return err
	}
	defer done()
	var report *upkeep.Report
	if dryRun {
		report = j.Look(ctx)
	} else if report, err = j.Round(ctx); errors.Is(err, upkeep.ErrBusy) {
		return cli.Failure{Code: cli.ExitFailed, Err: errors.New("another janitor is at work"), Next: "`farol schedule list` tells who; try again when its round is over"}
	}
	if report == nil {
		return err
	}
	if !dryRun { // what stays is the doctor's to tell
		report.Findings = thatJanitor(report.Findings, upkeep.Removed)
	} else {
		report.Findings = thatJanitor(report.Findings, upkeep.Removes, upkeep.Waits)
	}
	if asJSON {
		err = errors.Join(err, cli.WriteJSON(out, report))
	} else {
		err = errors.Join(err, writeFindings(out, report))
	}
	if err == nil && len(report.Unchecked) > 0 {
		err = cli.Failure{
			Code: cli.ExitFailed, Err: errors.New("not all could be looked at or removed"),
			Next: "mend what is named above; the next round comes to what is left",
		}
	}
	return err
}

// newJanitor has a name of its own for each start.
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

// connectJanitor opens all stores for a command that looks at them.
func connectJanitor(ctx context.Context, command string) (*upkeep.Janitor, func(), error) {
	config, err := connect.Load(settings.ReadStores)
	if err != nil {
		return nil, nil, err
	}
	s, err := connect.Open(ctx, command, connect.Needs{Database: &config.Database, Redis: &config.Redis, Storage: &config.Storage})
	if err != nil {
		return nil, nil, err
	}
	return newJanitor(s, config.Janitor, holderName(command), connect.NewLogger(config.Log)), s.Close, nil
}

func thatJanitor(list []upkeep.Finding, kinds ...string) []upkeep.Finding {
	kept := []upkeep.Finding{}
	for _, f := range list {
		for _, k := range kinds {
			if f.Janitor == k {
				kept = append(kept, f)
			}
		}
	}
	return kept
}
