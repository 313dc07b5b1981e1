// Package reporting has the commands that report and export what is on record.
package reporting

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/reports"
)

// Report is farol report.
func Report() *cobra.Command {
	return cli.Group("report", "Report what is in storage, what it costs, and how items ended",
		depositsCommand(), costsCommand(), outcomesCommand(), countCommand())
}

// of is the flag of a report of one institution.
func of() op.Flag {
	return op.Flag{Name: "institution", Param: "institution", Help: "only this institution, by its identifier"}
}

// by is the flag of a report whose rows stand for one of several things.
func by(names ...record.Grouping) op.Flag {
	list := func() []string { return cli.Strings(names) }
	return op.Flag{Name: "by", Param: "by", Default: string(names[0]), Among: list, Quiet: true, Help: "what a row stands for"}
}

// headOf is the head of the column with what a row stands for.
func headOf(c *op.Call) string {
	if c.Text("by") == string(reports.ByOption) {
		return "STORAGE OPTION"
	}
	return strings.ToUpper(c.Text("by"))
}

func depositsCommand() *cobra.Command {
	header := []string{"", "COUNTED", "OBJECTS", "FILES", "BYTES"} // the first is known when the command runs
	return op.List[record.Deposit]{Path: "reports/deposits", What: "deposits", Header: header, Empty: op.KnownInstitution, Row: func(d record.Deposit) []string {
		return []string{d.Key, d.Day, strconv.FormatInt(d.Objects, 10), strconv.FormatInt(d.Files, 10), human.Bytes(d.Bytes)}
	}}.All(op.Command{
		Use:   "deposits",
		Short: "Report what is in storage",
		Long: `Report the objects, files and bytes that are in storage, as counted last; with
--by month, as counted last in each month. --on has what was in storage on a day in the
past. A file counts once, however many copies it has.`,
		Example: `  farol report deposits
  farol report deposits --by option --institution test.edu
  farol report deposits --on 2026-06-30
  farol report deposits --by month --months 24 --json`,
		Flags: []op.Flag{
			of(), by(reports.ByInstitution, reports.ByOption, reports.ByMonth),
			{Name: "months", Param: "months", Kind: op.Number, Default: 12, Least: 1, Most: 240, Help: "number of months, with --by month"},
			{Name: "on", Param: "on", Help: "as counted last on this day or before, such as 2026-06-30; without it today"},
		},
		Check: func(c *op.Call) error {
			header[0] = headOf(c)
			if _, err := parse(time.DateOnly, c.Text("on")); c.Given("on") && err != nil {
				return cli.Usage(fmt.Errorf("--on is %q", c.Text("on")), "give a day such as 2026-06-30")
			}
			return nil
		},
	})
}

func costsCommand() *cobra.Command {
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	header := []string{"INSTITUTION", "STORAGE OPTION", "DAYS", "BYTES", "INCLUDED TIB", "PER GIB", "COST"}
	return op.List[record.Cost]{Path: "reports/costs", What: "costs", Header: header, Empty: op.KnownInstitution, Row: func(c record.Cost) []string {
		return []string{c.Institution, c.StorageOption, strconv.FormatInt(c.Days, 10), human.Bytes(c.Bytes), text(c.IncludedTiB), text(c.PerGiBMonth), text(c.Cost)}
	}}.All(op.Command{
		Use:   "costs",
		Short: "Report what storage costs in a month",
		Long: `Report what the storage of each institution costs in a month, by the prices in the table
storage_options. Bytes are the mean of the days that were counted. Without a price the
cost is empty.`,
		Example: `  farol report costs
  farol report costs --month 2026-11 --institution test.edu --json`,
		Flags: []op.Flag{of(), {Name: "month", Param: "month", Help: "month such as 2026-11; without it the present one"}},
		Check: func(c *op.Call) error {
			if _, err := parse("2006-01", c.Text("month")); c.Given("month") && err != nil {
				return cli.Usage(fmt.Errorf("--month is %q", c.Text("month")), "give a month such as 2026-11")
			}
			return nil
		},
	})
}

func outcomesCommand() *cobra.Command {
	header := []string{"", "RESULT", "ITEMS", "BYTES"} // the first is known when the command runs
	return op.List[record.Outcome]{Path: "reports/outcomes", What: "items", Header: header, Empty: op.KnownInstitution, Row: func(o record.Outcome) []string {
		return []string{o.Key, o.Result, strconv.FormatInt(o.Items, 10), human.Bytes(o.Bytes)}
	}}.All(op.Command{
		Use:   "outcomes",
		Short: "Report how work items ended",
		Long: `Report how many work items ended in which way, of the last 30 days or of other days. An
item counts once, on the day on which it ended last.`,
		Example: `  farol report outcomes
  farol report outcomes --by institution --first-day 2026-10-01 --last-day 2026-10-31
  farol report outcomes --by day --institution test.edu --json`,
		Flags: []op.Flag{
			of(), by(reports.ByAction, reports.ByInstitution, reports.ByDay),
			{Name: "first-day", Param: "from", Help: "first day, such as 2026-10-01; without it 30 days before the last"},
			{Name: "last-day", Param: "to", Help: "last day; without it today"},
		},
		Check: func(c *op.Call) error {
			header[0] = headOf(c)
			return checkDays(c.Text("first-day"), c.Text("last-day"))
		},
	})
}

// parse reads a day or a month that the database can have: it knows no year 0.
func parse(layout, text string) (time.Time, error) {
	t, err := time.Parse(layout, text)
	if err == nil && t.Year() < 1 {
		err = errors.New("there is no year 0")
	}
	return t, err
}

// checkDays refuses the first and the last day of a report that are none.
func checkDays(from, to string) (err error) {
	end := time.Now().UTC()
	if to != "" {
		end, err = parse(time.DateOnly, to)
	}
	begin := end
	if from != "" && err == nil {
		begin, err = parse(time.DateOnly, from)
	}
	switch {
	case err != nil:
		return cli.Usage(errors.New("--first-day or --last-day is no day"), "give days such as 2026-10-01")
	case begin.After(end):
		return cli.Usage(errors.New("--first-day is after --last-day"), "exchange them")
	}
	return nil
}

func countCommand() *cobra.Command {
	return op.Change(op.Command{
		Use:   "count",
		Short: "Count what is in storage now, for reports",
		Long: `Add up what is in storage, and count the items that ended since the day before the last
count, as the job count-holdings of "farol schedule" does. With --all, count each file and
each item again, after data were loaded without triggers for instance.`,
		Example: `  farol report count
  farol report count --all`,
		Here: true, Within: -1,
		Flags: []op.Flag{{Name: "all", Param: "all", Kind: op.Truth, Help: "count each file and each item again"}},
	}, http.MethodPost, "reports/count", "", func(c record.Counted) string { return c.String() + "\n" })
}
