package claim

import (
	"slices"
	"testing"
	"time"
)

// swept lists the cells that a claim at a time would sweep.
func swept(h *hints, cells []cell, now time.Time, took time.Duration) (list []cell) {
	probes := make([]probe, len(cells))
	last := map[cell]position{}
	for i, c := range cells {
		probes[i].cell = c
		last[c] = position{turn: 7}
	}
	h.begin(probes, now)
	for _, p := range probes {
		if p.sweeps {
			list = append(list, p.cell)
		}
	}
	h.end(probes, last, now, took)
	return list
}

// While sweeps cost nothing, each cell has one every second.
func TestEachCellIsSweptEverySecond(t *testing.T) {
	t.Parallel()
	h, cells, now := newHints(), []cell{{"Receive", 0}, {"Receive", 1}, {"Store", 0}}, time.Now()
	for second := range 5 {
		at := now.Add(time.Duration(second) * time.Second)
		if got := swept(h, cells, at, time.Millisecond); !slices.Equal(got, cells) {
			t.Errorf("swept %v in second %d, want all", got, second)
		}
		if got := swept(h, cells, at.Add(500*time.Millisecond), time.Millisecond); len(got) != 0 {
			t.Errorf("swept %v half a second later", got)
		}
	}
}

// What comes to lie before the place that a cell was emptied to is in the next
// claim, and so is what comes while a claim is under way that goes beyond it.
func TestNextClaimSeesWhatWasPutBeforeItsHint(t *testing.T) {
	t.Parallel()
	at, now := cell{"Receive", 0}, time.Now()
	for name, comes := range map[string]position{"lower turn": {turn: 3}, "better priority": {priority: -1, turn: 9}, "further on": {turn: 8}} {
		for _, meanwhile := range []bool{false, true} {
			h := newHints()
			swept(h, []cell{at}, now, time.Millisecond) // emptied up to turn 7
			probes := []probe{{cell: at}}
			if meanwhile {
				h.begin(probes, now)
			}
			h.lower(place{at, comes})
			if meanwhile {
				h.end(probes, map[cell]position{at: {turn: 20}}, now, time.Millisecond)
			}
			h.begin(probes, now)
			if from := probes[0].from; comes.before(from) {
				t.Errorf("%s, meanwhile %t: the next claim begins at %+v, after what came at %+v", name, meanwhile, from, comes)
			}
			if probes[0].from == start() || probes[0].sweeps {
				t.Errorf("%s, meanwhile %t: the next claim goes from the beginning", name, meanwhile)
			}
		}
	}
}

// Sweeps that a pinned snapshot has made dear hold up no claim. They are looks
// beside the claims, one at a time, take a small part of the time, and go through
// the cells in turn, those too in which nothing is found.
func TestDearSweepsAreFewAndAside(t *testing.T) {
	t.Parallel()
	h, cells, now := newHints(), []cell{{"Receive", 0}, {"Receive", 1}, {"Store", 0}}, time.Now()
	if got := swept(h, cells, now, 300*time.Millisecond); len(got) != len(cells) {
		t.Fatalf("swept %v at first, want all", got)
	}
	times := map[cell]int{}
	var spent time.Duration
	const seconds = 120
	for tick := range seconds * 10 {
		probes := []probe{{cell: cells[0]}, {cell: cells[1]}, {cell: cells[2]}}
		at := now.Add(time.Duration(tick+1) * 100 * time.Millisecond)
		aside := h.begin(probes, at)
		if len(aside) > 0 {
			if again := h.begin(probes, at.Add(time.Minute)); len(again) > 0 {
				t.Fatalf("a second look at %v is made during the first", again)
			}
		}
		for _, p := range probes {
			if p.sweeps {
				t.Fatalf("a claim sweeps %v, which takes 100 ms", p.cell)
			}
		}
		h.end(probes, map[cell]position{cells[0]: {turn: 9}}, at, time.Millisecond)
		if len(aside) > 0 {
			took := time.Duration(len(aside)) * 100 * time.Millisecond
			h.looked(aside, map[cell]position{}, at, took)
			spent += took
		}
		for _, p := range aside {
			times[p.cell]++
		}
	}
	if spent > seconds*time.Second/20 {
		t.Errorf("looks took %v of %d s, want a twentieth at most", spent, seconds)
	}
	for _, c := range cells {
		if times[c] < 5 {
			t.Errorf("%v was looked at %d times", c, times[c])
		}
	}
	h.looked([]probe{{cell: cells[0]}}, nil, now.Add(time.Hour), time.Microsecond)
	if takes := h.of(cells[0]).takes; takes <= sweepDear {
		t.Errorf("after a look that failed at once, a sweep is thought to take %v", takes)
	}
	h.looked([]probe{{cell: cells[0]}}, map[cell]position{cells[0]: {turn: 3}}, now.Add(time.Hour), time.Microsecond)
	if at, want := h.of(cells[0]).from, (position{turn: 3}); at != want {
		t.Errorf("after something was found the next claim begins at %+v, want %+v", at, want)
	}
	probes := []probe{{cell: cells[0]}}
	h.begin(probes, now.Add(2*time.Hour))
	if !probes[0].sweeps {
		t.Error("a cell that a look went through at once is not swept by claims again")
	}
}

// Rounds go back to the one before, and all the way now and then, unless that
// takes long.
func TestReaperGoesBackToTheRoundBefore(t *testing.T) {
	t.Parallel()
	var r reaps
	now := time.Now()
	if got := r.since(now); got != allTheWay {
		t.Errorf("the first round goes back %v, want all the way", got)
	}
	r.ended(now, allTheWay, true)
	full := 0
	for round := range 32 {
		at := now.Add(time.Duration(round+1) * 5 * time.Second)
		switch got := r.since(at); got {
		case allTheWay:
			full++
			r.ended(at, got, true)
		case 5*time.Second + statementTime:
			r.ended(at, got, true)
		default:
			t.Errorf("round %d goes back %v", round, got)
		}
	}
	if full != 2 {
		t.Errorf("%d of 32 rounds went all the way, want 2", full)
	}
	at := now.Add(time.Hour)
	r.since(at)
	r.ended(at, time.Second, false) // what it did not get to is left for the next
	if got, want := r.since(at.Add(time.Second)), time.Hour+time.Second-32*5*time.Second+statementTime; got != want {
		t.Errorf("after a round that failed, the next goes back %v, want %v", got, want)
	}
	r.takes = time.Hour
	for range 64 {
		if got := r.since(at.Add(time.Second)); got == allTheWay {
			t.Fatal("a round that takes an hour is repeated after minutes")
		}
	}
}
