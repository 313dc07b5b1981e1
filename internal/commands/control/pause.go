package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Pause is farol pause.
func Pause() *cobra.Command {
	return pausing("Stop claims of all stages, and fixity checks", op.Command{
		Use:   "pause STAGE | --all",
		Short: "Pause a stage, or all stages",
		Long: `Pause a stage, or all stages. Running items continue; new items of the stage wait. farol
item list --help lists the stages. Pausing Fixity Check, which has no items, stops the
checks of stored copies. --all includes it, and asks first on a terminal, unless --yes or
--dry-run is given.`,
		Example: `  farol pause Store --reason 'The bucket moves.'
  farol pause 'Fixity Check' --reason 'The provider counts requests.'
  farol pause --all --dry-run
  farol pause --all --reason Upgrade
  farol pause Record --json`,
		Flags: []op.Flag{
			{Name: "all", Kind: op.Truth, Help: "all stages, and fixity checks"},
			{Name: "reason", Param: "reason", Kind: op.Reason, Help: "the reason, which why-not shows for items that wait"},
		},
	})
}

// Resume is farol resume.
func Resume() *cobra.Command {
	return pausing("End your pause of all stages", op.Command{
		Use:   "resume STAGE | --all | --pause ID",
		Short: "End your pauses of a stage, or of all stages",
		Long: `End your pauses of a stage, or what you paused with farol pause --all. A stage is claimed
again when no pause of it is left. Pauses that other people made stay, and are listed with
their IDs; --pause ends one of them, no matter who made it.`,
		Example: `  farol resume Store
  farol resume --pause 7
  farol resume --all --json`,
		Flags: []op.Flag{
			{Name: "all", Kind: op.Truth, Help: "all stages and fixity checks, as far as you paused them with --all"},
			{Name: "pause", Param: "pause", Kind: op.Number, Help: "end this pause only, no matter who made it"},
		},
	})
}

// pausing is a command that changes the pauses of one stage, or of all after it has asked, and
// prints their new state.
func pausing(question string, c op.Command) *cobra.Command {
	var does bool
	c.Args, c.Asks = cobra.MaximumNArgs(1), true
	c.Check = func(c *op.Call) (err error) {
		pause := c.Number("pause")
		switch {
		case pause < 0 || c.Cmd.Flags().Changed("pause") && (pause == 0 || c.Given("all") || len(c.Args) > 0):
			return cli.Usage(errors.New("--pause is the ID of a pause, and goes with nothing else"), "`farol stage list` shows the pauses")
		case pause == 0 && c.Given("all") == (len(c.Args) == 1):
			return cli.Usage(errors.New("name one stage, or give --all"), "the stages are: "+strings.Join(cli.Strings(append(values.Stages(), registry.FixityStage)), ", "))
		case !c.Given("all") && (c.Care.Yes || c.Care.DryRun):
			return cli.Usage(errors.New("--yes and --dry-run go with --all"), "leave them out")
		}
		if does = true; c.Given("all") { // a person may think for longer than a server is waited for
			does, err = c.Care.Allows(c.Cmd, question, true)
		}
		return err
	}
	return c.Make(func(ctx context.Context, c *op.Call) (err error) {
		body := c.Body()
		body["dry_run"] = !does
		if body["stage"], err = values.Stage(ctx, c.Server, "the stage", record.Stage(c.Arg), registry.FixityStage); err != nil {
			return err
		}
		v, err := remote.Send[struct{ Items []record.StagePause }](ctx, c.Server, http.MethodPost, "stages/"+c.Cmd.Name(), body)
		if err != nil {
			return err
		}
		if !does {
			return errors.Join(cli.Print(c.Cmd, c.JSON, v.Items, printPauses), cli.Unchanged(c.Cmd))
		}
		return showPauses(c, v.Items)
	})
}

// showPauses prints what is paused then. A stage that was to be resumed and is not is a failure.
func showPauses(c *op.Call, list []record.StagePause) error {
	if err := cli.Print(c.Cmd, c.JSON, list, printPauses); err != nil || c.Cmd.Name() != "resume" {
		return err
	}
	for _, p := range list {
		if !p.Paused {
			continue
		}
		next := "`farol resume --pause ID` ends one pause, no matter who made it"
		if c.Arg != "" {
			return cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("%s is still paused", p.Stage), Next: next}
		}
		_, err := fmt.Fprintln(c.Cmd.ErrOrStderr(), "Next:", next)
		return err //nolint:wrapcheck // of standard error
	}
	return nil
}

func printPauses(out io.Writer, stages []record.StagePause) error {
	for _, p := range stages {
		state := "is not paused"
		if p.Paused && p.PausedBy != nil && p.PausedAt != nil {
			state = "is paused, " + human.Pause(*p.PausedBy, *p.PausedAt, p.PauseReason)
		}
		for _, one := range p.Pauses {
			state += fmt.Sprintf("\n  pause %d, %s", one.ID, human.Pause(one.By, one.Since, one.Reason))
		}
		name := fmt.Sprintf("%s of %s", p.Stage, p.Action)
		if p.Stage == registry.FixityStage {
			name = string(p.Stage)
		}
		if _, err := fmt.Fprintf(out, "%s %s\n", name, state); err != nil {
			return fmt.Errorf("write the stages: %w", err)
		}
	}
	return nil
}
