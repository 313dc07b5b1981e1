// Package lists measures the lists of the REST API on an archive of many years:
//
//	go run . lists -scale 0.01 -dur 10s
//
// It fills a database with items, objects, files and events, and reads each list as 50 people
// do: first, deep and last pages. It also measures what the lists cost the queue, and what their
// indexes cost recordings and the archive. It is run in the folder bench and starts its own
// PostgreSQL on a loopback port. docs/benchmarks.md says what the figures mean.
package lists

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
)

// serveCommand makes this program the server that is measured.
const serveCommand = "serve"

// Run is the program lists.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	if len(args) == 1 && args[0] == serveCommand {
		return serve(ctx, os.Stdin, stdout)
	}
	c, err := parse(args, stderr)
	if err != nil {
		return err
	}
	s, err := startServers(ctx, c, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop(context.WithoutCancel(ctx))) }()
	people, err := s.people(ctx, c)
	if err != nil {
		return err
	}
	fmt.Fprintln(stderr, "finding first, deep and last pages")
	if err := people.prepare(ctx, s.DB, s.server.url); err != nil {
		return err
	}
	m := &measurement{servers: s, config: c, people: people, out: stdout, progress: stderr}
	for _, part := range c.only {
		fmt.Fprintln(stderr, "measuring", part)
		if err := parts()[part](m, ctx); err != nil {
			return fmt.Errorf("measure %s: %w", part, err)
		}
	}
	return nil
}

// config is what the command line asks for.
type config struct {
	sizes    sizes
	dir      string
	only     []string
	postgres []string
	callers  int
	crowd    int
	streams  int
	pause    time.Duration
	dur      time.Duration
	rounds   int
	rate     int
	bags     int
	archived int
}

// parts are what can be measured.
func parts() map[string]func(*measurement, context.Context) error {
	return map[string]func(*measurement, context.Context) error{
		"lists": (*measurement).lists, "console": (*measurement).console, "rate": (*measurement).requests,
		"memory": (*measurement).memory, "transitions": (*measurement).transitions, "records": (*measurement).records, "indexes": (*measurement).indexes,
	}
}

func parse(args []string, stderr io.Writer) (c config, err error) {
	f := flag.NewFlagSet("lists", flag.ContinueOnError)
	f.SetOutput(stderr)
	scale := f.Float64("scale", 1, "share of 10 M ended and 1 M live items, 20 M files and 60 institutions' records")
	f.Int64Var(&c.sizes.Ended, "ended", 0, "items in the archive; 0: by -scale")
	f.Int64Var(&c.sizes.Live, "live", 0, "items in the queue; 0: by -scale")
	f.Int64Var(&c.sizes.Objects, "objects", 0, "objects; 0: by -scale")
	f.Int64Var(&c.sizes.Files, "files", 0, "files; 0: by -scale")
	f.Int64Var(&c.sizes.Events, "events", 0, "records of events after the ingest; 0: by -scale")
	f.Int64Var(&c.sizes.Copies, "copies", 1, "recorded copies of each file")
	f.Int64Var(&c.sizes.Institutions, "institutions", 60, "institutions; the largest has a quarter of everything")
	f.StringVar(&c.dir, "dir", "", "directory of the database, which is kept there and used again; empty: a temporary one")
	only := f.String("only", "", "what is measured: lists, console, rate, memory, transitions, records or indexes, by commas; empty: everything")
	f.IntVar(&c.callers, "callers", 50, "people who read lists")
	f.IntVar(&c.crowd, "crowd", 500, "callers while the memory is measured")
	f.IntVar(&c.streams, "streams", 200, "pages that are kept up to date while people open pages")
	f.DurationVar(&c.pause, "pause", time.Second, "mean time between an answer and the next request of the same person")
	f.DurationVar(&c.dur, "dur", 5*time.Minute, "how long the lists are read; the other parts take a fifth of it for each round")
	f.IntVar(&c.rounds, "rounds", 5, "pairs of rounds, with and without what is compared")
	f.IntVar(&c.rate, "rate", 20, "lists a second while the queue is measured")
	f.IntVar(&c.bags, "bags", 2000, "bags of 20 files that are recorded in each round")
	f.IntVar(&c.archived, "archived", 20_000, "items that are archived in each round")
	rig.ServerSettings(f, &c.postgres)
	if err := f.Parse(args); err != nil {
		return c, flag.ErrHelp // the flag set has said what is wrong
	}
	all := rig.Words("lists console rate memory transitions records indexes") // in the order in which they are measured
	if c.only = rig.Words(*only); len(c.only) == 0 {
		c.only = all
	}
	for _, part := range c.only {
		if !slices.Contains(all, part) {
			return c, fmt.Errorf("%q is nothing that is measured; name some of %v", part, all)
		}
	}
	c.sizes.complete(*scale)
	return c, c.check()
}

func (c *config) check() error {
	numbers := []int{c.callers, c.crowd, c.streams + 1, c.rounds, c.rate, c.bags, c.archived}
	switch {
	case slices.Min(numbers) < 1, c.dur <= 0, c.pause < 0:
		return errors.New("numbers and times must be more than nothing")
	case slices.Min(c.sizes.list()) < 1:
		return errors.New("there must be some records of each kind")
	case c.sizes.Institutions < 3 || c.sizes.Institutions > 500:
		return errors.New("there must be 3 to 500 institutions")
	}
	return nil
}

// measurement is a run on a filled database.
type measurement struct {
	*servers

	config        config
	people        *people
	out, progress io.Writer
}

// round is how long one of several rounds takes.
func (c *config) round() time.Duration { return c.dur / 5 }
