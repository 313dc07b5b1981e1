package accounts

import (
	"net/url"
	"slices"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/permission"
)

// AlertSheets are the pages of messages.
func AlertSheets() []frame.Sheet {
	return []frame.Sheet{
		{Path: "/alerts", Title: "Alerts", File: "alerts.html", Nav: "Yours", Key: "a", Needs: permission.AlertsRead, Load: loadAlerts},
		{Path: "/alerts/{id}", Title: "Alert", File: "alert.html", Needs: permission.AlertsRead, Load: loadAlert},
	}
}

// loadAlert shows one, which a mail leads to.
func loadAlert(v *frame.Visit) (any, error) {
	found, err := frame.Get[record.ListedAlert](v, "alerts/"+v.ID(), nil)
	return []record.ListedAlert{found}, err
}

// alertList is what a person has been told.
type alertList struct {
	frame.RecordList[record.ListedAlert]

	Unread []record.ListedAlert // on the first page only, where the others are not shown first
	Many   bool                 // there are more unread ones
	Now    string               // all that are older may be marked as read
	Only   bool                 // only those that are unread
}

// loadAlerts shows what is unread first, and then all.
func loadAlerts(v *frame.Visit) (any, error) {
	l := alertList{Now: time.Now().UTC().Format(time.RFC3339Nano), Only: v.URL.Query().Get("unread") != ""}
	var err error
	if l.RecordList, err = frame.Records[record.ListedAlert](v, "alerts", []string{"institution", "type", "unread"}, nil); err != nil {
		return nil, err
	}
	first := v.URL.Query().Get("after") == ""
	if l.Only || !first || l.Narrowed {
		return l, nil
	}
	found, err := frame.Get[frame.List[record.ListedAlert]](v, "alerts", url.Values{"unread": {"true"}, "limit": {"50"}})
	if err != nil {
		return nil, err
	}
	l.Unread, l.Many = found.Items, found.Next != nil
	if !l.Many { // the others are those that are read
		l.Rows = slices.DeleteFunc(l.Rows, func(a record.ListedAlert) bool { return a.ReadAt == nil })
	}
	return l, nil
}
