package table

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/farol-preservation/farol/bench/rig"
)

// result is what a workload came to. Counts and processor time are of all rounds, the time
// is the median of one.
type result struct {
	counts

	name       string
	of         string  // the commit, of what is measured next to this tree
	wall       float64 // seconds
	used       usage
	neighbours float64 // seconds of processor time that others had
	rate       float64 // transitions a second, of the queue alone
	least      need
	goal       float64            // of the ratio; 0: none
	moved      map[string]float64 // seconds that others take to move the bytes; nil: not measured
	before     *result            // of the other commit, if there is one
}

// cpu is Farol's processor time of a round, with that of its servers.
func (r result) cpu() float64 {
	if r.used.cpu == nil {
		return math.NaN()
	}
	return r.used.all()
}

func (r result) per(n int64) float64 { return float64(n) / float64(r.Transitions) }

func (r result) perFile() float64 { return float64(r.Requests) / float64(r.Stored) }

// ratio is how many times as long it took as the resource needs that it needs most.
func (r result) ratio() float64 { return r.wall / r.least.seconds }

// run measures a workload on a farol dev of its own.
func (w workload) run(ctx context.Context, farol, dir string, l limits, m machine) (r result, err error) {
	d, err := startDev(ctx, farol, dir)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	r = result{name: w.name, rate: math.NaN(), goal: w.goal}
	var walls []float64
	for round := range w.rounds {
		if err := d.deposit(ctx, fmt.Sprintf("%s-%d", w.name, round), w); err != nil {
			return r, err
		}
		if w.size >= partSize && round == 0 {
			if r.moved, err = movedByOthers(ctx, d.settings, d.bucket.Name()); err != nil {
				return r, err
			}
		}
		if _, err := d.db.Exec(ctx, `CHECKPOINT`); err != nil {
			return r, fmt.Errorf("write a checkpoint: %w", err)
		}
		one, err := d.round(ctx)
		if err != nil {
			return r, err
		}
		walls = append(walls, one.wall)
		r.add(one)
	}
	slices.Sort(walls)
	r.wall = walls[len(walls)/2]
	for name := range r.used.cpu {
		r.used.cpu[name] /= float64(w.rounds)
	}
	r.neighbours /= float64(w.rounds)
	r.least = w.least(int(r.Stored)/w.rounds, l, m.cores)
	return r, nil
}

// round has the deposited bags ingested and counts what that takes.
func (d *dev) round(ctx context.Context) (r result, err error) {
	before, err := d.count(ctx)
	if err != nil {
		return r, err
	}
	usedBefore, own := used(rig.Procfs, d.cmd.Process.Pid), ownCPU()
	took, err := d.ingest(ctx)
	if err != nil {
		return r, err
	}
	own = ownCPU() - own
	r.used = used(rig.Procfs, d.cmd.Process.Pid).since(usedBefore)
	r.neighbours = max(0, r.used.busy-r.used.all()-own)
	after, err := d.count(ctx)
	if err != nil {
		return r, err
	}
	r.counts, r.wall = after.plus(before, -1), took.Seconds()
	return r, nil
}

// add adds a round.
func (r *result) add(one result) {
	r.counts = r.plus(one.counts, 1)
	r.neighbours += one.neighbours
	if r.used.cpu == nil {
		r.used = one.used
		return
	}
	for name, seconds := range one.used.cpu {
		r.used.cpu[name] += seconds
	}
	r.used.peak = one.used.peak
}

// ownQueue is the program queue of this tree.
func ownQueue(ctx context.Context, args ...string) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	queue := exec.CommandContext(ctx, self, append([]string{"queue"}, args...)...)
	queue.Stderr = os.Stderr
	return queue.Output()
}

// queued has the program queue measure transitions.
func queued(ctx context.Context, s side, l limits) (r result, err error) {
	out, err := s.queue(ctx, "-only", "farol-carried", "-workloads", "steady", "-workers", "8", "-k", "100", "-json")
	if err != nil {
		return r, fmt.Errorf("measure the queue of %s: %w", s.of, err)
	}
	if r, err = readQueue(out); err != nil {
		return r, err
	}
	// As if a second were a round: the least is what as many SELECTs would take.
	r.wall, r.least = 1, need{"selects", r.rate / l[selects]}
	return r, nil
}

// readQueue reads what the program queue came to, as workers use the queue.
func readQueue(out []byte) (r result, err error) {
	var measured struct {
		Results []struct {
			System string
			Runs   []struct {
				Hops, Commits int64
				Seconds       float64
				WAL           int64 `json:"wal_bytes"`
			}
		}
	}
	if err := json.Unmarshal(out, &measured); err != nil {
		return r, fmt.Errorf("read what the queue came to: %w", err)
	}
	r = result{name: transitionsName, neighbours: math.NaN()}
	var rates []float64
	for _, of := range measured.Results {
		if of.System != "farol-carried" {
			continue
		}
		for _, run := range of.Runs {
			rates = append(rates, float64(run.Hops)/run.Seconds)
			r.Transitions, r.Commits, r.WAL = r.Transitions+run.Hops, r.Commits+run.Commits, r.WAL+run.WAL
		}
	}
	if len(rates) == 0 {
		return r, errors.New("read what the queue came to: there is no run of farol-carried")
	}
	slices.Sort(rates)
	r.rate = rates[len(rates)/2]
	return r, nil
}

func scratch() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "farol-bench-"); err == nil {
		err = os.Chmod(dir, 0o711) //nolint:gosec // PostgreSQL's user passes through it
	}
	if err != nil {
		return "", fmt.Errorf("make the data directory: %w", err)
	}
	return filepath.Clean(dir), nil
}

// remove removes all data at the end, and not that of a workload before the next one: for
// half a minute ext4 passes over every inode of a deleted file when it makes another, so that
// a deletion would count against the workload that makes files then.
func remove(dir string) error {
	databases, err := filepath.Glob(filepath.Join(dir, "data-*", "postgres"))
	for _, path := range databases {
		if target, linked := os.Readlink(path); linked == nil { // under root the database may be elsewhere
			err = errors.Join(err, os.RemoveAll(target))
		}
	}
	return errors.Join(err, os.RemoveAll(dir))
}
