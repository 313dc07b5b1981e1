package archive

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
)

// Fixity is farol fixity.
func Fixity() *cobra.Command {
	return cli.Group("fixity", "Verify stored copies against their recorded checksums",
		fixityStatusCommand(), fixityCheckCommand(), fixityPolicyCommand(), fixityImportCommand())
}

func fixityStatusCommand() *cobra.Command {
	var asJSON bool
	var worst int
	c := &cobra.Command{
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
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.InRange("--worst", worst, 0, 10000); err != nil {
				return err
			}
			return runFixityStatus(cmd, worst, asJSON)
		},
	}
	c.Flags().IntVar(&worst, "worst", 10, "how many of the most overdue copies to list")
	cli.JSONFlag(c, &asJSON)
	return c
}

// FixityReport is what farol fixity status prints as JSON.
type FixityReport struct {
	fixity.Status

	BadCopies []fixity.BadCopy    `json:"bad"` // the first 1,000
	Stops     []fixity.RepairStop `json:"brakes"`
}

func connectFixity(ctx context.Context) (*connect.Services, settings.Fixity, error) {
	config, err := connect.Load(settings.ReadFixityStatus)
	if err != nil {
		return nil, settings.Fixity{}, err
	}
	s, err := connect.Open(ctx, "fixity", connect.Needs{Database: &config.Database})
	return s, config.Fixity, err
}

func runFixityStatus(cmd *cobra.Command, worst int, asJSON bool) error {
	ctx := cmd.Context()
	var report FixityReport
	if err := remote.RefuseFlags(cmd, "worst"); err != nil {
		return err
	}
	done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) (err error) {
		if report, err = remoteFixity(ctx, s); err != nil {
			return err
		}
		return report.show(cmd, asJSON)
	})
	if done || err != nil {
		return err
	}
	s, config, err := connectFixity(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if report.Status, err = fixity.In(s.Registry).Status(ctx, fixity.StatusQuery{Days: config.Days, Tries: config.Attempts, Worst: worst}); err != nil {
		return err
	}
	if report.BadCopies, err = fixity.In(s.Registry).BadCopies(ctx, "", 0, 0, mostBad); err != nil {
		return err
	}
	if report.Stops, err = fixity.In(s.Registry).RepairStops(ctx); err != nil {
		return err
	}
	return report.show(cmd, asJSON)
}

// show prints a report. Its exit code says whether copies are bad.
func (report FixityReport) show(cmd *cobra.Command, asJSON bool) error {
	if err := cli.Print(cmd, asJSON, report, writeFixityStatus); err != nil {
		return err
	}
	if report.Bad+report.Stuck > 0 {
		return cli.Failure{Code: cli.ExitFailed, Next: "`farol repair --all --dry-run` shows which bad copies can be repaired"}
	}
	return nil
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
		var rows [][]string
		for _, w := range r.Worst {
			checked := "never"
			if w.Checked != nil {
				checked = w.Checked.UTC().Format(time.DateOnly)
			}
			rows = append(rows, []string{human.Duration(w.Late), w.Target, checked, human.Line(w.File), human.Line(w.Error)})
		}
		if err := cli.WriteTable(out, []string{"BY", "TARGET", "LAST CHECK", "FILE", "WHY"}, rows); err != nil {
			return err
		}
	}
	if len(r.BadCopies) == 0 {
		_, err := fmt.Fprintln(out, "\nNo bad copies.")
		return err
	}
	fmt.Fprintln(out, "\nBad:")
	var rows [][]string
	for _, b := range r.BadCopies {
		rows = append(rows, []string{b.Problem, b.Target, human.Time(b.FoundAt), human.Line(b.File)})
	}
	return cli.WriteTable(out, []string{"PROBLEM", "TARGET", "SINCE", "FILE"}, rows)
}
