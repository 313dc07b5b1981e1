package console

import (
	"net/url"
	"slices"

	"github.com/farol-preservation/farol/registry"
)

// itemList is a page of work items.
type itemList struct {
	Tab       string // live, review or ended
	Tabs      []tab
	Filter    url.Values // as it is in the address
	Narrowed  bool
	Items     []registry.WorkItem
	More      string
	First     bool // it is the first page
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

// Tabs of the list of items, and the statuses that they have.
var itemTabs = []struct{ key, name string }{{"", "Newest"}, {"live", "Live"}, {"review", "Needs you"}, {"failed", "Failed"}, {"ended", "Ended"}}

// itemFields are the fields of the address by which items are narrowed.
var itemFields = []string{"institution", "name", "object", "stage", "action", "error_code", "storage_option", "worker", "plan", "deletion", "status", "updated_after", "updated_before", "size_min"}

// items is the list of work items.
func (p *Pages) items(v *visit) (any, error) {
	l := itemList{Tab: v.URL.Query().Get("tab"), AllScopes: v.Caller.Scope.All(), Decide: v.Holds("plans.make")}
	q := v.query(append(slices.Clone(itemFields), "after")...)
	l.Filter, l.First = v.query(itemFields...), q.Get("after") == ""
	l.Narrowed = len(l.Filter) > 0
	for _, t := range itemTabs {
		to := url.Values{}
		if t.key != "" {
			to.Set("tab", t.key)
		}
		if in := l.Filter.Get("institution"); in != "" {
			to.Set("institution", in)
		}
		path := "/items"
		if len(to) > 0 {
			path += "?" + to.Encode()
		}
		l.Tabs = append(l.Tabs, tab{t.name, path, t.key == l.Tab})
	}
	if l.Filter.Get("status") == "" {
		switch l.Tab {
		case "live":
			q["status"] = []string{string(registry.Pending), string(registry.Started)}
		case "failed":
			q["status"] = []string{string(registry.Failed), string(registry.Suspended)}
		case "ended":
			q["status"] = []string{string(registry.Success), string(registry.Cancelled)}
		}
	}
	if l.Tab == "review" {
		q.Set("review", "true")
	}
	q.Set("limit", "50")
	found, err := get[listOf[registry.WorkItem]](v, "items", q)
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
