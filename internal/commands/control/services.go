package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
)

// Services is farol services.
func Services() *cobra.Command {
	var asJSON, failing bool
	c := cli.Group("services", "List the services that items need; hold or release one", servicesHoldCommand(), servicesReleaseCommand())
	c.Long = `List the services that workers need: Redis, every bucket, the virus scanner, and the
disk and settings of each process.

ok       no worker sees it fail
failing  it fails for the named workers, which claim nothing that needs it
held     it fails for most workers, or a person holds it: no worker claims what needs it

Waiting items spend no attempt, and work resumes automatically: each worker probes the
service, then tries one item, then all.

Exit codes: 0 all services are ok; 1 a service is not ok.`
	c.Example = `  farol services
  farol services --failing
  farol services --json
  farol services hold s3:Wasabi-OR --reason 'Maintenance until noon.'
  farol services release s3:Wasabi-OR`
	c.Args = cobra.NoArgs
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		return changeServices(cmd, asJSON, func(ctx context.Context, r *registry.Registry) ([]registry.Service, error) {
			list, err := r.Services(ctx)
			if err != nil || !failing {
				return list, err
			}
			var some []registry.Service
			for _, s := range list {
				if s.State != "ok" {
					some = append(some, s)
				}
			}
			return some, nil
		})
	}
	c.Flags().BoolVar(&failing, "failing", false, "only services that are not ok")
	cli.JSONFlag(c, &asJSON)
	return c
}

func servicesHoldCommand() *cobra.Command {
	var reason string
	var asJSON bool
	c := &cobra.Command{
		Use:   "hold SERVICE",
		Short: "Hold a service: stop claims of items that need it",
		Long: `Hold a service: stop claims of items that need it, until it is released. Running items
and items that do not need it continue. farol services lists the names.`,
		Example: `  farol services hold s3:Wasabi-OR --reason 'Maintenance until noon.'
  farol services hold redis`,
		Args: cli.OneArg("service"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeServices(cmd, asJSON, func(ctx context.Context, r *registry.Registry) ([]registry.Service, error) {
				return r.HoldService(ctx, args[0], reason)
			})
		},
	}
	cli.ReasonFlag(c, &reason, "the reason, which why-not shows for items that wait")
	cli.JSONFlag(c, &asJSON)
	return c
}

func servicesReleaseCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "release SERVICE",
		Short: "Release a held service, and retry it now",
		Long: `Release a hold. Workers for which the service fails try one item now instead of at their
next probe; if that fails too, they hold the service again.`,
		Example: `  farol services release s3:Wasabi-OR`,
		Args:    cli.OneArg("service"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeServices(cmd, asJSON, func(ctx context.Context, r *registry.Registry) ([]registry.Service, error) {
				return r.ReleaseService(ctx, args[0])
			})
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}

// changeServices makes one change to a service, or none, and prints the services.
func changeServices(cmd *cobra.Command, asJSON bool, change func(context.Context, *registry.Registry) ([]registry.Service, error)) error {
	show := func(list []registry.Service, err error) error {
		switch {
		case errors.Is(err, registry.ErrRefused):
			return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol services` lists the services"}
		case err != nil:
			return err
		}
		if err := printServices(cmd, asJSON, list); err != nil {
			return err
		}
		if cmd.Name() != "services" {
			return stillHeld(cmd, list)
		}
		if slices.ContainsFunc(list, func(s registry.Service) bool { return s.State != "ok" }) {
			return cli.Failure{Code: cli.ExitFailed} // the list has said it
		}
		return nil
	}
	done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error { return show(servicesRemotely(ctx, s, cmd)) })
	if done || err != nil {
		return err
	}
	return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error { return show(recorded(ctx, cmd, r, change)) })
}

// stillHeld is the failure of a command that released a service which another person holds, too.
func stillHeld(cmd *cobra.Command, list []registry.Service) error {
	service := cmd.Flags().Arg(0)
	if cmd.Name() != "release" || !slices.ContainsFunc(list, func(s registry.Service) bool { return s.Service == service && s.HeldBy != nil }) {
		return nil
	}
	return cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("%s is still held by others", service), Next: "`farol resume --pause ID` ends one hold, no matter who made it"}
}

// recorded makes a change to the service that a command names, and records it in actions.
// farol services itself changes nothing.
func recorded(ctx context.Context, cmd *cobra.Command, r *registry.Registry, change func(context.Context, *registry.Registry) ([]registry.Service, error)) ([]registry.Service, error) {
	if cmd.Name() == "services" {
		return change(ctx, r)
	}
	entry := registry.AuditEntry{Operation: "services." + cmd.Name(), SubjectType: "service", SubjectID: cmd.Flags().Arg(0)}
	if reason := cmd.Flags().Lookup("reason"); reason != nil && reason.Changed {
		entry.Detail = map[string]any{"reason": reason.Value.String()}
	}
	return registry.Acted(ctx, r, registry.Actor{}, &entry, func(ctx context.Context) ([]registry.Service, error) { return change(ctx, r) })
}

func printServices(cmd *cobra.Command, asJSON bool, list []registry.Service) error {
	header := []string{"SERVICE", "STATE", "SINCE", "FAILING", "WAITING", ""}
	return cli.PrintList(cmd, asJSON, list, "services", header, func(s registry.Service) []string {
		since, waiting := "", ""
		if s.Since != nil {
			since = human.Time(*s.Since)
		}
		if s.State != "ok" {
			waiting = strconv.FormatInt(s.Waiting, 10)
		}
		return []string{human.Line(s.Service), s.State, since, fmt.Sprintf("%d/%d", s.Failing, s.Workers), waiting, human.Line(s.Text)}
	})
}
