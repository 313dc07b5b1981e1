package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/farol-preservation/farol/bench/rig"
)

// fastest is the commit at which Farol's queue did the most transitions a second: what it lost
// since is seen in each run.
const fastest = "e65d20f1"

// before is Farol's queue of an earlier commit. The program of that commit measures it, on a
// PostgreSQL of its own.
type before struct {
	rev  string
	tree *rig.Tree
	left []*result // that were measured with one that was asked for
}

// start builds the program. A repository may lack the commit that nobody named.
func (o *before) start(ctx context.Context, s *servers) (version string, err error) {
	if o.tree, err = rig.Checkout(ctx, "..", o.rev, filepath.Join(s.Dir, "before")); err == nil {
		err = o.tree.BuildBench(ctx, "queue")
	}
	if err != nil && o.rev == fastest {
		err = fmt.Errorf("%w: %w", errMissing, err)
	}
	if err != nil {
		return "", err
	}
	return "commit " + o.tree.Commit, nil
}

// measure measures a cell. All cells of a workload are measured in one go, and each is
// returned once.
func (o *before) measure(ctx context.Context, c config, cell *result) (figures, error) {
	if f, found, err := o.take(cell); found {
		return f, err
	}
	args := []string{
		"-json", "-only", "farol", "-reps", "1", "-workloads", cell.Workload, "-backlog", strconv.Itoa(max(1, cell.Backlog)),
		"-workers", strings.Trim(fmt.Sprint(c.workers), "[]"), "-k", strings.Trim(fmt.Sprint(c.batches), "[]"), "-dur", c.dur.String(),
		"-items", strconv.Itoa(c.items), "-samples", strconv.Itoa(c.samples), "-conns", strconv.Itoa(c.conns),
	}
	if o.tree.Has("bench/queue/before.go") {
		args = append(args, "-against", "")
	}
	out, failed := o.tree.Bench(ctx, args...)
	if err := o.read(out); err != nil {
		return figures{}, errors.Join(failed, err)
	}
	f, found, err := o.take(cell)
	if !found {
		err = errors.Join(failed, fmt.Errorf("commit %s did not measure it", o.tree.Commit))
	}
	return f, err
}

// read reads what the program printed.
func (o *before) read(out []byte) error {
	var printed struct{ Results []*result }
	if err := json.Unmarshal(out, &printed); err != nil {
		return fmt.Errorf("read its figures: %w", err)
	}
	o.left = printed.Results
	return nil
}

// take looks for a cell among what was measured and takes it away.
func (o *before) take(cell *result) (f figures, found bool, err error) {
	for i, r := range o.left {
		if r == nil || r.System != "farol" || r.Workload != cell.Workload || r.Backlog != cell.Backlog || r.Load != cell.Load {
			continue
		}
		o.left[i] = nil
		if len(r.Runs) == 0 || r.Failed != "" {
			return f, true, errors.New(r.Failed)
		}
		return r.Runs[0], true, nil
	}
	return f, false, nil
}

// What the workloads do with other systems, the other program does.
func (o *before) fill(context.Context, int, int) error    { return nil }
func (o *before) put(context.Context, int) error          { return nil }
func (o *before) run(context.Context, load, *tally) error { return nil }
func (o *before) stop(context.Context) error              { return nil }
