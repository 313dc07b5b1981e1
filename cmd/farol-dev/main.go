// Farol-dev runs all of Farol on one machine, with private servers: to try it, and
// to work on it. It starts the farol program that lies beside it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/devstack/servers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends us at once
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

// run runs the command line and reports its error.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	root := rootCommand() //nolint:contextcheck // cobra hands the commands ctx
	parsed := false       // a wrong command line is recognized by nothing else
	root.PersistentPreRun = func(*cobra.Command, []string) { parsed = true }
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return cli.ExitOK
	}
	f := cli.FailureOf(err)
	if !parsed {
		f = cli.Usage(err, "see `"+cmd.CommandPath()+" --help`")
	}
	f.Report(stderr, false)
	return f.Code
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
