package main

import (
	"context"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/nsqcompat"
)

func mirrorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "mirror",
		Short: "Publish every hand-off to NSQ, for what was built around it",
		Long: `Publish every hand-off between stages to nsqd, on the topics that the pipeline's
predecessor used, until SIGTERM or Ctrl-C. Nothing waits for the mirror: with nsqd
away the pipeline goes on, and the mirror catches up afterwards. Of several that
run, one publishes and the others stand by.`,
		Example: `  farol mirror`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return orderly(cmd.Context(), runMirror(cmd.Context()))
		},
	}
}

func runMirror(ctx context.Context) error {
	config, err := load(readMirrorConfig)
	if err != nil {
		return err
	}
	s, err := connect(ctx, "mirror", needs{Database: &config.Database})
	if err != nil {
		return err
	}
	defer s.close()
	log := newLogger(config.Log)
	mirror := nsqcompat.NewMirror(s.db, nsqcompat.MirrorOptions{
		NSQDTCPAddr: config.NSQ.TCPAddr, NSQDHTTPAddr: config.NSQ.HTTPAddr, Log: log,
	})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serveQueue(ctx, "mirror", s, config.Database, config.HTTP, log) })
	group.Go(func() error { return mirror.Run(ctx) })
	return group.Wait()
}
