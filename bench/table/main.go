// Package table measures whole ingests beside the limits of the machine, all in one run:
// how long they take, the processor time of each part, what is asked of S3 and of
// PostgreSQL, and how far that is from what the machine can do.
//
//	go run . table -only W1,S -against HEAD~1
//
// It is run in the folder bench, starts every server itself and needs Linux. It appends the
// figures to history.csv. docs/benchmarks.md says how to read them.
package table

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// asked is what the command line asks for.
type asked struct {
	list        []workload
	transitions bool
	against     string // the commit that is measured, too; "": none
}

func parse(args []string, stderr io.Writer) (a asked, err error) {
	f := flag.NewFlagSet("table", flag.ContinueOnError)
	f.SetOutput(stderr)
	only := f.String("only", "", "workloads, separated by commas: W1, S, W2, W3, W4, W5, transitions; empty: all")
	f.StringVar(&a.against, "against", "", "a commit that is built, too, and measured in turn with this tree")
	if err := f.Parse(args); err != nil {
		return a, flag.ErrHelp // the flag set has said what is wrong
	}
	if *only == "" {
		a.list, a.transitions = workloads(), true
	}
	for _, name := range rig.Words(*only) {
		i := slices.IndexFunc(workloads(), func(w workload) bool { return w.name == name })
		switch {
		case name == transitionsName:
			a.transitions = true
		case i < 0:
			return a, fmt.Errorf("there is no workload %q", name)
		default:
			a.list = append(a.list, workloads()[i])
		}
	}
	return a, nil
}

// Run is the program table.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	a, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if _, err := os.Stat("table/main.go"); err != nil {
		return fmt.Errorf("find the history; run this in the folder bench: %w", err)
	}
	m, err := thisMachine(ctx)
	if err != nil {
		return err
	}
	dir, err := scratch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove(dir)) }()
	farol, err := devstack.Build(ctx, "..", dir)
	if err != nil {
		return err
	}
	sides := []side{{of: "this tree", farol: farol, queue: ownQueue}}
	if a.against != "" {
		before, err := sideOf(ctx, a.against, filepath.Join(dir, "before"), a.transitions)
		if err != nil {
			return err
		}
		sides = append(sides, before)
	}
	l, err := measure(ctx, farol, dir, func(name string, value float64) { fmt.Fprintf(stderr, "%s: %s\n", name, figure(value)) })
	if err != nil {
		return err
	}
	results, err := runAll(ctx, a, sides, dir, l, m, stderr)
	// Of a run that failed or was interrupted, what there is.
	return errors.Join(err, report(stdout, m, l, results), remember(historyFile, m.rows(l, results)))
}

// runAll measures one workload after the other; one that fails ends the run.
func runAll(ctx context.Context, a asked, sides []side, dir string, l limits, m machine, stderr io.Writer) (results []result, err error) {
	for _, w := range a.list {
		fmt.Fprintf(stderr, "%s: %d bags of %d files of %d bytes\n", w.name, w.bags, w.files, w.size)
		r, err := inTurn(sides, func(s side) (result, error) {
			began := time.Now()
			r, err := w.run(ctx, s.farol, dir, l, m)
			if err != nil {
				return r, fmt.Errorf("measure %s of %s: %w", w.name, s.of, err)
			}
			fmt.Fprintf(stderr, "%s of %s: %s s; measured in %v\n", w.name, s.of, figure(r.wall), time.Since(began).Round(time.Second))
			return r, nil
		})
		if err != nil {
			return results, err
		}
		results = append(results, r)
	}
	if a.transitions {
		r, err := inTurn(sides, func(s side) (result, error) { return queued(ctx, s, l) })
		if err != nil {
			return results, err
		}
		results = append(results, r)
	}
	return results, nil
}
