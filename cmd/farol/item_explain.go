package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
)

func itemExplainCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "explain ID",
		Short: "Explain on one page what happened to an item, and what to do",
		Long: `Explain on one page what an item is, what happened to it, which file of the bag
something is wrong with, what was expected and what was found, whose fault it is
(the bag's or the system's), what it waits for, and what to do. It says nothing
that is not on record; "item show" has all that is.`,
		Example: `  farol item explain 7
  farol item explain 7 --json`,
		Args: oneArg("item by its ID"),
		RunE: showing(readExplanation, &asJSON),
	}
	jsonFlag(c, &asJSON)
	return c
}

// explanation is what item explain says.
type explanation struct {
	Item    registry.WorkItem   `json:"item"`
	Request requests.Request    `json:"request"` // empty of an ingest
	Since   time.Time           `json:"since"`   // it is as it is
	Summary string              `json:"summary"` // in one sentence
	History []chapter           `json:"history"`
	Cause   *verdict            `json:"cause"`  // of its last failure or end; null if there is none
	Faults  []progress.Fault    `json:"faults"` // what exactly, as far as that is known
	More    int                 `json:"more_faults"`
	Odd     []string            `json:"warnings"`     // about the bag
	InHand  string              `json:"file_in_hand"` // when it failed
	Waits   []registry.Obstacle `json:"waits_for"`
	Current stageView           `json:"current"`
	Todo    []string            `json:"to_do"`
	again   string              // how it is had after all that was cancelled
}

func readExplanation(ctx context.Context, id int64, warnings io.Writer) (*explanation, error) {
	e := &explanation{Faults: []progress.Fault{}, Waits: []registry.Obstacle{}}
	err := withItem(ctx, id, func(c itemConfig, r *registry.Registry, item registry.WorkItem, attempts []registry.Attempt) error {
		e.Item = item
		changes, err := r.Changes(ctx, id)
		if err != nil {
			return err
		}
		if e.Request, err = requests.In(r).RequestOf(ctx, item); err != nil {
			return err
		}
		if item.Status == "Pending" {
			if e.Waits, err = r.WhyNot(ctx, id); err != nil {
				return err
			}
		}
		if item.Status == "Cancelled" {
			if e.again, err = requests.In(r).HaveAgain(ctx, id); err != nil {
				return err
			}
		}
		found, err := e.readRedis(ctx, c.Redis)
		if err != nil {
			fmt.Fprintln(warnings, "The progress of files is not known:", err)
		}
		e.conclude(attempts, changes, found)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// readRedis reads what is known beside the registry, and returns what an attempt
// failed of.
func (e *explanation) readRedis(ctx context.Context, c redisConfig) (f progress.Faults, err error) {
	e.Current, _ = readStage(ctx, nil, e.Item)
	err = withProgress(ctx, c, func(ctx context.Context, store *progress.Store) error {
		if e.Current, err = readStage(ctx, store, e.Item); err != nil {
			return err
		}
		f, _, err = store.Faults(ctx, e.Item.ID)
		return err
	})
	return f, err
}

// conclude says what follows from what is on record.
func (e *explanation) conclude(attempts []registry.Attempt, changes []registry.Change, found progress.Faults) {
	i := e.Item
	e.History = historyOf(i, attempts, changes)
	e.Since = i.CreatedAt
	if n := len(e.History); n > 0 {
		e.Since = e.History[n-1].Until
	}
	if i.Status == "Started" && i.StageStartedAt != nil {
		e.Since = *i.StageStartedAt
	}
	e.Summary = e.summary()
	e.Odd = append(interim.WarningsOf(attempts), warningsAtEnd(found, attempts)...)
	if i.ErrorCode != "" && i.Status != "Started" && i.Status != "Success" {
		v := verdictOn(i.ErrorCode)
		v.Todo = strings.ReplaceAll(v.Todo, "{id}", fmt.Sprint(i.ID))
		e.Cause = &v
		e.failed(attempts, found)
	}
	e.Todo = e.todo()
}

// failed says what exactly went wrong: as the stage knew it, where that is still
// there, or in the words of the note.
func (e *explanation) failed(attempts []registry.Attempt, found progress.Faults) {
	if len(attempts) == 0 {
		return
	}
	last := attempts[len(attempts)-1]
	if last.ErrorCode != e.Item.ErrorCode {
		return // it is not the attempt that ended it
	}
	e.InHand = last.FileInHand
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

func (e *explanation) summary() string {
	i := e.Item
	switch i.Status {
	case "Success", "Cancelled", "Failed":
		if i.Action != "Ingest" {
			return map[string]string{
				"Success": "It was done.", "Cancelled": "It has ended for good, and was not done.",
				"Failed": "It was not done, and is not tried again by itself: trying again as it is would not help.",
			}[i.Status]
		}
	}
	switch i.Status {
	case "Success":
		return "The bag was ingested: all its copies were stored, verified and put on record."
	case "Started":
		return "A worker has it: " + e.Current.place() + "."
	case "Pending":
		if len(e.Waits) == 0 {
			return "It waits, and nothing keeps a worker from taking it: " + e.Current.place() + "."
		}
		return "It waits: " + e.Current.place() + "."
	case "Cancelled":
		return "It has ended for good, and was not ingested."
	case "Failed":
		return "It was not ingested, and is not tried again by itself: trying again as it is would not help."
	}
	return "It is parked until a person decides. What was done so far is kept."
}

// todo says what to do next.
func (e *explanation) todo() (list []string) {
	i := e.Item
	id := fmt.Sprint(i.ID)
	switch i.Status {
	case "Success":
		return []string{"Nothing."}
	case "Started":
		return []string{"Nothing. To follow it: `farol item watch " + id + "`. If it hangs: `farol item release " + id + "`."}
	case "Pending":
		for _, w := range e.Waits {
			list = append(list, remedy(i, w))
		}
		if len(list) == 0 {
			list = []string{"Nothing. To follow it: `farol item watch " + id + "`."}
		}
		return list
	}
	if e.Cause != nil && (i.Status != "Cancelled" || i.ErrorCode != "by-hand") {
		list = append(list, e.Cause.Todo)
		if e.Cause.Fault == "bag" {
			list = append(list, "Before uploading, check the bag: `farol validate BAG.tar`. docs/validation-codes.md explains the codes.")
		}
	}
	if i.Status == "Cancelled" {
		return append(list, cmp.Or(e.again, "To have it done after all, have the bag uploaded, or ask for it, again."))
	}
	if e.Cause == nil {
		list = append(list, "Mend the cause; then `farol requeue "+id+"`.")
	}
	return append(list, "To end it for good: `farol item cancel "+id+"`.")
}

// remedy is what to do about something that an item waits for, as a command where
// there is one.
func remedy(i registry.WorkItem, o registry.Obstacle) string {
	switch o.Reason {
	case "waiting":
		if i.WaitsFor != nil {
			return fmt.Sprintf("Wait; `farol item explain %d` says about the other.", *i.WaitsFor)
		}
	case "delayed":
		return fmt.Sprintf("Wait, or `farol requeue %d`, which begins the stage anew.", i.ID)
	case "paused":
		return fmt.Sprintf("Ask whoever paused it, or `farol resume '%s'`.", i.Stage)
	case "cap":
		return fmt.Sprintf("Wait; `farol stage list` shows the cap of %s, and `farol stage set '%[1]s' --cap N` changes it.", i.Stage)
	case "parked":
		return fmt.Sprintf("`farol item explain %d` says what to correct; then `farol requeue %[1]d`, or end it: `farol item cancel %[1]d`.", i.ID)
	case "running":
		return fmt.Sprintf("Wait. If it hangs: `farol item release %d`; `farol workers` lists the workers.", i.ID)
	case "held":
		return "Wait: it goes on by itself. `farol services` says which workers see the service fail, and why."
	case "behind others":
		return fmt.Sprintf("Wait, or `farol item priority %d %d`.", i.ID, max(i.Priority-10, -100))
	case "no worker":
		return fmt.Sprintf("Start a worker that takes it: `farol work --stages '%s'`; `farol workers` says who takes what.", claim.StepOf(i.Action, i.Stage))
	case "http worker":
		return fmt.Sprintf("Start a program that works '%s' over HTTP: docs/workers.md; `farol stage list` says what waits.", i.Stage)
	case "busy":
		return "Wait, or start more workers: `farol work`; `farol workers` says what there is."
	}
	return o.Remedy
}
