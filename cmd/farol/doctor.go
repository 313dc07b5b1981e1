package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	upkeeppkg "github.com/farol-preservation/farol/pipeline/upkeep"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/upkeep"
)

func doctorCommand() *cobra.Command {
	return op.Command{
		Use:   "doctor",
		Short: "Report orphans and inconsistencies in the database, Redis and all buckets",
		Long: `Check the database, Redis and all buckets. Report data that belongs to no item,
recorded data that is missing, and what the janitor will do about each. Nothing is
changed, and items in progress are not reported. Every preservation bucket is listed
in full and compared with the records, or its S3 Inventory is if
FAROL_TARGET_<NAME>_INVENTORY is set: then each difference is looked up in the bucket.

Exit codes: 0 nothing needs a person; 1 something does; 2 a server or bucket could not
be checked.`,
		Example: `  farol doctor
  farol doctor --json
  farol doctor --json --names 100000`,
		Flags: []op.Flag{{Name: "names", Kind: op.Number, Default: 10, Help: "list up to so many names of each finding", Least: 1, Most: 10_000_000}},
	}.Alone(runDoctor)
}

// diagnosis is what farol doctor prints as JSON.
type diagnosis struct {
	Healthy bool `json:"healthy"` // nothing needs a person, and everything could be checked
	*upkeeppkg.Report
	Janitor *record.Round `json:"janitor"` // null if it is unknown
}

func runDoctor(c *op.Call) error {
	ctx := c.Cmd.Context()
	d, done, err := connectDoctor(ctx, "doctor")
	if err != nil {
		if f := cli.FailureOf(err); f.Code == cli.ExitFailed { // if a server does not answer, the result is unknown
			f.Code = cli.ExitUsage
			return f
		}
		return err
	}
	defer done()
	d.Names = c.Number("names")
	report := d.Examine(ctx)
	v := diagnosis{Report: report}
	if last, err := upkeep.In(d.Registry).LastRound(ctx); err == nil {
		v.Janitor = &last
	} else {
		report.Unchecked = append(report.Unchecked, upkeeppkg.Unchecked{Store: "database", Error: err.Error()})
	}
	v.Healthy = !report.NeedsPerson() && len(report.Unchecked) == 0
	if err := cli.Print(c.Cmd, c.JSON, v, writeDiagnosis); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case len(report.Unchecked) > 0:
		return cli.Failure{Code: cli.ExitUsage, Err: errors.New("not everything could be checked"), Next: "fix what is named above, and run it again"}
	case report.NeedsPerson():
		return cli.Failure{Code: cli.ExitFailed, Next: "see \"What items leave behind\" in docs/operators.md"}
	}
	return nil
}

func writeDiagnosis(out io.Writer, v diagnosis) error {
	if err := writeFindings(out, v.Report); err != nil {
		return err
	}
	last := "The janitor has not run yet."
	switch r := v.Janitor; {
	case r == nil:
		last = "The janitor's last run is unknown."
	case r.Running:
		last = "The janitor is running: " + human.Line(r.Holder) + "."
	case r.EndedAt != nil:
		last = "The janitor's last run ended " + human.Time(*r.EndedAt) + "."
		if r.Error != "" {
			last += " It failed in part: " + human.Line(strings.ReplaceAll(r.Error, "\n", "; "))
		}
	}
	if v.Healthy {
		last += "\nNothing needs a person."
	}
	_, err := fmt.Fprintln(out, last)
	return err
}

// writeFindings writes each finding with its names, and what could not be checked.
func writeFindings(out io.Writer, report *upkeeppkg.Report) error {
	var b strings.Builder
	for _, f := range report.Findings {
		mark := " "
		if f.Person {
			mark = "!"
		}
		one := strings.TrimSuffix(f.What, "s")
		if f.What == "copies" {
			one = "copy"
		}
		fmt.Fprintf(&b, "%s %s: %s", mark, f.Store, human.Count(f.Count, one, f.What))
		if f.Bytes > 0 {
			fmt.Fprintf(&b, ", %s", human.Bytes(f.Bytes))
		}
		if f.Since != nil {
			fmt.Fprintf(&b, ", since %s", human.Time(*f.Since))
		}
		fmt.Fprintf(&b, ": %s (%s)\n", f.Text(), f.Why)
		fmt.Fprintf(&b, "    janitor: %s\n", doing(f))
		if len(f.Names) > 0 {
			names := make([]string, len(f.Names))
			for i, n := range f.Names {
				names[i] = human.Line(n)
			}
			fmt.Fprintf(&b, "    %s\n", strings.Join(names, " "))
		}
	}
	for _, u := range report.Unchecked {
		fmt.Fprintf(&b, "? %s: cannot be checked or cleaned up: %s\n", u.Store, human.Line(u.Error))
	}
	if b.Len() == 0 {
		b.WriteString("No orphans, and nothing to remove.\n")
	}
	for _, i := range report.Inventories {
		fmt.Fprintf(&b, "%s was compared with its S3 Inventory of %s (%s). Newer copies, which were not looked for: %d.\n", i.Store, human.Time(i.Taken), human.Line(i.Manifest), i.Newer)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// doing says what the janitor does about a finding.
func doing(f upkeeppkg.Finding) string {
	switch {
	case f.Janitor == upkeeppkg.Removes:
		return "removes them in its next run"
	case f.Janitor == upkeeppkg.Waits && f.Due != nil:
		return "removes them from " + human.Time(*f.Due) + " on"
	case f.Janitor == upkeeppkg.Waits:
		return "removes them when they are due"
	case f.Janitor == upkeeppkg.Leaves:
		return "leaves them"
	}
	return "removed them"
}
