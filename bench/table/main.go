// Package table measures whole ingests beside the limits of the machine, all in one run:
// how long they take, the processor time of each part, what is asked of S3 and of
// PostgreSQL, and how far that is from what the machine can do.
//
//	go run . table -only W1,S
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
	"slices"
	"time"

	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// chosen parses the command line: the workloads that are asked for, and whether the
// transitions are.
func chosen(args []string, stderr io.Writer) (list []workload, transitions bool, err error) {
	f := flag.NewFlagSet("table", flag.ContinueOnError)
	f.SetOutput(stderr)
	only := f.String("only", "", "workloads, separated by commas: W1, S, W2, W3, W4, W5, transitions; empty: all")
	if err := f.Parse(args); err != nil {
		return nil, false, flag.ErrHelp // the flag set has said what is wrong
	}
	if *only == "" {
		return workloads(), true, nil
	}
	for _, name := range rig.Words(*only) {
		i := slices.IndexFunc(workloads(), func(w workload) bool { return w.name == name })
		switch {
		case name == transitionsName:
			transitions = true
		case i < 0:
			return nil, false, fmt.Errorf("there is no workload %q", name)
		default:
			list = append(list, workloads()[i])
		}
	}
	return list, transitions, nil
}

// Run is the program table.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	list, transitions, err := chosen(args, stderr)
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
	l, err := measure(ctx, farol, dir, func(name string, value float64) { fmt.Fprintf(stderr, "%s: %s\n", name, figure(value)) })
	if err != nil {
		return err
	}
	results, err := runAll(ctx, list, transitions, farol, dir, l, m, stderr)
	// Of a run that failed or was interrupted, what there is.
	return errors.Join(err, report(stdout, m, l, results), remember(historyFile, m.rows(l, results)))
}

// runAll measures one workload after the other; one that fails ends the run.
func runAll(ctx context.Context, list []workload, transitions bool, farol, dir string, l limits, m machine, stderr io.Writer) (results []result, err error) {
	for _, w := range list {
		began := time.Now()
		fmt.Fprintf(stderr, "%s: %d bags of %d files of %d bytes\n", w.name, w.bags, w.files, w.size)
		r, err := w.run(ctx, farol, dir, l, m)
		if err != nil {
			return results, fmt.Errorf("measure %s: %w", w.name, err)
		}
		fmt.Fprintf(stderr, "%s: %s s; measured in %v\n", w.name, figure(r.wall), time.Since(began).Round(time.Second))
		results = append(results, r)
	}
	if transitions {
		r, err := queued(ctx, l)
		if err != nil {
			return results, err
		}
		results = append(results, r)
	}
	return results, nil
}
