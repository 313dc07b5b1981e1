package console

import (
	"strings"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/web/api"
)

// groupsPage are the parked items by how they ended.
type groupsPage struct {
	Groups   []groupRow
	Items    int64
	Complete bool
}

// groupRow is a group of parked items, with what its code means.
type groupRow struct {
	browse.Group

	Means string
	Todo  string
	Fault string // whose, in words
	Plan  string // where a plan for the group is made; "": it cannot be described to one
	List  string // where its items are listed
}

func (*Pages) groups(v *visit) (any, error) {
	v.watch.figures = true
	found, err := get[api.GroupsView](v, "items/groups", nil)
	if err != nil {
		return nil, err
	}
	d := groupsPage{Complete: found.Complete}
	faults, verdicts := explain.Faults(), explain.Verdicts()
	for _, g := range found.Items {
		r := groupRow{Group: g, List: linkTo("/items", "tab", "review", "error_code", g.ErrorCode, "stage", g.Stage, "action", g.Action)}
		switch verdict, known := verdicts[g.ErrorCode]; {
		case known:
			r.Means, r.Fault = verdict.Means, faults[verdict.Fault]
			r.Todo = strings.ReplaceAll(strings.ReplaceAll(verdict.Todo, "; then `farol requeue {id}`", "; then requeue the group"), "{id}", "ID")
		case g.ErrorCode == "":
			r.Means, r.Todo = "No code is on record.", "Open the example and read its note."
		default:
			unknown := explain.VerdictOn(g.ErrorCode)
			r.Means, r.Todo = unknown.Means, "Open the example and read its note."
		}
		if g.ErrorCode != "" {
			r.Plan = linkTo("/plans/new", "status", "Failed", "status", "Suspended", "error_code", g.ErrorCode, "stage", g.Stage, "action", g.Action)
		}
		d.Items += g.Items
		d.Groups = append(d.Groups, r)
	}
	return d, nil
}
