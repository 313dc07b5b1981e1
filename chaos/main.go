// Command chaos runs the farol program against real servers while what it needs
// fails, and has an oracle judge what came of it. See RELIABILITY.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func experiments() []experiment {
	return slices.Concat(processExperiments(), settingsExperiments(), s3Experiments(), answerExperiments(), redisExperiments(), postgresExperiments(), failoverExperiments(), dataExperiments(), requestExperiments())
}

func main() {
	// The second Ctrl-C ends us at once; the servers and workers end with us.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	ok, err := chaos(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	case !ok:
		os.Exit(1)
	}
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
	for name := range strings.SplitSeq(f.only, ",") {
		i := slices.IndexFunc(list, func(e experiment) bool { return e.name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("there is no experiment %q; --list lists them", name)
		}
		chosen = append(chosen, list[i])
	}
	return chosen, nil
}

// chaos runs the experiments and says whether all promises were kept.
func chaos(ctx context.Context, args []string) (ok bool, err error) {
	f, err := parse(args)
	if err != nil {
		return false, err
	}
	if f.list {
		for _, e := range experiments() {
			fmt.Printf("%-20s %-6s %s\n", e.name, map[bool]string{true: "short"}[e.short], e.does)
		}
		return true, nil
	}
	chosen, err := choose(f)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "farol-chaos-")
	if err != nil {
		return false, fmt.Errorf("make the data directory: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil { // PostgreSQL's user passes through it, if we are root
		return false, fmt.Errorf("make the data directory: %w", err)
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
