package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/internal/commands/accounts"
	"github.com/farol-preservation/farol/internal/commands/archive"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/preflight"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// completionTime is how long a shell waits for the registry: then what is known without
// it has to do.
const completionTime = 2 * time.Second

// values are what may be completed.
type values func(context.Context) []string

// addCompletions has shells complete flags by their names, in whichever command, and
// arguments by what the command takes.
func addCompletions(root *cobra.Command) {
	flags, args := flagValues(), argValues()
	eachCommand(root, func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if v, ok := flags[f.Name]; ok {
				list := strings.HasSuffix(f.Value.Type(), "Slice") || f.Name == "jobs"
				_ = c.RegisterFlagCompletionFunc(f.Name, complete(v, list)) // it fails only for what is registered already
			}
		})
		if v, ok := args[c.CommandPath()]; ok {
			c.ValidArgsFunction = firstArg(v)
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
func flagValues() map[string]values {
	return map[string]values{
		"stage": stageValues, "to": stageValues, "after": stageValues,
		"stages": constant(settings.StepNames), "status": constant(statuses), "state": constant(statuses), "action": constant(actions),
		"error-code": constant(codeNames), "jobs": constant(jobNames), "target": constant(targetNames), "release": constant(targetNames),
		"tier": constant(archive.Tiers), "retrieve": constant(archive.Tiers), "role": constant(accounts.Roles), "profile": constant(bag.BuiltInProfiles),
		"may": constant(registry.Rights), "institution": institutionValues,
		"items":  constant(func() []string { return append(planStates(), "all") }),
		"worker": constant(func() []string { return []string{"http"} }),
		"write":  constant(func() []string { return []string{preflight.WriteHot, preflight.WriteAll} }),
	}
}

// argValues are those of first arguments, by the command.
func argValues() map[string]values {
	return map[string]values{
		"farol pause": stageValues, "farol resume": stageValues, "farol stage remove": stageValues, "farol stage set": stageValues,
		"farol drain": workerValues, "farol fixity policy": constant(targetNames), "farol schedule run": constant(jobNames),
		"farol schedule pause": constant(jobNames), "farol schedule resume": constant(jobNames),
		"farol services hold": serviceValues, "farol services release": serviceValues, "farol institution set": institutionValues,
	}
}

func complete(v values, several bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		before, word := "", begun
		if i := strings.LastIndex(begun, ","); several && i >= 0 {
			before, word = begun[:i+1], begun[i+1:]
		}
		found := []string{}
		for _, name := range v(contextOf(cmd)) {
			if len(name) >= len(word) && strings.EqualFold(name[:len(word)], word) {
				found = append(found, before+name)
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

func firstArg(v values) cobra.CompletionFunc {
	first := complete(v, false)
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return first(cmd, args, begun)
	}
}

func contextOf(cmd *cobra.Command) context.Context {
	if ctx := cmd.Context(); ctx != nil {
		return ctx
	}
	return context.Background() // of a test that calls a function by itself
}

func constant(names func() []string) values {
	return func(context.Context) []string { return names() }
}

func targetNames() (names []string) {
	for _, t := range storage.Targets() {
		names = append(names, t.Name)
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

// asked are values that only the registry knows; those it does not give in time are
// not completed.
func asked(ctx context.Context, ask func(context.Context, *registry.Registry) ([]string, error)) []string {
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	s, err := connect.Registry(ctx, "completion")
	if err != nil {
		return nil
	}
	defer s.Close()
	names, err := ask(ctx, s.Registry)
	if err != nil {
		return nil
	}
	return names
}

// stageValues are Farol's own stages, and those that were added.
func stageValues(ctx context.Context) []string {
	names := asked(ctx, func(ctx context.Context, r *registry.Registry) ([]string, error) { return r.StageNames(ctx) })
	for _, name := range allStages() {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func workerValues(ctx context.Context) []string {
	return asked(ctx, func(ctx context.Context, r *registry.Registry) (names []string, err error) {
		list, err := r.Workers(ctx)
		for _, w := range list {
			names = append(names, w.Worker)
		}
		return names, err
	})
}

func serviceValues(ctx context.Context) []string {
	return asked(ctx, func(ctx context.Context, r *registry.Registry) (names []string, err error) {
		list, err := r.Services(ctx)
		for _, s := range list {
			names = append(names, s.Service)
		}
		return names, err
	})
}

func institutionValues(ctx context.Context) []string {
	return asked(ctx, func(ctx context.Context, r *registry.Registry) (names []string, err error) {
		list, err := r.Institutions(ctx, 0, 1000, false)
		for _, in := range list {
			names = append(names, in.Identifier)
		}
		return names, err
	})
}
