package queue

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// timeline is what happened to an item, in the order of time: a lane for each attempt, for
// each time in which none ran, and for each change by a person.
type timeline struct {
	From, To time.Time
	Lanes    []lane
	Earlier  int // attempts that are left out
}

// lane is a stretch of time.
type lane struct {
	Kind     string // attempt, gap or change
	Class    string // of its bar
	What     string // the stage, or what was waited for
	Attempt  int
	Worker   string // who had it, or made the change
	Outcome  string
	Text     string // the outcome in words
	Code     string
	Error    string
	File     string // that was in progress when it ended
	From, To time.Time
	Open     bool // it goes on
	X, W     int  // of its bar, in thousandths of the whole time
}

// Took is how long it took.
func (l lane) Took() time.Duration { return l.To.Sub(l.From) }

const (
	mostLanes = 200         // attempts that are shown at once
	leastGap  = time.Second // a shorter wait is not shown
	leastBar  = 4           // thousandths: a bar is seen
)

// timelineOf puts the attempts and changes of an item in order, and names the time between.
func timelineOf(item record.WorkItem, h record.ItemHistory, why []record.Obstacle, now time.Time, all bool) timeline {
	t := timeline{From: item.CreatedAt}
	attempts := h.Attempts
	if !all && len(attempts) > mostLanes {
		t.Earlier = len(attempts) - mostLanes
		attempts = attempts[t.Earlier:]
		t.From = attempts[0].ClaimedAt
	}
	before := "waited for a worker"
	at := t.From
	for _, a := range attempts {
		t.gap(at, a.ClaimedAt, before)
		l := attemptLane(a, now)
		t.Lanes = append(t.Lanes, l)
		at, before = l.To, waitAfter(a)
	}
	live := item.Status != registry.Success && item.Status != registry.Cancelled
	if item.Status == registry.Pending {
		t.Lanes = append(t.Lanes, lane{Kind: "gap", Class: "wait", What: waitNow(item, why, before), From: at, To: now, Open: true})
	} else if live && item.Status != registry.Started {
		t.Lanes = append(t.Lanes, lane{Kind: "gap", Class: "person", What: "waits for a person", From: at, To: now, Open: true})
	}
	for _, c := range h.Changes {
		if !c.At.Before(t.From) {
			t.Lanes = append(t.Lanes, lane{Kind: "change", Class: "person", What: explain.Change(c), Worker: c.Actor, From: c.At, To: c.At})
		}
	}
	slices.SortStableFunc(t.Lanes, func(a, b lane) int { return a.From.Compare(b.From) })
	t.To = item.UpdatedAt
	if live {
		t.To = now
	}
	t.place()
	return t
}

func attemptLane(a record.Attempt, now time.Time) lane {
	l := lane{Kind: "attempt", What: string(a.Stage), Attempt: a.Attempt, Worker: a.Worker, Code: a.ErrorCode, Error: a.Error, File: a.CurrentFile, From: a.ClaimedAt, To: now, Open: true}
	if l.Worker == "" && a.Node != "" {
		l.Worker = fmt.Sprintf("%s/%d", a.Node, a.PID)
	}
	if a.EndedAt != nil {
		l.To, l.Open = *a.EndedAt, false
	}
	if a.Outcome != nil {
		l.Outcome = *a.Outcome
	}
	l.Text = explain.OutcomeText(l.Outcome)
	switch l.Outcome {
	case "":
		l.Class = "runs"
	case "done":
		l.Class = "good"
	case "released", "stopped", "snoozed", "held", "cancelled":
		l.Class = "off"
	default:
		l.Class = "bad"
	}
	return l
}

// waitAfter is what an item waits for after an attempt that ended so.
func waitAfter(a record.Attempt) string {
	if a.Outcome == nil {
		return "waited for a worker"
	}
	switch *a.Outcome {
	case "transient", "panic", "killed", "oom", "lease expired":
		return "backoff before a retry"
	case "snoozed":
		return "postponed by its stage"
	case "held":
		return "waited for a service that failed"
	case "fatal":
		return "waited for a person"
	}
	return "waited for a worker"
}

// waitNow is what an item waits for now: what the queue says, or what usually follows.
func waitNow(item record.WorkItem, why []record.Obstacle, usual string) string {
	switch {
	case item.WaitsFor != nil:
		return fmt.Sprintf("waits for item %d", *item.WaitsFor)
	case len(why) > 0 && why[0].Detail != "":
		return why[0].Reason + ": " + why[0].Detail
	case len(why) > 0:
		return why[0].Reason
	}
	return strings.Replace(usual, "waited", "waits", 1)
}

// gap adds a time in which no attempt ran.
func (t *timeline) gap(from, to time.Time, what string) {
	if to.Sub(from) < leastGap {
		return
	}
	class := "wait"
	switch what {
	case "backoff before a retry":
		class = "backoff"
	case "waited for a person":
		class = "person"
	}
	t.Lanes = append(t.Lanes, lane{Kind: "gap", Class: class, What: what, From: from, To: to})
}

// place gives each lane its bar.
func (t *timeline) place() {
	whole := t.To.Sub(t.From)
	if whole <= 0 {
		whole = 1
	}
	for i := range t.Lanes {
		l := &t.Lanes[i]
		x := int(1000 * l.From.Sub(t.From) / whole)
		w := int(1000 * l.Took() / whole)
		l.W = min(max(w, leastBar), 1000)
		l.X = min(max(x, 0), 1000-l.W)
	}
}
