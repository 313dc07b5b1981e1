package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
)

// Pause is farol pause.
func Pause() *cobra.Command {
	var f stageFlags
	c := &cobra.Command{
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
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.change(cmd, args, "Stop claims of all stages, and fixity checks", func(ctx context.Context, r *registry.Registry, stage registry.Stage) ([]registry.StagePause, error) {
				return r.Pause(ctx, stage, f.reason)
			})
		},
	}
	cli.ReasonFlag(c, &f.reason, "the reason, which why-not shows for items that wait")
	f.add(c, "all stages, and fixity checks")
	return c
}

// Resume is farol resume.
func Resume() *cobra.Command {
	var f stageFlags
	c := &cobra.Command{
		Use:   "resume STAGE | --all | --pause ID",
		Short: "End your pauses of a stage, or of all stages",
		Long: `End your pauses of a stage, or what you paused with farol pause --all. A stage is claimed
again when no pause of it is left. Pauses that other people made stay, and are listed with
their IDs; --pause ends one of them, no matter who made it.`,
		Example: `  farol resume Store
  farol resume --pause 7
  farol resume --all --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.change(cmd, args, "End your pause of all stages", func(ctx context.Context, r *registry.Registry, stage registry.Stage) ([]registry.StagePause, error) {
				if f.pause > 0 {
					return r.LiftPause(ctx, f.pause)
				}
				return r.Resume(ctx, stage)
			})
		},
	}
	f.add(c, "all stages and fixity checks, as far as you paused them with --all")
	c.Flags().Int64Var(&f.pause, "pause", 0, "end this pause only, no matter who made it")
	return c
}

// stageFlags are those of commands that pause and resume.
type stageFlags struct {
	all, asJSON bool
	care        cli.Caution
	reason      string // of a pause
	pause       int64  // the only one that is ended
}

func (f *stageFlags) add(c *cobra.Command, all string) {
	c.Flags().BoolVar(&f.all, "all", false, all)
	f.care.Flags(c)
	cli.JSONFlag(c, &f.asJSON)
}

// change makes one change to one stage, or to all after it has asked, and prints their
// new state.
func (f *stageFlags) change(cmd *cobra.Command, args []string, question string,
	change func(context.Context, *registry.Registry, registry.Stage) ([]registry.StagePause, error),
) error {
	stage, does, err := f.chosen(cmd, args, question)
	if err != nil {
		return err
	}
	if err := remote.RefuseFlags(cmd, "dry-run"); err != nil {
		return err
	}
	done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
		if !does {
			return cli.Unchanged(cmd)
		}
		list, err := pauseRemotely(ctx, s, cmd.Name(), stage, f)
		if err != nil {
			return err
		}
		return f.show(cmd, stage, list)
	})
	if done || err != nil {
		return err
	}
	return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
		if !does {
			list, err := r.Pauses(ctx)
			if err != nil {
				return err
			}
			return errors.Join(cli.Print(cmd, f.asJSON, list, printPauses), cli.Unchanged(cmd))
		}
		entry := registry.AuditEntry{Operation: "stages." + cmd.Name(), SubjectType: "stage", SubjectID: string(stage)}
		if f.all || f.pause > 0 {
			entry.Operation, entry.SubjectID = entry.Operation+"_all", "all"
		}
		if f.pause > 0 {
			entry.Detail = map[string]any{"pause": f.pause}
		}
		if f.reason != "" {
			entry.Detail = map[string]any{"reason": f.reason}
		}
		list, err := registry.Acted(ctx, r, registry.Actor{}, &entry, func(ctx context.Context) ([]registry.StagePause, error) { return change(ctx, r, stage) })
		if err != nil {
			return err
		}
		return f.show(cmd, stage, list)
	})
}

// show prints what is paused then. A stage that was to be resumed and is not is a failure.
func (f *stageFlags) show(cmd *cobra.Command, stage registry.Stage, list []registry.StagePause) error {
	if err := cli.Print(cmd, f.asJSON, list, printPauses); err != nil || cmd.Name() != "resume" {
		return err
	}
	for _, p := range list {
		if !p.Paused {
			continue
		}
		next := "`farol resume --pause ID` ends one pause, no matter who made it"
		if stage != "" {
			return cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("%s is still paused", stage), Next: next}
		}
		_, err := fmt.Fprintln(cmd.ErrOrStderr(), "Next:", next)
		return err //nolint:wrapcheck // of standard error
	}
	return nil
}

// chosen is the stage that a command is about, "" for all, and whether it does anything.
func (f *stageFlags) chosen(cmd *cobra.Command, args []string, question string) (stage registry.Stage, does bool, err error) {
	does = true
	switch {
	case f.pause < 0 || f.pause > 0 && (f.all || len(args) > 0):
		return "", false, cli.Usage(errors.New("--pause is the ID of a pause, and goes with nothing else"), "`farol stage list` shows the pauses")
	case f.pause == 0 && f.all == (len(args) == 1):
		return "", false, cli.Usage(errors.New("name one stage, or give --all"), "the stages are: "+strings.Join(cli.Strings(append(values.Stages(), registry.FixityStage)), ", "))
	case !f.all && (f.care.Yes || f.care.DryRun):
		return "", false, cli.Usage(errors.New("--yes and --dry-run go with --all"), "leave them out")
	case f.pause > 0:
	case f.all:
		does, err = f.care.Allows(cmd, question, true)
	default:
		stage, err = values.Stage(cmd.Context(), "the stage", registry.Stage(args[0]), registry.FixityStage)
	}
	return stage, does, err
}

func printPauses(out io.Writer, stages []registry.StagePause) error {
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

// Workers is farol workers.
func Workers() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "workers",
		Short: "List live worker processes",
		Example: `  farol workers
  farol workers --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
				list, err := remote.All[registry.Worker](ctx, s, "workers")
				if err != nil {
					return err
				}
				return printWorkers(cmd, asJSON, list)
			})
			if done || err != nil {
				return err
			}
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				list, err := r.Workers(ctx)
				if err != nil {
					return err
				}
				return printWorkers(cmd, asJSON, list)
			})
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}

func printWorkers(cmd *cobra.Command, asJSON bool, list []registry.Worker) error {
	header := []string{"WORKER", "NODE/PID", "RUNS", "SLOTS", "HEARTBEAT", "UP", ""}
	return cli.PrintList(cmd, asJSON, list, "workers", header, func(w registry.Worker) []string {
		slots, state := "", "serves HTTP"
		if w.Slots != nil {
			slots, state = strconv.Itoa(*w.Slots), "works"
		}
		if w.Draining {
			state = "draining"
		}
		return []string{
			human.Line(w.Worker), fmt.Sprintf("%s/%d", human.Line(w.Node), w.PID), strconv.Itoa(w.Running), slots,
			human.Duration(time.Duration(w.HeartbeatAgo * float64(time.Second))), human.Duration(time.Since(w.Started)), state,
		}
	})
}

// Drain is farol drain.
func Drain() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "drain WORKER",
		Short: "Drain a worker",
		Long: `Stop a worker, as SIGTERM does: it claims nothing more, gives running stages FAROL_GRACE
to end, and returns the other items to the queue. A farol serve ends too; programs keep
the items that they have leased. farol workers lists the names.`,
		Example: `  farol drain node-1-4711
  farol drain node-2-4712 --json`,
		Args: cli.OneArg("worker"),
		RunE: func(cmd *cobra.Command, args []string) error {
			show := func(w registry.Worker, err error) error {
				switch {
				case errors.Is(err, registry.ErrNotFound):
					return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol workers` lists the live workers"}
				case err != nil:
					return err
				}
				return cli.Printf(cmd, asJSON, w, "%s is draining; %s in progress.\n", human.Line(w.Worker), human.Count(w.Running, "item", "items"))
			}
			done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
				return show(remote.Send[registry.Worker](ctx, s, http.MethodPost, "workers/"+url.PathEscape(args[0])+"/drain", nil))
			})
			if done || err != nil {
				return err
			}
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				entry := registry.AuditEntry{Operation: "workers.drain", SubjectType: "worker", SubjectID: args[0]}
				return show(registry.Acted(ctx, r, registry.Actor{}, &entry, func(ctx context.Context) (registry.Worker, error) { return r.Drain(ctx, args[0]) }))
			})
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}
