// Farol is a digital preservation pipeline whose registry is its queue.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	redislog "github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/storage"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends us at once
	redislog.Disable()           // it prints lines of its own for errors that we get, and log
	os.Exit(run(untilParentEnds(ctx), os.Args[1:], os.Stderr))
}

// run runs the command line and reports its error.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	root := rootCommand() //nolint:contextcheck // cobra hands the commands ctx
	parsed := false       // cobra tells a wrong command line by nothing else
	root.PersistentPreRun = func(*cobra.Command, []string) { parsed = true }
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	f := asFailure(err)
	if !parsed {
		f = usage(err, "see `"+cmd.CommandPath()+" --help`")
	}
	if f.err != nil {
		fmt.Fprintln(stderr, "farol:", storage.Redact(f.err.Error()))
	}
	if f.next != "" {
		fmt.Fprintln(stderr, "Next:", storage.Redact(f.next))
	}
	return f.code
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "farol",
		Short: "Take bags into preservation storage and look after them",
		Long: `Farol takes BagIt bags from depositors into preservation storage.

Settings come from the environment; docs/configuration.md lists them.
Exit codes: 0 done; 1 it failed, or the answer is no; 2 wrong usage, or it could not tell.`,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(demoCommand(), devCommand(), migrateCommand(), institutionCommand(), readBucketsCommand(), scheduleCommand(), workCommand(),
		mirrorCommand(), serveCommand(), queueCommand(), tokenCommand(), validateCommand(), itemCommand(), requeueCommand(), planCommand(), stageCommand(), pauseCommand(), resumeCommand(),
		whyNotCommand(), workersCommand(), servicesCommand(), identifyCommand(), restoreCommand(), deleteCommand(), userCommand(), fixityCommand(), repairCommand(), drainCommand(), janitorCommand(), doctorCommand(), checkCommand(), versionCommand(),
		internalCommand())
	return root
}
