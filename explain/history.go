package explain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// An Entry of the history is what happened to an item: attempts of the same kind in a row, or a
// change by hand.
type Entry struct {
	At          time.Time      `json:"at"`
	Until       time.Time      `json:"until"`
	What        string         `json:"what"` // in words
	Stage       registry.Stage `json:"stage"`
	Outcome     string         `json:"outcome"` // of the ledger; "" while it runs; by hand
	Code        string         `json:"error_code"`
	Attempts    int            `json:"attempts"`
	Workers     []string       `json:"workers"` // node/process; of a change by hand, who made it
	Error       string         `json:"error"`   // of the last
	CurrentFile string         `json:"file_in_hand"`
}

const byHand = "by hand"

// history puts attempts and changes into the order of time.
func history(i record.WorkItem, attempts []record.Attempt, changes []record.Change) []Entry {
	began := fmt.Sprintf("found in the bucket %s, uploaded %s", human.Line(i.Bucket), human.Time(i.BagDate))
	if i.Action != "Ingest" {
		began = "requested by " + human.Line(i.User)
	}
	list := []Entry{{At: i.CreatedAt, Until: i.CreatedAt, Workers: []string{}, What: began}}
	for _, a := range attempts {
		list = addAttempt(list, a)
	}
	for _, c := range changes {
		list = append(list, Entry{
			At: c.At, Until: c.At, Stage: c.StageThen, Outcome: byHand, Workers: []string{c.Actor}, What: ChangeByHand(c),
		})
	}
	slices.SortStableFunc(list, func(a, b Entry) int { return a.At.Compare(b.At) })
	return list
}

// ChangeByHand says what a change did, who made it and with which program.
func ChangeByHand(c record.Change) string { return Change(c) + ", " + byWhom(c) }

// byWhom names who made a change, and with which program.
func byWhom(c record.Change) string {
	return fmt.Sprintf("by %s with %s", human.Line(c.Actor), human.Line(cmp.Or(c.Program, "a program without a name")))
}

// Change says what a change did.
func Change(c record.Change) string {
	if c.Note != nil {
		return "noted: " + human.Line(*c.Note)
	}
	if c.Refused != nil {
		return fmt.Sprintf("refused while %s at %s: %s", c.StatusWas, c.StageWas, human.Line(*c.Refused))
	}
	if c.StageWas == c.StageThen && c.StatusWas == c.StatusThen {
		return fmt.Sprintf("changed while %s at %s", c.StatusThen, c.StageThen)
	}
	return fmt.Sprintf("%s at %s became %s at %s", c.StatusWas, c.StageWas, c.StatusThen, c.StageThen)
}

// addAttempt adds an attempt, or adds it to those before it that ended alike.
func addAttempt(list []Entry, a record.Attempt) []Entry {
	next := Entry{
		At: a.ClaimedAt, Until: a.HeartbeatAt, Stage: a.Stage, Code: a.ErrorCode, Attempts: 1,
		Workers: []string{}, Error: a.Error, CurrentFile: a.CurrentFile,
	}
	if a.Node != "" {
		next.Workers = append(next.Workers, fmt.Sprintf("%s/%d", a.Node, a.PID))
	}
	if a.EndedAt != nil {
		next.Until = *a.EndedAt
	}
	if a.Outcome != nil {
		next.Outcome = *a.Outcome
	}
	if last := &list[len(list)-1]; last.Attempts > 0 && last.Stage == next.Stage && last.Outcome == next.Outcome && last.Code == next.Code {
		last.Attempts++
		last.Until, last.Error, last.CurrentFile = next.Until, next.Error, next.CurrentFile
		for _, w := range next.Workers {
			if !slices.Contains(last.Workers, w) {
				last.Workers = append(last.Workers, w)
			}
		}
		last.describe()
		return list
	}
	next.describe()
	return append(list, next)
}

// OutcomeText says in words how an attempt ended; "" is the outcome of one in progress.
func OutcomeText(outcome string) string {
	kinds := map[string]string{
		"": "in progress", "done": "done", "transient": "failed; retried while attempts are left", "fatal": "failed; a retry would not help",
		"panic": "crashed", "killed": "its worker was killed", "oom": "its worker ran out of memory", "lease expired": "its worker's heartbeats stopped",
		"stopped":  "its worker was asked to stop, and ended before it gave the item back; not counted",
		"released": "given back by its worker; not counted", "sent back": "sent back to an earlier stage", "snoozed": "postponed by its stage",
		"held":      "given back because a service failed; not counted",
		"cancelled": "taken from its worker by a person or a newer upload",
	}
	return cmp.Or(kinds[outcome], outcome)
}

// describe says in words what attempts came to.
func (c *Entry) describe() {
	text := OutcomeText(c.Outcome)
	if c.Attempts > 1 {
		text = fmt.Sprintf("%d attempts, each of them: %s", c.Attempts, text)
	}
	if c.Code != "" {
		text += " (" + c.Code + ")"
	}
	c.What = fmt.Sprintf("%s: %s, in %s", c.Stage, text, human.Duration(c.Until.Sub(c.At)))
	switch n := len(c.Workers); n {
	case 0: // they are not for everyone
	case 1:
		c.What += ", by " + human.Line(c.Workers[0])
	default:
		c.What += fmt.Sprintf(", by %d workers, %s the last", n, human.Line(c.Workers[n-1]))
	}
}
