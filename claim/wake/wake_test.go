package wake

import (
	"slices"
	"testing"
	"time"

	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/registry"
)

// Work wakes those who take it, whether it comes from this process or from another, and
// nobody else; what may be anything wakes all.
func TestWorkWakesThoseWhoTakeIt(t *testing.T) {
	t.Parallel()
	taking := map[string]func(cursor.Partition) bool{
		"small": func(p cursor.Partition) bool { return p.Band == 0 || p.Band == AnyBand },
		"Store": func(p cursor.Partition) bool { return p.Stage == "Store" || p.Stage == "" },
	}
	store := cursor.Place{Partition: cursor.Partition{Stage: "Store", Band: 2}}
	receive := cursor.Place{Partition: cursor.Partition{Stage: "Receive"}}
	for name, tc := range map[string]struct {
		comes func(*Board)
		small bool
		store bool
	}{
		"a large item at Store":                  {func(b *Board) { b.Put([]cursor.Place{store}) }, false, true},
		"a small item at Receive":                {func(b *Board) { b.Put([]cursor.Place{receive}) }, true, false},
		"both":                                   {func(b *Board) { b.Put([]cursor.Place{store, receive}) }, true, true},
		"nothing":                                {func(b *Board) { b.Put(nil) }, false, false},
		"a notice of a large item at Store":      {func(b *Board) { b.Receive("me", "you\nStore\t2\t0\t7") }, false, true},
		"a notice of a small item at Receive":    {func(b *Board) { b.Receive("me", "you\nReceive\t0\t0\t7") }, true, false},
		"a notice of both":                       {func(b *Board) { b.Receive("me", "you\nReceive\t0\t0\t7\nStore\t2\t0\t7") }, true, true},
		"a notice of Receive":                    {func(b *Board) { b.Receive("me", "\nReceive") }, true, false},
		"a notice of Store":                      {func(b *Board) { b.Receive("me", "\nStore") }, true, true},
		"a notice that cannot be read":           {func(b *Board) { b.Receive("me", "you\nStore\t2\tx") }, true, true},
		"a notice of anything":                   {func(b *Board) { b.Receive("me", "you\n\n") }, true, true},
		"its own notice, which it knows already": {func(b *Board) { b.Receive("me", "me\nStore\t0\t0\t7") }, false, false},
		"a call":                                 {func(b *Board) { b.Ring() }, true, true},
	} {
		b := New()
		rung := map[string]*Waiter{}
		for who, takes := range taking {
			c, stop := b.Wait(takes)
			defer stop()
			rung[who] = c
		}
		tc.comes(b)
		if small, store := len(rung["small"].C) == 1, len(rung["Store"].C) == 1; small != tc.small || store != tc.store {
			t.Errorf("%s: woke small %v and Store %v, want %v and %v", name, small, store, tc.small, tc.store)
		}
	}
}

// Who is woken learns where there may be work, once, and of all that came since it asked.
func TestWokenLearnWhere(t *testing.T) {
	t.Parallel()
	b := New()
	one, stop := b.Wait(func(cursor.Partition) bool { return true })
	defer stop()
	asked := func() (stages []registry.Stage) {
		for _, p := range one.News() {
			stages = append(stages, p.Stage)
		}
		slices.Sort(stages)
		return stages
	}
	at := func(stage registry.Stage) cursor.Place {
		return cursor.Place{Partition: cursor.Partition{Stage: stage}}
	}
	b.Put([]cursor.Place{at("Store"), at("Record")})
	b.Put([]cursor.Place{at("Store")})
	b.Receive("me", "you\nReceive")
	if got, want := asked(), []registry.Stage{"Receive", "Record", "Store"}; !slices.Equal(got, want) {
		t.Errorf("work is at %q, want %q", got, want)
	}
	if got := asked(); len(got) != 0 {
		t.Errorf("asked again, work is at %q", got)
	}
	b.Ring()
	if got := asked(); !slices.Equal(got, []registry.Stage{""}) {
		t.Errorf("after a call work is at %q, want anywhere", got)
	}
}

// Who has stopped waiting is not woken.
func TestWhoHasLeftIsNotWoken(t *testing.T) {
	t.Parallel()
	b := New()
	c, stop := b.Wait(func(cursor.Partition) bool { return true })
	stop()
	b.Ring()
	b.Put([]cursor.Place{{}})
	if len(c.C) != 0 {
		t.Error("it was woken")
	}
}

// A process waits for new work while one of its pools has space, and leaves to others what comes
// for a full one, until that has space or a poll finds nothing of it.
func TestBoardWaitsForWhatItCanTake(t *testing.T) {
	t.Parallel()
	b := New()
	small, stop := b.Wait(func(p cursor.Partition) bool { return p.Band == 0 })
	defer stop()
	if !b.Waits() {
		t.Error("with space, the process does not wait")
	}
	large, stopLarge := b.Wait(func(p cursor.Partition) bool { return p.Band == 1 })
	small.Full(true)
	if !b.Waits() {
		t.Error("with one full pool of two, it does not wait")
	}
	comes := []cursor.Place{{Partition: cursor.Partition{Stage: "Store"}}}
	for name, step := range map[string]struct {
		end   func()
		waits bool
	}{
		"the pool has space":              {func() { small.Full(false); small.Full(true) }, true},
		"a poll finds nothing":            {func() { b.Found(nil) }, true},
		"a poll finds it":                 {func() { b.Found(comes) }, false},
		"more comes, which it could take": {func() { b.Put([]cursor.Place{{Partition: cursor.Partition{Stage: "Store", Band: 1}}}) }, false},
	} {
		b.Put(comes)
		if b.Waits() {
			t.Errorf("%s: before, the process waits although only a full pool takes what came", name)
		}
		if step.end(); b.Waits() != step.waits {
			t.Errorf("%s: it waits: %v, want %v", name, b.Waits(), step.waits)
		}
	}
	b.Found(nil)
	stopLarge()
	if b.Waits() {
		t.Error("with full pools only, it waits")
	}
	large.Full(false)
}

// Who takes something for another is woken only when that has no space, and then of all that came
// before.
func TestHelpersAreWokenWhenOthersAreFull(t *testing.T) {
	t.Parallel()
	b := New()
	small, stop := b.Wait(func(p cursor.Partition) bool { return p.Band == 0 })
	defer stop()
	large, stop := b.Wait(func(p cursor.Partition) bool { return p.Band == 1 })
	defer stop()
	large.Helps(func(p cursor.Partition) bool { return p.Band == 0 })
	woken := func(w *Waiter) bool {
		select {
		case <-w.C:
			return true
		default:
			return false
		}
	}
	comes := []cursor.Place{{Partition: cursor.Partition{Stage: "Store"}}}
	for _, step := range []struct {
		what         string
		do           func()
		small, large bool
	}{
		{"the pool has space", func() { b.Put(comes) }, true, false},
		{"it has none any more", func() { small.Full(true) }, false, true},
		{"something comes while it is full", func() { large.News(); b.Put(comes) }, true, true},
		{"both are full", func() { large.Full(true); b.Put(comes) }, true, false},
	} {
		if step.do(); woken(small) != step.small || woken(large) != step.large {
			t.Errorf("%s: woken other than small %v, large %v", step.what, step.small, step.large)
		}
	}
	if b.Waits() || len(large.News()) != 1 {
		t.Error("with both full, it waits for new work, or has not noted where some is")
	}
}

// Polls that lead to claims in vain become rarer, up to a bound; one claim that gets something
// makes them as usual again.
func TestPollsInVainBecomeRarer(t *testing.T) {
	t.Parallel()
	const while = time.Hour
	p := &Polls{}
	rests := func() time.Duration {
		p.next = time.Now()
		if !p.Mine(while) {
			t.Fatal("it is not time for a poll")
		}
		return time.Until(p.next).Round(time.Minute)
	}
	for i, want := range []time.Duration{while, 2 * while, 4 * while, 4 * while} {
		if got := rests(); got != want {
			t.Errorf("after %d polls in vain, %v until the next, want %v", i, got, want)
		}
		p.Found(true, true)
	}
	p.Found(true, false) // for nobody here
	p.Took()
	if got := rests(); got != while {
		t.Errorf("after a claim that got something, %v until the next, want %v", got, while)
	}
}
