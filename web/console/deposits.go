package console

import (
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/console/archive"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/queue"
	"github.com/farol-preservation/farol/web/console/words"
	"github.com/farol-preservation/farol/web/permission"
)

// depositSheets are the pages that depositors begin at.
func depositSheets() []frame.Sheet {
	return []frame.Sheet{
		{Path: "/{$}", Title: "Now", Own: "My deposits", File: "deposits.html", Nav: "Work", Shell: "farol item list", Load: loadFirst},
	}
}

// loadFirst is the first page of the person who has signed in.
func loadFirst(v *frame.Visit) (any, error) {
	if v.Caller.Scope.All() {
		v.File = "now.html"
		return queue.LoadNow(v)
	}
	return loadDeposits(v)
}

// How many items of each kind the first page has.
const (
	mostInWork = 20
	mostFailed = 5
	mostSafe   = 10
	readSafe   = 100 // of the newest bags: a large one may end after many that came later
)

// depositsPage is what an institution has in work and in storage.
type depositsPage struct {
	Own      string // identifier of the institution
	Work     []inWork
	MoreWork bool
	Failed   []failed
	More     bool // there are more that failed
	Safe     []record.WorkItem
	MoreSafe bool
	Mine     []record.DeletionRequest  // deletions that wait for this person
	Stop     []record.DeletionRequest  // deletions that are approved and can be stopped before they begin
	Costly   []record.ShownRestoration // restorations that do
	MoreWait bool                      // more of both wait
	Holdings *record.Deposit           // nil: not known
	NotKnown string                    // why
	Alerts   string                    // how many are unread; "": none
}

// inWork is an item and how far it is.
type inWork struct {
	Item   record.WorkItem
	Stages []queue.RailStage
	Number int // of its stage, from 1; 0: not known
	Left   string
	NoLeft string // why it is not known how long it takes
}

// failed is an item that needs someone, and what to do about it.
type failed struct {
	Item  record.WorkItem
	Why   string // in one sentence
	Fault string // whose it is; "": not known
	Todo  string
}

// Waiting is how much waits for a decision of this person.
func (d depositsPage) Waiting() int { return len(d.Mine) + len(d.Costly) }

// Lead is the page in one sentence.
func (d depositsPage) Lead() string {
	count := func(n int, more bool, one, many string) string {
		switch {
		case n == 1 && !more:
			return "1 " + one
		case more:
			return fmt.Sprintf("more than %d %s", n, many)
		}
		return fmt.Sprintf("%d %s", n, many)
	}
	switch need := len(d.Failed) + d.Waiting(); {
	case need > 0:
		return "Needs you: " + count(need, d.More || d.MoreWait, "thing", "things") + "."
	case d.Alerts != "":
		return "You have unread alerts: " + d.Alerts + ". Nothing else needs you."
	case len(d.Work) > 0:
		return "Nothing needs you. In work: " + count(len(d.Work), d.MoreWork, "item", "items") + "."
	}
	return "Nothing needs you, and nothing is in work."
}

// loadDeposits shows people of an institution what becomes of their bags.
func loadDeposits(v *frame.Visit) (any, error) {
	d := depositsPage{Alerts: v.Unread()}
	_, d.Own = v.Caller.Scope.Institution()
	v.Watch.Figures = true
	work, more, err := newest(v, mostInWork, url.Values{"status": {string(registry.Pending), string(registry.Started)}})
	if err != nil {
		return nil, err
	}
	d.MoreWork = more
	d.Work = ways(v, work)
	left(v, d.Work)
	var parked []record.WorkItem
	if parked, d.More, err = newest(v, mostFailed, url.Values{"status": {string(registry.Failed), string(registry.Suspended)}}); err != nil {
		return nil, err
	}
	for _, i := range parked {
		if i.ErrorCode != archive.CostApproval { // these are shown as waiting for an approval
			d.Failed = append(d.Failed, reasonOf(v, i))
		}
	}
	// The newest are read, and not those of seven days: an index finds them, in the archive too.
	if d.Safe, d.MoreSafe, err = newest(v, readSafe, url.Values{"status": {string(registry.Success)}, "action": {"Ingest"}}); err != nil {
		return nil, err
	}
	d.Safe = slices.DeleteFunc(d.Safe, func(i record.WorkItem) bool { return time.Since(i.UpdatedAt) > 7*24*time.Hour })
	if len(d.Safe) > mostSafe {
		d.Safe, d.MoreSafe = d.Safe[:mostSafe], true
	}
	if v.Holds(permission.DeletionsApprove) {
		d.Mine, _, d.MoreWait = archive.WaitingDeletions(v)
	}
	d.Stop = archive.ApprovedDeletions(v)
	if v.Holds(permission.RestorationsApprove) {
		list, more := archive.Costly(v)
		d.Costly = slices.DeleteFunc(list, func(r record.ShownRestoration) bool { return r.Item.User == v.Caller.Person.Email })
		d.MoreWait = d.MoreWait || more
	}
	d.holdings(v)
	return d, nil
}

// newest are the newest items that match, and whether there are more.
func newest(v *frame.Visit, most int, q url.Values) ([]record.WorkItem, bool, error) {
	q.Set("limit", fmt.Sprint(most))
	found, err := frame.Get[frame.List[record.WorkItem]](v, "items", q)
	return found.Items, found.Next != nil, err
}

// ways adds to items the stages of their actions, which are looked up once for each action.
func ways(v *frame.Visit, items []record.WorkItem) (list []inWork) {
	stages := map[registry.Action][]registry.Stage{}
	for _, i := range items {
		if _, known := stages[i.Action]; !known {
			stages[i.Action] = nil
			if shown, _ := frame.Optional[record.ItemView](v, fmt.Sprintf("items/%d", i.ID), nil); shown != nil {
				stages[i.Action] = shown.Stages
			}
		}
		list = append(list, inWork{
			Item:   i,
			Stages: queue.Rail(record.ItemView{WorkItem: i, Stages: stages[i.Action]}),
			Number: slices.Index(stages[i.Action], i.Stage) + 1,
		})
	}
	return list
}

// left adds to items how long they still take, as far as that is known. It is asked once for
// all of them.
func left(v *frame.Visit, items []inWork) {
	q := url.Values{}
	for i := range items {
		items[i].NoLeft = "it has ended by now"
		q.Add("id", fmt.Sprint(items[i].Item.ID))
	}
	if len(items) == 0 {
		return
	}
	found, reason := frame.Optional[frame.List[record.ItemEstimate]](v, "items/estimates", q)
	if found == nil {
		for i := range items {
			items[i].NoLeft = reason
		}
		return
	}
	for _, e := range found.Items {
		at := slices.IndexFunc(items, func(i inWork) bool { return i.Item.ID == e.ID })
		if items[at].NoLeft = e.Unknown; e.End != nil {
			items[at].Left = words.Within(time.Until(e.End.Low), time.Until(e.End.High))
		}
	}
}

// reasonOf says why an item failed, whose fault it is, and what to do.
func reasonOf(v *frame.Visit, i record.WorkItem) failed {
	f := failed{Item: i, Why: i.Note}
	e, _ := frame.Optional[explain.Explanation](v, fmt.Sprintf("items/%d/explain", i.ID), nil)
	if e == nil {
		return f
	}
	queue.ForDepositors(v, e)
	f.Why = e.Summary
	if e.Cause != nil {
		f.Fault, f.Todo = explain.Faults()[e.Cause.Fault], e.Cause.Todo
	}
	return f
}

// holdings is what the institution has in storage, by the last count.
func (d *depositsPage) holdings(v *frame.Visit) {
	if !v.Holds(permission.ReportsDeposits) {
		return
	}
	found, reason := frame.Optional[frame.List[record.Deposit]](v, "reports/deposits", url.Values{"by": {"institution"}, "institution": {d.Own}})
	switch {
	case found == nil:
		d.NotKnown = reason
	case len(found.Items) == 0:
		d.NotKnown = "it is counted once an hour, and was not yet."
	default:
		d.Holdings = &found.Items[0]
	}
}
