package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/process/monitor"
)

// reaping does the work of a service that processes no items, and also ends the attempts of
// workers that are gone: while any service runs, no item stays in progress without a worker.
func reaping(ctx context.Context, db *pgxpool.Pool, ends monitor.Ends, log *slog.Logger, work func(context.Context) error) error {
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
