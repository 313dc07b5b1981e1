package console

import (
	"net/url"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// itemList is a page of work items.
type itemList struct {
	Tab       string // live, review or ended
	Tabs      []tab
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

// tab leads to a part of a list.
type tab struct {
	Name, Path string
	Current    bool
}

// itemFields are the fields of the address by which items are narrowed.
func itemFields() []string {
	return []string{"institution", "name", "object", "stage", "action", "error_code", "storage_option", "worker", "plan", "deletion", "status", "updated_after", "updated_before", "size_min"}
}

// itemTabs are those of the list of items, with the statuses that they have.
func itemTabs(current string, institution string) (list []tab) {
	for _, t := range []struct{ key, name string }{{"", "Newest"}, {"live", "Live"}, {"review", "Needs you"}, {"failed", "Failed"}, {"ended", "Ended"}} {
		list = append(list, tab{t.name, linkTo("/items", "tab", t.key, "institution", institution), t.key == current})
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
func (v *visit) itemQuery() url.Values {
	q := v.query(itemFields()...)
	tab := v.URL.Query().Get("tab")
	if statuses := statusesOf(tab); len(statuses) > 0 && q.Get("status") == "" {
		q["status"] = statuses
	}
	if tab == "review" {
		q.Set("review", "true")
	}
	return q
}

// items is the list of work items.
func (p *Pages) items(v *visit) (any, error) {
	l := itemList{Tab: v.URL.Query().Get("tab"), AllScopes: v.Caller.Scope.All(), Decide: v.Holds("plans.make")}
	q := v.itemQuery()
	l.Filter, l.First = v.query(itemFields()...), true
	if after := v.URL.Query().Get("after"); after != "" {
		l.First = false
		q.Set("after", after)
	}
	l.Narrowed = len(l.Filter) > 0
	l.Tabs = itemTabs(l.Tab, l.Filter.Get("institution"))
	table := v.query(append(itemFields(), "tab")...)
	l.Table = "/items.csv?" + table.Encode()
	q.Set("limit", "40")
	found, err := get[listOf[record.WorkItem]](v, "items", q)
	if reason, broad := tooBroad(err); broad {
		l.Broad = reason
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	l.Items, l.More = found.Items, v.more(found.Next)
	for _, i := range l.Items {
		v.watch.items = append(v.watch.items, i.ID)
	}
	if l.First && l.Tab == "" && !l.Narrowed && len(l.Items) > 0 {
		v.watch.newest = l.Items[0].ID
	}
	return l, nil
}
