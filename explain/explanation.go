package explain

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/farol-preservation/farol/explain/estimate"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
)

// An Explanation is what an item is, what happened to it, why, and what to do.
type Explanation struct {
	estimate.Times

	Item        record.WorkItem         `json:"item"`
	Request     record.RetrievalRequest `json:"request"` // empty of an ingest
	Since       time.Time               `json:"since"`   // it is as it is
	Summary     string                  `json:"summary"` // in one sentence
	History     []Entry                 `json:"history"`
	Cause       *Verdict                `json:"cause"`  // of its last failure or end; null if there is none
	Faults      []progress.Fault        `json:"faults"` // in detail, as far as they are known
	More        int                     `json:"more_faults"`
	Odd         []string                `json:"warnings"`     // about the bag
	CurrentFile string                  `json:"file_in_hand"` // when it failed
	Waits       []record.Obstacle       `json:"waits_for"`
	Current     Stage                   `json:"current"`
	Todo        []string                `json:"to_do"`
	again       string                  // how to start over after it was cancelled
}

// Explain explains one item.
func (s Source) Explain(ctx context.Context, id int64) (*Explanation, error) {
	item, attempts, err := s.read(ctx, id)
	if err != nil {
		return nil, err
	}
	e := &Explanation{Item: item, Faults: []progress.Fault{}, Waits: []record.Obstacle{}}
	changes, err := s.Registry.Changes(ctx, id)
	if err != nil {
		return nil, err
	}
	if e.Request, err = requests.In(s.Registry).RequestOf(ctx, item); err != nil {
		return nil, err
	}
	if item.Status == "Pending" {
		if e.Waits, err = Obstacles(ctx, s.Registry, id); err != nil {
			return nil, err
		}
	}
	if item.Status == "Cancelled" {
		again, err := requests.In(s.Registry).HaveAgain(ctx, id)
		if err != nil {
			return nil, err
		}
		e.again = asCommand(again)
	}
	current, found, err := s.current(ctx, item)
	e.Current = current
	s.unread(err)
	if e.Times, err = s.ends(ctx, item, e.Current); err != nil {
		return nil, err
	}
	e.conclude(attempts, changes, found)
	return e, nil
}

// conclude says what follows from what is on record.
func (e *Explanation) conclude(attempts []record.Attempt, changes []record.Change, found progress.Faults) {
	i := e.Item
	e.History = history(i, attempts, changes)
	e.Since = i.CreatedAt
	if n := len(e.History); n > 0 {
		e.Since = e.History[n-1].Until
	}
	if i.Status == "Started" && i.StageStartedAt != nil {
		e.Since = *i.StageStartedAt
	}
	e.Summary = e.summary()
	e.Odd = append(warningsOf(attempts), warningsAtEnd(found, attempts)...)
	if i.ErrorCode != "" && i.Status != "Started" && i.Status != "Success" {
		v := VerdictOn(i.ErrorCode)
		v.Todo = strings.ReplaceAll(v.Todo, "{id}", fmt.Sprint(i.ID))
		e.Cause = &v
		e.failed(attempts, found)
	}
	e.Todo = e.todo()
}

// failed adds the details of what went wrong: those of the stage, if they are still
// kept, or else the sentences of the note.
func (e *Explanation) failed(attempts []record.Attempt, found progress.Faults) {
	if len(attempts) == 0 {
		return
	}
	last := attempts[len(attempts)-1]
	if last.ErrorCode != e.Item.ErrorCode {
		return // it is not the attempt that ended it
	}
	e.CurrentFile = last.CurrentFile
	if found.Token == last.ClaimToken && len(found.List) > 0 {
		e.Faults, e.More = found.List, found.More
		return
	}
	if e.Cause.Fault == "bag" {
		for sentence := range strings.SplitSeq(last.Error, " | ") {
			e.Faults = append(e.Faults, progress.Fault{Code: last.ErrorCode, Message: sentence})
		}
	}
}

func (e *Explanation) summary() string {
	i := e.Item
	const failed = "is not retried automatically: a retry without a change would not help."
	ends := map[registry.Status][2]string{ // of an ingest, and of a request
		registry.Success:   {"The bag was ingested: all its copies were stored, verified and recorded.", "It succeeded."},
		registry.Cancelled: {"It has ended permanently and was not ingested.", "It has ended permanently without success."},
		registry.Failed:    {"It was not ingested and " + failed, "It failed and " + failed},
	}
	end, ended := ends[i.Status]
	switch {
	case ended && i.Action == registry.Ingest:
		return end[0]
	case ended:
		return end[1]
	case workerGone(i, time.Now()):
		return "Its worker is gone: " + e.Current.Place() + "."
	case i.Status == registry.Started:
		return "A worker is processing it: " + e.Current.Place() + "."
	case i.Status == registry.Pending && len(e.Waits) == 0:
		return "It waits, and any worker may claim it: " + e.Current.Place() + "."
	case i.Status == registry.Pending:
		return "It waits: " + e.Current.Place() + "."
	}
	return "It is parked until a person decides. The work done so far is kept."
}

// todo says what to do next.
func (e *Explanation) todo() (list []string) {
	i := e.Item
	id := fmt.Sprint(i.ID)
	switch i.Status {
	case "Success":
		return []string{"Nothing."}
	case "Started":
		if now := time.Now(); workerGone(i, now) {
			return []string{whoGivesBack(i, now)}
		}
		return []string{"Nothing. To follow it: `farol item watch " + id + "`. If it hangs: `farol item release " + id + "`."}
	case "Pending":
		for _, w := range e.Waits {
			list = append(list, remedy(i, w))
		}
		if len(list) == 0 {
			list = []string{"Nothing. To follow it: `farol item watch " + id + "`."}
		}
		return list
	default:
	}
	if e.Cause != nil && (i.Status != "Cancelled" || i.ErrorCode != "by-hand") {
		list = append(list, e.Cause.Todo)
		if e.Cause.Fault == "bag" {
			list = append(list, "Before uploading, check the bag: `farol validate BAG.tar`. docs/validation-codes.md explains the codes.")
		}
	}
	if i.Status == "Cancelled" {
		return append(list, cmp.Or(e.again, "To start over, upload the bag or make the request again."))
	}
	if e.Cause == nil {
		list = append(list, "Fix the cause; then `farol requeue "+id+"`.")
	}
	return append(list, "To end it permanently: `farol item cancel "+id+"`.")
}
