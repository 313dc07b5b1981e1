package explain

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/farol-preservation/farol/claim/stages"
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
	now, other := time.Now(), ""
	if i.WaitsFor != nil {
		other = fmt.Sprint(*i.WaitsFor)
	}
	switch {
	case o.Reason == "worker gone" && workerGone(i, now):
		return whoGivesBack(i, now)
	case o.Reason == "waiting" && other == "":
		return o.Remedy
	}
	return cmp.Or(human.Fill(remedies()[o.Reason], map[string]string{
		"item": fmt.Sprint(i.ID), "other": other, "stage": string(i.Stage), "step": stages.StepOf(i.Action, i.Stage),
		"sooner": fmt.Sprint(max(i.Priority-10, -100)),
	}, func(word string) string { return word }), o.Remedy)
}

// remedies are sentences by what an item waits for.
func remedies() map[string]string {
	const deletion = "Wait. To stop the deletion, cancel its request: `farol delete list` shows it, `farol delete cancel ID` stops it."
	return map[string]string{
		"waiting":           "Wait; `farol item explain {other}` explains the other item.",
		"cooling off":       deletion,
		"kept by the store": deletion,
		"delayed":           "Wait, or `farol requeue {item}`, which starts the stage again.",
		"paused":            "Ask the person who paused it, or `farol resume '{stage}'`, which ends your own pause; `farol resume --pause ID` ends that of another, whose ID `farol stage list` shows.",
		"cap":               "Wait; `farol stage list` shows the cap of {stage}, and `farol stage set '{stage}' --cap N` changes it.",
		"parked":            "`farol item explain {item}` says what to correct; then `farol requeue {item}`, or end it: `farol item cancel {item}`.",
		"running":           "Wait. If it hangs: `farol item release {item}`; `farol workers` lists the workers.",
		"held":              "Wait: it continues by itself. `farol services` shows for which workers the service fails, and why.",
		"behind others":     "Wait, or `farol item priority {item} {sooner}`.",
		"no worker":         "Start a worker that claims it: `farol work --stages '{step}'`; `farol workers` shows what each worker claims.",
		"http worker":       "Start a program that processes '{stage}' over HTTP: docs/workers.md; `farol stage list` shows what waits.",
		"memory":            "Run a worker with a larger memory limit; `farol workers` lists the live workers.",
		"busy":              "Wait, or start more workers: `farol work`; `farol workers` lists them.",
	}
}
