package queue

import (
	"net/url"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/words"
	"github.com/farol-preservation/farol/web/permission"
)

// itemList is a page of work items.
type itemList struct {
	Tab       string // live, review or ended
	Tabs      []frame.Tab
	Filter    url.Values // as it is in the address
	Narrowed  bool
	Items     []record.WorkItem
	More      string
	Table     string // address of the same list as a table to save
	First     bool   // it is the first page
	Stages    []registry.Stage
	Decide    bool // its items can be chosen, for a plan
	Broad     string
	AllScopes bool
}

// itemFields are the fields of the address by which items are narrowed.
func itemFields() []string {
	return []string{"institution", "name", "object", "stage", "action", "error_code", "storage_option", "worker", "plan", "deletion", "status", "updated_after", "updated_before", "size_min"}
}

// itemTabs are those of the list of items, with the statuses that they have.
func itemTabs(current string, institution string) (list []frame.Tab) {
	for _, t := range []struct{ key, name string }{{"", "Newest"}, {"live", "Live"}, {"review", "Needs you"}, {"failed", "Failed"}, {"ended", "Ended"}} {
		list = append(list, frame.Tab{Name: t.name, Path: words.LinkTo("/items", "tab", t.key, "institution", institution), Current: t.key == current})
	}
	return list
}

// statusesOf are the statuses of the items in a tab; nil: any.
func statusesOf(tab string) []string {
	return map[string][]string{
		"live": {string(registry.Pending), string(registry.Started)}, "failed": {string(registry.Failed), string(registry.Suspended)},
		"ended": {string(registry.Success), string(registry.Cancelled)},
	}[tab]
}

// itemQuery is the query for the items that an address asks for, by its tab and its filters.
func itemQuery(v *frame.Visit) url.Values {
	q := v.Query(itemFields()...)
	tab := v.URL.Query().Get("tab")
	if statuses := statusesOf(tab); len(statuses) > 0 && q.Get("status") == "" {
		q["status"] = statuses
	}
	if tab == "review" {
		q.Set("review", "true")
	}
	return q
}

// loadItems is the list of work items.
func loadItems(v *frame.Visit) (any, error) {
	l := itemList{Tab: v.URL.Query().Get("tab"), AllScopes: v.Caller.Scope.All(), Decide: v.Holds("plans.make")}
	q := itemQuery(v)
	l.Filter, l.First = v.Query(itemFields()...), true
	if after := v.URL.Query().Get("after"); after != "" {
		l.First = false
		q.Set("after", after)
	}
	l.Narrowed = len(l.Filter) > 0
	l.Tabs = itemTabs(l.Tab, l.Filter.Get("institution"))
	table := v.Query(append(itemFields(), "tab")...)
	l.Table = "/items.csv?" + table.Encode()
	q.Set("limit", "40")
	found, err := frame.Get[frame.List[record.WorkItem]](v, "items", q)
	if reason, broad := frame.TooBroad(err); broad {
		l.Broad = reason
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	l.Items, l.More = found.Items, v.More(found.Next)
	for _, i := range l.Items {
		v.Watch.Items = append(v.Watch.Items, i.ID)
	}
	if l.First && l.Tab == "" && !l.Narrowed && len(l.Items) > 0 {
		v.Watch.Newest = l.Items[0].ID
	}
	return l, nil
}

// ItemSheets are the pages of items, and that on which one begins.
func ItemSheets() []frame.Sheet {
	return []frame.Sheet{
		{Path: "/items", Title: "Items", File: "items.html", Nav: "Work", Key: "i", Shell: "farol item list", Needs: permission.ItemsRead, Load: loadItems},
		{Path: "/deposit", Title: "Deposit a bag", File: "deposit.html", Nav: "Work", Key: "b", Needs: permission.DepositsMake, Load: loadDeposit},
		{Path: "/items/{id}", Title: "Item", File: "item.html", Shell: "farol item explain {id}", Needs: permission.ItemsRead, Load: loadItem},
		{Path: "/items/{id}/files", Title: "Files of an item", File: "item-files.html", Shell: "farol item files {id}", Needs: permission.ItemsRead, Load: loadItemFiles},
	}
}
