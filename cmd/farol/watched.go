package main

import (
	"context"
	"errors"

	"github.com/farol-preservation/farol/internal/process/monitor"
)

// readiness is that of a process which may be stopping.
type readiness func(monitor.Readiness) monitor.Readiness

var errStopping = errors.New("the process is stopping")

// watched does work, which ends when ctx does, and serves its metrics and health until it has
// ended. From the end of ctx on the process is alive and not ready: it takes nothing new and
// finishes what is under way. If its health cannot be served, stop ends the work.
func watched(ctx context.Context, stop context.CancelFunc, work func() error, serve func(context.Context, readiness) error) error {
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	ended := make(chan error, 1)
	go func() {
		err := serve(serving, func(ready monitor.Readiness) monitor.Readiness { return unless(ctx, ready) })
		if err != nil {
			stop()
		}
		ended <- err
	}()
	err := work()
	end()
	if failed := <-ended; failed != nil {
		return failed // the work was stopped for it
	}
	return err
}

// unless is a readiness that ends with ctx.
func unless(ctx context.Context, ready monitor.Readiness) monitor.Readiness {
	return func(asked context.Context) (string, error) {
		if ctx.Err() != nil {
			return ": stopping", errStopping
		}
		return ready(asked)
	}
}
