package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/process/build"
	"github.com/farol-preservation/farol/internal/process/monitor"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/process/tracing"
)

// reaping does the work of a service that processes no items, and also ends the attempts of
// workers that are gone: while any service runs, no item stays in progress without a worker. The
// spans of these attempts are sent as those of the command.
func reaping(ctx context.Context, db *pgxpool.Pool, ends monitor.Ends, command string, traces settings.Traces, log *slog.Logger, work func(context.Context) error) error {
	t, err := tracing.Start(ctx, traces, command, build.This().Version, log)
	if err != nil {
		return err
	}
	defer t.Close()
	watching, stop := context.WithCancel(ctx)
	var reaper sync.WaitGroup
	reaper.Go(func() {
		o := claim.DefaultOptions()
		o.Log, o.Observer, o.Archive = log, t.Observe(ends), 0 // workers archive
		claim.Watch(watching, db, o)
	})
	err = work(ctx)
	stop()
	reaper.Wait()
	return err
}
