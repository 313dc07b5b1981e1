package claim

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/registry"
)

// Calls that can each take another item than the first in line do not send one
// back that one of them wants.
func TestCallsPassOnWhatOthersCanTake(t *testing.T) {
	t.Parallel()
	requests := []request{
		{wants: []Want{{"Receive", 1}, {"Store", 1}}, n: 1},
		{wants: []Want{{"Receive", 1}, {"Store", 0}}, n: 1},
	}
	got, back := share(requests, []Item{{ID: 1, Stage: "Receive"}, {ID: 2, Stage: "Store"}}, nil)
	if len(back) > 0 {
		t.Errorf("%v went back", back)
	}
	ids := func(a answer) (list []int64) {
		for _, item := range a.items {
			list = append(list, item.ID)
		}
		return list
	}
	if first, second := ids(got[0]), ids(got[1]); !slices.Equal(first, []int64{2}) || !slices.Equal(second, []int64{1}) {
		t.Errorf("the calls got %v and %v, want the item of Store for the one that takes it, and the other for the other", first, second)
	}
}

// Whatever lies in the queue, calls that want as many as they have slots of the stages that
// they take, in whatever order, get all that was claimed for them: nothing goes back.
func TestNothingIsClaimedForNobody(t *testing.T) {
	t.Parallel()
	stages := []registry.Stage{"Receive", "Store", "Record"}
	rapid.Check(t, func(t *rapid.T) {
		var requests []request
		for range rapid.IntRange(1, 5).Draw(t, "calls") {
			r := request{n: rapid.IntRange(1, 5).Draw(t, "slots")}
			for _, s := range rapid.Permutation(stages).Draw(t, "order")[:rapid.IntRange(1, len(stages)).Draw(t, "takes")] {
				r.wants = append(r.wants, Want{s, r.n})
			}
			requests = append(requests, r)
		}
		served := 0
		for _, p := range gather(requests) {
			alike := p.requests
			served += len(alike)
			wants, n := together(alike)
			var items []Item
			for _, w := range wants {
				for range min(w.Most, n-len(items), rapid.IntRange(0, 20).Draw(t, "lie")) {
					items = append(items, Item{ID: int64(len(items)), Stage: w.Stage})
				}
			}
			if _, back := share(alike, items, nil); len(back) > 0 {
				t.Fatalf("%d of %d items went back from calls %+v", len(back), len(items), alike)
			}
		}
		if served != len(requests) {
			t.Fatalf("%d of %d calls were served", served, len(requests))
		}
	})
}

// A call with more slots than it takes items of all stages asks for no more than these, for
// which others could have no slots.
func TestSlotsThatNoStageFillsAreNotAskedFor(t *testing.T) {
	t.Parallel()
	requests := []request{
		{wants: []Want{{"Receive", 4}, {"Store", 4}}, n: 4},
		{wants: []Want{{"Receive", 1}, {"Store", 1}}, n: 4},
	}
	if _, n := together(requests); n != 6 {
		t.Errorf("%d items are asked for, want four for the one and two for the other", n)
	}
}
