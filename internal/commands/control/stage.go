// Package control has the commands that control stages, workers, services and queues.
package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
)

// Stage is farol stage.
func Stage() *cobra.Command {
	return cli.Group("stage", "List and change stages, and add stages that other programs process", stageListCommand(), stageAddCommand(), stageSetCommand(), stageRemoveCommand())
}

func stageListCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List stages in their order, with workers and item counts",
		Example: `  farol stage list
  farol stage list --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return listStages(cmd, asJSON) },
	}
	cli.JSONFlag(c, &asJSON)
	return c
}

func listStages(cmd *cobra.Command, asJSON bool) error {
	done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
		list, err := remote.All[registry.QueueStage](ctx, s, "stages")
		if err != nil {
			return err
		}
		return cli.Print(cmd, asJSON, list, printStages)
	})
	if done || err != nil {
		return err
	}
	return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
		list, err := r.Stages(ctx)
		if err != nil {
			return err
		}
		return cli.Print(cmd, asJSON, list, printStages)
	})
}

func printStages(out io.Writer, list []registry.QueueStage) error {
	var rows [][]string
	for _, s := range list {
		state, most := "", "-"
		if s.Paused {
			state = "paused"
			for _, p := range s.Pauses {
				state += fmt.Sprintf("; pause %d, %s", p.ID, human.Pause(p.By, p.Since, p.Reason))
			}
		}
		if s.Cap > 0 {
			most = strconv.Itoa(s.Cap)
		}
		rows = append(rows, []string{
			string(s.Stage), string(s.Action), s.Worker, s.Topic, strconv.Itoa(s.MaxAttempts), most, human.Duration(human.Seconds(s.Lease)),
			human.Number(s.Waiting), human.Number(s.Running), human.Number(s.Parked), state,
		})
	}
	header := []string{"STAGE", "ACTION", "WORKER", "TOPIC", "ATTEMPTS", "CAP", "LEASE", "WAITING", "RUNNING", "PARKED", ""}
	return cli.WriteList(out, "stages", header, rows)
}

func stageAddCommand() *cobra.Command {
	var n registry.NewStage
	var worker string
	var asJSON bool
	c := &cobra.Command{
		Use:   "add NAME --after STAGE --worker http",
		Short: "Add an ingest stage that programs process over HTTP",
		Long: `Add a stage to the order of an ingest, after another one. Programs in any language
process it and claim its items over HTTP: docs/workers.md. Workers learn of the stage
within seconds; bags that finish the stage before it in these seconds skip it. The name
has letters, digits and single spaces, and begins with a capital.`,
		Example: `  farol stage add 'Virus Scan' --after Validate --worker http
  farol stage add OCR --after 'Format Identification' --worker http --topic ocr --max-attempts 5 --lease 2m --heartbeat 20s --timeout 6h --json`,
		Args: cli.OneArg("stage"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkNew(n, worker); err != nil {
				return err
			}
			n.Name = registry.Stage(args[0])
			show := func(s registry.QueueStage, err error) error {
				switch {
				case errors.Is(err, registry.ErrRefused):
					return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol stage list` shows the stages"}
				case err != nil:
					return err
				}
				return cli.Printf(cmd, asJSON, s, "%s comes after %s now, with the topic %s. Its items wait until programs claim them: docs/workers.md.\n",
					s.Stage, n.After, s.Topic)
			}
			done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) (err error) {
				if n.After, err = values.Stage(ctx, "--after", n.After); err != nil {
					return err
				}
				return show(addRemotely(ctx, s, n))
			})
			if done || err != nil {
				return err
			}
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				var err error
				if n.After, err = values.StageFrom(ctx, r, "--after", n.After); err != nil {
					return err
				}
				entry := registry.AuditEntry{Operation: "stages.add", SubjectType: "stage", SubjectID: string(n.Name), Detail: map[string]any{"after": n.After}}
				return show(registry.Acted(ctx, r, registry.Actor{}, &entry, func(ctx context.Context) (registry.QueueStage, error) { return r.AddStage(ctx, n) }))
			})
		},
	}
	flags := c.Flags()
	flags.StringVar((*string)(&n.After), "after", "", "the stage before it")
	flags.StringVar(&worker, "worker", "", "what processes it: http")
	flags.StringVar(&n.Topic, "topic", "", "its NSQ topic (default ingest_ and its name)")
	flags.IntVar(&n.MaxAttempts, "max-attempts", 3, "attempts after which an item waits for a person")
	flags.DurationVar(&n.Lease, "lease", 30*time.Second, "time without a heartbeat after which a worker loses the item; at least three heartbeats")
	flags.DurationVar(&n.Heartbeat, "heartbeat", 0, "time between two heartbeats (default a third of the lease, 10s at most)")
	flags.DurationVar(&n.Timeout, "timeout", 0, "how long the stage may take; 0: no limit")
	cli.JSONFlag(c, &asJSON)
	return c
}

// checkNew refuses a stage that cannot be added.
func checkNew(n registry.NewStage, worker string) error {
	switch {
	case worker != "http":
		return cli.Usage(fmt.Errorf("--worker is %q", worker), "give --worker http: only programs over HTTP process added stages")
	case n.After == "":
		return cli.Usage(errors.New("--after is missing"), "name the stage before it: `farol stage list` shows the stages")
	}
	return checkTimes(n)
}

// checkTimes refuses numbers and times that no stage can have.
func checkTimes(n registry.NewStage) error {
	if n.Lease <= 0 || n.Lease < 3*n.Heartbeat {
		return cli.Usage(fmt.Errorf("--lease is %v and --heartbeat is %v", n.Lease, n.Heartbeat), "give a lease of at least three heartbeats")
	}
	if err := notNegative("--heartbeat", n.Heartbeat); err != nil {
		return err
	}
	if err := notNegative("--timeout", n.Timeout); err != nil {
		return err
	}
	return cli.InRange("--max-attempts", n.MaxAttempts, 1, 1000)
}

func notNegative(flag string, d time.Duration) error {
	if d < 0 {
		return cli.Usage(fmt.Errorf("%s is %v", flag, d), "give a duration such as 30s or 6h, or 0")
	}
	return nil
}

func stageRemoveCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove an added stage",
		Long: `Remove an added stage, if no item waits or runs at it. Items that are parked at it stay
parked, and can be requeued to another stage.`,
		Example: `  farol stage remove 'Virus Scan'
  farol stage remove OCR --json`,
		Args: cli.OneArg("stage"),
		RunE: func(cmd *cobra.Command, args []string) error {
			show := func(name registry.Stage, s registry.QueueStage, err error) error {
				switch {
				case errors.Is(err, registry.ErrRefused):
					return cli.Failure{Code: cli.ExitFailed, Err: err, Next: fmt.Sprintf("`farol item list --stage '%s'` shows its items; `farol pause '%s'` pauses it", name, name)}
				case err != nil:
					return err
				}
				text := fmt.Sprintf("%s is removed.\n", s.Stage)
				if s.Parked > 0 {
					text += fmt.Sprintf("%s parked at it: farol plan requeue --stage '%s' --to STAGE\n", human.Count(s.Parked, "item is", "items are"), s.Stage)
				}
				return cli.Printf(cmd, asJSON, s, "%s", text)
			}
			done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
				name, err := values.Stage(ctx, "the stage", registry.Stage(args[0]))
				if err != nil {
					return err
				}
				removed, err := remote.Send[registry.QueueStage](ctx, s, http.MethodDelete, stagePath("Ingest", name, ""), nil)
				return show(name, removed, err)
			})
			if done || err != nil {
				return err
			}
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				name, err := values.StageFrom(ctx, r, "the stage", registry.Stage(args[0]))
				if err != nil {
					return err
				}
				entry := registry.AuditEntry{Operation: "stages.remove", SubjectType: "stage", SubjectID: string(name)}
				s, err := registry.Acted(ctx, r, registry.Actor{}, &entry, func(ctx context.Context) (registry.QueueStage, error) { return r.RemoveStage(ctx, name) })
				return show(name, s, err)
			})
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}
