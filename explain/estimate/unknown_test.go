package estimate

import (
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// What is not known is not guessed, and the reason is said.
func TestReasonsForWhichATimeIsNotKnown(t *testing.T) {
	t.Parallel()
	s := simulate(7, 600)
	const at = 20_000
	due, option := clock(at), "Glacier-VA"
	later := due.Add(time.Hour)
	waiting := registry.Standing{
		At: clock(at), Institution: "test.edu", Action: registry.Ingest, Stage: registry.Receive, Status: registry.Pending, Size: 1 << 20, Due: &due,
		StorageOption: &option,
	}
	for want, change := range map[string]func(*registry.Standing, *registry.Recent){
		"":                           func(*registry.Standing, *registry.Recent) {},
		"waits for a person":         func(v *registry.Standing, _ *registry.Recent) { v.Status = registry.Suspended },
		"has ended":                  func(v *registry.Standing, _ *registry.Recent) { v.Status = registry.Cancelled },
		"another item of its object": func(v *registry.Standing, _ *registry.Recent) { v.Due = nil },
		"the storage provider":       func(v *registry.Standing, _ *registry.Recent) { v.Action = registry.GlacierRestore },
		"postponed":                  func(v *registry.Standing, _ *registry.Recent) { v.Snoozed, v.Due = true, &later },
		"service that it needs":      func(v *registry.Standing, _ *registry.Recent) { v.Held = true },
		"its stage is paused":        func(v *registry.Standing, _ *registry.Recent) { v.Paused = true },
		"too far": func(v *registry.Standing, r *registry.Recent) {
			v.Priority, r.Bands[0].Due = 100, registry.MostAhead
		},
		"no live worker takes its":  func(_ *registry.Standing, r *registry.Recent) { r.Pools = nil },
		"worker takes its stage":    func(_ *registry.Standing, r *registry.Recent) { r.Pools = only(r.Pools, "other.edu", "") },
		"live worker takes its sta": func(_ *registry.Standing, r *registry.Recent) { r.Pools = only(r.Pools, "", "Standard") },
		"fewer than 20":             func(v *registry.Standing, _ *registry.Recent) { v.SizeBand = 3 },
		"taken longer": func(v *registry.Standing, _ *registry.Recent) {
			began := due.Add(-100 * time.Hour)
			v.Status, v.Started = registry.Started, &began
		},
	} {
		v, r := waiting, s.recent(at)
		change(&v, &r)
		got := New(r).Of(v, nil)
		if want != "" && (got.End != nil || got.StageEnd != nil || got.StageUnknown == "" || !strings.Contains(got.Unknown, want)) || want == "" && (got.End == nil || got.Unknown != "") {
			t.Errorf("%q: %+v", want, got)
		}
	}
	r := s.recent(at)
	r.Stages[storeStage].Paused = true
	if got := New(r).Of(waiting, nil); got.End != nil || got.Unknown != "Store is paused" || got.StageEnd == nil || got.StageUnknown != "" {
		t.Errorf("a later stage is paused: %+v", got)
	}
}

// only has pools that take items of one institution or one storage option.
func only(pools []record.Pool, institution, option string) (list []record.Pool) {
	for _, p := range pools {
		if institution != "" {
			p.Institutions = []string{institution}
		}
		if option != "" {
			p.StorageOptions = []string{option}
		}
		list = append(list, p)
	}
	return list
}

// A delay, what is before an item and other bands in turn put its end off; slots bring it nearer.
func TestWhatPutsAnEndOff(t *testing.T) {
	t.Parallel()
	s := simulate(7, 600)
	const at = 20_000
	r := s.recent(at)
	for i := range r.Bands {
		r.Bands[i].Due, r.Bands[i].Running = 0, 0
	}
	due, later := clock(at), clock(at+7200)
	v := registry.Standing{At: clock(at), Action: registry.Ingest, Stage: registry.Receive, Status: registry.Pending, Size: 1 << 20, Due: &due}
	likely := func() float64 { return New(r).Of(v, nil).End.Likely.Sub(clock(at)).Seconds() }
	r.Fronts = nil
	alone := likely()
	r.Fronts = []registry.Front{{Action: registry.Ingest, Stage: registry.Receive, Ahead: 40, Place: registry.Place{VirtualStart: 5}}}
	behind := likely()
	for i := range r.Bands {
		if b := &r.Bands[i]; b.Stage == registry.Receive && b.SizeBand == 1 {
			b.Due = 40
		}
	}
	inTurn := likely()
	for i := range r.Pools {
		r.Pools[i].Slots *= 10
	}
	served := likely()
	v.Due = &later
	delayed := likely()
	asked := clock(at + 60) // a minute after the queue was read
	due = asked.Add(2 * time.Hour)
	v.At, v.Due = asked, &due
	if old := likely() - 60; old != delayed {
		t.Errorf("it waits for %.0f s in place of %.0f s, since a minute has passed of a wait that has not begun", old, delayed)
	}
	if !(alone < behind && behind < inTurn && served < inTurn && delayed > served+3600) {
		t.Errorf("alone %.0f s, behind others %.0f s, with another band %.0f s, with more slots %.0f s, delayed %.0f s", alone, behind, inTurn, served, delayed)
	}
}

// A band is empty when all that waits has been claimed and what runs is through.
func TestWhenABandIsEmpty(t *testing.T) {
	t.Parallel()
	s := simulate(7, 600)
	m := New(s.recent(20_000))
	few, _ := m.Empty(registry.Ingest, registry.Receive, 0, 3, 1)
	many, _ := m.Empty(registry.Ingest, registry.Receive, 0, 300, 1)
	none, reason := m.Empty(registry.Ingest, registry.Receive, 0, 0, 0)
	if few == nil || many == nil || few.Likely <= 0 || many.Likely < 10*few.Likely || many.Low > many.Likely || many.Likely > many.High || none == nil || *none != (Span{}) || reason != "" {
		t.Errorf("few %v, many %v, none %v, %s", few, many, none, reason)
	}
	if unknown, reason := m.Empty(registry.Delete, registry.Requested, 0, 1, 0); unknown != nil || !strings.HasPrefix(reason, "fewer than 20") {
		t.Errorf("%v %q", unknown, reason)
	}
	r := s.recent(20_000)
	r.Pools = nil
	if unknown, reason := New(r).Empty(registry.Ingest, registry.Receive, 0, 1, 0); unknown != nil || reason != noWorker {
		t.Errorf("%v %q", unknown, reason)
	}
}

// What is before an item is known by the next place that was read, and only in its own partition.
func TestWhatIsBeforeAnItem(t *testing.T) {
	t.Parallel()
	s := simulate(7, 600)
	r := s.recent(20_000)
	front := func(band int16, ahead, virtual int64) registry.Front {
		return registry.Front{Action: registry.Ingest, Stage: registry.Receive, SizeBand: band, Ahead: ahead, Place: registry.Place{VirtualStart: virtual, ID: virtual}}
	}
	r.Fronts = []registry.Front{front(0, 0, 10), front(0, 1, 20), front(0, 128, 1000), front(1, 50, 15)}
	for i := range r.Bands {
		if b := &r.Bands[i]; b.Stage == registry.Receive {
			b.Due, b.Delayed = 130, map[int16]int64{1: registry.MostAhead - 130}[b.SizeBand]
		}
	}
	m := New(r)
	for _, c := range []struct {
		band     int16
		virtual  int64
		priority int
		want     int
		known    bool
	}{
		{0, 5, 0, 0, true},
		{0, 10, 0, 0, true},
		{0, 20, 0, 1, true},
		{0, 21, 0, 128, true},
		{0, 1001, 0, 130, true},
		{0, 1001, -1, 0, true},
		{1, 15, 0, 50, true},
		{1, 16, 0, 130, false},
		{2, 16, 0, 130, true},
	} {
		got, known := m.ahead(registry.Standing{
			Action: registry.Ingest, Stage: registry.Receive, SizeBand: c.band, Place: registry.Place{Priority: c.priority, VirtualStart: c.virtual, ID: c.virtual},
		})
		if known != c.known || known && got != c.want {
			t.Errorf("%+v: %d, %v", c, got, known)
		}
	}
}
