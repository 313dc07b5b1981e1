package queue

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/words"
	"github.com/farol-preservation/farol/web/permission"
)

// plansPage is a page of plans.
type plansPage struct {
	Plans  []planRow
	More   string
	State  string
	States []string
}

// planRow is a plan in the list.
type planRow struct {
	record.Plan

	What  string // what it does, in a few words
	State string // in words
	Todo  int64  // items that it changes
}

func loadPlans(v *frame.Visit) (any, error) {
	q := v.Query("state", "after")
	d := plansPage{State: q.Get("state"), States: []string{"ready", "applying", "applied", "undoing", "undone"}}
	q.Set("limit", "25")
	found, err := frame.Get[frame.List[record.Plan]](v, "plans", q)
	if err != nil {
		return nil, err
	}
	for _, one := range found.Items {
		d.Plans = append(d.Plans, rowOf(v, one))
	}
	d.More = v.More(found.Next)
	return d, nil
}

func rowOf(v *frame.Visit, one record.Plan) planRow {
	r := planRow{Plan: one, What: whatOf(one), State: one.State, Todo: one.Items - one.Refused}
	if waits(v, one) {
		r.State = "waits for a second person"
	}
	return r
}

// Percent is how far it is that is applied or undone.
func (r planRow) Percent() int64 {
	_, _, percent := howFar(r.Plan)
	return percent
}

// waits reports whether another person has to approve a plan before it is applied.
func waits(v *frame.Visit, one record.Plan) bool {
	return one.State == "ready" && one.ApprovedAt == nil && one.Items-one.Refused > v.Frame.API.PlanAlone
}

// whatOf says what a plan does to each of its items.
func whatOf(p record.Plan) string {
	switch {
	case p.Action == "set priority" && p.Priority != nil:
		return fmt.Sprintf("set priority %d", *p.Priority)
	case p.ToStage != nil:
		return p.Action + " to " + words.Text(*p.ToStage)
	}
	return p.Action
}

// planPage is a plan, with what can be decided about it.
type planPage struct {
	record.PlanView

	Tag     string
	What    string
	Todo    int64 // items that it changes, or has to
	Done    int64 // of these, that have been dealt with
	Percent int64
	Alone   int64 // so many items one person may change
	Counts  []planCount
	Shown   string // state of the items that are listed; "": the first to come
	Items   []record.PlanItem
	More    string
	Own     bool // the person who looks has made it

	WaitsForOther                            bool // to approve it
	Approve, Apply, GoOn, Stop, Undo, Delete bool
}

// Left is how many items are still to be dealt with.
func (d planPage) Left() int64 { return d.Todo - d.Done }

// Any reports whether anything is to be decided.
func (d planPage) Any() bool {
	return d.WaitsForOther || d.Apply || d.GoOn || d.Stop || d.Undo || d.Delete
}

// planCount is how many items of a plan are in a state.
type planCount struct {
	State string
	Items int64
}

// itemStates are the states of a plan's items, in the order of their lives.
func itemStates() []string {
	return []string{"planned", "done", "refused", "changed", "undone", "not undone"}
}

func loadPlan(v *frame.Visit) (any, error) {
	id := v.ID()
	view, tag, err := frame.GetTagged[record.PlanView](v, "plans/"+id, nil)
	if err != nil {
		return nil, err
	}
	one := view.Plan
	d := planPage{PlanView: view, Tag: tag, What: whatOf(one), Alone: v.Frame.API.PlanAlone, Own: one.CreatedBy == v.Caller.Person.Email}
	for _, state := range itemStates() {
		if n := one.Counts[state]; n > 0 {
			d.Counts = append(d.Counts, planCount{state, n})
		}
	}
	d.Done, d.Todo, d.Percent = howFar(one)
	d.decisions(v, waits(v, one))
	v.Title = fmt.Sprintf("Plan %d – %s", one.ID, d.What)
	if one.Carry != nil {
		v.Every = 2
	}
	if d.Shown = v.URL.Query().Get("items"); slices.Contains(itemStates(), d.Shown) {
		q := v.Query("after")
		q.Set("state", d.Shown)
		q.Set("limit", "50")
		found, err := frame.Get[frame.List[record.PlanItem]](v, "plans/"+id+"/items", q)
		if err != nil {
			return nil, err
		}
		d.Items, d.More = found.Items, v.More(found.Next)
	} else {
		d.Shown, d.Items = "", view.Sample
	}
	return d, nil
}

// howFar says how far a plan is that is applied or undone.
func howFar(p record.Plan) (done, todo, percent int64) {
	todo = p.Items - p.Refused
	switch p.State {
	case "applying", "applied":
		done = todo - p.Counts["planned"]
	case "undoing", "undone":
		done = p.Counts["undone"] + p.Counts["not undone"]
		todo = done + p.Counts["done"]
	}
	if todo > 0 {
		percent = 100 * done / todo
	}
	return done, todo, percent
}

// decisions says what the person may decide about the plan as it stands.
func (d *planPage) decisions(v *frame.Visit, waits bool) {
	carried := d.Carry != nil
	d.WaitsForOther = waits
	d.Approve = waits && !d.Own && v.Holds(permission.PlansApprove)
	d.Apply = d.State == "ready" && d.Todo > 0 && !waits && v.Holds(permission.PlansApply)
	d.GoOn = d.State == "applying" && !carried && v.Holds(permission.PlansApply)
	d.Stop = d.State == "applying" && v.Holds(permission.PlansUndo)
	d.Undo = (d.State == "applied" || d.State == "undoing" && !carried) && v.Holds(permission.PlansUndo)
	d.Delete = (d.State == "ready" || d.State == "undone") && v.Holds(permission.PlansMake)
}

// planFields are the fields of a filter of items that a plan can have, too. Those of the list
// of items have the same names.
func planFields() []string {
	return []string{
		"ids", "status", "stage", "action", "institution", "error_code", "no_error_code", "name", "name_prefix", "object", "worker", "storage_option", "review",
		"size_min", "size_max", "updated_after", "updated_before", "created_after", "created_before",
	}
}

// newPlanPage is the form that a plan is made by.
type newPlanPage struct {
	Filter  []filterField // what is chosen
	Stages  []string
	Alone   int64
	Dropped []string // what the list was narrowed by that a plan cannot be
}

// valuesShown is how many values of a part of a filter are named.
const valuesShown = 12

// filterField is a part of a plan's filter.
type filterField struct {
	Name   string // of the field of the operation
	Label  string
	Values []string
}

func loadNewPlan(v *frame.Visit) (any, error) {
	d := newPlanPage{Alone: v.Frame.API.PlanAlone}
	fields := planFields()
	for _, name := range itemFields() {
		if !slices.Contains(fields, name) {
			fields = append(fields, name)
		}
	}
	q := v.Query(fields...)
	for _, name := range planFields() {
		if values := q[name]; len(values) > 0 {
			d.Filter = append(d.Filter, filterField{"filter." + name, labelOf(name), values})
		}
		delete(q, name)
	}
	for name := range q {
		d.Dropped = append(d.Dropped, labelOf(name))
	}
	slices.Sort(d.Dropped)
	stages, err := frame.Get[record.StageList](v, "stages", nil)
	if err != nil {
		return nil, err
	}
	var list []registry.Stage
	for _, s := range stages.Items {
		list = append(list, s.Stage)
	}
	d.Stages = words.Names(list)
	return d, nil
}

// labelOf is the name of a filter for people.
func labelOf(name string) string {
	labels := map[string]string{
		"ids": "Items", "status": "Status", "stage": "Stage", "action": "Action", "institution": "Institution", "error_code": "Error code", "no_error_code": "Only those without an error code", "name": "Bag",
		"name_prefix": "Bag begins with", "object": "Object", "worker": "Worker", "storage_option": "Storage option", "review": "Only those that wait for a person",
		"size_min": "Bytes, at least", "size_max": "Bytes, at most", "updated_after": "Updated after", "updated_before": "Updated before",
		"created_after": "Created after", "created_before": "Created before", "plan": "Plan", "deletion": "Deletion",
	}
	if label := labels[name]; label != "" {
		return label
	}
	return name
}

// Text is the values of a part of the filter, for people.
func (f filterField) Text() string {
	most := min(len(f.Values), valuesShown)
	text := strings.Join(f.Values[:most], " or ")
	if f.Name == "filter.ids" {
		text = words.Counted(int64(len(f.Values)), "item", "items") + ": " + strings.Join(f.Values[:most], ", ")
	}
	if most < len(f.Values) {
		text += ", …"
	}
	return text
}
