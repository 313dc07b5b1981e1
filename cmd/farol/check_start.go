package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/process/monitor"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/preflight"
	"github.com/farol-preservation/farol/retry"
)

// startWait is what --wait does for a service.
const startWait = "wait until all required services are available, at most for this long, instead of exiting"

const (
	forEver   = "forever"
	firstWait = time.Second
	mostWait  = 15 * time.Second
)

// waiting is how long to wait for missing requirements; 0 is not at all.
type waiting time.Duration

// flag adds --wait to a command.
func (w *waiting) flag(c *cobra.Command, usage string) {
	c.Flags().Var(w, "wait", usage)
	c.Flags().Lookup("wait").NoOptDefVal = forEver
}

// String is for the flag's default, which is none.
func (w *waiting) String() string {
	d := time.Duration(*w)
	if d == 0 {
		return ""
	}
	if d == math.MaxInt64 {
		return forEver
	}
	return d.String()
}

// Set reads a duration.
func (w *waiting) Set(text string) error {
	if text == forEver {
		*w = math.MaxInt64
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return fmt.Errorf("%q is no duration such as 30s or 5m", text)
	}
	*w = waiting(d)
	return nil
}

// Type is how the help calls the value.
func (w *waiting) Type() string { return "duration" }

// until examines the surroundings until enough reports true or the time is over, with
// growing pauses, and returns the last findings. pause, if not nil, is called to wait.
func (w waiting) until(
	ctx context.Context, s preflight.Surroundings, enough func([]preflight.Finding) bool, log *slog.Logger, pause func(context.Context, time.Duration, []preflight.Finding),
) ([]preflight.Finding, error) {
	if pause == nil {
		pause = func(ctx context.Context, d time.Duration, _ []preflight.Finding) { retry.Pause(ctx, d) }
	}
	began := time.Now()
	for next := firstWait; ; next = min(2*next, mostWait) {
		all := s.Examine(ctx)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		left := time.Duration(w) - time.Since(began)
		if enough(all) || left <= 0 {
			return all, nil
		}
		next = min(next, left)
		failed, _ := preflight.Alike(all, func(f preflight.Finding) bool { return f.State == preflight.Failed })
		for _, f := range failed {
			log.WarnContext(ctx, "not ready; retrying the failed checks",
				"service", f.Service, "check", f.Check, "code", f.Code, "found", f.Found, "likewise", f.Also, "to_do", f.Todo, "next_try", next)
		}
		pause(ctx, next, all)
	}
}

// ready returns nil when the process may start. Else it waits for that, answering
// at addr that it is alive and not ready, or returns everything that is missing. Failures
// that hold back only some of the work are logged.
func (w waiting) ready(ctx context.Context, s preflight.Surroundings, addr string, log *slog.Logger) error {
	s.Starting = true
	waiter := &waiter{addr: addr, log: log}
	defer waiter.end()
	all, err := w.until(ctx, s, func(list []preflight.Finding) bool { return refusal(s.Command, list) == nil }, log, waiter.pause)
	if err != nil {
		return err
	}
	if err := refusal(s.Command, all); err != nil {
		return err
	}
	failed, _ := preflight.Alike(all, func(f preflight.Finding) bool { return f.State == preflight.Failed })
	for _, f := range failed {
		log.WarnContext(ctx, "a check failed; items that need this service wait, others continue",
			"service", f.Service, "check", f.Check, "code", f.Code, "found", f.Found, "likewise", f.Also, "to_do", f.Todo)
	}
	for _, f := range all {
		switch f.State {
		case preflight.OK:
			if f.Service == fault.Scanner {
				log.InfoContext(ctx, "scanning files for viruses", "scanner", f.Found)
			}
		case preflight.Warning:
			log.WarnContext(ctx, "a check reports a warning", "service", f.Service, "check", f.Check, "found", f.Found, "to_do", f.Todo)
		}
	}
	return nil
}

// open waits until the process may start, and opens what it needs.
func (w waiting) open(ctx context.Context, s preflight.Surroundings, health settings.HTTP, log *slog.Logger) (*connect.Services, error) {
	if err := w.ready(ctx, s, health.Addr, log); err != nil {
		return nil, err
	}
	return openNow(ctx, s, health, log)
}

// openNow opens what a process needs. What is missing shows when it is used.
func openNow(ctx context.Context, s preflight.Surroundings, _ settings.HTTP, log *slog.Logger) (*connect.Services, error) {
	return connect.Open(ctx, s.Command, connect.Needs{Database: s.Database, Redis: s.Redis, S3: s.S3, Storage: s.Storage, Log: log})
}

// waiter serves health for a process that waits: a supervisor should not end
// it for that.
type waiter struct {
	addr  string
	log   *slog.Logger
	stop  context.CancelFunc
	ended chan struct{}
}

func (w *waiter) pause(ctx context.Context, d time.Duration, all []preflight.Finding) {
	if w.stop == nil {
		served, stop := context.WithCancel(ctx)
		w.stop, w.ended = stop, make(chan struct{})
		var names []string
		for _, f := range all {
			if f.Fatal {
				names = append(names, f.Name())
			}
		}
		notReady := errors.New("waiting for " + strings.Join(names, "; "))
		go func() {
			defer close(w.ended)
			if err := monitor.Serve(served, w.addr, prometheus.NewRegistry(), monitor.Answers(func(context.Context) error { return notReady }), w.log); err != nil {
				w.log.WarnContext(served, "cannot serve health while waiting", "err", err)
			}
		}()
	}
	retry.Pause(ctx, d)
}

// end frees the address.
func (w *waiter) end() {
	if w.stop != nil {
		w.stop()
		<-w.ended
	}
}
