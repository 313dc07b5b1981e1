package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/retry"
)

// helpers are the farol processes that up and demo start: workers, mirror,
// scheduler. One that ends by itself is restarted.
type helpers struct {
	farol  string // path of the program
	env    []string
	logDir string
	log    *slog.Logger

	wg   sync.WaitGroup
	stop context.CancelFunc
	ctx  context.Context //nolint:containedctx // it ends the helpers, and lives as long as they
}

func newHelpers(ctx context.Context, farol, dataDir string, env []string, log *slog.Logger) (*helpers, error) {
	logDir := filepath.Join(dataDir, "log")
	if err := os.MkdirAll(logDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the log directory: %w", err)
	}
	env = append(append(os.Environ(), env...), settings.ChildEnv+"=1")
	if os.Getenv("FAROL_GRACE") == "" && os.Getenv("FAROL_GRACE_FILE") == "" {
		env = append(env, "FAROL_GRACE=5s") // less than a helper is given to end: its items are given back, not left to their lease
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	return &helpers{farol: farol, env: env, logDir: logDir, log: log, ctx: ctx, stop: stop}, nil
}

// start keeps `farol args…` running until stopAll. Its output goes to a log file.
func (h *helpers) start(name string, args ...string) { h.startWith(name, nil, args...) }

// startWith is start with more settings.
func (h *helpers) startWith(name string, more []string, args ...string) {
	h.wg.Go(func() {
		retry.Forever(h.ctx, func(_ context.Context, succeeded func()) error {
			began := time.Now()
			err := h.run(name, more, args)
			if time.Since(began) > 10*time.Second {
				succeeded()
			}
			return err
		}, func(err error, wait time.Duration) {
			h.log.WarnContext(h.ctx, "a helper ended; restarting it", "helper", name, "retry_in", wait, "err", err)
		})
	})
}

func (h *helpers) run(name string, more, args []string) error {
	out, err := os.OpenFile(filepath.Join(h.logDir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer out.Close() //nolint:errcheck // the child writes to it, not we
	// Not CommandContext: it kills, and a worker has something to give back.
	cmd := exec.Command(h.farol, args...) //nolint:noctx // our own program; stopped below by SIGTERM
	cmd.Env, cmd.Stdout, cmd.Stderr = slices.Concat(h.env, more), out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C is for the parent
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("open a pipe to %s: %w", name, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-h.ctx.Done():
	}
	in.Close() //nolint:errcheck // closing it is the message
	t := time.NewTimer(15 * time.Second)
	defer t.Stop()
	select {
	case err := <-ended:
		return err
	case <-t.C:
		return errors.Join(cmd.Process.Kill(), <-ended)
	}
}

// stopAll stops all helpers and waits for their end.
func (h *helpers) stopAll() {
	h.stop()
	h.wg.Wait()
}
