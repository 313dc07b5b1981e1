package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/caarlos0/env/v10"
	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/devstack"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/migrations"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// stopTime is how long the servers of a stack may take to stop.
const stopTime = 30 * time.Second

func devCommand() *cobra.Command {
	var data string
	var readInterval time.Duration
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run the whole of Farol on this machine until Ctrl-C",
		Long: `Run PostgreSQL, Redis, an S3 gateway and nsqd privately on loopback ports, with
workers, scheduler and mirror on top. Data stays in the data directory; the
next start takes it up. DIR/env holds the addresses and keys for other programs.`,
		Example: `  farol dev
  farol dev --data /srv/farol
  . ./.farol/env && farol item list`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDev(cmd.Context(), cmd.OutOrStdout(), data, readInterval)
		},
	}
	c.Flags().StringVar(&data, "data", ".farol", "directory for data, logs and addresses")
	c.Flags().DurationVar(&readInterval, "read-interval", time.Second, "time between two looks into the receiving buckets")
	return c
}

// local is a one-machine Farol: the stack, brought up to date, with its buckets.
type local struct {
	*devstack.Stack
	*services
	dir  string
	log  *slog.Logger
	made int64 // the last institution whose buckets were made
}

// startLocal starts a stack in dir and prepares its database and buckets. The
// caller stops it.
func startLocal(ctx context.Context, dir string, log *slog.Logger) (l *local, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find the data directory: %w", err)
	}
	stack, err := devstack.Start(ctx, devstack.Options{Dir: dir, PGBinDir: os.Getenv("PG_BINDIR"), RestoreDelay: 3 * time.Second, Log: log})
	if err != nil {
		return nil, err
	}
	l = &local{Stack: stack, dir: dir, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.stop(ctx))
		}
	}()
	if _, err := stack.WriteEnv(); err != nil {
		return nil, err
	}
	if err := migrations.Up(ctx, stack.OwnerURL); err != nil {
		return nil, err
	}
	config, err := settings.Load(env.ToMap(stack.Env()), settings.ReadWorker)
	if err != nil {
		return nil, err
	}
	l.services, err = connect(ctx, "dev", needs{Database: &config.Database, Redis: &config.Redis, Storage: &config.Storage})
	if err != nil {
		return nil, err
	}
	return l, l.createBuckets(ctx)
}

func (l *local) createBuckets(ctx context.Context) error {
	buckets := []*storage.Bucket{l.staging}
	for _, b := range l.targets {
		buckets = append(buckets, b)
	}
	for _, b := range buckets {
		if err := b.Create(ctx); err != nil {
			return fmt.Errorf("create bucket %s: %w", b.Name(), err)
		}
	}
	return l.createInstitutionBuckets(ctx)
}

// createInstitutionBuckets makes the buckets of institutions that have none yet,
// as an operator would in production.
func (l *local) createInstitutionBuckets(ctx context.Context) error {
	for {
		list, err := l.registry.Institutions(ctx, l.made, 100, true)
		if err != nil || len(list) == 0 {
			return err
		}
		for _, in := range list {
			for _, name := range []string{in.ReceivingBucket, in.RestoreBucket} {
				b, err := l.receiving(name)
				if err != nil {
					return err
				}
				if err := b.Create(ctx); err != nil {
					return fmt.Errorf("create bucket %s of %s: %w", name, in.Identifier, err)
				}
			}
			l.made = in.ID
		}
	}
}

// institution registers an institution unless it is there already.
func (l *local) institution(ctx context.Context, name, identifier string) error {
	_, err := l.registry.AddInstitution(ctx, registry.Institution{
		Name: name, Identifier: identifier,
		ReceivingBucket: "aptrust.receiving." + identifier, RestoreBucket: "aptrust.restore." + identifier,
	})
	if err != nil && !errors.Is(err, registry.ErrRefused) {
		return err
	}
	return l.createInstitutionBuckets(ctx)
}

// startHelpers starts workers and mirror, and the scheduler, which reads buckets at
// the interval given.
func (l *local) startHelpers(ctx context.Context, readEvery time.Duration) (*helpers, error) {
	settings := append(l.Env(), "FAROL_COLD_POLL=1s") // the gateway takes seconds, not hours
	if readEvery > 0 {
		settings = append(settings, "FAROL_READ_INTERVAL="+readEvery.String())
	}
	h, err := newHelpers(ctx, l.dir, settings, l.log)
	if err != nil {
		return nil, err
	}
	h.start("worker-small", "work", "--max-size", "1GiB", "--slots", "8")
	h.start("worker-large", "work", "--min-size", "1GiB", "--slots", "2")
	h.start("mirror", "mirror")
	if readEvery > 0 {
		h.start("schedule", "schedule")
	}
	return h, nil
}

func (l *local) stop(ctx context.Context) error { return l.end(ctx, l.Stop) }

// remove stops the stack and deletes its data.
func (l *local) remove(ctx context.Context) error { return l.end(ctx, l.Remove) }

func (l *local) end(ctx context.Context, how func(context.Context) error) error {
	if l.services != nil {
		l.close()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return how(ctx)
}

// checkNames refuses an environment in which a child of this process would not start.
func checkNames() error {
	_, err := load(func(*settings.Reader) struct{} { return struct{}{} })
	return err
}

func runDev(ctx context.Context, out io.Writer, dir string, readInterval time.Duration) (err error) {
	if err := checkNames(); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	began := time.Now()
	l, err := startLocal(ctx, dir, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.stop(ctx)) }()
	if err := l.institution(ctx, "Test University", "test.edu"); err != nil {
		return err
	}
	h, err := l.startHelpers(ctx, readInterval)
	if err != nil {
		return err
	}
	defer h.stopAll()

	fmt.Fprintf(out, `Farol is up after %v. Data, logs and addresses are in %s.

  addresses and keys   . %s
  deposit              put a .tar into the bucket aptrust.receiving.test.edu at %s
  watch                farol item list
  dashboards           %s
  stop                 Ctrl-C

`, time.Since(began).Round(10*time.Millisecond), l.dir, filepath.Join(l.dir, "env"), l.S3Endpoint, l.NSQAdminURL)
	return l.watch(ctx, out)
}

// watch looks after the stack until ctx ends. The stack starts a server that dies
// again by itself; when it cannot, this is the end. Workers and mirror wait
// meanwhile.
func (l *local) watch(ctx context.Context, out io.Writer) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			fmt.Fprintln(out, "Stopping.")
			return nil
		case err := <-l.Died():
			return cli.Failure{
				Code: cli.ExitFailed, Err: fmt.Errorf("a server of the stack does not come back: %w", err),
				Next: "see its log in " + filepath.Join(l.dir, "log"),
			}
		case <-tick.C:
			if err := l.createInstitutionBuckets(ctx); err != nil && ctx.Err() == nil {
				l.log.WarnContext(ctx, "buckets of a new institution could not be made yet", "err", err)
			}
		}
	}
}
