package archive

import (
	"net/url"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/picture"
	"github.com/farol-preservation/farol/web/console/words"
	"github.com/farol-preservation/farol/web/permission"
)

// Routes answer other requests than for pages.
func Routes() []frame.Route {
	return []frame.Route{{Pattern: "POST /deletions/check", Serve: checkDeletion}, {Pattern: "GET /csv/reports/{report}", Serve: reportCSV}}
}

// Sheets are the pages about what is kept, and how.
func Sheets() []frame.Sheet {
	const nav = "Archive"
	return []frame.Sheet{
		{Path: "/fixity", Title: "Fixity", File: "fixity.html", Nav: nav, Key: "f", Shell: "farol fixity status", Needs: permission.FixityRead, Load: loadFixity},
		{Path: "/reports", Title: "Reports", File: "reports.html", Nav: nav, Key: "t", Shell: "farol report deposits", Needs: permission.ReportsDeposits, Load: loadReports},
		{Path: "/reports/statement", Title: "Statement", File: "statement.html", Shell: "farol report costs", Needs: permission.ReportsDeposits, Load: loadStatement},
		{Path: "/exports", Title: "Exports", File: "exports.html", Nav: nav, Shell: "farol export list", Needs: permission.ExportsMake, Load: loadExports},
		{Path: "/audit/sample", Title: "Sample", File: "sample.html", Needs: permission.CopiesRead, Load: loadSample},
	}
}

// fixityPage is the state of the checks of stored copies.
type fixityPage struct {
	Fixity   record.FixityView
	Said     []string // how the promise is kept
	Policies []record.FixityPolicy
	Days     *picture.Chart
	Bad      []record.FixityBadCopy
	MoreBad  string
	Unknown  string // why bad copies are not shown
	Brakes   []record.FixityRepairStop
}

func loadFixity(v *frame.Visit) (any, error) {
	var d fixityPage
	var err error
	if d.Fixity, err = frame.Get[record.FixityView](v, "fixity", nil); err != nil {
		return nil, err
	}
	q := v.Query("institution", "after")
	q.Set("limit", "20")
	bad, reason := frame.Optional[frame.List[record.FixityBadCopy]](v, "fixity/bad", q)
	if d.Unknown = reason; bad != nil {
		d.Bad, d.MoreBad = bad.Items, v.More(bad.Next)
	}
	if found, _ := frame.Optional[frame.List[record.FixityRepairStop]](v, "brakes", url.Values{}); found != nil {
		d.Brakes = found.Items
	}
	if found, _ := frame.Optional[frame.List[record.FixityPolicy]](v, "fixity/policies", url.Values{}); found != nil {
		d.Policies = found.Items
	}
	if a := d.Fixity.Archive; a != nil {
		d.Days = daysChart(v, a.Ahead)
		d.Said = append(a.Standing(words.Number), a.Outlook(words.Number, words.Rough))
	}
	return d, nil
}

// daysChart is the forecast of 30 days.
func daysChart(v *frame.Visit, ahead []record.FixityDayAhead) *picture.Chart {
	var bars []picture.Bar
	var line []float64
	for _, a := range ahead {
		bars = append(bars, picture.Bar{Label: a.From.In(v.Zone()).Format("01-02"), Parts: []float64{float64(a.Checked), float64(a.Overdue)}})
		line = append(line, float64(a.Due))
	}
	return picture.NewChart("Copies in the next 30 days", []string{"checked on that day", "overdue at its end"}, bars, line, picture.OfCounts)
}
