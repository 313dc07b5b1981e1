package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/caarlos0/env/v10"

	"github.com/farol-preservation/farol/internal/devstack"
	"github.com/farol-preservation/farol/internal/settings"
)

// helpers are the farol processes that up and demo start: workers, mirror,
// scheduler. One that ends by itself is restarted.
type helpers struct {
	farol  string // path of the program
	env    []string
	logDir string
	log    *slog.Logger

	running []*devstack.Process
}

func newHelpers(farol, dataDir string, env []string, log *slog.Logger) (*helpers, error) {
	logDir := filepath.Join(dataDir, "log")
	if err := os.MkdirAll(logDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the log directory: %w", err)
	}
	env = append(append(os.Environ(), env...), settings.ChildEnv+"=1")
	if os.Getenv("FAROL_GRACE") == "" && os.Getenv("FAROL_GRACE_FILE") == "" {
		env = append(env, "FAROL_GRACE=5s") // less than a helper is given to end: its items are given back, not left to their lease
	}
	return &helpers{farol: farol, env: env, logDir: logDir, log: log}, nil
}

// start keeps `farol args…` running, with more settings, until stopAll. Its output goes to a
// log file.
func (h *helpers) start(ctx context.Context, name string, more []string, args ...string) error {
	p := &devstack.Process{
		Name: name, Binary: h.farol, Args: args, Env: env.ToMap(slices.Concat(h.env, more)), Log: filepath.Join(h.logDir, name+".log"), Dir: ".",
		Ended: func(err error) { h.log.WarnContext(ctx, "a helper ended; restarting it", "helper", name, "err", err) },
	}
	h.running = append(h.running, p)
	return p.Start()
}

// stopAll stops all helpers and waits for their end.
func (h *helpers) stopAll() {
	var all sync.WaitGroup
	for _, p := range h.running {
		all.Go(p.Stop)
	}
	all.Wait()
}
