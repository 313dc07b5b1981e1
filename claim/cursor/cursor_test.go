package cursor

import (
	"slices"
	"testing"
	"time"
)

// rescanned lists the partitions that a claim at a time would scan in full.
func rescanned(h *Cursors, partitions []Partition, now time.Time, took time.Duration) (list []Partition) {
	scans := make([]Scan, len(partitions))
	last := map[Partition]Position{}
	for i, c := range partitions {
		scans[i].Partition = c
		last[c] = Position{VirtualStart: 7}
	}
	h.Begin(scans, now)
	for _, p := range scans {
		if p.Full {
			list = append(list, p.Partition)
		}
	}
	h.End(scans, last, now, took)
	return list
}

// While full scans cost nothing, each partition has one every second.
func TestEachPartitionIsRescannedEverySecond(t *testing.T) {
	t.Parallel()
	h, partitions, now := New(), []Partition{{"Receive", 0}, {"Receive", 1}, {"Store", 0}}, time.Now()
	for second := range 5 {
		at := now.Add(time.Duration(second) * time.Second)
		if got := rescanned(h, partitions, at, time.Millisecond); !slices.Equal(got, partitions) {
			t.Errorf("rescanned %v in second %d, want all", got, second)
		}
		if got := rescanned(h, partitions, at.Add(500*time.Millisecond), time.Millisecond); len(got) != 0 {
			t.Errorf("rescanned %v half a second later", got)
		}
	}
}

// An item that is moved before the cursor is in the next claim, also if it is moved while a
// claim runs that ends further on.
func TestNextClaimSeesWhatWasMovedBeforeItsCursor(t *testing.T) {
	t.Parallel()
	at, now := Partition{"Receive", 0}, time.Now()
	for name, comes := range map[string]Position{"earlier virtual start": {VirtualStart: 3}, "better priority": {Priority: -1, VirtualStart: 9}, "further on": {VirtualStart: 8}} {
		for _, meanwhile := range []bool{false, true} {
			h := New()
			rescanned(h, []Partition{at}, now, time.Millisecond) // scanned up to 7
			scans := []Scan{{Partition: at}}
			if meanwhile {
				h.Begin(scans, now)
			}
			h.Lower(Place{at, comes})
			if meanwhile {
				h.End(scans, map[Partition]Position{at: {VirtualStart: 20}}, now, time.Millisecond)
			}
			h.Begin(scans, now)
			if from := scans[0].From; comes.Before(from) {
				t.Errorf("%s, meanwhile %t: the next claim begins at %+v, after what came at %+v", name, meanwhile, from, comes)
			}
			if scans[0].From == Beginning() || scans[0].Full {
				t.Errorf("%s, meanwhile %t: the next claim goes from the beginning", name, meanwhile)
			}
		}
	}
}

// What only says that a stage has space holds no cursor back.
func TestEndLowersNothing(t *testing.T) {
	t.Parallel()
	h, at, now := New(), Partition{"Record", 0}, time.Now()
	rescanned(h, []Partition{at}, now, time.Millisecond)
	scans, last := []Scan{{Partition: at}}, Position{VirtualStart: 9}
	h.Begin(scans, now)
	h.Lower(Place{at, End()})
	h.End(scans, map[Partition]Position{at: last}, now, time.Millisecond)
	if h.Begin(scans, now); scans[0].From != last {
		t.Errorf("the next claim begins at %+v, want the last item, %+v", scans[0].From, last)
	}
}

// Scans that waited for a database that did not answer, along with a claim or in the background,
// hold back the next ones for some seconds only: what has become due by then lies before the
// cursors, and no other scan finds it.
func TestStallDelaysNoRescanForLong(t *testing.T) {
	t.Parallel()
	const stall = 25 * time.Second
	for name, aside := range map[string]bool{"along": false, "aside": true} {
		h, partitions, now := New(), []Partition{{"Receive", 0}, {"Store", 0}}, time.Now()
		cost := time.Microsecond
		if aside {
			cost = 100 * time.Millisecond
		}
		looked := func() (n int) {
			scans := []Scan{{Partition: partitions[0]}, {Partition: partitions[1]}}
			behind := h.Begin(scans, now)
			for _, s := range scans {
				if s.Full {
					n++
				}
			}
			h.End(scans, nil, now, cost)
			if len(behind) > 0 {
				h.Rescanned(behind, map[Partition]Position{}, now, cost)
			}
			return n + len(behind)
		}
		for range 100 {
			looked()
			now = now.Add(100 * time.Millisecond)
		}
		scans := []Scan{{Partition: partitions[0]}, {Partition: partitions[1]}}
		behind := h.Begin(scans, now)
		for len(behind) == 0 && !scans[0].Full && !scans[1].Full {
			now = now.Add(time.Second)
			behind = h.Begin(scans, now)
		}
		h.End(scans, nil, now, stall)
		if len(behind) > 0 {
			h.Rescanned(behind, nil, now, stall)
		}
		now = now.Add(stall)
		n := [2]int{}
		for tick := range 100 {
			n[tick/50] += looked()
			now = now.Add(100 * time.Millisecond)
		}
		if n[0] < len(partitions) || n[1] < len(partitions) {
			t.Errorf("%s: %d partitions were looked through in the five seconds after the stall, and in the next %d; want all %d", name, n[0], n[1], len(partitions))
		}
	}
}

// Full scans that a pinned snapshot has made expensive hold up no claim. They run in the
// background, one at a time, take a small part of the time, and go through all partitions
// in turn, also those in which nothing is found.
func TestExpensiveRescansAreFewAndInTheBackground(t *testing.T) {
	t.Parallel()
	h, partitions, now := New(), []Partition{{"Receive", 0}, {"Receive", 1}, {"Store", 0}}, time.Now()
	if got := rescanned(h, partitions, now, 300*time.Millisecond); len(got) != len(partitions) {
		t.Fatalf("rescanned %v at first, want all", got)
	}
	times := map[Partition]int{}
	var spent time.Duration
	const seconds, known = 120, 20
	for tick := range seconds * 10 {
		scans := []Scan{{Partition: partitions[0]}, {Partition: partitions[1]}, {Partition: partitions[2]}}
		at := now.Add(time.Duration(tick+1) * 100 * time.Millisecond)
		aside := h.Begin(scans, at)
		if len(aside) > 0 {
			if again := h.Begin(scans, at.Add(time.Minute)); len(again) > 0 {
				t.Fatalf("a second rescan of %v begins during the first", again)
			}
		}
		for _, p := range scans {
			if p.Full {
				t.Fatalf("a claim rescans %v, which takes 100 ms", p.Partition)
			}
		}
		h.End(scans, map[Partition]Position{partitions[0]: {VirtualStart: 9}}, at, time.Millisecond)
		if len(aside) > 0 {
			took := time.Duration(len(aside)) * 100 * time.Millisecond
			h.Rescanned(aside, map[Partition]Position{}, at, took)
			if tick >= known*10 {
				spent += took
			}
		}
		for _, p := range aside {
			times[p.Partition]++
		}
	}
	if spent > (seconds-known)*time.Second/20 {
		t.Errorf("rescans took %v of %d s, want a twentieth at most", spent, seconds-known)
	}
	for _, c := range partitions {
		if times[c] < 5 {
			t.Errorf("%v was rescanned %d times", c, times[c])
		}
	}
	h.Rescanned([]Scan{{Partition: partitions[0]}}, nil, now.Add(time.Hour), time.Microsecond)
	if takes := h.of(partitions[0]).takes; takes <= expensive {
		t.Errorf("after a rescan that failed at once, another is thought to take %v", takes)
	}
	h.Rescanned([]Scan{{Partition: partitions[0]}}, map[Partition]Position{partitions[0]: {VirtualStart: 3}}, now.Add(time.Hour), time.Microsecond)
	if at, want := h.of(partitions[0]).from, (Position{VirtualStart: 3}); at != want {
		t.Errorf("after something was found the next claim begins at %+v, want %+v", at, want)
	}
	scans := []Scan{{Partition: partitions[0]}}
	h.Begin(scans, now.Add(2*time.Hour))
	if !scans[0].Full {
		t.Error("a partition that was rescanned at once is not scanned in full by claims again")
	}
}
