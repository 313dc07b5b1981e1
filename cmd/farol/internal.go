package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/internal/devstack/servers"
)

// internalCommand holds the subcommands that Farol starts itself as children.
func internalCommand() *cobra.Command {
	c := &cobra.Command{Use: "internal", Hidden: true}
	for name, short := range map[string]string{
		"guard": "Run a server for as long as the parent lives",
		"s3":    "Run the S3 gateway of the one-machine stack",
		"nsq":   "Run nsqd and nsqadmin of the one-machine stack",
	} {
		c.AddCommand(&cobra.Command{
			Use: name, Short: short, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				// Our end comes by the standard input; a signal is the second way.
				signal.Ignore(syscall.SIGHUP)
				ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
				defer stop()
				if err := servers.Run(ctx, name, os.Stdin, os.Stdout); err != nil {
					return fmt.Errorf("internal %s: %w", name, err)
				}
				return nil
			},
		})
	}
	c.AddCommand(&cobra.Command{
		Use: "identify", Short: "Identify formats for a worker, who feeds it", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return format.Serve(os.Stdin, os.Stdout) },
	})
	return c
}
