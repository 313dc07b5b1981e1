package claim

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/farol-preservation/farol/claim/batch"
	"github.com/farol-preservation/farol/claim/process"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/claim/wake"
)

// statementTime bounds a statement of the queue. The slowest takes milliseconds.
const statementTime = batch.Timeout

// core is what all parts of the engine share.
type core struct {
	rules   ruleStore
	options Options
	log     *slog.Logger
	self    worker
	kernel  process.Kernel
	jitter  func(below time.Duration) time.Duration // so that processes do not all do the same at once
	wake    *wake.Board

	settings atomic.Pointer[stages.All]
	services atomic.Pointer[[]ServiceHold]
	beatNow  chan struct{} // gets a value when a heartbeat is due at once
}

// worker is this start of this program, as others learn of it.
type worker struct {
	identity
	process.Start

	pools    []byte // which work it takes, as JSON
	draining bool   // it was asked to stop
}

// identity is what a claim writes into the rows that it takes.
type identity struct {
	node   string
	pid    int
	worker string
}

func newWorker(k process.Kernel) (worker, error) {
	node, err := os.Hostname()
	if err != nil {
		return worker{}, fmt.Errorf("name this node: %w", err)
	}
	start := k.Self()
	name := fmt.Sprintf("%s-%d-%s", node, start.PID, uuid.NewString()[:8])
	return worker{identity: identity{node: node, pid: start.PID, worker: name}, Start: start, pools: []byte("[]")}, nil
}

// ReadSettings reads how stages are treated. Settings that this process cannot
// work under are an error, and the last ones stay.
func (c *core) ReadSettings(ctx context.Context) error {
	r, err := c.rules.rules(ctx)
	if err != nil {
		return err
	}
	s, err := stages.New(r.stages, r.bands, c.options.Overrides)
	if err != nil {
		return fmt.Errorf("settings of stages: %w", err)
	}
	c.services.Store(&r.holds)
	if before := c.settings.Swap(s); before != nil && s.Heartbeat() < before.Heartbeat() {
		wake.Signal(c.beatNow)
	}
	return nil
}
