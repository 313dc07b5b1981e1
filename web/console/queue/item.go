package queue

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/api/queue"
	"github.com/farol-preservation/farol/web/console/frame"
	"github.com/farol-preservation/farol/web/console/live"
	"github.com/farol-preservation/farol/web/console/words"
	"github.com/farol-preservation/farol/web/permission"
)

// itemPage is all there is to know of an item.
type itemPage struct {
	Item     record.ItemView
	Tag      string // which decisions are sent with
	State    string // as the stream says it
	Explain  explain.Explanation
	Fault    string            // whose it is, in words
	Codes    []explain.Verdict // of its faults, each once
	Rail     []RailStage
	Timeline timeline
	Twins    []record.WorkItem // others of the same object
	Requeue  []record.RequeueStage
	Live     bool
	Now      *live.Shown // how far its stage is; nil: not known, or it does not run
	NowNote  string      // why not
	MayWork  bool        // links to workers lead somewhere
}

// RailStage is a stage of an item's way.
type RailStage struct {
	Stage registry.Stage
	State string // done, here or ahead
	Class string // of the mark
}

// loadItem shows a work item.
func loadItem(v *frame.Visit) (any, error) {
	id := v.ID()
	var d itemPage
	var err error
	if d.Item, d.Tag, err = frame.GetTagged[record.ItemView](v, "items/"+id, nil); err != nil {
		return nil, err
	}
	if d.Explain, err = frame.Get[explain.Explanation](v, "items/"+id+"/explain", nil); err != nil {
		return nil, err
	}
	ForDepositors(v, &d.Explain)
	history, err := frame.Get[record.ItemHistory](v, "items/"+id+"/history", nil)
	if err != nil {
		return nil, err
	}
	i := d.Item
	d.Live = i.Status != registry.Success && i.Status != registry.Cancelled
	d.State = live.StateOf(i.WorkItem)
	d.Timeline = timelineOf(i.WorkItem, history, i.Why, time.Now(), v.URL.Query().Has("all"))
	d.Rail = Rail(i)
	if d.Explain.Cause != nil {
		d.Fault = explain.Faults()[d.Explain.Cause.Fault]
	}
	d.Codes = codesOf(d.Explain)
	d.MayWork = v.Holds(permission.ItemsWorkers)
	if v.Holds(permission.ItemsDecide) && d.Live {
		if found, _ := frame.Optional[frame.List[record.RequeueStage]](v, "items/"+id+"/requeue", nil); found != nil {
			d.Requeue = slices.DeleteFunc(found.Items, func(s record.RequeueStage) bool { return s.Refused != nil })
		}
	}
	if i.Status == registry.Started {
		var found *queue.ProgressView
		if found, d.NowNote = frame.Optional[queue.ProgressView](v, "items/"+id+"/progress", nil); found != nil {
			now := live.ProgressOf(found.Current)
			d.Now = &now
		}
	}
	d.Twins = twins(v, i.WorkItem)
	v.Title = fmt.Sprintf("Item %d – %s at %s", i.ID, i.Status, i.Stage)
	if d.Live {
		v.Watch.Open = i.ID
	}
	return d, nil
}

// ForDepositors leaves out of an explanation what only staff can do.
func ForDepositors(v *frame.Visit, e *explain.Explanation) {
	if v.Holds(permission.ItemsDecide) {
		return
	}
	for n := range e.Waits {
		e.Waits[n].Remedy = ""
	}
	if c := e.Cause; c != nil && slices.Contains([]string{"storage", "system", "unknown"}, c.Fault) {
		c.Todo, e.Todo = "Nothing. The staff of the archive sees it and decides.", nil
	}
	e.Todo = slices.DeleteFunc(e.Todo, func(line string) bool {
		return strings.Contains(line, "`farol ") && !strings.Contains(line, "`farol validate ")
	})
}

// codesOf explains the codes of an item's faults, but for that of the item itself.
func codesOf(e explain.Explanation) (list []explain.Verdict) {
	for _, f := range e.Faults {
		known := slices.ContainsFunc(list, func(v explain.Verdict) bool { return v.Code == f.Code }) || e.Cause != nil && e.Cause.Code == f.Code
		if !known {
			list = append(list, explain.VerdictOn(f.Code))
		}
	}
	return list
}

// twins are the newest other items of the same object.
func twins(v *frame.Visit, i record.WorkItem) []record.WorkItem {
	if i.ObjectIdentifier == "" {
		return nil
	}
	found, _ := frame.Optional[frame.List[record.WorkItem]](v, "items", url.Values{"object": {i.ObjectIdentifier}, "limit": {"6"}})
	if found == nil {
		return nil
	}
	return slices.DeleteFunc(found.Items, func(o record.WorkItem) bool { return o.ID == i.ID })
}

// Rail is the way of an item through its stages.
func Rail(i record.ItemView) (list []RailStage) {
	place := slices.Index(i.Stages, i.Stage)
	for n, s := range i.Stages {
		r := RailStage{Stage: s, State: "ahead", Class: "off"}
		switch {
		case i.Status == registry.Success || n < place:
			r.State, r.Class = "done", "good"
		case n == place:
			r.State, r.Class = "here", words.StatusOf(i.Status).Class
		}
		list = append(list, r)
	}
	return list
}
