package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/upkeep"
)

func scheduleListCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List recurring jobs with their last result and next run",
		Long: `Show the recurring jobs, with their state, last run and next run. Pause one with
"schedule pause", or run one now with "schedule run".`,
		Example: `  farol schedule list
  farol schedule list --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
				list, err := remote.All[upkeep.Schedule](ctx, s, "schedules")
				if err != nil {
					return err
				}
				return cli.Print(cmd, asJSON, list, printSchedules)
			})
			if done || err != nil {
				return err
			}
			return connect.WithRegistryFor(cmd, 0, func(ctx context.Context, r *registry.Registry) error {
				list, err := upkeep.In(r).Schedules(ctx)
				if err != nil {
					return err
				}
				return cli.Print(cmd, asJSON, list, printSchedules)
			})
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}

// schedulePauseCommand pauses a job, or resumes it.
func schedulePauseCommand(verb string, paused bool) *cobra.Command {
	var asJSON bool
	var reason string
	short, use := "Pause a job: do not run it when it is due", verb+" JOB [--reason TEXT]"
	if !paused {
		short, use = "End your pauses of a job", verb+" JOB"
	}
	c := &cobra.Command{
		Use:     use,
		Short:   short,
		Long:    "Each pause is on record: who, why, since when. A job is run again when no pause of it is left;\n`farol schedule list` shows them, and `farol resume --pause ID` ends that of another.",
		Example: "  farol schedule " + verb + " janitor\n  farol schedule " + verb + " janitor --json",
		Args:    cli.OneArg("job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := chooseJobs(args[0]); err != nil {
				return err
			}
			show := func(j upkeep.Schedule, err error) error {
				switch {
				case errors.Is(err, registry.ErrNotFound):
					return cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("no scheduler has run %s yet", args[0]), Next: "start `farol schedule`; `farol schedule list` shows the jobs it knows"}
				case err != nil:
					return err
				}
				err = cli.Printf(cmd, asJSON, j, "%s", standing(j))
				if err == nil && j.Paused && !paused {
					err = cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("%s is still paused", j.Job), Next: "`farol resume --pause ID` ends one pause, no matter who made it"}
				}
				return err
			}
			body := map[string]any{"paused": paused}
			if reason != "" {
				body["reason"] = reason
			}
			done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
				return show(remote.Send[upkeep.Schedule](ctx, s, http.MethodPatch, "schedules/"+args[0], body))
			})
			if done || err != nil {
				return err
			}
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				entry := registry.AuditEntry{Operation: "schedules.set", SubjectType: "schedule", SubjectID: args[0], Detail: map[string]any{"set": body}}
				return show(registry.Acted(ctx, r, registry.Actor{}, &entry, func(ctx context.Context) (upkeep.Schedule, error) {
					return upkeep.In(r).PauseSchedule(ctx, args[0], paused, reason)
				}))
			})
		},
	}
	if paused {
		c.Flags().StringVar(&reason, "reason", "", "why, for the staff of the archive")
	}
	cli.JSONFlag(c, &asJSON)
	return c
}

// standing says whether a job is paused, and by whom.
func standing(j upkeep.Schedule) string {
	text := j.Job + map[bool]string{true: " is paused.", false: " is resumed."}[j.Paused] + "\n"
	for _, p := range j.Pauses {
		text += fmt.Sprintf("  pause %d, %s\n", p.ID, human.Pause(p.By, p.Since, p.Reason))
	}
	return text
}

func printSchedules(out io.Writer, list []upkeep.Schedule) error {
	var rows [][]string
	late, after := false, ""
	for _, j := range list {
		late = late || j.Late > unnoticed
		rows = append(rows, []string{
			j.Job, everyOf(j.Every), scheduleState(j), optional(j.EndedAt), tookOf(j), human.Time(j.NextRunAt), fmt.Sprintf("%d/%d", j.Failures, j.Runs),
			human.Line(j.Holder), human.Line(resultOf(j)),
		})
		for _, p := range j.Pauses {
			after += fmt.Sprintf("%s: pause %d, %s\n", j.Job, p.ID, human.Pause(p.By, p.Since, p.Reason))
		}
	}
	if late {
		after += "Jobs are late because no scheduler runs: start farol schedule.\n"
	}
	if err := cli.WriteList(out, "jobs", []string{"JOB", "EVERY", "STATE", "LAST RUN ENDED", "TOOK", "NEXT RUN", "FAILED", "BY", "RESULT"}, rows); err != nil {
		return err
	}
	_, err := io.WriteString(out, after)
	return err
}

// unnoticed is how late a job may be without anything being wrong.
const unnoticed = time.Minute

func scheduleState(j upkeep.Schedule) string {
	switch {
	case j.Running:
		return "running"
	case j.Paused:
		return "paused"
	case j.Late > unnoticed:
		return "late by " + human.Duration(j.Late)
	case j.Late > 0:
		return "due"
	}
	return "waits"
}

// everyOf is an interval without the units that are 0.
func everyOf(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func tookOf(j upkeep.Schedule) string {
	if j.Took == nil {
		return "-"
	}
	return j.Took.Round(time.Millisecond).String()
}

func optional(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return human.Time(*t)
}

// resultOf is the result of the last run, and its error.
func resultOf(j upkeep.Schedule) string {
	if j.Error == "" {
		return j.Result
	}
	return strings.TrimPrefix(j.Result+"; could not do all: "+strings.ReplaceAll(j.Error, "\n", "; "), "; ")
}
