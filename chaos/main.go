// Command chaos runs the farol program against real servers while what it needs
// fails, and has an oracle judge what came of it. See RELIABILITY.md. "Chaos stores" runs it on
// the S3 stores that archives own: see package stores.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/chaos/rig"
	"github.com/farol-preservation/farol/chaos/stores"
)

func experiments() []experiment {
	list := slices.Concat(processExperiments(), settingsExperiments(), s3Experiments(), answerExperiments(), redisExperiments(), postgresExperiments(), failoverExperiments(), dataExperiments(), requestExperiments(), identityExperiments(), switchExperiments(), upgradeExperiments())
	return append(list, otherStores(list)...)
}

func main() {
	if args := os.Args[1:]; len(args) > 0 && args[0] == "stores" {
		rig.Main("stores", args[1:], stores.Run)
	}
	rig.Main("chaos", os.Args[1:], chaos)
}

type flags struct {
	options

	only                     string
	list, whole, json, table bool
	limit                    time.Duration
}

func parse(args []string) (f flags, err error) {
	set := flag.NewFlagSet("chaos", flag.ContinueOnError)
	set.StringVar(&f.only, "only", "", "run only these `experiments`, separated by commas")
	set.BoolVar(&f.list, "list", false, "list the experiments")
	set.BoolVar(&f.whole, "all", false, "run all experiments, and not only the short ones")
	set.Uint64Var(&f.seed, "seed", 1, "seed of the random choice of bags, victims and faults")
	set.IntVar(&f.bags, "bags", 0, "bags of each experiment (default 120; 300 with --all)")
	set.IntVar(&f.workers, "workers", 3, "worker processes")
	set.BoolVar(&f.keep, "keep", false, "keep data and logs of every experiment, and not only of those that fail")
	set.StringVar(&f.before, "before", "", "`commit` that upgrade takes for the release before (default the one before the newest migration)")
	set.BoolVar(&f.json, "json", false, "print the results as JSON")
	set.BoolVar(&f.table, "markdown", false, "print the results as a table for RELIABILITY.md")
	set.DurationVar(&f.limit, "limit", 8*time.Minute, "timeout of one experiment")
	if err := set.Parse(args); err != nil {
		return f, err //nolint:wrapcheck // it is printed already
	}
	if f.bags == 0 {
		f.bags = 120
		if f.whole {
			f.bags = 300
		}
	}
	if f.bags < 10 || f.workers < 1 {
		return f, errors.New("--bags must be at least 10 and --workers at least 1")
	}
	return f, nil
}

// choose returns the experiments that were asked for.
func choose(f flags) (chosen []experiment, err error) {
	list := experiments()
	if f.only == "" {
		for _, e := range list {
			if e.short || f.whole {
				chosen = append(chosen, e)
			}
		}
		return chosen, nil
	}
	return rig.Choose(list, f.only, func(e experiment) string { return e.name }) //nolint:wrapcheck // it names it
}

// chaos runs the experiments and says whether all promises were kept.
func chaos(ctx context.Context, args []string) (ok bool, err error) {
	f, err := parse(args)
	if err != nil {
		return false, err
	}
	if f.list {
		for _, e := range experiments() {
			fmt.Printf("%-26s %-6s %s\n", e.name, map[bool]string{true: "short"}[e.short], e.does)
		}
		return true, nil
	}
	chosen, err := choose(f)
	if err != nil {
		return false, err
	}
	dir, err := rig.TempDir("farol-chaos-")
	if err != nil {
		return false, err //nolint:wrapcheck // it says what it was making
	}
	srv, err := startServers(ctx, dir)
	if err != nil {
		return false, err
	}
	defer func() {
		err = errors.Join(err, srv.Stop(ctx))
		if left, _ := filepath.Glob(filepath.Join(dir, "x*")); len(left) == 0 && err == nil {
			err = srv.Remove(context.WithoutCancel(ctx))
			os.RemoveAll(dir) //nolint:errcheck // it is a temporary directory
		}
	}()
	return experimentAll(ctx, srv, chosen, f)
}

func experimentAll(ctx context.Context, srv *servers, chosen []experiment, f flags) (ok bool, err error) {
	report := report{Version: srv.Version, Command: "make chaos ARGS='" + strings.Join(os.Args[1:], " ") + "'"}
	began := time.Now()
	ok = true
	for i, e := range chosen {
		fmt.Fprintf(os.Stderr, "%s  %d of %d: %s: %s\n", time.Now().Format(time.TimeOnly), i+1, len(chosen), e.name, e.does)
		one, cancel := context.WithTimeoutCause(ctx, f.limit, fmt.Errorf("the experiment took longer than %s", f.limit))
		r := run(one, srv, e, i+1, f.options)
		cancel()
		if ctx.Err() != nil {
			break
		}
		report.add(r)
		ok = ok && r.good()
		r.print(os.Stderr)
	}
	report.Seconds = time.Since(began).Seconds()
	switch {
	case f.json:
		err = report.json(os.Stdout)
	case f.table:
		err = report.markdown(os.Stdout)
	default:
		err = report.text(os.Stdout)
	}
	if ctx.Err() != nil {
		return false, errors.Join(err, errors.New("interrupted"))
	}
	return ok, err
}
