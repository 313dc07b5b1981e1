package queue

import (
	"strings"
	"time"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/picture"
	"github.com/farol-preservation/farol/web/console/words"
)

// groupsPage are the parked items by how they ended.
type groupsPage struct {
	Groups   []groupRow
	Items    int64
	Complete bool
}

// groupRow is a group of parked items, with what its code means.
type groupRow struct {
	record.Group

	Means  string
	Todo   string
	Fault  string // whose, in words
	Plan   string // where a plan for the group is made
	List   string // where its items are listed
	Parts  []groupPart
	Parted int           // institutions that are not among the parts shown
	Line   picture.Spark // of the last 24 hours
}

// partsShown is for how many institutions a group says how many items it has.
const partsShown = 8

// groupPart is what an institution has of a group.
type groupPart struct {
	record.GroupPart

	Plan string
	List string
}

func loadGroups(v *frame.Visit) (any, error) {
	v.Watch.Figures = true
	found, err := frame.Get[record.GroupsView](v, "items/groups", nil)
	if err != nil {
		return nil, err
	}
	d := groupsPage{Complete: found.Complete}
	faults, verdicts := explain.Faults(), explain.Verdicts()
	for _, g := range found.Items {
		r := groupRow{Group: g, List: listOfGroup(g)}
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
		r.Plan = planOf(g)
		for _, part := range g.Institutions[:min(len(g.Institutions), partsShown)] {
			r.Parts = append(r.Parts, groupPart{part, planOf(g, "institution", part.Institution), listOfGroup(g, "institution", part.Institution)})
		}
		r.Parted = len(g.Institutions) - len(r.Parts)
		r.Line = lineOf(g.Hours)
		d.Items += g.Items
		d.Groups = append(d.Groups, r)
	}
	return d, nil
}

// listOfGroup is where the items of a group are listed; more are further filters.
func listOfGroup(g record.Group, more ...any) string {
	return words.LinkTo("/items", append([]any{"tab", "review", "error_code", g.ErrorCode, "stage", g.Stage, "action", g.Action}, more...)...)
}

// planOf is where a plan for a group is made.
func planOf(g record.Group, more ...any) string {
	code := []any{"error_code", g.ErrorCode}
	if g.ErrorCode == "" {
		code = []any{"no_error_code", "true"}
	}
	return words.LinkTo("/plans/new", append(append([]any{"status", "Failed", "status", "Suspended", "stage", g.Stage, "action", g.Action}, code...), more...)...)
}

// lineOf is when the items of a group were parked, by the hour.
func lineOf(hours []record.GroupHour) picture.Spark {
	var ended []record.Ended
	for _, h := range hours {
		ended = append(ended, record.Ended{Hour: h.Hour, Status: registry.Failed, Items: h.Items})
	}
	return picture.SparkOf("Parked in the last 24 hours", time.Now(), ended, registry.Failed)
}
