// Package explain is what people see of a work item. What comes in is the ID of an item;
// what goes out is its state, history and progress, whose fault a failure is, and what to do.
// It returns values and prints nothing, so that the command line, APIs and pages say the same.
package explain

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farol-preservation/farol/explain/estimate"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
)

// mostAsked is how long Redis may take: the rest is shown without it.
const mostAsked = 5 * time.Second

// A Source is where the facts on items come from. It may be used concurrently.
type Source struct {
	Registry *registry.Registry
	Progress *progress.Store // nil: the progress of files is not known
	Measures map[registry.Stage]progress.Measure
	Unread   func(error) // is called with what Redis refuses; the rest is shown without it
	NoHosts  bool        // hosts and processes are left out
	Model    Model       // nil: nothing is estimated
}

// unread reports what Redis refused, if anything.
func (s Source) unread(err error) {
	if err != nil && s.Unread != nil {
		s.Unread(err)
	}
}

// read reads an item and its attempts.
func (s Source) read(ctx context.Context, id int64) (record.WorkItem, []record.Attempt, error) {
	item, err := s.Registry.WorkItem(ctx, id)
	if err != nil {
		return item, nil, err
	}
	attempts, err := s.Registry.Attempts(ctx, id)
	if s.NoHosts {
		item.Node, item.PID, item.Worker = nil, nil, nil
		for i := range attempts {
			attempts[i].Node, attempts[i].PID, attempts[i].Worker = "", 0, ""
		}
	}
	return item, attempts, err
}

// An Item is all that is known of a work item.
type Item struct {
	estimate.Times

	Item     record.WorkItem         `json:"item"`
	Request  record.RetrievalRequest `json:"request"` // empty of an ingest
	State    string                  `json:"state"`   // for people: what happens next, or must
	Current  Stage                   `json:"current"`
	Attempts []record.Attempt        `json:"attempts"`
	Warnings []string                `json:"warnings"` // about the bag
	Changes  []record.Change         `json:"changes"`  // by hand
	Progress []StageFiles            `json:"progress"` // null if it is not known
	Object   *Object                 `json:"object"`   // null if it is not on record
	Events   []record.Event          `json:"events"`   // of the object itself
}

// StageFiles is how many files a stage has finished.
type StageFiles struct {
	Stage registry.Stage `json:"stage"`
	Files int64          `json:"files"`
}

// An Object is what is on record of an item's object.
type Object struct {
	record.Object
	Summary record.ObjectSummary `json:"summary"`
}

// Item reads what is known of an item. Without Redis the rest is complete.
func (s Source) Item(ctx context.Context, id int64) (*Item, error) {
	item, attempts, err := s.read(ctx, id)
	if err != nil {
		return nil, err
	}
	v := &Item{
		Item: item, State: State(item, time.Now()), Attempts: append([]record.Attempt{}, attempts...),
		Warnings: warningsOf(attempts), Changes: []record.Change{}, Events: []record.Event{},
	}
	changes, err := s.Registry.Changes(ctx, id)
	if err != nil {
		return nil, err
	}
	v.Changes = append(v.Changes, changes...)
	if v.Request, err = requests.In(s.Registry).RequestOf(ctx, item); err != nil {
		return nil, err
	}
	v.State = cmp.Or(v.Request.Waits, v.State)
	if err := v.readObject(ctx, s.Registry); err != nil {
		return nil, err
	}
	s.unread(v.readProgress(ctx, s))
	v.Times, err = s.ends(ctx, item, v.Current)
	return v, err
}

// A Snapshot is how far an item is at one moment, for people who follow it.
type Snapshot struct {
	estimate.Times

	Time     time.Time        `json:"time"`
	Item     record.WorkItem  `json:"item"`
	State    string           `json:"state"`
	Current  Stage            `json:"current"`
	Attempts []record.Attempt `json:"-"`
}

// Snapshot reads how far an item is now.
func (s Source) Snapshot(ctx context.Context, id int64) (l Snapshot, err error) {
	if l.Item, l.Attempts, err = s.read(ctx, id); err != nil {
		return l, err
	}
	l.Time = time.Now().UTC()
	l.State = State(l.Item, l.Time)
	l.Current, err = s.Stage(ctx, l.Item)
	s.unread(err)
	l.Times, err = s.ends(ctx, l.Item, l.Current)
	return l, err
}

func (v *Item) readObject(ctx context.Context, r *registry.Registry) error {
	object, err := r.Object(ctx, v.Item.ObjectIdentifier)
	if errors.Is(err, registry.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	v.Object = &Object{Object: object}
	if v.Object.Summary, err = r.Summary(ctx, object.ID); err != nil {
		return err
	}
	events, err := r.ObjectEvents(ctx, object.ID)
	v.Events = append(v.Events, events...)
	return err
}

// readProgress reads what Redis knows of an item.
func (v *Item) readProgress(ctx context.Context, s Source) error {
	current, found, err := s.current(ctx, v.Item)
	v.Current, v.Warnings = current, append(v.Warnings, warningsAtEnd(found, v.Attempts)...)
	if err != nil || s.Progress == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, mostAsked)
	defer cancel()
	summary, err := s.Progress.Summary(ctx, v.Item.ID)
	if err == nil {
		v.Progress = filesByStage(summary, v.Item.Order)
	}
	return err
}

// current reads how far an item is with its stage, and what an attempt failed of.
func (s Source) current(ctx context.Context, i record.WorkItem) (current Stage, f progress.Faults, err error) {
	ctx, cancel := context.WithTimeout(ctx, mostAsked)
	defer cancel()
	if current, err = s.Stage(ctx, i); err == nil && s.Progress != nil {
		f, _, err = s.Progress.Faults(ctx, i.ID)
	}
	return current, f, err
}

// warningsOf are the warnings that the ledger has of an item whose bag is valid.
func warningsOf(attempts []record.Attempt) []string {
	if _, list, ok := strings.Cut(registry.RemarkOf(attempts), ": "); ok {
		return strings.Split(list, " | ")
	}
	return []string{}
}

// warningsAtEnd are the warnings about a bag that the last attempt found invalid.
func warningsAtEnd(found progress.Faults, attempts []record.Attempt) (list []string) {
	if n := len(attempts); n == 0 || found.Token != attempts[n-1].ClaimToken {
		return nil
	}
	for _, f := range found.Warnings {
		list = append(list, f.Message)
	}
	return list
}

// filesByStage adds up the finished files by stage. A stage that was begun again has
// one entry for each time, "Store@12"; the newest counts.
func filesByStage(summary map[string]int64, order []registry.Stage) []StageFiles {
	files, passes := map[registry.Stage]int64{}, map[registry.Stage]int64{}
	for name, n := range summary {
		name, pass, _ := strings.Cut(name, "@")
		stage := registry.Stage(name)
		number, _ := strconv.ParseInt(pass, 10, 64) // 0 for a stage without passes
		if _, known := files[stage]; !known || number > passes[stage] {
			files[stage], passes[stage] = n, number
		}
	}
	list := []StageFiles{}
	for _, stage := range slices.SortedFunc(maps.Keys(files), func(a, b registry.Stage) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a), slices.Index(order, b)), cmp.Compare(a, b))
	}) {
		list = append(list, StageFiles{stage, files[stage]})
	}
	return list
}
