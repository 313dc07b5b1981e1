package control

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
)

func stageSetCommand() *cobra.Command {
	var c registry.StageChange
	var most, attempts int
	var timeout time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "set STAGE",
		Short: "Set the cap, timeout and maximum attempts of a stage",
		Long: `Set the cap of a stage over all processes, its processing timeout, and the attempts after
which an item waits for a person. Workers apply a change within five seconds.`,
		Example: `  farol stage set Record --cap 4
  farol stage set Receive --timeout 6h --max-attempts 5
  farol stage set Requested --action Delete --cap 2 --json`,
		Args: cli.OneArg("stage"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			given := cmd.Flags().Changed
			if !given("cap") && !given("timeout") && !given("max-attempts") {
				return cli.Usage(errors.New("no setting is named"), "add --cap, --timeout or --max-attempts")
			}
			if err := cli.InRange("--cap", most, 0, math.MaxInt32); err != nil {
				return err
			}
			if err := notNegative("--timeout", timeout); err != nil {
				return err
			}
			if given("max-attempts") {
				if err := cli.InRange("--max-attempts", attempts, 1, 1000); err != nil {
					return err
				}
				c.MaxAttempts = &attempts
			}
			if c.Action, err = cli.OneOf("--action", c.Action, values.Actions()); err != nil {
				return err
			}
			if given("cap") {
				c.Cap = &most
			}
			if given("timeout") {
				c.Timeout = &timeout
			}
			return setStage(cmd, registry.Stage(args[0]), c, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.StringVar((*string)(&c.Action), "action", "", "only for this action: "+strings.Join(cli.Strings(values.Actions()), ", "))
	flags.IntVar(&most, "cap", 0, "items at the stage at the same time in all processes; 0: no limit")
	flags.DurationVar(&timeout, "timeout", 0, "how long the stage may take; 0: no limit")
	flags.IntVar(&attempts, "max-attempts", 0, "attempts after which an item waits for a person")
	cli.JSONFlag(cmd, &asJSON)
	return cmd
}

func setStage(cmd *cobra.Command, name registry.Stage, c registry.StageChange, asJSON bool) error {
	done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error { return setRemotely(ctx, cmd, s, name, c, asJSON) })
	if done || err != nil {
		return err
	}
	return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
		stage, err := values.StageFrom(ctx, r, "the stage", name)
		if err != nil {
			return err
		}
		entry := registry.AuditEntry{Operation: "stages.set", SubjectType: "stage", SubjectID: subjectOf(stage, c.Action), Detail: map[string]any{"set": settingsOf(c)}}
		list, err := registry.Acted(ctx, r, registry.Actor{}, &entry, func(ctx context.Context) ([]registry.QueueStage, error) { return r.SetStage(ctx, stage, c) })
		switch {
		case err != nil:
			return err
		case len(list) == 0:
			return noSettings(stage)
		}
		return cli.Print(cmd, asJSON, list, printStages)
	})
}

func noSettings(stage registry.Stage) error {
	return cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("%s has no settings for that", stage), Next: "`farol stage list` shows the stages and their actions"}
}

// subjectOf names a stage in actions, of one action or of all that have it.
func subjectOf(stage registry.Stage, of registry.Action) string {
	if of == "" {
		return string(stage)
	}
	return string(of) + "/" + string(stage)
}

// settingsOf are the settings that change, as the REST API names them.
func settingsOf(c registry.StageChange) map[string]any {
	set := map[string]any{}
	if c.Cap != nil {
		set["cap"] = *c.Cap
	}
	if c.Timeout != nil {
		set["timeout_seconds"] = c.Timeout.Seconds()
	}
	if c.MaxAttempts != nil {
		set["max_attempts"] = *c.MaxAttempts
	}
	return set
}
