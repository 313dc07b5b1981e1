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

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/retry"
)

// upOptions are the flags of up.
type upOptions struct {
	data         string
	readInterval time.Duration
	s3Log, empty bool
}

func upCommand() *cobra.Command {
	var o upOptions
	c := &cobra.Command{
		Use:   "up",
		Short: "Run Farol and its servers until Ctrl-C",
		Long: `Run PostgreSQL, Redis, an S3 gateway and nsqd privately on loopback ports, with
workers, scheduler, mirror and the console on top. Data stays in the data directory; the
next start continues with it. A new one gets sample bags, one after the other. DIR/env
holds the addresses and keys for other programs.`,
		Example: `  farol dev
  farol dev --data /srv/farol --empty
  . ./.farol/env && farol item list`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runUp(cmd.Context(), cmd.OutOrStdout(), o)
		},
	}
	c.Flags().StringVar(&o.data, "data", ".farol", "directory for data, logs and addresses")
	c.Flags().DurationVar(&o.readInterval, "read-interval", time.Second, "time between two scans of the receiving buckets")
	c.Flags().BoolVar(&o.s3Log, "s3-log", false, "write a line for each S3 request to DIR/log/s3-requests.log")
	c.Flags().BoolVar(&o.empty, "empty", false, "deposit no sample bags in a new data directory")
	return c
}

func runUp(ctx context.Context, out io.Writer, o upOptions) (err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	began := time.Now()
	entries, _ := os.ReadDir(o.data) // it does not exist, or what is wrong with it is an error below
	samples := len(entries) == 0 && !o.empty
	l, err := startLocal(ctx, o.data, o.s3Log, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.stop(ctx)) }()
	if err := l.institution(ctx, "Test University", firstInstitution); err != nil {
		return err
	}
	h, err := l.startHelpers(ctx, o.readInterval)
	if err != nil {
		return err
	}
	defer h.stopAll()

	fmt.Fprintf(out, `Farol is up after %v. Data, logs and addresses are in %s.

  addresses and keys   . %s
  deposit              put a .tar into the bucket aptrust.receiving.%s at %s
  watch                farol item list
  dashboards           %s
  mail to anyone       %s
  stop                 Ctrl-C
`, time.Since(began).Round(10*time.Millisecond), l.dir, filepath.Join(l.dir, "env"), firstInstitution, l.S3Endpoint, l.NSQAdminURL, l.MailDir)
	what := "The console shows all bags"
	if samples {
		what = "Sample bags arrive during the next minute: watch them in the console"
	}
	if err := l.invite(ctx, out, what); err != nil {
		return err
	}
	if samples {
		defer l.depositFirst(ctx)()
	}
	return l.watch(ctx, out)
}

// depositFirst deposits the first bags, one after the other, until the function that it
// returns is called.
func (l *local) depositFirst(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, s := range firstBags() {
			if _, err := l.upload(ctx, s); err != nil && ctx.Err() == nil {
				l.log.WarnContext(ctx, "cannot deposit a sample bag; continuing with the next", "err", err)
			}
			if !retry.Pause(ctx, betweenFirst) {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// watch keeps the stack up until ctx ends. The stack restarts a server that dies;
// when it cannot, watch fails. Workers and mirror wait until the server is back.
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
				Code: cli.ExitFailed, Err: fmt.Errorf("cannot restart a server of the stack: %w", err),
				Next: "see its log in " + filepath.Join(l.dir, "log"),
			}
		case <-tick.C:
			if err := l.createInstitutionBuckets(ctx); err != nil && ctx.Err() == nil {
				l.log.WarnContext(ctx, "cannot create the buckets of a new institution; retrying", "err", err)
			}
		}
	}
}
