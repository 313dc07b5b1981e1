// Package reporting has the commands that report and export what is on record.
package reporting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/reports"
)

// Report is farol report.
func Report() *cobra.Command {
	return cli.Group("report", "Report what is in storage, what it costs, and how items ended",
		depositsCommand(), costsCommand(), outcomesCommand(), countCommand())
}

// source is where a report comes from: the database, or a server of the REST API.
type source struct {
	records reports.Records
	server  *remote.Server // nil: the database
}

// read reads the rows of a report.
func read[T any](ctx context.Context, s source, path string, query url.Values, local func(reports.Records) ([]T, error)) ([]T, error) {
	if s.server == nil {
		return local(s.records)
	}
	v, err := remote.Get[struct{ Items []T }](ctx, s.server, "reports/"+path, query)
	return append([]T{}, v.Items...), err
}

// reportCommand completes a command that reads a report of all institutions or of one.
func reportCommand(c *cobra.Command, read func(ctx context.Context, cmd *cobra.Command, s source, institution string, asJSON bool) error) *cobra.Command {
	var institution string
	var asJSON bool
	c.Args = cobra.NoArgs
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
			return read(ctx, cmd, source{server: s}, institution, asJSON)
		})
		if done || err != nil {
			return err
		}
		return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
			if err := values.CheckInstitution(ctx, r, institution); err != nil {
				return err
			}
			return read(ctx, cmd, source{records: reports.In(r)}, institution, asJSON)
		})
	}
	c.Flags().StringVar(&institution, "institution", "", "only this institution, by its identifier")
	cli.JSONFlag(c, &asJSON)
	return c
}

func byFlag(c *cobra.Command, to *string, names ...reports.Grouping) {
	c.Flags().StringVar(to, "by", string(names[0]), "what a row stands for")
	_ = c.RegisterFlagCompletionFunc("by", cli.Complete(cli.Constant(func() []reports.Grouping { return names }), false)) // there is such a flag
}

func depositsCommand() *cobra.Command {
	var by, on string
	var months int
	c := reportCommand(&cobra.Command{
		Use:   "deposits",
		Short: "Report what is in storage",
		Long: `Report the objects, files and bytes that are in storage, as counted last; with
--by month, as counted last in each month. --on has what was in storage on a day in the
past. A file counts once, however many copies it has.`,
		Example: `  farol report deposits
  farol report deposits --by option --institution test.edu
  farol report deposits --on 2026-06-30
  farol report deposits --by month --months 24 --json`,
	}, func(ctx context.Context, cmd *cobra.Command, s source, institution string, asJSON bool) error {
		name, err := cli.OneOf("--by", reports.Grouping(by), []reports.Grouping{reports.ByInstitution, reports.ByOption, reports.ByMonth})
		if err != nil {
			return err
		}
		if err := cli.InRange("--months", months, 1, 240); err != nil {
			return err
		}
		if _, err := parse(time.DateOnly, on); on != "" && err != nil {
			return cli.Usage(fmt.Errorf("--on is %q", on), "give a day such as 2026-06-30")
		}
		query := remote.Query("by", string(name), "institution", institution, "on", on)
		if name == reports.ByMonth {
			query.Set("months", strconv.Itoa(months))
		}
		list, err := read(ctx, s, "deposits", query, func(r reports.Records) ([]reports.Deposit, error) {
			return r.Deposits(ctx, registry.Everything(), reports.DepositQuery{By: name, Institution: institution, Months: months, On: on})
		})
		if err != nil {
			return err
		}
		return cli.PrintList(cmd, asJSON, list, "deposits", []string{headOf(name), "COUNTED", "OBJECTS", "FILES", "BYTES"}, func(d reports.Deposit) []string {
			return []string{d.Key, d.Day, strconv.FormatInt(d.Objects, 10), strconv.FormatInt(d.Files, 10), human.Bytes(d.Bytes)}
		})
	})
	byFlag(c, &by, reports.ByInstitution, reports.ByOption, reports.ByMonth)
	c.Flags().IntVar(&months, "months", 12, "number of months, with --by month")
	c.Flags().StringVar(&on, "on", "", "as counted last on this day or before, such as 2026-06-30; without it today")
	return c
}

func headOf(by reports.Grouping) string {
	return map[reports.Grouping]string{
		reports.ByInstitution: "INSTITUTION", reports.ByOption: "STORAGE OPTION", reports.ByMonth: "MONTH", reports.ByAction: "ACTION", reports.ByDay: "DAY",
	}[by]
}

func costsCommand() *cobra.Command {
	var month string
	c := reportCommand(&cobra.Command{
		Use:   "costs",
		Short: "Report what storage costs in a month",
		Long: `Report what the storage of each institution costs in a month, by the prices in the table
storage_options. Bytes are the mean of the days that were counted. Without a price the
cost is empty.`,
		Example: `  farol report costs
  farol report costs --month 2026-11 --institution test.edu --json`,
	}, func(ctx context.Context, cmd *cobra.Command, s source, institution string, asJSON bool) error {
		begins, err := parse("2006-01", cmp.Or(month, time.Now().UTC().Format("2006-01")))
		if err != nil {
			return cli.Usage(fmt.Errorf("--month is %q", month), "give a month such as 2026-11")
		}
		list, err := read(ctx, s, "costs", remote.Query("month", begins.Format("2006-01"), "institution", institution), func(r reports.Records) ([]reports.Cost, error) {
			return r.Costs(ctx, registry.Everything(), institution, begins.Format(time.DateOnly))
		})
		if err != nil {
			return err
		}
		text := func(s *string) string {
			if s == nil {
				return ""
			}
			return *s
		}
		return cli.PrintList(cmd, asJSON, list, "costs", []string{"INSTITUTION", "STORAGE OPTION", "DAYS", "BYTES", "INCLUDED TIB", "PER GIB", "COST"}, func(c reports.Cost) []string {
			return []string{c.Institution, c.StorageOption, strconv.FormatInt(c.Days, 10), human.Bytes(c.Bytes), text(c.IncludedTiB), text(c.PerGiBMonth), text(c.Cost)}
		})
	})
	c.Flags().StringVar(&month, "month", "", "month such as 2026-11; without it the present one")
	return c
}

func outcomesCommand() *cobra.Command {
	var by, from, to string
	c := reportCommand(&cobra.Command{
		Use:   "outcomes",
		Short: "Report how work items ended",
		Long: `Report how many work items ended in which way, of the last 30 days or of other days. An
item counts once, on the day on which it ended last.`,
		Example: `  farol report outcomes
  farol report outcomes --by institution --first-day 2026-10-01 --last-day 2026-10-31
  farol report outcomes --by day --institution test.edu --json`,
	}, func(ctx context.Context, cmd *cobra.Command, s source, institution string, asJSON bool) error {
		name, err := cli.OneOf("--by", reports.Grouping(by), []reports.Grouping{reports.ByAction, reports.ByInstitution, reports.ByDay})
		if err != nil {
			return err
		}
		first, last, err := days(from, to)
		if err != nil {
			return err
		}
		list, err := read(ctx, s, "outcomes", remote.Query("by", string(name), "institution", institution, "from", first, "to", last), func(r reports.Records) ([]reports.Outcome, error) {
			return r.Outcomes(ctx, registry.Everything(), name, institution, first, last)
		})
		if err != nil {
			return err
		}
		return cli.PrintList(cmd, asJSON, list, "items", []string{headOf(name), "RESULT", "ITEMS", "BYTES"}, func(o reports.Outcome) []string {
			return []string{o.Key, o.Result, strconv.FormatInt(o.Items, 10), human.Bytes(o.Bytes)}
		})
	})
	byFlag(c, &by, reports.ByAction, reports.ByInstitution, reports.ByDay)
	c.Flags().StringVar(&from, "first-day", "", "first day, such as 2026-10-01; without it 30 days before the last")
	c.Flags().StringVar(&to, "last-day", "", "last day; without it today")
	return c
}

// parse reads a day or a month that the database can have: it knows no year 0.
func parse(layout, text string) (time.Time, error) {
	t, err := time.Parse(layout, text)
	if err == nil && t.Year() < 1 {
		err = errors.New("there is no year 0")
	}
	return t, err
}

// days are the first and the last day of a report, in UTC.
func days(from, to string) (first, last string, err error) {
	end := time.Now().UTC()
	if to != "" {
		end, err = parse(time.DateOnly, to)
	}
	begin := end.AddDate(0, 0, -30)
	if from != "" && err == nil {
		begin, err = parse(time.DateOnly, from)
	}
	switch {
	case err != nil:
		return "", "", cli.Usage(errors.New("--first-day or --last-day is no day"), "give days such as 2026-10-01")
	case begin.After(end):
		return "", "", cli.Usage(errors.New("--first-day is after --last-day"), "exchange them")
	}
	return begin.Format(time.DateOnly), end.Format(time.DateOnly), nil
}

func countCommand() *cobra.Command {
	var all, asJSON bool
	c := &cobra.Command{
		Use:   "count",
		Short: "Count what is in storage now, for reports",
		Long: `Add up what is in storage, and count the items that ended since the day before the last
count, as the job count-holdings of "farol schedule" does. With --all, count each file and
each item again, after data were loaded without triggers for instance.`,
		Example: `  farol report count
  farol report count --all`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return connect.WithRegistryFor(cmd, 0, func(ctx context.Context, r *registry.Registry) error {
				counted, err := reports.In(r).Count(ctx, all)
				if err != nil {
					return err
				}
				return cli.Printf(cmd, asJSON, counted, "%s\n", counted)
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "count each file and each item again")
	cli.JSONFlag(c, &asJSON)
	return c
}
