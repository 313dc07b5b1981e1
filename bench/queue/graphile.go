package queue

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

// graphile is graphile-worker, in two Node processes where there is more than one
// worker, since there are two cores on the machines that this was written on and
// a process of Node's has use for one.
type graphile struct {
	batched bool // local queue and batched completion
	next    bool // a job adds the next one

	dir string
	url string
	db  *pgxpool.Pool
}

// graphileSettings are the first line that a process reads.
type graphileSettings struct {
	URL     string `json:"url"`
	Migrate bool   `json:"migrate"`
	Workers int    `json:"workers"`
	Batched bool   `json:"batched"`
	Next    bool   `json:"next"`
	Drain   bool   `json:"drain"`
	Wake    bool   `json:"wake"`
	Stages  int    `json:"stages"`
}

func (g *graphile) start(ctx context.Context, s *servers) (string, error) {
	g.dir, g.url = filepath.Join("queue", "graphile"), s.Stack.AdminURL
	node, err := exec.CommandContext(ctx, "node", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("node: %w: %w", errMissing, err)
	}
	install := exec.CommandContext(ctx, "npm", "ci", "--omit=dev", "--no-audit", "--no-fund", "--loglevel=error")
	install.Dir = g.dir
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w: %w: %s", errMissing, err, strings.TrimSpace(string(out)))
	}
	if err := g.process(ctx, graphileSettings{Migrate: true}, nil); err != nil {
		return "", fmt.Errorf("%w: migrate: %w", errMissing, err)
	}
	if g.db, err = pgxpool.New(ctx, g.url); err != nil {
		return "", fmt.Errorf("connect to the database: %w", err)
	}
	manifest, err := os.ReadFile(filepath.Join(g.dir, "node_modules", "graphile-worker", "package.json"))
	if err != nil {
		return "", fmt.Errorf("ask graphile-worker for its version: %w", err)
	}
	var worker struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(manifest, &worker); err != nil {
		return "", fmt.Errorf("ask graphile-worker for its version: %w", err)
	}
	return fmt.Sprintf("graphile-worker %s, Node %s", worker.Version, strings.TrimSpace(string(node))), nil
}

func (g *graphile) fill(ctx context.Context, n, first int) error {
	return reload(ctx, g.db, "graphile_worker._private_jobs", n, 10_000, func(from, to int) error { return g.insert(ctx, from, to, first) })
}

func (g *graphile) put(ctx context.Context, n int) error { return g.insert(ctx, 0, n, 1) }

func (g *graphile) insert(ctx context.Context, from, to, first int) error {
	_, err := g.db.Exec(ctx, `
		SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
			SELECT ('hop', json_build_object('item', n, 'stage', n % $3::int), NULL, NULL, NULL, NULL, NULL, NULL)::graphile_worker.job_spec
			FROM generate_series($1::int, $2::int - 1) n))`, from, to, first)
	if err != nil {
		return fmt.Errorf("add jobs: %w", err)
	}
	return nil
}

func (g *graphile) run(ctx context.Context, l load, t *tally) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	processes := min(2, l.Workers)
	group, ctx := errgroup.WithContext(ctx)
	for i := range processes {
		group.Go(func() error {
			return g.process(ctx, graphileSettings{
				Workers: (l.Workers + i) / processes, Batched: g.batched, Next: g.next, Drain: l.Drain, Wake: t.taken != nil,
			}, t)
		})
	}
	return group.Wait()
}

// graphileReport is what a process has done since its last one.
type graphileReport struct {
	Hops  []int     `json:"hops"` // item × stages + stage
	Took  []float64 `json:"took"` // milliseconds
	Begun int       `json:"begun"`
}

// process runs a process of Node's until ctx is done or t is over; the end of
// its input, and so ours, tells it to stop.
func (g *graphile) process(ctx context.Context, settings graphileSettings, t *tally) (err error) {
	settings.URL, settings.Stages = g.url, stages
	first, err := json.Marshal(settings)
	if err != nil {
		return fmt.Errorf("encode the settings: %w", err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "node", "worker.mjs")
	cmd.Dir = g.dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("make the pipe: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("make the pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	kill := func() { cmd.Process.Kill() } //nolint:errcheck // it has ended by itself
	if t != nil {
		go func() {
			select {
			case <-ctx.Done():
			case <-t.done:
			}
			stdin.Close() //nolint:errcheck // a process that has ended needs not be told
			time.AfterFunc(20*time.Second, kill)
		}()
	} else {
		defer time.AfterFunc(time.Minute, kill).Stop()
	}
	_, err = stdin.Write(append(first, '\n'))
	err = errors.Join(err, graphileListen(stdout, t))
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return fmt.Errorf("node: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

func graphileListen(stdout io.Reader, t *tally) error {
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read what it did: %w", err)
		}
		var r graphileReport
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("read what it did: %w", err)
		}
		for range r.Begun {
			t.inHand(0)
		}
		for _, ms := range r.Took {
			t.took(time.Duration(ms * float64(time.Millisecond)))
		}
		for _, hop := range r.Hops {
			t.hop(hop/stages, hop%stages)
		}
	}
}

func (g *graphile) stop(context.Context) error {
	g.db.Close()
	return nil
}
