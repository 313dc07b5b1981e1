package console

import (
	"net/url"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/permission"
)

// archiveSheets are the pages about what is kept, and how.
func archiveSheets() []sheet {
	const nav = "Archive"
	return []sheet{
		{Path: "/fixity", Title: "Fixity", File: "fixity.html", Nav: nav, Key: "f", Shell: "farol fixity status", Needs: permission.FixityRead, Load: (*Pages).fixity},
		{Path: "/reports", Title: "Reports", File: "reports.html", Nav: nav, Key: "t", Shell: "farol report deposits", Needs: permission.ReportsDeposits, Load: (*Pages).reports},
		{Path: "/reports/statement", Title: "Statement", File: "statement.html", Shell: "farol report costs", Needs: permission.ReportsDeposits, Load: (*Pages).statement},
		{Path: "/exports", Title: "Exports", File: "exports.html", Nav: nav, Shell: "farol export list", Needs: permission.ExportsMake, Load: (*Pages).exports},
		{Path: "/audit", Title: "Audit", File: "audit.html", Nav: nav, Needs: permission.AuditRead, Load: (*Pages).audit},
		{Path: "/audit/sample", Title: "Sample", File: "sample.html", Needs: permission.CopiesRead, Load: (*Pages).sample},
	}
}

// fixityPage is the state of the checks of stored copies.
type fixityPage struct {
	Fixity   record.FixityView
	Said     []string // how the promise is kept
	Policies []record.FixityPolicy
	Days     *chart
	Bad      []record.FixityBadCopy
	MoreBad  string
	Unknown  string // why bad copies are not shown
	Brakes   []record.FixityRepairStop
}

func (p *Pages) fixity(v *visit) (any, error) {
	var d fixityPage
	var err error
	if d.Fixity, err = get[record.FixityView](v, "fixity", nil); err != nil {
		return nil, err
	}
	q := v.query("institution", "after")
	q.Set("limit", "20")
	bad, reason := optional[listOf[record.FixityBadCopy]](v, "fixity/bad", q)
	if d.Unknown = reason; bad != nil {
		d.Bad, d.MoreBad = bad.Items, v.more(bad.Next)
	}
	if found, _ := optional[listOf[record.FixityRepairStop]](v, "brakes", url.Values{}); found != nil {
		d.Brakes = found.Items
	}
	if found, _ := optional[listOf[record.FixityPolicy]](v, "fixity/policies", url.Values{}); found != nil {
		d.Policies = found.Items
	}
	if a := d.Fixity.Archive; a != nil {
		d.Days = daysChart(v, a.Ahead)
		d.Said = append(a.Standing(number), a.Outlook(rough))
	}
	return d, nil
}

// daysChart is the forecast of 30 days.
func daysChart(v *visit, ahead []record.FixityDayAhead) *chart {
	var bars []bar
	var line []float64
	for _, a := range ahead {
		bars = append(bars, bar{a.From.In(v.zone()).Format("01-02"), []float64{float64(a.Checked), float64(a.Overdue)}})
		line = append(line, float64(a.Due))
	}
	return newChart("Copies in the next 30 days", []string{"checked on that day", "overdue at its end"}, bars, line, ofCounts)
}
