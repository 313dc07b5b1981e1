package archive

import (
	"context"
	"net/http"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/reports"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// ReportOf narrows a report.
type ReportOf struct {
	Institution string `query:"institution" maxLength:"255" doc:"Only this institution, by its identifier"`
}

type (
	depositsQuery struct {
		ReportOf

		By     reports.Grouping `query:"by" enum:"institution,option,month" default:"institution" doc:"What a row stands for"`
		Months int              `query:"months" minimum:"1" maximum:"240" default:"12" doc:"How many months, with by=month: up to that of the day"`
		On     string           `query:"on" format:"date" doc:"As it was counted last on this day, in UTC, or before; without it today"`
	}
	costsQuery struct {
		ReportOf

		Month string `query:"month" pattern:"^[0-9]{4}-(0[1-9]|1[0-2])$" doc:"Such as 2026-11; without it the present one"`
	}
	outcomesQuery struct {
		ReportOf

		By   reports.Grouping `query:"by" enum:"action,institution,day" default:"action" doc:"What a row stands for"`
		From string           `query:"from" format:"date" doc:"First day, in UTC; without it 30 days before the last"`
		To   string           `query:"to" format:"date" doc:"Last day, in UTC; without it today"`
	}
	countBody struct {
		Body struct {
			All bool `json:"all,omitempty" doc:"Count each file and each item again"`
		}
	}
)

// reports are sums of what is in storage and how items ended.
func (a *handlers) reports(t *ops.API) {
	report := func(id, path, summary, about string, needs permission.Permission) ops.Operation {
		o := answer.Reads(id, path, summary, about+" A parent institution has the sums of its subscribers, too.", needs)
		o.Table = true
		return o
	}
	ops.Register(t, report("reports.deposits", "/api/v1/reports/deposits", "Report what is in storage",
		"Rows are of the last count, also of that of a day in the past, or with by=month of the last count of each month. A job counts once an hour. Bytes are those of active files, each counted once.",
		permission.ReportsDeposits),
		func(ctx context.Context, c access.Caller, in *depositsQuery) (*answer.Body[record.DepositsReport], error) {
			if in.On != "" && in.On < firstDay {
				return nil, noSuchYear()
			}
			found, err := reports.In(a.Registry).Deposits(ctx, c.Scope, reports.DepositQuery{By: in.By, Institution: in.Institution, Months: in.Months, On: in.On})
			return answer.Of(record.DepositsReport{By: in.By, Items: found}), err
		})
	ops.Register(t, report("reports.costs", "/api/v1/reports/costs", "Report what storage costs in a month",
		"Bytes are the mean of the days that were counted. Without a price of the storage option the cost is null. Amounts are in US dollars, as texts.",
		permission.ReportsCosts),
		func(ctx context.Context, c access.Caller, in *costsQuery) (*answer.Body[record.CostsReport], error) {
			month := in.Month
			if month == "" {
				month = time.Now().UTC().Format("2006-01")
			}
			if month < firstDay[:len(month)] {
				return nil, noSuchYear()
			}
			found, err := reports.In(a.Registry).Costs(ctx, c.Scope, in.Institution, month+"-01")
			return answer.Of(record.CostsReport{Month: month, Items: found}), err
		})
	ops.Register(t, report("reports.outcomes", "/api/v1/reports/outcomes", "Report how work items ended",
		"An item counts once, on the day on which it ended last.", permission.ReportsDeposits), a.outcomes)
	ops.Register(t, ops.Operation{ID: "reports.count", Method: http.MethodPost, Path: "/api/v1/reports/count", Summary: "Count what is in storage now", Access: ops.Here},
		func(ctx context.Context, _ access.Caller, in *countBody) (*answer.Body[record.Counted], error) {
			counted, err := reports.In(a.Registry).Count(ctx, in.Body.All)
			return answer.Of(counted), err
		})
}

func (a *handlers) outcomes(ctx context.Context, c access.Caller, in *outcomesQuery) (*answer.Body[record.OutcomesReport], error) {
	to := time.Now().UTC()
	if in.To != "" {
		to = dayOf(in.To)
	}
	from := to.AddDate(0, 0, -30)
	if in.From != "" {
		from = dayOf(in.From)
	}
	if in.From != "" && in.From < firstDay || in.To != "" && in.To < firstDay {
		return nil, noSuchYear()
	}
	if from.Year() < 1 { // 30 days before the last
		from = dayOf(firstDay)
	}
	if from.After(to) {
		return nil, ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, "from is after to")
	}
	out := record.OutcomesReport{By: in.By, From: from.Format(time.DateOnly), To: to.Format(time.DateOnly)}
	found, err := reports.In(a.Registry).Outcomes(ctx, c.Scope, in.By, in.Institution, out.From, out.To)
	out.Items = found
	return answer.Of(out), err
}

// firstDay is the first that the database knows: it has no year 0.
const firstDay = "0001-01-01"

func noSuchYear() error {
	return ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, "there is no year 0; give a later one")
}

// dayOf is a day that the table of operations has found to be one.
func dayOf(text string) time.Time {
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return time.Time{}
	}
	return day
}
