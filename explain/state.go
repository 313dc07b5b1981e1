package explain

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
)

// State says what happens to an item next, or what a person has to do.
func State(i record.WorkItem, now time.Time) string {
	switch {
	case workerGone(i, now):
		return "its worker is gone. " + whoGivesBack(i, now)
	case i.Status == "Started" && i.LeaseExpiresAt != nil && i.Node != nil && i.PID != nil:
		return fmt.Sprintf("in progress on %s, process %d; the lease ends in %s unless it is renewed",
			human.Line(*i.Node), *i.PID, human.Duration(i.LeaseExpiresAt.Sub(now)))
	case i.Status == "Pending":
		return pending(i, now)
	case i.Status == "Success":
		return "done"
	case i.Status == "Cancelled":
		return fmt.Sprintf("ended permanently; `farol item explain %d` says how to start over", i.ID)
	case i.Status == "Failed" && i.Action == "Ingest":
		return fmt.Sprintf("a corrected bag can be uploaded; if the bag is not to blame, `farol item requeue %d`", i.ID)
	}
	return fmt.Sprintf("it waits for a person: `farol item requeue %d` or `farol item cancel %d`", i.ID, i.ID)
}

// pending says what a Pending item waits for.
func pending(i record.WorkItem, now time.Time) string {
	switch {
	case i.WaitsFor != nil:
		return fmt.Sprintf("it waits until item %d of the same object has ended", *i.WaitsFor)
	case i.ErrorCode == "kept-by-store":
		return i.Note
	case i.RunAt != nil && i.RunAt.After(now):
		return fmt.Sprintf("it can be claimed in %s", human.Duration(i.RunAt.Sub(now)))
	}
	return "it waits for a worker"
}

// workerGone tells whether the lease of an item in progress has lapsed.
func workerGone(i record.WorkItem, now time.Time) bool {
	return i.Status == "Started" && i.LeaseExpiresAt != nil && i.LeaseExpiresAt.Before(now)
}

// whoGivesBack says who gives back an item whose lease has lapsed. Any service does within
// seconds, so that after a minute none can be running.
func whoGivesBack(i record.WorkItem, now time.Time) string {
	if now.Sub(*i.LeaseExpiresAt) > time.Minute {
		return "No process that would give it back is running: start `farol work`, or `farol schedule`."
	}
	return "Any worker, scheduler, server or mirror that runs gives it back within a minute."
}

// FirstFinding is the beginning of a note that fits into a line, and how many findings
// follow.
func FirstFinding(note string) string {
	var found []string
	for line := range strings.Lines(note) {
		for finding := range strings.SplitSeq(line, " | ") {
			if finding = strings.TrimSpace(finding); finding != "" {
				found = append(found, finding)
			}
		}
	}
	switch len(found) {
	case 0:
		return ""
	case 1:
		return found[0]
	}
	more, last := len(found)-1, 0
	if _, err := fmt.Sscanf(found[more], "Too many errors: %d more.", &last); err == nil {
		more += last - 1
	}
	return fmt.Sprintf("%s (+%d more)", found[0], more)
}

// Obstacles are what keeps an item from being claimed, with commands as remedies.
func Obstacles(ctx context.Context, r *registry.Registry, id int64) ([]record.Obstacle, error) {
	obstacles, err := r.WhyNot(ctx, id)
	if err != nil {
		return nil, err
	}
	item, err := r.WorkItem(ctx, id)
	if err != nil {
		return nil, err
	}
	for n, o := range obstacles {
		obstacles[n].Remedy = remedy(item, o)
		if o.Reason != "ended" {
			continue
		}
		again, err := requests.In(r).HaveAgain(ctx, id)
		if err != nil {
			return nil, err
		}
		if text := asCommand(again); text != "" {
			obstacles[n].Remedy = "None. " + text
		}
	}
	return obstacles, nil
}

// asCommand is what to do, as a command where there is one.
func asCommand(advice registry.Refused) string {
	return cmp.Or(human.Command(advice.Code, advice.Args), advice.Text)
}

// remedy is what to do about something that an item waits for, as a command where
// there is one.
func remedy(i record.WorkItem, o record.Obstacle) string {
	switch o.Reason {
	case "waiting":
		if i.WaitsFor != nil {
			return fmt.Sprintf("Wait; `farol item explain %d` explains the other item.", *i.WaitsFor)
		}
	case "cooling off", "kept by the store":
		return "Wait. To stop the deletion, cancel its request: `farol delete list` shows it, `farol delete cancel ID` stops it."
	case "delayed":
		return fmt.Sprintf("Wait, or `farol requeue %d`, which starts the stage again.", i.ID)
	case "paused":
		return fmt.Sprintf("Ask the person who paused it, or `farol resume '%s'`, which ends your own pause; `farol resume --pause ID` ends that of another, whose ID `farol stage list` shows.", i.Stage)
	case "cap":
		return fmt.Sprintf("Wait; `farol stage list` shows the cap of %s, and `farol stage set '%[1]s' --cap N` changes it.", i.Stage)
	case "parked":
		return fmt.Sprintf("`farol item explain %d` says what to correct; then `farol requeue %[1]d`, or end it: `farol item cancel %[1]d`.", i.ID)
	case "worker gone":
		if now := time.Now(); workerGone(i, now) {
			return whoGivesBack(i, now)
		}
	case "running":
		return fmt.Sprintf("Wait. If it hangs: `farol item release %d`; `farol workers` lists the workers.", i.ID)
	case "held":
		return "Wait: it continues by itself. `farol services` shows for which workers the service fails, and why."
	case "behind others":
		return fmt.Sprintf("Wait, or `farol item priority %d %d`.", i.ID, max(i.Priority-10, -100))
	}
	return cmp.Or(workerRemedy(i, o.Reason), o.Remedy)
}

// workerRemedy is what to do if no worker takes an item; "" for other reasons.
func workerRemedy(i record.WorkItem, reason string) string {
	switch reason {
	case "no worker":
		return fmt.Sprintf("Start a worker that claims it: `farol work --stages '%s'`; `farol workers` shows what each worker claims.", claim.StepOf(i.Action, i.Stage))
	case "http worker":
		return fmt.Sprintf("Start a program that processes '%s' over HTTP: docs/workers.md; `farol stage list` shows what waits.", i.Stage)
	case "memory":
		return "Run a worker with a larger memory limit; `farol workers` lists the live workers."
	case "busy":
		return "Wait, or start more workers: `farol work`; `farol workers` lists them."
	}
	return ""
}
