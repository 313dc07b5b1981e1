package claim

import (
	"slices"
	"testing"
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
