package archive

import (
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/live"
	"github.com/farol-preservation/farol/web/permission"
)

// RestorationSheets are the pages of what is given back.
func RestorationSheets() []frame.Sheet {
	return []frame.Sheet{
		{Path: "/restorations", Title: "Restorations", File: "restorations.html", Nav: "Requests", Key: "r", Shell: "farol item list", Needs: permission.ItemsRead, Load: loadRestorations},
		{Path: "/restorations/new", Title: "Restore", File: "restoration-new.html", Shell: "farol restore object IDENTIFIER", Needs: permission.RestorationsRequest, Load: loadNewRestoration},
		{Path: "/restorations/{id}", Title: "Restoration", File: "restoration.html", Shell: "farol item explain {id}", Needs: permission.ItemsRead, Load: loadRestoration},
	}
}

// CostApproval is the code of items that wait for a person to approve what they cost.
const CostApproval = "cost-approval"

// mostDetailed is of how many waiting restorations the list shows the price.
const mostDetailed = 10

// restorationList is a page of restorations.
type restorationList struct {
	frame.RecordList[record.WorkItem]

	Costly     []record.ShownRestoration // they wait for an approval: the newest
	MoreCostly bool
}

// loadRestorations shows what waits for an approval first, and then all.
func loadRestorations(v *frame.Visit) (any, error) {
	var l restorationList
	var err error
	if l.RecordList, err = frame.Records[record.WorkItem](v, "restorations", []string{"institution", "object", "status", "error_code"}, nil); err != nil {
		return nil, err
	}
	for _, i := range l.Rows {
		v.Watch.Items = append(v.Watch.Items, i.ID)
	}
	if !l.Narrowed && v.URL.Query().Get("after") == "" {
		l.Costly, l.MoreCostly = Costly(v)
	}
	return l, nil
}

// Costly are the newest restorations that wait for an approval, with their prices, and
// whether there are more.
func Costly(v *frame.Visit) (list []record.ShownRestoration, more bool) {
	found, _ := frame.Optional[frame.List[record.WorkItem]](v, "restorations", url.Values{"status": {string(registry.Suspended)}, "error_code": {CostApproval}, "limit": {fmt.Sprint(mostDetailed)}})
	if found == nil {
		return nil, false
	}
	for _, i := range found.Items {
		if r, _ := frame.Optional[record.ShownRestoration](v, fmt.Sprintf("restorations/%d", i.ID), nil); r != nil {
			list = append(list, *r)
		}
	}
	return list, found.Next != nil
}

// restorationPage is a restoration, and what it waits for.
type restorationPage struct {
	record.ShownRestoration

	Tag   string // which decisions are sent with
	State string // as the stream says it
	Waits bool   // for a person who approves the cost
	Own   bool   // of who looks at it: others approve it
	Live  bool
}

// loadRestoration shows a restoration.
func loadRestoration(v *frame.Visit) (any, error) {
	var d restorationPage
	var err error
	if d.ShownRestoration, err = frame.Get[record.ShownRestoration](v, "restorations/"+v.ID(), nil); err != nil {
		return nil, err
	}
	i := d.Item
	d.Live = i.Status != registry.Success && i.Status != registry.Cancelled
	d.Waits = d.Live && d.Request.Archive != nil && !d.Request.Archive.Approved
	d.State = live.StateOf(i)
	d.Own = i.User == v.Caller.Person.Email && !v.Caller.Scope.All()
	if v.Holds(permission.ItemsDecide) {
		if _, d.Tag, err = frame.GetTagged[record.ItemView](v, "items/"+v.ID(), nil); err != nil {
			return nil, err
		}
	}
	v.Title = fmt.Sprintf("Restoration %d – %s", i.ID, i.Status)
	if d.Live {
		v.Watch.Items = []int64{i.ID}
	}
	return d, nil
}

// quotePage is what a restoration would cost.
type quotePage struct {
	Form    url.Values
	Quote   *record.Quote
	Takes   time.Duration
	Refused string
}

// loadNewRestoration shows the price before anything is asked for.
func loadNewRestoration(v *frame.Visit) (any, error) {
	d := quotePage{Form: v.URL.Query()}
	if d.Form.Get("object") == "" && d.Form.Get("file") == "" {
		return d, nil
	}
	q, err := v.Answer("restorations.quote", d.Form)
	if err != nil {
		return d.refused(err)
	}
	d.Quote = &record.Quote{}
	if err := json.Unmarshal(q, d.Quote); err != nil {
		return nil, fmt.Errorf("read a quote: %w", err)
	}
	d.Takes = d.Quote.Takes
	return d, nil
}

// refused shows the form again, with why there is no price.
func (d quotePage) refused(err error) (any, error) {
	reason, expected := frame.Refusal(err)
	if !expected {
		return nil, err
	}
	d.Refused = reason
	return d, nil
}
