package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/pipeline"
)

func readBucketsCommand() *cobra.Command {
	var once bool
	var interval time.Duration
	c := &cobra.Command{
		Use:   "read-buckets",
		Short: "Make a work item for each new bag in the receiving buckets",
		Long: `Look into the receiving bucket of every institution and make a work item for each
tar that has none, again and again until SIGTERM or Ctrl-C. Any number may run at
once; a bag gets one item all the same.`,
		Example: `  farol read-buckets --once
  farol read-buckets --interval 30s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("interval") && interval <= 0 {
				return usage(fmt.Errorf("--interval is %v", interval), "name a time such as 30s")
			}
			err := readBuckets(cmd.Context(), cmd.OutOrStdout(), once, interval)
			if once {
				return err
			}
			return orderly(cmd.Context(), err)
		},
	}
	c.Flags().BoolVar(&once, "once", false, "look once and exit")
	c.Flags().DurationVar(&interval, "interval", 0, "time between two looks (default FAROL_READ_INTERVAL)")
	return c
}

func readBuckets(ctx context.Context, out io.Writer, once bool, interval time.Duration) error {
	config, err := load(readReaderConfig)
	if err != nil {
		return err
	}
	if interval <= 0 {
		interval = config.Read.Interval
	}
	log := newLogger(config.Log)
	s, err := connect(ctx, "read-buckets", needs{Database: &config.Database, S3: &config.S3})
	if err != nil {
		return err
	}
	defer s.close()
	reader := &pipeline.BucketReader{Registry: s.registry, Receiving: s.receiving, Log: log}
	if !once {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return serveQueue(ctx, "read-buckets", s, config.Database, config.HTTP, log) })
		group.Go(func() error { return readAgainAndAgain(ctx, reader, interval, log) })
		return group.Wait()
	}
	created, err := reader.ReadAll(ctx)
	if err != nil {
		err = failure{
			code: exitFailed, err: err,
			next: "the buckets that could be read were; for the others see the FAROL_S3_… and AWS_… settings and `farol institution list`",
		}
	}
	_, writeErr := fmt.Fprintf(out, "%s made.\n", count(created, "work item", "work items"))
	return errors.Join(err, writeErr)
}

// readAgainAndAgain goes on after errors: the next look may find all well.
func readAgainAndAgain(ctx context.Context, reader *pipeline.BucketReader, interval time.Duration, log *slog.Logger) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if _, err := reader.ReadAll(ctx); err != nil && !errors.Is(err, context.Canceled) {
			log.WarnContext(ctx, "receiving buckets will be read again", "after", interval, "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
