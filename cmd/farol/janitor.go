package main

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/ingest"
	"github.com/farol-preservation/farol/pipeline/upkeep"
)

func janitorCommand() *cobra.Command {
	var care caution
	var asJSON bool
	c := &cobra.Command{
		Use:   "janitor",
		Short: "Remove what items that ended or failed have left behind",
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
			does, err := care.allows(cmd, "Remove what is due", true)
			if err != nil {
				return err
			}
			return runJanitor(cmd.Context(), cmd.OutOrStdout(), !does, asJSON)
		},
	}
	care.flags(c)
	jsonFlag(c, &asJSON)
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
		return failure{code: exitFailed, err: errors.New("another janitor is at work"), next: "`farol schedule list` tells who; try again when its round is over"}
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
		err = errors.Join(err, writeJSON(out, report))
	} else {
		err = errors.Join(err, writeFindings(out, report))
	}
	if err == nil && len(report.Unchecked) > 0 {
		err = failure{
			code: exitFailed, err: errors.New("not all could be looked at or removed"),
			next: "mend what is named above; the next round comes to what is left",
		}
	}
	return err
}

// newJanitor has a name of its own for each start.
func newJanitor(s *services, c janitorConfig, name string, log *slog.Logger) *upkeep.Janitor {
	d := pipeline.Deps{
		Registry: s.registry, Progress: s.progress, Staging: s.staging, Kept: s.kept, Version: thisBuild().Version, Log: log,
	}
	return &upkeep.Janitor{
		Registry: s.registry, Progress: s.progress, Receiving: s.receiving, Staging: s.staging, Targets: s.targets,
		Keep: ingest.Keeper(d), Log: log,
		Retention: c.Retention, OrphanAge: c.OrphanAge, Holder: name,
	}
}

// connectJanitor opens all stores for a command that looks at them.
func connectJanitor(ctx context.Context, command string) (*upkeep.Janitor, func(), error) {
	config, err := load(readStoresConfig)
	if err != nil {
		return nil, nil, err
	}
	s, err := connect(ctx, command, needs{Database: &config.Database, Redis: &config.Redis, Storage: &config.Storage})
	if err != nil {
		return nil, nil, err
	}
	return newJanitor(s, config.Janitor, holderName(command), newLogger(config.Log)), s.close, nil
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

// janitorMetrics are what this process's janitor has done.
type janitorMetrics struct{ rounds, removed, bytes *prometheus.CounterVec }

func newJanitorMetrics(r *prometheus.Registry) janitorMetrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := janitorMetrics{
		rounds:  counter("farol_janitor_rounds_total", "Rounds of the janitor that this process made, by result.", "result"),
		removed: counter("farol_janitor_removed_total", "What they removed.", "store", "what"),
		bytes:   counter("farol_janitor_removed_bytes_total", "Its bytes, where they are known.", "store", "what"),
	}
	m.rounds.WithLabelValues("done")
	m.rounds.WithLabelValues("incomplete")
	r.MustRegister(m.rounds, m.removed, m.bytes)
	return m
}

func (m janitorMetrics) observe(report *upkeep.Report) {
	result := "done"
	if len(report.Unchecked) > 0 {
		result = "incomplete"
	}
	m.rounds.WithLabelValues(result).Inc()
	for _, f := range thatJanitor(report.Findings, upkeep.Removed) {
		m.removed.WithLabelValues(f.Store, f.What).Add(float64(f.Count))
		m.bytes.WithLabelValues(f.Store, f.What).Add(float64(f.Bytes))
	}
}
