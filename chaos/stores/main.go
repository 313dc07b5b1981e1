// Command stores runs Farol's whole life on the S3 stores that archives own, one after
// the other, and prints what each act came to. See docs/stores.md.
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

	"github.com/farol-preservation/farol/chaos/rig"
)

func main() {
	// The second Ctrl-C ends us at once; all servers end with us.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	ok, err := stores(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "stores:", err)
		os.Exit(2)
	case !ok:
		os.Exit(1)
	}
}

type flags struct {
	only, cache             string
	list, keep, json, table bool
	seed                    uint64
}

func parse(args []string) (f flags, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	set := flag.NewFlagSet("stores", flag.ContinueOnError)
	set.StringVar(&f.only, "only", "", "run only these `stores`, separated by commas, and leave docs/stores.md alone")
	set.StringVar(&f.cache, "cache", filepath.Join(cache, "farol-stores"), "`directory` that keeps installed stores for later runs")
	set.BoolVar(&f.list, "list", false, "list the stores")
	set.BoolVar(&f.keep, "keep", false, "keep data and logs of every store, and not only of those where something went wrong")
	set.BoolVar(&f.json, "json", false, "print the results as JSON")
	set.BoolVar(&f.table, "markdown", false, "print the results as the table of docs/stores.md")
	set.Uint64Var(&f.seed, "seed", 1, "seed of the bags")
	return f, set.Parse(args) //nolint:wrapcheck // it is printed already
}

// choose returns the stores that were asked for.
func choose(only string) (chosen []store, err error) {
	list := allStores()
	if only == "" {
		return list, nil
	}
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(list, func(s store) bool { return s.name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("there is no store %q; --list lists them", name)
		}
		chosen = append(chosen, list[i])
	}
	return chosen, nil
}

// stores runs a life on each store and says whether all went right.
func stores(ctx context.Context, args []string) (ok bool, err error) {
	f, err := parse(args)
	if err != nil {
		return false, err
	}
	if f.list {
		for _, s := range allStores() {
			fmt.Printf("%-16s %s\n", s.name, s.does)
		}
		return true, nil
	}
	chosen, err := choose(f.only)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "farol-stores-")
	if err != nil {
		return false, fmt.Errorf("make the data directory: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil { // PostgreSQL's user passes through it, if we are root
		return false, fmt.Errorf("make the data directory: %w", err)
	}
	drafts, err := makeBags(filepath.Join(dir, "bags"), f.seed)
	if err != nil {
		return false, err
	}
	report := report{Command: strings.TrimSpace("make stores ARGS='" + strings.Join(args, " ") + "'"), Acts: actNames()}
	began := time.Now()
	for i, s := range chosen {
		fmt.Fprintf(os.Stderr, "%s  %d of %d: %s: %s\n", time.Now().Format(time.TimeOnly), i+1, len(chosen), s.name, s.does)
		r := one(ctx, s, filepath.Join(dir, s.name), f, drafts)
		if ctx.Err() != nil {
			break
		}
		report.Results, report.Version = append(report.Results, r), r.farol
		r.print(os.Stderr)
	}
	report.Seconds = time.Since(began).Seconds()
	if left, _ := filepath.Glob(filepath.Join(dir, "*", "farol")); len(left) == 0 {
		err = os.RemoveAll(dir)
	}
	if ctx.Err() != nil {
		return false, errors.Join(err, errors.New("interrupted"))
	}
	if f.only == "" {
		err = errors.Join(err, report.write(filepath.Join("..", "docs", "stores.md")))
	}
	return report.good(), errors.Join(err, report.printAs(os.Stdout, f))
}

// one runs a life on one store, with servers of its own, which end with it.
func one(ctx context.Context, s store, dir string, f flags, drafts []deposit) (r result) {
	began := time.Now()
	r = result{Store: s.name, Does: s.does}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the store took longer than %s", limit))
	defer cancel()
	h := &host{dir: dir, cache: f.cache}
	err := os.Mkdir(dir, 0o711) //nolint:gosec // PostgreSQL's user passes through it
	var srv *rig.Servers
	if err == nil {
		srv, err = r.live(ctx, s, h, drafts)
	}
	r.Notes = append(r.Notes, h.stop()...)
	if srv != nil {
		r.farol = srv.Version
		err = errors.Join(err, srv.Stop(ctx))
	}
	if err != nil {
		r.Error = err.Error()
	}
	r.Seconds = time.Since(began).Seconds() - r.Installed
	if f.keep || !r.good() {
		r.Notes = append(r.Notes, "kept in "+dir)
		return r
	}
	if err := errors.Join(srv.Remove(context.WithoutCancel(ctx)), os.RemoveAll(dir)); err != nil {
		r.Error = err.Error()
	}
	return r
}

// live installs the store, starts all servers, and takes every act.
func (r *result) live(ctx context.Context, s store, h *host, drafts []deposit) (*rig.Servers, error) {
	began := time.Now()
	pgBin, postgres, err := "", "", error(nil)
	if s.postgres != nil {
		pgBin, postgres, err = s.postgres(ctx, h)
	}
	if err == nil && s.install != nil {
		h.installed, err = s.install(ctx, h)
	}
	r.Installed = time.Since(began).Seconds()
	if err != nil {
		return nil, err
	}
	srv, err := rig.Start(ctx, h.dir, pgBin)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it was starting
	}
	at, version, err := s.start(ctx, h, srv)
	r.Release = strings.TrimSpace(version + " " + postgres)
	if err != nil {
		return srv, fmt.Errorf("start the store: %w", err)
	}
	err = at.Connect(s.client)
	if err == nil {
		err = h.await(ctx, "the store to list its buckets", answers(at))
	}
	if err != nil {
		return srv, err
	}
	l, err := newLife(ctx, srv, at, s, drafts)
	if err != nil {
		return srv, err
	}
	defer l.end()
	r.Acts = l.all(ctx)
	return srv, nil
}
