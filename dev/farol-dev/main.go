// Farol-dev runs all of Farol on one machine, with private servers: to try it, and to
// work on it. It starts the program farol, which has to be in the same directory.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/dev/servers"
	"github.com/farol-preservation/farol/internal/commands/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends us at once
	os.Exit(cli.Run(ctx, rootCommand(), os.Args[1:], os.Stderr))
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "farol-dev",
		Short: "Run all of Farol on this machine",
		Long: `Run PostgreSQL, Redis, an S3 gateway and nsqd on loopback ports, and Farol on top.
The program farol has to be in the same directory.

Exit codes: 0 success; 1 failure; 2 usage error, or farol is missing.`,
		SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(upCommand(), demoCommand(), internalCommand())
	return root
}

// internalCommand holds the subcommands that the stack starts as children.
func internalCommand() *cobra.Command {
	c := &cobra.Command{Use: "internal", Hidden: true}
	for name, short := range map[string]string{
		"guard": "Run a server until the parent ends",
		"s3":    "Run the S3 gateway of the one-machine stack",
		"nsq":   "Run nsqd and nsqadmin of the one-machine stack",
		"mail":  "Run the mail catcher of the one-machine stack",
	} {
		c.AddCommand(&cobra.Command{
			Use: name, Short: short, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				// It ends when its standard input does; a signal is the second way.
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
	return c
}
