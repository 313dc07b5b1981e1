package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/farol-preservation/farol/bag/profile"
	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/internal/commands/buckets"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/preflight"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
	"github.com/farol-preservation/farol/web/permission"
)

// completionTime is how long a shell waits for the registry. After that only the values
// that are known without it are offered.
const completionTime = 2 * time.Second

// addCompletions has shells complete flags by their names, in whichever command, and
// arguments by what the command takes.
func addCompletions(root *cobra.Command) {
	flags, args := flagValues(), argValues()
	eachCommand(root, func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if v, ok := flags[f.Name]; ok {
				list := strings.HasSuffix(f.Value.Type(), "Slice") || f.Name == "jobs"
				_ = c.RegisterFlagCompletionFunc(f.Name, cli.Complete(v, list)) // it fails only for what is registered already
			}
		})
		if v, ok := args[c.CommandPath()]; ok {
			c.ValidArgsFunction = cli.CompleteFirst(v)
		}
	})
}

func eachCommand(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		eachCommand(sub, visit)
	}
}

// flagValues are the values of flags, which mean the same in every command.
func flagValues() map[string]cli.Values {
	return map[string]cli.Values{
		"stage": stageValues, "to": stageValues, "after": stageValues,
		"stages": cli.Constant(settings.StepNames), "state": cli.Constant(values.Statuses),
		"error-code": cli.Constant(codeNames), "jobs": cli.Constant(jobNames), "target": cli.Constant(targetNames), "release": cli.Constant(providerNames),
		"profile": cli.Constant(profile.BuiltIn),
		"may":     cli.Constant(registry.Rights), "permissions": cli.Constant(servicePermissions), "institution": institutionValues,
		"worker": cli.Constant(func() []string { return []string{"http"} }),
		"only":   bucketValues,
		"write":  cli.Constant(func() []string { return []string{preflight.WriteHot, preflight.WriteAll} }),
	}
}

func servicePermissions() []permission.Permission { return permission.OfService(false) }

// argValues are those of first arguments, by the command.
func argValues() map[string]cli.Values {
	services := asked("services", func(s record.Service) string { return s.Service })
	return map[string]cli.Values{
		"farol pause": stageValues, "farol resume": stageValues, "farol stage remove": stageValues, "farol stage set": stageValues,
		"farol drain": asked("workers", func(w record.Worker) string { return w.Worker }), "farol fixity policy": cli.Constant(targetNames), "farol schedule run": cli.Constant(jobNames),
		"farol schedule pause": cli.Constant(jobNames), "farol schedule resume": cli.Constant(jobNames),
		"farol services hold": services, "farol services release": services, "farol institution set": institutionValues,
	}
}

func targetNames() (names []string) {
	for _, t := range storage.Targets() {
		names = append(names, t.Name)
	}
	return names
}

// bucketValues are what buckets are for.
func bucketValues(cmd *cobra.Command) []string {
	return slices.Concat(buckets.Shared(), targetNames(), institutionValues(cmd))
}

func providerNames() (names []string) {
	for _, t := range storage.Targets() {
		if !slices.Contains(names, t.Provider) {
			names = append(names, t.Provider)
		}
	}
	return names
}

func codeNames() (names []string) {
	for code := range explain.Verdicts() {
		names = append(names, code)
	}
	slices.Sort(names)
	return names
}

// asked are values of a list that only the registry knows; those that it does not give in time
// are not completed.
func asked[T any](path string, name func(T) string) cli.Values {
	return func(cmd *cobra.Command) (names []string) {
		_ = remote.DoFor(cmd, completionTime, func(ctx context.Context, s *remote.Server) error { // nothing is offered then
			list, err := remote.All[T](ctx, s, path)
			for _, v := range list {
				names = append(names, name(v))
			}
			return err
		})
		return names
	}
}

// stageValues are Farol's own stages, and those that were added.
func stageValues(cmd *cobra.Command) (names []string) {
	for _, name := range append(asked("stages", func(s record.QueueStage) string { return string(s.Stage) })(cmd), cli.Strings(values.Stages())...) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func institutionValues(cmd *cobra.Command) []string {
	return asked("institutions?limit=500", func(i record.Institution) string { return i.Identifier })(cmd)
}
