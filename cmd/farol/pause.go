package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/registry"
)

func pauseCommand() *cobra.Command {
	var reason string
	var all, asJSON bool
	c := &cobra.Command{
		Use:   "pause STAGE | --all",
		Short: "Stop claims of a stage, or of all",
		Long: `Stop claims of a stage, or of all. What runs goes on, and what comes to the stage
waits. The stages are those of farol item list --help, and Fixity Check, which has
no items: it stops the checks of stored copies. --all stops these as well.`,
		Example: `  farol pause Store --reason 'The bucket moves.'
  farol pause 'Fixity Check' --reason 'The provider counts requests.'
  farol pause --all --reason Upgrade
  farol pause Record --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeStages(cmd, args, all, asJSON, func(ctx context.Context, r *registry.Registry, stage string) ([]registry.StagePause, error) {
				return r.Pause(ctx, stage, reason)
			})
		},
	}
	reasonFlag(c, &reason, "why, for people who ask what an item waits for")
	c.Flags().BoolVar(&all, "all", false, "all stages, and fixity checks")
	jsonFlag(c, &asJSON)
	return c
}

func resumeCommand() *cobra.Command {
	var all, asJSON bool
	c := &cobra.Command{
		Use:   "resume STAGE | --all",
		Short: "Let a stage be claimed again, or all",
		Example: `  farol resume Store
  farol resume --all --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeStages(cmd, args, all, asJSON, func(ctx context.Context, r *registry.Registry, stage string) ([]registry.StagePause, error) {
				return r.Resume(ctx, stage)
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "all stages and fixity checks, also those that were paused one by one")
	jsonFlag(c, &asJSON)
	return c
}

// changeStages makes one change to one stage or all, and shows what came of it.
func changeStages(cmd *cobra.Command, args []string, all, asJSON bool,
	change func(context.Context, *registry.Registry, string) ([]registry.StagePause, error),
) error {
	if all == (len(args) == 1) {
		return usage(errors.New("name one stage, or give --all"), "the stages are: "+strings.Join(append(allStages(), registry.FixityStage), ", "))
	}
	stage := ""
	if !all {
		var err error
		if stage, err = oneStage(cmd.Context(), "the stage", args[0], registry.FixityStage); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
	defer cancel()
	s, err := connectRegistry(ctx, cmd.Name())
	if err != nil {
		return err
	}
	defer s.close()
	stages, err := change(ctx, s.registry, stage)
	switch {
	case err != nil:
		return err
	case asJSON:
		return writeJSON(cmd.OutOrStdout(), stages)
	}
	for _, p := range stages {
		state := "is claimed again"
		if p.Paused && p.PausedBy != nil && p.PausedAt != nil {
			state = "is paused, by " + plain(*p.PausedBy) + " since " + at(*p.PausedAt)
			if p.PauseReason != nil {
				state += ": " + plain(*p.PauseReason)
			}
		}
		name := p.Stage + " of " + p.Action
		if p.Stage == registry.FixityStage {
			name = p.Stage
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", name, state)
	}
	return nil
}

func workersCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "workers",
		Short: "List the worker processes that live",
		Example: `  farol workers
  farol workers --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			s, err := connectRegistry(ctx, "workers")
			if err != nil {
				return err
			}
			defer s.close()
			list, err := s.registry.Workers(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), list)
			}
			return printWorkers(cmd, list)
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

func printWorkers(cmd *cobra.Command, list []registry.Worker) error {
	var rows [][]string
	for _, w := range list {
		slots, state := "", "serves HTTP"
		if w.Slots != nil {
			slots, state = strconv.Itoa(*w.Slots), "works"
		}
		if w.Draining {
			state = "was asked to stop"
		}
		rows = append(rows, []string{
			plain(w.Worker), fmt.Sprintf("%s/%d", plain(w.Node), w.PID), strconv.Itoa(w.Running), slots,
			spanOf(time.Duration(w.HeardAgo * float64(time.Second))), spanOf(time.Since(w.Started)), state,
		})
	}
	return writeList(cmd.OutOrStdout(), "workers", []string{"WORKER", "NODE/PID", "RUNS", "SLOTS", "HEARD", "UP", ""}, rows)
}

func drainCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "drain WORKER",
		Short: "Ask a worker to stop",
		Long: `Ask a worker to stop, as SIGTERM does: it claims nothing more, what runs gets its
FAROL_GRACE to end, and what is left goes back at once. farol serve ends too; what
programs have leased stays theirs. farol workers lists the names.`,
		Example: `  farol drain node-1-4711
  farol drain node-2-4712 --json`,
		Args: oneArg("worker"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			s, err := connectRegistry(ctx, "drain")
			if err != nil {
				return err
			}
			defer s.close()
			w, err := s.registry.Drain(ctx, args[0])
			switch {
			case errors.Is(err, registry.ErrNotFound):
				return failure{code: exitFailed, err: err, next: "`farol workers` lists those that live"}
			case err != nil:
				return err
			case asJSON:
				return writeJSON(cmd.OutOrStdout(), w)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s claims nothing more; it has %s in hand.\n", plain(w.Worker), count(w.Running, "item", "items"))
			return err
		},
	}
	jsonFlag(c, &asJSON)
	return c
}
