// Farol is a digital preservation pipeline whose registry is its queue.
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/items"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/web/api"
	"github.com/farol-preservation/farol/web/ops"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)                    // a second signal ends us at once
	connect.LogRedis(slog.New(slog.DiscardHandler)) // until a service has a log
	os.Exit(run(untilParentEnds(ctx), os.Args[1:], os.Stderr))
}

func run(ctx context.Context, args []string, stderr io.Writer) int {
	return cli.Run(ctx, rootCommand(), args, stderr) //nolint:contextcheck // cobra hands the commands ctx
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "farol",
		Short: "Ingest bags into preservation storage and preserve them",
		Long: `Farol takes BagIt bags from depositors into preservation storage.

Settings come from the environment; docs/configuration.md lists them. With --json a
command prints JSON, and its error as JSON to standard error.

With --server, commands that read records or decide about them need no database: they
use the REST API of farol serve --web, with your rights. FAROL_SERVER and FAROL_TOKEN are
the same as the flags; a token in the environment is not seen by others on the machine.
Exit codes: 0 success; 1 failure or negative result; 2 usage error or unknown result.`,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asked, _ := cmd.Flags().GetBool("version"); asked {
				return printVersion(cmd, false)
			}
			return cmd.Help()
		},
	}
	// Not by cobra's template: with text/template in it, the linker has to keep every
	// method of every type, which is a third of the program.
	root.Flags().BoolP("version", "v", false, "print the version")
	var to remote.Options
	root.PersistentFlags().StringVar(&to.URL, "server", "", "work through the REST API of the server at this URL, without a database")
	root.PersistentFlags().StringVar(&to.Token, "token", "", "personal token for --server")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return throughServer(cmd, to) }
	for _, g := range commandGroups() {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID(groupTools)
	root.SetCompletionCommandGroupID(groupTools)
	root.AddCommand(internalCommand())
	op.Add(root, ops.Rows((&api.API{}).Register), items.Told())
	addCompletions(root)
	eachCommand(root, addExample)
	return root
}

// addExample shows how a command is called that has no examples of its own.
func addExample(c *cobra.Command) {
	if c.Example == "" && c.Flags().Lookup("json") != nil {
		call := "  " + strings.Replace(c.CommandPath()+strings.TrimPrefix(c.Use, c.Name()), " ID", " 7", 1)
		c.Example = call + "\n" + call + " --json"
	}
}

// throughServer has a command work through a server, if one is named.
func throughServer(cmd *cobra.Command, to remote.Options) error {
	if to.URL == "" && os.Getenv("FAROL_SERVER") == "" && os.Getenv("FAROL_SERVER_FILE") == "" {
		if to.Token != "" {
			return cli.Usage(errors.New("--token is for --server"), "give --server with the URL of farol serve --web")
		}
		return nil
	}
	config, err := connect.Load(settings.Remote{Server: to.URL, Token: storage.Secret(to.Token)})
	if err != nil {
		return err
	}
	ctx, err := remote.With(cmd.Context(), remote.Options{URL: config.Server, Token: string(config.Token)})
	cmd.SetContext(ctx)
	return err
}

// untilParentEnds ends ctx when farol-dev started this process and has ended or wants
// it to stop. After ten more seconds the process exits.
func untilParentEnds(ctx context.Context) context.Context {
	if os.Getenv(settings.ChildEnv) == "" {
		return ctx
	}
	ctx, stop := context.WithCancel(ctx)
	go func() {
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // an error is an end too
		stop()
		time.AfterFunc(10*time.Second, func() { os.Exit(1) })
	}()
	return ctx
}
