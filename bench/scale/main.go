// Package scale runs 1, 4, 16, 64 and 100 worker processes on one database, with the real engine,
// pools and SQL, and stages that only sleep as long as real ones last:
//
//	go run . scale -workers 1,16 -bags small -dur 10s
//
// It shows how much work a PostgreSQL can hand out, and what the work of the queue costs it. It is
// run in the folder bench and starts its own servers, on loopback ports, with data in the temporary
// directory. docs/scale.md says what the figures mean.
package scale

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/farol-preservation/farol/bench/rig"
)

// workerCommand makes this program one of the workers.
const workerCommand = "worker"

// Run is the program scale.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	if len(args) == 1 && args[0] == workerCommand {
		return work(ctx, os.Stdin, stdout)
	}
	c, err := parse(args, stderr)
	if err != nil {
		return err
	}
	s, err := startServers(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop(context.WithoutCancel(ctx))) }()
	results, err := measureAll(ctx, s, c, stderr)
	return errors.Join(report(stdout, s, c, results), err)
}

// config is what the command line asks for.
type config struct {
	workers    []int
	bags       []mix
	dur, warm  time.Duration
	load       float64
	pools      string
	recordCap  int
	postgres   []string
	apart      bool
	pooler     int
	own        bool
	durations  durations
	statements int
}

func parse(args []string, stderr io.Writer) (c config, err error) {
	f := flag.NewFlagSet("scale", flag.ContinueOnError)
	f.SetOutput(stderr)
	workers := f.String("workers", "1,4,16,64,100", "worker processes, each number in a run of its own")
	bags := f.String("bags", "tiny,small", "what is deposited: tiny, small, many, large, huge, mixed or file, by commas; file: as often as the file of durations has each")
	file := f.String("durations", "", "file made by durations.sql from a registry of your own; empty: as measured on the development stack")
	f.DurationVar(&c.dur, "dur", 20*time.Second, "how long a run is measured")
	f.DurationVar(&c.warm, "warm", 5*time.Second, "how long it runs before, in addition to the time of two bags, and half a second for each worker")
	f.Float64Var(&c.load, "load", 0.8, "arriving work as a share of what the slots of the workers could do")
	f.StringVar(&c.pools, "pools", "", "pools of a worker, as in FAROL_POOLS; empty: the default")
	f.IntVar(&c.recordCap, "cap", 0, "cap of the stage Record; 0: none")
	f.BoolVar(&c.apart, "apart", false, "each worker has one of the pools, in turn; without -pools, two slots for one stage")
	f.IntVar(&c.pooler, "pooler", 0, "go through PgBouncer, which keeps prepared statements, with so many connections to PostgreSQL; 0: directly")
	f.BoolVar(&c.own, "own-core", false, "PostgreSQL has the first core of the machine for itself, and all others have the rest")
	f.IntVar(&c.statements, "statements", 0, "how many kinds of statements are printed for each run, the most expensive first")
	rig.ServerSettings(f, &c.postgres)
	if err := f.Parse(args); err != nil {
		return c, flag.ErrHelp // the flag set has said what is wrong
	}
	if c.apart && c.pools == "" {
		for _, stage := range rig.Stages() {
			c.pools += fmt.Sprintf("|%s=%[1]s;slots=2", stage)
		}
		c.pools = c.pools[1:]
	}
	if c.durations, err = readDurations(*file); err != nil {
		return c, err
	}
	if c.workers, err = rig.Numbers(*workers); err != nil {
		return c, err
	}
	for _, name := range rig.Words(*bags) {
		m, err := newMix(name, c.durations)
		if err != nil {
			return c, err
		}
		c.bags = append(c.bags, m)
	}
	if c.dur <= 0 || c.warm < 0 || c.load <= 0 || c.recordCap < 0 || c.pooler < 0 || len(c.bags) == 0 {
		return c, errors.New("times, the load and the list of bags must be more than nothing")
	}
	return c, nil
}

// measureAll makes one run after the other. Those before one that fails are results all the same.
func measureAll(ctx context.Context, s *servers, c config, progress io.Writer) (results []result, err error) {
	for _, bags := range c.bags {
		for _, workers := range c.workers {
			fmt.Fprintf(progress, "%s bags, %d workers\n", bags.name, workers)
			r, err := s.measure(ctx, c, bags, workers)
			if err != nil {
				return results, fmt.Errorf("%s bags, %d workers: %w", bags.name, workers, errors.Join(err, ctx.Err()))
			}
			results = append(results, r)
		}
	}
	return results, nil
}
