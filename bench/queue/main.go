// Package queue measures Farol's queue beside public ones: all of them in one
// run, on one machine, those that use PostgreSQL on the same server.
//
//	go run . queue -only farol,river -workloads steady -dur 5s
//
// It is run in the folder bench and starts every server itself, on loopback
// ports. Their data is in the temporary directory, which ought to be on a disk:
// what is compared is mostly what it costs to be durable. docs/benchmarks.md
// says what the workloads mean.
package queue

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/bench/rig"
)

// config is what the command line asks for.
type config struct {
	only      []string
	workloads []string
	workers   []int
	batches   []int
	backlogs  []int
	dur       time.Duration
	reps      int
	items     int
	samples   int
	rate      int
	pin       time.Duration
	window    time.Duration
	conns     int
	json      bool
	against   string
}

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("queue", flag.ContinueOnError)
	f.SetOutput(stderr)
	only := f.String("only", "", "systems, by name or by the part before its first dash; empty: all")
	workloads := f.String("workloads", "drain,steady,wake,pinned", "what to measure")
	workers := f.String("workers", "1,8,64", "workers, for steady")
	batches := f.String("k", "1,10,100", "items a claim, for steady, where the system lets a client choose")
	backlogs := f.String("backlog", "10000", "waiting items, for steady; peers are measured up to a million of them")
	f.DurationVar(&c.dur, "dur", 6*time.Second, "how long one run of steady is measured, after a fifth of it to warm up")
	f.IntVar(&c.reps, "reps", 3, "repetitions, taking turns over the systems; the median is printed")
	f.IntVar(&c.items, "items", 5000, "items of a drain")
	f.IntVar(&c.samples, "samples", 300, "samples of wake")
	f.IntVar(&c.rate, "rate", 5000, "hops a second that pinned offers")
	f.DurationVar(&c.pin, "pin", time.Minute, "how long pinned holds its snapshot")
	f.DurationVar(&c.window, "window", 10*time.Second, "length of a window of pinned")
	f.IntVar(&c.conns, "conns", 0, "connections of Farol's pool; 0: what a worker has that nobody configured")
	f.StringVar(&c.against, "against", fastest, "the commit of farol-before: Farol's queue as it was; empty: none")
	f.BoolVar(&c.json, "json", false, "print every run as JSON instead of the tables")
	if err := f.Parse(args); err != nil {
		return c, flag.ErrHelp // the flag set has said what is wrong
	}
	c.only, c.workloads = rig.Words(*only), rig.Words(*workloads)
	for _, w := range c.workloads {
		if !slices.Contains([]string{"drain", "steady", "wake", "pinned"}, w) {
			return c, fmt.Errorf("there is no workload %q", w)
		}
	}
	var err error
	for _, list := range []struct {
		to   *[]int
		from string
	}{{&c.workers, *workers}, {&c.batches, *batches}, {&c.backlogs, *backlogs}} {
		if *list.to, err = rig.Numbers(list.from); err != nil {
			return c, err
		}
	}
	if min(c.reps, c.items, c.samples, c.rate) < 1 || min(c.dur, c.pin, c.window) <= 0 {
		return c, errors.New("repetitions, items, samples, rates and times must be more than nothing")
	}
	return c, nil
}

// Run is the program queue.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	// As farol work does, and for the clients of all systems alike.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(400 << 20)
	c, err := parse(args, stderr)
	if err != nil {
		return err
	}
	chosen := choose(contenders(c), c.only)
	if len(chosen) == 0 {
		return fmt.Errorf("no system is called %s", strings.Join(c.only, " or "))
	}
	s, err := startServers(ctx, chosen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop(context.WithoutCancel(ctx))) }()
	b := &bench{config: c, servers: s, progress: stderr}
	defer func() { err = errors.Join(err, b.stop(context.WithoutCancel(ctx))) }()
	if err := b.start(ctx, chosen); err != nil {
		return err
	}
	for _, w := range c.workloads {
		switch w {
		case "drain":
			b.drain(ctx)
		case "steady":
			b.steady(ctx)
		case "wake":
			b.wake(ctx)
		case "pinned":
			b.pinned(ctx)
		}
	}
	// Of a run that was interrupted, what there is.
	if err := b.report(context.WithoutCancel(ctx), stdout); err != nil {
		return err
	}
	return b.failures()
}
