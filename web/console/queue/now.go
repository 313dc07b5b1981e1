package queue

import (
	"cmp"
	"fmt"
	"net/url"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/picture"
	"github.com/farol-preservation/farol/web/console/words"
	"github.com/farol-preservation/farol/web/permission"
)

// nowPage is what staff sees first.
type nowPage struct {
	Old      *time.Time // when this was read, if the database does not answer now; nil: it does
	At       time.Time
	Sentence string
	Needs    []need
	Queue    record.QueueView
	Grid     grid
	Groups   []record.Group // the largest
	Plans    []planRow      // that go on, or wait for another person than who looks
	Pools    []poolBar
	Slots    slots  // of all pools
	Outside  string // what runs in no slot; "": nothing
	Ended    picture.Spark
	Parked   picture.Spark
	Unknown  []string // what could not be read, and why
}

// Aged is the page as it was, with the time that it is of.
func (d nowPage) Aged() any {
	d.Old = &d.At
	return &d
}

// need is something that a person has to look at.
type need struct {
	Text, Path string
	Held       bool // a person decided it; it is no failure
	things     int  // it stands for so many; 0: for one
}

// mostAlike is how many needs of a kind are named. If there are more than one other, they are counted.
const mostAlike = 3

// alike adds needs of a kind, and how many more there are: the text has their number. A need
// without a path leads to that of all.
func (d *nowPage) alike(all []need, more, path string) {
	if len(all) > mostAlike+1 {
		rest := len(all) - mostAlike
		all = append(all[:mostAlike:mostAlike], need{Text: fmt.Sprintf(more, rest), Held: all[0].Held, things: rest})
	}
	for _, one := range all {
		one.Path = cmp.Or(one.Path, path)
		d.Needs = append(d.Needs, one)
	}
}

// groupsShown is how many groups of parked items the first page names.
const groupsShown = 5

// LoadNow reads the first page of staff, from figures that the API keeps for all who ask. While
// the database does not answer, it is the page as it was last.
func LoadNow(v *frame.Visit) (any, error) {
	v.Watch.Figures = true
	d, err := readNow(v)
	if err != nil {
		return nil, err
	}
	v.Keep(d)
	return d, nil
}

func readNow(v *frame.Visit) (*nowPage, error) {
	q, err := frame.Get[record.QueueView](v, "queue", nil)
	if err != nil {
		return nil, err
	}
	stages, err := frame.Get[record.StageList](v, "stages", nil)
	if err != nil {
		return nil, err
	}
	d := &nowPage{At: q.At, Queue: q, Grid: gridOf(q, stages.Items)}
	needsOfItems(v, d)
	needsOfPlans(v, d)
	needsOfStages(d)
	needsOfWorkers(d)
	needsOfServices(v, d)
	needsOfJobs(v, d)
	if n := v.Unread(); n != "" {
		d.needs("/alerts?unread=true", "You have unread alerts: %s.", n)
	}
	if h := part[record.HistoryView](v, d, "The last 24 hours", "queue/history", url.Values{"hours": {"24"}}); h != nil {
		d.Ended = picture.SparkOf("Items that ended with success", time.Now(), h.Hours, registry.Success)
		d.Parked = picture.SparkOf("Items that were parked", time.Now(), h.Hours, registry.Failed, registry.Suspended)
	}
	d.Sentence = d.sentence()
	return d, nil
}

// part reads a part of the page; nil: it is not known, which the page says.
func part[T any](v *frame.Visit, d *nowPage, name, path string, query url.Values) *T {
	found, reason := frame.Optional[T](v, path, query)
	if found == nil {
		d.Unknown = append(d.Unknown, name+": "+reason)
	}
	return found
}

// sentence is the page in one sentence.
func (d *nowPage) sentence() string {
	n := 0
	for _, one := range d.Needs {
		n += max(one.things, 1)
	}
	switch {
	case n == 0 && len(d.Unknown) > 0:
		return "Nothing is known to need you."
	case n == 0:
		return "Nothing needs you."
	}
	return words.Counted(int64(n), "thing needs", "things need") + " you."
}

func (d *nowPage) needs(path, text string, args ...any) {
	d.Needs = append(d.Needs, need{Text: fmt.Sprintf(text, args...), Path: path})
}

func needsOfItems(v *frame.Visit, d *nowPage) {
	g := part[record.GroupsView](v, d, "Groups of failures", "items/groups", nil)
	if g == nil || len(g.Items) == 0 {
		return
	}
	var items int64
	for _, one := range g.Items {
		items += one.Items
	}
	more := ""
	if !g.Complete {
		more = "At least "
	}
	d.needs("/items/groups", "%s%s for a person, in %s.", more, words.Counted(items, "item waits", "items wait"), words.Counted(int64(len(g.Items)), "group", "groups"))
	d.Groups = g.Items[:min(len(g.Items), groupsShown)]
}

// plansShown is how many plans are looked at that are not at their end.
const plansShown = 50

// needsOfPlans names the plans that the person has to decide about, and shows the others that
// are under way.
func needsOfPlans(v *frame.Visit, d *nowPage) {
	if !v.Holds(permission.PlansRead) {
		return
	}
	found := part[frame.List[record.Plan]](v, d, "Plans", "plans", url.Values{"state": {"ready", "applying", "undoing"}, "limit": {fmt.Sprint(plansShown)}})
	if found == nil {
		return
	}
	var approve, alone []need
	for _, one := range found.Items {
		r := rowOf(v, one)
		path := fmt.Sprintf("/plans/%d", one.ID)
		switch toApprove := waits(v, one); {
		case toApprove && one.CreatedBy != v.Caller.Person.Email && v.Holds(permission.PlansApprove):
			approve = append(approve, need{Text: fmt.Sprintf("Plan %d (%s, %s) of %s waits for your approval.", one.ID, r.What, words.Counted(r.Todo, "item", "items"), one.CreatedBy), Path: path})
		case one.State != "ready" && one.Carry == nil:
			alone = append(alone, need{Text: fmt.Sprintf("Plan %d (%s, %s) is not at its end, and no server carries it out. Unless a command does, go on with it or undo it.",
				one.ID, r.What, words.Counted(r.Todo, "item", "items")), Path: path})
		case toApprove || one.State != "ready":
			d.Plans = append(d.Plans, r)
		}
	}
	d.alike(approve, "%d more plans wait for your approval.", "/plans?state=ready")
	d.alike(alone, "%d more plans are not at their end, and no server carries them out.", "/plans")
	if found.Next != nil {
		d.needs("/plans", "More than %d plans are not at their end. Only the newest were looked at here.", plansShown)
	}
}

func needsOfStages(d *nowPage) {
	var late, paused []need
	for _, r := range d.Grid.late() {
		late = append(late, need{Text: fmt.Sprintf("An item at %s has been due for %s. The stage allows %s.",
			words.StageName(r.Action, r.Stage), words.Rough(words.Duration(r.All.OldestDue)), words.Rough(words.Duration(r.Overdue)))})
	}
	d.alike(late, "Items at %d more stages have been due for longer than these allow.", "/queue")
	for _, r := range d.Grid.paused() {
		waits := ""
		if n := r.All.Live - r.All.Running; n > 0 {
			waits = ", and " + words.Counted(n, "item waits", "items wait")
		}
		paused = append(paused, need{Text: words.StageName(r.Action, r.Stage) + " is paused" + becauseOf(r.PauseReason) + waits + ".", Path: r.Path(), Held: true})
	}
	d.alike(paused, "%d more stages are paused.", "/queue")
}

// becauseOf is the reason of a pause within a sentence; "" if none was given.
func becauseOf(reason *string) string {
	if reason == nil || *reason == "" {
		return ""
	}
	return " (" + *reason + ")"
}

// needsOfWorkers goes by the workers that lived when the queue was read, so that both agree.
func needsOfWorkers(d *nowPage) {
	d.Pools = poolBars(d.Queue.Workers)
	for _, b := range d.Pools {
		d.Slots.Taken, d.Slots.All = d.Slots.Taken+b.Taken, d.Slots.All+b.All
	}
	if outside := d.Queue.Total.Running - int64(d.Slots.Taken); outside > 0 {
		d.Outside = words.Counted(outside, "item runs", "items run") + " in no slot: over HTTP, or for a worker that is gone."
	}
	if len(d.Queue.Workers) == 0 && d.Queue.Total.Due > 0 {
		d.needs("/workers", "No worker runs, and %s due. Start one with farol work.", words.Counted(d.Queue.Total.Due, "item is", "items are"))
	}
}

func needsOfServices(v *frame.Visit, d *nowPage) {
	var held, fail, stopped []need
	if s := part[frame.List[record.Service]](v, d, "Services", "services", nil); s != nil {
		for _, one := range s.Items {
			switch {
			case one.HeldBy != nil:
				held = append(held, need{Text: words.Sentence(one.Text), Held: true})
			case one.State != "ok":
				fail = append(fail, need{Text: words.Sentence(one.Text)})
			}
		}
	}
	if b := part[frame.List[record.FixityRepairStop]](v, d, "Repair limits", "brakes", nil); b != nil {
		for _, one := range b.Items {
			stopped = append(stopped, need{Text: fmt.Sprintf("Repair has stopped at %s: too many of its copies failed.", one.Provider)})
		}
	}
	d.alike(held, "%d more services are held.", "/services")
	d.alike(fail, "%d more services fail.", "/services")
	d.alike(stopped, "Repair has stopped at %d more providers.", "/fixity")
}

func needsOfJobs(v *frame.Visit, d *nowPage) {
	var late, failed []need
	if s := part[frame.List[record.Schedule]](v, d, "Recurring jobs", "schedules", nil); s != nil {
		for _, one := range s.Items {
			switch jobState(one) {
			case jobLate:
				late = append(late, need{Text: fmt.Sprintf("The job %s is late by %s. Check that farol schedule runs.", one.Job, words.Rough(one.Late))})
			case jobFailed:
				failed = append(failed, need{Text: fmt.Sprintf("The last run of the job %s failed: %s", one.Job, words.Sentence(one.Error))})
			}
		}
	}
	d.alike(late, "%d more jobs are late.", "/schedules")
	d.alike(failed, "The last runs of %d more jobs failed.", "/schedules")
	if m := part[record.MirrorView](v, d, "Mirror to NSQ", "mirror", nil); m != nil && m.Known {
		switch drift := m.Drift(); {
		case m.Stands():
			d.needs("/mirror", "No mirror to NSQ runs. Start farol mirror.")
		case drift > 0:
			d.needs("/mirror", "nsqd shows another queue: it is off by %s.", words.Counted(drift, "message", "messages"))
		}
	}
}
