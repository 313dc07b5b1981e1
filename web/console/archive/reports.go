package archive

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/picture"
	"github.com/farol-preservation/farol/web/console/words"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// reportPage are the sums of what is in storage and what became of items.
type reportPage struct {
	Institution string // only this one
	On          string // as it was on this day; "": today
	All         bool   // the person may choose an institution
	By          record.DepositsReport
	Options     record.DepositsReport
	Months      record.DepositsReport
	Growth      *picture.Chart
	Outcomes    record.OutcomesReport
	Ends        *picture.Chart
	Days        []outcomeDay
	Costs       *record.CostsReport
	NoCosts     string // why there are none
	Total       string
	Month       string
	Query       string // of the address of its CSV
}

// outcomeDay is how items ended on a day.
type outcomeDay struct {
	Day    string
	Counts []int64 // in the order of outcomeResults
}

// outcomeResults are the ends of items, in the order in which they are shown.
func outcomeResults() []string { return []string{"Success", "Suspended", "Failed", "Cancelled"} }

// Results are the ends of items.
func (reportPage) Results() []string { return outcomeResults() }

// Counted says of when the sums of deposits are.
func (d reportPage) Counted() string {
	if d.On == "" {
		return "As counted last"
	}
	return "As counted last until " + d.On
}

func loadReports(v *frame.Visit) (any, error) {
	d := reportPage{All: v.Caller.Scope.All(), Institution: v.URL.Query().Get("institution"), On: v.URL.Query().Get("on"), Month: month(v)}
	d.Query = with(v).Encode()
	var err error
	if d.By, err = frame.Get[record.DepositsReport](v, "reports/deposits", with(v, "by", "institution", "on", d.On)); err != nil {
		return nil, err
	}
	if d.Options, err = frame.Get[record.DepositsReport](v, "reports/deposits", with(v, "by", "option", "on", d.On)); err != nil {
		return nil, err
	}
	if d.Months, err = frame.Get[record.DepositsReport](v, "reports/deposits", with(v, "by", "month", "months", "24", "on", d.On)); err != nil {
		return nil, err
	}
	if d.Outcomes, err = frame.Get[record.OutcomesReport](v, "reports/outcomes", with(v, "by", "day")); err != nil {
		return nil, err
	}
	d.Growth, d.Days = growth(d.Months.Items), daysOf(d.Outcomes)
	d.Ends = endsChart(d.Days)
	if v.Holds(permission.ReportsCosts) {
		d.Costs, d.NoCosts = frame.Optional[record.CostsReport](v, "reports/costs", with(v, "month", d.Month))
		d.Total = total(d.Costs)
	}
	return d, nil
}

// month is the month that a page is for: of its address, or the present one.
func month(v *frame.Visit) string {
	return cmp.Or(v.URL.Query().Get("month"), time.Now().UTC().Format("2006-01"))
}

// growth is what was in storage at the end of each month.
func growth(months []record.Deposit) *picture.Chart {
	var bars []picture.Bar
	for _, m := range months {
		bars = append(bars, picture.Bar{Label: m.Key, Parts: []float64{float64(m.Bytes)}})
	}
	return picture.NewChart("Bytes in storage at the end of each month", []string{"bytes"}, bars, nil, picture.OfBytes)
}

// daysOf has a row for each day of a report, the days without any end too.
func daysOf(r record.OutcomesReport) (list []outcomeDay) {
	by := map[string]int{}
	from, err := time.Parse(time.DateOnly, r.From)
	to, err2 := time.Parse(time.DateOnly, r.To)
	if err != nil || err2 != nil {
		return nil
	}
	for day := from; !day.After(to) && len(list) < picture.MostBars; day = day.AddDate(0, 0, 1) {
		by[day.Format(time.DateOnly)] = len(list)
		list = append(list, outcomeDay{day.Format(time.DateOnly), make([]int64, len(outcomeResults()))})
	}
	for _, o := range r.Items {
		i, known := by[o.Key]
		for at, result := range outcomeResults() {
			if known && result == o.Result {
				list[i].Counts[at] = o.Items
			}
		}
	}
	return list
}

func endsChart(days []outcomeDay) *picture.Chart {
	var bars []picture.Bar
	for _, d := range days {
		parts := make([]float64, len(d.Counts))
		for i, n := range d.Counts {
			parts[i] = float64(n)
		}
		bars = append(bars, picture.Bar{Label: d.Day[len("2026-"):], Parts: parts})
	}
	return picture.NewChart("Items by the day on which they ended", outcomeResults(), bars, nil, picture.OfCounts)
}

// total adds up the costs that are known; "": none is.
func total(r *record.CostsReport) string {
	if r == nil {
		return ""
	}
	cents, known := int64(0), false
	for _, c := range r.Items {
		if c.Cost == nil {
			continue
		}
		if amount, err := strconv.ParseFloat(*c.Cost, 64); err == nil {
			cents, known = cents+int64(amount*100+0.5), true
		}
	}
	if !known {
		return ""
	}
	return words.Number(cents/100) + "." + strconv.Itoa(int(cents%100/10)) + strconv.Itoa(int(cents%10))
}

// statementPage is what an institution had in storage in a month, to be printed.
type statementPage struct {
	Month, Institution string
	Made               time.Time
	Costs              *record.CostsReport
	NoCosts            string
	Total              string
	Deposits           *record.Deposit // at the end of the month; nil: it was not counted
	Outcomes           []record.Outcome
}

// loadStatement shows a month to people who need it on paper.
func loadStatement(v *frame.Visit) (any, error) {
	_, own := v.Caller.Scope.Institution()
	d := statementPage{Month: month(v), Institution: cmp.Or(v.URL.Query().Get("institution"), own), Made: time.Now()}
	first, err := time.Parse("2006-01", d.Month)
	if err != nil {
		first = time.Now().UTC()
		d.Month = first.Format("2006-01")
	}
	v.Title = "Statement of " + d.Month
	months, err := frame.Get[record.DepositsReport](v, "reports/deposits", with(v, "by", "month", "months", "240"))
	if err != nil {
		return nil, err
	}
	for _, m := range months.Items {
		if m.Key == d.Month {
			d.Deposits = &m
		}
	}
	ended, err := frame.Get[record.OutcomesReport](v, "reports/outcomes",
		with(v, "by", "action", "from", first.Format(time.DateOnly), "to", first.AddDate(0, 1, -1).Format(time.DateOnly)))
	if err != nil {
		return nil, err
	}
	d.Outcomes = ended.Items
	if v.Holds(permission.ReportsCosts) {
		d.Costs, d.NoCosts = frame.Optional[record.CostsReport](v, "reports/costs", with(v, "month", d.Month))
		d.Total = total(d.Costs)
	}
	return d, nil
}

// with is a query for a report of the institution that the page is narrowed to, with pairs of names
// and values; "" is no value.
func with(v *frame.Visit, pairs ...string) url.Values {
	q := v.Query("institution")
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			q.Set(pair[0], pair[1])
		}
	}
	return q
}

// reportCSV has a report of the REST API saved as a table.
func reportCSV(v *frame.Visit) {
	name := v.PathValue("report")
	if !slices.Contains([]string{"deposits", "costs", "outcomes"}, name) {
		v.Frame.Problem(v, ops.NotFound())
		return
	}
	a, err := v.Frame.Table.Ask(v.Request, v.Caller, ops.Question{Path: "/api/v1/reports/" + name + "?" + v.URL.RawQuery, Accept: "text/csv"})
	if err != nil {
		v.Frame.Problem(v, err)
		return
	}
	v.Save(name+".csv", a.Body)
}
