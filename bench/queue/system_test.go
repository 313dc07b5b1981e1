package queue

import (
	"slices"
	"testing"

	"github.com/farol-preservation/farol/bench/rig"
)

func TestSystemsAreChosenByNameOrFamily(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		asked string
		want  []string
	}{
		{"river", []string{"river", "river-next"}},
		{"river-next,farol", []string{"farol", "farol-carried", "farol-intake", "farol-before", "river-next"}},
		{"rive", nil},
	} {
		var got []string
		for _, c := range choose(contenders(config{against: fastest}), rig.Words(test.asked)) {
			got = append(got, c.name)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.asked, got, test.want)
		}
	}
	if n := len(choose(contenders(config{}), nil)); n != len(contenders(config{})) {
		t.Errorf("without a name %d are chosen", n)
	}
}
