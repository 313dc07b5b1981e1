package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
	"github.com/farol-preservation/farol/web/reply"
)

// restorationSheets are the pages of what is given back.
func restorationSheets() []sheet {
	return []sheet{
		{Path: "/restorations", Title: "Restorations", File: "restorations.html", Nav: "Requests", Key: "r", Shell: "farol item list", Needs: permission.ItemsRead, Load: (*Pages).restorations},
		{Path: "/restorations/new", Title: "Restore", File: "restoration-new.html", Shell: "farol restore object IDENTIFIER", Needs: permission.RestorationsRequest, Load: (*Pages).newRestoration},
		{Path: "/restorations/{id}", Title: "Restoration", File: "restoration.html", Shell: "farol item explain {id}", Needs: permission.ItemsRead, Load: (*Pages).restoration},
	}
}

// costApproval is the code of items that wait for a person to approve what they cost.
const costApproval = "cost-approval"

// mostDetailed is of how many waiting restorations the list shows the price.
const mostDetailed = 10

// restorationList is a page of restorations.
type restorationList struct {
	recordList[record.WorkItem]

	Costly     []record.ShownRestoration // they wait for an approval: the newest
	MoreCostly bool
}

// restorations shows what waits for an approval first, and then all.
func (p *Pages) restorations(v *visit) (any, error) {
	var l restorationList
	var err error
	if l.recordList, err = records[record.WorkItem](v, "restorations", []string{"institution", "object", "status", "error_code"}, nil); err != nil {
		return nil, err
	}
	for _, i := range l.Rows {
		v.watch.items = append(v.watch.items, i.ID)
	}
	if !l.Narrowed && v.URL.Query().Get("after") == "" {
		l.Costly, l.MoreCostly = costly(v)
	}
	return l, nil
}

// costly are the newest restorations that wait for an approval, with their prices, and
// whether there are more.
func costly(v *visit) (list []record.ShownRestoration, more bool) {
	found, _ := optional[listOf[record.WorkItem]](v, "restorations", url.Values{"status": {string(registry.Suspended)}, "error_code": {costApproval}, "limit": {fmt.Sprint(mostDetailed)}})
	if found == nil {
		return nil, false
	}
	for _, i := range found.Items {
		if r, _ := optional[record.ShownRestoration](v, fmt.Sprintf("restorations/%d", i.ID), nil); r != nil {
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

// restoration shows a restoration.
func (p *Pages) restoration(v *visit) (any, error) {
	var d restorationPage
	var err error
	if d.ShownRestoration, err = get[record.ShownRestoration](v, "restorations/"+v.id(), nil); err != nil {
		return nil, err
	}
	i := d.Item
	d.Live = i.Status != registry.Success && i.Status != registry.Cancelled
	d.Waits = d.Live && d.Request.Archive != nil && !d.Request.Archive.Approved
	d.State = stateOf(i)
	d.Own = i.User == v.Caller.Person.Email && !v.Caller.Scope.All()
	if v.Holds(permission.ItemsDecide) {
		if _, d.Tag, err = getTagged[record.ItemView](v, "items/"+v.id(), nil); err != nil {
			return nil, err
		}
	}
	v.title = fmt.Sprintf("Restoration %d – %s", i.ID, i.Status)
	if d.Live {
		v.watch.items = []int64{i.ID}
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

// newRestoration shows the price before anything is asked for.
func (p *Pages) newRestoration(v *visit) (any, error) {
	d := quotePage{Form: v.URL.Query()}
	if d.Form.Get("object") == "" && d.Form.Get("file") == "" {
		return d, nil
	}
	q, err := v.answerTo("restorations.quote", d.Form)
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
	reason, expected := refusal(err)
	if !expected {
		return nil, err
	}
	d.Refused = reason
	return d, nil
}

// refusal is why a request was refused, if it was for what it asks for.
func refusal(err error) (string, bool) {
	var found *reply.Problem
	if errors.As(err, &found) && found.Status < http.StatusInternalServerError && found.Status != http.StatusForbidden && found.Code != ops.CodeRateLimited {
		return sentence(found.Detail), true
	}
	return "", false
}

// answerTo has an operation that changes nothing answer what a form asks.
func (v *visit) answerTo(operation string, form url.Values) ([]byte, error) {
	q, err := v.pages.table.FromForm(operation, form)
	if err != nil {
		return nil, err //nolint:wrapcheck // a problem is shown as it is
	}
	a, err := v.pages.table.Ask(v.Request, v.Caller, q)
	return a.Body, err //nolint:wrapcheck // a problem is shown as it is
}
