package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// bench is one run of the program.
type bench struct {
	config   config
	servers  *servers
	progress io.Writer
	systems  []contender
	skipped  []string // why systems or cells are missing from the tables
	results  []*result
	filled   system // whose backlog is still there, since steady keeps it
}

// result is a cell of a workload with all its repetitions.
type result struct {
	Workload string    `json:"workload"`
	System   string    `json:"system"`
	Durable  string    `json:"durable"`
	Backlog  int       `json:"backlog,omitempty"` // of steady; of a drain the items
	Load     load      `json:"load"`
	Runs     []figures `json:"runs"`
	Failed   string    `json:"failed,omitempty"`

	entry contender
}

// figures are what one run came to. Times are in milliseconds.
type figures struct {
	Hops    int64    `json:"hops,omitempty"`
	Seconds float64  `json:"seconds,omitempty"`
	P50     float64  `json:"p50_ms"`
	P99     float64  `json:"p99_ms"`
	Commits int64    `json:"commits,omitempty"`
	WAL     int64    `json:"wal_bytes,omitempty"`
	Windows []window `json:"windows,omitempty"`
}

func (f figures) rate() float64 {
	if f.Seconds == 0 {
		return 0
	}
	return float64(f.Hops) / f.Seconds
}

// start starts the systems. Those that this machine cannot run are left out.
func (b *bench) start(ctx context.Context, chosen []contender) error {
	for _, c := range chosen {
		version, err := c.start(ctx, b.servers)
		switch {
		case ctx.Err() != nil: // then nothing can be told from err
			return fmt.Errorf("start %s: %w", c.name, ctx.Err())
		case errors.Is(err, errMissing):
			b.skip("%s is skipped: %v", c.name, err)
			continue
		case err != nil:
			return fmt.Errorf("start %s: %w", c.name, err)
		}
		c.version = version
		b.systems = append(b.systems, c)
	}
	return nil
}

func (b *bench) skip(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	b.skipped = append(b.skipped, line)
	fmt.Fprintln(b.progress, line)
}

func (b *bench) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var errs []error
	for _, c := range b.systems {
		if err := c.stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", c.name, err))
		}
	}
	return errors.Join(errs...)
}

// rounds runs all cells, then all of them again, so that whatever ails the
// machine for a while ails all systems alike. A cell that fails is not tried
// again, and the others go on.
func (b *bench) rounds(ctx context.Context, cells []*result, reps int, run func(context.Context, *result) (figures, error)) {
	b.results = append(b.results, cells...)
	for rep := range reps {
		for i, c := range cells {
			if ctx.Err() != nil {
				c.Failed = "interrupted"
			}
			if c.Failed != "" {
				continue
			}
			f, err := b.once(ctx, c, run)
			if err != nil {
				c.Failed = err.Error()
			}
			c.Runs = append(c.Runs, f)
			fmt.Fprintf(b.progress, "%s, round %d of %d, %d of %d: %s at %+v: %.0f/s %s\n",
				c.Workload, rep+1, reps, i+1, len(cells), c.System, c.Load, f.rate(), c.Failed)
			if last := rep+1 == reps && i+1 == len(cells); last || cells[(i+1)%len(cells)].System != c.System {
				b.empty(ctx, c)
			}
		}
	}
}

// once measures a cell. What measures itself does so while our server rests.
func (b *bench) once(ctx context.Context, c *result, run func(context.Context, *result) (figures, error)) (figures, error) {
	o, other := c.entry.system.(*before)
	if !other {
		return run(ctx, c)
	}
	if err := b.servers.settle(ctx); err != nil {
		return figures{}, err
	}
	return o.measure(ctx, b.config, c)
}

// empty leaves nothing of a system that the server would be busy with while
// another one is measured.
func (b *bench) empty(ctx context.Context, c *result) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	b.filled = nil
	if err := c.entry.fill(ctx, 0, 1); err != nil && c.Failed == "" {
		c.Failed = err.Error()
	}
}

// fill loads a system and lets the server come to rest.
func (b *bench) fill(ctx context.Context, c *result, n, first int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute+time.Duration(n)*2*time.Millisecond)
	defer cancel()
	if err := c.entry.fill(ctx, n, first); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	return b.servers.settle(ctx)
}

// work is a system at work in the background.
type work struct {
	cancel context.CancelFunc
	ended  chan struct{} // closed once it has ended and err is set
	err    error
}

func (b *bench) work(ctx context.Context, c *result, t *tally) *work {
	ctx, cancel := context.WithCancel(ctx)
	w := &work{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		w.err = c.entry.run(ctx, c.Load, t)
	}()
	return w
}

// halt tells the system to stop and returns when it has.
func (w *work) halt() error {
	w.cancel()
	<-w.ended
	if errors.Is(w.err, context.Canceled) {
		return nil
	}
	return w.err
}

// until waits for c, or for t to be over, while the system works.
func (w *work) until(ctx context.Context, c <-chan struct{}, t *tally, most time.Duration, what string) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	select {
	case <-c:
		return nil
	case <-t.done:
		return nil
	case <-w.ended:
		if t.over() { // that is why it has ended
			return nil
		}
		return errors.Join(fmt.Errorf("it ended before %s", what), w.err)
	case <-ctx.Done():
		select {
		case <-c: // the machine itself stood still, and the clock went on
			return nil
		default:
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
	}
}

// failures makes the program fail if a cell did.
func (b *bench) failures() error {
	n := 0
	for _, r := range b.results {
		if r.Failed != "" {
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("%d of %d cells failed", n, len(b.results))
	}
	return nil
}

// servers are what the systems talk to. All of them run all the time; a server
// that nobody talks to takes no share of the machine worth naming.
type servers struct{ *rig.Servers }

// startServers starts PostgreSQL with the settings that it comes with, and nsqd
// if it is needed. The peers launch what else they need.
func startServers(ctx context.Context, chosen []contender) (*servers, error) {
	if _, err := os.Stat("queue/graphile/package.json"); err != nil {
		return nil, fmt.Errorf("find the peers' files; run this in the folder bench: %w", err)
	}
	var o devstack.Options
	if len(choose(chosen, []string{"nsq"})) > 0 {
		o.Only = []devstack.Service{devstack.NSQ}
	}
	inner, err := rig.Start(ctx, "", o)
	return &servers{inner}, err
}

// written is how much the database has written so far.
type written struct {
	wal     int64 // bytes
	commits int64 // transactions that wrote something; a claim that finds nothing is none
}

func (s *servers) written(ctx context.Context) (w written, err error) {
	err = s.DB.QueryRow(ctx, `
		SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).Scan(&w.wal, &w.commits)
	if err != nil {
		return w, fmt.Errorf("read how much was written: %w", err)
	}
	return w, nil
}

// settle makes runs begin alike: nothing of the one before is left to be written.
func (s *servers) settle(ctx context.Context) error {
	if _, err := s.DB.Exec(ctx, `CHECKPOINT`); err != nil {
		return fmt.Errorf("write a checkpoint: %w", err)
	}
	return nil
}

// reload empties a peer's table and inserts n jobs by the chunk.
func reload(ctx context.Context, db *pgxpool.Pool, table string, n, chunk int, insert func(from, to int) error) error {
	if _, err := db.Exec(ctx, `TRUNCATE `+table); err != nil {
		return fmt.Errorf("empty the queue: %w", err)
	}
	for from := 0; from < n; from += chunk {
		if err := insert(from, min(from+chunk, n)); err != nil {
			return err
		}
	}
	if _, err := db.Exec(ctx, `VACUUM ANALYZE `+table); err != nil {
		return fmt.Errorf("vacuum: %w", err)
	}
	return nil
}

// publishAll publishes n items, numbered from 0, evenly over the first stages, a thousand at a time.
func publishAll(n, first int, publish func(stage int, items []int) error) error {
	const chunk = 1000
	lists := make([][]int, first)
	for i := range n {
		stage := i % first
		lists[stage] = append(lists[stage], i)
		if len(lists[stage]) == chunk || i+first >= n {
			if err := publish(stage, lists[stage]); err != nil {
				return fmt.Errorf("publish: %w", err)
			}
			lists[stage] = nil
		}
	}
	return nil
}
