package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// A timeline names the time between attempts by what the attempt before came to.
func TestTimelineNamesWhatWasWaitedFor(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	attempt := func(stage registry.Stage, from, to int, outcome string) record.Attempt {
		a := record.Attempt{Stage: stage, Attempt: 1, ClaimedAt: at(from), Worker: "w1"}
		if outcome != "" {
			end := at(to)
			a.EndedAt, a.Outcome = &end, &outcome
		}
		return a
	}
	item := record.WorkItem{Action: registry.Ingest, Status: registry.Started, Stage: "Store", CreatedAt: began, UpdatedAt: at(100)}
	h := record.ItemHistory{Attempts: []record.Attempt{
		attempt("Receive", 10, 12, "done"), attempt("Validate", 12, 20, "killed"), attempt("Validate", 30, 31, "transient"), attempt("Validate", 40, 50, "held"),
		attempt("Validate", 60, 70, "done"), attempt("Store", 70, 0, ""),
	}, Changes: []record.Change{{At: at(45), Actor: "ann@test.edu", StageWas: "Validate", StageThen: "Validate", StatusWas: "Started", StatusThen: "Pending"}}}
	lanes := timelineOf(item, h, nil, at(100), false).Lanes
	var seen []string
	for _, l := range lanes {
		seen = append(seen, l.Kind+": "+l.What+" "+l.Outcome)
	}
	want := []string{
		"gap: waited for a worker ", "attempt: Receive done", "attempt: Validate killed", "gap: backoff before a retry ", "attempt: Validate transient",
		"gap: backoff before a retry ", "attempt: Validate held", "change: Started at Validate became Pending at Validate ", "gap: waited for a service that failed ",
		"attempt: Validate done", "attempt: Store ",
	}
	if strings.Join(seen, "\n") != strings.Join(want, "\n") {
		t.Errorf("the timeline is\n%s\nwant\n%s", strings.Join(seen, "\n"), strings.Join(want, "\n"))
	}
	last := lanes[len(lanes)-1]
	if !last.Open || last.X != 700 || last.W != 300 || last.Took() != 30*time.Second {
		t.Errorf("what runs is from %d, %d wide, open %v, %v", last.X, last.W, last.Open, last.Took())
	}
	for _, l := range lanes {
		if l.X < 0 || l.W < 1 || l.X+l.W > 1000 {
			t.Errorf("a bar is outside: %+v", l)
		}
	}
	waits := int64(9)
	item.Status, item.WaitsFor = registry.Pending, &waits
	h = record.ItemHistory{Attempts: h.Attempts[:1]}
	lanes = timelineOf(item, h, nil, at(100), false).Lanes
	if last := lanes[len(lanes)-1]; last.What != "waits for item 9" || !last.Open {
		t.Errorf("what it waits for now: %+v", last)
	}
}

// Of an item that was tried very often the newest attempts are shown.
func TestLongTimelineIsCut(t *testing.T) {
	t.Parallel()
	began, outcome := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), "snoozed"
	var h record.ItemHistory
	for n := range 1000 {
		end := began.Add(time.Duration(n)*time.Minute + 30*time.Second)
		h.Attempts = append(h.Attempts, record.Attempt{Stage: "Glacier Restore", Attempt: n, ClaimedAt: began.Add(time.Duration(n) * time.Minute), EndedAt: &end, Outcome: &outcome})
	}
	item := record.WorkItem{Status: registry.Success, CreatedAt: began, UpdatedAt: began.Add(1000 * time.Minute)}
	shown := timelineOf(item, h, nil, began, false)
	lanes, earlier := shown.Lanes, shown.Earlier
	if earlier != 800 || len(lanes) != 399 || lanes[0].Attempt != 800 { // 200 attempts, and the time between
		t.Errorf("%d are left out, %d are shown from %d", earlier, len(lanes), lanes[0].Attempt)
	}
	if all := timelineOf(item, h, nil, began, true); all.Earlier != 0 || len(all.Lanes) != 1999 {
		t.Errorf("of all %d are left out, %d are shown", all.Earlier, len(all.Lanes))
	}
}

// The cap of a stage is counted with what runs there in the same table.
func TestCapAgreesWithItsRow(t *testing.T) {
	t.Parallel()
	q := record.QueueView{Bands: []record.BandView{{QueueBand: record.QueueBand{Action: "Ingest", Stage: "Record", Running: 1}}}}
	later := record.StageSettings{QueueStage: record.QueueStage{Action: "Ingest", Stage: "Record", Cap: 2}} // the item has ended
	if r := gridOf(q, []record.StageSettings{later}).Rows[0]; r.Running != 1 || r.All.Running != 1 {
		t.Errorf("%d of the cap run, and %d in all", r.Running, r.All.Running)
	}
}
