package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
)

// Fixity is farol fixity.
func Fixity() *cobra.Command {
	return cli.Group("fixity", "Verify stored copies against their recorded checksums",
		fixityStatusCommand(), fixityCheckCommand(), fixityPolicyCommand(), fixityImportCommand())
}

func fixityStatusCommand() *cobra.Command {
	return op.Command{
		Use:   "status",
		Short: "Show the state of fixity checks and all bad copies",
		Long: `Show how many copies are overdue for a fixity check, which are bad or cannot be checked,
how many were checked in the last 24 hours, and when the due checks will be complete at
the present rate.

The most overdue copies are named. Workers check the targets in mode "read". Targets in
mode "report" are checked by farol fixity import only, and targets in mode "off" are not
checked. Days with a star are the default, FAROL_FIXITY_DAYS.

Exit codes: 0 no copy is known to be bad; 1 some are bad or cannot be checked.`,
		Example: `  farol fixity status
  farol fixity status --worst 50
  farol fixity status --json`,
		Flags:  []op.Flag{{Name: "worst", Kind: op.Number, Default: 10, Least: 0, Most: 10000, Help: "how many of the most overdue copies to list"}},
		Within: -1,
		Check:  func(c *op.Call) error { return remote.RefuseFlags(c.Cmd, "worst") },
	}.Make(func(ctx context.Context, c *op.Call) error {
		report, err := fixityReport(ctx, c)
		if err != nil {
			return err
		}
		if err := cli.Print(c.Cmd, c.JSON, report, writeFixityStatus); err != nil {
			return err
		}
		if report.Bad+report.Stuck > 0 { // which the exit code says
			return cli.Failure{Code: cli.ExitFailed, Next: "`farol repair --all --dry-run` shows which bad copies can be repaired"}
		}
		return nil
	})
}

// FixityReport is what farol fixity status prints as JSON.
type FixityReport struct {
	fixity.Status

	BadCopies []fixity.BadCopy    `json:"bad"` // the first 1,000
	Stops     []fixity.RepairStop `json:"brakes"`
}

// mostBad is how many bad copies are shown.
const mostBad = 1000

// fixityReport is the state of fixity checks, for those who see all.
func fixityReport(ctx context.Context, c *op.Call) (r FixityReport, err error) {
	q := url.Values{}
	if c.Here() {
		q.Set("worst", strconv.Itoa(c.Number("worst")))
	}
	v, err := remote.Get[struct{ Archive *fixity.Status }](ctx, c.Server, "fixity", q)
	switch {
	case err != nil:
		return r, err
	case v.Archive == nil:
		return r, cli.Failure{Code: cli.ExitFailed, Err: errors.New("the state of all checks is for staff, operators and auditors of the archive"), Next: "GET /api/v1/fixity shows that of your institution"}
	}
	r.Status = *v.Archive
	if r.BadCopies, err = remote.List[fixity.BadCopy](ctx, c.Server, "fixity/bad", nil, mostBad); err != nil {
		return r, err
	}
	r.Stops, err = remote.All[fixity.RepairStop](ctx, c.Server, "brakes")
	return r, err
}

func writeFixityStatus(out io.Writer, r FixityReport) error {
	var rows [][]string
	for _, t := range r.Targets {
		if t.Mode == "off" && t.Copies == 0 {
			continue
		}
		days, overdue, compliant := strconv.Itoa(t.Days), strconv.FormatInt(t.Overdue, 10), cmp.Or(t.InTime(), "-")
		if t.ByDefault {
			days += "*"
		}
		if !t.Promised() {
			days, overdue = "-", "-"
		}
		rows = append(rows, []string{
			t.Target, t.Mode, days, strconv.FormatInt(t.Copies, 10), strconv.FormatInt(t.Unread, 10), overdue, compliant, strconv.FormatInt(t.Bad, 10), strconv.FormatInt(t.Stuck, 10),
			strconv.FormatInt(t.Running, 10), fmt.Sprintf("%d (%s)", t.Checks24h, human.Bytes(t.Bytes24h)),
		})
	}
	if err := cli.WriteTable(out, []string{"TARGET", "MODE", "DAYS", "COPIES", "NEVER READ", "OVERDUE", "COMPLIANT", "BAD", "STUCK", "RUNNING", "CHECKED IN 24 H"}, rows); err != nil {
		return err
	}
	fmt.Fprintln(out)
	in := func(d time.Duration) string { return human.Duration(d) + ", by " + human.Time(r.At.Add(d)) }
	for _, said := range append(r.Standing(human.Number), rateOf(r.Status), r.Outlook(in)) {
		fmt.Fprintln(out, said)
	}
	writeStops(out, r)
	return writeWorst(out, r)
}

// writeStops lists pauses and stopped repairs, with their reasons.
func writeStops(out io.Writer, r FixityReport) {
	if r.Paused && r.PausedBy != nil && r.PausedAt != nil {
		why := "."
		if r.PauseReason != nil {
			why = ": " + human.Line(*r.PauseReason)
		}
		fmt.Fprintf(out, "Checks are paused, by %s since %s%s\n`farol resume '%s'` continues them.\n", human.Line(*r.PausedBy), human.Time(*r.PausedAt), why, registry.FixityStage)
	}
	for _, t := range r.Targets {
		if t.PausedUntil != nil {
			fmt.Fprintf(out, "Checks of %s are suspended until %s: %s\n", t.Target, human.Time(*t.PausedUntil), human.Line(t.PauseReason))
		}
	}
	for _, b := range r.Stops {
		fmt.Fprintf(out, "Repair has stopped at %s since %s: %s\n", b.Provider, human.Time(b.StoppedAt), human.Line(b.Reason))
	}
}

// rateOf says how many checks are made.
func rateOf(s fixity.Status) string {
	switch {
	case s.Every == 0:
		return "The scheduler has not allowed any checks yet (farol schedule)."
	case s.Measured:
		return fmt.Sprintf("Present rate: %.1f checks an hour; %d every %v are allowed.", 3600*s.Rate, s.Fed, s.Every)
	}
	return fmt.Sprintf("Up to %.1f checks an hour are allowed: %d every %v.", 3600*s.Rate, s.Fed, s.Every)
}

func writeWorst(out io.Writer, r FixityReport) error {
	if len(r.Worst) > 0 {
		fmt.Fprintln(out, "\nMost overdue:")
		err := printTable(out, []string{"BY", "TARGET", "LAST CHECK", "FILE", "WHY"}, r.Worst, func(w fixity.OverdueCopy) []string {
			checked := "never"
			if w.Checked != nil {
				checked = w.Checked.UTC().Format(time.DateOnly)
			}
			return []string{human.Duration(w.Late), w.Target, checked, human.Line(w.File), human.Line(w.Error)}
		})
		if err != nil {
			return err
		}
	}
	if len(r.BadCopies) == 0 {
		_, err := fmt.Fprintln(out, "\nNo bad copies.")
		return err
	}
	fmt.Fprintln(out, "\nBad:")
	return printTable(out, []string{"PROBLEM", "TARGET", "SINCE", "FILE"}, r.BadCopies, func(b fixity.BadCopy) []string {
		return []string{b.Problem, b.Target, human.Time(b.FoundAt), human.Line(b.File)}
	})
}
