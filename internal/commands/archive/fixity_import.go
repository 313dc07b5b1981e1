package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/pipeline/fixity"
)

func fixityImportCommand() *cobra.Command {
	return op.Command{
		Use:   "import REPORT.csv... --target NAME",
		Short: "Import checksum reports of S3 Batch Operations",
		Long: `Record the results of completion reports of S3 Batch Operations. Its operation
"Compute checksum" reads objects, including archived ones, and reports their digests.
Digests of whole objects by SHA-256, SHA-1 and MD5 are compared with the recorded ones.
Each row counts as a fixity check: it gets an event and the date of the check, and an
alert if the copy differs. Copies that a report calls missing are looked up again.

--date says when the job ran; the default is the file's modification time. A report that
is imported twice counts once. Rows that cannot be used are printed, and the import
continues. - reads standard input.

Exit codes: 0 every row was used and matched; 1 some were not; 2 usage error.`,
		Example: `  farol fixity import report.csv --target Glacier-VA
  farol fixity import report.csv more.csv --target Glacier-VA --json
  farol fixity import - --target Glacier-VA --date 2026-11-02T15:04:05Z < report.csv`,
		Args: cobra.MinimumNArgs(1),
		Flags: []op.Flag{
			{Name: "target", Help: "the storage target that the reports are about (required)"},
			{Name: "date", Help: "when the checksums were computed, such as 2026-11-02T15:04:05Z"},
		},
	}.Alone(importReports)
}

// importReport is what farol fixity import prints as JSON for each file.
type importReport struct {
	File string    `json:"file"`
	Date time.Time `json:"date"`
	fixity.Sum
	Problems []fixity.Problem `json:"problems"` // the first 10,000
}

func importReports(c *op.Call) error {
	ctx, out := c.Cmd.Context(), c.Cmd.OutOrStdout()
	if !c.Given("target") {
		return cli.Usage(errors.New("--target is missing"), "`farol fixity policy` lists the storage targets")
	}
	config, err := connect.Load(settings.Audit{})
	if err != nil {
		return err
	}
	target, known := config.Storage.TargetOf(c.Text("target"))
	if !known {
		return noTarget(c.Text("target"))
	}
	date, err := dateOf(c.Text("date"))
	if err != nil {
		return cli.Usage(err, "see `farol fixity import --help`")
	}
	s, err := connect.Open(ctx, "fixity", connect.Needs{Database: &config.Database, Storage: &config.Storage, Log: connect.NewLogger(config.Log)})
	if err != nil {
		return err
	}
	defer s.Close()
	reports := []importReport{}
	perfect := true
	for _, name := range c.Args {
		r := &fixity.Report{Registry: s.Registry, Target: target.Name, Bucket: s.Targets[target.Name], At: date}
		report, err := importFile(ctx, r, c.Cmd.InOrStdin(), out, name, c.JSON)
		if err != nil {
			return err
		}
		perfect = perfect && report.Matched+report.Known+report.Incomparable+report.Overtaken == report.Rows
		reports = append(reports, report)
	}
	if c.JSON {
		if err := cli.WriteJSON(out, reports); err != nil {
			return err
		}
	}
	if !perfect {
		return cli.Failure{Code: cli.ExitFailed, Next: "`farol fixity status` lists the bad copies; the rows that were not used are listed above"}
	}
	return nil
}

// dateOf reads a point in time that is not in the future.
func dateOf(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	date, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return date, fmt.Errorf("--date is %q; it must be a time such as 2026-11-02T15:04:05Z", text)
	}
	if date.After(time.Now()) {
		return date, fmt.Errorf("--date is %q, which is in the future", text)
	}
	return date, nil
}

// importFile imports one report.
func importFile(ctx context.Context, r *fixity.Report, in io.Reader, out io.Writer, name string, asJSON bool) (importReport, error) {
	report := importReport{File: name, Problems: []fixity.Problem{}}
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return report, cli.Usage(err, "name a report that you may read")
		}
		defer file.Close() //nolint:errcheck // only read
		info, err := file.Stat()
		if err != nil {
			return report, fmt.Errorf("read the time of %s: %w", name, err)
		}
		if in = file; r.At.IsZero() {
			r.At = info.ModTime()
		}
	}
	if r.At.IsZero() {
		return report, cli.Usage(errors.New("--date is missing"), "say when the checksums were computed: standard input has no modification time")
	}
	report.Date = r.At.UTC()
	var broken error // standard output
	sum, err := r.Import(ctx, in, func(p fixity.Problem) {
		switch {
		case !asJSON:
			if _, err := fmt.Fprintf(out, "%s:%d: %s: %s\n", name, p.Line, human.Line(cmp.Or(p.File, p.Key, "-")), human.Line(p.Problem)); err != nil {
				broken = err
			}
		case len(report.Problems) < mostLeft:
			report.Problems = append(report.Problems, p)
		}
	})
	report.Sum = sum
	if err != nil || broken != nil {
		return report, cli.Failure{
			Code: cli.ExitFailed, Err: errors.Join(err, broken),
			Next: "import it again: rows that are recorded already count as known",
		}
	}
	if !asJSON {
		_, err = fmt.Fprintf(out, "%s: %s: %d matched, %d altered, %d missing; %d known already, %d overtaken, %d not comparable, %d failed, %d unknown, %d unreadable.\n",
			name, human.Count(sum.Rows, "row", "rows"), sum.Matched, sum.Altered, sum.Missing, sum.Known, sum.Overtaken, sum.Incomparable, sum.Failed, sum.Unknown, sum.Unreadable)
	}
	return report, err
}
