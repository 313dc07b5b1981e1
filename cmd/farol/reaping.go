package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/process/build"
	"github.com/farol-preservation/farol/internal/process/monitor"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/process/tracing"
)

// endsOf observes the attempts that a command ends, in its metrics and traces. The traces are to be closed.
func endsOf(ctx context.Context, command string, config settings.Traces, metrics prometheus.Registerer, log *slog.Logger) (claim.Observer, *tracing.Tracing, error) {
	traces, err := tracing.Start(ctx, config, command, build.This().Version, log)
	if err != nil {
		return nil, nil, err
	}
	return traces.Observe(monitor.NewEnds(metrics)), traces, nil
}

// reaping does the work of a service that processes no items, and also ends the attempts of
// workers that are gone: while any service runs, no item stays in progress without a worker.
func reaping(ctx context.Context, db *pgxpool.Pool, ends claim.Observer, log *slog.Logger, work func(context.Context) error) error {
	watching, stop := context.WithCancel(ctx)
	var reaper sync.WaitGroup
	reaper.Go(func() {
		o := claim.DefaultOptions()
		o.Log, o.Observer, o.Archive = log, ends, 0 // workers archive
		claim.Watch(watching, db, o)
	})
	err := work(ctx)
	stop()
	reaper.Wait()
	return err
}
