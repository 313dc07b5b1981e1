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

	"github.com/farol-preservation/farol/internal/cli"
)

func upCommand() *cobra.Command {
	var data string
	var readInterval time.Duration
	var s3Log bool
	c := &cobra.Command{
		Use:   "up",
		Short: "Run Farol and its servers until Ctrl-C",
		Long: `Run PostgreSQL, Redis, an S3 gateway and nsqd privately on loopback ports, with
workers, scheduler, mirror and the server for people on top. Data stays in the data directory; the next
start continues with it. DIR/env holds the addresses and keys for other programs.`,
		Example: `  farol dev
  farol dev --data /srv/farol
  . ./.farol/env && farol item list`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runUp(cmd.Context(), cmd.OutOrStdout(), data, readInterval, s3Log)
		},
	}
	c.Flags().StringVar(&data, "data", ".farol", "directory for data, logs and addresses")
	c.Flags().DurationVar(&readInterval, "read-interval", time.Second, "time between two scans of the receiving buckets")
	c.Flags().BoolVar(&s3Log, "s3-log", false, "write a line for each S3 request to DIR/log/s3-requests.log")
	return c
}

func runUp(ctx context.Context, out io.Writer, dir string, readInterval time.Duration, s3Log bool) (err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	began := time.Now()
	l, err := startLocal(ctx, dir, s3Log, log)
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

	link, err := l.signInLink(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, `Farol is up after %v. Data, logs and addresses are in %s.

  addresses and keys   . %s
  deposit              put a .tar into the bucket aptrust.receiving.test.edu at %s
  watch                farol item list
  dashboards           %s
  mail to anyone       %s
  stop                 Ctrl-C

Sign in as the first admin, once and within 15 minutes:

  %s

`, time.Since(began).Round(10*time.Millisecond), l.dir, filepath.Join(l.dir, "env"), l.S3Endpoint, l.NSQAdminURL, l.MailDir, link)
	return l.watch(ctx, out)
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
