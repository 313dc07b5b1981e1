// Package stores runs Farol's whole life on the S3 stores that archives own, one after
// the other, and prints what each act came to. See docs/stores.md.
package stores

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/farol-preservation/farol/chaos/rig"
)

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
	set.StringVar(&f.cache, "cache", filepath.Join(cache, "farol-stores"), "`directory` that keeps what was installed for later runs")
	set.BoolVar(&f.list, "list", false, "list the stores")
	set.BoolVar(&f.keep, "keep", false, "keep data and logs of every store, and not only of those where something went wrong")
	set.BoolVar(&f.json, "json", false, "print the results as JSON")
	set.BoolVar(&f.table, "markdown", false, "print the results as the table of docs/stores.md")
	set.Uint64Var(&f.seed, "seed", 1, "seed of the bags")
	return f, set.Parse(args)
}

// Run runs a life on each store and says whether all went right.
func Run(ctx context.Context, args []string) (ok bool, err error) {
	f, err := parse(args)
	chosen := allStores()
	if err == nil && f.only != "" {
		chosen, err = rig.Choose(chosen, f.only, func(s store) string { return s.name })
	}
	if err != nil {
		return false, err
	}
	if f.list {
		for _, s := range chosen {
			fmt.Printf("%-16s %s\n", s.name, s.does)
		}
		return true, nil
	}
	dir, err := rig.TempDir("farol-stores-")
	if err != nil {
		return false, err
	}
	h := host{cache: f.cache}
	if h.build, err = rig.NewBuild(ctx, dir); err != nil {
		return false, err
	}
	deposits, err := makeBags(filepath.Join(dir, "bags"), f.seed)
	if err != nil {
		return false, err
	}
	report := report{Version: h.build.Version, Command: strings.TrimSpace("make stores " + strings.Join(args, " "))}
	began := time.Now()
	for i, s := range chosen {
		fmt.Fprintf(os.Stderr, "%s  %d of %d: %s: %s\n", time.Now().Format(time.TimeOnly), i+1, len(chosen), s.name, s.does)
		h.dir, h.children = filepath.Join(dir, s.name), nil
		r := one(ctx, s, &h, deposits, f.keep)
		if ctx.Err() != nil {
			return false, fmt.Errorf("interrupted; %s is kept", dir)
		}
		report.Results = append(report.Results, r)
		r.print(os.Stderr)
	}
	report.Seconds = time.Since(began).Seconds()
	switch {
	case f.keep:
	case report.right() == len(chosen):
		err = os.RemoveAll(dir)
	default:
		err = os.RemoveAll(filepath.Join(dir, "bags"))
	}
	if f.only == "" {
		err = errors.Join(err, report.write(filepath.Join("..", "docs", "stores.md")))
	}
	return report.right() == len(chosen), errors.Join(err, report.printAs(os.Stdout, f))
}

// one runs a life on one store, with servers of its own, which end with it. If something went
// wrong, their logs stay.
func one(ctx context.Context, s store, h *host, deposits []deposit, keep bool) (r result) {
	began := time.Now()
	r = result{Store: s.name, Does: s.does}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the store took longer than %s", limit))
	defer cancel()
	srv, err := r.live(ctx, s, h, deposits)
	r.Notes = append(r.Notes, h.stop()...)
	if srv != nil {
		err = errors.Join(err, srv.Stop(ctx))
	}
	r.Seconds = time.Since(began).Seconds() - r.Installed
	switch {
	case keep:
		r.Notes = append(r.Notes, "all is kept in "+h.dir)
	case err == nil && r.good():
		err = errors.Join(srv.Remove(context.WithoutCancel(ctx)), os.RemoveAll(h.dir))
	default:
		r.Notes = append(r.Notes, "logs are kept in "+h.dir)
		err = errors.Join(err, filepath.WalkDir(h.dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && filepath.Ext(path) != ".log" {
				return os.Remove(path)
			}
			return err
		}))
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// live installs the store, starts all servers, and takes every act.
func (r *result) live(ctx context.Context, s store, h *host, deposits []deposit) (srv *rig.Servers, err error) {
	began, pgBin, postgres := time.Now(), "", ""
	err = os.Mkdir(h.dir, 0o711) //nolint:gosec // PostgreSQL's user passes through it
	if err == nil && s.postgres != nil {
		pgBin, postgres, err = s.postgres(ctx, h)
	}
	if err == nil && s.install != nil {
		h.installed, err = s.install(ctx, h)
	}
	if r.Installed = time.Since(began).Seconds(); err != nil {
		return nil, fmt.Errorf("install the store: %w", err)
	}
	if srv, err = rig.Start(ctx, h.dir, h.build, pgBin); err != nil {
		return nil, err
	}
	at, version, err := s.start(ctx, h, srv)
	r.Release = strings.TrimSpace(version + postgres)
	if err == nil {
		err = at.Connect(s.client)
	}
	if err == nil {
		err = h.await(ctx, "the store to list its buckets", answers(at))
	}
	if err != nil {
		return srv, fmt.Errorf("start the store: %w", err)
	}
	l, err := newLife(ctx, srv, at, s, deposits)
	if err != nil {
		return srv, err
	}
	defer l.end()
	r.Acts = l.all(ctx)
	return srv, nil
}
