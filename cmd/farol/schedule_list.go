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

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

func scheduleListCommand() *cobra.Command {
	return op.List[record.Schedule]{Path: "schedules", Print: printSchedules}.All(op.Command{
		Use:   "list",
		Short: "List recurring jobs with their last result and next run",
		Long: `Show the recurring jobs, with their state, last run and next run. Pause one with
"schedule pause", or run one now with "schedule run".`,
	})
}

// schedulePauseCommand pauses a job, or resumes it.
func schedulePauseCommand(verb string, paused bool) *cobra.Command {
	c := op.Command{
		Use:     verb + " JOB",
		Short:   "End your pauses of a job",
		Long:    "Each pause is on record: who, why, since when. A job is run again when no pause of it is left;\n`farol schedule list` shows them, and `farol resume --pause ID` ends that of another.",
		Example: "  farol schedule " + verb + " janitor\n  farol schedule " + verb + " janitor --json",
		Arg:     "job",
		Check: func(c *op.Call) error {
			_, err := chooseJobs(c.Arg)
			return err
		},
	}
	if paused {
		c.Use, c.Short = c.Use+" [--reason TEXT]", "Pause a job: do not run it when it is due"
		c.Flags = []op.Flag{{Name: "reason", Param: "reason", Help: "why, for the staff of the archive"}}
	}
	return c.Make(func(ctx context.Context, c *op.Call) error {
		body := c.Body()
		body["paused"] = paused
		j, err := remote.Send[record.Schedule](ctx, c.Server, http.MethodPatch, c.Path("schedules/{}"), body)
		switch {
		case errors.Is(err, registry.ErrNotFound):
			return cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("no scheduler has run %s yet", c.Arg), Next: "start `farol schedule`; `farol schedule list` shows the jobs it knows"}
		case err != nil:
			return err
		}
		err = cli.Printf(c.Cmd, c.JSON, j, "%s", standing(j))
		if err == nil && j.Paused && !paused {
			err = cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("%s is still paused", j.Job), Next: "`farol resume --pause ID` ends one pause, no matter who made it"}
		}
		return err
	})
}

// standing says whether a job is paused, and by whom.
func standing(j record.Schedule) string {
	text := j.Job + map[bool]string{true: " is paused.", false: " is resumed."}[j.Paused] + "\n"
	for _, p := range j.Pauses {
		text += fmt.Sprintf("  pause %d, %s\n", p.ID, human.Pause(p.By, p.Since, p.Reason))
	}
	return text
}

func printSchedules(out io.Writer, list []record.Schedule) error {
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

func scheduleState(j record.Schedule) string {
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

func tookOf(j record.Schedule) string {
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
func resultOf(j record.Schedule) string {
	if j.Error == "" {
		return j.Result
	}
	return strings.TrimPrefix(j.Result+"; could not do all: "+strings.ReplaceAll(j.Error, "\n", "; "), "; ")
}
